"""Claims about MCP tools end to end: what reaches the server, what comes back, and what a failure is to the run."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from openai import APIStatusError

from outlast.devserver import DevServer
from outlast.settings import Settings
from tests.support.desk import Case, World, answered, desk_world, dumped, kinds, user
from tests.support.mcp_server import McpTestServer, Mode, Tool, ToolError, mcp_server
from tests.support.scripted_model import call, say
from tests.support.stack import settings

JsonObject = dict[str, Any]
CAP = 2000
TOOL_SECONDS = 2.0


@pytest.fixture(scope="module")
async def world(temporal: DevServer, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    """One server for all tests of this file, with small limits of tools."""
    plain = settings(tmp_path_factory.mktemp("tools"), temporal.address)
    limits = {"tool_timeout_seconds": TOOL_SECONDS, "max_tool_output_bytes": CAP}
    given = Settings.model_validate({**plain.model_dump(), "limits": limits})
    with pytest.MonkeyPatch.context() as patch:
        async with desk_world(given, patch) as opened:
            yield opened


def free(server: McpTestServer, label: str = "own", **more: object) -> JsonObject:
    """A server whose tools ask nobody."""
    return {"type": "mcp", "server_label": label, "server_url": server.url, "require_approval": "never", **more}


def text_of(item: JsonObject) -> str:
    """What an `mcp_tool_execution_error` says."""
    assert item["error"]["type"] == "mcp_tool_execution_error"
    return str(item["error"]["content"][0]["text"])


def outputs(case: Case) -> list[str]:
    """The tool outputs the model was shown last."""
    return [item["output"] for item in case.script.transcript() if item["type"] == "function_call_output"]


# -- listing -----------------------------------------------------------------------------------------------------------


async def test_allowed_tools_filter_what_is_shown_offered_and_run(world: World) -> None:
    """A list of names and a filter object; a call to what was left out is a failed gateway call."""
    tools = {
        "read": Tool(lambda a: "read", annotations={"readOnlyHint": True}),
        "write": Tool(lambda a: "written"),
        "erase": Tool(lambda a: "erased"),
    }
    async with mcp_server(tools) as server:
        for allowed, left in ((["read", "write"], ["read", "write"]), ({"read_only": True}, ["read"]), ([], [])):
            case = world.case([call("mcp__own__erase")], [say("no")])
            answer = await case.ask(tools=[free(server, allowed_tools=allowed)])
            listed, called = dumped(answer)[:2]
            assert [tool["name"] for tool in listed["tools"]] == left
            offered = [tool["name"] for tool in case.script.requests[0].get("tools", [])]
            assert offered == [f"mcp__own__{name}" for name in left]
            assert (called["type"], called["status"], called["name"]) == ("mcp_call", "failed", "erase")
            assert text_of(called) == "server 'own' has no tool 'erase'"
            assert answer.output_text == "no"
        assert server.calls == []


async def test_a_list_item_shows_what_the_server_said_and_no_nulls(world: World) -> None:
    """Whole shape; annotations only where the server gave them; the item comes first and has no `error`."""
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    tools = {
        "plain": Tool(lambda a: "", "Says nothing.", schema),
        "hinted": Tool(lambda a: "", "Hints.", schema, {"readOnlyHint": True, "title": "Hinted"}),
    }
    async with mcp_server(tools, page=1) as server:
        case = world.case([say("ok")])
        events = await case.stream(tools=[free(server)])
    assert [event.type for event in events[2:6]] == [
        "response.output_item.added",
        "response.mcp_list_tools.in_progress",
        "response.mcp_list_tools.completed",
        "response.output_item.done",
    ]
    assert events[2].item.to_dict()["tools"] == []
    assert dumped(events[-1].response)[0] == {
        "id": events[2].item.id,
        "type": "mcp_list_tools",
        "server_label": "own",
        "tools": [
            {"name": "plain", "description": "Says nothing.", "input_schema": schema},
            {
                "name": "hinted",
                "description": "Hints.",
                "input_schema": schema,
                "annotations": {"readOnlyHint": True, "title": "Hinted"},
            },
        ],
    }


async def test_a_dead_server_is_a_list_item_with_an_error_and_the_run_goes_on(world: World) -> None:
    """Its item carries `error` and no tools, `.failed` is its event; the other server's tools work."""
    async with mcp_server({}) as dead:
        gone = free(dead, "gone")
    async with mcp_server({"add": Tool(lambda a: "3")}) as server:
        case = world.case([call("mcp__own__add")], [say("three")])
        events = await case.stream(tools=[gone, free(server)])
        final = events[-1].response
    lists = {item["server_label"]: item for item in dumped(final) if item["type"] == "mcp_list_tools"}
    assert lists["gone"]["tools"] == []
    assert lists["gone"]["error"]
    assert "error" not in lists["own"]
    assert kinds(final) == ["mcp_list_tools", "mcp_list_tools", "mcp_call", "message"]
    assert [event.type for event in events if "list_tools." in event.type].count("response.mcp_list_tools.failed") == 1
    assert (final.status, final.output_text, outputs(case)) == ("completed", "three", ["3"])


