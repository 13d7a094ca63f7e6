"""A response's events as an SSE body: replay, tail, keep-alives, the end.

* One write per batch of frames. The terminal frame, `[DONE]` and the end of the body go out together.
* The headers of a POST wait for the first event after `response.in_progress`, or one second: until then a refusal of
  the upstream can still be the HTTP status (`hold`).
* A keep-alive belongs to the connection, not to the log. Comment frames keep proxies calm; the data event keeps
  clients calm that count events, and repeats the last number so that `starting_after` stays right.
* A reader that fails drops the connection. It never invents a terminal event: a client would take it for the truth.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence

from fastapi.responses import Response
from starlette.types import Receive, Scope, Send

from outlast.protocol import events, json
from outlast.protocol.errors import NotFound
from outlast.store.base import Frames

KEEPALIVE_SECONDS = 15.0
HOLD_SECONDS = 1.0

_OPENING = frozenset({events.CREATED, events.QUEUED, events.IN_PROGRESS})
_COMMENT = b": keep-alive\n\n"

_HEADERS = {"cache-control": "no-cache", "x-accel-buffering": "no"}


class Tail:
    """A reader that can be waited for with a time-out: a batch under way stays under way (cancelling `anext` would
    close the generator and lose it)."""

    def __init__(self, reader: AsyncIterator[Frames]) -> None:
        self._reader = reader
        self._ahead: asyncio.Task[Frames] | None = None

    def reach(self) -> "asyncio.Task[Frames]":
        """Begin to read the next batch, if that has not begun."""
        if self._ahead is None:
            self._ahead = asyncio.create_task(self._read())
        return self._ahead

    async def take(self, timeout: float | None = None) -> Frames | None:
        """The next batch; None when `timeout` seconds pass before it is there. Raises: NotFound when the log ends
        without a terminal event: the response was deleted."""
        if timeout is None and self._ahead is None:
            return await self._read()
        ahead = self.reach()
        done, _ = await asyncio.wait({ahead}, timeout=timeout)
        if not done:
            return None
        self._ahead = None
        return ahead.result()

    async def aclose(self) -> None:
        """Stop reading."""
        if self._ahead is not None:
            self._ahead.cancel()
            await asyncio.wait({self._ahead})
            self._ahead = None
        if isinstance(self._reader, AsyncGenerator):
            await self._reader.aclose()

    async def _read(self) -> Frames:
        try:
            return await anext(self._reader)
        except StopAsyncIteration:
            raise NotFound("The response was deleted before it ended.") from None


async def hold(tail: Tail, seconds: float = HOLD_SECONDS) -> Sequence[Frames]:
    """What is read before the headers of a POST may leave."""
    clock = asyncio.get_running_loop().time
    until = clock() + seconds
    held: list[Frames] = []
    while (frames := await tail.take(max(0.0, until - clock()))) is not None:
        held.append(frames)
        if frames.ended or any(kind not in _OPENING for _, kind, _ in frames.data):
            break
    return held


def refused(held: Sequence[Frames]) -> bool:
    """Whether the response failed with nothing before it but its opening events."""
    kinds = [kind for frames in held for _, kind, _ in frames.data if kind not in _OPENING]
    return kinds == [events.FAILED]


class EventStream(Response):
    """The body. `after`: the last number the reader has; `left`: called once, when the reader has all or is gone."""

    media_type = "text/event-stream"

    def __init__(
        self,
        tail: Tail,
        held: Sequence[Frames] = (),
        *,
        after: int = -1,
        left: Callable[[], Awaitable[None]] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self._tail = tail
        self._held = held
        self._last = after
        self._left = left
        self._written_at = 0.0
        self._writing = False
        self.status_code = 200
        self.background = None
        # No `body` yet, so no content-length: chunks end the body.
        self.init_headers({**_HEADERS, **(headers or {})})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        delivery = asyncio.create_task(self._deliver(send))
        gone = asyncio.create_task(disconnected(receive))
        try:
            while not await self._wait({delivery, gone}):
                await self._keep_alive(send)
        finally:
            delivery.cancel()
            gone.cancel()
            await asyncio.wait({delivery, gone})
            await self._tail.aclose()
            if self._left is not None:
                await self._left()
        if not delivery.cancelled():
            delivery.result()

    async def _wait(self, tasks: set["asyncio.Task[None]"]) -> bool:
        """True when one is done, False when a keep-alive is due."""
        clock = asyncio.get_running_loop().time
        self._written_at = clock()
        while (idle := clock() - self._written_at) < KEEPALIVE_SECONDS:
            done, _ = await asyncio.wait(tasks, timeout=KEEPALIVE_SECONDS - idle, return_when=asyncio.FIRST_COMPLETED)
            if done:
                return True
        return False

    async def _deliver(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        for frames in self._held:
            if await self._write(send, frames):
                return
        while True:
            frames_read = await self._tail.take()
            if frames_read is not None and await self._write(send, frames_read):
                return

    async def _write(self, send: Send, frames: Frames) -> bool:
        parts = [events.frame(kind, data) for _, kind, data in frames.data]
        if frames.ended:
            parts.append(events.DONE_FRAME)
        if frames.data:
            self._last = frames.data[-1][0]
        self._writing = True
        await send({"type": "http.response.body", "body": b"".join(parts), "more_body": not frames.ended})
        self._writing = False
        self._written_at = asyncio.get_running_loop().time()
        return frames.ended

    async def _keep_alive(self, send: Send) -> None:
        if self._writing:
            # The socket is full: the client has data to read, and a frame may be half way out.
            return
        data = json.dumps({"type": events.KEEPALIVE, "sequence_number": max(0, self._last)})
        body = _COMMENT + events.frame(events.KEEPALIVE, data)
        await send({"type": "http.response.body", "body": body, "more_body": True})


def nothing_left() -> Response:
    """The stream of a reader that has the terminal event already."""
    return Response(events.DONE_FRAME, media_type="text/event-stream", headers=_HEADERS)


async def disconnected(receive: Receive) -> None:
    """Returns when the client is gone; the body must have been read."""
    while (await receive())["type"] != "http.disconnect":
        pass
