"""The same POST twice: `Idempotency-Key`, and retries that clients mark as such."""

import asyncio
from dataclasses import replace
from typing import Any

import httpx
import pytest

from api.app import create_app
from api.readers import Readers
from outlast.protocol.errors import UpstreamRateLimited
from outlast.store.base import Commit, Created, NewResponse
from tests.support import api_client
from tests.support.api_client import frames
from tests.support.fake_runs import message
from tests.unit.api.conftest import World

KEY = "idempotency-key"
RETRY = {"x-stainless-retry-count": "1"}


async def post(world: World, headers: dict[str, str], **body: Any) -> httpx.Response:
    """One request; equal bodies are equal bytes."""
    return await world.http.post("/v1/responses", json={"model": "demo", "input": "hi", **body}, headers=headers)


def says(world: World, text: str) -> None:
    """What the next run answers."""
    world.runs.play(lambda response_id: world.activities.say(response_id, text))


def interrupted(world: World) -> asyncio.Event:
    """The next run says something and waits for this before it goes on."""
    go = asyncio.Event()

    async def part(response_id: str) -> None:
        handle = await world.activities.begin(response_id, "llm:1")
        await world.store.append(handle, message("so far"), Commit())
        await go.wait()
        await world.activities.say(response_id, "the rest")

    world.runs.play(part)
    return go


async def count(world: World) -> int:
    """Runs that were started."""
    await world.runs.settle()
    return len(world.runs.started)


async def test_the_same_key_and_body_answer_with_the_finished_response(world: World) -> None:
    """Once run, twice answered, byte for byte; also when nobody could run it any more."""
    says(world, "Hello.")
    first = await post(world, {KEY: "once"})
    world.clock.ahead = 1_000  # no worker is alive
    again = await post(world, {KEY: "once"})
    assert (again.status_code, again.content) == (200, first.content)
    assert again.headers["x-outlast-response-id"] == first.json()["id"]
    assert await count(world) == 1


async def test_a_repeated_stream_begins_at_its_first_event(world: World) -> None:
    """The bytes of the first reader."""
    says(world, "Hello.")
    first = await post(world, {KEY: "stream"}, stream=True)
    again = await post(world, {KEY: "stream"}, stream=True)
    assert again.content == first.content
    assert frames(again.text)[0].data["sequence_number"] == 0
    assert await count(world) == 1


async def test_a_repeated_background_request_shows_the_response_as_it_is(world: World) -> None:
    """Queued while it waits, the whole object when it is done."""
    done = asyncio.Event()

    async def part(response_id: str) -> None:
        await done.wait()
        await world.activities.say(response_id, "later")

    world.runs.play(part)
    first = (await post(world, {KEY: "background"}, background=True)).json()
    assert (await post(world, {KEY: "background"}, background=True)).json() == first
    done.set()
    assert await count(world) == 1
    ended = (await post(world, {KEY: "background"}, background=True)).json()
    assert ended == (await world.http.get(f"/v1/responses/{first['id']}")).json()
    assert (ended["status"], ended["output"][0]["content"][0]["text"]) == ("completed", "later")


async def test_twenty_at_once_are_one_response(world: World) -> None:
    """Those that come while it runs wait for its end with the first."""
    says(world, "Hello.")
    answers = await asyncio.gather(*(post(world, {KEY: "race"}) for _ in range(20)))
    assert {answer.status_code for answer in answers} == {200}
    assert len({answer.content for answer in answers}) == 1
    assert await count(world) == 1


async def test_a_key_with_another_body_is_refused(world: World) -> None:
    """By its own code, before anything in the body is looked at."""
    says(world, "Hello.")
    first = (await post(world, {KEY: "other"})).json()
    refused = await world.http.post("/v1/responses", content=b"{", headers={KEY: "other"})
    assert refused.status_code == 400
    error = refused.json()["error"]
    assert (error["code"], error["param"]) == ("idempotency_key_reused", "Idempotency-Key")
    assert first["id"] in error["message"]
    stranger = await post(world, {KEY: "other", "x-tenant": "stranger"}, background=True)
    assert stranger.json()["id"] != first["id"]


