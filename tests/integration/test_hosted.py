"""Claims about hosted tools that an MCP server runs: docs/hosted-tools.md, over a model server of each dialect."""

import base64
import json
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from openai.types.responses import (
    ResponseCodeInterpreterToolCall,
    ResponseFileSearchToolCall,
    ResponseFunctionWebSearch,
)
from openai.types.responses.response_output_item import ImageGenerationCall
from pydantic import BaseModel

from outlast.devserver import DevServer
from tests.support.dialects import Dialects, dialects, play
from tests.support.mcp_server import McpTestServer, Mode, Tool, ToolError, mcp_server
from tests.support.raw_model import Played, call_answer, text_answer
from tests.support.wire_socket import socket
from tests.unit.upstream.server import streaming

JsonObject = dict[str, Any]
PAGE = Path(__file__).parents[2] / "docs/hosted-tools.md"
ORDERS = {name: lines.split() for name, lines in re.findall(r"```text (\w+)\n(.*?)```", PAGE.read_text(), re.DOTALL)}
PNG = b"\x89PNG\r\n\x1a\n" + bytes(300)
ENCODED = base64.b64encode(PNG).decode()
# What each tool is asked, and what the model reads of its answer.
ASKED: dict[str, JsonObject] = {
    "web_search": {"query": "tea"},
    "file_search": {"query": "returns"},
    "code_interpreter": {"code": "print(1)"},
    "image_generation": {"prompt": "a cat"},
}
TYPES: dict[str, type[BaseModel]] = {
    "web_search": ResponseFunctionWebSearch,
    "file_search": ResponseFileSearchToolCall,
    "code_interpreter": ResponseCodeInterpreterToolCall,
    "image_generation": ImageGenerationCall,
}
INCLUDE = ["web_search_call.action.sources", "file_search_call.results", "code_interpreter_call.outputs"]


def _fails_when_told(arguments: JsonObject, answer: object) -> object:
    if "fail" in json.dumps(arguments):
        raise ToolError("the tool is out of order")
    return answer


def answering(answer: object, **more: Any) -> Tool:
    """A tool that says this, unless it is asked to fail."""
    return Tool(lambda a: _fails_when_told(a, answer), **more)


def tools() -> dict[str, Tool]:
    """One tool a type, and one that nobody bound."""
    found = {"results": [{"title": "Tea", "url": "https://tea.test"}, {"url": "https://tea.test"}]}
    passages = {"results": [{"file_id": "file_1", "filename": "returns.md", "score": 0.5, "text": "30 days"}]}
    picture = {"image_base64": ENCODED, "revised_prompt": "a cat, sitting"}
    return {
        "look": answering(json.dumps(found), annotations={"readOnlyHint": True}),
        "find": answering({"content": [], "structuredContent": passages}),
        "python": answering(json.dumps({"stdout": "1", "container_id": "box_1"})),
        "draw": answering({"content": [{"type": "text", "text": json.dumps(picture)}], "structuredContent": picture}),
        "erase": Tool(lambda a: "erased"),
    }


@dataclass
class Hosted:
    """The server, its models, and the tools bound to the hosted types."""

    both: Dialects
    server: McpTestServer

    def play(self, dialect: str, kind: str, arguments: JsonObject) -> Played:
        """A model that calls the type once, then speaks."""
        played = self.both.chat if dialect == "chat" else self.both.responses
        called = call_answer(dialect, kind, json.dumps(arguments))
        self.server.calls.clear()
        return play(played, streaming(called), streaming(text_answer(dialect, "done")))

    async def events(self, played: Played, **body: Any) -> list[JsonObject]:
        """A turn, as its events."""
        text = (await self.both.post(played, input="please", stream=True, **body)).raise_for_status().text
        return [json.loads(line.removeprefix("data: ")) for line in text.split("\n") if line.startswith("data: {")]


@pytest.fixture(scope="module")
async def world(temporal: DevServer, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Hosted]:
    """One server for all tests of this file; each type is bound to a tool of it."""
    names = dict(zip(ASKED, ("look", "find", "python", "draw"), strict=True))
    async with mcp_server(tools()) as server:
        servers: JsonObject = {
            kind: {
                # One server under four names: each has one type.
                "url": server.url,
                "builtin_type": "web_search_preview" if kind == "web_search" else kind,
                "builtin_tool_name": tool,
            }
            for kind, tool in names.items()
        }
        servers["image_generation"]["tools"] = {"draw": {"renames": {"size": "dimensions"}, "defaults": {"steps": 4}}}
        servers["gone"] = {"url": f"{server.url}?gone"}
        folder = tmp_path_factory.mktemp("hosted")
        async with dialects(folder, temporal.address, mcp={"servers": servers}) as both:
            yield Hosted(both, server)


