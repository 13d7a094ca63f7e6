"""What every answer has, whatever went wrong: the envelope, a request id, no 409 or 422."""

import asyncio
import json
import logging
import re
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import httpx
import pytest
from starlette.types import Message, Send
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from api.sse import EventStream, Tail
from outlast.protocol.json import JsonObject
from outlast.store.base import Frames
from tests.unit.api.conftest import World


def envelope(answer: httpx.Response) -> JsonObject:
    """The error, after checking what every refusal has."""
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-request-id"].startswith("req_")
    assert answer.status_code not in (409, 422)
    body: JsonObject = answer.json()
    assert list(body) == ["error"]
    assert list(body["error"]) == ["message", "type", "param", "code"]
    error: JsonObject = body["error"]
    return error


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/v1/nothing", 404, "unknown_url"),
        ("GET", "/", 404, "unknown_url"),
        ("POST", "/v1/responses/", 404, "unknown_url"),
        ("PUT", "/v1/responses", 405, "method_not_allowed"),
        ("GET", "/v1/responses", 405, "method_not_allowed"),
        ("GET", "/v1/responses/resp_unknown", 404, "not_found"),
        ("GET", "/v1/responses/resp_unknown?stream=true", 404, "not_found"),
        ("DELETE", "/v1/responses/resp_unknown", 404, "not_found"),
        ("POST", "/v1/responses/resp_unknown/cancel", 404, "not_found"),
        ("GET", "/v1/responses/resp_unknown/input_items", 404, "not_found"),
        ("GET", "/v1/responses/resp_unknown/input_items?limit=0", 400, "invalid_value"),
        ("GET", "/v1/responses/resp_unknown?stream=maybe", 400, "invalid_value"),
        ("GET", "/v1/approvals/mcpr_unknown", 404, "not_found"),
        ("GET", "/v1/approvals?status=open", 400, "invalid_value"),
        ("GET", "/v1/models/gpt-9", 404, "model_not_found"),
    ],
)
async def test_the_envelope_is_on_every_path(world: World, method: str, path: str, status: int, code: str) -> None:
    """Routes, methods, parameters, ids."""
    answer = await world.http.request(method, path)
    assert (answer.status_code, envelope(answer)["code"]) == (status, code)


