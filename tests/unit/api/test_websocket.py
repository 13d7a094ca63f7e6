"""WebSocket mode without a model: what a connection refuses, and what it holds at most."""

import asyncio
import contextlib
import dataclasses
import json
from collections.abc import AsyncIterator

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidStatus

import api.websocket
from outlast.protocol.json import JsonObject
from outlast.protocol.requests import RequestLimits
from tests.unit.api.conftest import World
from tests.unit.api.test_continuations import asked


@contextlib.asynccontextmanager
async def opened(world: World) -> AsyncIterator[ClientConnection]:
    """A raw connection."""
    async with connect(f"{world.url.replace('http', 'ws')}/v1/responses") as connection:
        yield connection


async def heard(connection: ClientConnection) -> JsonObject:
    """The next message."""
    return dict(json.loads(await connection.recv()))


def wanted(**more: object) -> str:
    """A request."""
    return json.dumps({"type": "response.create", "model": "demo", "input": "hi", **more})


@pytest.mark.parametrize("origin", ["https://evil.test", "null", "http://127.0.0.1:1"])
async def test_a_page_of_another_site_cannot_connect(world: World, origin: str) -> None:
    """A browser would let it read everything; the same site may, and so may who sends no origin."""
    url = f"{world.url.replace('http', 'ws')}/v1/responses"
    with pytest.raises(InvalidStatus) as refused:
        await connect(url, additional_headers={"Origin": origin}).__aenter__()
    answer = refused.value.response
    assert (answer.status_code, json.loads(answer.body)["error"]["code"]) == (403, "forbidden")
    async with connect(url, additional_headers={"Origin": world.url}) as connection:
        await connection.send("{")
        assert (await heard(connection))["error"]["code"] == "invalid_json"


async def test_a_caller_without_the_role_creates_nothing(world: World) -> None:
    """The connection is anybody's, a request on it is a caller's."""
    url = f"{world.url.replace('http', 'ws')}/v1/responses"
    async with connect(url, additional_headers={"x-roles": "approver"}) as connection:
        await connection.send(wanted())
        refused = await heard(connection)
    assert (refused["status"], refused["error"]["code"]) == (403, "forbidden")
    assert world.runs.started == []


async def test_preparing_does_not_use_up_decisions_made_elsewhere(world: World) -> None:
    """Nothing would run the approved call: refused by name, the ask stays free and its run parked."""
    previous, (name,) = await asked(world)
    await world.http.post(f"/v1/approvals/{name}", json={"approve": True})
    async with opened(world) as connection:
        await connection.send(wanted(previous_response_id=previous, generate=False))
        refused = await heard(connection)
    assert (refused["status"], refused["error"]["param"]) == (400, "generate")
    ask = await world.store.approval("default", name)
    assert ask is not None
    assert (ask.status, ask.taken_by) == ("approved", None)
    assert await world.store.parked_on("default", previous) == previous


@pytest.mark.parametrize(
    "world",
    [lambda services: dataclasses.replace(services, limits=RequestLimits(max_body_bytes=1_000))],
    indirect=True,
)
async def test_a_message_over_the_limit_is_refused_before_it_waits(open_world: World) -> None:
    """413 with the name of the limit; the connection goes on."""
    async with opened(open_world) as connection:
        await connection.send(wanted(input="x" * 1_000))
        refused = await heard(connection)
        await connection.send(wanted())
        goes_on = await heard(connection)
    assert (refused["status"], refused["error"]["code"]) == (413, "payload_too_large")
    assert "limits.max_body_bytes" in refused["error"]["message"]
    assert goes_on["type"] == "response.created"


async def test_a_message_nobody_could_write_again_is_the_clients_fault(world: World) -> None:
    """Nested too deeply: 400 as over HTTP, no internal error."""
    nested = "[" * 400 + "]" * 400
    async with opened(world) as connection:
        await connection.send(f'{{"type": "response.create", "model": "demo", "input": {nested}}}')
        refused = await heard(connection)
    assert (refused["status"], refused["error"]["code"]) == (400, "invalid_request_error")
    assert "200 levels" in refused["error"]["message"]


async def test_only_so_many_requests_wait_whatever_their_lanes(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two lanes at work, two requests waiting: the next is refused under its lane's name."""
    monkeypatch.setattr(api.websocket, "_MAX_WAITING", 2)
    async with opened(world) as connection:
        for lane in ("a", "b"):
            await connection.send(wanted(stream_id=lane))
            assert [(await heard(connection))["type"] for _ in range(2)] == ["response.created", "response.in_progress"]
        for lane in ("a", "b", "a"):
            await connection.send(wanted(stream_id=lane))
        refused = await heard(connection)
    assert (refused["stream_id"], refused["status"]) == ("a", 400)
    assert "At most 2 requests" in refused["error"]["message"]


@pytest.mark.parametrize("world", [lambda services: dataclasses.replace(services, skip_tools=True)], indirect=True)
async def test_tools_a_model_cannot_have_are_named_with_the_first_event(world: World) -> None:
    """Where HTTP has a header; the log itself does not change."""
    async with opened(world) as connection:
        await connection.send(wanted(tools=[{"type": "web_search"}], stream_id="a"))
        created, going = [await heard(connection) for _ in range(2)]
    assert created["headers"] == {"x-outlast-warning": "tools left out: web_search"}
    assert (created["type"], created["stream_id"], "headers" in going) == ("response.created", "a", False)


async def test_what_nobody_stores_is_kept_as_long_as_its_connection_may_continue_it(world: World) -> None:
    """Up to the next of its lane, and to the end of the connection."""
    ids: list[str] = []
    async with opened(world) as connection:
        for previous in (None, "newest"):
            more = {} if previous is None else {"previous_response_id": ids[-1]}
            await connection.send(wanted(store=False, generate=False, **more))
            events = [await heard(connection) for _ in range(3)]
            ids.append(events[-1]["response"]["id"])
        await connection.send(wanted(store=False, generate=False, previous_response_id=ids[0]))
        refused = await heard(connection)
        kept = [await world.store.get("default", each) is not None for each in ids]
        chain = await world.store.chain("default", ids[1])
    assert refused["error"]["code"] == "previous_response_not_found"
    assert (kept, len(chain)) == ([False, True], 2)
    while await world.store.get("default", ids[1]) is not None:  # noqa: ASYNC110  # the clean-up tells nobody
        await asyncio.sleep(0)
