"""A worker is SIGKILLed in the middle of a model's answer; what clients have seen stays true."""

import pytest

from outlast import failpoints
from outlast.protocol.json import JsonObject
from tests.chaos.world import METER, PAID, World, deltas, items, text_of, whole

CALL_SHOWN = b"response.output_item.done"


def function(name: str) -> JsonObject:
    """A client's own tool without arguments."""
    return {"type": "function", "name": name, "parameters": {"type": "object", "properties": {}}}


@pytest.mark.parametrize("appends", [1, 3])
async def test_text_cut_by_a_crash_is_closed_and_said_once(outlast: World, appends: int) -> None:
    """Fails without `*_abandoned(begun)` in `CallLlmActivity._begun`; a duplicate text without `stored.done` in
    `rounds.prepared` and `content: []` in the closing events."""
    first = await outlast.worker(f"{failpoints.MID_STREAM}:{appends}")
    begun = await outlast.start("Tell me something nice", until="response.content_part.added")
    await first.killed(failpoints.MID_STREAM)
    second = await outlast.worker()
    frames = await outlast.rest(begun)
    response = whole(frames)
    cut, said = response["output"]
    assert cut == {"id": cut["id"], "type": "message", "role": "assistant", "status": "incomplete", "content": []}
    (closed,) = [f["text"] for f in frames if f["type"] == "response.output_text.done" and f["item_id"] == cut["id"]]
    assert closed == deltas(frames, cut["id"])
    assert said["status"] == "completed"
    assert text_of(response) == deltas(frames, said["id"])
    assert text_of(response).startswith(closed)
    assert response["status"] == "completed"
    asked, asked_again = outlast.model.requests
    assert asked["input"] == asked_again["input"]
    assert await outlast.workers_of(response["id"]) == {first.pid, second.pid}


async def test_a_round_cut_after_a_complete_client_call_ends_with_it(outlast: World) -> None:
    """Fails without `if begun.calls:` in `CallLlmActivity._begun`: the client would be asked to run the call twice."""
    outlast.model.hold(1, after=CALL_SHOWN)
    first = await outlast.worker(f"{failpoints.MID_STREAM}:1")
    begun = await outlast.start("The weather and the time?", function("get_weather"), function("get_time"))
    await first.killed(failpoints.MID_STREAM)
    second = await outlast.worker()
    response = whole(await outlast.rest(begun))
    assert [(item["type"], item["name"], item["status"]) for item in response["output"]] == [
        ("function_call", "get_weather", "completed")
    ]
    assert response["status"] == "completed"
    assert len(outlast.model.requests) == 1
    assert await outlast.workers_of(response["id"]) == {first.pid, second.pid}


async def test_a_round_cut_after_a_complete_gateway_call_runs_it_once_and_goes_on(outlast: World) -> None:
    """Fails without `if begun.calls:` in `CallLlmActivity._begun`; the shown item is closed as incomplete without
    `if event.item_id not in running` in `_abandoned`."""
    outlast.model.hold(1, after=CALL_SHOWN)
    first = await outlast.worker(f"{failpoints.MID_STREAM}:1")
    begun = await outlast.start("Pay 17 and read it", outlast.office("pay_bill", "read_meter"))
    await first.killed(failpoints.MID_STREAM)
    second = await outlast.worker()
    response = whole(await outlast.rest(begun))
    assert [item["type"] for item in response["output"]] == ["mcp_list_tools", "mcp_call", "mcp_call", "message"]
    assert [(call["name"], call["status"], call["output"]) for call in items(response, "mcp_call")] == [
        ("pay_bill", "completed", PAID),
        ("read_meter", "completed", METER),
    ]
    assert [call.tool for call in outlast.mcp.calls] == ["pay_bill", "read_meter"]
    assert response["status"] == "completed"
    # The cut round, the one that asks for the other tool, the answer.
    assert len(outlast.model.requests) == 3
    assert await outlast.workers_of(response["id"]) == {first.pid, second.pid}
