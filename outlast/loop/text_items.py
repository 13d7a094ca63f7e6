"""Messages and reasoning on their way to the client: strictly nested, and final text equal to the deltas shown.

A `TextItem` passes deltas on at once and repairs what an upstream leaves out: a missing part is opened before its
first delta, text that only a `.done` brought is shown as one more delta, whatever is open is closed. Where an
upstream's final text contradicts its deltas the deltas stand: a client has acted on them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from outlast.protocol import building, events
from outlast.protocol.events import WireEvent
from outlast.protocol.json import JsonObject

Emit = Callable[[WireEvent], None]


@dataclass(frozen=True, slots=True)
class Shape:
    """How a kind of part is spelled: its type, text field, index field and four events (None: a part without text)."""

    item: Literal["message", "reasoning"]
    part: str
    text: str | None
    index: str
    added: str
    delta: str
    done: str
    part_done: str


def _content(item: Literal["message", "reasoning"], part: str, text: str | None, stem: str) -> Shape:
    return Shape(
        item, part, text, "content_index", events.PART_ADDED, f"{stem}.delta", f"{stem}.done", events.PART_DONE
    )


OUTPUT_TEXT = _content("message", "output_text", "text", "response.output_text")
REFUSAL = _content("message", "refusal", "refusal", "response.refusal")
REASONING_TEXT = _content("reasoning", "reasoning_text", "text", "response.reasoning_text")
SUMMARY = Shape(
    "reasoning",
    "summary_text",
    "text",
    "summary_index",
    events.SUMMARY_PART_ADDED,
    events.SUMMARY_TEXT_DELTA,
    events.SUMMARY_TEXT_DONE,
    events.SUMMARY_PART_DONE,
)
SHAPES = (OUTPUT_TEXT, REFUSAL, REASONING_TEXT, SUMMARY)
_BY_PART = {shape.part: shape for shape in SHAPES}


def shape_of(part: JsonObject, item: Literal["message", "reasoning"]) -> Shape:
    """The shape of a part; an unknown type is passed through as a part without text."""
    kind = str(part.get("type"))
    known = _BY_PART.get(kind)
    return known if known is not None and known.item == item else _content(item, kind, None, "")


_KNOWN = frozenset(
    {"item_id", "item", "part", "content_index", "summary_index", "text", "refusal", "delta", "logprobs", "obfuscation"}
)


def unknown(event: WireEvent) -> JsonObject:
    """Fields of an event that only the upstream knows: they go on with the frame made from it."""
    return {key: value for key, value in event.rest.items() if key not in _KNOWN}


class Part:
    """One part of an open item. `index`: the public one, dense per index field."""

    __slots__ = ("annotations", "chunks", "ended", "given", "index", "logprobs", "of_done", "of_text", "shape", "shown")

    def __init__(self, shape: Shape, index: int) -> None:
        self.shape = shape
        self.index = index
        self.chunks: list[str] = []
        self.annotations: list[Any] = []
        self.logprobs: list[Any] = []
        self.given: JsonObject = {}
        # Unknown fields of the upstream's frames that end the text and the part.
        self.of_text: JsonObject = {}
        self.of_done: JsonObject = {}
        # As `content_part.done` showed it: the final item must not say anything else.
        self.shown: JsonObject | None = None
        # The upstream said all of it: a later delta would be a repetition.
        self.ended = False

    @property
    def text(self) -> str:
        """What was shown."""
        return "".join(self.chunks)

    def empty(self) -> JsonObject:
        """The part as it opens."""
        return self._body("", [])

    def final(self) -> JsonObject:
        """The part as it ends."""
        body = self._body(self.text, self.given.get("annotations") or self.annotations)
        logprobs = self.given.get("logprobs") or self.logprobs
        return {**body, "logprobs": logprobs} if logprobs and self.shape is OUTPUT_TEXT else body

    def _body(self, text: str, annotations: list[Any]) -> JsonObject:
        own = ("type", "text", "refusal", "annotations", "logprobs")
        shape = self.shape
        if shape.text is None:
            return {**self.given, "type": shape.part}
        body: JsonObject = {"type": shape.part}
        if shape is OUTPUT_TEXT:
            body["annotations"] = annotations
        body[shape.text] = text
        return {**body, **{key: value for key, value in self.given.items() if key not in own and value is not None}}


class TextItem:
    """One message or reasoning item. `finished`: the upstream ended it; `closed`: the client has seen its end."""

    __slots__ = ("_base", "_emit", "_of_done", "_open", "_parts", "closed", "finished", "id", "type")

    def __init__(
        self,
        item_id: str,
        kind: Literal["message", "reasoning"],
        given: JsonObject,
        emit: Emit,
        extra: JsonObject,
    ) -> None:
        self.id = item_id
        self.type = kind
        self.finished = False
        self.closed = False
        self._base = given
        self._emit = emit
        self._parts: dict[tuple[str, object], Part] = {}
        self._open: Part | None = None
        self._of_done: JsonObject = {}
        opened = building.added(self._item("in_progress", {"content": []} if kind == "message" else {"summary": []}))
        emit(opened.with_rest(**extra))

    @property
    def has_text(self) -> bool:
        """Whether anything was shown."""
        return any(part.text for part in self._parts.values())

    def delta(self, shape: Shape, event: WireEvent) -> None:
        """Show a delta at once. This is the hot path: one look-up, one dict, one event."""
        rest = event.rest
        part = self._parts.get((shape.index, rest.get(shape.index, 0)))
        if part is None or part.shape is not shape or part is not self._open:
            part = self._part(shape, rest.get(shape.index, 0))
        text = rest.get("delta")
        if part is None or part.ended or not text:
            return
        part.chunks.append(text)
        shown = {**rest, "item_id": self.id, shape.index: part.index}
        shown.pop("obfuscation", None)
        if shape is OUTPUT_TEXT:
            logprobs = shown.get("logprobs")
            if logprobs:
                part.logprobs.extend(logprobs)
            else:
                shown["logprobs"] = []
        self._emit(WireEvent(event.type, shown))

    def text_done(self, shape: Shape, event: WireEvent) -> None:
        """The upstream has all text of a part; what its deltas lacked is shown now."""
        part = self._part(shape, event.rest.get(shape.index, 0))
        if part is None or part.ended or shape.text is None:
            return
        self._catch_up(part, event.rest.get(shape.text))
        if logprobs := event.rest.get("logprobs"):
            part.given = {**part.given, "logprobs": logprobs}
        part.of_text = unknown(event)
        part.ended = True

    def part_added(self, shape: Shape, index: object, given: JsonObject, extra: JsonObject) -> None:
        """Open a part unless it is open."""
        self._part(shape, index, given, extra)

    def part_done(self, shape: Shape, index: object, given: JsonObject, extra: JsonObject) -> None:
        """The upstream's final part: its annotations, log probabilities and unknown fields are kept."""
        part = self._part(shape, index, given)
        if part is None:
            return
        part.given = {**part.given, **given}
        part.of_done = {**part.of_done, **extra}
        if shape.text is not None and not part.ended:
            self._catch_up(part, given.get(shape.text))
        part.ended = True

    def annotation(self, event: WireEvent) -> None:
        """Relay an annotation and keep it for the final part."""
        part = self._part(OUTPUT_TEXT, event.rest.get("content_index", 0))
        if part is None:
            return
        part.annotations.append(event.rest.get("annotation"))
        self._emit(WireEvent(event.type, {**event.rest, "item_id": self.id, "content_index": part.index}))

    def finish(self, final: JsonObject, extra: JsonObject) -> None:
        """The upstream's final item; nothing of its end is shown before `close`."""
        self._base = {**self._base, **final}
        self._of_done = extra
        for field, index in (("summary", "summary_index"), ("content", "content_index")):
            parts = final.get(field)
            for number, given in enumerate(parts if isinstance(parts, list) else ()):
                known = self._parts.get((index, number))
                self.part_done(known.shape if known else shape_of(given, self.type), number, given, {})
        self.finished = True

    def close(self, *, cut: bool = False) -> None:
        """Show the end: open part, then the item. `cut`: the round broke off before the upstream ended the item."""
        self._close_part()
        parts = {
            field: [part.shown for (key, _), part in self._parts.items() if key == index]
            for field, index in (("summary", "summary_index"), ("content", "content_index"))
        }
        if self.type == "message":
            content: JsonObject = {"content": parts["content"]}
        else:
            content = {"summary": parts["summary"], **({"content": parts["content"]} if parts["content"] else {})}
        whole = not cut and self._base.get("status") != "incomplete"
        ended = building.done(self._item("completed" if whole else "incomplete", content))
        self._emit(ended.with_rest(**self._of_done))
        self.closed = True

    def _part(
        self, shape: Shape, index: object, given: JsonObject | None = None, extra: JsonObject | None = None
    ) -> Part | None:
        """The part, opened if need be; None when the item is finished and has no such part."""
        part = self._parts.get((shape.index, index))
        if part is not None:
            return part if part.shape.part == shape.part else None
        if self.finished:
            return None
        self._close_part()
        part = Part(shape, sum(1 for field, _ in self._parts if field == shape.index))
        part.given = dict(given or {})
        self._parts[(shape.index, index)] = self._open = part
        opened = {"item_id": self.id, shape.index: part.index, "part": part.empty()}
        self._emit(WireEvent(shape.added, {**opened, **(extra or {})}))
        # What a part says at its end is not what it says at its beginning.
        part.given = {key: value for key, value in part.given.items() if key not in ("annotations", "logprobs")}
        return part

    def _catch_up(self, part: Part, text: object) -> None:
        """Show what the deltas lacked of `text`, if it goes on from them."""
        shown, shape = part.text, part.shape
        if not isinstance(text, str) or len(text) <= len(shown) or not text.startswith(shown) or part is not self._open:
            return
        part.chunks.append(text[len(shown) :])
        rest = {"item_id": self.id, shape.index: part.index, "delta": text[len(shown) :]}
        self._emit(WireEvent(shape.delta, {**rest, "logprobs": []} if shape is OUTPUT_TEXT else rest))

    def _close_part(self) -> None:
        part, self._open = self._open, None
        if part is None:
            return
        part.ended = True
        shape, final = part.shape, part.final()
        part.shown = final
        place = {"item_id": self.id, shape.index: part.index}
        if shape.text is not None:
            rest = {**place, shape.text: final[shape.text]}
            logprobs = {"logprobs": final.get("logprobs", [])} if shape is OUTPUT_TEXT else {}
            self._emit(WireEvent(shape.done, {**rest, **logprobs, **part.of_text}))
        self._emit(WireEvent(shape.part_done, {**place, "part": final, **part.of_done}))

    def _item(self, status: str, content: JsonObject) -> JsonObject:
        """The item with unknown fields of the upstream kept, nulls left out (null breaks strict clients)."""
        own = ("id", "type", "status", "role", "content", "summary")
        head: JsonObject = {"id": self.id, "type": self.type}
        if self.type == "message":
            head |= {"status": status, "role": "assistant"}
        elif self._base.get("status") is not None or status == "incomplete":
            head["status"] = status
        rest = {key: value for key, value in self._base.items() if key not in own and value is not None}
        return {**head, **content, **rest}
