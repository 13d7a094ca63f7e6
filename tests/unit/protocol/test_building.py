"""Builders of our own items: whole sequences, valid by the official types."""

from typing import Any

import pytest
from openai.types.responses import ResponseStreamEvent
from pydantic import TypeAdapter

from outlast.protocol import building, events
from outlast.protocol.events import WireEvent

JUDGE: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
CALL = building.mcp_call_item("mcp_1", "docs", "search", '{"q":1}', approval_request_id="mcpr_1")
TOOL = {"name": "search", "input_schema": {"type": "object"}}


def bodies(built: list[WireEvent]) -> list[dict[str, Any]]:
    """Their bodies, each accepted by the official types once the log has numbered it."""
    for number, event in enumerate(built):
        JUDGE.validate_python({**event.body(), "sequence_number": number, "output_index": 0})
    return [event.body() for event in built]


def test_a_gateway_call_is_announced_with_empty_arguments() -> None:
    """added → in_progress → one delta → done; the approval it came from is named."""
    item = {
        "id": "mcp_1",
        "type": "mcp_call",
        "approval_request_id": "mcpr_1",
        "arguments": "",
        "error": None,
        "name": "search",
        "output": None,
        "server_label": "docs",
        "status": "in_progress",
    }
    assert bodies(building.announce_mcp_call(CALL)) == [
        {"type": events.ITEM_ADDED, "item": item},
        {"type": events.MCP_IN_PROGRESS, "item_id": "mcp_1"},
        {"type": events.MCP_ARGUMENTS_DELTA, "item_id": "mcp_1", "delta": '{"q":1}'},
        {"type": events.MCP_ARGUMENTS_DONE, "item_id": "mcp_1", "arguments": '{"q":1}'},
    ]


@pytest.mark.parametrize("output", ["found", ""])
def test_a_gateway_call_completes_with_its_output(output: str) -> None:
    """Also with an empty one."""
    assert bodies(building.finish_mcp_call(CALL, output=output)) == [
        {"type": events.MCP_COMPLETED, "item_id": "mcp_1"},
        {"type": events.ITEM_DONE, "item": {**CALL, "output": output, "status": "completed"}},
    ]


def test_a_gateway_call_fails_with_a_typed_error() -> None:
    """There is no output then."""
    error = {"type": "mcp_tool_execution_error", "content": [{"type": "text", "text": "boom"}]}
    assert bodies(building.finish_mcp_call(CALL, error=building.tool_error("boom"))) == [
        {"type": events.MCP_FAILED, "item_id": "mcp_1"},
        {"type": events.ITEM_DONE, "item": {**CALL, "error": error, "status": "failed"}},
    ]


@pytest.mark.parametrize(
    ("tools", "error", "kind", "ending"),
    [
        ([TOOL], None, events.LIST_COMPLETED, {"tools": [TOOL]}),
        ([], None, events.LIST_COMPLETED, {"tools": []}),
        ([], "connection refused", events.LIST_FAILED, {"tools": [], "error": "connection refused"}),
    ],
)
def test_a_listing_has_an_error_only_when_it_failed(
    tools: list[dict[str, Any]], error: str | None, kind: str, ending: dict[str, Any]
) -> None:
    """A null error breaks strict clients."""
    item = {"id": "mcpl_1", "type": "mcp_list_tools", "server_label": "docs"}
    assert bodies(building.list_tools_events("mcpl_1", "docs", tools, error=error)) == [
        {"type": events.ITEM_ADDED, "item": {**item, "tools": []}},
        {"type": events.LIST_IN_PROGRESS, "item_id": "mcpl_1"},
        {"type": kind, "item_id": "mcpl_1"},
        {"type": events.ITEM_DONE, "item": {**item, **ending}},
    ]


def test_an_ask_is_added_and_done_with_its_whole_arguments() -> None:
    """Nothing stands between."""
    item = {
        "id": "mcpr_1",
        "type": "mcp_approval_request",
        "arguments": '{"q":1}',
        "name": "search",
        "server_label": "docs",
    }
    built = building.approval_request_events(building.approval_request_item("mcpr_1", "docs", "search", '{"q":1}'))
    assert bodies(built) == [{"type": events.ITEM_ADDED, "item": item}, {"type": events.ITEM_DONE, "item": item}]
