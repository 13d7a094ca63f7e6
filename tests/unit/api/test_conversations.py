"""Claims about `/v1/conversations`; the judge is the official client."""

from typing import Any

import pytest
from openai import BadRequestError, NotFoundError
from openai.types.conversations import ConversationItem
from pydantic import TypeAdapter

from outlast.protocol.json import JsonObject
from tests.support.conversations import opened, texts, told
from tests.unit.api.conftest import World

_ITEM: TypeAdapter[Any] = TypeAdapter(ConversationItem)
HI: Any = {"role": "user", "content": "hi"}
# One of each kind a client may post, as it sends it.
POSTED: list[JsonObject] = [
    {"role": "user", "content": "plain"},
    {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "be kind"}]},
    {"type": "message", "role": "assistant", "content": "hello"},
    {
        "type": "message",
        "role": "user",
        "content": [{"type": "input_image", "image_url": "https://a/b.png", "detail": "low"}],
    },
    {"type": "function_call", "call_id": "call_1", "name": "f", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "call_1", "output": "4"},
    {"type": "custom_tool_call", "call_id": "call_2", "name": "g", "input": "x"},
    {"type": "custom_tool_call_output", "call_id": "call_2", "output": "y"},
    {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]},
    {"type": "mcp_list_tools", "server_label": "desk", "tools": []},
    {"type": "mcp_call", "server_label": "desk", "name": "t", "arguments": "{}", "output": "done"},
    {"type": "mcp_approval_request", "id": "mcpr_1x", "server_label": "desk", "name": "t", "arguments": "{}"},
    {"type": "mcp_approval_response", "approval_request_id": "mcpr_1x", "approve": False},
]


async def test_a_conversation_is_created_read_changed_and_deleted(world: World) -> None:
    """Whole objects; the metadata is replaced, a null empties it."""
    conversations = world.openai.conversations
    created = await conversations.create(metadata={"topic": "demo", "n": "1"})
    assert created.to_dict() == {
        "id": created.id,
        "object": "conversation",
        "created_at": created.created_at,
        "metadata": {"topic": "demo", "n": "1"},
    }
    assert created.id.startswith("conv_")
    assert await conversations.retrieve(created.id) == created
    changed = await conversations.update(created.id, metadata={"topic": "other"})
    assert changed.metadata == {"topic": "other"}
    assert (await conversations.update(created.id, metadata=None)).metadata == {}
    gone = await conversations.delete(created.id)
    assert gone.to_dict() == {"id": created.id, "object": "conversation.deleted", "deleted": True}
    for asked in (conversations.retrieve, conversations.delete, conversations.items.list):
        with pytest.raises(NotFoundError) as caught:
            await asked(created.id)
        assert f"Conversation with id '{created.id}' not found." in caught.value.message


async def test_a_body_may_be_empty(world: World) -> None:
    """Clients send `POST /conversations` without one."""
    answer = await world.http.post("/v1/conversations")
    assert (answer.status_code, answer.json()["metadata"]) == (200, {})


async def test_every_kind_of_item_is_listed_as_the_official_types_have_it(world: World) -> None:
    """With an id of its type, string content as one part, a status where it has one."""
    created = await world.openai.conversations.create()
    answer = await world.http.post(f"/v1/conversations/{created.id}/items", json={"items": POSTED})
    listed = answer.json()
    assert {key: listed[key] for key in ("object", "first_id", "last_id", "has_more")} == {
        "object": "list",
        "first_id": listed["data"][0]["id"],
        "last_id": listed["data"][-1]["id"],
        "has_more": False,
    }
    for sent, item in zip(POSTED, listed["data"], strict=True):
        _ITEM.validate_python(item, strict=True)
        assert item["type"] == sent.get("type", "message")
        again = await world.http.get(f"/v1/conversations/{created.id}/items/{item['id']}")
        assert again.json() == item
    assert listed["data"][0] == {
        "id": listed["data"][0]["id"],
        "type": "message",
        "role": "user",
        "status": "completed",
        "content": [{"type": "input_text", "text": "plain"}],
    }
    whole = await world.http.get(f"/v1/conversations/{created.id}/items?order=asc")
    assert whole.json() == listed
    back = await world.openai.conversations.items.list(created.id, order="desc", limit=100)
    assert [item.id for item in back.data] == [item["id"] for item in reversed(listed["data"])]


async def test_an_empty_list_has_no_ids(world: World) -> None:
    """first_id and last_id are null."""
    created = await opened(world.openai)
    answer = await world.http.get(f"/v1/conversations/{created.id}/items")
    assert answer.json() == {"object": "list", "data": [], "first_id": None, "last_id": None, "has_more": False}


async def test_items_are_paged_by_the_client_in_both_orders(world: World) -> None:
    """`after` is the last id; an id that is not in it, or not any more, is 404."""
    created = await opened(world.openai, *"abcde")
    assert await texts(world.openai, created.id) == list("abcde")
    page = await world.openai.conversations.items.list(created.id, limit=2)
    assert told(page.data) == ["e", "d"]
    assert (page.first_id, page.last_id, page.has_more) == (page.data[0].id, page.data[1].id, True)  # type: ignore[attr-defined]  # on the wire
    second = str(page.data[1].id)
    answered = await world.openai.conversations.items.delete(second, conversation_id=created.id)
    assert answered == created
    assert await texts(world.openai, created.id) == list("abce")
    for cursor in (second, "msg_unknown"):
        with pytest.raises(NotFoundError) as caught:
            await world.openai.conversations.items.list(created.id, after=cursor)
        assert caught.value.param == "after"
    for asked in (world.openai.conversations.items.retrieve, world.openai.conversations.items.delete):
        with pytest.raises(NotFoundError):
            await asked(second, conversation_id=created.id)


