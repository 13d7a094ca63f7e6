"""Records, events and readers for tests of the store's port."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from outlast.protocol import events as wire
from outlast.protocol.events import WireEvent
from outlast.protocol.json import JsonObject
from outlast.store.base import (
    Approval,
    Begun,
    CallRow,
    Commit,
    Created,
    DecisionRequest,
    Ending,
    NewResponse,
    ResponseRecord,
    StepHandle,
)
from outlast.store.port import Store

TENANT = "default"
# Opens one more view of the same database: what another process would have.
Open = Callable[[], Awaitable[Store]]


def record(name: str, **changes: Any) -> ResponseRecord:
    """A foreground response of its own run."""
    plain = ResponseRecord(
        tenant=TENANT,
        id=f"resp_{name}",
        workflow_id=f"resp_{name}",
        status="in_progress",
        model="demo",
        request={"model": "demo"},
        run_state={"response_id": f"resp_{name}"},
        created_at=1_000,
        background=False,
        store=True,
        mode="respond",
    )
    return replace(plain, **changes)


def lifecycle(*types: str) -> list[WireEvent]:
    """Events that belong to no item."""
    return [WireEvent(kind, {"response": {}}) for kind in types]


OPENING = lifecycle(wire.CREATED, wire.IN_PROGRESS)


def user(text: str) -> JsonObject:
    """An input message."""
    return {"type": "message", "role": "user", "content": text}


def new(record: ResponseRecord, *inputs: JsonObject, **more: Any) -> NewResponse:
    """A create transaction with the usual first events."""
    return NewResponse(**{"record": record, "inputs": inputs, "events": OPENING, **more})


async def create(store: Store, name: str, *inputs: JsonObject, **changes: Any) -> Created:
    """A response in progress."""
    return await store.create(new(record(name, **changes), *inputs))


async def begin(store: Store, name: str, step: str = "llm:1", **more: Any) -> StepHandle:
    """A step's newest attempt; it must be there to take."""
    begun = await begin_all(store, name, step, **more)
    return begun.handle


async def begin_all(store: Store, name: str, step: str = "llm:1", **more: Any) -> Begun:
    """As `begin`, with all that was read."""
    begun = await store.begin(TENANT, f"resp_{name}", step, **{"workflow_id": None, **more})
    assert isinstance(begun, Begun), begun
    return begun


def added(item_id: str, kind: str = "message") -> WireEvent:
    """An item is announced."""
    return WireEvent(wire.ITEM_ADDED, {"item": _item(item_id, kind, "in_progress")})


def done(item_id: str, text: str = "", kind: str = "message") -> WireEvent:
    """An item is finished."""
    return WireEvent(wire.ITEM_DONE, {"item": finished(item_id, text, kind)})


def finished(item_id: str, text: str = "", kind: str = "message") -> JsonObject:
    """Its final form."""
    item = _item(item_id, kind, "completed")
    if kind == "message" and text:
        item["content"] = [{"type": "output_text", "text": text, "annotations": []}]
    return item


def _item(item_id: str, kind: str, status: str) -> JsonObject:
    if kind == "mcp_call":
        return {
            "id": item_id,
            "type": kind,
            "status": status,
            "server_label": "desk",
            "name": "refund_order",
            "arguments": "",
            "output": None,
            "error": None,
            "approval_request_id": None,
        }
    return {"id": item_id, "type": kind, "role": "assistant", "status": status, "content": []}


def part(item_id: str) -> WireEvent:
    """A text part is opened."""
    text = {"type": "output_text", "text": "", "annotations": []}
    return WireEvent(wire.PART_ADDED, {"item_id": item_id, "content_index": 0, "part": text})


def delta(item_id: str, text: str) -> WireEvent:
    """A piece of text."""
    return WireEvent(wire.TEXT_DELTA, {"item_id": item_id, "content_index": 0, "delta": text, "logprobs": []})


COMPLETED = Ending(status="completed", completed_at=2_000)
CANCELLED = Ending(status="cancelled", completed_at=2_000)


async def finish(
    store: Store, handle: StepHandle, *events: WireEvent, ending: Ending = COMPLETED, **commit: Any
) -> ResponseRecord:
    """End a response from its step."""
    return await store.finish(handle, events, Commit(outcome={}, ending=ending, **commit))


async def end(store: Store, name: str, ending: Ending = CANCELLED) -> tuple[ResponseRecord | None, bool]:
    """End a response from outside."""
    return await store.end(TENANT, f"resp_{name}", ending)


async def frames(store: Store, name: str, after: int = -1) -> list[tuple[int, str, bytes]]:
    """All a reader gets from here to the end."""
    return [frame async for batch in store.follow(TENANT, f"resp_{name}", after) for frame in batch.data]


def call(ordinal: int, name: str = "a", **changes: Any) -> CallRow:
    """A gateway call of round 1."""
    row = CallRow(
        response_id=f"resp_{name}",
        round=1,
        ordinal=ordinal,
        item_id=f"mcp_{name}{ordinal}",
        action="run",
        call_id=f"call_{name}{ordinal}",
        name="refund_order",
        arguments='{"order":1042}',
        server_label="desk",
        server_url="http://desk/mcp",
    )
    return replace(row, **changes)


def ask(approval_id: str, name: str = "a", **changes: Any) -> Approval:
    """A pending ask of round 1."""
    plain = Approval(
        tenant=TENANT,
        id=approval_id,
        response_id=f"resp_{name}",
        round=1,
        ordinal=0,
        mode="respond",
        item_id=f"mcp_{approval_id}",
        call_id=f"call_{approval_id}",
        server_label="desk",
        server_url="http://desk/mcp",
        name="refund_order",
        arguments='{"order":1042}',
        fingerprint="f" * 64,
        safe=False,
        created_at=1_500,
        listed_by=f"resp_{name}",
    )
    return replace(plain, **changes)


async def park(store: Store, name: str, *asks: Approval, **more: Any) -> None:
    """A response that ended with asks; its run waits for a continuation."""
    await store.create(new(record(name), user("refund order 1042"), **more))
    handle = await begin(store, name)
    ending = Ending(status="completed", completed_at=2_000, park=True)
    await finish(store, handle, ending=ending, approvals=asks)


def wish(approval_id: str, approve: bool = True, who: str = "ann", how: str = "api", **more: Any) -> DecisionRequest:
    """A decision somebody wants."""
    return DecisionRequest(approval_id, approve, who, how, **more)


def now() -> float:
    """Unix seconds."""
    return time.time()


async def until_gone(folder: Path, text: bytes) -> None:
    """Return when no file of the database holds these bytes: a checkpoint that met a reader is tried again."""
    async with asyncio.timeout(30):
        while _holds(folder, text):  # noqa: ASYNC110  # a file tells nobody
            await asyncio.sleep(0.02)


def _holds(folder: Path, text: bytes) -> bool:
    return any(text in path.read_bytes() for path in folder.iterdir() if path.is_file())
