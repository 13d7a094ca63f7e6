"""Which sent items may have more to them than the client was shown."""

import pytest

from api import history
from outlast.protocol.items import parse_item
from outlast.protocol.json import JsonObject
from outlast.upstream.base import Capabilities

CALL: JsonObject = {"type": "mcp_call", "server_label": "own", "name": "draw", "arguments": "{}"}
ITEMS: list[JsonObject] = [
    {"id": "msg_1", "type": "message", "role": "user", "content": "hi"},
    {"id": "rs_1", "type": "reasoning", "summary": []},
    {"id": "rs_2", "type": "reasoning", "summary": [], "encrypted_content": "mine"},
    {"type": "reasoning", "summary": []},
    {**CALL, "id": "mcp_1"},
    CALL,
    {"id": "x_1", "type": "novelty"},
]


@pytest.mark.parametrize(
    ("reads", "found"),
    [(Capabilities(encrypted_reasoning=True), ["rs_1", "mcp_1"]), (Capabilities(), ["mcp_1"])],
)
def test_reasoning_without_its_seal_and_gateway_calls_are_looked_up(reads: Capabilities, found: list[str]) -> None:
    """By id; reasoning only for a server that could read it, and not what the client has whole."""
    assert history.ours([parse_item(item) for item in ITEMS], reads) == found
