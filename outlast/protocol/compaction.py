"""Compaction on the wire: the parameter, the item, what a model is asked for (behaviour §5).

A compaction item is sealed by whoever made it. Ours begin with a word of our own, so that one made elsewhere is known
without a key.
"""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from outlast.protocol import building
from outlast.protocol.errors import InvalidRequest
from outlast.protocol.events import WireEvent
from outlast.protocol.items import CompactionTrigger, Item
from outlast.protocol.json import JsonObject

# How the sealed text of ours begins.
SEAL = "outlast1."
# How the one message begins that asks a model for a summary.
ASKED_FOR_SUMMARY = "Below is a conversation between a user and an assistant that works with tools."
# Tokens a context may have when `compact_threshold` is left out: fits the windows of today's models.
DEFAULT_THRESHOLD = 100_000


class ContextManagement(BaseModel):
    """One entry of `context_management`."""

    model_config = ConfigDict(frozen=True, extra="allow", strict=True)

    type: Literal["compaction"]
    compact_threshold: Annotated[int | None, Field(ge=1000)] = None


def threshold(request: JsonObject) -> int | None:
    """Tokens from which on a request, as echoed, wants its context compacted; None when it does not."""
    for entry in request.get("context_management") or ():
        return entry.get("compact_threshold") or DEFAULT_THRESHOLD
    return None


def is_ours(sealed: object) -> bool:
    """Whether an `encrypted_content` says that an Outlast made it."""
    return isinstance(sealed, str) and sealed.startswith(SEAL)


def without_trigger(items: tuple[Item, ...]) -> tuple[tuple[Item, ...], bool]:
    """The input without its trigger, and whether there was one. Raises: InvalidRequest for one that is not the last
    item: what stands behind it would never be answered."""
    for index, item in enumerate(items[:-1]):
        if isinstance(item, CompactionTrigger):
            raise InvalidRequest(
                "A compaction_trigger must be the last item of 'input': its response is the compaction and answers "
                "nothing else.",
                param=f"input[{index}]",
            )
    if items and isinstance(items[-1], CompactionTrigger):
        return items[:-1], True
    return items, False


def item(item_id: str, sealed: str) -> JsonObject:
    """A compaction item."""
    return {"id": item_id, "type": "compaction", "encrypted_content": sealed}


def events(made: JsonObject) -> list[WireEvent]:
    """added → done."""
    return [building.added(made), building.done(made)]


def window(response: JsonObject, kept: list[JsonObject]) -> JsonObject:
    """The answer of `POST /v1/responses/compact`: `kept`, the user messages, then what the response came to."""
    made = [each for each in response["output"] if each.get("type") == "compaction"]
    return {
        "id": response["id"],
        "object": "response.compaction",
        "created_at": response["created_at"],
        "output": [*kept, *made],
        "usage": response["usage"],
    }
