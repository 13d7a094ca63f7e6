"""Compaction in its three forms, and counting tokens."""

from outlast.conformance.base import Group, equal, expect, types
from outlast.conformance.checks.functions import WEATHER
from outlast.conformance.checks.mcp import ECHO, kinds, server
from outlast.conformance.shapes import added, completed, items, numbered, offered, ok, order, refused, streamed
from outlast.conformance.target import Target
from outlast.protocol.json import JsonObject

group = Group("Compaction and token counts")
_TRIGGER: JsonObject = {"type": "compaction_trigger"}
_NEXT: JsonObject = {"type": "message", "role": "user", "content": "Thank you. Goodbye!"}
_SPOKEN: list[JsonObject] = [
    {"type": "message", "role": "user", "content": "My name is Ada."},
    {"type": "message", "role": "assistant", "content": "Good day, Ada."},
    {"type": "message", "role": "user", "content": "I live in Paris."},
    {"type": "message", "role": "assistant", "content": "A fine city."},
]
# The smallest threshold there is, in tokens, and a history well above it.
_THRESHOLD = 1000
_LONG: list[JsonObject] = [
    {"type": "message", "role": "user", "content": "Describe the river."},
    {"type": "message", "role": "assistant", "content": "The river runs past mills, meadows and quiet towns. " * 400},
    {"type": "message", "role": "user", "content": "Good. Now say hello."},
]
_MANAGED = [{"type": "compaction", "compact_threshold": _THRESHOLD}]


async def _window(target: Target, **body: object) -> JsonObject:
    """What POST /responses/compact answers."""
    return offered(await target.send("POST", "/responses/compact", {"model": target.model, **body}))


def _one(output: list[JsonObject]) -> JsonObject:
    """The only compaction item of an output."""
    found = [item for item in output if item.get("type") == "compaction"]
    equal(len(found), 1, f"how many compaction items in {types(output)}")
    sealed = found[0].get("encrypted_content")
    expect(isinstance(sealed, str) and sealed, f"encrypted_content: {sealed!r}")
    expect(isinstance(found[0].get("id"), str), f"no id: {found[0]}")
    return found[0]


async def _tokens(target: Target, given: object = "Say hello.", **fields: object) -> int:
    body = {"model": target.model, "input": given, **fields}
    counted = offered(await target.send("POST", "/responses/input_tokens", body))
    equal(counted.get("object"), "response.input_tokens", "object")
    number = counted.get("input_tokens")
    expect(isinstance(number, int) and number > 0, f"input_tokens: {number!r}")
    return int(number or 0)


@group.check("compact", "openai.types.responses.CompactedResponse; Open Responses 2026-04-24: POST /responses/compact")
async def compact(target: Target) -> None:
    """The endpoint answers a window: all user messages, then one sealed compaction item, and what it cost."""
    window = await _window(target, input=_SPOKEN)
    equal(window.get("object"), "response.compaction", "object")
    expect(isinstance(window.get("id"), str) and isinstance(window.get("created_at"), int), f"{window}")
    equal(types(window["output"]), ["message", "message", "compaction"], "output")
    _one(window["output"])
    said = [(item["role"], "".join(part["text"] for part in item["content"])) for item in items(window, "message")]
    equal(said, [("user", "My name is Ada."), ("user", "I live in Paris.")], "messages")
    usage = window["usage"]
    equal(usage["total_tokens"], usage["input_tokens"] + usage["output_tokens"], "usage.total_tokens")
    expect(usage["total_tokens"] > 0, f"usage: {usage}")


@group.check("compact-chain", "openai.types.responses.ResponseCompactParams: previous_response_id")
async def compact_chain(target: Target) -> None:
    """A stored chain is compacted by its newest response's id."""
    first = completed(ok(await target.create("My name is Ada.")))
    second = completed(ok(await target.create("I live in Paris.", previous_response_id=first["id"])))
    window = await _window(target, previous_response_id=second["id"])
    equal(types(window["output"]), ["message", "message", "compaction"], "output")
    _one(window["output"])


@group.check("compact-next", "OpenAI guide: compaction, the window is the next input")
async def compact_next(target: Target) -> None:
    """The window, sent as input with a new question behind it, is answered."""
    window = await _window(target, input=_SPOKEN)
    response = completed(ok(await target.create([*window["output"], _NEXT])))
    equal(kinds(response), ["message"], "output")