def shown(body: JsonObject, dialect: str) -> list[JsonObject]:
    """The functions of a request to the model server."""
    return [each["function"] if dialect == "chat" else each for each in body["tools"]]


def told(body: JsonObject, dialect: str) -> list[JsonObject]:
    """(call, output) of a request to the model server, in one form for both dialects."""
    if dialect == "chat":
        calls = [call["function"] for each in body["messages"] for call in each.get("tool_calls") or ()]
        outputs = [each["content"] for each in body["messages"] if each["role"] == "tool"]
    else:
        calls = [each for each in body["input"] if each["type"] == "function_call"]
        outputs = [each["output"] for each in body["input"] if each["type"] == "function_call_output"]
    pairs = zip(calls, outputs, strict=True)
    return [{"name": call["name"], "arguments": call["arguments"], "output": output} for call, output in pairs]


def test_the_page_has_an_order_for_every_type() -> None:
    """They are the fixtures of the tests below."""
    assert list(ORDERS) == list(ASKED)


@pytest.mark.parametrize("dialect", ["chat", "responses"])
@pytest.mark.parametrize("kind", list(ASKED))
async def test_each_type_runs_on_its_tool_in_the_order_of_the_page(world: Hosted, kind: str, dialect: str) -> None:
    """One item of its type, valid to the official client; the model sees one function and reads the answer."""
    played = world.play(dialect, kind, ASKED[kind])
    events = await world.events(played, tools=[{"type": kind}], include=INCLUDE)
    item_id = events[2]["item"]["id"]
    mine = [e for e in events if e.get("item_id") == item_id or (e.get("item") or {}).get("id") == item_id]
    assert [event["type"] for event in mine] == ORDERS[kind]
    assert [event["output_index"] for event in mine] == [0] * len(mine)
    response = events[-1]["response"]
    item = response["output"][0]
    assert item == mine[-1]["item"]
    assert (item["status"], item["type"]) == ("completed", f"{kind}_call")
    for each in (item, mine[0]["item"]):
        TYPES[kind].model_validate(each, strict=True)
    assert [each["type"] for each in response["output"]] == [f"{kind}_call", "message"]
    assert response["tools"] == [{"type": kind}]
    assert [tool["name"] for tool in shown(played.bodies[0], dialect)] == [kind]
    assert len(world.server.calls) == 1
    (pair,) = told(played.bodies[1], dialect)
    assert (pair["name"], json.loads(pair["arguments"])) == (kind, ASKED[kind])
    assert ENCODED[:100] not in str(pair["output"]) or "data:image/png;base64," in str(pair["output"])


async def test_items_say_what_their_answers_said(world: Hosted) -> None:
    """Whole shapes, with everything included; without `include` the gated fields are empty."""
    expected: dict[str, JsonObject] = {
        "web_search": {
            "action": {
                "type": "search",
                "query": "tea",
                "queries": ["tea"],
                "sources": [{"type": "url", "url": "https://tea.test"}],
            }
        },
        "file_search": {
            "queries": ["returns"],
            "results": [{"file_id": "file_1", "filename": "returns.md", "score": 0.5, "text": "30 days"}],
        },
        "code_interpreter": {
            "code": "print(1)",
            "container_id": "box_1",
            "outputs": [{"type": "logs", "logs": "1"}],
        },
        "image_generation": {"output_format": "png", "revised_prompt": "a cat, sitting", "result": ENCODED},
    }
    gated: dict[str, JsonObject] = {
        "web_search": {"action": {"type": "search", "query": "tea", "queries": ["tea"]}},
        "file_search": {"results": None},
        "code_interpreter": {"outputs": None},
    }
    for kind, fields in expected.items():
        for include in (INCLUDE, []):
            played = world.play("chat", kind, ASKED[kind])
            response = await world.both.ask(played, input="please", tools=[{"type": kind}], include=include)
            item = response["output"][0]
            wanted = fields if include else {**fields, **gated.get(kind, {})}
            assert item == {"id": item["id"], "type": f"{kind}_call", "status": "completed", **wanted}


