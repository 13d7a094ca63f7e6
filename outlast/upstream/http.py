"""One pooled HTTP client per configured model server, and the one way a dialect reads a stream from it.

Rules:
1. A round is one POST. The client repeats nothing: retries are the step's (architecture, `CallLlm`).
2. Three clocks run, each with an error that names it: *first* until the first event, *idle* between two events,
   *total* over the round. Comments are no events. Idle counts while we wait for the server, not while our reader
   commits a batch.
3. What goes wrong is one of the `Upstream*` errors; a cancellation is passed on after the connection was closed.
4. A finished stream is read to its end if that is near, so the connection can serve the next round.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable
from contextlib import aclosing, asynccontextmanager
from typing import TypeVar, cast
from urllib.request import getproxies, proxy_bypass

import httpx

from outlast.protocol import json
from outlast.protocol.errors import UpstreamError
from outlast.protocol.json import JsonObject
from outlast.upstream import sse
from outlast.upstream.base import Timeouts, UpstreamRequest
from outlast.upstream.failures import Identity, error_of
from outlast.upstream.transport import Transport

# Seconds a finished stream may take to end before its connection is given up.
_DRAIN = 0.1
# Bytes of an error's body that are read at all.
_BODY_LIMIT = 65536
# Seconds for `GET /models` and counts, which have no round's time-outs.
_MODELS_TIMEOUT = 10.0

T = TypeVar("T")


class EventStream:
    """An open stream. Made by `Endpoint.open`."""

    def __init__(self, chunks: AsyncGenerator[bytes], clock: "_Clock", identity: Identity) -> None:
        self.identity = identity
        self._bytes = chunks
        self._clock = clock
        self._parser = sse.Parser()
        self._ended = False

    @property
    def done(self) -> bool:
        """Whether the server said `[DONE]`."""
        return self._parser.done

    async def read(self) -> list[JsonObject] | None:
        """All events the next read completes, at least one; None at the end of the stream, by `[DONE]` or without.

        Raises: UpstreamUnavailable when the connection breaks, a clock runs out or an event is not a JSON object.
        """
        self._clock.wait()
        parser = self._parser
        while not (self._ended or parser.done):
            chunk = await self._clock.guard(anext(self._bytes, None))
            if chunk is None:
                self._ended = True
                payloads = parser.flush()
            else:
                payloads = parser.feed(chunk)
            if payloads:
                self._clock.event()
                return [self._object(payload) for payload in payloads]
        return None

    async def drain(self) -> None:
        """Read on to the end for a moment, after the terminal event."""
        try:
            async with asyncio.timeout(_DRAIN):
                while await anext(self._bytes, None) is not None:
                    pass
        except (TimeoutError, httpx.RequestError):
            return  # the answer is complete; only the connection is lost, and closing it is what happens next

    def _object(self, payload: bytes) -> JsonObject:
        try:
            value = json.loads(payload)
        except ValueError as error:
            raise self.identity.unavailable("sent an event that is not JSON") from error
        if not isinstance(value, dict):
            raise self.identity.unavailable("sent an event that is not a JSON object")
        return value


class Endpoint:
    """The client of one configured model server."""

    def __init__(
        self,
        name: str,
        base_url: str,
        *,
        api_key: str | None = None,
        api_key_env: str | None = None,
    ) -> None:
        """`base_url` with its version segment (`…/v1`)."""
        # A key read from a file ends in a newline more often than not; in a header that would be two lines.
        api_key = api_key.strip() if api_key else None
        self.identity = Identity(name, base_url.rstrip("/"), api_key, api_key_env)
        # Compressed events would come in lumps, late.
        headers = {"accept-encoding": "identity", "user-agent": "outlast"}
        if api_key:
            headers["authorization"] = f"Bearer {api_key}"
        self._client = httpx.AsyncClient(
            headers=headers,
            timeout=None,  # the three clocks replace the client's own
            limits=httpx.Limits(max_connections=None),  # runs are bounded elsewhere
            transport=_transport(httpx.URL(base_url)),
        )

    @asynccontextmanager
    async def open(self, request: UpstreamRequest, timeouts: Timeouts) -> AsyncGenerator[EventStream]:
        """The stream that answers a request; leaving the context closes the connection, also on cancellation.

        Raises: UpstreamRefused, UpstreamAuth, UpstreamRateLimited, UpstreamUnavailable.
        """
        clock = _Clock(timeouts, self.identity)
        post = self._client.build_request(
            "POST",
            self.identity.base_url + request.path,
            content=request.body,
            headers={"content-type": "application/json", "accept": "text/event-stream"},
        )
        response = await clock.guard(self._client.send(post, stream=True))
        try:
            kind = response.headers.get("content-type", "text/event-stream")
            if not response.is_success or "text/event-stream" not in kind:
                raise await clock.guard(self._refusal(response))
            # Left to the garbage collector it would be closed at any moment, inside whatever runs then.
            async with aclosing(_chunks(response)) as chunks:
                yield EventStream(chunks, clock, self.identity)
        finally:
            await response.aclose()

    async def ask(self, path: str, body: bytes) -> JsonObject | None:
        """A plain JSON answer; None when there is no such path: a proxy in front of a server has some only, and an
        unknown model says so in a code. Raises: as `open`."""
        clock = _Clock(Timeouts(_MODELS_TIMEOUT, _MODELS_TIMEOUT, _MODELS_TIMEOUT), self.identity)
        url = self.identity.base_url + path
        sent = self._client.post(url, content=body, headers={"content-type": "application/json"})
        response = await clock.guard(sent)
        if response.status_code in (404, 405) and error_of(response.content).get("code") is None:
            return None
        if not response.is_success:
            raise self.identity.from_http(response.status_code, response.headers, response.content)
        try:
            answer = json.loads(response.content)
        except ValueError as error:
            raise self.identity.unavailable(f"answered {path} with something that is no JSON") from error
        if not isinstance(answer, dict):
            raise self.identity.unavailable(f"answered {path} with something that is no JSON object")
        return answer

    async def models(self) -> list[str]:
        """Ids of `GET /models`. Raises: as `open`."""
        url = self.identity.base_url + "/models"
        clock = _Clock(Timeouts(_MODELS_TIMEOUT, _MODELS_TIMEOUT, _MODELS_TIMEOUT), self.identity)
        response = await clock.guard(self._client.get(url))
        if not response.is_success:
            raise self.identity.from_http(response.status_code, response.headers, response.content)
        try:
            return [str(model["id"]) for model in json.loads(response.content)["data"]]
        except (ValueError, KeyError, TypeError) as error:
            raise self.identity.unavailable("answered GET /models with something that is no list of models") from error

    async def aclose(self) -> None:
        """Close the pool."""
        await self._client.aclose()

    async def _refusal(self, response: httpx.Response) -> UpstreamError:
        """The error of an answer that is no event stream."""
        body = b""
        async with aclosing(_chunks(response)) as chunks:
            async for chunk in chunks:
                body += chunk
                if len(body) >= _BODY_LIMIT:
                    break
        if not response.is_success:
            return self.identity.from_http(response.status_code, response.headers, body)
        error = _error_in(body)
        if error is not None:
            return self.identity.from_error(error)
        return self.identity.unavailable("did not answer with an event stream; is base_url or dialect wrong?")


def _chunks(response: httpx.Response) -> AsyncGenerator[bytes]:
    return cast("AsyncGenerator[bytes]", response.aiter_bytes())  # httpx says less than it returns


class _Clock:
    """The three time-outs of one round, in the event loop's time."""

    def __init__(self, timeouts: Timeouts, identity: Identity) -> None:
        self._timeouts = timeouts
        self._identity = identity
        self._loop = asyncio.get_running_loop()
        now = self._loop.time()
        self._started = False
        self._next_at = now + timeouts.first
        self._total_at = now + timeouts.total

    def wait(self) -> None:
        """The reader is back: idle starts here."""
        if self._started:
            self._next_at = self._loop.time() + self._timeouts.idle

    def event(self) -> None:
        """An event has arrived."""
        self._started = True

    async def guard(self, waiting: Awaitable[T]) -> T:
        """The result, or UpstreamUnavailable for what broke or ran out meanwhile."""
        try:
            async with asyncio.timeout_at(min(self._next_at, self._total_at)):
                return await waiting
        except TimeoutError as error:
            raise self._identity.unavailable(self._expired()) from error
        except httpx.ConnectError as error:
            raise self._identity.unavailable("could not be connected to") from error
        except httpx.RequestError as error:
            raise self._identity.unavailable("broke the connection before its answer was complete") from error

    def _expired(self) -> str:
        if self._total_at <= self._next_at:
            return f"took longer than {self._timeouts.total:g} s for the whole round (total time-out)"
        if self._started:
            return f"sent no event for {self._timeouts.idle:g} s (idle time-out)"
        return f"sent no first event within {self._timeouts.first:g} s (first-event time-out)"


def _transport(url: httpx.URL) -> httpx.AsyncBaseTransport | None:
    """Ours; httpx's own (None) when the environment names a proxy for this host, because ours knows none."""
    proxies = getproxies()
    if (url.scheme in proxies or "all" in proxies) and not proxy_bypass(url.host):
        return None
    return Transport(httpx.create_ssl_context() if url.scheme == "https" else None)


def _error_in(body: bytes) -> object:
    """The `error` of a JSON body, None when there is none."""
    try:
        value = json.loads(body)
    except ValueError:
        return None
    return value.get("error") if isinstance(value, dict) else None
