"""Claims about bad input: refused with the envelope before any 200, with `param` and what to change; nothing is stored,
nothing is started, no model and no tool server is asked."""

import sqlite3
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest
from openai import APIStatusError

from outlast.devserver import DevServer
from outlast.runs import Runs
from tests.support.desk import World, desk_world
from tests.support.scripted_model import say
from tests.support.stack import settings

TABLES = ("responses", "requests", "runs", "items", "steps", "tool_calls", "events", "approvals", "secrets")
MCP = {"type": "mcp", "server_label": "desk", "server_url": "http://127.0.0.1:9/mcp"}
FUNCTION = {"type": "function", "name": "mine", "parameters": {}}
OUTPUT = {"type": "function_call_output", "call_id": "call_1", "output": "x"}
CALL = {"type": "function_call", "call_id": "call_1", "name": "mine", "arguments": "{}"}


@pytest.fixture(scope="module")
async def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the record is."""
    return tmp_path_factory.mktemp("bad")


@pytest.fixture(scope="module")
async def world(temporal: DevServer, folder: Path) -> AsyncIterator[World]:
    """One server for all tests of this file."""
    with pytest.MonkeyPatch.context() as patch:
        async with desk_world(settings(folder, temporal.address), patch) as opened:
            yield opened


def rows(folder: Path) -> Mapping[str, int]:
    """Rows of every table a request may write."""
    (database,) = folder.glob("*.db")
    with sqlite3.connect(f"file:{database}?mode=ro", uri=True) as connection:
        found = {table: connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in TABLES}
    connection.close()
    return found


REFUSED: list[tuple[dict[str, Any], str | None, str | None, str]] = [
    # What this version does not serve, by name.
    ({"conversation": "thread_1"}, "conversation", "invalid_value", "conv"),
    ({"prompt": {"id": "pmpt_1"}}, "prompt", "unsupported_feature", "instructions"),
    ({"tools": [{**MCP, "tunnel_id": "c"}]}, "tools[0].tunnel_id", "unsupported_feature", "server_url"),
    ({"input": [{"type": "compaction_trigger"}]}, "input", None, "nothing"),
    ({"input": [{"type": "compaction_trigger"}, {"role": "user", "content": "hi"}]}, "input[0]", None, "last item"),
    ({"input": [{"type": "compaction", "encrypted_content": "gAAA"}]}, "input[0]", None, "cannot be opened"),
    # Values out of range or of the wrong kind.
    ({"temperature": 3}, "temperature", None, "at most 2"),
    ({"top_p": -1}, "top_p", None, "at least 0"),
    ({"max_output_tokens": 1}, "max_output_tokens", None, "at least 16"),
    ({"max_tool_calls": 0}, "max_tool_calls", None, "at least 1"),
    ({"max_tool_calls": 129}, "max_tool_calls", None, "limits.max_tool_calls"),
    ({"include": ["everything"]}, "include[0]", None, "reasoning.encrypted_content"),
    ({"truncation": "some"}, "truncation", None, "'auto'"),
    ({"reasoning": {"effort": "huge"}}, "reasoning.effort", None, "'high'"),
    ({"text": {"format": {"type": "xml"}}}, "text.format.type", None, "json_schema"),
    ({"text": {"format": {"type": "json_schema", "name": "a"}}}, "text.format.schema", None, "Missing"),
    ({"metadata": {"a": 1}}, "metadata.a", None, "a string"),
    ({"metadata": {str(n): "" for n in range(17)}}, "metadata", None, "at most 16"),
    ({"background": True, "store": False}, "background", None, "store"),
    ({"outlast": {"approval_mode": "never"}}, "outlast.approval_mode", None, "'wait'"),
    ({"outlast": {"budgt": {}}}, "outlast.budgt", None, "budgt"),
    ({"outlast": {"budget": {"max_rounds": 65}}}, "outlast.budget.max_rounds", None, "limits.max_rounds"),
    # Tools.
    ({"tools": "all"}, "tools", None, "an array"),
    ({"tools": [{}]}, "tools[0].type", None, "Missing"),
    ({"tools": [{"type": "function"}]}, "tools[0].name", None, "Missing"),
    ({"tools": [{"type": "function", "function": {"name": "a"}}]}, "tools[0].name", None, "flat"),
    ({"tools": [FUNCTION, FUNCTION]}, "tools[1].name", None, "'mine'"),
    ({"tools": [FUNCTION] * 129}, "tools", None, "limits.max_tools"),
    ({"tools": [{**MCP, "server_url": "ftp://x"}]}, "tools[0].server_url", None, "http"),
    ({"tools": [{**MCP, "server_url": "http://u:p@x"}]}, "tools[0].server_url", None, "authorization"),
    ({"tools": [{**MCP, "headers": {"a": "x\ny"}}]}, "tools[0].headers", None, "line breaks"),
    ({"tools": [{**MCP, "require_approval": "sometimes"}]}, "tools[0].require_approval", None, "'never'"),
    ({"tool_choice": "required"}, "tool_choice", None, "declare a tool"),
    ({"tool_choice": {"type": "function", "name": "other"}}, "tool_choice.name", None, "'other'"),
    ({"tool_choice": {"type": "web_search_preview"}}, "tool_choice.type", None, "web_search"),
    # Input.
    ({"input": None}, "input", None, "Missing"),
    ({"input": [{"role": "robot", "content": "hi"}]}, "input[0].role", None, "'user'"),
    ({"input": [{"role": "user"}]}, "input[0].content", None, "Missing"),
    ({"input": [OUTPUT]}, "input", None, "No tool call found for function call output with call_id call_1"),
    ({"input": [CALL]}, "input", None, "No tool output found for function call call_1"),
    (
        {"input": [{"type": "mcp_approval_response", "approval_request_id": "mcpr_no", "approve": True}]},
        "input",
        "approval_not_found",
        "mcpr_no",
    ),
    ({"previous_response_id": "resp_nobody"}, "previous_response_id", "previous_response_not_found", "resp_nobody"),
    ({"previous_response_id": "not an id"}, "previous_response_id", "previous_response_not_found", "not an id"),
    (
        {"previous_response_id": "resp_1", "conversation": "conv_1"},
        "previous_response_id",
        None,
        "cannot be used together",
    ),
]


@pytest.mark.parametrize("stream", [False, True], ids=["json", "stream"])
async def test_bad_requests_are_refused_by_name_and_leave_nothing(
    world: World, folder: Path, monkeypatch: pytest.MonkeyPatch, stream: bool
) -> None:
    """Each with status 400, its `param`, its code and a text that says what to change."""
    script = world.models.play([say("never")])
    started: list[object] = []

    async def start(*arguments: object, **_: object) -> None:
        started.append(arguments)

    monkeypatch.setattr(Runs, "start", start)
    before = rows(folder)
    wrong: list[object] = []
    for body, param, code, text in REFUSED:
        sent = {"model": script.model, "input": "hi", "stream": stream, **body}
        try:
            await world.server.client.post("/responses", body=sent, cast_to=httpx.Response)
        except APIStatusError as error:
            got = (error.status_code, error.param, error.code, error.type)
            if got != (400, param, code, "invalid_request_error") or text not in error.message:
                wrong.append((body, got, error.message))
        else:
            wrong.append((body, "was accepted", ""))
    assert wrong == []
    assert rows(folder) == before
    assert (started, script.asked, world.desk.calls) == ([], 0, [])


async def test_an_unknown_model_and_an_unknown_item_are_not_found(world: World, folder: Path) -> None:
    """404 naming them; an upstream that serves every name takes any model, so the item is asked for."""
    before = rows(folder)
    body = {"model": "demo", "input": [{"type": "item_reference", "id": "msg_nobody"}]}
    with pytest.raises(APIStatusError, match="msg_nobody") as refused:
        await world.server.client.post("/responses", body=body, cast_to=httpx.Response)
    assert (refused.value.status_code, refused.value.param) == (404, "input[0].id")
    assert rows(folder) == before


@pytest.mark.parametrize("path", ["/v1/files", "/v1/responses/resp_1/forget"])
async def test_endpoints_that_are_not_there_answer_with_the_envelope(world: World, path: str) -> None:
    """Nothing half served: 404 or 405 and the four keys."""
    answer = await world.http.post(path, json={"model": "demo", "input": "hi"})
    assert answer.status_code in (404, 405)
    assert set(answer.json()["error"]) == {"message", "type", "param", "code"}