@group.check("compact-again", "OpenAI guide: compaction, the newest item stands for everything before it")
async def compact_again(target: Target) -> None:
    """A window that is compacted again has one compaction item, a new one."""
    window = await _window(target, input=_SPOKEN)
    again = await _window(target, input=[*window["output"], _NEXT])
    newest = _one(again["output"])
    expect(newest["encrypted_content"] != _one(window["output"])["encrypted_content"], "the old item came back")
    equal(types(again["output"])[-1], "compaction", "the last item")


@group.check("compact-refused", "openai.types.responses.ResponseCompactParams: model is required")
async def compact_refused(target: Target) -> None:
    """Without a model, or of a chain nobody knows, it is a client error."""
    await _window(target, input=_SPOKEN)
    refused(await target.send("POST", "/responses/compact", {"input": _SPOKEN}))
    body = {"model": target.model, "previous_response_id": "resp_0123456789abcdef0123456789abcdef"}
    refused(await target.send("POST", "/responses/compact", body), status=(400, 404))


@group.check("compaction-trigger", "openai.types.responses.response_input_item_param.CompactionTrigger")
async def compaction_trigger(target: Target) -> None:
    """A trigger at the end of the input is answered by exactly one compaction item and nothing else."""
    response = completed(offered(await target.create([*_SPOKEN, _TRIGGER])))
    equal(types(response["output"]), ["compaction"], "output")
    _one(response["output"])
    expect(response["usage"]["total_tokens"] > 0, f"usage: {response['usage']}")
    equal(ok(await target.get(f"/responses/{response['id']}"))["output"], response["output"], "output, read again")


@group.check("compaction-trigger-stream", "recording of a client: exactly one compaction item, added and done")
async def compaction_trigger_stream(target: Target) -> None:
    """Streamed, the item is announced and done; all copies carry the same sealed text."""
    stream = streamed(await target.stream([*_SPOKEN, _TRIGGER]), optional=True)
    numbered(stream)
    final = _one(completed(stream.last)["output"])
    [announced] = added(stream, "compaction")
    events = [kind for kind in order(stream, announced["id"]) if kind != "compaction.compacting"]
    equal(events, ["output_item.added", "output_item.done"], "its events")
    [done] = stream.of("response.output_item.done")
    equal(done["item"], final, "the done item and the final one")


@group.check("compaction-trigger-chain", "OpenAI guide: compaction with previous_response_id")
async def compaction_trigger_chain(target: Target) -> None:
    """A chain goes on behind its compaction; the trigger is not among its items."""
    first = completed(ok(await target.create("My name is Ada.")))
    second = completed(offered(await target.create([_TRIGGER], previous_response_id=first["id"])))
    _one(second["output"])
    third = completed(ok(await target.create([_NEXT], previous_response_id=second["id"])))
    equal(kinds(third), ["message"], "output behind the compaction")
    for response in (second, third):
        listed = ok(await target.get(f"/responses/{response['id']}/input_items", order="asc", limit=100))["data"]
        expect("compaction_trigger" not in types(listed), f"input items of {response['id']}: {types(listed)}")


@group.check("compaction-stateless", "recording of a client: user messages and the compaction item, sent back")
async def compaction_stateless(target: Target) -> None:
    """What was compacted without storing goes on with the item alone, the rest dropped."""
    response = completed(offered(await target.create([*_SPOKEN, _TRIGGER], store=False)))
    following = completed(ok(await target.create([*response["output"], _NEXT], store=False)))
    equal(kinds(following), ["message"], "output")


@group.check("compaction-functions", "Rule: a call and its output are on one side of the cut")
async def compaction_functions(target: Target) -> None:
    """A chain with an answered function call is compacted and goes on: nothing is unpaired."""
    choice = {"type": "function", "name": "weather"}
    first = completed(ok(await target.create("What is the weather in Paris?", tools=[WEATHER], tool_choice=choice)))
    call = items(first, "function_call")[0]
    output = {"type": "function_call_output", "call_id": call["call_id"], "output": "Sunny."}
    tools: list[JsonObject] = [WEATHER]
    second = completed(ok(await target.create([output], previous_response_id=first["id"], tools=tools)))
    third = completed(offered(await target.create([_TRIGGER], previous_response_id=second["id"], tools=tools)))
    _one(third["output"])
    equal(kinds(completed(ok(await target.create([_NEXT], previous_response_id=third["id"])))), ["message"], "output")


