"""Tools and items of the API that we do not run: servers that know them get them, no request breaks."""

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from openai import BadRequestError

from outlast.devserver import DevServer
from tests.support import parameters_page
from tests.support.dialects import Dialects, dialects, items, message, play
from tests.support.mcp_server import Tool, mcp_server
from tests.support.raw_model import text_answer
from tests.unit.upstream.server import streaming

JsonObject = dict[str, Any]
PARAMETERS = {"type": "object", "properties": {}}
# What Codex declares, by its models, and a type of tomorrow.
TOOLS: list[JsonObject] = [
    {"type": "function", "name": "exec_command", "description": "run", "parameters": PARAMETERS, "strict": False},
    {
        "type": "custom",
        "name": "apply_patch",
        "format": {"type": "grammar", "syntax": "lark", "definition": "start: x"},
    },
    {
        "type": "namespace",
        "name": "mcp__test",
        "description": "tools of a server",
        "tools": [{"type": "function", "name": "echo", "parameters": PARAMETERS, "defer_loading": True}],
    },
    {"type": "tool_search", "execution": "client", "parameters": PARAMETERS},
    {"type": "web_search", "external_web_access": True},
    {"type": "local_shell"},
    {"type": "image_generation", "output_format": "png"},
    {"type": "tool_of_tomorrow", "anything": [1]},
]
ADDED: JsonObject = {"type": "additional_tools", "role": "developer", "tools": TOOLS[1:3]}
SEARCH: JsonObject = {"type": "tool_search_call", "execution": "client", "call_id": "ts_1", "arguments": {"query": "x"}}
FOUND: JsonObject = {"type": "tool_search_output", "call_id": "ts_1", "status": "completed", "tools": [TOOLS[2]]}
PATCH: JsonObject = {"type": "custom_tool_call", "call_id": "c_1", "name": "apply_patch", "input": "*** Begin"}
PATCHED: JsonObject = {"type": "custom_tool_call_output", "call_id": "c_1", "output": "ok"}
SHELL: JsonObject = {"type": "local_shell_call", "call_id": "l_1", "status": "completed", "action": {"type": "exec"}}
SHELLED: JsonObject = {"type": "local_shell_call_output", "id": "l_1", "output": "{}"}
ECHO: JsonObject = {
    "type": "function_call",
    "call_id": "f_1",
    "namespace": "mcp__test",
    "name": "echo",
    "arguments": "{}",
}
ECHOED: JsonObject = {
    "type": "function_call_output",
    "call_id": "f_1",
    "output": [{"type": "input_text", "text": "hi"}, {"type": "input_image", "image_url": "data:image/png;base64,AA"}],
}
FOREIGN: JsonObject = {"type": "commandExecution", "id": "item/ä 1", "command": "ls", "output": "a.txt"}
META = {"internal_chat_message_metadata_passthrough": {"turn_id": "t"}}


def codex(**more: Any) -> JsonObject:
    """A later turn of Codex, as it sends it."""
    asked = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "go"}]}
    told = {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "be brief"}]}
    history = [told, ADDED, asked, SEARCH, FOUND, PATCH, PATCHED, SHELL, SHELLED, ECHO, ECHOED, FOREIGN, asked]
    ids = [{**item, "id": item.get("id", f"{item['type'][:3]}_{n}-uuid"), **META} for n, item in enumerate(history)]
    return {
        "input": ids,
        "tools": TOOLS,
        "tool_choice": "auto",
        "parallel_tool_calls": False,
        "reasoning": {"effort": "medium", "summary": "auto", "context": "auto"},
        "store": False,
        "include": ["reasoning.encrypted_content"],
        "prompt_cache_key": "thread-1",
        "text": {"verbosity": "low"},
        "client_metadata": {"thread_id": "1"},
        **more,
    }


@pytest.fixture(scope="module")
async def world(temporal: DevServer, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Dialects]:
    """One server for all tests of this file."""
    async with dialects(tmp_path_factory.mktemp("tolerance"), temporal.address) as opened:
        yield opened


