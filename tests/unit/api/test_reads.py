"""GET, resume, input_items, cancel, DELETE."""

import asyncio

import pytest

from outlast.store.base import Commit, Ending
from tests.support.api_client import frames
from tests.support.fake_runs import approval, message
from tests.unit.api.conftest import World


async def test_a_stream_is_resumed_from_every_cut(world: World) -> None:
    """Bytes after N are those the first reader got."""
    world.runs.play(lambda rid: world.activities.say(rid, "Hi there."))
    first = await world.http.post("/v1/responses", json={"model": "demo", "input": "hi", "stream": True})
    path = f"/v1/responses/{first.headers['x-outlast-response-id']}?stream=true"
    blocks = first.text.split("\n\n")
    for cut in range(len(blocks) - 2):
        again = await world.http.get(f"{path}&starting_after={cut}")
        assert again.text == "\n\n".join(blocks[cut + 1 :]), cut


async def test_a_running_response_is_tailed_by_a_second_reader(world: World) -> None:
    """Replay and tail are one."""
    shown, go_on = asyncio.Event(), asyncio.Event()

    async def part(response_id: str) -> None:
        handle = await world.activities.begin(response_id, "llm:1")
        await world.store.append(handle, message("one"), Commit())
        shown.set()
        await go_on.wait()
        await world.activities.finish(handle, message("two"), Ending("completed", completed_at=2))

    world.runs.play(part)
    created = await world.openai.responses.create(model="demo", input="hi", background=True)
    await shown.wait()
    texts = []
    async for event in await world.openai.responses.retrieve(created.id, stream=True, starting_after=3):
        texts.append(event.sequence_number)
        go_on.set()
    assert texts == list(range(4, 15))


async def test_input_items_are_paged_newest_first(world: World) -> None:
    """The whole chain before the response, by the official client's pages of two."""
    world.runs.play(*[lambda rid: world.activities.say(rid, "yes")] * 2)
    first = await world.openai.responses.create(model="demo", input=[{"role": "user", "content": "one"}])
    second = await world.openai.responses.create(
        model="demo",
        input=[{"role": "user", "content": "two"}, {"role": "user", "content": "three"}],
        previous_response_id=first.id,
    )
    pages = [item async for item in world.openai.responses.input_items.list(second.id, limit=2)]
    texts = [item.model_dump()["content"][0]["text"] for item in pages]
    assert texts == ["three", "two", "yes", "one"]
    oldest = await world.http.get(f"/v1/responses/{second.id}/input_items?order=asc&limit=3")
    body = oldest.json()
    assert [item["content"][0]["text"] for item in body["data"]] == ["one", "yes", "two"]
    assert body["has_more"] is True
    assert (body["first_id"], body["last_id"]) == (body["data"][0]["id"], body["data"][-1]["id"])
    wrong = await world.http.get(f"/v1/responses/{second.id}/input_items?after=msg_0")
    assert (wrong.status_code, wrong.json()["error"]["param"]) == (400, "after")


async def test_cancel_ends_the_row_then_tells_the_run(world: World) -> None:
    """The stream of a cancelled response ends with `response.incomplete`; cancelling again answers it as it is."""
    created = await world.openai.responses.create(model="demo", input="hi", background=True)
    cancelled = await world.openai.responses.cancel(created.id)
    assert cancelled.status == "cancelled"
    assert world.runs.cancelled == [created.id]
    assert (await world.openai.responses.cancel(created.id)).model_dump() == cancelled.model_dump()
    last = frames((await world.http.get(f"/v1/responses/{created.id}?stream=true")).text)[-1]
    assert (last.name, last.data["response"]["status"]) == ("response.incomplete", "cancelled")


async def test_cancel_stands_when_temporal_is_away(world: World) -> None:
    """The row decides."""
    created = await world.openai.responses.create(model="demo", input="hi", background=True)
    world.runs.up = False
    assert (await world.openai.responses.cancel(created.id)).status == "cancelled"


async def test_a_foreground_response_cannot_be_cancelled(world: World) -> None:
    """400 that says why, finished or not."""
    world.runs.play(lambda rid: world.activities.say(rid, "ok"))
    created = await world.openai.responses.create(model="demo", input="hi")
    answer = await world.http.post(f"/v1/responses/{created.id}/cancel")
    assert answer.status_code == 400
    assert "background" in answer.json()["error"]["message"]


async def test_delete_cancels_hides_and_closes_the_parked_run(world: World) -> None:
    """A running one is cancelled first; a parked run has nobody left to wait for."""
    running = await world.openai.responses.create(model="demo", input="hi", background=True)
    world.runs.play(lambda rid: world.activities.ask(rid, approval(rid, "mcpr_delete")))
    parked = await world.openai.responses.create(model="demo", input="hi")
    for response_id in (running.id, parked.id):
        answer = await world.http.delete(f"/v1/responses/{response_id}")
        assert answer.json() == {"id": response_id, "object": "response.deleted", "deleted": True}
        assert (await world.http.get(f"/v1/responses/{response_id}")).status_code == 404
    assert world.runs.cancelled == [running.id, parked.id]
    assert (await world.http.get("/v1/approvals/mcpr_delete")).json()["status"] == "withdrawn"


@pytest.mark.parametrize(
    ("method", "path"), [("GET", ""), ("POST", "/cancel"), ("DELETE", ""), ("GET", "/input_items")]
)
async def test_a_foreign_response_is_unknown(world: World, method: str, path: str) -> None:
    """404, as for an id nobody has."""
    created = await world.openai.responses.create(model="demo", input="hi", background=True)
    answer = await world.http.request(method, f"/v1/responses/{created.id}{path}", headers={"x-tenant": "other"})
    assert answer.status_code == 404


async def test_chaining_from_an_unfinished_response_is_refused(world: World) -> None:
    """400 that says so."""
    created = await world.openai.responses.create(model="demo", input="hi", background=True)
    body = {"model": "demo", "input": "and?", "previous_response_id": created.id}
    error = (await world.http.post("/v1/responses", json=body)).json()["error"]
    assert (error["param"], error["code"]) == ("previous_response_id", "response_in_progress")
    assert "queued" in error["message"]
