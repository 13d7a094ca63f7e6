"""`POST /v1/responses`: JSON, streams, background, and what the run is started with."""

import asyncio
from dataclasses import replace

import pytest

from outlast.contracts import RunInput
from outlast.loop.state import ApprovalMode, Phase
from outlast.protocol.errors import Unavailable, UpstreamRateLimited, UpstreamRefused
from outlast.store.base import Commit, Ending
from tests.support.api_client import frames
from tests.support.fake_runs import message
from tests.unit.api.conftest import World


async def test_json_answers_with_the_terminal_object(world: World) -> None:
    """The object the run ended with, the same as GET shows later."""
    world.runs.play(lambda rid: world.activities.say(rid, "Hello."))
    created = await world.openai.responses.create(model="demo", input="hi", instructions="be brief")
    assert (created.status, created.output_text, created.instructions) == ("completed", "Hello.", "be brief")
    assert created.usage is not None
    assert created.usage.total_tokens == 5
    assert (await world.openai.responses.retrieve(created.id)).model_dump() == created.model_dump()


async def test_the_run_starts_under_the_response_id_with_budgets_of_the_request(world: World) -> None:
    """What Temporal is given: ids, numbers, flags."""
    world.runs.play(lambda rid: world.activities.say(rid, "ok"))
    created = await world.openai.responses.create(
        model="demo",
        input="hi",
        max_tool_calls=3,
        parallel_tool_calls=False,
        extra_body={"outlast": {"budget": {"max_rounds": 2, "max_total_tokens": 99, "max_seconds": 10}}},
    )
    ((workflow_id, run),) = world.runs.started
    assert workflow_id == created.id == run.state.response_id
    assert (run.tenant, run.model, run.state.phase) == ("default", "demo", Phase.MODEL)
    budgets = run.state.budgets
    assert (budgets.max_rounds, budgets.max_tool_calls, budgets.max_total_tokens) == (2, 3, 99)
    assert budgets.parallel == 1
    assert budgets.deadline == run.state.now + 10


async def test_a_stream_is_numbered_typed_and_ends_with_done(world: World) -> None:
    """Every frame, in order, once; `[DONE]` last."""
    world.runs.play(lambda rid: world.activities.say(rid, "Hi there."))
    answer = await world.http.post("/v1/responses", json={"model": "demo", "input": "hi", "stream": True})
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert answer.headers["cache-control"] == "no-cache"
    assert answer.headers["x-accel-buffering"] == "no"
    shown = frames(answer.text)
    assert [event.name for event in shown] == [event.data["type"] for event in shown]
    assert [event.data["sequence_number"] for event in shown] == list(range(len(shown)))
    assert [event.name for event in shown] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ]
    assert shown[0].data["response"]["id"] == answer.headers["x-outlast-response-id"]


async def test_the_official_accumulator_reads_the_stream(world: World) -> None:
    """`client.responses.stream` builds the final response."""
    world.runs.play(lambda rid: world.activities.say(rid, "Hi there."))
    async with world.openai.responses.stream(model="demo", input="hi") as stream:
        final = await stream.get_final_response()
    assert final.output_text == "Hi there."


async def test_background_answers_at_once_and_is_polled(world: World) -> None:
    """Queued, then what the run makes of it."""
    done = asyncio.Event()

    async def part(response_id: str) -> None:
        await done.wait()
        await world.activities.say(response_id, "later")

    world.runs.play(part)
    created = await world.openai.responses.create(model="demo", input="hi", background=True)
    assert (created.status, created.output) == ("queued", [])
    done.set()
    await world.runs.settle()
    assert (await world.openai.responses.retrieve(created.id)).output_text == "later"


async def test_a_background_stream_begins_queued(world: World) -> None:
    """created (queued), queued, in_progress, …"""
    world.runs.play(lambda rid: world.activities.say(rid, "later"))
    body = {"model": "demo", "input": "hi", "stream": True, "background": True}
    shown = frames((await world.http.post("/v1/responses", json=body)).text)
    assert [event.name for event in shown[:3]] == ["response.created", "response.queued", "response.in_progress"]
    assert shown[0].data["response"]["status"] == "queued"