@group.check("compaction-pending-call", "Rule: a call that has no output yet outlives a compaction")
async def compaction_pending_call(target: Target) -> None:
    """A function call without output is compacted over, and its output is accepted behind the compaction."""
    choice = {"type": "function", "name": "weather"}
    first = completed(ok(await target.create("What is the weather in Paris?", tools=[WEATHER], tool_choice=choice)))
    call = items(first, "function_call")[0]
    second = completed(offered(await target.create([_TRIGGER], previous_response_id=first["id"], tools=[WEATHER])))
    _one(second["output"])
    output = {"type": "function_call_output", "call_id": call["call_id"], "output": "Sunny."}
    third = await target.create([output], previous_response_id=second["id"], tools=[WEATHER])
    equal(kinds(completed(ok(third))), ["message"], "output")


@group.check("compaction-mcp", "Rule: what ran before a compaction does not run again")
async def compaction_mcp(target: Target) -> None:
    """A chain with a server's call is compacted and goes on: the tool ran once, and is not listed again."""
    tag = target.tools.tag()
    tools = [server(target, tag)]
    first = completed(offered(await target.create(ECHO, tools=tools)))
    second = completed(offered(await target.create([_TRIGGER], previous_response_id=first["id"], tools=tools)))
    _one(second["output"])
    third = completed(ok(await target.create([_NEXT], previous_response_id=second["id"], tools=tools)))
    equal(kinds(third), ["message"], "output")
    equal(target.tools.calls(tag)["echo"], 1, "how often echo ran")


@group.check("context-management", "openai.types.responses.response_create_params.ContextManagement")
async def context_management(target: Target) -> None:
    """Above the threshold the context is compacted within the response: one item in front of the answer."""
    response = completed(offered(await target.create(_LONG, context_management=_MANAGED)))
    equal(kinds(response), ["compaction", "message"], "output")
    _one(response["output"])
    following = completed(ok(await target.create([_NEXT], previous_response_id=response["id"])))
    equal(kinds(following), ["message"], "output of the next turn")


@group.check("context-management-stream", "openai.types.responses.ResponseCompactionItem")
async def context_management_stream(target: Target) -> None:
    """The same over a stream, numbered through."""
    stream = streamed(await target.stream(_LONG, context_management=_MANAGED), optional=True)
    numbered(stream)
    _one(completed(stream.last)["output"])
    equal(len(added(stream, "compaction")), 1, "how many compaction items were announced")


@group.check("context-management-below", "OpenAI guide: compaction, compact_threshold")
async def context_management_below(target: Target) -> None:
    """Below the threshold nothing is compacted."""
    response = completed(offered(await target.create(_SPOKEN, context_management=_MANAGED)))
    equal(kinds(response), ["message"], "output")


@group.check("input-tokens", "openai.types.responses.InputTokenCountResponse")
async def input_tokens(target: Target) -> None:
    """Tokens are counted without a run, and grow with input, instructions, tools and the chain in front."""
    short = await _tokens(target)
    expect(await _tokens(target, "Say hello. " * 50) > short, "a longer input does not count more")
    expect(await _tokens(target, instructions="Speak like a pirate.") > short, "instructions do not count")
    expect(await _tokens(target, tools=[WEATHER]) > short, "tools do not count")
    first = completed(ok(await target.create("My name is Ada.")))
    expect(await _tokens(target, previous_response_id=first["id"]) > short, "the chain does not count")


@group.check("input-tokens-refused", "OpenAI API reference: get input token counts, errors")
async def input_tokens_refused(target: Target) -> None:
    """What a response would refuse, counting refuses: a chain nobody knows."""
    await _tokens(target)
    body = {"model": target.model, "input": "Hello.", "previous_response_id": "resp_0123456789abcdef0123456789abcdef"}
    refused(await target.send("POST", "/responses/input_tokens", body), status=(400, 404))
