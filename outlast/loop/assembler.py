"""The one stream assembler: from an upstream's events of one model round to the public events of a response.

Rules, and why:

1. Ids are ours, minted when an item is first shown, the same in every event. Encrypted reasoning of an OpenAI upstream
   keeps its id: OpenAI verifies the pair.
2. Nothing here numbers. Events name their item; the event log allots `output_index` and `sequence_number`.
3. Text passes at once (`text_items`). The closing frames of a message or reasoning item wait until another item is
   shown or the round ends: an upstream cut right after it then leaves an open item, which a new attempt abandons,
   instead of a finished copy next to a second one.
4. A call is shown only when it is whole, in one go and in the model's order: clients run what they see. Until then it
   is silent, so calls follow text that the model began later.
5. A call that is not whole when the round was cut is dropped; one of ours that was shown by then is closed as failed.
6. The upstream's own lifecycle events never pass; usage and the reason of an incomplete end are taken from its last.
   Events we do not know pass with their ids mapped.

Pure and lean: no I/O, no models; a text delta costs a few microseconds.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from outlast.loop.bindings import Bindings
from outlast.loop.call_queue import Call, CallQueue, Relayed, is_client_call
from outlast.loop.calls import Counters, NewCall
from outlast.loop.text_items import SHAPES, Shape, TextItem, shape_of, unknown
from outlast.protocol import building, events, native
from outlast.protocol.events import WireEvent
from outlast.protocol.json import JsonObject
from outlast.protocol.usage import Usage, parse_usage

# Spellings of other servers (Open Responses, vLLM) for events that have an OpenAI name.
_ALIASES = {
    "response.reasoning.delta": events.REASONING_TEXT_DELTA,
    "response.reasoning.done": events.REASONING_TEXT_DONE,
    "response.reasoning_part.added": events.PART_ADDED,
    "response.reasoning_part.done": events.PART_DONE,
}
_DELTAS: dict[str, Shape] = {shape.delta: shape for shape in SHAPES}
_DONES: dict[str, Shape] = {shape.done: shape for shape in SHAPES}
_INDEX_OF_PART = {
    events.PART_ADDED: "content_index",
    events.PART_DONE: "content_index",
    events.SUMMARY_PART_ADDED: "summary_index",
    events.SUMMARY_PART_DONE: "summary_index",
}
# event -> (item type, field of the body, whether it is the whole text)
_CALL_TEXT = {
    events.ARGUMENTS_DELTA: ("function_call", "delta", False),
    events.ARGUMENTS_DONE: ("function_call", "arguments", True),
    building.CUSTOM_INPUT_DELTA: ("custom_tool_call", "delta", False),
    building.CUSTOM_INPUT_DONE: ("custom_tool_call", "input", True),
}


@dataclass(frozen=True, slots=True)
class Fed:
    """What a batch brought: public events to append now, and the calls that became whole with it.

    They belong in one transaction: a shown call without its row would be lost by a crash.
    """

    events: list[WireEvent]
    calls: list[NewCall]


@dataclass(frozen=True, slots=True)
class RoundEnd:
    """What a round came to. `events`, `calls`: the rest, as in `Fed`; a call of the same ordinal replaces its row.

    `run`, `ask`: ordinals over the whole round; `client`: it has client calls; `refused`: how many calls ended failed
    at once; `over_cap`: one of them for `max_tool_calls`; `hosted`: calls the server ran itself. `incomplete`: why the
    upstream cut its answer. `produced`: there is text for the user. `response_error`: the upstream's `response.error`
    in an end that was no failure.
    """

    events: list[WireEvent]
    calls: list[NewCall]
    usage: Usage
    run: tuple[int, ...]
    ask: tuple[int, ...]
    client: bool
    refused: int
    over_cap: bool
    hosted: int
    incomplete: str | None
    produced: bool
    response_error: JsonObject | None
    # (ordinal, `label.tool`) of the calls to run or to ask for.
    names: tuple[tuple[int, str], ...] = ()


class Assembler:
    """One model round. Use: `feed` every batch, then `end` once."""

    def __init__(
        self, bindings: Bindings, counters: Counters, mint: Callable[[str], str], *, keep_reasoning_ids: bool = False
    ) -> None:
        """`mint`: item type → new id. `keep_reasoning_ids`: an OpenAI upstream that encrypts its reasoning."""
        self._mint = mint
        self._keep_reasoning_ids = keep_reasoning_ids
        self._calls = CallQueue(bindings, counters, mint, self._show)
        self._slots: list[TextItem | Call | Relayed] = []
        self._by_index: dict[int, TextItem | Call | Relayed] = {}
        self._by_id: dict[str, TextItem | Call | Relayed] = {}
        self._held: list[TextItem] = []
        self._final = WireEvent(events.COMPLETED)
        self._events: list[WireEvent] = []

    @property
    def announced(self) -> bool:
        """Whether a call was shown: a cut then ends the round (`end(cut=True)`), a new attempt would repeat it."""
        return self._calls.announced

    def feed(self, batch: Sequence[WireEvent]) -> Fed:
        """Take events as they came."""
        for event in batch:
            shape = _DELTAS.get(event.type)
            if shape is not None:
                self._text_item(shape.item, event).delta(shape, event)
            else:
                self._take(event)
        return self._drain()

    def end(self, *, cut: bool = False) -> RoundEnd:
        """Close the round; `cut`: the upstream broke off, there was no terminal event."""
        response = self._final.rest.get("response") or {}
        if not self._slots:
            # A server that streams only its end: everything is in the final response.
            for item in response.get("output") or ():
                self._item_done(WireEvent(events.ITEM_DONE, {"item": item}))
        incomplete = _incomplete(self._final.type, response)
        whole = incomplete is None and not cut
        self._close_open(cut=not whole)
        if whole:
            self._calls.announce_ready(all_whole=True)
        elif incomplete is not None:
            self._calls.refuse_shown()
        fed = self._drain()
        return RoundEnd(
            events=fed.events,
            calls=fed.calls,
            usage=parse_usage(response.get("usage")),
            run=self._calls.ordinals("run"),
            ask=self._calls.ordinals("ask"),
            client=bool(self._calls.ordinals("client")),
            refused=len(self._calls.ordinals("refused")),
            over_cap=self._calls.over_cap,
            hosted=self._calls.hosted,
            names=self._calls.names(),
            incomplete=incomplete,
            produced=any(
                isinstance(slot, TextItem) and slot.type == "message" and slot.has_text for slot in self._slots
            ),
            response_error=response.get("error"),
        )

    # -- one event -------------------------------------------------------------------------------------------------
    def _take(self, event: WireEvent) -> None:
        kind = _ALIASES.get(event.type, event.type)
        if kind != event.type:
            event = replace(event, type=kind)
        if kind in _DELTAS:
            shape = _DELTAS[kind]
            self._text_item(shape.item, event).delta(shape, event)
        elif kind in _DONES:
            shape = _DONES[kind]
            self._text_item(shape.item, event).text_done(shape, event)
        elif kind in _INDEX_OF_PART:
            self._take_part(event)
        elif kind in _CALL_TEXT:
            self._take_call_text(event)
        elif kind == events.ITEM_ADDED:
            self._item_added(event)
        elif kind == events.ITEM_DONE:
            self._item_done(event)
        elif kind == events.ANNOTATION_ADDED:
            self._text_item("message", event).annotation(event)
        elif kind in events.LIFECYCLE:
            if kind in events.TERMINAL:
                self._final = event
        else:
            self._relay(event)

    def _take_part(self, event: WireEvent) -> None:
        given = event.rest.get("part") or {}
        slot = self._slot(event)
        if not isinstance(slot, TextItem):
            reasoning = given.get("type") in ("reasoning_text", "summary_text")
            slot = self._text_item("reasoning" if reasoning else "message", event)
        index = event.rest.get(_INDEX_OF_PART[event.type], 0)
        if event.type in (events.PART_ADDED, events.SUMMARY_PART_ADDED):
            slot.part_added(shape_of(given, slot.type), index, given, unknown(event))
        else:
            slot.part_done(shape_of(given, slot.type), index, given, unknown(event))

    def _take_call_text(self, event: WireEvent) -> None:
        kind, field, whole = _CALL_TEXT[event.type]
        call = self._call(event)
        if call is None:
            # Without its `added` the name is not known yet; the final item brings it.
            call = Call(kind, {})
            self._remember(call, event, event.rest.get("item_id"))
            self._calls.push(call)
        text = event.rest.get(field) or ""
        if not whole:
            call.chunks.append(text)
            return
        call.text = text
        if name := event.rest.get("name"):
            call.given = {"name": name, **call.given}

    def _item_added(self, event: WireEvent) -> None:
        item = event.rest.get("item")
        if not isinstance(item, dict):
            return
        placed = self._by_index.get(event.output_index) if event.output_index is not None else None
        known = self._by_id.get(item.get("id") or "")
        if known is None or (known is not placed and known.finished and event.output_index is not None):
            # New, though careless servers use an index or an id again.
            self._open(item, event)

    def _item_done(self, event: WireEvent) -> None:
        item = event.rest.get("item")
        if not isinstance(item, dict):
            return
        slot = self._slot(event)
        if slot is not None and slot.finished and slot is self._by_id.get(item.get("id") or ""):
            return  # said twice
        if slot is None or slot.finished or slot.type != item.get("type"):
            slot = self._open(item, event)
        match slot:
            case TextItem():
                slot.finish(item, unknown(event))
                self._held.append(slot)
            case Call():
                slot.given = {**slot.given, **item}
                # A truncated call is dropped with the round it was cut in.
                slot.finished = item.get("status") != "incomplete"
                self._calls.announce_ready()
            case Relayed():
                slot.finished = True
                self._pass(slot, event)
                self._calls.announce_ready()

    def _relay(self, event: WireEvent) -> None:
        slot = self._slot(event)
        if slot is None:
            # About an item nobody opened, it could not be placed; about no item, it passes.
            if event.output_index is None and event.item_id is None:
                self._events.append(WireEvent(event.type, event.rest))
            return
        if isinstance(slot, Call):
            slot.parked.append(event)
        else:
            self._pass(slot, event)

    # -- items -----------------------------------------------------------------------------------------------------
    def _open(self, item: JsonObject, event: WireEvent) -> TextItem | Call | Relayed:
        kind = str(item.get("type"))
        if kind == "message" or kind == "reasoning":
            return self._open_text("message" if kind == "message" else "reasoning", item, event)
        if kind in ("function_call", "custom_tool_call"):
            call = Call(kind, item)
            self._calls.push(call)
            self._remember(call, event, item.get("id"))
            return call
        slot = Relayed(self._item_id(item), kind, [] if is_client_call(item) else None)
        if slot.parked is None:
            self._release()
            self._calls.hosted += kind in native.HOSTED_CALLS
        else:
            self._calls.push(slot)
        self._remember(slot, event, item.get("id"))
        self._pass(slot, WireEvent(events.ITEM_ADDED, event.rest))
        return slot

    def _open_text(self, kind: Literal["message", "reasoning"], item: JsonObject, event: WireEvent) -> TextItem:
        self._release()
        extra = unknown(event) if event.type == events.ITEM_ADDED else {}
        slot = TextItem(self._item_id(item), kind, item, self._events.append, extra)
        self._remember(slot, event, item.get("id"))
        return slot

    def _item_id(self, item: JsonObject) -> str:
        kind, given = str(item.get("type")), item.get("id")
        if self._keep_reasoning_ids and kind in ("reasoning", "compaction") and isinstance(given, str) and given:
            return given
        return self._mint(kind)

    def _remember(self, slot: TextItem | Call | Relayed, event: WireEvent, upstream_id: object) -> None:
        self._slots.append(slot)
        if event.output_index is not None:
            self._by_index[event.output_index] = slot
        if isinstance(upstream_id, str):
            self._by_id[upstream_id] = slot

    def _slot(self, event: WireEvent) -> TextItem | Call | Relayed | None:
        """By index first: some servers change an item's id between its events."""
        if event.output_index is not None and event.output_index in self._by_index:
            return self._by_index[event.output_index]
        return self._by_id.get(event.item_id or "")

    def _call(self, event: WireEvent) -> Call | None:
        slot = self._slot(event)
        if not isinstance(slot, Call):
            slot = self._by_id.get(event.item_id or "")
        return slot if isinstance(slot, Call) else None

    def _text_item(self, kind: Literal["message", "reasoning"], event: WireEvent) -> TextItem:
        """The item a text event belongs to; opened when the upstream did not."""
        slot = self._by_index.get(event.output_index) if event.output_index is not None else None
        if slot is None or slot.type != kind:
            item_id = event.rest.get("item_id")
            # An event that names no item belongs to the newest one of its kind.
            nameless = event.output_index is None and item_id is None
            slot = self._newest(kind) if nameless else self._by_id.get(item_id or "")
        if isinstance(slot, TextItem) and slot.type == kind:
            return slot
        return self._open_text(kind, {"type": kind, "id": event.rest.get("item_id")}, event)

    def _newest(self, kind: str) -> TextItem | Call | Relayed | None:
        return next((slot for slot in reversed(self._slots) if slot.type == kind and not slot.finished), None)

    # -- showing ---------------------------------------------------------------------------------------------------
    def _pass(self, slot: TextItem | Relayed, event: WireEvent) -> None:
        """Show or park an event of an item with our id in it."""
        rest = {key: value for key, value in event.rest.items() if key != "obfuscation"}
        if isinstance(item := rest.get("item"), dict):
            rest["item"] = {**item, "id": slot.id}
        else:
            rest["item_id"] = slot.id
        shown = WireEvent(event.type, rest)
        if isinstance(slot, Relayed):
            slot.last = rest.get("item", slot.last)
            if slot.parked is not None:
                slot.parked.append(shown)
                return
        self._events.append(shown)

    def _show(self, announced: Sequence[WireEvent]) -> None:
        self._release()
        self._events += announced

    def _release(self) -> None:
        """Show the held ends: another item is about to be shown."""
        held, self._held = self._held, []
        for item in held:
            item.close()

    def _close_open(self, *, cut: bool) -> None:
        self._held = []
        for slot in self._slots:
            if isinstance(slot, TextItem) and not slot.closed:
                slot.close(cut=cut and not slot.finished)
            elif isinstance(slot, Relayed) and slot.parked is None and not slot.finished:
                self._events.append(slot.done())

    def _drain(self) -> Fed:
        # Text items hold `self._events.append`: the list stays the same.
        fed = Fed(self._events.copy(), self._calls.drain())
        self._events.clear()
        return fed


def _incomplete(kind: str, response: JsonObject) -> str | None:
    """Why the upstream's answer is cut; None when it is whole."""
    if kind != events.INCOMPLETE and response.get("status") != "incomplete":
        return None
    return str((response.get("incomplete_details") or {}).get("reason") or "max_output_tokens")