@pytest.mark.parametrize("stream", [False, True])
async def test_a_required_server_that_is_dead_fails_the_response(world: World, stream: bool) -> None:
    """The error names the label; the model is not asked."""
    async with mcp_server({}) as dead:
        gone = free(dead, "gone", required=True)
    case = world.case([say("never")])
    if stream:
        events = await case.stream(tools=[gone])
        assert events[-1].type == "response.failed"
        failed = events[-1].response
        message = failed.error.message
    else:
        with pytest.raises(APIStatusError) as refused:
            await case.ask(tools=[gone])
        assert (refused.value.status_code, refused.value.code) == (424, "mcp_list_tools_failed")
        assert refused.value.response.headers["x-should-retry"] == "false"
        message = refused.value.message
        failed = await case.client.responses.retrieve(refused.value.response.headers["x-outlast-response-id"])
    assert (failed.status, kinds(failed)) == ("failed", ["mcp_list_tools"])
    assert "MCP server 'gone' could not be listed" in message
    assert case.script.asked == 0


async def test_a_server_is_listed_once_a_chain(world: World) -> None:
    """The second turn shows no list again and lists nothing anew; its tools work all the same."""
    async with mcp_server({"add": Tool(lambda a: "3")}) as server:
        case = world.case([call("mcp__own__add")], [say("three")], [call("mcp__own__add")], [say("again")])
        first = await case.ask(tools=[free(server)])
        second = await case.ask("again", tools=[free(server)], previous_response_id=first.id)
        assert (kinds(first), kinds(second)) == (["mcp_list_tools", "mcp_call", "message"], ["mcp_call", "message"])
        assert (server.lists, len(server.calls), second.output_text) == (1, 2, "again")


async def test_credentials_reach_the_server_and_are_echoed_nowhere(world: World) -> None:
    """`headers` and `authorization` are on every request to the server; no answer of ours has them."""
    secret: JsonObject = {"headers": {"x-team": "canary-header"}, "authorization": "canary-token"}
    async with mcp_server({"add": Tool(lambda a: "3")}) as server:
        case = world.case([call("mcp__own__add")], [say("three")])
        events = await case.stream(tools=[free(server, **secret)])
        assert {(seen.get("x-team"), seen.get("authorization")) for seen in server.headers} == {
            ("canary-header", "Bearer canary-token")
        }
        stored = await case.client.responses.retrieve(events[-1].response.id)
    shown = "".join(event.to_json() for event in events) + stored.to_json() + str(case.script.requests)
    assert "canary" not in shown
    assert [tool.to_dict() for tool in stored.tools] == [free(server)]


# -- calls -------------------------------------------------------------------------------------------------------------


