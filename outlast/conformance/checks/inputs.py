"""What may stand in `input`."""

from outlast.conformance.base import Group, equal, expect, types
from outlast.conformance.shapes import completed, offered, ok, refused
from outlast.conformance.target import Target
from outlast.protocol.json import JsonObject

group = Group("Input")
_PIXEL = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJ"
    "RU5ErkJggg=="
)
CALL: JsonObject = {"type": "function_call", "call_id": "call_1", "name": "lookup", "arguments": "{}"}
OUTPUT: JsonObject = {"type": "function_call_output", "call_id": "call_1", "output": "blue"}


def user(text: str) -> JsonObject:
    """A user's message."""
    return {"type": "message", "role": "user", "content": text}


@group.check("easy-message", "openai.types.responses.EasyInputMessage")
async def easy_message(target: Target) -> None:
    """A message without `type`, its content a string."""
    completed(ok(await target.create([{"role": "user", "content": "Say hello."}])))


@group.check("content-parts", "openai.types.responses.ResponseInputText")
async def content_parts(target: Target) -> None:
    """A message whose content is a list of parts."""
    parts = [{"type": "input_text", "text": "Say"}, {"type": "input_text", "text": "hello."}]
    completed(ok(await target.create([{"type": "message", "role": "user", "content": parts}])))


@group.check("every-role", "openai.types.responses.EasyInputMessage: role")
async def every_role(target: Target) -> None:
    """System, developer, user and assistant, in any order."""
    roles = ("system", "developer", "user", "assistant", "user")
    completed(ok(await target.create([{"role": role, "content": "Hello."} for role in roles])))


@group.check("image", "openai.types.responses.ResponseInputImage")
async def image(target: Target) -> None:
    """An image as a data URL."""
    parts = [{"type": "input_text", "text": "What colour?"}, {"type": "input_image", "image_url": _PIXEL}]
    completed(offered(await target.create([{"role": "user", "content": parts}])))


@group.check("own-output", "openai.types.responses.ResponseInputItem: output items are input items")
async def own_output(target: Target) -> None:
    """What a response gave back is accepted as the next input, unchanged."""
    first = completed(ok(await target.create("Say hello.")))
    completed(ok(await target.create([user("Say hello."), *first["output"], user("And again.")])))


@group.check("call-pair", "openai.types.responses.ResponseInputItem: function_call, function_call_output")
async def call_pair(target: Target) -> None:
    """A call and its output need no declared tool."""
    completed(ok(await target.create([user("Which colour?"), CALL, OUTPUT])))


@group.check("output-parts", "openai.types.responses.ResponseInputItem: function_call_output.output as a list")
async def output_parts(target: Target) -> None:
    """An output may be a list of parts."""
    output = {**OUTPUT, "output": [{"type": "input_text", "text": "blue"}]}
    completed(ok(await target.create([user("Which colour?"), CALL, output])))


@group.check("orphan-output", "recording of the API: No tool call found for function call output")
async def orphan_output(target: Target) -> None:
    """An output without its call is a 400 that names it."""
    answer = await target.create([user("Which colour?"), OUTPUT])
    refused(answer)
    expect("call_1" in answer.error["message"], f"the message does not name call_1: {answer}")


@group.check("unanswered-call", "recording of the API: No tool output found for function call")
async def unanswered_call(target: Target) -> None:
    """A call without its output is a 400 that names it."""
    answer = await target.create([CALL, user("Which colour?")])
    refused(answer)
    expect("call_1" in answer.error["message"], f"the message does not name call_1: {answer}")


@group.check("unknown-item", "Codex 0.171: additional_tools, commandExecution; tolerance of newer items")
async def unknown_item(target: Target) -> None:
    """An item of a type nobody knows does not break the request."""
    strange = {"type": "commandExecution", "id": "x_1", "call_id": "call_x", "command": "ls", "output": "a.txt"}
    completed(ok(await target.create([user("What is here?"), strange, user("Say it.")])))


@group.check("reasoning-item", "openai.types.responses.ResponseReasoningItemParam")
async def reasoning_item(target: Target) -> None:
    """A reasoning item with an empty summary is accepted with its neighbours."""
    thought = {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm."}]}
    said = {"type": "message", "role": "assistant", "content": "Blue."}
    completed(ok(await target.create([user("Which colour?"), thought, said, user("Sure?")])))


@group.check("item-reference", "openai.types.responses.ResponseInputItem: item_reference")
async def item_reference(target: Target) -> None:
    """A stored item may be named by its id alone; an unknown one is refused."""
    first = completed(ok(await target.create("Say hello.")))
    named = {"type": "item_reference", "id": first["output"][-1]["id"]}
    completed(offered(await target.create([user("Say hello."), named, user("And again.")])))
    refused(await target.create([{"type": "item_reference", "id": "msg_nobody"}, user("hi")]), status=(400, 404))


@group.check("listed-as-items", "OpenAI API reference: list input items; a string is one message")
async def listed_as_items(target: Target) -> None:
    """A string comes back from `input_items` as a message with an id and one `input_text` part."""
    response = completed(ok(await target.create("Say hello.")))
    [item] = ok(await target.get(f"/responses/{response['id']}/input_items"))["data"]
    equal((item.get("type"), item.get("role")), ("message", "user"), "type and role")
    equal([(part["type"], part["text"]) for part in item["content"]], [("input_text", "Say hello.")], "content")
    expect(item.get("id"), f"the item has no id: {item}")
    equal(types([item]), ["message"], "types")
