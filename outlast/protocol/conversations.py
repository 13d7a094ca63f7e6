"""`/v1/conversations` as types: what a client sends and what it gets, pure.

Ids a client gives are checked more strictly than in `input`: they name the item from now on, so each must begin like
the ids of its type.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from outlast.protocol import ids, inputs, invalid
from outlast.protocol.errors import InvalidRequest
from outlast.protocol.items import CompactionTrigger, Item, ItemReference
from outlast.protocol.json import JsonObject

MAX_ITEMS = 20
Metadata = Annotated[
    dict[Annotated[str, Field(max_length=64)], Annotated[str, Field(max_length=512)]], Field(max_length=16)
]
# Where the beginning that is asked for is not that of the ids we mint: outputs begin like their calls elsewhere.
_BEGINNINGS = {"function_call_output": "fc", "mcp_approval_response": "mcp"}


class _Body(BaseModel):
    """The part of both bodies that is no list of items."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)

    metadata: Metadata | None = None


@dataclass(frozen=True, slots=True)
class NewConversation:
    """`POST /v1/conversations`."""

    metadata: Mapping[str, str]
    items: Sequence[Item]


def parse_create(body: JsonObject) -> NewConversation:
    """The body of a create. Raises: InvalidRequest, UnsupportedFeature."""
    items = body.get("items")
    return NewConversation(_metadata(body), () if items is None else _items(items))


def parse_update(body: JsonObject) -> Mapping[str, str]:
    """The metadata of an update, which replaces what was there; null empties it. Raises: InvalidRequest."""
    if "metadata" not in body:
        raise invalid.absent("metadata")
    return _metadata(body)


def parse_items(body: JsonObject) -> Sequence[Item]:
    """The items of a post. Raises: InvalidRequest, UnsupportedFeature."""
    if body.get("items") is None:
        raise invalid.absent("items")
    return _items(body["items"])


def conversation_id(raw: object) -> str | None:
    """The `conversation` of a request: an id, or an object with one. Raises: InvalidRequest."""
    match raw:
        case None:
            return None
        case str():
            found, param = raw, "conversation"
        case {"id": str(found)}:
            param = "conversation.id"
        case _:
            raise invalid.wrong_type("conversation", "a conversation id or an object with an 'id'", raw)
    if not found.startswith(ids.Prefix.CONVERSATION) or not ids.is_id(found):
        raise _begins(param, found, ids.Prefix.CONVERSATION)
    return found


def conversation_json(conversation_id: str, created_at: int, metadata: Mapping[str, str]) -> JsonObject:
    """The conversation object; `created_at` in unix seconds."""
    return {
        "id": conversation_id,
        "object": "conversation",
        "created_at": created_at,
        "metadata": dict(metadata),
    }


def _metadata(body: JsonObject) -> Mapping[str, str]:
    try:
        return _Body.model_validate(body).metadata or {}
    except ValidationError as error:
        raise invalid.explain(error, body) from error


def _items(raw: object) -> Sequence[Item]:
    items = inputs.parse_items(raw, "items", max_items=MAX_ITEMS)
    for index, item in enumerate(items):
        if isinstance(item, CompactionTrigger):
            raise InvalidRequest(
                "'compaction_trigger' is an instruction to a response and no item that can be kept.",
                param=f"items[{index}].type",
            )
        _check_id(item, f"items[{index}].id")
    return items


def _check_id(item: Item, param: str) -> None:
    if item.id is None or isinstance(item, ItemReference):
        return
    begins = _BEGINNINGS.get(item.type) or ids.ITEM_PREFIX.get(item.type)
    if begins is not None and not item.id.startswith(begins):
        raise _begins(param, item.id, begins)


def _begins(param: str, found: str, begins: str) -> InvalidRequest:
    return InvalidRequest(
        f"Invalid '{param}': {found[:80]!r}. Expected an ID that begins with '{begins}'.",
        param=param,
        code="invalid_value",
    )