@pytest.mark.parametrize("kind", ["web_search_preview", "web_search_2025_08_26", "web_search_preview_2025_03_11"])
async def test_every_spelling_of_web_search_is_one_type(world: Hosted, kind: str) -> None:
    """In the request, in the choice, and in the config of this world; the echo is as sent."""
    played = world.play("responses", "web_search", {"query": "tea"})
    tool = {"type": kind, "search_context_size": "low"}
    response = await world.both.ask(played, input="please", tools=[tool], tool_choice={"type": "web_search_preview"})
    assert [item["type"] for item in response["output"]] == ["web_search_call", "message"]
    assert response["tools"] == [tool]
    assert played.bodies[0]["tool_choice"] == {"type": "function", "name": "web_search"}
    assert world.server.calls[0].arguments == {"query": "tea", "search_context_size": "low"}


async def test_the_caller_s_tool_wins_over_the_model_and_the_user_goes_along(world: Hosted) -> None:
    """Then the operator's renames and defaults; the model is shown its own call again."""
    given = {"prompt": "a cat", "size": "1x1"}
    played = world.play("chat", "image_generation", given)
    tool = {"type": "image_generation", "size": "1024x1024", "quality": None}
    response = await world.both.ask(played, input="please", tools=[tool], user="user-7")
    assert world.server.calls[0].arguments == {
        "steps": 4,
        "prompt": "a cat",
        "dimensions": "1024x1024",
        "user": "user-7",
    }
    assert response["output"][0]["size"] == "1024x1024"
    assert json.loads(told(played.bodies[1], "chat")[0]["arguments"]) == given


@pytest.mark.parametrize("dialect", ["chat", "responses"])
@pytest.mark.parametrize("kind", list(ASKED))
async def test_a_failed_call_is_an_item_that_says_so_and_the_run_goes_on(
    world: Hosted, kind: str, dialect: str
) -> None:
    """No invented `.completed`; the model reads why."""
    played = world.play(dialect, kind, {**ASKED[kind], "mode": "fail"})
    events = await world.events(played, tools=[{"type": kind}])
    types = [event["type"] for event in events]
    assert f"response.{kind}_call.completed" not in types
    response = events[-1]["response"]
    assert (response["status"], response["output"][0]["status"]) == ("completed", "failed")
    TYPES[kind].model_validate(response["output"][0], strict=True)
    assert told(played.bodies[1], dialect)[0]["output"] == "the tool is out of order"
    if kind == "image_generation":
        assert response["output"][0]["error"]["message"] == "the tool is out of order"


async def test_arguments_that_are_no_object_fail_the_call_and_reach_no_tool(world: Hosted) -> None:
    """The model is told, in this response and in the next."""
    played = play(
        world.both.chat,
        streaming(call_answer("chat", "web_search", "[1]")),
        streaming(text_answer("chat", "sorry")),
        streaming(text_answer("chat", "again")),
    )
    world.server.calls.clear()
    first = await world.both.ask(played, input="please", tools=[{"type": "web_search"}])
    assert first["output"][0]["status"] == "failed"
    assert world.server.calls == []
    await world.both.ask(played, input="and now?", previous_response_id=first["id"])
    said = {"name": "web_search", "arguments": "[1]", "output": "arguments are not a JSON object"}
    assert told(played.bodies[1], "chat") == told(played.bodies[2], "chat") == [said]


@pytest.mark.parametrize("dialect", ["chat", "responses"])
@pytest.mark.parametrize("kind", list(ASKED))
async def test_stateless_replay_gives_the_transcript_of_the_stored_chain(
    world: Hosted, kind: str, dialect: str
) -> None:
    """The call and its answer, the image of a model that sees included; nothing runs again."""
    played = world.play(dialect, kind, ASKED[kind])
    first = await world.both.ask(played, input="please", tools=[{"type": kind}])
    await world.both.ask(played, input="and now?", previous_response_id=first["id"])
    history = [{"role": "user", "content": "please"}, *first["output"], {"role": "user", "content": "and now?"}]
    await world.both.ask(played, input=history)
    turn, chained, stateless = played.bodies[1:4]
    assert told(chained, dialect) == told(stateless, dialect) == told(turn, dialect)
    assert len(world.server.calls) == 1
    if kind == "image_generation":
        assert "data:image/png;base64," in json.dumps(chained)