async def test_headers_wait_for_the_first_event_after_in_progress(world: World) -> None:
    """Until something is committed the status code is open: a refusal becomes the HTTP error."""
    world.runs.play(lambda rid: world.activities.fail(rid, UpstreamRefused("bad schema", upstream_status=422)))
    answer = await world.http.post("/v1/responses", json={"model": "demo", "input": "hi", "stream": True})
    assert answer.status_code == 400
    assert answer.json() == {
        "error": {"message": "bad schema", "type": "invalid_request_error", "param": None, "code": "upstream_error"}
    }
    assert answer.headers["x-should-retry"] == "false"
    failed = await world.http.get(f"/v1/responses/{answer.headers['x-outlast-response-id']}")
    assert failed.json()["status"] == "failed"
    assert failed.json()["error"] == {
        "code": "invalid_prompt",
        "message": "bad schema",
        "type": "invalid_request_error",
    }


async def test_headers_leave_after_a_second_without_events(world: World) -> None:
    """A slow model: the client sees created and in_progress, and a later refusal is a terminal event."""
    refuse = asyncio.Event()

    async def part(response_id: str) -> None:
        await refuse.wait()
        await world.activities.fail(response_id, UpstreamRefused("too late", upstream_status=400))

    world.runs.play(part)
    body = {"model": "demo", "input": "hi", "stream": True}
    # A hold of more would give up; the model goes on in any case, or the server of the test would wait for it.
    asyncio.get_running_loop().call_later(8, refuse.set)
    async with world.http.stream("POST", "/v1/responses", json=body) as answer:
        assert answer.status_code == 200
        refuse.set()
        text = "".join([chunk async for chunk in answer.aiter_text()])
    assert [event.name for event in frames(text)] == ["response.created", "response.in_progress", "response.failed"]


async def test_json_of_a_run_that_failed_before_anything_is_an_http_error(world: World) -> None:
    """A rate limit keeps its Retry-After beside x-should-retry: false."""
    error = UpstreamRateLimited("slow down", retry_after=7)
    world.runs.play(lambda rid: world.activities.fail(rid, error))
    answer = await world.http.post("/v1/responses", json={"model": "demo", "input": "hi"})
    assert answer.status_code == 429
    assert answer.headers["retry-after"] == "7"
    assert answer.headers["x-should-retry"] == "false"
    assert answer.json()["error"]["type"] == "rate_limit_error"


@pytest.mark.parametrize("stream", [False, True])
async def test_a_failure_after_a_committed_item_is_a_failed_response(world: World, stream: bool) -> None:
    """200: SDKs would repeat a 5xx, and with it what was done already."""
    error = UpstreamRateLimited("slow down", retry_after=7)
    world.runs.play(lambda rid: world.activities.fail(rid, error, message("so far")))
    answer = await world.http.post("/v1/responses", json={"model": "demo", "input": "hi", "stream": stream})
    assert answer.status_code == 200
    body = frames(answer.text)[-1].data["response"] if stream else answer.json()
    assert body["status"] == "failed"
    assert body["error"] == {"code": "rate_limit_exceeded", "message": "slow down", "type": "rate_limit_error"}
    assert [item["type"] for item in body["output"]] == ["message"]


async def test_a_failure_after_an_abandoned_piece_is_an_http_error(world: World) -> None:
    """Nothing of it is kept by anybody: a repeat does the same again."""

    async def part(response_id: str) -> None:
        handle = await world.activities.begin(response_id, "llm:1")
        await world.store.append(handle, message("so f")[:3], Commit())
        row = {"code": "server_error", "message": "lost", "http": {"status": 502}}
        await world.store.end("default", response_id, Ending("failed", error=row))

    world.runs.play(part)
    answer = await world.http.post("/v1/responses", json={"model": "demo", "input": "hi"})
    assert (answer.status_code, answer.json()["error"]["message"]) == (502, "lost")
    failed = (await world.http.get(f"/v1/responses/{answer.headers['x-outlast-response-id']}")).json()
    assert [item["status"] for item in failed["output"]] == ["incomplete"]


