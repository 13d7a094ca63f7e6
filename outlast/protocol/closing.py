"""How an item that will never be finished is closed: with what was shown of it.

Clients act on what they see, so an abandoned item (its attempt was cut, its response was cancelled) is closed in the
strict nesting: each open part is done with the text shown, then `response.output_item.done` says `incomplete` with
empty content. It is the one place where the deltas and the final item differ; preparation drops such items.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from outlast.protocol import events as wire
from outlast.protocol.events import WireEvent
from outlast.protocol.json import JsonObject

# Delta event -> (done event, field that carries the text, field that numbers the part).
_TEXTS = {
    wire.TEXT_DELTA: (wire.TEXT_DONE, "text", "content_index"),
    wire.REFUSAL_DELTA: (wire.REFUSAL_DONE, "refusal", "content_index"),
    wire.REASONING_TEXT_DELTA: (wire.REASONING_TEXT_DONE, "text", "content_index"),
    wire.SUMMARY_TEXT_DELTA: (wire.SUMMARY_TEXT_DONE, "text", "summary_index"),
}
_TEXT_DONE = {done: (text, number) for done, text, number in _TEXTS.values()}
_TEXT_OF_PART = {
    "output_text": (wire.TEXT_DONE, "text"),
    "refusal": (wire.REFUSAL_DONE, "refusal"),
    "reasoning_text": (wire.REASONING_TEXT_DONE, "text"),
    "summary_text": (wire.SUMMARY_TEXT_DONE, "text"),
}
_PART_DONE = {
    wire.PART_ADDED: (wire.PART_DONE, "content_index"),
    wire.SUMMARY_PART_ADDED: (wire.SUMMARY_PART_DONE, "summary_index"),
}
_PARTS_CLOSED = {wire.PART_DONE: "content_index", wire.SUMMARY_PART_DONE: "summary_index"}
_ARGUMENTS = (wire.ARGUMENTS_DONE, wire.MCP_ARGUMENTS_DONE)


@dataclass(slots=True)
class _Part:
    """One content or summary part, as far as it was shown. `text_done`: the event its text still lacks."""

    part: JsonObject
    done: str | None
    number: str
    text_done: str | None
    text_field: str = "text"
    text: str = ""
    annotations: list[object] = field(default_factory=list)


def closing_events(shown: Sequence[WireEvent]) -> list[WireEvent]:
    """The events that close one item as abandoned, given all its events so far; none when it is done.

    They carry the item's id and no numbers: the event log stamps them.
    """
    item: JsonObject | None = None
    parts: dict[tuple[str, int], _Part] = {}
    arguments: str | None = None
    for event in shown:
        if event.type == wire.ITEM_ADDED:
            item = event.rest["item"]
        elif event.type == wire.ITEM_DONE:
            return []
        elif event.type in _ARGUMENTS:
            arguments = event.rest.get("arguments")
        else:
            _see(parts, event)
    if item is None:
        return []
    closed = [event for key, part in sorted(parts.items()) for event in _close_part(item["id"], key[1], part)]
    return [*closed, WireEvent(wire.ITEM_DONE, {"item": abandoned(item, arguments)})]


def abandoned(item: JsonObject, arguments: str | None = None) -> JsonObject:
    """The final form of an item that was announced and given up; `arguments`: those of a call, if shown."""
    final = {**item, "status": "incomplete"}
    match item.get("type"):
        case "message":
            final["content"] = []
        case "reasoning":
            final |= {"summary": []} | ({"content": []} if "content" in item else {})
        case "mcp_call":
            final |= {"output": None, "error": None}
        case "image_generation_call":
            final["status"] = "failed"  # its type has no `incomplete`
    if arguments is not None and "arguments" in item:
        final["arguments"] = arguments
    return final


def _see(parts: dict[tuple[str, int], _Part], event: WireEvent) -> None:
    """Fold one event between added and done into the parts it belongs to."""
    if event.type in _PART_DONE:
        done, number = _PART_DONE[event.type]
        opened = event.rest.get("part", {})
        text_done, text = _TEXT_OF_PART.get(opened.get("type"), (None, "text"))
        parts[number, event.rest.get(number, 0)] = _Part(opened, done, number, text_done, text)
    elif event.type in _PARTS_CLOSED:
        number = _PARTS_CLOSED[event.type]
        parts.pop((number, event.rest.get(number, 0)), None)
    elif event.type == wire.ANNOTATION_ADDED:
        part = parts.get(("content_index", event.rest.get("content_index", 0)))
        if part is not None:
            part.annotations.append(event.rest.get("annotation"))
    elif event.type in _TEXTS:
        text_done, text, number = _TEXTS[event.type]
        # Some upstreams stream a text without opening its part: then only the text is closed.
        part = parts.setdefault((number, event.rest.get(number, 0)), _Part({}, None, number, text_done, text))
        part.text += event.rest.get("delta", "")
    elif event.type in _TEXT_DONE:
        text, number = _TEXT_DONE[event.type]
        part = parts.get((number, event.rest.get(number, 0)))
        if part is not None:
            part.text, part.text_done = event.rest.get(text, part.text), None


def _close_part(item_id: str, index: int, part: _Part) -> list[WireEvent]:
    """The done events of one open part."""
    where: JsonObject = {"item_id": item_id, part.number: index}
    events = []
    if part.text_done is not None:
        logprobs: JsonObject = {"logprobs": []} if part.text_done == wire.TEXT_DONE else {}
        events.append(WireEvent(part.text_done, {**where, part.text_field: part.text, **logprobs}))
    if part.done is not None:
        final = {**part.part, part.text_field: part.text}
        if part.annotations:
            final["annotations"] = part.annotations
        events.append(WireEvent(part.done, {**where, "part": final}))
    return events