@pytest.mark.parametrize("key", ["", "k" * 256, "a\tb", "ü"], ids=["empty", "long", "control", "beyond-ascii"])
async def test_a_key_that_is_none_is_refused_by_its_limit(world: World, key: str) -> None:
    """What it may be, and how long this one is."""
    answer = await world.http.post("/v1/responses", json={}, headers=[(KEY.encode(), key.encode())])
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "Idempotency-Key"
    assert "1 to 255 printable ASCII characters" in answer.json()["error"]["message"]


async def test_a_refused_request_has_not_used_its_key(world: World) -> None:
    """Nor has one whose run Temporal did not take: both may be sent again, corrected or not."""
    assert (await post(world, {KEY: "free"}, model="nobody")).status_code == 404
    world.runs.up = False
    assert (await post(world, {KEY: "free"})).status_code == 503
    world.runs.up = True
    says(world, "Hello.")
    assert (await post(world, {KEY: "free"})).json()["status"] == "completed"
    assert await count(world) == 1


async def test_a_failure_is_answered_again_as_it_was(world: World) -> None:
    """The upstream has refused after our own tries: the same HTTP error, and no other run."""
    error = UpstreamRateLimited("slow down", retry_after=7)

    async def part(response_id: str) -> None:
        await world.activities.begin(response_id, "llm:1")
        await world.activities.fail(response_id, error)

    world.runs.play(part)
    first = await post(world, {KEY: "fails"})
    again = await post(world, {KEY: "fails"})
    assert (first.status_code, again.status_code) == (429, 429)
    assert again.content == first.content
    assert again.headers["x-should-retry"] == "false"
    assert await count(world) == 1


@pytest.mark.parametrize("stored", [True, False], ids=["deleted", "not-stored"])
async def test_a_key_whose_response_is_gone_says_so(world: World, stored: bool) -> None:
    """4xx, and nothing is run a second time in silence."""
    says(world, "Hello.")
    key = {KEY: f"gone-{stored}"}
    first = (await post(world, key, store=stored)).json()
    if stored:
        await world.http.delete(f"/v1/responses/{first['id']}")
    answer = await post(world, key, store=stored)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "idempotency_key_spent")
    assert first["id"] in answer.json()["error"]["message"]
    assert await count(world) == 1


