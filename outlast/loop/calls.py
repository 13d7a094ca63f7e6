"""What becomes of a call the model made: run it, ask a human, hand it back, or refuse it.

Order of the cases, and why:

1. A name of a bound server that its listing does not have is refused: handed to the client it would surface an
   internal name, and no client could run it.
2. Any other name that is not ours is the client's, arguments unseen: it validates what it declared.
3. Arguments are checked before the cap: what cannot run must not use up the cap, and the model learns the real reason.
4. The cap comes before the ask: nobody is asked for a call that would not run.
"""

from dataclasses import dataclass
from typing import Literal

from outlast.loop.bindings import Bindings, ToolBinding
from outlast.protocol import building, json
from outlast.protocol.json import JsonObject

CallAction = Literal["run", "ask", "client", "refused"]

NOT_AN_OBJECT = "arguments are not a JSON object"
CUT = "the model's answer was cut before the round was complete; the call was not executed"


@dataclass(frozen=True, slots=True)
class Counters:
    """Gateway calls of the response so far, and how many it may make (`max_tool_calls`)."""

    used: int
    limit: int


@dataclass(frozen=True, slots=True)
class Routed:
    """What becomes of a call. `label`, `name`: the public ones; `label` and `binding` are None for a client's call.

    `refusal`: what the model is told, `error`: the public object; both only for a refused call.
    """

    action: CallAction
    name: str
    label: str | None = None
    binding: ToolBinding | None = None
    refusal: str | None = None
    error: JsonObject | None = None
    over_cap: bool = False


@dataclass(frozen=True, slots=True)
class NewCall:
    """One call of a round, ready for its row. `ordinal`: in the model's order, from 0.

    `item_id`: of the public item, or, for an ask, of the `mcp_call` it becomes when approved. `call_id`: the model's
    for a client call, else the item's id (a gateway call has none of its own). `name` is the public name.
    """

    ordinal: int
    action: CallAction
    item_id: str
    call_id: str
    name: str
    arguments: str
    label: str | None = None
    binding: ToolBinding | None = None
    refusal: str | None = None


def classify(name: str, arguments: str, bindings: Bindings, counters: Counters) -> Routed:
    """The owner and fate of a call by the name the model used; pure, for one call."""
    vanished = bindings.vanished(name)
    if vanished is not None:
        label, tool = vanished
        return _refused(tool, label, None, f"server '{label}' has no tool '{tool}'")
    binding = bindings.by_internal(name)
    if binding is None:
        return Routed("client", name)
    if not is_object(arguments):
        return _refused(binding.name, binding.label, binding, NOT_AN_OBJECT)
    if counters.used >= counters.limit:
        text = f"the limit of {counters.limit} tool calls (max_tool_calls) is reached; the call was not executed"
        return _refused(binding.name, binding.label, binding, text, over_cap=True)
    return Routed("ask" if binding.ask else "run", binding.name, binding.label, binding)


def is_object(arguments: str) -> bool:
    """Whether the text is a JSON object."""
    try:
        return isinstance(json.loads(arguments), dict)
    except ValueError:
        return False


def _refused(name: str, label: str, binding: ToolBinding | None, text: str, *, over_cap: bool = False) -> Routed:
    return Routed("refused", name, label, binding, text, building.tool_error(text), over_cap)
