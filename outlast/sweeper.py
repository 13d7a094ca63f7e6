"""Find silent runs and mend them: every process has one, leases keep two from mending the same row.

The row says what must be; Temporal says what is; this loop makes them agree:

    row open, workflow unknown         the start was lost (or Temporal's file): start it under its own id; committed
                                       steps and decisions come back from the store and it goes on where it was
    row open, workflow closed          terminated, timed out, failed: `failed` if a step of the response was begun,
                                       else started again
    row open, workflow running         its wake-ups are repeated: resume for a continuation, decided at a gate
    asks overdue                       expired
    run parked, workflow gone          closed; its asks stay decidable through a new run
    run to be stopped, workflow open   cancelled again: Temporal was away, or the process that had to say it
    `store:false`, reader gone         cancelled and purged; ended ones purged

It reads pages of rows that were silent for a while, never lists workflows (visibility is rate limited).
"""

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from pydantic import TypeAdapter

from outlast.contracts import RunInput, Timeouts
from outlast.loop.state import RunState
from outlast.protocol.errors import OutlastError, Unavailable
from outlast.protocol.responses import response_error
from outlast.store.base import Ending, ResponseRecord
from outlast.store.port import Store

log = logging.getLogger("outlast.sweeper")

_STATE = TypeAdapter(RunState)


class SweeperRuns(Protocol):
    """What the sweeper asks of Temporal."""

    async def start(self, run: RunInput, workflow_id: str, *, again: bool = False) -> None: ...

    async def resume(self, workflow_id: str, response_id: str) -> bool: ...

    async def decided(self, workflow_id: str, approval_id: str) -> bool: ...

    async def cancel(self, workflow_id: str) -> None: ...

    async def is_running(self, workflow_id: str) -> bool | None: ...

    async def healthy(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class Pace:
    """Seconds: between two sweeps, until a row counts as silent, how long a page and a parked run are leased. Rows a
    page."""

    every: float = 10.0
    silent: float = 60.0
    lease: float = 30.0
    parked: float = 600.0
    page: int = 50


class Sweeper:
    """The loop. `run_forever` until cancelled, or `sweep` once."""

    def __init__(
        self,
        store: Store,
        runs: SweeperRuns,
        timeouts: Timeouts,
        *,
        pace: Pace | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._store = store
        self._runs = runs
        self._timeouts = timeouts
        self._pace = pace or Pace()
        self._clock = clock

    async def run_forever(self) -> None:
        """Sweep, sleep, again. A sweep that meets a store or a Temporal that is away is tried again."""
        while True:
            try:
                await self.sweep()
            except OutlastError as error:
                log.warning("sweep failed: %s", error.message)
            await asyncio.sleep(self._pace.every)

    async def sweep(self) -> int:
        """One pass; how many rows were looked at. Nothing is leased while Temporal is away: nothing could be mended."""
        now = self._clock()
        # First: content that must go does not wait for Temporal.
        await self._store.purge_transient(now)
        seen = 0
        if not await self._runs.healthy():
            return seen
        while page := await self._store.stale(
            # By the clock of each page: a sweep that outlasted its first lease would take its own rows again.
            silent_since=now - self._pace.silent,
            limit=self._pace.page,
            lease_until=self._clock() + self._pace.lease,
        ):
            for record in page:
                await self._mend_or_log(record, now)
                await self._store.rest(record.tenant, record.id)
            seen += len(page)
        for tenant, workflow_id, response_id in await self._store.parked(
            limit=self._pace.page, lease_until=now + self._pace.parked
        ):
            await self._store.expire(tenant, response_id, now)
            if not await self._runs.is_running(workflow_id):
                await self._store.leave_park(tenant, workflow_id, response_id)
        await self._stop(now)
        return seen

    async def _stop(self, now: float) -> None:
        for tenant, workflow_id in await self._store.stopping(
            limit=self._pace.page, lease_until=now + self._pace.lease
        ):
            if await self._runs.is_running(workflow_id):
                await self._runs.cancel(workflow_id)
            else:
                await self._store.stopped(tenant, workflow_id)

    async def _mend_or_log(self, record: ResponseRecord, now: float) -> None:
        try:
            await self._mend(record, now)
        except Unavailable:
            raise
        except Exception:
            # One row nobody can read must not keep all others from being mended; its lease spaces the log lines.
            log.exception("response %s cannot be mended", record.id)

    async def _mend(self, record: ResponseRecord, now: float) -> None:
        if not record.store:
            await self._forget(record)
            return
        await self._store.expire(record.tenant, record.id, now)
        match await self._runs.is_running(record.workflow_id):
            case True:
                await self._wake(record)
            case None:
                await self._restart(record)
            case False:
                await self._after_close(record, now)

    async def _forget(self, record: ResponseRecord) -> None:
        """Nobody can read it any more: end it, stop its run, keep nothing."""
        ended, _ = await self._store.end(record.tenant, record.id, Ending("cancelled", stop=True))
        if ended is not None:
            await self._runs.cancel(ended.workflow_id)
        await self._store.purge(record.tenant, record.id)

    async def _wake(self, record: ResponseRecord) -> None:
        """Repeat the wake-ups: the run reads the row, so one too many is harmless."""
        if record.workflow_id != record.id:
            await self._runs.resume(record.workflow_id, record.id)
        if record.mode == "wait":
            for ask in await self._store.approvals(record.tenant, response_id=record.id):
                if ask.status != "pending":
                    await self._runs.decided(record.workflow_id, ask.id)

    async def _after_close(self, record: ResponseRecord, now: float) -> None:
        if not await self._store.steps_begun(record.tenant, record.id):
            await self._restart(record)
            return
        text = "The run was ended outside of Outlast (terminated, timed out or failed). Send the request again."
        row = Ending(status="failed", error=response_error("server_error", text))
        _, won = await self._store.end(record.tenant, record.id, row)
        if won:
            log.warning("response %s failed: its workflow %s is closed", record.id, record.workflow_id)

    async def _restart(self, record: ResponseRecord) -> None:
        """Start the run again under its own id, even if it was a continuation of a parked one that is lost."""
        moved = record.workflow_id == record.id or await self._store.set_workflow(
            record.tenant, record.id, old=record.workflow_id, new=record.id
        )
        if moved:
            state = _STATE.validate_python(record.run_state)
            run = RunInput(record.tenant, state, record.model, self._timeouts)
            await self._runs.start(run, record.id, again=True)
            log.warning("run of response %s started again", record.id)
