"""Tools of MCP servers that ask first."""

import json

from outlast.conformance.base import Group, equal, expect
from outlast.conformance.checks.mcp import CALL_EVENTS, kinds, server, text_of, without_deltas
from outlast.conformance.shapes import added, completed, items, numbered, offered, ok, order, refused, streamed
from outlast.conformance.target import Answer, Target
from outlast.protocol.json import JsonObject

group = Group("Approvals")
_PUBLISH = "Call the tool publish with the text Hello."
_BOTH = "Call the tool echo with the text Hello and, at the same time, the tool publish with the text Hello."
_THANKS = "Thank you. Goodbye!"
_CLIENT_ERRORS = (400, 403, 404)


def _asking(target: Target, tag: str, *, label: str = "tools", only: str | None = None) -> JsonObject:
    allowed = {} if only is None else {"allowed_tools": [only]}
    return server(target, tag, label=label, require_approval="always", **allowed)


def _decide(ask: JsonObject, approve: bool, **fields: object) -> JsonObject:
    return {"type": "mcp_approval_response", "approval_request_id": ask["id"], "approve": approve, **fields}


async def _asked(target: Target, tag: str) -> tuple[JsonObject, JsonObject]:
    """A response that asks whether `publish` may run, and the ask."""
    response = completed(offered(await target.create(_PUBLISH, tools=[_asking(target, tag)])))
    equal(kinds(response)[-1], "mcp_approval_request", "the last item")
    return response, items(response, "mcp_approval_request")[0]


async def _decided(target: Target, tag: str, first: JsonObject, *decisions: JsonObject) -> Answer:
    """The continuation that brings decisions."""
    tools = [_asking(target, tag)]
    return await target.create(list(decisions), previous_response_id=first["id"], tools=tools)


def _ran(target: Target, tag: str, times: int) -> None:
    equal(target.tools.calls(tag)["publish"], times, "how often publish ran")


async def _third_turn(target: Target, *, approve: bool) -> None:
    """Ask, decision, and a turn that sends all of it back: it must change nothing more."""
    tag = target.tools.tag()
    first, ask = await _asked(target, tag)
    history = [{"role": "user", "content": _PUBLISH}, *first["output"], _decide(ask, approve)]
    tools = [_asking(target, tag)]
    second = completed(ok(await target.create(history, tools=tools)))
    third = await target.create([*history, *second["output"], {"role": "user", "content": _THANKS}], tools=tools)
    equal(kinds(completed(ok(third))), ["message"], "output of the third turn")
    _ran(target, tag, int(approve))


@group.check("approval-default", "openai.types.responses.tool.Mcp: require_approval, always when it is missing")
async def approval_default(target: Target) -> None:
    """Without `require_approval` the server asks, nothing runs, and the response is completed."""
    tag = target.tools.tag()
    tool = server(target, tag)
    del tool["require_approval"]
    response = completed(offered(await target.create(_PUBLISH, tools=[tool])))
    equal(kinds(response), ["mcp_list_tools", "mcp_approval_request"], "output")
    _ran(target, tag, 0)


@group.check("approval-always", "Responses API guide: MCP approvals")
async def approval_always(target: Target) -> None:
    """`always` asks, also for a tool that only reads."""
    tag = target.tools.tag()
    asked = "Call the tool echo with the text Hello."
    response = completed(offered(await target.create(asked, tools=[_asking(target, tag)])))
    equal(kinds(response), ["mcp_list_tools", "mcp_approval_request"], "output")
    equal(target.tools.calls(tag)["echo"], 0, "how often echo ran")


@group.check("approval-filter", "openai.types.responses.tool.McpRequireApprovalMcpToolApprovalFilter: never")
async def approval_filter(target: Target) -> None:
    """`never: {tool_names}` lets the named tool run and asks for the others."""
    tag = target.tools.tag()
    tools = [server(target, tag, require_approval={"never": {"tool_names": ["echo"]}})]
    free = completed(offered(await target.create("Call the tool echo with the text Hello.", tools=tools)))
    equal(kinds(free), ["mcp_list_tools", "mcp_call", "message"], "output for the named tool")
    gated = completed(ok(await target.create(_PUBLISH, tools=tools)))
    equal(kinds(gated), ["mcp_list_tools", "mcp_approval_request"], "output for another")
    _ran(target, tag, 0)


