"""Where a run waits for people: at a gate for decisions, in a park for the caller's next request.

Both are woken by signals and believe none of them: after each wake-up the row is read.
"""

import contextlib
from collections.abc import Callable
from datetime import timedelta

from temporalio import workflow
from temporalio.exceptions import FailureError

with workflow.unsafe.imports_passed_through():
    from outlast import contracts
    from outlast.contracts import DecideInput, Decision, GateInput, GateView, ParkInput, Resumed, RunInput, Verdict
    from outlast.loop.state import Ended, FinishOutcome, GateOutcome, RunState, Status

    from workflows import showing, steps


class Gate:
    """The asks of a batch. `open`: a decision may arrive; `wakes`: how often one did."""

    def __init__(self, run: RunInput) -> None:
        self.open = False
        # Counted, so that a wake-up arriving between a read and the wait is not lost.
        self.wakes = 0
        self._pending = 0
        self._run = run

    async def wait(self, state: RunState, show: Callable[[str], None]) -> GateOutcome | FinishOutcome:
        """Wait mode: until every ask of the batch is decided or a deadline decides."""
        timeouts = self._run.timeouts
        gate = GateInput(self._run.tenant, state.response_id, state.batch.round)
        while True:
            seen = self.wakes
            view = await steps.local(contracts.READ_GATE, gate, GateView, timeouts)
            if view.gone:
                self.close()
                return FinishOutcome(Ended(Status.CANCELLED))
            if view.pending == 0:
                self.close()
                return GateOutcome(view.approved, view.failed, view.at)
            self.publish(view.pending)
            show(f"Waiting for {view.pending} approval(s): {showing.names(state.batch, state.batch.ask)}")
            await self._sleep_until_woken(seen, view.deadline_in)
            if view.deadline_in is not None and self.wakes == seen:
                await steps.local(contracts.EXPIRE_ASKS, gate, GateView, timeouts)

    async def decide(self, decision: Decision, how: str) -> Verdict:
        """Record a decision made in Temporal and wake the wait; the decision that stands. Never raises."""
        request = DecideInput(self._run.tenant, decision, how)
        try:
            return await steps.local(contracts.DECIDE_APPROVAL, request, Verdict, self._run.timeouts)
        except FailureError:
            # Raised from a signal it would fail the run. Whether it was decided, the row says.
            return Verdict(decision.approval_id)
        finally:
            self.wakes += 1

    def publish(self, pending: int) -> None:
        """Let an operator's query find how many asks are open."""
        if pending != self._pending:
            self._pending = pending
            workflow.upsert_search_attributes([contracts.PENDING_KEY.value_set(pending)])

    def close(self) -> None:
        """Nobody is waited for any more."""
        self.open = False
        self.publish(0)

    async def _sleep_until_woken(self, seen: int, seconds: float | None) -> None:
        timeout = None if seconds is None else timedelta(seconds=seconds)
        with contextlib.suppress(TimeoutError):
            await workflow.wait_condition(
                lambda: self.wakes > seen, timeout=timeout, timeout_summary="approval deadline"
            )


class Park:
    """A run that has ended its response with asks. `resumes`: ids of responses that say they took it."""

    def __init__(self, run: RunInput) -> None:
        self.resumes: list[str] = []
        self._run = run

    async def taken(self, response_id: str) -> Resumed:
        """Wait until the row says who took the run that parked on `response_id`, or that the park time is over."""
        end = workflow.now() + timedelta(seconds=self._run.timeouts.park)
        while True:
            # A wake-up nobody's row confirms must not make the park longer.
            left = max(end - workflow.now(), timedelta())
            with contextlib.suppress(TimeoutError):
                await workflow.wait_condition(lambda: bool(self.resumes), timeout=left, timeout_summary="park time")
            resumed = await self.leave(response_id, self.resumes.pop(0) if self.resumes else None)
            if resumed.state is not None or resumed.closed:
                return resumed

    async def leave(self, response_id: str, by: str | None) -> Resumed:
        """Ask the row who took it; without `by` the park is given up if nobody did."""
        request = ParkInput(self._run.tenant, response_id, by)
        return await steps.local(contracts.LEAVE_PARK, request, Resumed, self._run.timeouts)
