"""Builders of the items and events we make ourselves, in the order clients expect (behaviour §4).

Pure: ids come from the caller, numbers and indexes from the event log. Every event names its item, by `item_id` or
`item.id`, which is how the log finds its index. Items are whole JSON objects; an event never shares one with a later
event that changes it.
"""

from collections.abc import Sequence

from outlast.protocol import events
from outlast.protocol.events import WireEvent
from outlast.protocol.json import JsonObject

CUSTOM_INPUT_DELTA = "response.custom_tool_call_input.delta"
CUSTOM_INPUT_DONE = "response.custom_tool_call_input.done"


def added(item: JsonObject) -> WireEvent:
    """`output_item.added` with the item as it is."""
    return WireEvent(events.ITEM_ADDED, {"item": item})


def done(item: JsonObject) -> WireEvent:
    """`output_item.done` with the item as it is."""
    return WireEvent(events.ITEM_DONE, {"item": item})


def tool_error(text: str) -> JsonObject:
    """The `error` of a gateway call that failed before or outside its server."""
    return {"type": "mcp_tool_execution_error", "content": [{"type": "text", "text": text}]}


def mcp_call_item(
    item_id: str, label: str, name: str, arguments: str, *, approval_request_id: str | None = None
) -> JsonObject:
    """A gateway call that was announced and has no result; `name` is the public one, nulls as recorded from OpenAI."""
    return {
        "id": item_id,
        "type": "mcp_call",
        "approval_request_id": approval_request_id,
        "arguments": arguments,
        "error": None,
        "name": name,
        "output": None,
        "server_label": label,
        "status": "in_progress",
    }


def announce_mcp_call(item: JsonObject) -> list[WireEvent]:
    """added (arguments empty) → in_progress → one arguments delta → done; `item` comes from `mcp_call_item`."""
    item_id, arguments = item["id"], item["arguments"]
    return [
        added({**item, "arguments": ""}),
        WireEvent(events.MCP_IN_PROGRESS, {"item_id": item_id}),
        WireEvent(events.MCP_ARGUMENTS_DELTA, {"item_id": item_id, "delta": arguments}),
        WireEvent(events.MCP_ARGUMENTS_DONE, {"item_id": item_id, "arguments": arguments}),
    ]


def finish_mcp_call(item: JsonObject, *, output: str | None = None, error: JsonObject | None = None) -> list[WireEvent]:
    """completed with `output`, or failed with `error` (one of the three typed objects), then done."""
    failed = error is not None
    final = {
        **item,
        "output": None if failed else output,
        "error": error,
        "status": "failed" if failed else "completed",
    }
    kind = events.MCP_FAILED if failed else events.MCP_COMPLETED
    return [WireEvent(kind, {"item_id": item["id"]}), done(final)]


def list_tools_events(
    item_id: str, label: str, tools: Sequence[JsonObject], *, error: str | None = None
) -> list[WireEvent]:
    """A listing: added (tools empty) → in_progress → completed or failed → done; `error` is left out on success."""
    empty: JsonObject = {"id": item_id, "type": "mcp_list_tools", "server_label": label, "tools": []}
    final = {**empty, "tools": list(tools)} if error is None else {**empty, "error": error}
    kind = events.LIST_COMPLETED if error is None else events.LIST_FAILED
    return [
        added(empty),
        WireEvent(events.LIST_IN_PROGRESS, {"item_id": item_id}),
        WireEvent(kind, {"item_id": item_id}),
        done(final),
    ]


def approval_request_item(approval_id: str, label: str, name: str, arguments: str) -> JsonObject:
    """An open ask with the effective arguments, whole."""
    return {
        "id": approval_id,
        "type": "mcp_approval_request",
        "arguments": arguments,
        "name": name,
        "server_label": label,
    }


def approval_response_item(item_id: str, approval_id: str, *, approve: bool, reason: str | None) -> JsonObject:
    """A decision that was made outside the input, as the chain keeps it."""
    item: JsonObject = {
        "id": item_id,
        "type": "mcp_approval_response",
        "approval_request_id": approval_id,
        "approve": approve,
    }
    return {**item, "reason": reason} if reason else item


def approval_request_events(item: JsonObject) -> list[WireEvent]:
    """added → done, nothing between."""
    return [added(item), done(item)]


def function_call_events(item: JsonObject, *, parked: Sequence[WireEvent] = ()) -> list[WireEvent]:
    """A client call, complete: added (arguments empty) → one delta → done → `parked` → done.

    `item`: the final `function_call`; `parked`: events about it that came while it was held back.
    """
    item_id, arguments = item["id"], item["arguments"]
    return [
        added({**item, "arguments": "", "status": "in_progress"}),
        WireEvent(events.ARGUMENTS_DELTA, {"item_id": item_id, "delta": arguments}),
        WireEvent(events.ARGUMENTS_DONE, {"item_id": item_id, "name": item["name"], "arguments": arguments}),
        *parked,
        done(item),
    ]


def custom_call_events(item: JsonObject, *, parked: Sequence[WireEvent] = ()) -> list[WireEvent]:
    """As `function_call_events`, for the free-text `input` of a `custom_tool_call`."""
    item_id, text = item["id"], item["input"]
    return [
        added({**item, "input": "", "status": "in_progress"}),
        WireEvent(CUSTOM_INPUT_DELTA, {"item_id": item_id, "delta": text}),
        WireEvent(CUSTOM_INPUT_DONE, {"item_id": item_id, "input": text}),
        *parked,
        done(item),
    ]
