"""Claims about runs nobody is asked about: rounds, tools, retries, ends."""

import asyncio
import time
from dataclasses import replace
from datetime import timedelta

import pytest
from temporalio.exceptions import ApplicationError

from outlast import contracts
from outlast.contracts import CallLlmInput, FinishInput, ToolDone, ToolInput
from outlast.loop.state import MAX_STATE_BYTES, Batch, Budgets, Ended, Phase, RunState, Status
from outlast.protocol import json
from outlast.protocol.usage import Usage
from tests.support import scenarios
from tests.support.fakes import CANCELLED, COMPLETED, TIMEOUTS, Bench, Run, Script, done, state, tools


def finishing(run: Run) -> list[RunState]:
    """The states `FinishResponse` was given."""
    given: list[FinishInput] = run.fakes.inputs(contracts.FINISH_RESPONSE)
    return [each.state for each in given]


async def test_a_plain_response_costs_one_activity_and_eleven_events(bench: Bench) -> None:
    """An outcome that finished in place is obeyed: no further activity."""
    run = await scenarios.plain(bench)
    assert run.fakes.calls == [(contracts.CALL_LLM, CallLlmInput("default", state(), TIMEOUTS))]
    assert await run.event_names() == [
        "WORKFLOW_EXECUTION_STARTED",
        "WORKFLOW_TASK_SCHEDULED",
        "WORKFLOW_TASK_STARTED",
        "WORKFLOW_TASK_COMPLETED",
        "ACTIVITY_TASK_SCHEDULED",
        "ACTIVITY_TASK_STARTED",
        "ACTIVITY_TASK_COMPLETED",
        "WORKFLOW_TASK_SCHEDULED",
        "WORKFLOW_TASK_STARTED",
        "WORKFLOW_TASK_COMPLETED",
        "WORKFLOW_EXECUTION_COMPLETED",
    ]
    assert sum(event.ByteSize() for event in await run.events()) < MAX_STATE_BYTES


async def test_a_spent_budget_ends_the_response_without_a_model_round(bench: Bench) -> None:
    """The loop says so before the first call."""
    run = await scenarios.budget_spent(bench)
    assert run.fakes.names() == [contracts.FINISH_RESPONSE]
    assert [each.ended for each in finishing(run)] == [Ended(Status.INCOMPLETE, reason="budget_exceeded")]


async def test_a_tool_round_costs_one_activity_per_call_and_one_model_round(bench: Bench) -> None:
    """Calls go out in the model's order; the next round starts from their answers."""
    run = await scenarios.tool_round(bench)
    calls: list[ToolInput] = run.fakes.inputs(contracts.EXECUTE_TOOLS)
    assert sorted(calls, key=lambda call: call.ordinal) == [
        ToolInput("default", "resp_1", 1, ordinal, TIMEOUTS) for ordinal in range(3)
    ]
    assert await run.scheduled() == [
        ("CallLlm", "first · round 1"),
        *[("ExecuteTools", "docs.search")] * 3,
        ("CallLlm", "first · round 2"),
    ]
    assert run.fakes.inputs(contracts.CALL_LLM)[1].state == state(
        round=1, tool_calls=3, now=2.0, batch=Batch(1, names=tuple((n, "docs.search") for n in range(3)))
    )


async def test_a_batch_runs_at_most_as_many_calls_at_once_as_its_budget_says(bench: Bench) -> None:
    """The rest waits, and goes out in the model's order."""
    running: list[int] = []
    most = 0
    free = asyncio.Event()

    async def one(call: ToolInput) -> ToolDone:
        nonlocal most
        running.append(call.ordinal)
        most = max(most, len(running))
        await free.wait()
        running.remove(call.ordinal)
        return ToolDone(at=float(call.ordinal))

    script: Script = {contracts.CALL_LLM: [tools(*range(5))], contracts.EXECUTE_TOOLS: [one] * 5}
    async with bench.running(script, state(budgets=Budgets(parallel=2))) as run:
        await run.fakes.called(contracts.EXECUTE_TOOLS, 2)
        free.set()
        await run.ended()
        assert most == 2
        calls: list[ToolInput] = run.fakes.inputs(contracts.EXECUTE_TOOLS)
        assert {call.ordinal for call in calls[:2]} == {0, 1}
        assert sorted(call.ordinal for call in calls) == [0, 1, 2, 3, 4]
        # The time of a batch is that of its last answer.
        assert run.fakes.inputs(contracts.CALL_LLM)[1].state.now == 4.0


