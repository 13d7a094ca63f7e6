"""The upstream port over both dialects: one suite, what every dialect promises."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import Literal

import pytest

from outlast.protocol import errors
from outlast.protocol.events import WireEvent
from outlast.protocol.items import Message
from outlast.protocol.json import JsonObject
from outlast.upstream import auto
from outlast.upstream.base import Round, Timeouts, Upstream
from tests.unit.upstream.server import SSE_HEAD, Answer, Exchange, Served, holding, replying, serving, sse, streaming

PATIENT = Timeouts(first=30, idle=30, total=60)
# Less than every clock that must not be the one that ran out.
SOON = 20


@dataclass(frozen=True)
class Dialect:
    """A dialect and one answer in it: the text "Hello" in two deltas."""

    name: Literal["responses", "chat"]
    path: str
    first: JsonObject
    second: JsonObject
    ending: tuple[JsonObject | bytes, ...]

    def answer(self, **options: bytes) -> bytes:
        return sse(self.first, self.second, *self.ending, **options)


def _chat(delta: JsonObject, finish: str | None = None) -> JsonObject:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


CHAT = Dialect(
    name="chat",
    path="/v1/chat/completions",
    first=_chat({"content": "Hel"}),
    second=_chat({"content": "lo"}),
    ending=(_chat({}, "stop"), {"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 2}}, b"[DONE]"),
)
RESPONSES = Dialect(
    name="responses",
    path="/v1/responses",
    first={"type": "response.output_text.delta", "output_index": 0, "item_id": "m", "content_index": 0, "delta": "Hel"},
    second={"type": "response.output_text.delta", "output_index": 0, "item_id": "m", "content_index": 0, "delta": "lo"},
    ending=({"type": "response.completed", "response": {"usage": {"input_tokens": 1, "output_tokens": 2}}},),
)


@pytest.fixture(params=[CHAT, RESPONSES], ids=lambda dialect: dialect.name)
def dialect(request: pytest.FixtureRequest) -> Dialect:
    """Each dialect in turn."""
    value = request.param
    assert isinstance(value, Dialect)
    return value


@asynccontextmanager
async def talking(dialect: Dialect, answer: Answer) -> AsyncGenerator[tuple[Upstream, Served]]:
    """An upstream whose server gives this answer."""
    async with AsyncExitStack() as stack:
        served = await stack.enter_async_context(serving(answer))
        upstream = auto.create("main", served.base_url, dialect.name, "sk-secret", "MAIN_KEY", openai=False)
        stack.push_async_callback(upstream.aclose)
        yield upstream, served


def start(upstream: Upstream, timeouts: Timeouts = PATIENT) -> AsyncIterator[list[WireEvent]]:
    """The stream of a small round."""

    async def batches() -> AsyncGenerator[list[WireEvent]]:
        request = upstream.build(Round("m", [Message(role="user", content="hi")]))
        async for batch in upstream.stream(request, timeouts):
            yield list(batch)

    return batches()


async def collect(upstream: Upstream, timeouts: Timeouts = PATIENT) -> list[WireEvent]:
    return [event async for batch in start(upstream, timeouts) for event in batch]


def text(events: list[WireEvent]) -> str:
    return "".join(event.rest["delta"] for event in events if event.type == "response.output_text.delta")


async def test_a_round_is_one_post_with_our_key(dialect: Dialect) -> None:
    """Body as built, the key as a bearer token, no compression."""
    async with talking(dialect, streaming(dialect.answer())) as (upstream, served):
        events = await collect(upstream)
        assert (text(events), events[-1].type) == ("Hello", "response.completed")
        [exchange] = served.exchanges
        assert exchange.head.startswith(f"post {dialect.path} http/1.1\r\n")
        assert "\r\nauthorization: bearer sk-secret\r\n" in exchange.head
        assert "\r\naccept-encoding: identity\r\n" in exchange.head
        assert exchange.body == upstream.build(Round("m", [Message(role="user", content="hi")])).body


async def test_no_key_means_no_authorization_header(dialect: Dialect) -> None:
    """A local server often has none."""
    async with serving(streaming(dialect.answer())) as served:
        upstream = auto.create("main", served.base_url, dialect.name, None, None, openai=False)
        await collect(upstream)
        await upstream.aclose()
        assert "authorization" not in served.exchanges[0].head


async def test_rounds_share_a_connection(dialect: Dialect) -> None:
    """The stream is read to its end, so the next round pays no handshake."""
    async with talking(dialect, streaming(dialect.answer())) as (upstream, served):
        first, second = await collect(upstream), await collect(upstream)
        assert (text(first), text(second), served.connections) == ("Hello", "Hello", 1)


async def test_usage_is_on_the_terminal_event(dialect: Dialect) -> None:
    """In the spelling of the Responses API."""
    async with talking(dialect, streaming(dialect.answer())) as (upstream, _):
        usage = (await collect(upstream))[-1].rest["response"]["usage"]
        assert (usage["input_tokens"], usage["output_tokens"]) == (1, 2)


@pytest.mark.parametrize("end", [b"\r\n\r\n", b"\n\n"])
async def test_bytes_may_come_in_any_pieces(dialect: Dialect, end: bytes) -> None:
    """Seven at a time, with either line end."""
    raw = dialect.answer(end=end)
    pieces = [raw[at : at + 7] for at in range(0, len(raw), 7)]
    async with talking(dialect, streaming(*pieces)) as (upstream, _):
        assert text(await collect(upstream)) == "Hello"


async def test_events_are_given_while_the_answer_goes_on(dialect: Dialect) -> None:
    """The second delta is sent only after the first was seen."""
    seen = asyncio.Event()

    async def answer(exchange: Exchange) -> None:
        await exchange.send(SSE_HEAD)
        await exchange.chunk(sse(dialect.first))
        await seen.wait()
        await exchange.chunk(sse(dialect.second, *dialect.ending))
        await exchange.send(b"0\r\n\r\n")

    async with talking(dialect, answer) as (upstream, _):
        batches = start(upstream)
        assert text(await anext(batches)) == "Hel"
        seen.set()
        assert text([event async for batch in batches for event in batch]) == "lo"


async def test_one_read_is_one_batch(dialect: Dialect) -> None:
    """Whatever a read brings goes through the store as one append."""
    async with talking(dialect, streaming(dialect.answer())) as (upstream, _):
        assert text(await anext(start(upstream))) == "Hello"


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        ("400 Bad Request", errors.UpstreamRefused),
        ("404 Not Found", errors.UpstreamRefused),
        ("401 Unauthorized", errors.UpstreamAuth),
        ("403 Forbidden", errors.UpstreamAuth),
        ("429 Too Many Requests", errors.UpstreamRateLimited),
        ("408 Request Timeout", errors.UpstreamUnavailable),
        ("500 Internal Server Error", errors.UpstreamUnavailable),
        ("503 Service Unavailable", errors.UpstreamUnavailable),
    ],
)
async def test_a_refusal_is_asked_for_once(dialect: Dialect, status: str, kind: type[errors.UpstreamError]) -> None:
    """Mapped by status, never repeated by the client, the same for the list of models."""
    async with talking(dialect, replying(status, b'{"error":{"message":"no"}}', "retry-after: 3")) as (
        upstream,
        served,
    ):
        for call in (lambda: collect(upstream), upstream.models):
            with pytest.raises(errors.UpstreamError) as caught:
                await call()
            assert type(caught.value) is kind
            assert caught.value.retry_after == (3.0 if kind.retryable else None)
        assert len(served.exchanges) == 2


async def test_a_refused_connection_is_unavailable(dialect: Dialect) -> None:
    """Nothing listens there any more."""
    async with serving(streaming()) as served:
        pass
    upstream = auto.create("main", served.base_url, dialect.name, None, None, openai=False)
    for call in (lambda: collect(upstream), upstream.models):
        with pytest.raises(errors.UpstreamUnavailable, match=r"^Upstream 'main' could not be connected to\.$"):
            await call()
    await upstream.aclose()


async def test_a_connection_cut_before_the_answer_is_unavailable(dialect: Dialect) -> None:
    """Not even a status line."""

    async def answer(exchange: Exchange) -> None:
        exchange.writer.close()

    async with talking(dialect, answer) as (upstream, _):
        with pytest.raises(errors.UpstreamUnavailable, match="broke the connection"):
            await collect(upstream)


@pytest.mark.parametrize(
    ("end", "told"), [(b"", "broke the connection"), (b"0\r\n\r\n", "ended the stream before its")]
)
async def test_a_cut_stream_is_unavailable_after_what_it_gave(dialect: Dialect, end: bytes, told: str) -> None:
    """A dropped connection and a clean end without the terminal event alike."""
    async with talking(dialect, streaming(sse(dialect.first), end=end)) as (upstream, _):
        batches = start(upstream)
        assert text(await anext(batches)) == "Hel"
        with pytest.raises(errors.UpstreamUnavailable, match=told):
            await anext(batches)


async def test_no_first_event_in_time_is_unavailable(dialect: Dialect) -> None:
    """Neither silence nor a comment is an event; the text names the clock."""
    for chunks in ((), (b": busy\n\n",)):
        async with talking(dialect, holding(*chunks)) as (upstream, served), asyncio.timeout(SOON):
            with pytest.raises(
                errors.UpstreamUnavailable, match=r"no first event within 0\.05 s \(first-event time-out\)"
            ):
                await collect(upstream, Timeouts(first=0.05, idle=30, total=60))
            await served.left.wait()


async def test_silence_between_events_is_unavailable(dialect: Dialect) -> None:
    """After a first event the idle clock runs; the connection is closed."""
    async with talking(dialect, holding(sse(dialect.first))) as (upstream, served), asyncio.timeout(SOON):
        batches = start(upstream, Timeouts(first=30, idle=0.05, total=60))
        assert text(await anext(batches)) == "Hel"
        with pytest.raises(errors.UpstreamUnavailable, match=r"no event for 0\.05 s \(idle time-out\)"):
            await anext(batches)
        await served.left.wait()


async def test_a_round_that_takes_too_long_is_unavailable(dialect: Dialect) -> None:
    """The total clock wins over the others."""
    async with talking(dialect, holding(sse(dialect.first))) as (upstream, _), asyncio.timeout(SOON):
        with pytest.raises(
            errors.UpstreamUnavailable, match=r"longer than 0\.2 s for the whole round \(total time-out\)"
        ):
            await collect(upstream, Timeouts(first=30, idle=30, total=0.2))


@pytest.mark.parametrize("begun", [False, True])
async def test_a_cancellation_closes_the_connection_and_is_passed_on(dialect: Dialect, begun: bool) -> None:
    """The server stops generating for nobody."""
    waiting = asyncio.Event()
    hold = holding(*([sse(dialect.first)] if begun else []))

    async def answer(exchange: Exchange) -> None:
        waiting.set()
        await hold(exchange)

    async with talking(dialect, answer) as (upstream, served):
        first = asyncio.Event()

        async def read() -> None:
            async for _ in start(upstream):
                first.set()

        task = asyncio.create_task(read())
        await asyncio.wait_for((first if begun else waiting).wait(), 30)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.wait_for(served.left.wait(), 30)


async def test_a_reader_that_stops_early_closes_the_connection(dialect: Dialect) -> None:
    """Through `aclosing`, without waiting for the rest."""
    async with talking(dialect, holding(sse(dialect.first))) as (upstream, served):
        request = upstream.build(Round("m", []))
        stream = upstream.stream(request, PATIENT)
        assert isinstance(stream, AsyncGenerator)
        async with aclosing(stream):
            async for _ in stream:
                break
        await asyncio.wait_for(served.left.wait(), 30)


async def test_models_are_the_ids_of_the_list(dialect: Dialect) -> None:
    """`GET /models`."""
    async with talking(dialect, replying("200 OK", b'{"data":[{"id":"a"},{"id":"b"}]}')) as (upstream, served):
        assert await upstream.models() == ["a", "b"]
        assert served.exchanges[0].head.startswith("get /v1/models http/1.1\r\n")


@pytest.mark.parametrize("body", [b"<html>", b"[]", b'{"data":[{"name":"a"}]}'])
async def test_a_list_of_models_that_is_none_is_unavailable(dialect: Dialect, body: bytes) -> None:
    """Never an empty list."""
    async with talking(dialect, replying("200 OK", body)) as (upstream, _):
        with pytest.raises(errors.UpstreamUnavailable, match="no list of models"):
            await upstream.models()