async def test_a_caller_without_the_role_creates_nothing(world: World) -> None:
    """403 that names it."""
    answer = await world.http.post(
        "/v1/responses", json={"model": "demo", "input": "hi"}, headers={"x-roles": "approver"}
    )
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "forbidden")
    assert "'caller'" in answer.json()["error"]["message"]
    assert world.runs.started == []


@pytest.mark.parametrize(("wait", "header"), [(0.2, "1"), (1.2, "2"), (7, "7")])
async def test_retry_after_is_whole_seconds_and_never_too_early(world: World, wait: float, header: str) -> None:
    """And never 0, at which clients come back at once."""
    world.runs.play(lambda rid: world.activities.fail(rid, UpstreamRateLimited("slow down", retry_after=wait)))
    answer = await world.http.post("/v1/responses", json={"model": "demo", "input": "hi"})
    assert answer.headers["retry-after"] == header


async def test_a_start_that_fails_ends_the_foreground_response(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """503 with Retry-After; the row is ended, so a start that did arrive finds nothing to do."""
    tried: list[str] = []

    async def start(run: RunInput, workflow_id: str) -> None:
        tried.append(workflow_id)
        raise Unavailable("Temporal did not take the run. Try again.", retry_after=1)

    monkeypatch.setattr(world.runs, "start", start)
    answer = await world.http.post("/v1/responses", json={"model": "demo", "input": "hi"})
    ended = await world.store.get("default", *tried)
    assert ended is not None
    assert ended.status == "failed"
    assert answer.status_code == 503
    assert answer.headers["retry-after"] == "1"
    assert answer.json()["error"]["code"] == "unavailable"


async def test_a_start_that_fails_leaves_a_background_response_queued(world: World) -> None:
    """The sweeper starts it when Temporal is back."""
    world.runs.up = False
    created = await world.openai.responses.create(model="demo", input="hi", background=True)
    assert (await world.openai.responses.retrieve(created.id)).status == "queued"


async def test_without_a_live_worker_foreground_is_refused_and_background_is_taken(world: World) -> None:
    """Nobody would run it: 503 with Retry-After; background waits for a worker."""
    world.clock.ahead = 1_000
    answer = await world.http.post("/v1/responses", json={"model": "demo", "input": "hi"})
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
    assert world.runs.started == []
    created = await world.openai.responses.create(model="demo", input="hi", background=True)
    assert created.status == "queued"


async def test_nothing_of_store_false_is_readable_afterwards(world: World) -> None:
    """Purged once the terminal frame is out; never a previous response."""
    world.runs.play(lambda rid: world.activities.say(rid, "secret"))
    answer = await world.http.post("/v1/responses", json={"model": "demo", "input": "hi", "store": False})
    response_id = answer.json()["id"]
    assert answer.json()["store"] is False
    assert await world.store.get("default", response_id) is None
    for method, path in (("GET", ""), ("GET", "/input_items"), ("POST", "/cancel"), ("DELETE", "")):
        gone = await world.http.request(method, f"/v1/responses/{response_id}{path}")
        assert gone.status_code == 404, path
    chained = await world.http.post(
        "/v1/responses", json={"model": "demo", "input": "hi", "previous_response_id": response_id}
    )
    assert chained.json()["error"]["code"] == "previous_response_not_found"


async def test_nothing_of_store_false_is_readable_while_it_runs(world: World) -> None:
    """Its reader has it, and nobody else."""
    doors = (("GET", ""), ("GET", "?stream=true"), ("GET", "/input_items"), ("POST", "/cancel"), ("DELETE", ""))
    answered: list[int] = []

    async def part(response_id: str) -> None:
        async with asyncio.timeout(20):
            for method, path in doors:
                async with world.http.stream(method, f"/v1/responses/{response_id}{path}") as answer:
                    answered.append(answer.status_code)
        await world.activities.say(response_id, "secret")

    world.runs.play(part)
    answer = await world.http.post("/v1/responses", json={"model": "demo", "input": "hi", "store": False})
    assert answer.json()["status"] == "completed"
    assert answered == [404] * len(doors)


async def test_a_client_that_leaves_does_not_stop_the_run(world: World) -> None:
    """The stream is one reader: the run goes on and its events are kept."""
    leave, left = asyncio.Event(), asyncio.Event()

    async def part(response_id: str) -> None:
        handle = await world.activities.begin(response_id, "llm:1")
        await world.store.append(handle, message("first"), Commit())
        leave.set()
        await left.wait()
        await world.activities.say(response_id, "second")

    world.runs.play(part)
    body = {"model": "demo", "input": "hi", "stream": True}
    async with world.http.stream("POST", "/v1/responses", json=body) as answer:
        response_id = answer.headers["x-outlast-response-id"]
        await leave.wait()
    left.set()
    await world.runs.settle()
    shown = frames((await world.http.get(f"/v1/responses/{response_id}?stream=true")).text)
    assert [event.data["sequence_number"] for event in shown] == list(range(len(shown)))
    assert shown[-1].name == "response.completed"


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "json"])
async def test_a_client_that_leaves_ends_a_response_nobody_stores(world: World, stream: bool) -> None:
    """`store: false` has one reader: without it the run is cancelled and nothing of it is kept."""
    shown, ended = asyncio.Event(), asyncio.Event()
    made: list[str] = []

    async def part(response_id: str) -> None:
        made.append(response_id)
        handle = await world.activities.begin(response_id, "llm:1")
        await world.store.append(handle, message("first"), Commit())
        shown.set()
        async for _ in world.store.follow("default", response_id, -1):
            pass
        ended.set()

    world.runs.play(part)
    body = {"model": "demo", "input": "hi", "stream": stream, "store": False}
    asking = asyncio.create_task(world.http.post("/v1/responses", json=body))
    await shown.wait()
    asking.cancel()
    await ended.wait()
    await world.runs.settle()
    while not world.runs.cancelled:  # noqa: ASYNC110  # the clean-up tells nobody
        await asyncio.sleep(0)
    assert world.runs.cancelled == made
    while await world.store.get("default", made[0]) is not None:  # noqa: ASYNC110
        await asyncio.sleep(0)


