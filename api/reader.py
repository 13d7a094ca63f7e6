"""Readers of a response that is not stored: while one is attached the response lives, and no longer.

There is one, unless its client has sent the request again before it was noticed that the first connection is lost.
`api.readers` counts them.
"""

import asyncio
import contextlib

from api.services import Services
from outlast.protocol.errors import Unavailable
from outlast.store.base import READER_LEASE, Ending, ResponseRecord


class Reader:
    """A client attached to its response. A stored one does not need it: leaving changes nothing there. `made`: by this
    client's request; else it has joined another's."""

    def __init__(self, ports: Services, record: ResponseRecord, *, made: bool) -> None:
        self.ports = ports
        self.record = record
        self._lease = None
        if not record.store:
            ports.readers.enter(record, made=made)
            self._lease = asyncio.create_task(self._renew())

    async def leave(self) -> None:
        """The client has everything or is gone: end what still runs, keep nothing. Stored responses go on."""
        if self._lease is None:
            return
        self._lease.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._lease
        if self.ports.readers.leave(self.record):
            # A request cut off here must still be cleaned up after; the sweeper is for a process that died.
            await asyncio.shield(self._forget())

    async def _forget(self) -> None:
        store, record = self.ports.store, self.record
        ended, won = await store.end(record.tenant, record.id, Ending("cancelled", stop=True))
        if won and ended is not None:
            with contextlib.suppress(Unavailable):
                await self.ports.runs.cancel(ended.workflow_id)
        await store.purge(record.tenant, record.id)

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(READER_LEASE / 3)
            with contextlib.suppress(Unavailable):
                until = self.ports.clock() + READER_LEASE
                await self.ports.store.attend(self.record.tenant, self.record.id, until)