@pytest.mark.parametrize(
    ("body", "status", "param", "code"),
    [
        (b"{", 400, None, "invalid_json"),
        (b"[]", 400, None, "invalid_json"),
        (b'{"model": "gpt-9", "input": "hi"}', 404, "model", "model_not_found"),
        (b'{"model": "demo"}', 400, "input", None),
        (b'{"model": "demo", "input": [{"type": "reasoning"}]}', 400, "input", None),
        (b'{"model": "demo", "input": "hi", "temperature": 9}', 400, "temperature", None),
        (b'{"model": "demo", "input": "hi", "conversation": "conv_1"}', 404, "conversation", "not_found"),
        (b'{"model": "demo", "input": [{"type": "item_reference", "id": "msg_1"}]}', 404, "input[0].id", "not_found"),
        (
            b'{"model": "demo", "input": "hi", "previous_response_id": "resp_1"}',
            400,
            "previous_response_id",
            "previous_response_not_found",
        ),
        (
            b'{"model": "demo", "input": [{"type": "function_call_output", "call_id": "c", "output": "x"}]}',
            400,
            "input",
            None,
        ),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
async def test_bad_input_is_refused_before_anything_is_started(
    world: World, body: bytes, status: int, param: str | None, code: str | None, stream: bool
) -> None:
    """Also of a stream: no 200, no run."""
    if stream and body.endswith(b"}"):
        body = body[:-1] + b', "stream": true}'
    answer = await world.http.post("/v1/responses", content=body)
    error = envelope(answer)
    assert (answer.status_code, error["param"], error["code"]) == (status, param, code)
    assert world.runs.started == []


@pytest.mark.parametrize("chunked", [False, True])
async def test_a_body_over_the_limit_is_refused_by_name(world: World, chunked: bool) -> None:
    """413 that names the limit, announced or streamed in."""
    content = json.dumps({"model": "demo", "input": "x" * 300_000}).encode()

    async def pieces() -> Any:
        for start in range(0, len(content), 50_000):
            yield content[start : start + 50_000]

    answer = await world.http.post("/v1/responses", content=pieces() if chunked else content)
    assert answer.status_code == 413
    assert "limits.max_body_bytes" in envelope(answer)["message"]


async def test_a_bug_shows_a_correlation_id_and_nothing_else(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The stack goes to the log under the same id."""

    async def broken(*_: object) -> None:
        raise KeyError("/secret/path")

    monkeypatch.setattr(world.store, "get", broken)
    with caplog.at_level(logging.ERROR):
        answer = await world.http.get("/v1/responses/resp_1")
    error = envelope(answer)
    assert (answer.status_code, error["type"], error["code"]) == (500, "server_error", "internal_error")
    assert answer.headers["x-request-id"] in error["message"]
    assert "/secret/path" not in answer.text
    assert answer.headers["x-request-id"] in caplog.text
    assert "/secret/path" in caplog.text


async def test_a_reader_that_fails_drops_the_connection(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """No invented terminal event: the client sees a cut body."""
    created = await world.openai.responses.create(model="demo", input="hi", background=True)

    async def broken(*_: object) -> Any:
        raise OSError("store gone")
        yield

    monkeypatch.setattr(world.store, "follow", broken)
    with pytest.raises(httpx.RemoteProtocolError):
        await world.http.get(f"/v1/responses/{created.id}?stream=true")


async def test_a_websocket_elsewhere_is_answered_as_an_unknown_url(world: World) -> None:
    """404 with the envelope and a request id, naming the path that has one."""
    with pytest.raises(InvalidStatus) as refused:
        await connect(f"{world.url.replace('http', 'ws')}/v1/models").__aenter__()
    answer = refused.value.response
    assert (answer.status_code, "x-request-id" in answer.headers) == (404, True)
    error = json.loads(answer.body)["error"]
    assert error["code"] == "unknown_url"
    assert "/v1/responses" in error["message"]


async def test_models_are_the_catalogs_names(world: World) -> None:
    """As the official client pages them."""
    assert [model.id async for model in world.openai.models.list()] == ["demo", "gpt-4.1"]
    assert (await world.openai.models.retrieve("demo")).id == "demo"


async def test_health_and_readiness(world: World) -> None:
    """Ready: Temporal, the store and a worker that beat within 30 s."""
    assert (await world.http.get("/healthz")).json() == {"status": "ok"}
    ready = await world.http.get("/readyz")
    assert (ready.status_code, ready.json()["checks"]) == (200, {"temporal": True, "workers": True, "store": True})
    world.runs.up = False
    world.clock.ahead = 1_000
    unready = await world.http.get("/readyz")
    assert (unready.status_code, unready.headers["retry-after"]) == (503, "1")
    assert unready.json()["checks"] == {"temporal": False, "workers": False, "store": True}


async def test_the_api_describes_itself(world: World) -> None:
    """OpenAPI names every path."""
    paths = (await world.http.get("/openapi.json")).json()["paths"]
    assert {"/v1/responses", "/v1/responses/{response_id}/input_items", "/v1/approvals/{approval_id}"} <= set(paths)


async def test_keepalives_repeat_the_last_number(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A comment for proxies and a data event for clients; neither is in the log."""
    monkeypatch.setattr("api.sse.KEEPALIVE_SECONDS", 0.02)
    kept = asyncio.Event()

    async def part(response_id: str) -> None:
        await kept.wait()
        await world.activities.say(response_id, "done")

    world.runs.play(part)
    text = ""
    body = {"model": "demo", "input": "hi", "stream": True}
    async with world.http.stream("POST", "/v1/responses", json=body) as answer:
        response_id = answer.headers["x-outlast-response-id"]
        async for chunk in answer.aiter_text():
            text += chunk
            if "keepalive" in text:
                kept.set()
    alive = [line for line in text.split("\n") if line.startswith('data: {"type":"keepalive"')]
    assert alive[0] == 'data: {"type":"keepalive","sequence_number":1}'
    assert ": keep-alive\n\n" in text
    assert text.endswith("data: [DONE]\n\n")
    assert "keepalive" not in (await world.http.get(f"/v1/responses/{response_id}?stream=true")).text


async def test_no_keepalive_is_sent_to_a_client_that_reads_too_slowly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its socket is full: what is under way may be half of a frame."""
    monkeypatch.setattr("api.sse.KEEPALIVE_SECONDS", 0.01)
    due, sent = 0, []
    read = asyncio.Event()
    alive = EventStream._keep_alive

    async def keep_alive(stream: EventStream, send: Send) -> None:
        nonlocal due
        due += 1
        await alive(stream, send)
        if due == 2:
            read.set()

    async def events() -> AsyncIterator[Frames]:
        yield Frames([(0, "response.completed", b"{}")], ended=True)

    async def send(message: Message) -> None:
        sent.append(message.get("body", b""))
        if sent[-1]:
            await read.wait()

    async def receive() -> Message:
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr(EventStream, "_keep_alive", keep_alive)
    async with asyncio.timeout(30):
        await EventStream(Tail(events()))({"type": "http"}, receive, send)
    assert sent == [b"", b"event: response.completed\ndata: {}\n\ndata: [DONE]\n\n"]


@pytest.mark.parametrize("world", [lambda services: replace(services, skip_tools=True)], indirect=True)
async def test_tools_a_model_cannot_have_are_left_out_when_the_operator_says_so(world: World) -> None:
    """The header names each type once, the echo keeps them."""
    tools = [{"type": "web_search"}, {"type": "custom", "name": "a"}, {"type": "custom", "name": "b"}]
    answer = await world.http.post(
        "/v1/responses", json={"model": "demo", "input": "hi", "background": True, "tools": tools}
    )
    assert answer.headers["x-outlast-warning"] == "tools left out: web_search, custom"
    assert answer.json()["tools"] == tools


@pytest.mark.parametrize("origin", ["https://evil.test", "null", "http://127.0.0.1:1"])
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v1/responses"),
        ("POST", "/v1/approvals/mcpr_1"),
        ("DELETE", "/v1/responses/resp_1"),
        ("POST", "/v1/conversations"),
    ],
)
async def test_a_page_of_another_site_changes_nothing(world: World, method: str, path: str, origin: str) -> None:
    """A browser sends plain text without asking first; the same site may, and so may who sends no origin."""
    body = b'{"model": "demo", "input": "hi", "approve": true}'
    given = {"content-type": "text/plain", "origin": origin}
    answer = await world.http.request(method, path, content=body, headers=given)
    assert (answer.status_code, envelope(answer)["code"]) == (403, "forbidden")
    assert world.runs.started == []
    for own in ({"origin": world.url}, {}):
        assert (await world.http.request(method, path, content=b"{", headers=own)).status_code != 403
    assert (await world.http.get("/v1/models", headers={"origin": origin})).status_code == 200


async def test_every_path_names_the_methods_it_has(world: World) -> None:
    """405 with `Allow` and the envelope for all others; generated from the document of the API."""
    paths = world.app.openapi()["paths"]
    assert len(paths) > 10
    for template in paths:
        path = re.sub(r"\{.*?\}", "x_1", template)
        matching = [other for other in paths if re.fullmatch(re.sub(r"\{.*?\}", "[^/]+", other), path)]
        known = {method.upper() for other in matching for method in paths[other]}
        for method in {"GET", "POST", "PUT", "PATCH", "DELETE"} - known:
            answer = await world.http.request(method, path)
            assert (answer.status_code, envelope(answer)["code"]) == (405, "method_not_allowed"), (method, path)
            allowed = set(answer.headers["allow"].replace(" ", "").split(","))
            assert allowed - {"HEAD"} == known - {"HEAD"}, (method, path)
