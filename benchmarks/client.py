"""A client as thin as one can be: a kept connection, and when the bytes came. A real client's own cost is not ours."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit

import httptools

from outlast.protocol import json
from outlast.protocol.json import JsonObject

_TOKEN = b"response.output_text.delta"
_READ_BYTES = 1 << 16


@dataclass(slots=True)
class Answer:
    """Seconds from the first byte sent. `first_token`: None in an answer that has no deltas."""

    status: int = 0
    body: bytes = b""
    first_token: float | None = None
    total: float = 0.0


class Connection:
    """A kept connection; one request at a time. The server may have closed it since: it is opened before the clock."""

    def __init__(self, url: str) -> None:
        self._parts = urlsplit(url)
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def post(self, path: str, request: JsonObject) -> Answer:
        """Send it and read to the end. Raises: RuntimeError for anything but a whole 200."""
        body = json.dumps(request)
        head = f"POST {path} HTTP/1.1\r\nhost: {self._parts.netloc}\r\ncontent-type: application/json\r\n"
        reader, writer = await self._open()
        reading = _Reading()
        parser = httptools.HttpResponseParser(reading)
        began = time.perf_counter()
        writer.write(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
        while not reading.complete:
            data = await reader.read(_READ_BYTES)
            if not data:
                raise RuntimeError(f"{path}: the connection was closed within the answer")
            parser.feed_data(data)
            if reading.first_token is None and _TOKEN in reading.body:
                reading.first_token = time.perf_counter() - began
        total = time.perf_counter() - began
        answer = Answer(parser.get_status_code(), bytes(reading.body), reading.first_token, total)
        if answer.status != 200:
            raise RuntimeError(f"{path} answered {answer.status}: {answer.body[:300]!r}")
        return answer

    async def aclose(self) -> None:
        """Close it."""
        if self._streams is not None:
            self._streams[1].close()

    async def _open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._streams is None or self._streams[0].at_eof():
            await self.aclose()
            self._streams = await asyncio.open_connection(self._parts.hostname, self._parts.port)
        return self._streams


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[Connection]:
    """A connection to the server of `url`."""
    connection = Connection(url)
    try:
        yield connection
    finally:
        await connection.aclose()


class _Reading:
    """What the parser reports."""

    def __init__(self) -> None:
        self.body = bytearray()
        self.first_token: float | None = None
        self.complete = False

    def on_body(self, data: bytes) -> None:
        self.body += data

    def on_message_complete(self) -> None:
        self.complete = True
