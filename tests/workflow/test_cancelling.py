"""Claims about cancellation: wherever it lands, the response is ended and the workflow is Cancelled."""

import asyncio
from datetime import timedelta

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.client import WorkflowExecutionStatus
from temporalio.exceptions import ApplicationError

from outlast import contracts
from outlast.contracts import Decision, FinishInput, GateView, ParkInput, Resumed, Verdict
from outlast.loop.state import Budgets, Ended, FinishOutcome, RunState, Status
from tests.support import scenarios
from tests.support.fakes import CANCELLED, HANG, Bench, Run, Script, asking, state, tools, waiting

CANCELED = WorkflowExecutionStatus.CANCELED


def finished(run: Run) -> list[tuple[str, Ended | None]]:
    """(response, how) of every `FinishResponse`."""
    states: list[RunState] = [each.state for each in run.fakes.inputs(contracts.FINISH_RESPONSE)]
    return [(each.response_id, each.ended) for each in states]


@pytest.mark.parametrize("where", ["cancelled_model", "cancelled_tools", "cancelled_gate"])
async def test_a_cancelled_run_ends_its_response(bench: Bench, where: str) -> None:
    """`FinishResponse` runs although everything else was cancelled; it is the last thing that does."""
    run = await scenarios.SCENARIOS[where](bench)
    assert finished(run) == [("resp_1", CANCELLED)]
    assert run.fakes.names()[-1] == contracts.FINISH_RESPONSE


async def test_calls_that_wait_for_their_turn_are_never_started(bench: Bench) -> None:
    """One of two calls ran when the cancellation came."""
    run = await scenarios.cancelled_tools(bench)
    assert run.fakes.names() == [contracts.CALL_LLM, contracts.EXECUTE_TOOLS, contracts.FINISH_RESPONSE]


async def test_parallel_calls_are_all_cancelled(bench: Bench) -> None:
    """And the response is ended once."""
    script: Script = {contracts.CALL_LLM: [tools(0, 1, 2)], contracts.EXECUTE_TOOLS: [HANG] * 3}
    async with bench.running(script, state(budgets=Budgets(parallel=3))) as run:
        await run.fakes.called(contracts.EXECUTE_TOOLS, 3)
        await run.handle.cancel()
        await run.ended(CANCELED)
        assert finished(run) == [("resp_1", CANCELLED)]
        assert (await run.event_names()).count("ACTIVITY_TASK_CANCEL_REQUESTED") == 3


async def test_a_run_cancelled_before_its_first_task_ends_its_response(bench: Bench) -> None:
    """The cancellation was there before any worker."""
    workflow_id = await bench.start()
    handle = bench.client.get_workflow_handle(workflow_id)
    await handle.cancel()
    async with bench.worker() as fakes:
        run = Run(handle, fakes)
        await run.ended(CANCELED)
        assert finished(run) == [("resp_1", CANCELLED)]


async def test_a_cancelled_park_takes_its_row_out_of_reach(bench: Bench) -> None:
    """The response has been complete for long; the row must not offer a run that is gone."""
    run = await scenarios.cancelled_park(bench)
    assert run.fakes.names() == [contracts.INTERRUPT_FOR_APPROVAL, contracts.LEAVE_PARK]
    assert run.fakes.inputs(contracts.LEAVE_PARK) == [ParkInput("default", "resp_1", None)]


async def test_a_continuation_that_had_claimed_a_cancelled_park_ends_with_it(bench: Bench) -> None:
    """Its caller gets a terminal and does not wait for the sweeper."""
    script: Script = {contracts.LEAVE_PARK: [Resumed(state("resp_2"), model="m")]}
    async with bench.running(script, asking()) as run:
        await run.parked()
        await run.handle.cancel()
        await run.ended(CANCELED)
        assert finished(run) == [("resp_2", CANCELLED)]