@pytest.mark.parametrize("dialect", ["chat", "responses"])
@pytest.mark.parametrize("kind", list(ASKED))
async def test_a_connection_that_stores_nothing_tells_the_model_the_same(
    world: Hosted, kind: str, dialect: str
) -> None:
    """Two continuations over a WebSocket: the call, its answer and its image are those of the first turn."""
    played = world.play(dialect, kind, ASKED[kind])
    async with socket(world.both.http.base_url) as wire:
        ended = (await wire.turn(played.model, tools=[{"type": kind}], store=False))[-1]
        for _ in range(2):
            more = {"store": False, "previous_response_id": ended["response"]["id"]}
            ended = (await wire.turn(played.model, "and now?", **more))[-1]
    first, second, third = [told(body, dialect) for body in played.bodies[1:]]
    assert first == second == third
    assert len(world.server.calls) == 1


async def test_what_is_not_stored_is_told_by_its_public_item(world: Hosted) -> None:
    """To a chat model: the pair is made of what the client sends."""
    played = world.play("chat", "web_search", {"query": "tea"})
    first = await world.both.ask(played, input="please", tools=[{"type": "web_search"}], store=False, include=INCLUDE)
    await world.both.ask(played, input=[*first["output"], {"role": "user", "content": "and now?"}], store=False)
    (pair,) = told(played.bodies[2], "chat")
    assert pair["name"] == "web_search"
    assert json.loads(pair["arguments"])["query"] == "tea"
    assert "https://tea.test" in pair["output"]


async def test_hosted_calls_count_against_the_cap(world: Hosted) -> None:
    """The one over it fails and reaches no tool; the model gets a round to answer."""
    arguments = json.dumps({"query": "tea"})
    twice = [streaming(call_answer("chat", "web_search", arguments)) for _ in range(2)]
    played = play(world.both.chat, *twice, streaming(text_answer("chat", "enough")))
    world.server.calls.clear()
    response = await world.both.ask(played, input="please", tools=[{"type": "web_search"}], max_tool_calls=1)
    assert [item.get("status") for item in response["output"]] == ["completed", "failed", "completed"]
    assert response["status"] == "completed"
    assert len(world.server.calls) == 1
    assert "max_tool_calls" in told(played.bodies[2], "chat")[1]["output"]


@pytest.mark.parametrize(("tool", "gone", "why"), [("lok", False, "it has no tool 'lok'"), ("look", True, "connect")])
async def test_a_tool_that_cannot_be_had_fails_the_response_by_name(
    temporal: DevServer, tmp_path: Path, tool: str, gone: bool, why: str
) -> None:
    """No list item could say it: the answer names the type and the server."""
    async with mcp_server(tools()) as server:
        url = "http://127.0.0.1:9/mcp" if gone else server.url
        bound = {"url": url, "builtin_type": "web_search", "builtin_tool_name": tool}
        async with dialects(tmp_path, temporal.address, mcp={"servers": {"web": bound}}) as both:
            played = play(both.chat, streaming(text_answer("chat", "never")))
            answer = await both.post(played, input="please", tools=[{"type": "web_search_preview"}])
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["param"]) == (424, "mcp_list_tools_failed", "tools")
    assert error["message"].startswith(
        "The tool 'web_search_preview' runs on MCP server 'web', which could not be used: "
    )
    assert why in error["message"]
    assert played.bodies == []


async def test_a_call_whose_run_was_cancelled_is_told_as_interrupted(world: Hosted) -> None:
    """The model's call is kept from its announcement on, not from its end."""
    played = world.play("chat", "web_search", {"query": "tea"})
    world.server.mode = Mode.HANG
    try:
        body = {"input": "please", "tools": [{"type": "web_search"}], "background": True}
        started = (await world.both.post(played, **body)).raise_for_status().json()
        await world.server.until(lambda server: bool(server.calls))
        ended = await world.both.client.responses.cancel(started["id"])
    finally:
        world.server.mode = Mode.NORMAL
        world.server.released.set()
    assert [(item.type, getattr(item, "status", "")) for item in ended.output] == [("web_search_call", "incomplete")]
    await world.both.ask(played, input="and now?", previous_response_id=started["id"])
    assert told(played.bodies[1], "chat") == [
        {"name": "web_search", "arguments": '{"query": "tea"}', "output": "interrupted"}
    ]
