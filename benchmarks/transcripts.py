"""What a long history and a full store cost: the pure checks of a transcript, a long chain, a request among many.

Measured in this process, in CPU time, without Temporal and without a model: what is compared is ours alone.
"""

import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from benchmarks.report import Figure
from outlast.loop.prepare import prepare
from outlast.loop.validate import validate
from outlast.protocol import inputs
from outlast.protocol.events import WireEvent
from outlast.protocol.json import JsonObject
from outlast.store.base import Begun, Commit, Ending, NewResponse, ResponseRecord
from outlast.store.port import Store
from outlast.store.sqlite import open_store
from outlast.upstream.base import Capabilities

_ITEMS, _TIMES = 1000, 30
_TURNS = 1000
_BLOCK, _BLOCKS, _STORED = 50, 6, 5_000
_TENANT = "default"


def transcript(length: int) -> list[JsonObject]:
    """Turns of six items each: a user's text, reasoning, two calls with their outputs, an answer."""
    found: list[JsonObject] = []
    for turn in range(length):
        call = {"type": "function_call", "call_id": f"call_{turn}", "name": "lookup", "arguments": '{"order":1043}'}
        server = {"id": f"mcp_{turn}", "server_label": "desk", "name": "lookup_order", "arguments": "{}"}
        text = {"type": "output_text", "text": f"Order 1043 is on its way ({turn}).", "annotations": []}
        found += [
            {"type": "message", "role": "user", "content": f"Where is order 1043? ({turn})"},
            {"type": "reasoning", "id": f"rs_{turn}", "summary": [], "content": [_thought(turn)]},
            call,
            {"type": "function_call_output", "call_id": f"call_{turn}", "output": "a cast-iron pan, on its way"},
            {"type": "mcp_call", **server, "output": "a cast-iron pan", "error": None, "status": "completed"},
            {"type": "message", "id": f"msg_{turn}", "role": "assistant", "status": "completed", "content": [text]},
        ]
    return found[:length]


def _thought(turn: int) -> JsonObject:
    return {"type": "reasoning_text", "text": f"The user asks for the {turn}th time."}


def checks() -> list[Figure]:
    """CPU of reading, validating and preparing a long input."""
    raw, reads = transcript(_ITEMS), Capabilities()
    spent: list[float] = []
    for _ in range(_TIMES):
        began = time.process_time()
        items = inputs.parse_input(raw, max_items=_ITEMS)
        read = time.process_time()
        validate((), items, upstream=reads)
        prepare(items, upstream=reads)
        spent.append(time.process_time() - read)
        parsed = read - began
    how = f"reading the items from JSON values besides: {parsed * 1000:.1f} ms"
    return [Figure(f"validate + prepare {_ITEMS} items, CPU", _ms(spent), "ms", 15, how)]


async def storage(folder: Path) -> list[Figure]:
    """A chain of many turns; a request among few and among many stored responses."""
    store = await open_store(folder / "outlast.db", folder / "secrets.key")
    try:
        return [*await _chain(store), *await _full(store)]
    finally:
        await store.aclose()


async def _chain(store: Store) -> list[Figure]:
    parent = None
    for turn in range(_TURNS):
        parent = await _respond(store, f"turn{turn}", parent)
    assert parent is not None
    spent = [await _cpu(lambda: store.chain(_TENANT, parent)) for _ in range(5)]
    return [Figure(f"load a chain of {_TURNS} turns, one query, CPU", _ms(spent), "ms")]


async def _full(store: Store) -> list[Figure]:
    """Blocks among few, then among many: the first and the last medians are compared."""
    few = await _blocks(store, "few")
    for number in range(_STORED):
        await _respond(store, f"filler{number}", None)
    many = await _blocks(store, "many")
    how = f"{many / few:.2f} x the same among {_TURNS}"
    return [Figure(f"store's work of a request among {_STORED + _TURNS} responses, CPU", many, "ms", 1.25 * few, how)]


async def _blocks(store: Store, name: str) -> float:
    spent = []
    for block in range(_BLOCKS):

        async def run(block: int = block) -> None:
            for number in range(_BLOCK):
                await _respond(store, f"{name}{block}x{number}", "resp_turn2")

        spent.append(await _cpu(run) / _BLOCK)
    return _ms(spent)


async def _respond(store: Store, name: str, parent: str | None) -> str:
    """What a plain run does to the store: create, begin with its chain, finish."""
    response_id = f"resp_{name}"
    record = ResponseRecord(
        tenant=_TENANT,
        id=response_id,
        workflow_id=response_id,
        status="in_progress",
        model="demo",
        request={"model": "demo"},
        run_state={},
        created_at=1,
        background=False,
        store=True,
        mode="respond",
        previous_response_id=parent,
    )
    question: JsonObject = {"type": "message", "id": f"msg_{name}_in", "role": "user", "content": "Where is it?"}
    opening = [WireEvent("response.created", {"response": {}}), WireEvent("response.in_progress", {"response": {}})]
    await store.create(NewResponse(record=record, inputs=[question], events=opening))
    begun = await store.begin(_TENANT, response_id, "llm:1", workflow_id=None, chain=parent == "resp_turn2", calls=1)
    assert isinstance(begun, Begun)
    answer: JsonObject = {
        "type": "message",
        "id": f"msg_{name}",
        "role": "assistant",
        "content": [],
        "status": "completed",
    }
    await store.finish(begun.handle, _said(answer), Commit(outcome={}, ending=Ending("completed", completed_at=2)))
    return response_id


def _said(item: JsonObject) -> Sequence[WireEvent]:
    return [
        WireEvent("response.output_item.added", {"item": item}),
        WireEvent("response.output_item.done", {"item": item}),
    ]


async def _cpu(work: Callable[[], Awaitable[object]]) -> float:
    began = time.process_time()
    await work()
    return time.process_time() - began


def _ms(seconds: Sequence[float]) -> float:
    return statistics.median(seconds) * 1000