async def test_credentials_are_sealed_apart_from_the_request(world: World) -> None:
    """The echo has no secret; the row names where they are."""
    tool = {
        "type": "mcp",
        "server_label": "desk",
        "server_url": "http://desk.test/mcp",
        "authorization": "tok",
        "headers": {"x-shop": "7"},
    }
    sealed: dict[str, str] = {}

    async def part(response_id: str) -> None:
        record = await world.store.get("default", response_id)
        assert record is not None
        secret = await world.store.secret("default", record.credentials["desk"])
        sealed.update(secret or {})
        await world.activities.say(response_id, "ok")

    world.runs.play(part)
    answer = await world.http.post("/v1/responses", json={"model": "demo", "input": "hi", "tools": [tool]})
    assert sealed == {"x-shop": "7", "Authorization": "Bearer tok"}
    assert answer.json()["tools"] == [{"type": "mcp", "server_label": "desk", "server_url": "http://desk.test/mcp"}]


@pytest.mark.parametrize(
    "world",
    [lambda services: replace(services, approvals=replace(services.approvals, mode=ApprovalMode.WAIT))],
    indirect=True,
)
@pytest.mark.parametrize(
    ("body", "mode"), [({}, "respond"), ({"stream": True}, "wait"), ({"background": True}, "wait")]
)
async def test_a_configured_wait_mode_falls_back_where_nobody_can_wait(
    world: World, body: dict[str, bool], mode: str
) -> None:
    """Plain JSON asks in `respond` mode."""
    world.runs.play(lambda rid: world.activities.say(rid, "ok"))
    answer = await world.http.post("/v1/responses", json={"model": "demo", "input": "hi", **body})
    assert answer.status_code == 200
    ((_, run),) = world.runs.started
    assert run.state.mode == mode
