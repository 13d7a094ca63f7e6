"""The support desk: an MCP server with two tools, one that only looks and one that spends money.

`refund_order` writes one line of a ledger and is neither read-only nor idempotent: two dispatches are two refunds, and
the ledger shows it. Both tools note the idempotency key they were called with, so a demo can count dispatches. While a
file `hold-<tool>` lies in the data folder, that tool does its work and then keeps its answer back: the moment to kill a
worker.
"""

import asyncio
import contextlib
import os
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import mcp_types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from starlette.applications import Starlette

from outlast.protocol import json
from outlast.protocol.json import JsonObject

_IDEMPOTENCY_META_KEY = "outlast/idempotency-key"
_HOLD_SECONDS = 60.0
_HOLD_POLL_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class Order:
    """One order of the shop; `price` in cents."""

    id: int
    customer: str
    item: str
    price: int
    status: str

    @property
    def amount(self) -> str:
        """As people write it: `59.00 EUR`."""
        return f"{self.price // 100}.{self.price % 100:02d} EUR"


ORDERS = {
    order.id: order
    for order in (
        Order(1041, "Ada Brandt", "a walnut desk lamp", 7900, "delivered on Monday"),
        Order(1042, "Jonas Keller", "a pair of hiking boots, size 43", 12950, "delivered, the left boot is damaged"),
        Order(1043, "Mira Okafor", "a cast-iron pan", 5900, "on its way, expected on Thursday"),
        Order(1044, "Luis Moreno", "a blue rain jacket", 8490, "returned, waiting for its refund"),
        Order(1045, "Sofie Lind", "two tickets for the night train", 15800, "paid, not yet sent"),
    )
}


_ORDER_ID: JsonObject = {"type": "integer", "description": "The order's number, for example 1042."}
TOOLS = (
    mcp_types.Tool(
        name="lookup_order",
        description="Look up an order: customer, item, price and status.",
        input_schema={"type": "object", "properties": {"order_id": _ORDER_ID}, "required": ["order_id"]},
        annotations=mcp_types.ToolAnnotations(read_only_hint=True, idempotent_hint=True, destructive_hint=False),
    ),
    mcp_types.Tool(
        name="refund_order",
        description="Pay the full price of an order back to the customer. Money moves; this cannot be undone.",
        input_schema={
            "type": "object",
            "properties": {"order_id": _ORDER_ID, "reason": {"type": "string", "description": "Why, in a few words."}},
            "required": ["order_id"],
        },
        annotations=mcp_types.ToolAnnotations(read_only_hint=False, idempotent_hint=False, destructive_hint=True),
    ),
)

_Context = ServerRequestContext[object]


class _Refused(Exception):
    """What the desk tells a caller who asked for something it cannot do."""


class Desk:
    """The tools and where they write; `data_dir` is created."""

    def __init__(self, data_dir: Path) -> None:
        data_dir.mkdir(parents=True, exist_ok=True)
        self._data_dir = data_dir

    async def list_tools(self, _: _Context, __: mcp_types.PaginatedRequestParams | None) -> mcp_types.ListToolsResult:
        """Both tools, with their hints."""
        return mcp_types.ListToolsResult(tools=list(TOOLS))

    async def call_tool(self, ctx: _Context, params: mcp_types.CallToolRequestParams) -> mcp_types.CallToolResult:
        """Serve one call; a refusal is a tool error, as the protocol wants it."""
        arguments = params.arguments or {}
        try:
            text = await self._serve(params.name, arguments, _traces(ctx))
        except _Refused as refusal:
            return mcp_types.CallToolResult(content=[mcp_types.TextContent(text=str(refusal))], is_error=True)
        return mcp_types.CallToolResult(content=[mcp_types.TextContent(text=text)])

    async def _serve(self, tool: str, arguments: JsonObject, traces: JsonObject) -> str:
        match tool:
            case "lookup_order":
                return await self._lookup(_order(arguments), traces)
            case "refund_order":
                return await self._refund(_order(arguments), arguments.get("reason"), traces)
            case _:
                raise _Refused(f"The desk has no tool {tool}.")

    async def _lookup(self, order: Order, traces: JsonObject) -> str:
        self._append("lookups.jsonl", {"order_id": order.id, **traces})
        await self._held("lookup_order")
        return f"Order {order.id}: {order.item}, bought by {order.customer} for {order.amount}. Status: {order.status}."

    async def _refund(self, order: Order, reason: object, traces: JsonObject) -> str:
        self._append("ledger.jsonl", {"order_id": order.id, "amount": order.amount, **traces}, on_disk=True)
        await self._held("refund_order")
        because = f" Reason: {reason}." if reason else ""
        return f"Refunded {order.amount} for order {order.id} to {order.customer}.{because}"

    def _append(self, name: str, line: JsonObject, *, on_disk: bool = False) -> None:
        # Written before anything else happens: the demo kills processes right after this.
        with (self._data_dir / name).open("ab") as file:
            file.write(json.dumps(line) + b"\n")
            file.flush()
            if on_disk:
                os.fsync(file.fileno())

    async def _held(self, tool: str) -> None:
        hold = self._data_dir / f"hold-{tool}"
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_HOLD_SECONDS):
                while hold.exists():  # noqa: ASYNC110  # the one who holds is another process
                    await asyncio.sleep(_HOLD_POLL_SECONDS)


def desk_app(data_dir: Path) -> Starlette:
    """The server as an ASGI app, path `/mcp`; it runs its own lifespan, so it is served, not mounted.

    The low-level server, because `MCPServer` puts its own handler on the root logger of whoever embeds it.
    """
    desk = Desk(data_dir)
    server: Server[object] = Server(
        name="support-desk",
        instructions="Orders 1041 to 1045 of a small shop: look them up, refund them.",
        on_list_tools=desk.list_tools,
        on_call_tool=desk.call_tool,
    )
    return server.streamable_http_app(json_response=True, stateless_http=True)


def _order(arguments: JsonObject) -> Order:
    """Models write the number as a number or as text."""
    asked = str(arguments.get("order_id", "")).strip().lstrip("#")
    if not asked.isdecimal() or (order := ORDERS.get(int(asked))) is None:
        raise _Refused(f"There is no order {asked or 'without a number'}; the shop has {', '.join(map(str, ORDERS))}.")
    return order


def _traces(ctx: _Context) -> JsonObject:
    meta = ctx.meta or {}
    return {
        "idempotency_key": meta.get(_IDEMPOTENCY_META_KEY),
        "at": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "pid": os.getpid(),
    }
