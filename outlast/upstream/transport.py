"""HTTP/1.1 for streams of small events: the httpx transport of a model server.

Why not httpx's own: its parser is pure Python and hands out every HTTP chunk alone, so an event costs 56 µs before
anything looks at it (2,000-chunk answer without delays) and a batch is never larger than one event. Here a C parser
(httptools, which uvicorn brings) is fed by the event loop, and a read returns everything that has arrived, chunk
borders ignored.

Rules:
1. A connection serves one exchange at a time and returns to the pool only when its answer was read to the end.
2. Nothing is repeated. A server that closed a kept connection is noticed by the loop before it is used again; the
   rest is a race every client has, and an error.
3. No time-outs here: callers cancel.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator
from typing import cast

import httptools
import httpx

# Seconds an unused connection is kept.
_KEEP = 30.0
# Bytes that may wait for a slow reader before the socket is left alone.
_HIGH_WATER = 1 << 20

_Origin = tuple[str, str, int]


class Transport(httpx.AsyncBaseTransport):
    """A pool of connections. `tls` is what https needs."""

    def __init__(self, tls: ssl.SSLContext | None) -> None:
        self._tls = tls
        self._idle: dict[_Origin, list[_Connection]] = {}
        self._closed = False

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send and wait for the head. Raises: httpx.ConnectError, ReadError, RemoteProtocolError."""
        url = request.url
        origin = (url.scheme, url.host, url.port or (443 if url.scheme == "https" else 80))
        body = b"".join([piece async for piece in request.stream])  # type: ignore[union-attr] # an async client's request
        connection = self._kept(origin) or await self._connect(origin)
        try:
            connection.send(request, body)
            await connection.head()
        except BaseException:
            connection.abort()
            raise
        return httpx.Response(connection.status, headers=connection.headers, stream=_Body(self, origin, connection))

    async def aclose(self) -> None:
        """Close what is unused; an exchange that runs is its owner's."""
        self._closed = True
        idle, self._idle = self._idle, {}
        for connections in idle.values():
            for connection in connections:
                connection.abort()

    def release(self, origin: _Origin, connection: "_Connection") -> None:
        """Keep a connection whose answer was read to its end, else close it."""
        if self._closed or not connection.usable:
            connection.abort()
            return
        idle = self._idle.setdefault(origin, [])
        while idle and not idle[0].usable:  # the oldest stand first
            idle.pop(0).abort()
        idle.append(connection)

    def _kept(self, origin: _Origin) -> "_Connection | None":
        """The newest usable connection: it is the one least likely to be closed by the server now."""
        idle = self._idle.get(origin, [])
        while idle:
            connection = idle.pop()
            if connection.usable:
                return connection
            connection.abort()
        return None

    async def _connect(self, origin: _Origin) -> "_Connection":
        scheme, host, port = origin
        loop = asyncio.get_running_loop()
        try:
            _, connection = await loop.create_connection(
                _Connection, host, port, ssl=self._tls if scheme == "https" else None
            )
        except OSError as error:  # ssl.SSLError is one
            raise httpx.ConnectError(str(error)) from error
        return connection


class _Body(httpx.AsyncByteStream):
    """An answer's body; closing it early closes the connection."""

    def __init__(self, transport: Transport, origin: _Origin, connection: "_Connection") -> None:
        self._transport = transport
        self._origin = origin
        self._connection: _Connection | None = connection

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while self._connection is not None and (data := await self._connection.read()):
            yield data

    async def aclose(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            self._transport.release(self._origin, connection)


class _Connection(asyncio.Protocol):
    """One connection and the answer that is being read from it."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._lost = False
        self._completed_at = 0.0
        self._begin()

    def _begin(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self.status = 0
        self.headers: list[tuple[bytes, bytes]] = []
        self._pieces: list[bytes] = []
        self._size = 0
        self._error: httpx.TransportError | None = None
        self._has_head = False
        self._complete = False
        self._keep_alive = False

    @property
    def usable(self) -> bool:
        """Whether the last answer was read to its end, not long ago, and both sides keep the connection open."""
        clean = self._complete and self._keep_alive and not self._pieces and not self._lost
        return clean and self._loop.time() - self._completed_at < _KEEP

    def send(self, request: httpx.Request, body: bytes) -> None:
        """Write one request; the answer of the last one is forgotten."""
        self._begin()
        head = [b"%s %s HTTP/1.1" % (request.method.encode(), request.url.raw_path)]
        head += [b"%s: %s" % field for field in request.headers.raw]
        assert self._transport is not None  # connected before anybody holds it
        self._transport.write(b"\r\n".join([*head, b"", body]) if body else b"\r\n".join([*head, b"", b""]))

    async def head(self) -> None:
        """Wait for status and headers."""
        while not self._has_head:
            await self._wait()

    async def read(self) -> bytes:
        """All of the body that has arrived, at least one byte; b"" at its end."""
        while not self._pieces:
            if self._complete:
                return b""
            await self._wait()
        data = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        self._pieces.clear()
        if self._size > _HIGH_WATER and self._transport is not None and not self._lost:
            self._transport.resume_reading()
        self._size = 0
        return data

    def abort(self) -> None:
        """Close at once."""
        if self._transport is not None:
            self._transport.abort()

    async def _wait(self) -> None:
        if self._error is not None:
            raise self._error
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _fail(self, error: httpx.TransportError) -> None:
        self._error = self._error or error
        self._wake()

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is none by inheritance

    def data_received(self, data: bytes) -> None:
        if self._complete:  # nothing was asked for: whatever it is, the next exchange must not read it
            self._keep_alive = False
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._fail(httpx.RemoteProtocolError(str(error)))
            self.abort()
            return
        if self._size > _HIGH_WATER and self._transport is not None:
            self._transport.pause_reading()
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost = True
        if self._complete:
            return
        framed = any(name.lower() in (b"content-length", b"transfer-encoding") for name, _ in self.headers)
        if self._has_head and not framed and exc is None:
            self._complete = True  # such a body ends with its connection
            self._wake()
        else:
            self._fail(httpx.ReadError("connection lost before the end of the answer"))

    # httptools

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        self.status = self._parser.get_status_code()
        self._has_head = self.status >= 200

    def on_body(self, body: bytes) -> None:
        self._pieces.append(body)
        self._size += len(body)

    def on_message_complete(self) -> None:
        if self.status < 200:  # 100 Continue and its like precede the answer
            self.headers = []
            return
        self._complete = True
        self._keep_alive = self._parser.should_keep_alive()
        self._completed_at = self._loop.time()
