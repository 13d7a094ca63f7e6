"""Tools of MCP servers that run without asking."""

import json
from collections.abc import Sequence
from urllib.parse import urlsplit

from outlast.conformance.base import Group, equal, expect, types
from outlast.conformance.checks.functions import WEATHER
from outlast.conformance.shapes import added, completed, items, numbered, offered, ok, order, refused, streamed
from outlast.conformance.target import Target
from outlast.protocol.json import JsonObject

group = Group("MCP")
ECHO = "Call the tool echo with the text Hello."
_LIST_EVENTS = ["output_item.added", "mcp_list_tools.in_progress", "mcp_list_tools.completed", "output_item.done"]
CALL_EVENTS = [
    "output_item.added",
    "mcp_call.in_progress",
    "mcp_call_arguments.done",
    "mcp_call.completed",
    "output_item.done",
]


def server(target: Target, tag: str, *, label: str = "tools", **fields: object) -> JsonObject:
    """The suite's server of a tag as a tool; it asks for nothing unless `require_approval` says so."""
    url = target.tools.url(tag)
    return {"type": "mcp", "server_label": label, "server_url": url, "require_approval": "never", **fields}


def kinds(response: JsonObject) -> list[str]:
    """Types of the output, reasoning left out: some models think between any two items."""
    return [kind for kind in types(response["output"]) if kind != "reasoning"]


def without_deltas(events: Sequence[str]) -> list[str]:
    """A call's events: its arguments may come in any number of pieces."""
    return [event for event in events if not event.endswith(".delta")]


def text_of(call: JsonObject) -> str:
    """The argument every tool of the suite has."""
    return str(json.loads(call["arguments"]).get("text"))


def elsewhere(target: Target) -> str:
    """An address on the tool server's host where nobody listens."""
    return f"http://{urlsplit(target.tools.base_url).hostname}:9/mcp"


async def _offered(target: Target) -> None:
    """Raises: NotOffered when the server has no MCP: what it refuses then says nothing about the rules of it."""
    offered(await target.create("Say hello.", tools=[server(target, target.tools.tag())]))


@group.check("mcp-never", "Responses API guide: MCP tools, require_approval never")
async def mcp_never(target: Target) -> None:
    """List, call and message, in this order; the tool ran once."""
    tag = target.tools.tag()
    response = completed(offered(await target.create(ECHO, tools=[server(target, tag)])))
    equal(kinds(response), ["mcp_list_tools", "mcp_call", "message"], "output")
    equal(target.tools.calls(tag)["echo"], 1, "how often echo ran")


@group.check("mcp-list-item", "openai.types.responses.response_output_item.McpListTools")
async def mcp_list_item(target: Target) -> None:
    """The list names each tool with its schema; when nothing failed there is no `error` key."""
    response = completed(offered(await target.create("Say hello.", tools=[server(target, target.tools.tag())])))
    [listed] = items(response, "mcp_list_tools")
    equal(listed.get("server_label"), "tools", "server_label")
    expect(isinstance(listed.get("id"), str), f"no id: {listed}")
    expect("error" not in listed, f"error: {listed.get('error')!r}")
    equal(sorted(tool["name"] for tool in listed["tools"]), ["breaks", "echo", "publish"], "tools")
    schemas = [tool.get("input_schema") for tool in listed["tools"]]
    expect(all(isinstance(schema, dict) and "text" in schema["properties"] for schema in schemas), f"{schemas}")


@group.check("mcp-call-item", "openai.types.responses.response_output_item.McpCall")
async def mcp_call_item(target: Target) -> None:
    """One item holds the call and its result, under the tool's own name."""
    response = completed(offered(await target.create(ECHO, tools=[server(target, target.tools.tag())])))
    call = items(response, "mcp_call")[0]
    seen = (call.get("name"), call.get("server_label"), call.get("status"))
    equal(seen, ("echo", "tools", "completed"), "name, server_label, status")
    equal(call.get("output"), f"echo: {text_of(call)}", "output")
    equal((call.get("error"), call.get("approval_request_id")), (None, None), "error and approval_request_id")
    expect("call_id" not in call, f"the item has a call_id: {call}")


@group.check("mcp-tools-echo", "OpenAI API reference: the response object, tools")
async def mcp_tools_echo(target: Target) -> None:
    """Every snapshot of the response echoes the server as it was sent; no other tool appears."""
    sent = server(target, target.tools.tag(), allowed_tools=["echo"])
    stream = streamed(await target.stream(ECHO, tools=[sent]), optional=True)
    for frame in stream.frames:
        snapshot = frame.data.get("response")
        if snapshot is not None:
            [tool] = snapshot["tools"]
            equal({key: tool.get(key) for key in sent}, sent, f"tools[0] in {frame.type}")


