"""Conversations: lines of items with a name."""

import asyncio

from outlast.conformance.base import Group, equal, expect, types
from outlast.conformance.checks.mcp import ECHO, kinds, server
from outlast.conformance.shapes import completed, items, offered, ok, refused, streamed
from outlast.conformance.target import Answer, Target
from outlast.protocol.json import JsonObject

group = Group("Conversations")
_NOBODY = "conv_0123456789abcdef0123456789abcdef"
_SLOW = "Tell me a long story, slowly."
_WORDS = ("one", "two", "three", "four", "five")


def _user(text: str) -> JsonObject:
    return {"type": "message", "role": "user", "content": text}


def _said(item: JsonObject) -> str:
    """The text of a message."""
    return "".join(str(part.get("text", "")) for part in item["content"])


async def _made(target: Target, *texts: str, **fields: object) -> JsonObject:
    """A new conversation that begins with these user messages."""
    body = {"items": [_user(text) for text in texts], **fields}
    return offered(await target.send("POST", "/conversations", body))


async def _listed(target: Target, conversation: JsonObject, **query: object) -> JsonObject:
    return ok(await target.get(f"/conversations/{conversation['id']}/items", **query))


async def _line(target: Target, conversation: JsonObject) -> list[JsonObject]:
    """All its items, oldest first, reasoning left out."""
    found: list[JsonObject] = (await _listed(target, conversation, order="asc", limit=100))["data"]
    return [item for item in found if item["type"] != "reasoning"]


@group.check("conversation", "openai.types.conversations.Conversation")
async def conversation(target: Target) -> None:
    """Created with items and metadata; read again, it is the same object."""
    made = await _made(target, "Hello.", metadata={"topic": "greetings"})
    equal((made["object"], made["metadata"]), ("conversation", {"topic": "greetings"}), "object and metadata")
    expect(made["id"].startswith("conv_"), f"id {made['id']!r}")
    expect(isinstance(made["created_at"], int), f"created_at {made['created_at']!r}")
    equal(ok(await target.get(f"/conversations/{made['id']}")), made, "read again")


@group.check("conversation-empty", "OpenAI API reference: create a conversation, everything is optional")
async def conversation_empty(target: Target) -> None:
    """An empty body makes an empty conversation: a list without items, ids null."""
    made = offered(await target.send("POST", "/conversations", {}))
    listed = await _listed(target, made)
    wanted: JsonObject = {"object": "list", "data": [], "first_id": None, "last_id": None, "has_more": False}
    equal({key: listed.get(key, "missing") for key in wanted}, wanted, "the list")


@group.check("conversation-update", "OpenAI API reference: update a conversation")
async def conversation_update(target: Target) -> None:
    """POST replaces the metadata as a whole and leaves the items alone."""
    made = await _made(target, "Hello.", metadata={"topic": "greetings", "mood": "good"})
    updated = ok(await target.send("POST", f"/conversations/{made['id']}", {"metadata": {"topic": "farewells"}}))
    equal(updated, {**made, "metadata": {"topic": "farewells"}}, "the answer")
    equal(ok(await target.get(f"/conversations/{made['id']}")), updated, "read again")
    equal([_said(item) for item in await _line(target, made)], ["Hello."], "items")


@group.check("conversation-delete", "openai.types.conversations.ConversationDeletedResource")
async def conversation_delete(target: Target) -> None:
    """Deleting says so; afterwards conversation and items are not found."""
    made = await _made(target, "Hello.")
    path = f"/conversations/{made['id']}"
    gone = ok(await target.send("DELETE", path))
    equal(gone, {"id": made["id"], "object": "conversation.deleted", "deleted": True}, "the answer")
    for answer in (await target.get(path), await target.get(f"{path}/items")):
        refused(answer, status=(404,))
    refused(await target.create(conversation=made["id"]), status=(400, 404))


@group.check("conversation-unknown", "OpenAI API reference: errors")
async def conversation_unknown(target: Target) -> None:
    """Nobody's id is a 404 everywhere."""
    made = await _made(target)
    path = f"/conversations/{_NOBODY}"
    answers = [
        await target.get(path),
        await target.send("POST", path, {"metadata": {}}),
        await target.send("DELETE", path),
        await target.get(f"{path}/items"),
        await target.send("POST", f"{path}/items", {"items": [_user("Hello.")]}),
        await target.get(f"/conversations/{made['id']}/items/msg_0123456789abcdef0123456789abcdef"),
        await target.create(conversation=_NOBODY),
    ]
    for answer in answers:
        refused(answer, status=(404,))


