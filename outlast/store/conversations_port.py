"""The port to conversations: a line of items with a name, which responses continue one at a time.

Rules every implementation keeps, besides those of `port.py`:

* Items stand at positions that only grow. A response is a turn of the conversation as it stood when the response was
  created (`conversation_end`); what is added or taken out later changes nothing for it.
* One response at a time: while a turn has not ended, no other begins and nothing is posted.
* The transaction that ends a turn appends its input and its finished output, in the order they were made, if anything
  was executed or answered in it. A turn that is not stored appends nothing.
* Deleting takes items out at once. What a kept response was made from stays with that response, and goes with it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from outlast.protocol.json import JsonObject
from outlast.store.base import StoredItem


@dataclass(frozen=True, slots=True)
class Conversation:
    """One row."""

    tenant: str
    id: str
    created_at: int
    metadata: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class History:
    """What the next turn continues: the items before position `end`. `turn`: the response that holds it up, if any."""

    items: Sequence[StoredItem]
    end: int
    turn: str | None


class Conversations(Protocol):
    """The conversations, one process's view of them. A foreign id is as unknown as no id."""

    async def create(self, conversation: Conversation, items: Sequence[JsonObject]) -> None:
        """With its first items; each has an id."""
        ...

    async def get(self, tenant: str, conversation_id: str) -> Conversation | None:
        """The row; None when unknown or deleted."""
        ...

    async def update(self, tenant: str, conversation_id: str, metadata: Mapping[str, str]) -> Conversation | None:
        """Replace its metadata; the new row, None when unknown."""
        ...

    async def delete(self, tenant: str, conversation_id: str) -> bool:
        """Take out all items and the row; False when unknown."""
        ...

    async def add(self, tenant: str, conversation_id: str, items: Sequence[JsonObject]) -> None:
        """Append posted items, all or none; each has an id. Raises: NotFound, ConversationLocked, InvalidRequest (code
        item_already_in_conversation)."""
        ...

    async def page(
        self, tenant: str, conversation_id: str, *, after: str | None, limit: int, descending: bool, sealed: bool
    ) -> tuple[Sequence[JsonObject], bool]:
        """Public items behind the one with id `after`, and whether there are more. `sealed`: with what reasoning has in
        private. Raises: NotFound, for `after` too (param after)."""
        ...

    async def item(self, tenant: str, conversation_id: str, item_id: str, *, sealed: bool) -> JsonObject | None:
        """One public item, alike."""
        ...

    async def remove(self, tenant: str, conversation_id: str, item_id: str) -> Conversation | None:
        """Take out an item; the conversation, None when it or the item is unknown."""
        ...

    async def history(self, tenant: str, conversation_id: str) -> History | None:
        """What a response created now continues; None when unknown."""
        ...

    async def find_items(self, tenant: str, item_ids: Sequence[str]) -> Mapping[str, JsonObject]:
        """Posted items by id over all conversations of the tenant; unknown ids are missing."""
        ...