async def test_a_call_whose_attempts_are_all_lost_is_recorded_and_the_run_goes_on(bench: Bench) -> None:
    """Three attempts, then the local activity; the model is asked again."""
    run = await scenarios.tool_lost(bench)
    assert run.fakes.names() == [
        contracts.CALL_LLM,
        *[contracts.EXECUTE_TOOLS] * 3,
        contracts.FAIL_CALL,
        contracts.CALL_LLM,
    ]
    assert run.fakes.inputs(contracts.FAIL_CALL) == [ToolInput("default", "resp_1", 1, 0, TIMEOUTS)]


async def test_a_batch_whose_response_has_ended_stops_the_run(bench: Bench) -> None:
    """The row says how it ended; nothing more is done."""
    script: Script = {contracts.CALL_LLM: [tools(0, 1)], contracts.EXECUTE_TOOLS: [ToolDone(gone=True)]}
    async with bench.running(script) as run:
        await run.ended()
        assert set(run.fakes.names()) == {contracts.CALL_LLM, contracts.EXECUTE_TOOLS}


async def test_a_batch_that_cannot_be_recorded_starts_no_further_call(bench: Bench) -> None:
    """One call fails for good: the response ends failed, and its waiting siblings never run."""
    final = ApplicationError("lost", type="Broken", non_retryable=True)
    script: Script = {
        contracts.CALL_LLM: [tools(0, 1, 2)],
        contracts.EXECUTE_TOOLS: [final],
        contracts.FAIL_CALL: [final],
    }
    async with bench.running(script, state(budgets=Budgets(parallel=1))) as run:
        await run.ended()
        assert run.fakes.names() == [
            contracts.CALL_LLM,
            contracts.EXECUTE_TOOLS,
            contracts.FAIL_CALL,
            contracts.FINISH_RESPONSE,
        ]
        assert [each.ended for each in finishing(run)] == [Ended(Status.FAILED, code="Broken")]
        assert await run.scheduled() == [("CallLlm", "first · round 1"), ("ExecuteTools", "docs.search")]


async def test_client_calls_after_a_tool_batch_are_handed_back(bench: Bench) -> None:
    """The response completes without another round."""
    async with bench.running({contracts.CALL_LLM: [tools(0, client=True)]}) as run:
        await run.ended()
        assert run.fakes.names() == [contracts.CALL_LLM, contracts.EXECUTE_TOOLS, contracts.FINISH_RESPONSE]
        assert [each.ended for each in finishing(run)] == [COMPLETED]


async def test_a_round_is_tried_again_until_an_attempt_succeeds(bench: Bench) -> None:
    """Attempts are one event each, the last one only."""
    run = await scenarios.model_retried(bench)
    assert run.fakes.names() == [contracts.CALL_LLM] * 3
    assert len(await run.events()) == 11


async def test_a_round_whose_attempts_are_all_lost_fails_the_response_not_the_workflow(bench: Bench) -> None:
    """Four attempts; the code is the failure's type."""
    run = await scenarios.model_lost(bench)
    assert run.fakes.names() == [*[contracts.CALL_LLM] * 4, contracts.FINISH_RESPONSE]
    assert [each.ended for each in finishing(run)] == [Ended(Status.FAILED, code="WorkerShutdown")]