@group.check("conversation-items-create", "openai.types.conversations.ConversationItemList")
async def conversation_items_create(target: Target) -> None:
    """Items are answered as a list of what is stored: ids, status, text as one input_text part."""
    made = await _made(target, "one")
    body = {"items": [_user("two"), _user("three")]}
    listed = ok(await target.send("POST", f"/conversations/{made['id']}/items", body))
    data = listed["data"]
    equal([_said(item) for item in data], ["two", "three"], "texts")
    ids = [item["id"] for item in data]
    wanted = ("list", ids[0], ids[1], False)
    equal(tuple(listed.get(key) for key in ("object", "first_id", "last_id", "has_more")), wanted, "the list")
    expect(all(each.startswith("msg_") for each in ids), f"ids {ids}")
    equal([part["type"] for part in data[0]["content"]], ["input_text"], "content")
    equal((data[0]["role"], data[0]["status"]), ("user", "completed"), "role and status")
    equal([_said(item) for item in await _line(target, made)], ["one", "two", "three"], "the line")


@group.check("conversation-items-calls", "openai.types.conversations.ConversationItem: calls and their outputs")
async def conversation_items_calls(target: Target) -> None:
    """A function call and its output are kept with ids of their own kinds."""
    made = await _made(target)
    call = {"type": "function_call", "call_id": "call_1", "name": "weather", "arguments": "{}"}
    output = {"type": "function_call_output", "call_id": "call_1", "output": "Sunny."}
    body = {"items": [_user("Weather?"), call, output]}
    data = ok(await target.send("POST", f"/conversations/{made['id']}/items", body))["data"]
    equal(types(data), ["message", "function_call", "function_call_output"], "types")
    for sent, stored in zip((call, output), data[1:], strict=True):
        equal({key: stored.get(key) for key in sent}, sent, "what was sent")
        expect(isinstance(stored.get("id"), str) and stored["id"] != "call_1", f"id of {stored}")


@group.check("conversation-items-order", "OpenAI API reference: list items, order")
async def conversation_items_order(target: Target) -> None:
    """Newest first unless `order=asc` asks otherwise."""
    made = await _made(target, *_WORDS)
    for query, wanted in (({}, _WORDS[::-1]), ({"order": "desc"}, _WORDS[::-1]), ({"order": "asc"}, _WORDS)):
        listed = await _listed(target, made, **query)
        equal([_said(item) for item in listed["data"]], list(wanted), f"texts with {query}")


@group.check("conversation-items-pages", "OpenAI API reference: list items, after and limit")
async def conversation_items_pages(target: Target) -> None:
    """Pages by `after` show every item once; `has_more` is true until the last page."""
    made = await _made(target, *_WORDS)
    for order, wanted in (("asc", _WORDS), ("desc", _WORDS[::-1])):
        seen: list[str] = []
        query: dict[str, object] = {"order": order, "limit": 2}
        for more in (True, True, False):
            page = await _listed(target, made, **query)
            ids = [item["id"] for item in page["data"]]
            equal((page["first_id"], page["last_id"], page["has_more"]), (ids[0], ids[-1], more), "the page's marks")
            seen += [_said(item) for item in page["data"]]
            query["after"] = page["last_id"]
        equal(seen, list(wanted), f"texts of all pages, {order}")


@group.check("conversation-items-after", "recording of the API: after with an unknown item")
async def conversation_items_after(target: Target) -> None:
    """`after` an item the conversation has no longer is a 404 that names the parameter."""
    made = await _made(target, "one", "two")
    item = (await _line(target, made))[0]
    ok(await target.send("DELETE", f"/conversations/{made['id']}/items/{item['id']}"))
    refused(await target.get(f"/conversations/{made['id']}/items", after=item["id"]), status=(404,), param="after")


