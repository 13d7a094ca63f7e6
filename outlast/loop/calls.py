"""What becomes of a call the model made: run it, ask a human, hand it back, or refuse it.

Order of the cases, and why:

1. A name of a bound server that its listing does not have is refused: handed to the client it would surface an
   internal name, and no client could run it.
2. Any other name that is not ours is the client's, arguments unseen: it validates what it declared.
3. Arguments are checked before the cap: what cannot run must not use up the cap, and the model learns the real reason.
4. The cap comes before the ask: nobody is asked for a call that would not run.
"""

from dataclasses import dataclass, field, replace
from typing import Literal

from outlast.loop.bindings import Bindings, ToolBinding
from outlast.protocol import json
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

    `refusal`: what the model is told, only for a refused call. `merged`: a hosted call's arguments with what the
    caller's tool fixes; `arguments`: what the server gets, None for what the model wrote.
    """

    action: CallAction
    name: str
    label: str | None = None
    binding: ToolBinding | None = None
    refusal: str | None = None
    over_cap: bool = False
    merged: JsonObject = field(default_factory=dict)
    arguments: str | None = None


@dataclass(frozen=True, slots=True)
class HostedCall:
    """A call of a hosted type. `item`: as announced; `arguments`: by the names the model knows, what the caller fixed
    included. `name`, `given`: what the model called, and with what, as it is shown to it again."""

    item: JsonObject
    arguments: JsonObject
    name: str
    given: str

    def told(self, output: str | None) -> JsonObject:
        """What is kept beside the public item, which has neither the call nor its answer. `output` None: not yet."""
        kept: JsonObject = {"call": {"name": self.name, "arguments": self.given}}
        return kept if output is None else {**kept, "output": output}


@dataclass(frozen=True, slots=True)
class NewCall:
    """One call of a round, ready for its row. `ordinal`: in the model's order, from 0.

    `item_id`: of the public item, or, for an ask, of the `mcp_call` it becomes when approved. `call_id`: the model's
    for a client call, else the item's id (a gateway call has none of its own). `name` is the public name. `hosted`: the
    item of a hosted tool's call as announced, and the model's call. `hidden`: no client sees it.
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
    hosted: HostedCall | None = None
    hidden: bool = False


def classify(name: str, arguments: str, bindings: Bindings, counters: Counters) -> Routed:
    """The owner and fate of a call by the name the model used; pure, for one call."""
    vanished = bindings.vanished(name)
    if vanished is not None:
        label, tool = vanished
        return _refused(tool, label, None, f"server '{label}' has no tool '{tool}'")
    binding = bindings.by_internal(name)
    if binding is None:
        return Routed("client", name)
    given = _object(arguments)
    if given is None:
        return _refused(binding.name, binding.label, binding, NOT_AN_OBJECT)
    merged = binding.merged(given)
    told = merged if binding.hosted is not None else {}
    if counters.used >= counters.limit:
        text = f"the limit of {counters.limit} tool calls (max_tool_calls) is reached; the call was not executed"
        return replace(_refused(binding.name, binding.label, binding, text, over_cap=True), merged=told)
    sent = binding.sent(merged)
    action: CallAction = "ask" if binding.ask else "run"
    changed = None if sent == given else json.dumps_text(sent)
    return Routed(action, binding.name, binding.label, binding, merged=told, arguments=changed)


def _object(arguments: str) -> JsonObject | None:
    try:
        found = json.loads(arguments)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _refused(name: str, label: str, binding: ToolBinding | None, text: str, *, over_cap: bool = False) -> Routed:
    return Routed("refused", name, label, binding, text, over_cap)