async def test_a_racer_that_has_ended_and_is_not_kept_is_not_joined(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its key was free when this request came and taken when it wrote; its rows are purged any moment."""

    async def late(*_: object) -> bool:
        return False

    async def free(*_: object) -> None:
        monkeypatch.undo()

    monkeypatch.setattr(world.store, "purge", late)
    says(world, "Hello.")
    first = await post(world, {KEY: "raced"}, store=False)
    monkeypatch.setattr(world.store, "by_key", free)
    answer = await post(world, {KEY: "raced"}, store=False)
    assert (first.status_code, answer.status_code) == (200, 400)
    assert answer.json()["error"]["code"] == "idempotency_key_spent"
    assert await count(world) == 1


# -- what clients send again by themselves -----------------------------------------------------------------------------


async def test_a_marked_retry_joins_the_run_it_repeats(world: World) -> None:
    """While it runs, and when it is done; a stream from its first event."""
    go = interrupted(world)
    body = {"input": "marked", "stream": True}
    async with world.http.stream("POST", "/v1/responses", json={"model": "demo", **body}) as cut:
        response_id = cut.headers["x-outlast-response-id"]
        retry = asyncio.create_task(world.http.post("/v1/responses", json={"model": "demo", **body}, headers=RETRY))
        first = await anext(cut.aiter_text())
    go.set()
    again = await retry
    assert again.headers["x-outlast-response-id"] == response_id
    assert again.text.startswith(first)
    assert frames(again.text)[-1].name == "response.completed"
    late = await post(world, RETRY, **body)
    assert late.content == again.content
    assert await count(world) == 1


@pytest.mark.parametrize(
    ("why", "headers", "ahead"),
    [
        ("unmarked", {"x-stainless-retry-count": "0"}, 0),
        ("nonsense", {"x-stainless-retry-count": "many"}, 0),
        ("another key", {**RETRY, "x-key": "other"}, 0),
        ("another tenant", {**RETRY, "x-tenant": "stranger"}, 0),
        ("old", RETRY, 901),
    ],
)
async def test_what_is_no_retry_of_it_is_a_new_request(
    world: World, why: str, headers: dict[str, str], ahead: int
) -> None:
    """Two people who say the same must get two answers."""
    first = (await post(world, {}, input=why, background=True)).json()
    world.clock.ahead = ahead
    assert (await post(world, headers, input=why, background=True)).json()["id"] != first["id"]
    assert await count(world) == 2


async def test_a_retry_of_a_failed_response_runs_again(world: World) -> None:
    """That is what it asks for."""
    error = UpstreamRateLimited("slow down", retry_after=1)
    world.runs.play(lambda response_id: world.activities.fail(response_id, error))
    assert (await post(world, {}, input="failed")).status_code == 429
    says(world, "now")
    assert (await post(world, RETRY, input="failed")).json()["status"] == "completed"
    assert await count(world) == 2


async def test_a_response_that_is_not_stored_can_be_joined_while_its_reader_is_there(world: World) -> None:
    """Whose leaving does not end it for the second; when both have it nothing is kept, and a retry is a new run."""
    go = interrupted(world)
    body = {"model": "demo", "input": "not kept", "stream": True, "store": False}
    async with world.http.stream("POST", "/v1/responses", json=body) as cut:
        response_id = cut.headers["x-outlast-response-id"]
        async with world.http.stream("POST", "/v1/responses", json=body, headers=RETRY) as again:
            assert again.headers["x-outlast-response-id"] == response_id
            await cut.aclose()
            go.set()
            shown = frames("".join([text async for text in again.aiter_text()]))
    assert shown[-1].name == "response.completed"
    await world.runs.settle()
    while await world.store.get("default", response_id) is not None:  # noqa: ASYNC110  # the clean-up tells nobody
        await asyncio.sleep(0.01)
    says(world, "new")
    late = await world.http.post("/v1/responses", json=body, headers=RETRY)
    assert late.headers["x-outlast-response-id"] != response_id


async def test_who_joins_through_another_process_does_not_end_it_for_the_first(world: World) -> None:
    """That process does not know of the connection a `store: false` response lives by."""
    go = interrupted(world)
    body = {"model": "demo", "input": "shared", "stream": True, "store": False}
    other = create_app(replace(world.app.state.services, readers=Readers()))
    async with world.http.stream("POST", "/v1/responses", json=body, headers={KEY: "two doors"}) as first:
        response_id = first.headers["x-outlast-response-id"]
        # Closed with its server, which ends what it has begun first.
        async with (
            api_client.serve(other) as url,
            api_client.raw(url) as http,
            http.stream("POST", "/v1/responses", json=body, headers={KEY: "two doors"}) as second,
        ):
            assert second.headers["x-outlast-response-id"] == response_id
        go.set()
        shown = frames("".join([text async for text in first.aiter_text()]))
    assert shown[-1].name == "response.completed"


async def test_a_marked_retry_that_overtakes_its_first_waits_for_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first has no row yet when the second comes: one run all the same."""
    says(world, "Hello.")
    arrived, go, create = asyncio.Event(), asyncio.Event(), world.store.create

    async def slow(new: NewResponse) -> Created:
        arrived.set()
        await go.wait()
        return await create(new)

    monkeypatch.setattr(world.store, "create", slow)
    first = asyncio.create_task(post(world, {}))
    await arrived.wait()
    again = asyncio.create_task(post(world, RETRY))
    # It has come as far as the next request, which needs no row.
    await world.http.get("/v1/models")
    go.set()
    assert (await again).content == (await first).content
    assert await count(world) == 1