@group.check("mcp-events-list", "openai.types.responses.ResponseMcpListToolsCompletedEvent")
async def mcp_events_list(target: Target) -> None:
    """The list is announced empty, then in progress, completed, done with its tools."""
    stream = streamed(await target.stream(ECHO, tools=[server(target, target.tools.tag())]), optional=True)
    [listed] = added(stream, "mcp_list_tools")
    equal(listed.get("tools"), [], "tools of the announced item")
    equal(order(stream, listed["id"]), _LIST_EVENTS, "its events")
    done = [data["item"] for data in stream.of("response.output_item.done") if data["item"]["id"] == listed["id"]]
    equal(done, items(stream.last, "mcp_list_tools"), "the done item and the final one")


@group.check("mcp-events-call", "openai.types.responses.ResponseMcpCallArgumentsDoneEvent")
async def mcp_events_call(target: Target) -> None:
    """A call is announced empty, in progress, its arguments, completed, done; all copies agree."""
    stream = streamed(await target.stream(ECHO, tools=[server(target, target.tools.tag())]), optional=True)
    call = added(stream, "mcp_call")[0]
    equal((call.get("arguments"), call.get("output")), ("", None), "arguments and output of the announced call")
    equal(without_deltas(order(stream, call["id"])), CALL_EVENTS, "its events")
    final = next(item for item in items(stream.last, "mcp_call") if item["id"] == call["id"])
    done = next(data for data in stream.of("response.mcp_call_arguments.done") if data["item_id"] == call["id"])
    pieces = [data for data in stream.of("response.mcp_call_arguments.delta") if data["item_id"] == call["id"]]
    equal(done["arguments"], final["arguments"], "arguments.done and the final item")
    expect(not pieces or "".join(data["delta"] for data in pieces) == done["arguments"], f"deltas: {pieces}")


@group.check("mcp-numbering", "Responses API streaming: sequence_number and output_index over all model rounds")
async def mcp_numbering(target: Target) -> None:
    """Over list, call and answer the numbers run on, indexes are dense, there is one created and one end."""
    stream = streamed(await target.stream(ECHO, tools=[server(target, target.tools.tag())]), optional=True)
    numbered(stream)
    expect("mcp_call" in kinds(completed(stream.last)), f"no call in {kinds(stream.last)}")
    ids = {frame.data["response"]["id"] for frame in stream.frames if "response" in frame.data}
    equal(len(ids), 1, "how many response ids")


@group.check("no-relist", "Responses API guide: MCP tools, a list in the context is not repeated")
async def no_relist(target: Target) -> None:
    """A follow-up that needs no tool has no list item and no call, though the server is declared again."""
    tag = target.tools.tag()
    tools = [server(target, tag)]
    first = completed(offered(await target.create(ECHO, tools=tools)))
    second = completed(ok(await target.create("Thank you. Goodbye!", previous_response_id=first["id"], tools=tools)))
    equal(kinds(second), ["message"], "output of the follow-up")
    equal(target.tools.calls(tag)["echo"], 1, "how often echo ran")


@group.check("follow-up-call", "Responses API guide: MCP tools, a list in the context is not repeated")
async def follow_up_call(target: Target) -> None:
    """A follow-up may call the tool again, without a second list item."""
    tag = target.tools.tag()
    tools = [server(target, tag)]
    first = completed(offered(await target.create(ECHO, tools=tools)))
    again = "Call the tool echo again, with the text World."
    second = completed(ok(await target.create(again, previous_response_id=first["id"], tools=tools)))
    equal(kinds(second), ["mcp_call", "message"], "output of the follow-up")
    equal(target.tools.calls(tag)["echo"], 2, "how often echo ran")


@group.check(
    "stateless-stitched", "openai.types.responses.response_input_item_param.McpCall: a call sent back is history"
)
async def stateless_stitched(target: Target) -> None:
    """A whole history sent back as input is answered without running a tool and without a list."""
    tag = target.tools.tag()
    tools = [server(target, tag)]
    first = completed(offered(await target.create(ECHO, tools=tools, store=False)))
    history = [{"role": "user", "content": ECHO}, *first["output"], {"role": "user", "content": "Thank you. Goodbye!"}]
    second = completed(ok(await target.create(history, tools=tools, store=False)))
    equal(kinds(second), ["message"], "output")
    equal(target.tools.calls(tag)["echo"], 1, "how often echo ran")