async def test_a_worker_that_stops_beating_is_a_lost_attempt(bench: Bench) -> None:
    """A heartbeat time-out is no code of ours: `step_failed`."""

    async def silent(_: CallLlmInput) -> object:
        await asyncio.Event().wait()
        return None

    timeouts = replace(TIMEOUTS, heartbeat=0.5, llm_attempts=1)
    async with bench.running({contracts.CALL_LLM: [silent]}, timeouts=timeouts) as run:
        await run.ended()
        assert [each.ended for each in finishing(run)] == [Ended(Status.FAILED, code="step_failed")]


async def test_a_tool_whose_worker_stops_beating_is_a_lost_attempt(bench: Bench) -> None:
    """Noticed by the missing beats, long before the tool's own time is over."""

    async def silent(_: ToolInput) -> object:
        await asyncio.Event().wait()
        return None

    timeouts = replace(TIMEOUTS, heartbeat=0.5, tool_attempts=1)
    script: Script = {contracts.CALL_LLM: [tools(0)], contracts.EXECUTE_TOOLS: [silent]}
    async with bench.running(script, timeouts=timeouts) as run:
        await run.ended()
        assert run.fakes.names() == [
            contracts.CALL_LLM,
            contracts.EXECUTE_TOOLS,
            contracts.FAIL_CALL,
            contracts.CALL_LLM,
        ]


async def test_an_attempt_waits_as_long_as_the_upstream_asks(bench: Bench) -> None:
    """`retry-after` arrives as `next_retry_delay` and beats the policy's interval."""
    began: list[float] = []

    async def refused(_: CallLlmInput) -> object:
        began.append(time.monotonic())
        raise ApplicationError("rate_limited", type="RateLimited", next_retry_delay=timedelta(seconds=1.5))

    async def answered(_: CallLlmInput) -> object:
        began.append(time.monotonic())
        return done()

    async with bench.running({contracts.CALL_LLM: [refused, answered]}) as run:
        await run.ended()
    assert began[1] - began[0] >= 1.4


@pytest.mark.parametrize("kind", ["Unauthorized", "PayloadsTooLarge"])
async def test_a_refusal_that_will_not_change_is_not_tried_again(bench: Bench, kind: str) -> None:
    """One attempt: marked so by the activity, or of a type the policy names."""
    error = ApplicationError("refused", type=kind, non_retryable=kind == "Unauthorized")
    async with bench.running({contracts.CALL_LLM: [error]}) as run:
        await run.ended()
        assert run.fakes.names() == [contracts.CALL_LLM, contracts.FINISH_RESPONSE]
        assert [each.ended for each in finishing(run)] == [Ended(Status.FAILED, code=kind)]


async def test_an_oversized_state_is_refused_before_it_is_sent_and_the_response_fails(bench: Bench) -> None:
    """The tools ran; the next round's input is too large; what ends the response is small and keeps the usage."""
    run = await scenarios.oversized(bench)
    assert run.fakes.names() == [contracts.CALL_LLM, contracts.EXECUTE_TOOLS, contracts.FINISH_RESPONSE]
    (last,) = finishing(run)
    assert last.ended == Ended(Status.FAILED, code="state_too_large")
    assert last.usage == Usage()
    assert len(json.dumps(last)) < 1_000


async def test_a_response_ended_by_somebody_else_is_left_as_it_is(bench: Bench) -> None:
    """A round that finds its response gone answers so, and the run stops."""
    async with bench.running({contracts.CALL_LLM: [replace(done(), finished=CANCELLED)]}) as run:
        await run.ended()
        assert run.fakes.names() == [contracts.CALL_LLM]


async def test_a_run_can_begin_with_approved_calls(bench: Bench) -> None:
    """A continuation of a closed run brings its batch along."""
    given = state(phase=Phase.TOOLS, batch=Batch(0, run=(1,), names=((1, "docs.delete"),)))
    async with bench.running({}, given) as run:
        await run.ended()
        assert await run.scheduled() == [("ExecuteTools", "docs.delete"), ("CallLlm", "first · round 1")]
