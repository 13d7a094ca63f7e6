"""Requests whose response is being made, in one API process: until its row is written no other request can find it."""

import asyncio
import contextlib
from collections.abc import Iterator

_Key = tuple[str, bytes]


class Making:
    """Knows them by tenant and origin (`api.create.Sent`)."""

    def __init__(self) -> None:
        self._open: dict[_Key, set[asyncio.Event]] = {}

    @contextlib.contextmanager
    def one(self, key: _Key) -> Iterator[None]:
        """A request is made into a response, or refused, inside the `with` block."""
        over = asyncio.Event()
        self._open.setdefault(key, set()).add(over)
        try:
            yield
        finally:
            over.set()
            self._open[key].discard(over)
            if not self._open[key]:
                del self._open[key]

    async def settled(self, key: _Key) -> None:
        """Wait for those that are made now."""
        for over in tuple(self._open.get(key, ())):
            await over.wait()
