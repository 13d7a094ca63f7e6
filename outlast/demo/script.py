"""What the demo model says: a pure function from a prompt to a reply, the same for both dialects.

It plays a clerk at a support desk. Its rules, in order:
  1. a tool the request forces is called;
  2. asked about an order, it looks the order up, and only then refunds it if that was asked;
  3. any other declared tool is called when a word of its name is in what the user said;
  4. with every answer it needed it tells the user what happened, and never claims more than it knows;
  5. asked for notes on a conversation, it repeats the last things that were said;
  6. without tools it says what it can do, or tells a short story.
"""

import json
import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from outlast.protocol.compaction import ASKED_FOR_SUMMARY
from outlast.protocol.json import JsonObject

_ORDER = re.compile(r"(?<!\d)(\d{3,6})(?!\d)")
_WORD = re.compile(r"[a-z0-9]+")
# Words of tool names that say nothing about the subject.
_FILLERS = frozenset({"get", "set", "list", "find", "fetch", "make", "the", "and", "for", "tool", "run", "call"})
_GREETINGS = frozenset({"hello", "hi", "hey", "help", "thanks", "who", "tools"})
_DESK = ("lookup_order", "refund_order")

WELCOME = (
    "Hello! I am the demo clerk of a small support desk. Give me its tools and ask me to look up order 1042, "
    "or to refund it; ask anything else and I tell you a short story."
)
STORIES = (
    "Once a clerk wrote every promise into a big green book, so when the lamp went out, nobody had to ask twice.",
    "The night train stopped between two stations, waited for the snow to pass, and arrived with everyone aboard.",
    "An old lighthouse keeper counted ships by their bells; one foggy morning he heard one too many, and smiled at it.",
    "The baker left a note beside the oven: if I am late, begin again where the flour ends, not before it.",
)


@dataclass(frozen=True, slots=True)
class Tool:
    """A declared function."""

    name: str
    parameters: JsonObject

    @property
    def short(self) -> str:
        """Without a gateway's prefix: `mcp__desk__lookup_order` is `lookup_order`."""
        return self.name.rsplit("__", 1)[-1]


@dataclass(frozen=True, slots=True)
class Answered:
    """A call made since the user last spoke, and what came back."""

    name: str
    output: str


@dataclass(frozen=True, slots=True)
class Prompt:
    """A request without its dialect. `choice`: "auto", "none", "required", or the name of the forced function."""

    user: str
    answered: Sequence[Answered] = ()
    tools: Sequence[Tool] = ()
    choice: str = "auto"
    parallel: bool = True
    # A JSON schema the text must fit; an empty one is any object; None is free text.
    schema: JsonObject | None = None


@dataclass(frozen=True, slots=True)
class Say:
    """The reply is a text."""

    text: str


@dataclass(frozen=True, slots=True)
class Call:
    """One function call of a reply."""

    name: str
    arguments: JsonObject


@dataclass(frozen=True, slots=True)
class Do:
    """The reply is one or more calls."""

    calls: tuple[Call, ...]


def reply(prompt: Prompt) -> Say | Do:
    """The clerk's next move."""
    if prompt.user.startswith(ASKED_FOR_SUMMARY):
        return Say(_notes(prompt.user))
    calls = _calls(prompt)
    if calls:
        return Do(calls if prompt.parallel else calls[:1])
    if prompt.schema is not None:
        filled = _fill(prompt.schema, prompt.user) if prompt.schema else {"answer": _tell(prompt)}
        return Say(json.dumps(filled, ensure_ascii=False))
    return Say(_tell(prompt))


def _calls(prompt: Prompt) -> tuple[Call, ...]:
    if prompt.choice == "none" or not prompt.tools:
        return ()
    if prompt.choice not in ("auto", "required"):
        return tuple(_call(tool, prompt.user) for tool in prompt.tools if tool.name == prompt.choice)
    wanted = _desk_call(prompt) or _named_calls(prompt)
    if not wanted and prompt.choice == "required":
        return (_call(prompt.tools[0], prompt.user),)
    return wanted


def _desk_call(prompt: Prompt) -> tuple[Call, ...]:
    order = _ORDER.search(prompt.user)
    if order is None:
        return ()
    arguments = {"order_id": int(order[1])}
    lookup, refund = (_find(prompt.tools, name) for name in _DESK)
    looked, refunded = (_output(prompt, name) for name in _DESK)
    if lookup is not None and looked is None and refunded is None:
        return (Call(lookup.name, arguments),)
    found = looked is None or _is_order(looked)
    if refund is not None and refunded is None and found and _wants_refund(prompt.user):
        return (Call(refund.name, {**arguments, "reason": "asked for by the customer"}),)
    return ()