@group.check("approval-filter-always", "openai.types.responses.tool.McpRequireApprovalMcpToolApprovalFilter: always")
async def approval_filter_always(target: Target) -> None:
    """`always: {tool_names}` asks for the named tool."""
    tag = target.tools.tag()
    policy = {"always": {"tool_names": ["publish"]}, "never": {"tool_names": ["echo"]}}
    response = completed(offered(await target.create(_PUBLISH, tools=[server(target, tag, require_approval=policy)])))
    equal(kinds(response), ["mcp_list_tools", "mcp_approval_request"], "output")
    _ran(target, tag, 0)


@group.check(
    "approval-read-only", "openai.types.responses.tool.McpRequireApprovalMcpToolApprovalFilterNever: read_only"
)
async def approval_read_only(target: Target) -> None:
    """`never: {read_only}` lets run what the server marks as reading only, and nothing else."""
    tag = target.tools.tag()
    tools = [server(target, tag, require_approval={"never": {"read_only": True}})]
    free = completed(offered(await target.create("Call the tool echo with the text Hello.", tools=tools)))
    equal(kinds(free), ["mcp_list_tools", "mcp_call", "message"], "output for a tool that reads")
    gated = completed(ok(await target.create(_PUBLISH, tools=tools)))
    equal(kinds(gated), ["mcp_list_tools", "mcp_approval_request"], "output for a tool that writes")
    _ran(target, tag, 0)


@group.check("approval-item", "openai.types.responses.response_output_item.McpApprovalRequest")
async def approval_item(target: Target) -> None:
    """The ask names server, tool and whole arguments; it is the same when it is read again."""
    first, ask = await _asked(target, target.tools.tag())
    equal((ask.get("name"), ask.get("server_label")), ("publish", "tools"), "name and server_label")
    expect(isinstance(json.loads(ask["arguments"]).get("text"), str), f"arguments: {ask['arguments']!r}")
    expect("status" not in ask, f"the ask has a status: {ask}")
    equal(ok(await target.get(f"/responses/{first['id']}"))["output"], first["output"], "output, read again")


@group.check("approval-events", "openai.types.responses.ResponseOutputItemAddedEvent: an ask has no events of its own")
async def approval_events(target: Target) -> None:
    """An ask is announced and done, then the response is completed; no call is announced."""
    tag = target.tools.tag()
    stream = streamed(await target.stream(_PUBLISH, tools=[_asking(target, tag)]), optional=True)
    numbered(stream)
    [ask] = added(stream, "mcp_approval_request")
    equal(order(stream, ask["id"]), ["output_item.added", "output_item.done"], "its events")
    equal(added(stream, "mcp_call"), [], "calls announced")
    equal(stream.types[-1], "response.completed", "the last event")
    _ran(target, tag, 0)


@group.check("approve", "Responses API guide: MCP approvals, mcp_approval_response")
async def approve(target: Target) -> None:
    """Approved, the tool runs once, with what was asked; the call names the ask; the model answers."""
    tag = target.tools.tag()
    first, ask = await _asked(target, tag)
    second = completed(ok(await _decided(target, tag, first, _decide(ask, True))))
    equal(kinds(second), ["mcp_call", "message"], "output")
    [call] = items(second, "mcp_call")
    equal(call.get("approval_request_id"), ask["id"], "approval_request_id")
    equal((call["arguments"], call["output"]), (ask["arguments"], f"published: {text_of(ask)}"), "arguments, output")
    _ran(target, tag, 1)


@group.check("approve-streamed", "openai.types.responses.ResponseMcpCallCompletedEvent")
async def approve_streamed(target: Target) -> None:
    """The approved call is the first item of a response numbered from 0, with the events of any call."""
    tag = target.tools.tag()
    first, ask = await _asked(target, tag)
    tools = [_asking(target, tag)]
    stream = streamed(await target.stream([_decide(ask, True)], previous_response_id=first["id"], tools=tools))
    numbered(stream)
    [call] = added(stream, "mcp_call")
    equal(without_deltas(order(stream, call["id"])), CALL_EVENTS, "its events")
    final = completed(stream.last)["output"][0]
    equal((final["id"], final.get("approval_request_id")), (call["id"], ask["id"]), "the first item of the output")
    _ran(target, tag, 1)


