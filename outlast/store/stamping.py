"""Numbers and indexes for events: the one place that allots them, pure.

The row of the response is advanced first (so that no other process can hand out the same numbers), then the events of
the append get what it gave. `sequence_number` and `output_index` are written into the stored bytes, so every reader
sends equal ones.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from outlast.protocol import events as wire
from outlast.protocol.errors import InternalError
from outlast.protocol.events import WireEvent
from outlast.protocol.json import JsonObject
from outlast.store.scripting import Frame


@dataclass(frozen=True, slots=True)
class Opened:
    """An item announced by this append. `done`: it was also finished by it, `item` is the final one."""

    item: JsonObject
    output_index: int
    ordinal: int
    done: bool = False


@dataclass(slots=True)
class Stamped:
    """What an append writes: frames as stored, items opened by it, items of earlier appends closed by it."""

    frames: list[Frame] = field(default_factory=list)
    opened: dict[str, Opened] = field(default_factory=dict)
    closed: dict[str, JsonObject] = field(default_factory=dict)

    @property
    def indexes(self) -> dict[str, int]:
        """Item id -> index, of the opened ones."""
        return {item_id: opened.output_index for item_id, opened in self.opened.items()}


def announced(events: Sequence[WireEvent]) -> int:
    """How many output indexes these events need."""
    return sum(event.type == wire.ITEM_ADDED for event in events)


def stamp(events: Sequence[WireEvent], *, number: int, index: int, ordinal: int, indexes: Mapping[str, int]) -> Stamped:
    """Number `events` from `number`, items from `index` and `ordinal`. `indexes`: of items opened before.

    Raises: InternalError for an item that is announced twice, or finished without having been announced.
    """
    stamped = Stamped()
    for offset, event in enumerate(events):
        item_id = event.item_id
        if event.type == wire.ITEM_ADDED:
            if item_id is None or item_id in stamped.opened or item_id in indexes:
                raise InternalError(f"item {item_id} is announced twice or without an id")
            opened = len(stamped.opened)
            stamped.opened[item_id] = Opened(event.rest["item"], index + opened, ordinal + opened)
        output_index = event.output_index
        if item_id is not None:
            own = stamped.opened.get(item_id)
            output_index = own.output_index if own is not None else indexes.get(item_id, output_index)
        if event.type == wire.ITEM_DONE:
            _close(stamped, indexes, item_id, event)
        numbered = WireEvent(event.type, event.rest, output_index, number + offset)
        stamped.frames.append((number + offset, event.type, wire.encode(numbered)))
    return stamped


def _close(stamped: Stamped, indexes: Mapping[str, int], item_id: str | None, event: WireEvent) -> None:
    """Note the final form of an item: with its opening when both are in this append, else for an update."""
    if item_id is not None and item_id in stamped.opened:
        stamped.opened[item_id] = replace(stamped.opened[item_id], item=event.rest["item"], done=True)
    elif item_id is not None and item_id in indexes:
        stamped.closed[item_id] = event.rest["item"]
    else:
        raise InternalError(f"item {item_id} is finished but was never announced")
