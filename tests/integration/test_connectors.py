"""Claims about `connector_id`: a client names an MCP server of the operator's instead of its address."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest

from outlast.devserver import DevServer
from tests.support.dialects import Dialects, dialects, play
from tests.support.mcp_server import McpTestServer, Tool, mcp_server
from tests.support.raw_model import call_answer, text_answer
from tests.unit.upstream.server import streaming

JsonObject = dict[str, Any]
TOOL: JsonObject = {"type": "mcp", "server_label": "till", "connector_id": "desk"}


@dataclass
class World:
    """A configured server named desk, with credentials of its own."""

    both: Dialects
    server: McpTestServer

    async def ask(self, **body: Any) -> JsonObject:
        """A turn whose model calls `look` once."""
        called = streaming(call_answer("chat", "mcp__till__look", "{}"))
        played = play(self.both.chat, called, streaming(text_answer("chat", "done")))
        self.server.calls.clear()
        return await self.both.ask(played, **{"input": "hot?", **body})


@pytest.fixture(scope="module")
async def world(temporal: DevServer, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    """One server for the tests of this file."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DESK_TOKEN", "Bearer of-the-operator")
        async with mcp_server({"look": Tool(lambda a: "tea is hot")}) as server:
            desk = {"url": server.url, "headers_env": {"Authorization": "DESK_TOKEN"}}
            folder = tmp_path_factory.mktemp("connectors")
            async with dialects(folder, temporal.address, mcp={"servers": {"desk": desk}}) as both:
                yield World(both, server)


async def test_a_server_is_reached_by_its_name_with_the_operators_credentials(world: World) -> None:
    """The response shows what the client sent: no address, no header."""
    tool = {**TOOL, "require_approval": "never"}
    response = await world.ask(tools=[tool])
    assert [item["type"] for item in response["output"]] == ["mcp_list_tools", "mcp_call", "message"]
    assert response["output"][1]["output"] == "tea is hot"
    assert response["tools"] == [tool]
    assert world.server.url not in str(response)
    assert world.server.headers[-1]["authorization"] == "Bearer of-the-operator"


async def test_an_approval_is_bound_to_the_server_of_that_name(world: World) -> None:
    """The continuation may name it again, by name or by the same address; another address is refused."""
    first = await world.ask(tools=[TOOL])
    ask = first["output"][-1]
    assert (ask["type"], world.server.calls) == ("mcp_approval_request", [])
    decision = {"type": "mcp_approval_response", "approval_request_id": ask["id"], "approve": True}
    body = {"previous_response_id": first["id"], "input": [decision]}
    elsewhere = {"type": "mcp", "server_label": "till", "server_url": "http://127.0.0.1:1/mcp"}
    refused = await world.both.post(world.both.chat, **body, tools=[elsewhere])
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "approval_mismatch")
    play(world.both.chat, streaming(text_answer("chat", "done")))
    second = await world.both.ask(world.both.chat, **body, tools=[TOOL])
    assert [item["type"] for item in second["output"]] == ["mcp_call", "message"]
    assert len(world.server.calls) == 1


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"connector_id": "connector_gmail"}, "(known: desk)"),
        ({"connector_id": ""}, "(known: desk)"),
        ({"server_url": "http://127.0.0.1:1/mcp"}, "give one of them"),
    ],
)
async def test_a_name_that_is_none_is_refused_before_anything_happens(
    world: World, fields: JsonObject, says: str
) -> None:
    """And so is a name besides an address."""
    play(world.both.chat)
    refused = await world.both.post(world.both.chat, input="hot?", tools=[{**TOOL, **fields}])
    error = refused.json()["error"]
    assert (refused.status_code, error["param"]) == (400, "tools[0].connector_id")
    assert says in error["message"]
    assert world.both.chat.bodies == []