async def test_a_request_of_codex_reaches_a_server_that_speaks_its_api(world: Dialects) -> None:
    """Every tool as sent, every item of the API with what it says; what only clients know becomes an answered call."""
    played = play(world.responses, items(message("done")))
    answer = await world.ask(played, **codex(stream=True))
    (body,) = played.bodies
    assert body["tools"] == TOOLS
    assert (body["tool_choice"], body["parallel_tool_calls"]) == ("auto", False)
    assert answer["tools"] == TOOLS
    kept = [{**item, **META} for item in (ADDED, SEARCH, FOUND)]
    assert [
        item for item in body["input"] if item["type"] in ("additional_tools", SEARCH["type"], FOUND["type"])
    ] == kept
    assert [item for item in body["input"] if item["type"].startswith(("custom", "function"))] == [
        PATCH,
        PATCHED,
        ECHO,
        ECHOED,
        {"type": "function_call", "call_id": FOREIGN["id"], "name": "commandExecution", "arguments": "{}"},
        {"type": "function_call_output", "call_id": FOREIGN["id"], "output": "a.txt"},
    ]
    assert [item["role"] for item in body["input"] if item["type"] == "message"] == ["developer", "user", "user"]


async def test_tools_that_only_come_with_the_input_can_be_chosen_among(world: Dialects) -> None:
    """Codex's newest models have no `tools`: their settings count all the same."""
    played = play(world.responses, items(message("done")))
    given = codex()
    del given["tools"]
    await world.ask(played, **given)
    assert "tools" not in played.bodies[0]
    assert (played.bodies[0]["tool_choice"], played.bodies[0]["parallel_tool_calls"]) == ("auto", False)


async def test_the_items_of_codex_break_no_other_model(world: Dialects) -> None:
    """What can be said as calls and texts is said, the rest left out."""
    played = play(world.chat, streaming(text_answer("chat", "done")))
    given = codex()
    del given["tools"]
    await world.ask(played, **given)
    (body,) = played.bodies
    assert [message["role"] for message in body["messages"]][:2] == ["system", "user"]
    calls = [call["function"]["name"] for each in body["messages"] for call in each.get("tool_calls") or ()]
    assert calls == ["apply_patch", "local_shell_call_output", "echo", "commandExecution"]


CALLS: list[JsonObject] = [
    {"type": "custom_tool_call", "id": "u1", "status": "completed", "call_id": "k1", "name": "patch", "input": "x"},
    {"type": "shell_call", "id": "u2", "status": "completed", "call_id": "k2", "action": {"commands": ["ls"]}},
    {"type": "local_shell_call", "id": "u3", "status": "completed", "call_id": "k3", "action": {"type": "exec"}},
    {"type": "apply_patch_call", "id": "u4", "status": "completed", "call_id": "k4", "operation": {"type": "x"}},
    {"type": "computer_call", "id": "u5", "status": "completed", "call_id": "k5", "pending_safety_checks": []},
    {
        "type": "tool_search_call",
        "id": "u6",
        "status": "completed",
        "call_id": "k6",
        "execution": "client",
        "arguments": {},
    },
]
OUTPUTS: list[JsonObject] = [
    {"type": "custom_tool_call_output", "call_id": "k1", "output": "1"},
    {"type": "shell_call_output", "call_id": "k2", "output": [{"stdout": "2", "stderr": ""}]},
    {"type": "local_shell_call_output", "id": "k3", "output": "3"},
    {"type": "apply_patch_call_output", "call_id": "k4", "status": "completed"},
    {"type": "computer_call_output", "call_id": "k5", "output": {"type": "computer_screenshot"}},
    {"type": "tool_search_output", "call_id": "k6", "tools": []},
]


@pytest.mark.parametrize("store", [True, False])
async def test_calls_the_client_runs_end_the_response_and_go_on_with_their_outputs(
    world: Dialects, store: bool
) -> None:
    """Of every native kind, through the chain and sent back: shown whole, then paired for the server."""
    played = play(world.responses, items(*CALLS), items(message("done")))
    tools = [{"type": "custom", "name": "patch"}, {"type": "shell"}, {"type": "local_shell"}, {"type": "apply_patch"}]
    first = await world.ask(played, input="go", tools=tools, store=store)
    assert (first["status"], len(played.bodies)) == ("completed", 1)
    assert [{**item, "id": call["id"]} for item, call in zip(first["output"], CALLS, strict=True)] == CALLS
    asked = [{"type": "message", "role": "user", "content": "go"}, *first["output"]]
    more: JsonObject = {"previous_response_id": first["id"]} if store else {}
    second = await world.ask(
        played, input=[*([] if store else asked), *OUTPUTS], tools=tools, tool_choice={"type": "shell"}, **more
    )
    assert second["output"][0]["content"][0]["text"] == "done"
    body = played.bodies[1]
    assert body["tool_choice"] == {"type": "shell"}
    kinds = [item["type"] for item in body["input"][1:]]
    assert kinds == [*(call["type"] for call in CALLS), *(output["type"] for output in OUTPUTS)]


