"""Conversations as the API has them: create, change, post items; what a response that is a turn of one continues."""

from collections.abc import Sequence

from api import history
from api.deps import Principal
from api.services import Services
from outlast.protocol import ids, inputs
from outlast.protocol.conversations import NewConversation
from outlast.protocol.errors import NotFound
from outlast.protocol.items import Item, ItemReference
from outlast.protocol.json import JsonObject
from outlast.protocol.requests import CreateResponse
from outlast.store import turns
from outlast.store.conversations_port import Conversation, History


async def create(new: NewConversation, caller: Principal, ports: Services) -> Conversation:
    """A new conversation, with its first items. Raises: NotFound for a reference nobody knows."""
    items = await _stored(new.items, caller, ports)
    conversation = Conversation(
        tenant=caller.tenant,
        id=ids.mint(ids.Prefix.CONVERSATION),
        created_at=int(ports.clock()),
        metadata=new.metadata,
    )
    await ports.conversations.create(conversation, items)
    return conversation


async def post(items: Sequence[Item], conversation_id: str, caller: Principal, ports: Services) -> list[JsonObject]:
    """The items as they stand in the conversation now. Raises: NotFound, InvalidRequest, ConversationLocked."""
    await known(conversation_id, caller, ports)
    stored = await _stored(items, caller, ports)
    await ports.conversations.add(caller.tenant, conversation_id, stored)
    return stored


async def _stored(items: Sequence[Item], caller: Principal, ports: Services) -> list[JsonObject]:
    """Items in stored form. One whose id is that of a stored item is that item, whatever was sent beside the id."""
    named = [item.id for item in items if item.id is not None]
    found = await history.items_named(named, caller, ports.store, ports.conversations) if named else {}
    stored = []
    for index, item in enumerate(items):
        if item.id is not None and item.id in found:
            stored.append(found[item.id])
        elif isinstance(item, ItemReference):
            raise NotFound(f"Item with id '{item.id}' not found.", param=f"items[{index}].id")
        else:
            stored.extend(inputs.stored([item], ids.mint_item))
    return stored


async def known(conversation_id: str, caller: Principal, ports: Services) -> Conversation:
    """The conversation. Raises: NotFound."""
    found = await ports.conversations.get(caller.tenant, conversation_id)
    if found is None:
        raise turns.unknown(conversation_id)
    return found


async def before(request: CreateResponse, caller: Principal, ports: Services) -> History | None:
    """What a turn continues; None for a response that is none. Raises: NotFound, ConversationLocked."""
    if request.conversation is None:
        return None
    found = await ports.conversations.history(caller.tenant, request.conversation)
    if found is None:
        raise turns.unknown(request.conversation, "conversation")
    if found.turn is not None:
        raise turns.locked(found.turn)
    return found