def _named_calls(prompt: Prompt) -> tuple[Call, ...]:
    said = set(_WORD.findall(prompt.user.lower()))
    done = {answered.name for answered in prompt.answered}
    return tuple(
        _call(tool, prompt.user)
        for tool in prompt.tools
        if tool.short not in _DESK and tool.name not in done and _subject(tool) & said
    )


def _subject(tool: Tool) -> set[str]:
    return {word for word in _WORD.findall(tool.short.lower()) if len(word) > 2} - _FILLERS


def _notes(asked: str) -> str:
    """A summary: the first words of each thing that was said or done."""
    told = asked.partition("<conversation>")[2].partition("</conversation>")[0]
    lines = [line for line in told.splitlines() if line and not line.startswith("[")]
    return "So far: " + " / ".join(line[:80] for line in lines[-8:])


def _tell(prompt: Prompt) -> str:
    """The text for the user."""
    looked, refunded = (_output(prompt, name) for name in _DESK)
    if refunded is not None:
        return _tell_refund(prompt, refunded)
    if looked is not None:
        return f"Here is what I found. {looked}" if _is_order(looked) else f"I could not look that up: {looked}"
    if prompt.answered:
        return " ".join(f"{_short(answered.name)} says: {answered.output}" for answered in prompt.answered)
    said = set(_WORD.findall(prompt.user.lower()))
    if not said or said & _GREETINGS or _wants_refund(prompt.user) or "order" in said:
        return WELCOME
    # Any stable hash will do: the same question gets the same story, in every process.
    return STORIES[zlib.crc32(prompt.user.encode()) % len(STORIES)]


def _tell_refund(prompt: Prompt, output: str) -> str:
    order = _ORDER.search(prompt.user)
    what = f"the refund of order {order[1]}" if order else "the refund"
    lowered = output.lower()
    if "outcome_unknown" in lowered:
        return (
            f"I could not confirm {what}: it may or may not have gone through; "
            "please check the ledger before trying again."
        )
    if lowered.startswith("denied") or "not approved" in lowered:
        return f"I did not make {what}, because it was not approved. I was told: {output}"
    if lowered.startswith("refunded"):
        return f"Done. {output}"
    return f"I could not make {what}: {output}"


def _wants_refund(text: str) -> bool:
    lowered = text.lower()
    return "refund" in lowered or "money back" in lowered


def _is_order(output: str) -> bool:
    return output.startswith("Order ")


def _find(tools: Sequence[Tool], short: str) -> Tool | None:
    return next((tool for tool in tools if tool.name.endswith(short)), None)


def _output(prompt: Prompt, short: str) -> str | None:
    return next((answered.output for answered in reversed(prompt.answered) if answered.name.endswith(short)), None)


def _short(name: str) -> str:
    return name.rsplit("__", 1)[-1]


def _call(tool: Tool, text: str) -> Call:
    filled = _fill({"type": "object", **tool.parameters}, text)
    return Call(tool.name, filled if isinstance(filled, dict) else {})


def _fill(schema: Mapping[str, object], text: str) -> object:
    """A value that fits a simple schema, its words and numbers taken from the text."""
    match schema:
        case {"const": value}:
            return value
        case {"enum": [first, *_]} | {"default": first}:
            return first
        case {"anyOf": [dict() as first, *_]} | {"oneOf": [dict() as first, *_]}:
            return _fill(first, text)
        case {"type": [str() as kind, *_]}:
            return _fill({**schema, "type": kind}, text)
        case {"type": "object"} | {"properties": _}:
            return _fill_object(schema, text)
        case {"type": "array", "items": dict() as items}:
            return [_fill(items, text)]
        case {"type": "array"}:
            return []
        case {"type": "integer" | "number"}:
            number = re.search(r"\d+", text)
            return int(number[0]) if number else 1
        case {"type": "boolean"}:
            return True
        case {"type": "null"}:
            return None
        case _:
            names = re.findall(r"\b[A-Z][\w-]+", text.strip()[1:])
            return names[-1] if names else text.strip()


def _fill_object(schema: Mapping[str, object], text: str) -> JsonObject:
    properties = schema.get("properties")
    if not isinstance(properties, dict):
        return {}
    required = schema.get("required")
    names = required if isinstance(required, list) else list(properties)
    return {name: _fill(properties.get(name) or {}, text) for name in names}
