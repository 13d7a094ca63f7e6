"""The MCP port against the official server of the newest protocol (2026-07-28), which has no sessions."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

import mcp_types
import pytest
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server

from outlast.demo.serving import running
from outlast.mcp.base import ServerRef, ToolFailed, ToolOk, ToolOutcome, ToolUnknown
from outlast.mcp.client import McpClients

# The server wants this argument as a header too; a client knows only after a listing.
REGION: dict[str, object] = {
    "type": "object",
    "properties": {"region": {"type": "string", "x-mcp-header": "Region"}},
    "required": ["region"],
}
Context = ServerRequestContext[object]
Handler = Callable[
    [Context, mcp_types.CallToolRequestParams], Awaitable[mcp_types.CallToolResult | mcp_types.InputRequiredResult]
]


async def _list(_: Context, __: mcp_types.PaginatedRequestParams | None) -> mcp_types.ListToolsResult:
    return mcp_types.ListToolsResult(tools=[mcp_types.Tool(name="where", input_schema=REGION)])


@contextlib.asynccontextmanager
async def official(handler: Handler, *, json_response: bool) -> AsyncIterator[ServerRef]:
    """A server with one tool, `where`."""
    server: Server[object] = Server(
        "official",
        on_list_tools=_list,
        on_call_tool=handler,
        get_tool_input_schema=lambda name: REGION if name == "where" else None,
    )
    async with running(server.streamable_http_app(json_response=json_response)) as url:
        yield ServerRef(label="official", url=f"{url}/mcp")


async def call(clients: McpClients, ref: ServerRef, *, timeout: float = 10) -> ToolOutcome:
    return await clients.call(ref, "where", {"region": "north"}, idempotency_key="k1", timeout=timeout)


@pytest.fixture
async def clients() -> AsyncIterator[McpClients]:
    """The product's client as it is."""
    clients = McpClients()
    yield clients
    await clients.aclose()


@pytest.mark.parametrize("json_response", [False, True], ids=["sse", "json"])
async def test_a_call_without_a_listing_learns_the_headers_and_runs_once(
    clients: McpClients, json_response: bool
) -> None:
    """A refused header means not dispatched: list, send again, one run; the key arrives."""
    seen = []

    async def where(ctx: Context, params: mcp_types.CallToolRequestParams) -> mcp_types.CallToolResult:
        seen.append((params.arguments, (ctx.meta or {}).get("outlast/idempotency-key")))
        return mcp_types.CallToolResult(content=[mcp_types.TextContent(text="here")])

    async with official(where, json_response=json_response) as ref:
        assert await call(clients, ref) == ToolOk("here")
        assert await call(clients, ref) == ToolOk("here")
    assert seen == [({"region": "north"}, "k1")] * 2


async def test_a_tool_that_asks_back_is_a_clear_failure(clients: McpClients) -> None:
    """`input_required` is an answer we cannot serve; the model is told."""

    async def where(_: Context, __: mcp_types.CallToolRequestParams) -> mcp_types.InputRequiredResult:
        return mcp_types.InputRequiredResult(request_state="state")

    async with official(where, json_response=True) as ref:
        outcome = await call(clients, ref)
    assert isinstance(outcome, ToolFailed)
    assert outcome.text == "The tool asks for further input, which is not supported here."


async def test_a_deadline_closes_the_request_and_the_tool_is_cancelled(clients: McpClients) -> None:
    """Closing the request's stream is this protocol's way to cancel."""
    started, stopped = asyncio.Event(), asyncio.Event()

    async def where(_: Context, __: mcp_types.CallToolRequestParams) -> mcp_types.CallToolResult:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()
        raise AssertionError("unreachable")

    async with official(where, json_response=False) as ref:
        await clients.list_tools(ref, timeout=10)
        outcome = await call(clients, ref, timeout=0.5)
        assert isinstance(outcome, ToolUnknown)
        assert started.is_set()
        async with asyncio.timeout(5):
            await stopped.wait()
