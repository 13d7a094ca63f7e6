"""The demo's support desk through the real client: the newest protocol, no session."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from outlast.demo.desk import desk_app
from outlast.demo.serving import running
from outlast.mcp.base import Annotations, ServerRef, ToolFailed, ToolOk, ToolUnknown
from outlast.mcp.client import McpClients
from outlast.protocol import json
from outlast.protocol.json import JsonObject


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[ServerRef]:
    """A desk that writes into `tmp_path`."""
    async with running(desk_app(tmp_path)) as url:
        yield ServerRef(label="desk", url=f"{url}/mcp")


@pytest.fixture
async def clients() -> AsyncIterator[McpClients]:
    """The product's client as it is."""
    clients = McpClients()
    yield clients
    await clients.aclose()


def lines(path: Path) -> list[JsonObject]:
    return [json.loads(line) for line in path.read_bytes().splitlines()] if path.exists() else []


async def test_the_desk_says_which_tool_is_dangerous(desk: ServerRef, clients: McpClients) -> None:
    """Hints as policy and retry read them."""
    listed = await clients.list_tools(desk, timeout=10)
    assert {spec.name: spec.annotations for spec in listed} == {
        "lookup_order": Annotations(read_only=True, idempotent=True, destructive=False),
        "refund_order": Annotations(read_only=False, idempotent=False, destructive=True),
    }
    assert [spec.input_schema["required"] for spec in listed] == [["order_id"], ["order_id"]]


async def test_a_lookup_tells_and_leaves_a_trace(desk: ServerRef, clients: McpClients, tmp_path: Path) -> None:
    """Readable text; the key of the dispatch is in the log, the ledger is untouched."""
    outcome = await clients.call(desk, "lookup_order", {"order_id": "1042"}, idempotency_key="k1", timeout=10)
    assert outcome == ToolOk(
        "Order 1042: a pair of hiking boots, size 43, bought by Jonas Keller for 129.50 EUR. "
        "Status: delivered, the left boot is damaged."
    )
    assert [(line["order_id"], line["idempotency_key"]) for line in lines(tmp_path / "lookups.jsonl")] == [(1042, "k1")]
    assert lines(tmp_path / "ledger.jsonl") == []


async def test_a_refund_is_one_line_of_the_ledger(desk: ServerRef, clients: McpClients, tmp_path: Path) -> None:
    """With amount, key, time and pid; the same key twice is two refunds, as the hint says."""
    arguments = {"order_id": 1042, "reason": "damaged"}
    outcome = await clients.call(desk, "refund_order", arguments, idempotency_key="k1", timeout=10)
    assert outcome == ToolOk("Refunded 129.50 EUR for order 1042 to Jonas Keller. Reason: damaged.")
    await clients.call(desk, "refund_order", {"order_id": 1042}, idempotency_key="k1", timeout=10)
    ledger = lines(tmp_path / "ledger.jsonl")
    assert [set(line) for line in ledger] == [{"order_id", "amount", "idempotency_key", "at", "pid"}] * 2
    assert [(line["amount"], line["idempotency_key"]) for line in ledger] == [("129.50 EUR", "k1")] * 2


@pytest.mark.parametrize(("tool", "order"), [("lookup_order", 7), ("refund_order", 7), ("refund_order", None)])
async def test_an_unknown_order_is_refused(
    desk: ServerRef, clients: McpClients, tmp_path: Path, tool: str, order: int | None
) -> None:
    """A tool error that names the orders there are; nothing is written."""
    arguments = {} if order is None else {"order_id": order}
    outcome = await clients.call(desk, tool, arguments, idempotency_key="k", timeout=10)
    assert isinstance(outcome, ToolFailed)
    assert outcome.error["type"] == "mcp_tool_execution_error"
    assert outcome.text.endswith("the shop has 1041, 1042, 1043, 1044, 1045.")
    assert not (tmp_path / "ledger.jsonl").exists()


async def test_a_held_refund_has_paid_but_does_not_answer(desk: ServerRef, clients: McpClients, tmp_path: Path) -> None:
    """The moment the demo kills a worker: the line is there, the answer comes only when the file is gone."""
    hold = tmp_path / "hold-refund_order"
    hold.touch()
    arguments = {"order_id": 1044}
    lost = await clients.call(desk, "refund_order", arguments, idempotency_key="k1", timeout=0.5)
    assert isinstance(lost, ToolUnknown)
    assert [line["order_id"] for line in lines(tmp_path / "ledger.jsonl")] == [1044]
    held = asyncio.create_task(clients.call(desk, "refund_order", arguments, idempotency_key="k2", timeout=10))
    hold.unlink()
    assert await held == ToolOk("Refunded 84.90 EUR for order 1044 to Luis Moreno.")