@group.check("deny", "Responses API guide: MCP approvals, approve false")
async def deny(target: Target) -> None:
    """Denied, nothing runs, no call is shown, and the model answers."""
    tag = target.tools.tag()
    first, ask = await _asked(target, tag)
    denial = _decide(ask, False, reason="Not today.")
    second = completed(ok(await _decided(target, tag, first, denial)))
    equal(items(second, "mcp_call"), [], "calls")
    expect(items(second, "message"), f"no answer in {kinds(second)}")
    _ran(target, tag, 0)


@group.check("approval-input-items", "openai.types.responses.response_item.McpApprovalResponse")
async def approval_input_items(target: Target) -> None:
    """The decision is among the continuation's input items, behind the ask."""
    tag = target.tools.tag()
    first, ask = await _asked(target, tag)
    second = ok(await _decided(target, tag, first, _decide(ask, True)))
    listed = ok(await target.get(f"/responses/{second['id']}/input_items", order="asc", limit=100))["data"]
    [decision] = [item for item in listed if item["type"] == "mcp_approval_response"]
    equal((decision["approval_request_id"], decision["approve"]), (ask["id"], True), "the decision")
    expect(listed.index(decision) > listed.index(ask), "the decision stands in front of the ask")


@group.check("approval-unknown", "OpenAI API reference: errors; an unknown approval request")
async def approval_unknown(target: Target) -> None:
    """A decision on an ask nobody made is a client error, and nothing runs."""
    tag = target.tools.tag()
    first, ask = await _asked(target, tag)
    stranger = {**ask, "id": "mcpr_0123456789abcdef0123456789abcdef"}
    refused(await _decided(target, tag, first, _decide(stranger, True)), status=_CLIENT_ERRORS)
    _ran(target, tag, 0)


@group.check("approved-twice", "Rule: an approval is used once")
async def approved_twice(target: Target) -> None:
    """The same approval sent again, on the same response, never runs the tool again."""
    tag = target.tools.tag()
    first, ask = await _asked(target, tag)
    completed(ok(await _decided(target, tag, first, _decide(ask, True))))
    again = await _decided(target, tag, first, _decide(ask, True))
    if again.status != 200:
        refused(again, status=_CLIENT_ERRORS)
    _ran(target, tag, 1)


@group.check("approval-contradicted", "Rule: a decision stands")
async def approval_contradicted(target: Target) -> None:
    """A denial cannot be turned into an approval: a client error, and the tool never runs."""
    tag = target.tools.tag()
    first, ask = await _asked(target, tag)
    completed(ok(await _decided(target, tag, first, _decide(ask, False))))
    refused(await _decided(target, tag, first, _decide(ask, True)), status=_CLIENT_ERRORS)
    _ran(target, tag, 0)


@group.check("approval-both-ways", "Rule: one ask, one decision")
async def approval_both_ways(target: Target) -> None:
    """Yes and no in one request is a client error, and nothing runs."""
    tag = target.tools.tag()
    first, ask = await _asked(target, tag)
    refused(await _decided(target, tag, first, _decide(ask, True), _decide(ask, False)), status=_CLIENT_ERRORS)
    _ran(target, tag, 0)


@group.check("approval-other-server", "Rule: an approval is bound to the server that was asked for")
async def approval_other_server(target: Target) -> None:
    """A continuation that points the label elsewhere does not run the approved call there."""
    tag, other = target.tools.tag(), target.tools.tag()
    first, ask = await _asked(target, tag)
    answer = await _decided(target, other, first, _decide(ask, True))
    if answer.status != 200:
        refused(answer, status=_CLIENT_ERRORS)
    _ran(target, other, 0)


@group.check("mixed-approval", "Responses API guide: MCP approvals, several servers")
async def mixed_approval(target: Target) -> None:
    """Two servers, one free and one that asks: two lists, one call, one request; only the free one ran."""
    free, gated = target.tools.tag(), target.tools.tag()
    tools = [
        server(target, free, label="reader", allowed_tools=["echo"]),
        _asking(target, gated, label="writer", only="publish"),
    ]
    response = completed(offered(await target.create(_BOTH, tools=tools)))
    wanted = ["mcp_list_tools", "mcp_list_tools", "mcp_call", "mcp_approval_request"]
    equal([kind for kind in kinds(response) if kind != "message"], wanted, "output")
    equal((target.tools.calls(free)["echo"], target.tools.calls(gated)["publish"]), (1, 0), "echo and publish ran")
    [ask] = items(response, "mcp_approval_request")
    second = await target.create([_decide(ask, True)], previous_response_id=response["id"], tools=tools)
    equal(kinds(completed(ok(second))), ["mcp_call", "message"], "output once it is approved")
    equal((target.tools.calls(free)["echo"], target.tools.calls(gated)["publish"]), (1, 1), "echo and publish ran")