@group.check("conversation-items-limits", "OpenAI API reference: at most 20 items a request, limit 1 to 100")
async def conversation_items_limits(target: Target) -> None:
    """21 items at once, a page of 101, an order nobody knows: 400, and nothing is added."""
    made = await _made(target)
    path = f"/conversations/{made['id']}/items"
    refused(await target.send("POST", path, {"items": [_user("Hello.")] * 21}))
    refused(await target.get(path, limit=101))
    refused(await target.get(path, order="sideways"))
    equal(await _line(target, made), [], "items")


@group.check("conversation-item-id", "recording of the API: a sent id begins with its type's prefix")
async def conversation_item_id(target: Target) -> None:
    """A message whose id is another type's is a 400 `invalid_value`; the batch adds nothing."""
    made = await _made(target)
    body = {"items": [_user("Hello."), _user("Bye.") | {"id": "fc_0123456789abcdef"}]}
    refused(await target.send("POST", f"/conversations/{made['id']}/items", body), code="invalid_value")
    equal(await _line(target, made), [], "items")


@group.check("conversation-item-twice", "recording of the API: item_already_in_conversation")
async def conversation_item_twice(target: Target) -> None:
    """An item that is in the conversation already is a 400."""
    made = await _made(target, "Hello.")
    [item] = await _line(target, made)
    answer = await target.send("POST", f"/conversations/{made['id']}/items", {"items": [item]})
    refused(answer, code="item_already_in_conversation")


@group.check("conversation-item-linked", "recording of the API: an id of another conversation is that item")
async def conversation_item_linked(target: Target) -> None:
    """An item sent with the id of a stored one is the stored one, whatever was sent beside the id."""
    made, other = await _made(target, "Hello."), await _made(target)
    [item] = await _line(target, made)
    body = {"items": [_user("Something else.") | {"id": item["id"]}]}
    ok(await target.send("POST", f"/conversations/{other['id']}/items", body))
    equal([(each["id"], _said(each)) for each in await _line(target, other)], [(item["id"], "Hello.")], "items")


@group.check("conversation-item", "OpenAI API reference: retrieve an item")
async def conversation_item(target: Target) -> None:
    """One item is read as it is listed."""
    made = await _made(target, "one", "two")
    for item in await _line(target, made):
        equal(ok(await target.get(f"/conversations/{made['id']}/items/{item['id']}")), item, "the item")


@group.check("conversation-item-delete", "OpenAI API reference: delete an item returns the conversation")
async def conversation_item_delete(target: Target) -> None:
    """Deleting an item answers the conversation; the item is gone, the others stay."""
    made = await _made(target, "one", "two", "three")
    middle = (await _line(target, made))[1]
    path = f"/conversations/{made['id']}/items/{middle['id']}"
    equal(ok(await target.send("DELETE", path)), made, "the answer")
    refused(await target.get(path), status=(404,))
    equal([_said(item) for item in await _line(target, made)], ["one", "three"], "the line")


@group.check("conversation-turn", "OpenAI guide: conversation state, the conversation parameter")
async def conversation_turn(target: Target) -> None:
    """A response on a conversation appends its input, then its output, and names the conversation as an object."""
    made = await _made(target, "My name is Ada.")
    first = completed(ok(await target.create("Say hello.", conversation=made["id"])))
    equal(first.get("conversation"), {"id": made["id"]}, "conversation")
    second = completed(ok(await target.create("And again.", conversation={"id": made["id"]})))
    line = await _line(target, made)
    answers = [item["id"] for response in (first, second) for item in response["output"] if item["type"] == "message"]
    equal([item["role"] for item in line], ["user", "user", "assistant", "user", "assistant"], "roles")
    equal([_said(line[place]) for place in (0, 1, 3)], ["My name is Ada.", "Say hello.", "And again."], "user's texts")
    equal([line[2]["id"], line[4]["id"]], answers, "ids of the answers")


@group.check("conversation-turn-streamed", "openai.types.responses.Response: conversation")
async def conversation_turn_streamed(target: Target) -> None:
    """The same over a stream: every snapshot names the conversation; the line is complete when the stream ends."""
    made = await _made(target)
    stream = streamed(await target.stream("Say hello.", conversation=made["id"]))
    named = [frame.data["response"].get("conversation") for frame in stream.frames if "response" in frame.data]
    equal(named, [{"id": made["id"]}] * len(named), "conversation of each snapshot")
    equal([item["role"] for item in await _line(target, made)], ["user", "assistant"], "roles")