async def test_a_native_call_without_its_output_is_refused_like_any_other(world: Dialects) -> None:
    """Before the server is asked."""
    played = play(world.responses, items(CALLS[1]))
    first = await world.ask(played, input="go", tools=[{"type": "shell"}])
    with pytest.raises(BadRequestError, match="No tool output found for shell call k2"):
        await world.client.responses.create(model=played.model, input="and?", previous_response_id=first["id"])
    with pytest.raises(BadRequestError, match="No tool call found for shell call output with call_id k2"):
        await world.client.responses.create(model=played.model, input=[OUTPUTS[1]])  # type: ignore[list-item]  # plain dicts
    assert len(played.bodies) == 1


async def test_hosted_calls_are_relayed_and_count_against_the_cap(world: Dialects) -> None:
    """What is left of `max_tool_calls` goes along; when nothing is left, hosted tools do not."""
    searches = [
        {"type": "web_search_call", "id": f"ws_{n}", "status": "completed", "action": {"type": "search", "query": "x"}}
        for n in range(2)
    ]
    call = {"type": "function_call", "id": "fc_u", "call_id": "k", "name": "mcp__calc__add", "arguments": "{}"}
    async with mcp_server({"add": Tool(lambda _: "3")}) as server:
        played = play(
            world.responses,
            items(*searches, {**call, "status": "completed"}),
            items(searches[0], {**call, "status": "completed"}),
            items(message("done")),
        )
        mcp = {"type": "mcp", "server_label": "calc", "server_url": server.url, "require_approval": "never"}
        tools = [mcp, {"type": "web_search"}, {"type": "shell"}]
        answer = await world.ask(played, input="go", tools=tools, max_tool_calls=5)
    kinds = [item["type"] for item in answer["output"]]
    assert kinds == ["mcp_list_tools", *["web_search_call"] * 2, "mcp_call", "web_search_call", "mcp_call", "message"]
    assert answer["output"][1] == {**searches[0], "id": answer["output"][1]["id"]}
    assert [body.get("max_tool_calls") for body in played.bodies] == [5, 2, None]
    hosted = [[tool["type"] for tool in body["tools"]] for body in played.bodies]
    assert hosted == [["function", "web_search", "shell"]] * 2 + [["function", "shell"]]
    assert [item["type"] for item in played.bodies[2]["input"]].count("web_search_call") == 3


@pytest.mark.parametrize("kind", ["web_search", "custom", "local_shell"])
async def test_a_tool_another_model_cannot_have_is_refused_by_name(world: Dialects, kind: str) -> None:
    """With the setting that would leave it out."""
    with pytest.raises(BadRequestError) as caught:
        await world.client.responses.create(
            model=world.chat.model,
            input="hi",
            tools=[{"type": kind, "name": "x"}],  # type: ignore[typeddict-item]  # any type
        )
    assert (caught.value.code, caught.value.param) == ("unsupported_feature", "tools[0].type")
    assert repr(kind) in caught.value.message
    assert '[tools] unsupported = "skip"' in caught.value.message


@pytest.mark.parametrize("stream", [False, True])
async def test_a_tool_nobody_knows_is_left_out_with_a_warning(world: Dialects, stream: bool) -> None:
    """The header names it, the echo keeps it, the model does not see it."""
    played = play(world.chat, streaming(text_answer("chat", "done")))
    answer: httpx.Response = await world.post(
        played, input="hi", stream=stream, tools=[TOOLS[0], {"type": "wünsch\r\ndir was"}]
    )
    assert answer.headers["x-outlast-warning"] == "tools left out: w\\xfcnsch\\r\\ndir was"
    assert [tool["function"]["name"] for tool in played.bodies[0]["tools"]] == ["exec_command"]


@pytest.mark.parametrize("dialect", ["responses", "chat"])
async def test_the_page_of_parameters_holds_for_a_whole_request(world: Dialects, dialect: str) -> None:
    """All parameters that go together, in one request of the official client."""
    played = play(world.chat if dialect == "chat" else world.responses, streaming(text_answer(dialect, "done")))
    sent: JsonObject = {}
    seen: JsonObject = {}
    for row in parameters_page.rows():
        cell = row.chat if dialect == "chat" else row.responses
        if cell != parameters_page.REFUSED and not row.request.keys() & {*sent, "background", "stream", "store"}:
            sent |= row.request
            seen |= row.expected(cell)
    assert len(sent) > 18
    answer = await world.client.responses.create(model=played.model, input="hi", extra_body=sent)
    (body,) = played.bodies
    assert {key: body.get(key) for key in seen} == seen
    assert answer.to_dict()["metadata"] == sent["metadata"]
