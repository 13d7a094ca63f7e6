"""A TCP proxy that loses connections: what a client's own retries are tested with.

async with cutting(server.url) as line:                 # line.url instead of the server's
    line.cut_when(lambda: script.asked == 1)            # the first connection, once that is so
    line.cut_after(300)                                 # ... or once so many bytes of its answer have passed
    line.cut_at(b"word")                                # ... or once its answer has come to this
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

_LOOK_SECONDS = 0.01


class Line:
    """One proxy. `openings`: the first bytes of each connection it has had."""

    def __init__(self, host: str, port: int) -> None:
        self.url = ""
        self.openings: list[bytes] = []
        self._target = host, port
        self._when: Callable[[], bool] = lambda: False
        self._after: int | None = None
        self._at: bytes | None = None

    def cut_when(self, reached: Callable[[], bool]) -> None:
        """Lose the next connection as soon as this holds."""
        self._when = reached

    def cut_after(self, answered: int) -> None:
        """Lose the next connection in the middle of its answer, after so many bytes."""
        self._after = answered

    def cut_at(self, text: bytes) -> None:
        """Lose the first connection whose answer holds this, in the middle of it."""
        self._at = text

    @property
    def connections(self) -> int:
        """How many it has had."""
        return len(self.openings)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection of a client."""
        first = await reader.read(65536)
        self.openings.append(first)
        when, after = self._when, self._after
        self._when, self._after = (lambda: False), None
        up_reader, up_writer = await asyncio.open_connection(*self._target)
        up_writer.write(first)
        tasks = {
            asyncio.create_task(_pipe(reader, up_writer)),
            asyncio.create_task(self._answer(up_reader, writer, after)),
            asyncio.create_task(_until(when)),
        }
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for each in (writer, up_writer):
                each.transport.abort()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, limit: int | None) -> None:
        """Bytes of the answer, to their end, the limit or the text."""
        passed, tail = 0, b""
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65536):
                place = -1 if self._at is None else (tail + data).find(self._at)
                if place >= 0:
                    self._at = None
                    limit = passed + max(0, place - len(tail))
                data = data if limit is None else data[: limit - passed]
                # A text may be spread over two reads.
                tail = data[-64:]
                passed += len(data)
                writer.write(data)
                await writer.drain()
                if passed == limit:
                    return


async def _pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Bytes of one direction, to their end."""
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()


async def _until(reached: Callable[[], bool]) -> None:
    while not reached():  # noqa: ASYNC110  # what a test looks at tells nobody
        await asyncio.sleep(_LOOK_SECONDS)


@asynccontextmanager
async def cutting(url: str) -> AsyncIterator[Line]:
    """A proxy before a server, on a free port; `url` without a path, as the server's."""
    target = urlsplit(url)
    line = Line(target.hostname or "", target.port or 80)
    server = await asyncio.start_server(line.serve, "127.0.0.1", 0)
    line.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield line
    finally:
        server.close()
