"""`/v1/conversations`: routes parse, call, return."""

from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from api import body, conversations, paging
from api.deps import Caller, Ports
from api.errors import Json
from api.include import Include, sealed
from outlast.protocol import conversations as wire
from outlast.protocol import requests
from outlast.protocol.errors import NotFound
from outlast.protocol.json import JsonObject
from outlast.protocol.requests import RequestLimits
from outlast.store.conversations_port import Conversation
from outlast.store.turns import unknown

router = APIRouter(prefix="/v1/conversations", tags=["conversations"])


@router.post("")
async def create_conversation(request: Request, caller: Caller, ports: Ports) -> Response:
    """Create one, empty or with its first items; the body may be empty."""
    caller.require("caller")
    new = wire.parse_create(await _body(request, ports.limits))
    return _answer(await conversations.create(new, caller, ports))


@router.get("/{conversation_id}")
async def get_conversation(conversation_id: str, caller: Caller, ports: Ports) -> Response:
    """The conversation without its items."""
    return _answer(await conversations.known(conversation_id, caller, ports))


@router.post("/{conversation_id}")
async def update_conversation(conversation_id: str, request: Request, caller: Caller, ports: Ports) -> Response:
    """Replace its metadata."""
    caller.require("caller")
    metadata = wire.parse_update(await _body(request, ports.limits))
    changed = await ports.conversations.update(caller.tenant, conversation_id, metadata)
    if changed is None:
        raise unknown(conversation_id)
    return _answer(changed)


@router.delete("/{conversation_id}")
async def delete_conversation(conversation_id: str, caller: Caller, ports: Ports) -> Response:
    """Forget it and its items; responses made in it stay readable."""
    caller.require("caller")
    if not await ports.conversations.delete(caller.tenant, conversation_id):
        raise unknown(conversation_id)
    return Json({"id": conversation_id, "object": "conversation.deleted", "deleted": True})


@router.post("/{conversation_id}/items")
async def create_items(
    conversation_id: str, request: Request, caller: Caller, ports: Ports, include: Include = None
) -> Response:
    """Append items; all or none."""
    caller.require("caller")
    items = wire.parse_items(await _body(request, ports.limits))
    return Json(paging.page(await conversations.post(items, conversation_id, caller, ports), has_more=False))


@router.get("/{conversation_id}/items")
async def list_items(
    conversation_id: str,
    caller: Caller,
    ports: Ports,
    include: Include = None,
    after: str | None = None,
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
    order: Literal["asc", "desc"] = "desc",
) -> Response:
    """Its items, newest first unless asked otherwise."""
    shown, more = await ports.conversations.page(
        caller.tenant,
        conversation_id,
        after=after,
        limit=limit,
        descending=order == "desc",
        sealed=sealed(include),
    )
    return Json(paging.page(shown, has_more=more))


@router.get("/{conversation_id}/items/{item_id}")
async def get_item(
    conversation_id: str, item_id: str, caller: Caller, ports: Ports, include: Include = None
) -> Response:
    """One item."""
    await conversations.known(conversation_id, caller, ports)
    found = await ports.conversations.item(caller.tenant, conversation_id, item_id, sealed=sealed(include))
    if found is None:
        raise _no_item(item_id)
    return Json(found)


@router.delete("/{conversation_id}/items/{item_id}")
async def delete_item(conversation_id: str, item_id: str, caller: Caller, ports: Ports) -> Response:
    """Take one item out; answered with the conversation."""
    caller.require("caller")
    await conversations.known(conversation_id, caller, ports)
    changed = await ports.conversations.remove(caller.tenant, conversation_id, item_id)
    if changed is None:
        raise _no_item(item_id)
    return _answer(changed)


async def _body(request: Request, limits: RequestLimits) -> JsonObject:
    return requests.load(await body.read(request, limits.max_body_bytes) or b"{}", limits)


def _no_item(item_id: str) -> NotFound:
    return NotFound(f"Item with id '{item_id}' not found in this conversation.", param="item_id")


def _answer(conversation: Conversation) -> Response:
    return Json(wire.conversation_json(conversation.id, conversation.created_at, conversation.metadata))
