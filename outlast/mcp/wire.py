"""The HTTP below the official MCP client: watches each request, and keeps one call's trouble from the others.

The `mcp` client runs every POST of a session in one task group: an exception of one (a dropped connection) cancels the
group, and with it every other call in flight. It also reads a JSON answer whole, however long, and awaits some
notifications before it sends the next request. So this transport
  1. never raises from a POST: it answers a JSON-RPC error instead, and notes what really happened in the `Exchange`;
  2. reads JSON bodies itself, up to a cap, and counts event streams;
  3. sends `notifications/cancelled` from the side, bounded in time: a hung server must not block the next request;
  4. opens no standing GET stream: we act on no message of the server's own.

The exchange travels in a context variable: the client's streams carry the sender's context to the task that posts.
"""

import asyncio
import contextlib
import functools
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass

import httpx2

from outlast.protocol import json

_ABANDONED_SECONDS = 2.0
_NOTICE_SECONDS = 0.5
_DELETE_SECONDS = 1.0
# Codes we invent stay outside JSON-RPC's reserved range; callers look at the exchange, not at the code.
_SYNTHETIC_CODE = -1


@dataclass(slots=True)
class Exchange:
    """What the wire saw of one call; the truth about whether it may have reached the server."""

    handed_over: bool = False
    # The connection pool's last trace event: "connection.…" means that no byte of the request has left.
    phase: str = ""
    status: int | None = None
    reason: str = ""
    had_session: bool = False
    # The body was a JSON-RPC error: its code and text are the server's, whatever the status.
    rpc_error: bool = False
    failure: str | None = None
    over_cap: bool = False
    # Told when the whole request was handed to the operating system; nothing of the answer has been read then.
    on_dispatched: Callable[[], None] | None = None

    @property
    def may_have_arrived(self) -> bool:
        """False only when the request surely did not reach the server. Doubt counts as arrived."""
        return self.handed_over and not self.phase.startswith("connection.")

    async def trace(self, event: str, _: Mapping[str, object]) -> None:
        """The connection pool's progress hook."""
        self.phase = event
        if self.on_dispatched is not None and event.endswith(".send_request_body.complete"):
            self.on_dispatched()


current: ContextVar[Exchange | None] = ContextVar("outlast_mcp_exchange", default=None)


@functools.cache
def _tls() -> ssl.SSLContext:
    # Loading the system's certificates takes 0.13 s of CPU: once per process, and not at all for plain HTTP.
    return httpx2.create_ssl_context()


def _no_tls() -> ssl.SSLContext:
    """A context that trusts nobody: a redirect of a plain HTTP server to https fails instead of being unverified."""
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def _keepalive_options() -> list[tuple[int, int, int]]:
    """TCP keep-alive: a host that vanished without a FIN is noticed in about ten seconds."""
    options = [(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)]
    for name, value in (("TCP_KEEPIDLE", 5), ("TCP_KEEPINTVL", 2), ("TCP_KEEPCNT", 3)):
        if (option := getattr(socket, name, None)) is not None:
            options.append((socket.IPPROTO_TCP, option, value))
    return options


class _OverCap(Exception):
    """A body is longer than we take."""


class _CountedStream(httpx2.AsyncByteStream):
    """An event stream that ends in an error the client understands once it is over the cap."""

    def __init__(self, inner: httpx2.AsyncByteStream, exchange: Exchange, cap: int) -> None:
        self._inner = inner
        self._exchange = exchange
        self._cap = cap

    async def __aiter__(self) -> AsyncIterator[bytes]:
        seen = 0
        async for chunk in self._inner:
            seen += len(chunk)
            if seen > self._cap:
                self._exchange.over_cap = True
                raise httpx2.SSEError("answer over the size cap")
            yield chunk

    async def aclose(self) -> None:
        await self._inner.aclose()


