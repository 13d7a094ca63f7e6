"""The Responses dialect relays what it reads."""

import pytest

from outlast.protocol import errors
from outlast.protocol.events import WireEvent, parse
from outlast.protocol.json import JsonObject
from outlast.upstream.base import Round, Timeouts
from outlast.upstream.responses import ResponsesUpstream
from tests.unit.upstream.server import replying, serving, sse, streaming

TIMEOUTS = Timeouts(first=30, idle=30, total=60)
CREATED: JsonObject = {"type": "response.created", "sequence_number": 0, "response": {"id": "resp_u"}}
NOVEL: JsonObject = {
    "type": "response.novel.thing",
    "sequence_number": 1,
    "output_index": 3,
    "item_id": "x",
    "deep": {"a": [1]},
}
COMPLETED: JsonObject = {"type": "response.completed", "sequence_number": 9, "response": {"usage": {"input_tokens": 1}}}


async def read(*payloads: JsonObject | bytes) -> list[WireEvent]:
    """All events of a stream of these payloads."""
    async with serving(streaming(sse(*payloads))) as served:
        return await collect(served.base_url)


async def collect(base_url: str) -> list[WireEvent]:
    upstream = ResponsesUpstream("main", base_url)
    try:
        batches = upstream.stream(upstream.build(Round("m", [])), TIMEOUTS)
        return [event async for batch in batches for event in batch]
    finally:
        await upstream.aclose()


@pytest.mark.parametrize("terminal", ["response.completed", "response.incomplete"])
async def test_events_are_relayed_as_they_are(terminal: str) -> None:
    """Unknown types and fields too; keep-alives are not, and nothing after the terminal event counts."""
    last = {**COMPLETED, "type": terminal}
    assert await read(CREATED, {"type": "keepalive"}, NOVEL, last, NOVEL, b"[DONE]") == [
        parse(CREATED),
        parse(NOVEL),
        parse(last),
    ]


@pytest.mark.parametrize(
    ("payload", "kind", "code", "message"),
    [
        (
            {"type": "error", "code": "rate_limit_exceeded", "message": "m", "param": None},
            errors.UpstreamRateLimited,
            "rate_limit_exceeded",
            "m",
        ),
        (
            {"type": "error", "error": {"type": "invalid_request_error", "code": "bad", "message": "m"}},
            errors.UpstreamRefused,
            "bad",
            "m",
        ),
        ({"error": {"code": 503, "message": "m"}}, errors.UpstreamUnavailable, "upstream_unavailable", "m"),
        (
            {"type": "response.failed", "response": {"error": {"code": "server_error", "message": "m"}}},
            errors.UpstreamUnavailable,
            "upstream_unavailable",
            "m",
        ),
        (
            {"type": "response.failed", "response": {"error": {"code": "rate_limit_exceeded", "message": "m"}}},
            errors.UpstreamRateLimited,
            "rate_limit_exceeded",
            "m",
        ),
        (
            {"type": "response.failed", "response": {"error": {"code": "invalid_prompt", "message": "m"}}},
            errors.UpstreamRefused,
            "invalid_prompt",
            "m",
        ),
        (
            {"type": "response.failed", "response": {}},
            errors.UpstreamUnavailable,
            "upstream_unavailable",
            "Upstream 'main' failed without a reason (status 500).",
        ),
        (
            {"no": "type"},
            errors.UpstreamUnavailable,
            "upstream_unavailable",
            "Upstream 'main' sent an event without a type.",
        ),
        (
            b"{broken",
            errors.UpstreamUnavailable,
            "upstream_unavailable",
            "Upstream 'main' sent an event that is not JSON.",
        ),
        (
            b"[]",
            errors.UpstreamUnavailable,
            "upstream_unavailable",
            "Upstream 'main' sent an event that is not a JSON object.",
        ),
    ],
)
async def test_a_failure_inside_the_stream_raises(
    payload: JsonObject | bytes, kind: type[errors.UpstreamError], code: str, message: str
) -> None:
    """Flat, nested and untyped errors, failed responses, and what is no event."""
    with pytest.raises(errors.UpstreamError) as caught:
        await read(payload)
    assert (type(caught.value), caught.value.code, caught.value.message) == (kind, code, message)


async def test_what_came_before_a_failure_is_given_first() -> None:
    """Even when one read brought both: a complete call in it decides how the round ends."""
    async with serving(streaming(sse(CREATED, {"type": "error", "message": "m"}))) as served:
        upstream = ResponsesUpstream("main", served.base_url)
        batches = upstream.stream(upstream.build(Round("m", [])), TIMEOUTS)
        assert await anext(batches) == [parse(CREATED)]
        with pytest.raises(errors.UpstreamUnavailable, match="m"):
            await anext(batches)
        await upstream.aclose()


@pytest.mark.parametrize(
    ("body", "kind", "message"),
    [
        (b'{"error":{"message":"bad","code":"invalid_prompt"}}', errors.UpstreamRefused, "bad"),
        (b'{"object":"response"}', errors.UpstreamUnavailable, "did not answer with an event stream"),
        (b"<html>", errors.UpstreamUnavailable, "did not answer with an event stream"),
    ],
)
async def test_json_instead_of_a_stream_is_an_error(
    body: bytes, kind: type[errors.UpstreamError], message: str
) -> None:
    """Some servers answer 200 and put the refusal into the body."""
    async with serving(replying("200 OK", body)) as served:
        with pytest.raises(kind, match=message):
            await collect(served.base_url)