@group.check("mcp-input-items", "OpenAI API reference: list input items")
async def mcp_input_items(target: Target) -> None:
    """The follow-up's input items hold list, call and answer as they were."""
    tools = [server(target, target.tools.tag())]
    first = completed(offered(await target.create(ECHO, tools=tools)))
    second = ok(await target.create("Thank you. Goodbye!", previous_response_id=first["id"], tools=tools))
    listed = ok(await target.get(f"/responses/{second['id']}/input_items", order="asc", limit=100))["data"]
    wanted = [item["id"] for item in first["output"]]
    equal([item["id"] for item in listed if item["id"] in wanted], wanted, "ids of the first output")
    calls = [item for item in listed if item["type"] == "mcp_call"]
    equal(calls, items(first, "mcp_call"), "the call")


@group.check("mcp-allowed-tools", "openai.types.responses.tool.Mcp: allowed_tools")
async def mcp_allowed_tools(target: Target) -> None:
    """Only allowed tools are listed and called."""
    tag = target.tools.tag()
    asked = "Call the tool publish with the text Hello. If you have no such tool, say so."
    response = completed(offered(await target.create(asked, tools=[server(target, tag, allowed_tools=["echo"])])))
    [listed] = items(response, "mcp_list_tools")
    equal([tool["name"] for tool in listed["tools"]], ["echo"], "tools listed")
    equal(target.tools.calls(tag)["publish"], 0, "how often publish ran")


@group.check("mcp-allowed-read-only", "openai.types.responses.tool.McpAllowedToolsMcpToolFilter: read_only")
async def mcp_allowed_read_only(target: Target) -> None:
    """The filter `read_only` leaves what the server marks so."""
    tool = server(target, target.tools.tag(), allowed_tools={"read_only": True})
    response = completed(offered(await target.create("Say hello.", tools=[tool])))
    [listed] = items(response, "mcp_list_tools")
    equal([tool["name"] for tool in listed["tools"]], ["echo"], "tools listed")


@group.check("mcp-tool-choice", "openai.types.responses.ToolChoiceMcp")
async def mcp_tool_choice(target: Target) -> None:
    """A forced tool is called, in the first round only: the response comes to an answer."""
    tag = target.tools.tag()
    choice = {"type": "mcp", "server_label": "tools", "name": "echo"}
    response = completed(offered(await target.create("Good day.", tools=[server(target, tag)], tool_choice=choice)))
    equal(kinds(response), ["mcp_list_tools", "mcp_call", "message"], "output")
    equal(target.tools.calls(tag)["echo"], 1, "how often echo ran")


@group.check("mcp-max-tool-calls", "OpenAI API reference: max_tool_calls, further attempts are ignored")
async def mcp_max_tool_calls(target: Target) -> None:
    """Calls beyond `max_tool_calls` do not run; the response completes."""
    tags = [target.tools.tag(), target.tools.tag()]
    tools = [server(target, tag, label=f"tools{number}", allowed_tools=["echo"]) for number, tag in enumerate(tags)]
    asked = "Call the tool echo of every server with the text Hello."
    completed(offered(await target.create(asked, tools=tools, max_tool_calls=1)))
    ran = sum(target.tools.calls(tag)["echo"] for tag in tags)
    equal(ran, 1, "how often echo ran on both servers")


@group.check("mcp-tool-error", "openai.types.responses.response_output_item.McpCallErrorMcpToolExecutionError")
async def mcp_tool_error(target: Target) -> None:
    """A tool that fails fails its call, with a typed error; the response goes on and completes."""
    tag = target.tools.tag()
    asked = "Call the tool breaks with the text Hello, once, and tell me what it said."
    stream = streamed(await target.stream(asked, tools=[server(target, tag)]), optional=True)
    expect("message" in kinds(completed(stream.last)), f"no answer in {kinds(stream.last)}")
    call = items(stream.last, "mcp_call")[0]
    equal((call.get("status"), call.get("output")), ("failed", None), "status and output")
    equal((call.get("error") or {}).get("type"), "mcp_tool_execution_error", "error.type")
    events = [kind.replace("completed", "failed") for kind in CALL_EVENTS]
    equal(without_deltas(order(stream, call["id"])), events, "its events")


@group.check("mcp-dead-server", "Responses API: HTTP 424 for a list that fails; ResponseMcpListToolsFailedEvent")
async def mcp_dead_server(target: Target) -> None:
    """A server that is not there: a list item with an error in a response that completes, or HTTP 424."""
    await _offered(target)
    tool = server(target, target.tools.tag()) | {"server_url": elsewhere(target)}
    answer = await target.create("Say hello.", tools=[tool])
    if answer.status == 424:
        refused(answer, status=(424,))
        return
    [listed] = items(completed(ok(answer)), "mcp_list_tools")
    equal(listed["tools"], [], "tools")
    expect(isinstance(listed.get("error"), str) and listed["error"], f"error: {listed.get('error')!r}")