class Wire(httpx2.AsyncBaseTransport):
    """One session's connections. `secure`: the URL is https; `max_body`: bytes of one answer."""

    def __init__(self, *, secure: bool, max_body: int, connect_seconds: float) -> None:
        self._inner = httpx2.AsyncHTTPTransport(
            verify=_tls() if secure else _no_tls(),
            socket_options=_keepalive_options(),
            # Shorter than the 5 s after which many servers drop a quiet connection: a call sent into such a drop would
            # have an unknown outcome.
            limits=httpx2.Limits(max_connections=100, max_keepalive_connections=20, keepalive_expiry=4),
        )
        self._max_body = max_body
        # Reads have no limit here: a tool may think for minutes, the caller's deadline is the limit.
        self._timeout = {"connect": connect_seconds, "write": connect_seconds, "pool": connect_seconds, "read": None}
        self._side: set[asyncio.Task[None]] = set()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Serve one HTTP request of the client. Raises only for GET and DELETE, which the client contains."""
        match request.method:
            case "POST":
                return await self._serve_post(request)
            case "GET" if "last-event-id" not in request.headers:
                return httpx2.Response(405, request=request)
            case _:
                exchange = current.get() or Exchange()
                request.extensions["timeout"] = dict.fromkeys(self._timeout, _DELETE_SECONDS)
                if request.method == "GET":
                    request.extensions["timeout"] = self._timeout
                response = await self._inner.handle_async_request(request)
                return self._counted(response, request, exchange)

    async def aclose(self) -> None:
        """Close the connections; a cancel notice on its way gets half a second."""
        if self._side:
            _, late = await asyncio.wait(set(self._side), timeout=_NOTICE_SECONDS)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        await self._inner.aclose()

    async def _serve_post(self, request: httpx2.Request) -> httpx2.Response:
        match json.loads(request.content):
            case {"method": "notifications/cancelled"}:
                self._send_aside(request)
                return httpx2.Response(202, request=request)
            case {"method": _, "id": _}:
                exchange = current.get() or Exchange()
            case _:
                # Our answer to a ping of the server's runs in the same context and is not the call.
                exchange = Exchange()
        return await self._post(request, exchange)

    def _send_aside(self, request: httpx2.Request) -> None:
        request.extensions["timeout"] = dict.fromkeys(self._timeout, _ABANDONED_SECONDS)
        task = asyncio.create_task(self._notify(request))
        self._side.add(task)
        task.add_done_callback(self._side.discard)

    async def _notify(self, request: httpx2.Request) -> None:
        # A courtesy: nobody waits for it, and the call it names is already settled as abandoned.
        with contextlib.suppress(httpx2.HTTPError, TimeoutError):
            async with asyncio.timeout(_ABANDONED_SECONDS):
                response = await self._inner.handle_async_request(request)
                await response.aclose()

    async def _post(self, request: httpx2.Request, exchange: Exchange) -> httpx2.Response:
        exchange.handed_over = True
        exchange.phase = ""
        exchange.status = None
        exchange.had_session = "mcp-session-id" in request.headers
        request.extensions["timeout"] = self._timeout
        request.extensions["trace"] = exchange.trace
        try:
            response = await self._inner.handle_async_request(request)
            exchange.status = response.status_code
            exchange.reason = response.reason_phrase
            return await self._answer(response, request, exchange)
        except _OverCap:
            exchange.over_cap = True
            return _synthetic("answer over the size cap", request)
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout, httpx2.UnsupportedProtocol) as error:
            exchange.handed_over = False
            exchange.failure = f"{type(error).__name__}: {error}"
            return _synthetic("could not connect", request)
        except httpx2.HTTPError as error:
            exchange.failure = f"{type(error).__name__}: {error}"
            return _synthetic("the connection failed", request)

    async def _answer(self, response: httpx2.Response, request: httpx2.Request, exchange: Exchange) -> httpx2.Response:
        encoding = response.headers.get("content-encoding", "identity")
        if encoding != "identity":
            # We ask for none: a packed body could unfold to any size behind our count.
            await response.aclose()
            exchange.failure = f"unasked content-encoding {encoding}"
            return _synthetic(exchange.failure, request)
        if not response.headers.get("content-type", "").lower().startswith("application/json"):
            return self._counted(response, request, exchange)
        try:
            body = await self._read(response)
        finally:
            await response.aclose()
        exchange.rpc_error = response.status_code >= 400 and _is_rpc_error(body)
        return httpx2.Response(response.status_code, headers=response.headers, content=body, request=request)

    async def _read(self, response: httpx2.Response) -> bytes:
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        parts: list[bytes] = []
        size = 0
        async for chunk in response.stream:
            size += len(chunk)
            if size > self._max_body:
                raise _OverCap
            parts.append(chunk)
        return b"".join(parts)

    def _counted(self, response: httpx2.Response, request: httpx2.Request, exchange: Exchange) -> httpx2.Response:
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        return httpx2.Response(
            response.status_code,
            headers=response.headers,
            stream=_CountedStream(response.stream, exchange, self._max_body),
            request=request,
            extensions=response.extensions,
        )


def _is_rpc_error(body: bytes) -> bool:
    try:
        message = json.loads(body)
    except ValueError:
        return False
    return isinstance(message, dict) and isinstance(message.get("error"), dict) and "code" in message["error"]


def _synthetic(text: str, request: httpx2.Request) -> httpx2.Response:
    """An answer that wakes the waiting call; the client puts the right id in for a status over 400."""
    body = {"jsonrpc": "2.0", "id": None, "error": {"code": _SYNTHETIC_CODE, "message": text}}
    return httpx2.Response(502, headers={"content-type": "application/json"}, content=json.dumps(body), request=request)
