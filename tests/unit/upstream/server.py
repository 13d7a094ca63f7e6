"""A model server of a few lines: what it answers is the test's own bytes, on a port of the system's choice."""

import asyncio
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from outlast.protocol import json
from outlast.protocol.json import JsonObject

SSE_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
LAST = b"0\r\n\r\n"


@dataclass
class Exchange:
    """One request, and the way to answer it."""

    head: str
    body: bytes
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def send(self, data: bytes) -> None:
        """Bytes as they are."""
        self.writer.write(data)
        await self.writer.drain()

    async def chunk(self, data: bytes) -> None:
        """One HTTP chunk."""
        await self.send(b"%x\r\n%s\r\n" % (len(data), data))


@dataclass
class Served:
    """A running server and what it saw."""

    base_url: str
    exchanges: list[Exchange] = field(default_factory=list)
    connections: int = 0
    left: asyncio.Event = field(default_factory=asyncio.Event)  # a client closed its connection


Answer = Callable[[Exchange], Awaitable[None]]


@asynccontextmanager
async def serving(answer: Answer, tls: ssl.SSLContext | None = None) -> AsyncGenerator[Served]:
    """The server while the context is open; connections it still holds are closed with it."""
    tasks: set[asyncio.Task[None]] = set()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        served.connections += 1
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
                length = next((int(v) for k, _, v in map(_field, head.split("\r\n")) if k == "content-length"), 0)
                exchange = Exchange(head, await reader.readexactly(length), reader, writer)
                served.exchanges.append(exchange)
                await answer(exchange)
        except (asyncio.IncompleteReadError, ConnectionError):
            served.left.set()
        finally:
            writer.close()

    server = await asyncio.start_server(connected, "127.0.0.1", 0, ssl=tls)
    served = Served(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1")
    try:
        yield served
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _field(line: str) -> tuple[str, str, str]:
    return line.partition(": ")


def replying(status: str, body: bytes, *headers: str, kind: str = "application/json") -> Answer:
    """An answer with a plain body."""
    extra = "".join(f"{header}\r\n" for header in headers)
    head = f"HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\n{extra}\r\n"

    async def answer(exchange: Exchange) -> None:
        await exchange.send(head.encode() + body)

    return answer


def streaming(*chunks: bytes, end: bytes = LAST) -> Answer:
    """An event stream in the given HTTP chunks; `end` b"" cuts it there."""

    async def answer(exchange: Exchange) -> None:
        await exchange.send(SSE_HEAD)
        for chunk in chunks:
            await exchange.chunk(chunk)
        if end:
            await exchange.send(end)
        else:
            exchange.writer.close()

    return answer


def holding(*chunks: bytes) -> Answer:
    """An event stream that falls silent after these chunks (without any: before its head) until the client goes."""

    async def answer(exchange: Exchange) -> None:
        if chunks:
            await exchange.send(SSE_HEAD)
        for chunk in chunks:
            await exchange.chunk(chunk)
        await exchange.reader.readexactly(1)

    return answer


def sse(*payloads: JsonObject | bytes, end: bytes = b"\n\n") -> bytes:
    """Payloads as events."""
    lines = (payload if isinstance(payload, bytes) else json.dumps(payload) for payload in payloads)
    return b"".join(b"data: " + line + end for line in lines)