@group.check("approval-stateless", "openai.types.responses.response_input_item_param.McpApprovalRequest: sent back")
async def approval_stateless(target: Target) -> None:
    """The whole history with the decision behind it, as input: the call runs once, nothing is listed again."""
    tag = target.tools.tag()
    first, ask = await _asked(target, tag)
    history = [{"role": "user", "content": _PUBLISH}, *first["output"], _decide(ask, True)]
    second = completed(ok(await target.create(history, tools=[_asking(target, tag)])))
    equal(kinds(second), ["mcp_call", "message"], "output")
    equal(items(second, "mcp_call")[0].get("approval_request_id"), ask["id"], "approval_request_id")
    _ran(target, tag, 1)


@group.check(
    "approved-history", "openai.types.responses.response_input_item_param.McpCall: a call sent back is history"
)
async def approved_history(target: Target) -> None:
    """A third turn with ask, decision and call in its history is answered; nothing runs, nobody is asked."""
    await _third_turn(target, approve=True)


@group.check("denied-history", "openai.types.responses.response_input_item_param.McpApprovalResponse: sent back")
async def denied_history(target: Target) -> None:
    """The same after a denial."""
    await _third_turn(target, approve=False)


@group.check("approved-chain", "OpenAI guide: conversation state, a chain behind an approval")
async def approved_chain(target: Target) -> None:
    """A turn behind the approved one is answered: nothing runs again."""
    tag = target.tools.tag()
    first, ask = await _asked(target, tag)
    second = completed(ok(await _decided(target, tag, first, _decide(ask, True))))
    tools = [_asking(target, tag)]
    third = await target.create(_THANKS, previous_response_id=second["id"], tools=tools)
    equal(kinds(completed(ok(third))), ["message"], "output")
    _ran(target, tag, 1)


@group.check("ask-left-open", "Rule: an ask that nobody answers does not stand in the way")
async def ask_left_open(target: Target) -> None:
    """A turn that decides nothing is answered: the tool does not run."""
    tag = target.tools.tag()
    first, _ = await _asked(target, tag)
    second = await target.create(_THANKS, previous_response_id=first["id"], tools=[_asking(target, tag)])
    expect("message" in kinds(completed(ok(second))), f"no answer in {kinds(second.body)}")
    _ran(target, tag, 0)


@group.check("asks-decided-singly", "Rule: what is not decided yet is asked for again")
async def asks_decided_singly(target: Target) -> None:
    """Of two asks one is approved: it runs, and the response lists the other, which is then decided too."""
    tags = [target.tools.tag(), target.tools.tag()]
    tools = [
        _asking(target, tags[0], label="reader", only="echo"),
        _asking(target, tags[1], label="writer", only="publish"),
    ]
    first = completed(offered(await target.create(_BOTH, tools=tools)))
    asks = {ask["name"]: ask for ask in items(first, "mcp_approval_request")}
    equal(sorted(asks), ["echo", "publish"], "tools asked for")
    one = _decide(asks["echo"], True)
    second = completed(ok(await target.create([one], previous_response_id=first["id"], tools=tools)))
    equal(kinds(second), ["mcp_call", "mcp_approval_request"], "output after one decision")
    equal((target.tools.calls(tags[0])["echo"], target.tools.calls(tags[1])["publish"]), (1, 0), "echo, publish ran")
    other = _decide(items(second, "mcp_approval_request")[0], True)
    third = completed(ok(await target.create([other], previous_response_id=second["id"], tools=tools)))
    equal(kinds(third), ["mcp_call", "message"], "output after the second")
    equal((target.tools.calls(tags[0])["echo"], target.tools.calls(tags[1])["publish"]), (1, 1), "echo, publish ran")
