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
    """One kept connection; one request at a time."""

    def __init__(self, host: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._host, self._reader, self._writer = host, reader, writer

    async def post(self, path: str, request: JsonObject) -> Answer:
        """Send it and read to the end. Raises: RuntimeError for anything but a 200."""
        body = json.dumps(request)
        head = f"POST {path} HTTP/1.1\r\nhost: {self._host}\r\ncontent-type: application/json\r\n"
        reading = _Reading()
        parser = httptools.HttpResponseParser(reading)
        began = time.perf_counter()
        self._writer.write(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
        while not reading.complete:
            parser.feed_data(await self._reader.read(_READ_BYTES))
            if reading.first_token is None and _TOKEN in reading.body:
                reading.first_token = time.perf_counter() - began
        total = time.perf_counter() - began
        answer = Answer(parser.get_status_code(), bytes(reading.body), reading.first_token, total)
        if answer.status != 200:
            raise RuntimeError(f"{path} answered {answer.status}: {answer.body[:300]!r}")
        return answer


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[Connection]:
    """A connection to the server of `url`."""
    parts = urlsplit(url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    try:
        yield Connection(parts.netloc, reader, writer)
    finally:
        writer.close()


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