@pytest.mark.parametrize(
    ("body", "param", "code", "says"),
    [
        ({}, "items", None, "items"),
        ({"items": "hi"}, "items", None, "array"),
        ({"items": [HI] * 21}, "items", None, "at most 20"),
        ({"items": [HI, {"id": "foo", **HI}]}, "items[1].id", "invalid_value", "begins with 'msg'"),
        (
            {"items": [{"type": "function_call", "id": "call_1", "call_id": "c", "name": "f", "arguments": "{}"}]},
            "items[0].id",
            "invalid_value",
            "begins with 'fc'",
        ),
        ({"items": [HI, {"role": "user"}]}, "items[1].content", None, "content"),
        ({"items": [{"type": "compaction_trigger"}]}, "items[0].type", None, "compaction"),
    ],
)
async def test_a_bad_batch_is_refused_by_name_and_adds_nothing(
    world: World, body: JsonObject, param: str, code: str | None, says: str
) -> None:
    """400 with the path of the value."""
    created = await opened(world.openai, "first")
    answer = await world.http.post(f"/v1/conversations/{created.id}/items", json=body)
    error = answer.json()["error"]
    assert (answer.status_code, error["param"]) == (400, param)
    assert code is None or error["code"] == code
    assert says in error["message"].lower() if says == "compaction" else says in error["message"]
    assert await texts(world.openai, created.id) == ["first"]


@pytest.mark.parametrize(
    ("method", "path", "body", "param"),
    [
        ("POST", "", {"metadata": {"a": 1}}, "metadata.a"),
        ("POST", "", {"metadata": {"a": "x" * 513}}, "metadata.a"),
        ("POST", "", {"metadata": {str(n): "x" for n in range(17)}}, "metadata"),
        ("POST", "", {"items": [HI] * 21}, "items"),
        ("POST", "/conv", {}, "metadata"),
        ("GET", "/conv/items?limit=0", None, "limit"),
        ("GET", "/conv/items?limit=101", None, "limit"),
        ("GET", "/conv/items?order=up", None, "order"),
    ],
)
async def test_what_is_no_conversation_is_refused(
    world: World, method: str, path: str, body: JsonObject | None, param: str
) -> None:
    """400 with the field."""
    created = await opened(world.openai)
    path = path.replace("/conv", f"/{created.id}")
    answer = await world.http.request(method, f"/v1/conversations{path}", json=body)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)


async def test_an_id_that_is_stored_elsewhere_brings_the_stored_item(world: World) -> None:
    """What was sent beside the id is ignored, by reference or in full; twice in a batch is taken, twice in a
    conversation refused."""
    first = await opened(world.openai, "stored")
    (item,) = (await world.openai.conversations.items.list(first.id)).data
    again: Any = {"id": item.id, "role": "user", "content": "sent"}
    reference: Any = {"type": "item_reference", "id": item.id}
    second = await world.openai.conversations.create(items=[again])
    third = await world.openai.conversations.create(items=[reference, again])
    assert await texts(world.openai, second.id) == ["stored"]
    assert await texts(world.openai, third.id) == ["stored", "stored"]
    with pytest.raises(BadRequestError) as caught:
        await world.openai.conversations.items.create(first.id, items=[HI, again])
    assert (caught.value.code, caught.value.param) == ("item_already_in_conversation", "items")
    with pytest.raises(NotFoundError) as missing:
        await world.openai.conversations.create(items=[HI, {"type": "item_reference", "id": "msg_nobody"}])
    assert (missing.value.param, "msg_nobody" in missing.value.message) == ("items[1].id", True)
    assert await texts(world.openai, first.id) == ["stored"]


async def test_a_foreign_conversation_is_unknown(world: World) -> None:
    """404 on every path, and as a parameter; its items cannot be referred to."""
    created = await opened(world.openai, "secret")
    (item,) = (await world.openai.conversations.items.list(created.id)).data
    path = f"/v1/conversations/{created.id}"
    asked: list[tuple[str, str, JsonObject | None]] = [
        ("GET", path, None),
        ("POST", path, {"metadata": {}}),
        ("DELETE", path, None),
        ("GET", f"{path}/items", None),
        ("POST", f"{path}/items", {"items": [HI]}),
        ("GET", f"{path}/items/{item.id}", None),
        ("DELETE", f"{path}/items/{item.id}", None),
        ("POST", "/v1/responses", {"model": "demo", "input": "hi", "conversation": created.id}),
        ("POST", "/v1/responses", {"model": "demo", "input": [{"type": "item_reference", "id": item.id}]}),
        ("POST", "/v1/conversations", {"items": [{"type": "item_reference", "id": item.id}]}),
    ]
    for method, url, body in asked:
        answer = await world.http.request(method, url, json=body, headers={"x-tenant": "other"})
        assert answer.status_code == 404, url
    assert await texts(world.openai, created.id) == ["secret"]
    readers = await world.http.post("/v1/conversations", headers={"x-roles": "approver"})
    assert readers.status_code == 403