@group.check("conversation-context", "OpenAI guide: conversation state, its items are put before the input")
async def conversation_context(target: Target) -> None:
    """A turn's input items are the conversation's items and the new input behind them."""
    made = await _made(target, "My name is Ada.")
    response = completed(ok(await target.create("Who am I?", conversation=made["id"])))
    listed = ok(await target.get(f"/responses/{response['id']}/input_items", order="asc", limit=100))["data"]
    equal([_said(item) for item in listed], ["My name is Ada.", "Who am I?"], "texts")


@group.check("conversation-tools", "Responses API guide: MCP tools in a conversation")
async def conversation_tools(target: Target) -> None:
    """List, call and answer are items of the conversation; its next turn neither lists nor calls again."""
    tag = target.tools.tag()
    made, tools = await _made(target), [server(target, tag)]
    first = completed(offered(await target.create(ECHO, conversation=made["id"], tools=tools)))
    line = await _line(target, made)
    equal(types(line), ["message", "mcp_list_tools", "mcp_call", "message"], "items")
    expect(items(first, "mcp_call")[0] in line, "the call is not the one of the response")
    second = completed(ok(await target.create("Thank you. Goodbye!", conversation=made["id"], tools=tools)))
    equal(kinds(second), ["message"], "output of the next turn")
    equal(target.tools.calls(tag)["echo"], 1, "how often echo ran")


@group.check("conversation-approval", "Responses API guide: MCP approvals in a conversation")
async def conversation_approval(target: Target) -> None:
    """An ask is decided by the next turn of its conversation; the tool runs once."""
    tag = target.tools.tag()
    made, tools = await _made(target), [server(target, tag, require_approval="always")]
    first = completed(offered(await target.create(ECHO, conversation=made["id"], tools=tools)))
    [ask] = items(first, "mcp_approval_request")
    decision = {"type": "mcp_approval_response", "approval_request_id": ask["id"], "approve": True}
    second = completed(ok(await target.create([decision], conversation=made["id"], tools=tools)))
    equal(kinds(second), ["mcp_call", "message"], "output")
    kept = ["message", "mcp_list_tools", "mcp_approval_request", "mcp_approval_response", "mcp_call", "message"]
    equal(types(await _line(target, made)), kept, "items")
    equal(target.tools.calls(tag)["echo"], 1, "how often echo ran")


@group.check("conversation-or-previous", "OpenAI API reference: previous_response_id, not together with conversation")
async def conversation_or_previous(target: Target) -> None:
    """Both parents at once are a 400."""
    made = await _made(target)
    first = completed(ok(await target.create("Say hello.")))
    refused(await target.create("And?", conversation=made["id"], previous_response_id=first["id"]))
    equal(await _line(target, made), [], "items")


@group.check("conversation-branch", "recording of the API: a branch off a conversation's turn")
async def conversation_branch(target: Target) -> None:
    """Continuing a turn by `previous_response_id` adds nothing to its conversation."""
    made = await _made(target)
    first = completed(ok(await target.create("Say hello.", conversation=made["id"])))
    before = await _line(target, made)
    completed(ok(await target.create("And again.", previous_response_id=first["id"])))
    equal(await _line(target, made), before, "the line")


@group.check("conversation-locked", "OpenAI API reference: errors, conversation_locked")
async def conversation_locked(target: Target) -> None:
    """While a response runs in it, another is refused; once it has ended, the next is answered."""
    made = await _made(target)
    running = offered(await target.create(_SLOW, conversation=made["id"], background=True))
    try:
        answer = await target.create("Say hello.", conversation=made["id"])
        refused(answer, param="conversation", code="conversation_locked")
    finally:
        ended = await target.send("POST", f"/responses/{running['id']}/cancel")
    equal(ok(ended)["status"], "cancelled", "status of the slow one")
    completed(ok(await _unlocked(target, made)))


async def _unlocked(target: Target, made: JsonObject) -> Answer:
    """A turn, tried again while the cancelled one is being put away; the check's own deadline bounds it."""
    while True:
        answer = await target.create("Say hello.", conversation=made["id"])
        if answer.error.get("code") != "conversation_locked":
            return answer
        await asyncio.sleep(0.1)
