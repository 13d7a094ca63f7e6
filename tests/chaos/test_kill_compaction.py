"""A worker is SIGKILLed after it has compacted a response's context: the summary is not paid for again."""

from outlast import failpoints
from outlast.loop.compaction import INSTRUCTIONS
from outlast.protocol.json import JsonObject
from tests.chaos.world import World, text_of, whole

PAST: list[JsonObject] = [
    {"role": "user", "content": "Tell me something long"},
    {"role": "assistant", "content": "x" * 8000},
    {"role": "user", "content": "Tell me something nice"},
]
MANAGE: list[JsonObject] = [{"type": "compaction", "compact_threshold": 1000}]


async def test_a_compaction_is_paid_once_whatever_becomes_of_its_round(outlast: World) -> None:
    """Fails when the compaction is no step of its own: without the commit in `Compactor.relieve`, the second attempt
    asks for another summary."""
    first = await outlast.worker(f"{failpoints.MID_STREAM}:1")
    begun = await outlast.start("", input=PAST, context_management=MANAGE)
    await first.killed(failpoints.MID_STREAM)
    second = await outlast.worker()
    response = whole(await outlast.rest(begun))
    summaries = [asked.get("instructions") == INSTRUCTIONS for asked in outlast.model.requests]
    assert summaries == [True, False, False]
    assert outlast.model.requests[1]["input"] == outlast.model.requests[2]["input"]
    assert [item["type"] for item in response["output"]] == ["compaction", "message", "message"]
    assert [item["status"] for item in response["output"][1:]] == ["incomplete", "completed"]
    assert text_of(response)
    assert response["status"] == "completed"
    assert await outlast.workers_of(response["id"]) == {first.pid, second.pid}