@group.check("mcp-dead-server-stream", "openai.types.responses.ResponseMcpListToolsFailedEvent")
async def mcp_dead_server_stream(target: Target) -> None:
    """Streamed, the list item is announced, in progress, failed, done; or HTTP 424."""
    await _offered(target)
    tool = server(target, target.tools.tag()) | {"server_url": elsewhere(target)}
    stream = await target.stream("Say hello.", tools=[tool])
    if stream.status == 424:
        return
    [listed] = added(streamed(stream), "mcp_list_tools")
    events = [kind.replace("completed", "failed") for kind in _LIST_EVENTS]
    equal(order(stream, listed["id"]), events, "its events")
    numbered(stream)


@group.check("mcp-needs-server", "openai.types.responses.tool.Mcp: one of server_url, connector_id")
async def mcp_needs_server(target: Target) -> None:
    """A server without an address is a 400."""
    await _offered(target)
    refused(await target.create("Say hello.", tools=[{"type": "mcp", "server_label": "tools"}]))


@group.check("mcp-secrets", "openai.types.responses.tool.Mcp: authorization is not stored and not returned")
async def mcp_secrets(target: Target) -> None:
    """What is sent in `authorization` and `headers` comes back nowhere: answer, events, reading it again."""
    tag = target.tools.tag()
    secrets = (f"token-of-{tag}-4711", f"header-of-{tag}-4712")
    tool = server(target, tag, authorization=secrets[0], headers={"X-Key": secrets[1]})
    stream = streamed(await target.stream(ECHO, tools=[tool]), optional=True)
    response_id = completed(stream.last)["id"]
    read = [await target.get(f"/responses/{response_id}"), await target.get(f"/responses/{response_id}/input_items")]
    texts = [*(frame.raw.decode() for frame in stream.frames), *(json.dumps(answer.body) for answer in read)]
    expect(not any(secret in text for secret in secrets for text in texts), "a secret is in an answer")
    equal(target.tools.calls(tag)["echo"], 1, "how often echo ran")


@group.check("mcp-json-stream-get", "OpenAI API reference: create, streaming and retrieve show one object")
async def mcp_json_stream_get(target: Target) -> None:
    """JSON and stream have items of the same shape; GET of either is what was answered."""
    tools = [server(target, target.tools.tag())]
    plain = completed(offered(await target.create(ECHO, tools=tools)))
    live = completed(streamed(await target.stream(ECHO, tools=tools)).last)
    for response in (plain, live):
        read = ok(await target.get(f"/responses/{response['id']}"))
        equal((read["output"], read["usage"]), (response["output"], response["usage"]), "output and usage, read again")
    shapes = [[(item["type"], sorted(item)) for item in response["output"]] for response in (plain, live)]
    equal(shapes[1], shapes[0], "types and keys of the items, streamed")


@group.check("mcp-with-function", "Responses API guide: MCP tools beside functions")
async def mcp_with_function(target: Target) -> None:
    """A server's tool and a client's function together: one runs, the other is handed over; no second run later."""
    tag = target.tools.tag()
    asked = "Call the tool echo with the text Hello and, at the same time, the function weather for Paris."
    tools = [server(target, tag), WEATHER]
    first = completed(offered(await target.create(asked, tools=tools)))
    equal(set(kinds(first)) - {"message"}, {"mcp_list_tools", "mcp_call", "function_call"}, "output")
    call = items(first, "function_call")[0]
    output = {"type": "function_call_output", "call_id": call["call_id"], "output": "Sunny."}
    second = completed(ok(await target.create([output], previous_response_id=first["id"], tools=tools)))
    equal(kinds(second), ["message"], "output of the follow-up")
    equal(target.tools.calls(tag)["echo"], 1, "how often echo ran")


@group.check("mcp-usage-summed", "OpenAI API reference: usage counts all model rounds of a response")
async def mcp_usage_summed(target: Target) -> None:
    """Usage is that of both rounds: at least twice the input of the same request answered in one."""
    text = f"{ECHO} Say nothing about this: {'the quick brown fox jumps over the lazy dog ' * 40}"
    tools = [server(target, target.tools.tag())]
    one = completed(offered(await target.create(text, tools=tools, tool_choice="none")))["usage"]
    two = completed(ok(await target.create(text, tools=tools)))["usage"]
    expect(two["input_tokens"] >= 2 * one["input_tokens"], f"one round: {one}, two rounds: {two}")
    equal(two["total_tokens"], two["input_tokens"] + two["output_tokens"], "total_tokens")
