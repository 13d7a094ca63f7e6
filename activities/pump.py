"""Read ahead while a commit is under way, so that one commit takes all that came meanwhile."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Sequence
from types import TracebackType
from typing import Self

from outlast.protocol.events import WireEvent


class Pump:
    """`async with Pump(stream) as pump`: `take` gives everything that has arrived, at least one batch or the end."""

    def __init__(self, source: AsyncGenerator[Sequence[WireEvent]]) -> None:
        self._source = source
        self._pending: list[WireEvent] = []
        self._arrived = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._read())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Cancelling the task closes the source, and with it the upstream's connection, at once.
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def take(self, timeout: float | None = None) -> tuple[list[WireEvent], bool]:
        """(events, ended). Events that came before a failure are given before it is raised.

        `timeout`: seconds after which nothing is given instead of waiting on.
        """
        task = self._task
        if task is None:
            raise RuntimeError("a pump is entered before it is used")
        if not self._pending and not task.done():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout):
                    await self._arrived.wait()
        self._arrived.clear()
        events, self._pending = self._pending, []
        if not task.done():
            return events, False
        if events and task.exception() is not None:
            return events, False
        task.result()
        return events, True

    async def _read(self) -> None:
        try:
            async with contextlib.aclosing(self._source) as source:
                async for batch in source:
                    self._pending.extend(batch)
                    self._arrived.set()
        finally:
            self._arrived.set()