async def test_parallel_calls_run_together_and_keep_the_models_order(world: World) -> None:
    """The first waits for the second to have run; items and outputs stand in the order they were made."""
    ran = asyncio.Event()

    async def slow(_: JsonObject) -> str:
        await ran.wait()
        return "slow"

    def fast(_: JsonObject) -> str:
        ran.set()
        return "fast"

    async with mcp_server({"slow": Tool(slow), "fast": Tool(fast)}) as server:
        case = world.case([call("mcp__own__slow"), call("mcp__own__fast")], [say("both")])
        answer = await case.ask(tools=[free(server)])
    assert [(item["name"], item["output"]) for item in dumped(answer)[1:3]] == [("slow", "slow"), ("fast", "fast")]
    assert outputs(case) == ["slow", "fast"]


async def test_without_parallel_tool_calls_one_runs_at_a_time(world: World) -> None:
    """Never two at once, in the model's order."""
    open_now, most = 0, 0

    async def run(_: JsonObject) -> str:
        nonlocal open_now, most
        open_now += 1
        most = max(most, open_now)
        await asyncio.sleep(0)
        open_now -= 1
        return "ok"

    async with mcp_server({"step": Tool(run)}) as server:
        case = world.case([call("mcp__own__step", {"n": n}) for n in range(3)], [say("done")])
        await case.ask(tools=[free(server)], parallel_tool_calls=False)
        assert [each.arguments["n"] for each in server.calls] == [0, 1, 2]
    assert most == 1


async def test_failures_of_tools_are_items_and_the_model_is_told(world: World) -> None:
    """`isError`, an output over the cap, an RPC error and an HTTP error: typed, output null, the run completes."""

    def fail(_: JsonObject) -> str:
        raise ToolError("no such order")

    async with mcp_server({"fail": Tool(fail), "huge": Tool(lambda a: "x" * (CAP + 1))}) as server:
        case = world.case([call("mcp__own__fail"), call("mcp__own__huge")], [say("sorry")])
        events = await case.stream(tools=[free(server)])
        failed, huge = dumped(events[-1].response)[1:3]
        assert [event.type for event in events].count("response.mcp_call.failed") == 2
        assert (failed["status"], failed["output"], text_of(failed)) == ("failed", None, "no such order")
        assert (huge["status"], huge["output"]) == ("failed", None)
        assert f"over the limit of {CAP} bytes" in text_of(huge)
        assert outputs(case) == [text_of(failed), text_of(huge)]
        server.mode = Mode.RPC_ERROR
        case = world.case([call("mcp__own__fail")], [say("sorry")])
        answer = await case.ask(tools=[free(server)])
        item = dumped(answer)[1]
        assert (item["status"], item["output"], item["error"]["type"]) == ("failed", None, "mcp_protocol_error")
        assert item["error"]["message"] in outputs(case)[0]
        assert answer.output_text == "sorry"


async def test_a_proxys_answer_says_nothing_of_an_unsafe_tool(world: World) -> None:
    """502, 503 and 504 come from something in front of the server: whether the tool ran is not known. What is safe to
    repeat fails with the status it met."""
    tools = {"read": Tool(lambda a: "", annotations={"readOnlyHint": True}), "pay": Tool(lambda a: "")}
    async with mcp_server(tools) as server:
        server.mode = Mode.HTTP_503
        case = world.case([call("mcp__own__read"), call("mcp__own__pay")], [say("who knows")])
        answer = await case.ask(tools=[free(server)])
    read, pay = dumped(answer)[1:3]
    assert (read["status"], read["error"]) == ("failed", {"type": "http_error", "code": 503, "message": "X"})
    assert pay["status"] == "failed"
    assert text_of(pay).startswith("outcome_unknown: the call was dispatched and its result was lost (HTTP 503: X)")
    assert outputs(case) == ["X", text_of(pay)]
    assert sorted(each.tool for each in server.calls) == ["pay", "read"]