async def cancelled_meanwhile(run: Run) -> None:
    """Called in a local activity: cancel its run, and return when the workflow knows."""
    before = (await run.event_names()).count("WORKFLOW_TASK_STARTED")
    await run.handle.cancel()
    await run.recorded(EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CANCEL_REQUESTED)
    # A task that lasts reports itself, and its successor brings the cancellation while this is still at work.
    await run.recorded(EventType.EVENT_TYPE_WORKFLOW_TASK_STARTED, before + 2)


async def test_a_cancellation_does_not_cut_the_end_of_a_failed_response(bench: Bench) -> None:
    """It comes while `FinishResponse` is at work after a failure: that is waited for, and then the run is Cancelled."""
    ends: list[Ended | None] = []

    async def slowly(given: FinishInput) -> FinishOutcome:
        await cancelled_meanwhile(run)
        ends.append(given.state.ended)
        return FinishOutcome(given.state.ended or CANCELLED)

    refused = ApplicationError("refused", type="Refused", non_retryable=True)
    script: Script = {contracts.CALL_LLM: [refused], contracts.FINISH_RESPONSE: [slowly]}
    async with bench.worker(script) as fakes:
        workflow_id = await bench.start(task_timeout=timedelta(seconds=2))
        run = Run(bench.client.get_workflow_handle(workflow_id), fakes)
        await run.ended(CANCELED)
        assert ends == [Ended(Status.FAILED, code="Refused")]
        assert finished(run) == [("resp_1", Ended(Status.FAILED, code="Refused"))]


async def test_a_decision_in_the_making_is_answered_before_a_cancelled_run_ends(bench: Bench) -> None:
    """The operator who clicked gets the answer; a handler is never cut off."""

    async def slowly(_: object) -> Verdict:
        await cancelled_meanwhile(run)
        return Verdict("mcpr_1", "approved", "temporal-update", won=True)

    script: Script = {contracts.READ_GATE: [GateView(pending=1)], contracts.DECIDE_APPROVAL: [slowly]}
    async with bench.worker(script) as fakes:
        workflow_id = await bench.start(waiting(), task_timeout=timedelta(seconds=2))
        run = Run(bench.client.get_workflow_handle(workflow_id), fakes)
        await fakes.called(contracts.READ_GATE)
        async with asyncio.timeout(20):
            answer: Verdict = await run.handle.execute_update(
                contracts.UPDATE_DECIDE, Decision("mcpr_1", approve=True), result_type=Verdict
            )
        assert answer.won
        await run.ended(CANCELED)
        # A task that found news at its end is repeated, its local activities too.
        assert set(finished(run)) == {("resp_1", CANCELLED)}


async def test_a_decision_in_the_making_is_answered_before_a_run_is_done(bench: Bench) -> None:
    """Somebody else was faster, and everything else is over."""

    async def slowly(_: object) -> Verdict:
        await run.handle.signal(contracts.SIGNAL_DECIDED, "mcpr_1")
        await run.recorded(EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED, 2)
        # The task after this one has seen the last activity's answer.
        before = (await run.event_names()).count("WORKFLOW_TASK_STARTED")
        await run.recorded(EventType.EVENT_TYPE_WORKFLOW_TASK_STARTED, before + 2)
        return Verdict("mcpr_1", "denied", "api")

    script: Script = {contracts.READ_GATE: [GateView(pending=1), GateView(at=4.0)], contracts.DECIDE_APPROVAL: [slowly]}
    async with bench.worker(script) as fakes:
        workflow_id = await bench.start(waiting(), task_timeout=timedelta(seconds=1))
        run = Run(bench.client.get_workflow_handle(workflow_id), fakes)
        await fakes.called(contracts.READ_GATE)
        async with asyncio.timeout(20):
            answer: Verdict = await run.handle.execute_update(
                contracts.UPDATE_DECIDE, Decision("mcpr_1", approve=True), result_type=Verdict
            )
        assert (answer.status, answer.won) == ("denied", False)
        await run.ended()
