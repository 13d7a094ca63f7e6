"""Claims about an `internal` MCP server: it works as any other, and no client sees that it is there."""

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest

from outlast.devserver import DevServer
from tests.support.dialects import Dialects, dialects, play
from tests.support.mcp_server import McpTestServer, Tool, ToolError, mcp_server
from tests.support.raw_model import Played, call_answer, text_answer
from tests.unit.upstream.server import streaming

JsonObject = dict[str, Any]
FREE = {"require_approval": "never"}
# Nobody listens there.
AWAY = "http://127.0.0.1:1/mcp"
WAIT = {"outlast": {"approval_mode": "wait"}, "background": True}


def _fails(arguments: JsonObject) -> str:
    raise ToolError("the till is shut")


@dataclass
class Hidden:
    """One internal server whose tool `look` also serves web_search."""

    both: Dialects
    server: McpTestServer

    @property
    def tool(self) -> JsonObject:
        """As a client declares it."""
        return {"type": "mcp", "server_label": "till", "server_url": self.server.url, **FREE}

    def play(self, dialect: str, name: str, arguments: JsonObject) -> Played:
        """A model that calls once, then speaks."""
        played = self.both.chat if dialect == "chat" else self.both.responses
        self.server.calls.clear()
        called = call_answer(dialect, name, json.dumps(arguments))
        return play(played, streaming(called), streaming(text_answer(dialect, "done")))


@pytest.fixture(scope="module")
async def world(temporal: DevServer, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Hidden]:
    """One server for the tests of this file."""
    tools = {"look": Tool(lambda a: "tea is hot"), "shut": Tool(_fails)}
    async with mcp_server(tools) as server:
        till = {"url": server.url, "internal": True, "builtin_type": "web_search", "builtin_tool_name": "look"}
        away = {"url": AWAY, "internal": True}
        folder = tmp_path_factory.mktemp("internal")
        async with dialects(folder, temporal.address, mcp={"servers": {"till": till, "away": away}}) as both:
            yield Hidden(both, server)


def told(body: JsonObject, dialect: str) -> list[tuple[str, str]]:
    """(function, output) of each call the model is shown."""
    if dialect == "chat":
        calls = [call["function"]["name"] for each in body["messages"] for call in each.get("tool_calls") or ()]
        outputs = [each["content"] for each in body["messages"] if each["role"] == "tool"]
    else:
        calls = [each["name"] for each in body["input"] if each["type"] == "function_call"]
        outputs = [each["output"] for each in body["input"] if each["type"] == "function_call_output"]
    return list(zip(calls, outputs, strict=True))


CASES = [
    ("mcp__till__look", "tea is hot"),
    ("mcp__till__shut", "the till is shut"),
    ("mcp__till__gone", "server 'till' has no tool 'gone'"),
    ("web_search", "tea is hot"),
]


@pytest.mark.parametrize("dialect", ["chat", "responses"])
@pytest.mark.parametrize(("name", "output"), CASES)
async def test_its_calls_reach_the_model_and_nobody_else(world: Hidden, name: str, output: str, dialect: str) -> None:
    """Neither stream nor body nor list of items has them; this round and the next turn of the chain tell the model."""
    played = world.play(dialect, name, {"query": "tea"})
    tools = [{"type": "web_search"} if name == "web_search" else world.tool]
    text = (await world.both.post(played, input="hot?", tools=tools, stream=True)).raise_for_status().text
    events = [json.loads(line.removeprefix("data: ")) for line in text.split("\n") if line.startswith("data: {")]
    response = events[-1]["response"]
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert not [e["type"] for e in events if "mcp" in e["type"] or "web_search" in e["type"]]
    assert {e["output_index"] for e in events if "output_index" in e} == {0}
    assert [item["type"] for item in response["output"]] == ["message"]
    assert response["tools"][0]["type"] == tools[0]["type"]
    assert told(played.bodies[1], dialect) == [(name, output)]
    assert len(world.server.calls) == (0 if name.endswith("gone") else 1)
    play(played, streaming(text_answer(dialect, "again")))
    after = await world.both.ask(played, input="and?", tools=tools, previous_response_id=response["id"])
    assert [item["type"] for item in after["output"]] == ["message"]
    assert told(played.bodies[0], dialect) == [(name, output)]
    items = (await world.both.http.get(f"/v1/responses/{after['id']}/input_items")).raise_for_status().json()
    assert {item["type"] for item in items["data"]} == {"message"}


async def test_its_calls_count_against_the_cap(world: Hidden) -> None:
    """A hidden call is a gateway call."""
    played = world.play("chat", "web_search", {"query": "tea"})
    again = streaming(call_answer("chat", "web_search", "{}"))
    play(played, again, again, streaming(text_answer("chat", "enough")))
    await world.both.ask(played, input="hot?", tools=[{"type": "web_search"}], max_tool_calls=1)
    assert len(world.server.calls) == 1
    assert [output for _, output in told(played.bodies[2], "chat")][1].startswith("the limit of 1 tool calls")


@pytest.mark.parametrize("approve", [True, False])
async def test_its_asks_are_decided_out_of_sight(world: Hidden, approve: bool) -> None:
    """`wait` mode: the response says nothing of the ask, the approvals API does, and the model hears the decision."""
    played = world.play("chat", "mcp__till__look", {})
    tool = {**world.tool, "require_approval": "always"}
    started = (await world.both.post(played, input="hot?", tools=[tool], **WAIT)).raise_for_status().json()
    ask = await _asked(world, started["id"])
    waiting = (await world.both.http.get(f"/v1/responses/{started['id']}")).json()
    assert (waiting["status"], waiting["output"], waiting.get("outlast")) == ("in_progress", [], None)
    decision = {"approve": approve, "reason": "too hot"}
    (await world.both.http.post(f"/v1/approvals/{ask['id']}", json=decision)).raise_for_status()
    stream = (await world.both.http.get(f"/v1/responses/{started['id']}?stream=true")).text
    ended = json.loads([line for line in stream.split("\n") if line.startswith("data: {")][-1].removeprefix("data: "))
    assert [item["type"] for item in ended["response"]["output"]] == ["message"]
    assert told(played.bodies[1], "chat") == [("mcp__till__look", "tea is hot" if approve else "denied: too hot")]
    assert len(world.server.calls) == int(approve)


async def _asked(world: Hidden, response_id: str) -> JsonObject:
    """The open ask of a response, once it is there."""
    while True:
        found = (await world.both.http.get("/v1/approvals?status=pending")).raise_for_status().json()["data"]
        mine: list[JsonObject] = [ask for ask in found if ask["response_id"] == response_id]
        if mine:
            return mine[0]


async def test_an_ask_nobody_could_see_is_refused_before_anything_happens(world: Hidden) -> None:
    """In `respond` mode it would be an output item."""
    played = world.play("chat", "mcp__till__look", {})
    tool = {**world.tool, "require_approval": "always"}
    answer = await world.both.post(played, input="hot?", tools=[tool])
    error = answer.json()["error"]
    assert (answer.status_code, error["param"]) == (400, "tools[0].require_approval")
    assert "'outlast.approval_mode' to 'wait'" in error["message"]
    assert played.bodies == []


async def test_a_server_that_is_away_fails_the_response(world: Hidden) -> None:
    """No list item could say that it is missing."""
    played = world.play("chat", "mcp__till__look", {})
    away = {"type": "mcp", "server_label": "away", "server_url": AWAY, **FREE}
    answer = await world.both.post(played, input="hot?", tools=[away])
    assert answer.json()["error"]["code"] == "mcp_list_tools_failed"
    assert played.bodies == []