async def test_a_tool_that_hangs_meets_its_deadline(world: World) -> None:
    """A safe one fails with the deadline; of an unsafe one nobody knows whether it happened. Both are called once."""
    tools = {"read": Tool(lambda a: "", annotations={"readOnlyHint": True}), "pay": Tool(lambda a: "")}
    async with mcp_server(tools) as server:
        server.mode = Mode.HANG
        case = world.case([call("mcp__own__read"), call("mcp__own__pay")], [say("who knows")])
        answer = await case.ask(tools=[free(server)])
        read, pay = dumped(answer)[1:3]
        assert (read["status"], pay["status"]) == ("failed", "failed")
        assert "outcome_unknown" not in text_of(read)
        assert text_of(pay).startswith("outcome_unknown: the call was dispatched and its result was lost")
        assert outputs(case) == [text_of(read), text_of(pay)]
        assert sorted(each.tool for each in server.calls) == ["pay", "read"]
        assert answer.output_text == "who knows"


async def test_malformed_arguments_and_unknown_tools_never_reach_the_server(world: World) -> None:
    """Both are failed gateway calls with the arguments as the model wrote them; the model is told why."""
    async with mcp_server({"add": Tool(lambda a: "3")}) as server:
        case = world.case(
            [call("mcp__own__add", "{not json"), call("mcp__own__add", "[1]"), call("mcp__own__vanished")],
            [say("oh")],
        )
        answer = await case.ask(tools=[free(server)])
        items = dumped(answer)[1:4]
        assert [(item["type"], item["status"], item["name"], item["arguments"]) for item in items] == [
            ("mcp_call", "failed", "add", "{not json"),
            ("mcp_call", "failed", "add", "[1]"),
            ("mcp_call", "failed", "vanished", "{}"),
        ]
        assert outputs(case) == [
            "arguments are not a JSON object",
            "arguments are not a JSON object",
            "server 'own' has no tool 'vanished'",
        ]
        assert (answer.output_text, server.calls) == ("oh", [])


async def test_a_tool_the_server_no_longer_has_is_a_failed_call(world: World) -> None:
    """Listed, then gone: the server's own error is the item's; the run goes on."""
    async with mcp_server({"add": Tool(lambda a: "3")}) as server:
        case = world.case([call("mcp__own__add")], [say("gone then")])
        case.script.gate.clear()
        stream = await case.streamed(tools=[free(server)])
        async for event in stream:
            if event.type == "response.output_item.done":
                break
        server.mode = Mode.RPC_ERROR
        case.script.gate.set()
        events = [event async for event in stream]
        item = dumped(events[-1].response)[1]
        assert (item["status"], item["error"]) == (
            "failed",
            {"type": "mcp_protocol_error", "code": -32602, "message": "no such tool"},
        )
        assert events[-1].response.output_text == "gone then"


async def test_a_mixed_round_runs_ours_once_and_hands_the_rest_back(world: World) -> None:
    """The response completes with the client's call open; the follow-up runs nothing again, stored or stateless."""
    mine = {"type": "function", "name": "mine", "parameters": {"type": "object", "properties": {}}}
    async with mcp_server({"add": Tool(lambda a: "3")}) as server:
        ours = call("mcp__own__add", {"a": 1})
        case = world.case([ours, call("mine", call_id="call_mine")], [say("six")], [say("six")])
        tools = [free(server), mine]
        first = await case.ask("sum", tools=tools)
        output = dumped(first)
        assert kinds(first) == ["mcp_list_tools", "mcp_call", "function_call"]
        assert (first.status, output[1]["output"], output[2]["call_id"]) == ("completed", "3", "call_mine")
        answer = {"type": "function_call_output", "call_id": "call_mine", "output": "also 3"}
        second = await case.ask([answer], tools=tools, previous_response_id=first.id)
        assert (kinds(second), second.output_text) == (["message"], "six")
        chained = case.script.transcript()
        stateless = await case.ask([user("sum"), *output, answer], tools=tools)
        assert (kinds(stateless), stateless.output_text) == (["message"], "six")
        assert case.script.transcript() == chained
        assert sorted(map(str, chained)) == sorted(
            map(
                str,
                [
                    user("sum"),
                    *answered(output[1]["id"], "mcp__own__add", '{"a":1}', "3"),
                    *answered("call_mine", "mine", "{}", "also 3"),
                ],
            )
        )
        assert len(server.calls) == 1
