"""Claims about waiting for people: parks, gates, and the messages that wake them."""

import asyncio
from dataclasses import replace

import pytest
from temporalio import workflow
from temporalio.client import WorkflowUpdateFailedError
from temporalio.exceptions import ApplicationError

from outlast import contracts
from outlast.contracts import AskInput, DecideInput, Decision, GateInput, GateView, ParkInput, Resumed, Verdict
from outlast.loop.state import AskOutcome, Batch, Ended, LlmOutcome, Phase, Status
from tests.support import scenarios
from tests.support.fakes import CANCELLED, COMPLETED, TIMEOUTS, Bench, Run, Script, asking, done, state, tools, waiting

ASK, GATE = contracts.INTERRUPT_FOR_APPROVAL, contracts.READ_GATE
BROKEN = ApplicationError("broken", type="Broken", non_retryable=True)


async def decide(run: Run, *, approve: bool = True) -> Verdict:
    """As an operator does it in Temporal's UI."""
    async with asyncio.timeout(10):
        verdict: Verdict = await run.handle.execute_update(
            contracts.UPDATE_DECIDE, Decision("mcpr_1", approve=approve), result_type=Verdict
        )
    return verdict


# -- respond mode ----------------------------------------------------------------------------------------------------


async def test_a_parked_run_serves_the_next_response_in_the_same_history(bench: Bench) -> None:
    """A stale wake-up changes nothing; the true one brings its own state and model."""
    run = await scenarios.resumed(bench)
    assert run.fakes.inputs(ASK) == [AskInput("default", asking(), may_park=True)]
    assert run.fakes.inputs(contracts.LEAVE_PARK) == [
        ParkInput("default", "resp_1", "resp_stale"),
        ParkInput("default", "resp_1", "resp_2"),
    ]
    assert await run.scheduled() == [
        ("InterruptForApproval", "docs.delete"),
        ("ExecuteTools", "docs.delete"),
        ("CallLlm", "second · round 1"),
    ]
    assert run.fakes.inputs(contracts.CALL_LLM)[0].state.response_id == "resp_2"


async def test_a_repeated_wake_up_is_answered_by_the_row(bench: Bench) -> None:
    """The run parks twice; the first continuation's second signal does not take the second park."""
    script: Script = {contracts.LEAVE_PARK: [Resumed(asking("resp_2"), model="m"), Resumed()]}
    async with bench.running(script, asking()) as run:
        await run.parked()
        await run.handle.signal(contracts.SIGNAL_RESUME, "resp_2")
        await run.handle.signal(contracts.SIGNAL_RESUME, "resp_2")
        await run.fakes.called(contracts.LEAVE_PARK, 2)
        await run.handle.signal(contracts.SIGNAL_RESUME, "resp_3")
        await run.ended()
        assert run.fakes.inputs(contracts.LEAVE_PARK) == [
            ParkInput("default", "resp_1", "resp_2"),
            ParkInput("default", "resp_2", "resp_2"),
            ParkInput("default", "resp_2", "resp_3"),
        ]


async def test_a_wake_up_before_the_park_is_not_lost(bench: Bench) -> None:
    """The client may answer before the ask's outcome is back in the workflow."""

    async def resumed_first(given: AskInput) -> AskOutcome:
        await run.handle.signal(contracts.SIGNAL_RESUME, "resp_2")
        return AskOutcome(at=1.0, finished=COMPLETED, parked=True)

    async with bench.running({ASK: [resumed_first]}, asking()) as run:
        await run.ended()
        assert run.fakes.names() == [ASK, contracts.LEAVE_PARK, contracts.CALL_LLM]


async def test_a_park_that_lasted_its_time_closes_the_run(bench: Bench) -> None:
    """The row is closed first, and nothing is ended: the response has been complete for long."""
    run = await scenarios.park_over(bench)
    assert run.fakes.inputs(contracts.LEAVE_PARK) == [ParkInput("default", "resp_1", None)]
    assert run.fakes.names() == [ASK, contracts.LEAVE_PARK]


async def test_a_continuation_that_claims_a_closing_run_is_served(bench: Bench) -> None:
    """The row decides between the end of the park and a claim at the same moment."""
    script: Script = {contracts.LEAVE_PARK: [Resumed(state("resp_2"), model="m")]}
    async with bench.running(script, asking(), timeouts=replace(TIMEOUTS, park=0.2)) as run:
        await run.ended()
        assert run.fakes.names() == [ASK, contracts.LEAVE_PARK, contracts.CALL_LLM]


async def test_stale_wake_ups_do_not_make_a_park_longer(bench: Bench) -> None:
    """The park time runs from the park, not from the last signal."""
    stale = [Resumed()] * 3
    async with bench.running({contracts.LEAVE_PARK: stale}, asking(), timeouts=replace(TIMEOUTS, park=3)) as run:
        await run.parked()
        for times in range(1, 4):
            await run.handle.signal(contracts.SIGNAL_RESUME, f"resp_stale_{times}")
            await run.fakes.called(contracts.LEAVE_PARK, times)
        await run.ended()
        timers = [
            event.timer_started_event_attributes.start_to_fire_timeout.ToTimedelta().total_seconds()
            for event in await run.events()
            if event.HasField("timer_started_event_attributes")
        ]
        assert timers[0] == 3
        assert timers == sorted(timers, reverse=True)
        assert timers[-1] < 3


async def test_the_sixteenth_response_of_a_run_does_not_park(bench: Bench) -> None:
    """A history stays bounded: its continuation starts a new run."""
    resumes = [Resumed(asking(f"resp_{number}"), model="m") for number in range(2, 17)]
    async with bench.running({contracts.LEAVE_PARK: resumes}, asking()) as run:
        for number in range(2, 17):
            await run.handle.signal(contracts.SIGNAL_RESUME, f"resp_{number}")
        await run.ended()
        asks: list[AskInput] = run.fakes.inputs(ASK)
        assert [ask.may_park for ask in asks] == [True] * 15 + [False]


async def test_a_run_whose_history_grew_long_does_not_park(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Temporal says when: the next response gets a run of its own."""
    monkeypatch.setattr(workflow.Info, "is_continue_as_new_suggested", lambda _: True)
    async with bench.running({}, asking()) as run:
        await run.ended()
        assert [given.may_park for given in run.fakes.inputs(ASK)] == [False]


async def test_an_ask_whose_response_has_ended_neither_parks_nor_waits(bench: Bench) -> None:
    """Cancelled or deleted meanwhile."""
    async with bench.running({ASK: [AskOutcome(finished=CANCELLED)]}, asking()) as run:
        await run.ended()
        assert run.fakes.names() == [ASK]


# -- wait mode -------------------------------------------------------------------------------------------------------


async def test_a_decision_made_elsewhere_wakes_the_gate(bench: Bench) -> None:
    """The signal carries an id only; the gate reads the rows, and the approved call runs."""
    run = await scenarios.gate_decided(bench)
    assert run.fakes.names() == [ASK, GATE, GATE, contracts.EXECUTE_TOOLS, contracts.CALL_LLM]
    assert run.fakes.inputs(GATE) == [GateInput("default", "resp_1", 0)] * 2


async def test_free_calls_run_before_asks_are_shown(bench: Bench) -> None:
    """A human may take days; what needs no consent is done by then."""
    given = waiting()
    script: Script = {contracts.CALL_LLM: [tools(0, ask=[1])], GATE: [GateView(approved=(1,))]}
    async with bench.running(script, replace(given, phase=Phase.MODEL, batch=Batch())) as run:
        await run.ended()
        assert run.fakes.names() == [
            contracts.CALL_LLM,
            contracts.EXECUTE_TOOLS,
            ASK,
            GATE,
            contracts.EXECUTE_TOOLS,
            contracts.CALL_LLM,
        ]


async def test_a_denied_ask_runs_nothing_and_the_model_is_asked_again(bench: Bench) -> None:
    """Denied by Temporal's update, whose answer is the decision that stands."""
    run = await scenarios.gate_updated(bench)
    assert run.fakes.inputs(contracts.DECIDE_APPROVAL) == [
        DecideInput("default", Decision("mcpr_1", approve=False), "temporal-update")
    ]
    assert run.fakes.names() == [ASK, GATE, contracts.DECIDE_APPROVAL, GATE, contracts.CALL_LLM]


async def test_the_update_answers_the_decision_that_stands(bench: Bench) -> None:
    """Somebody was faster: the caller is told who and what."""
    stands = Verdict("mcpr_1", "denied", "api", won=False)
    script: Script = {GATE: [scenarios.PENDING], contracts.DECIDE_APPROVAL: [stands]}
    async with bench.running(script, waiting()) as run:
        await run.fakes.called(GATE)
        assert await decide(run) == stands
        await run.ended()


async def test_a_signal_decides_without_an_answer(bench: Bench) -> None:
    """For tools that only know signals."""
    run = await scenarios.gate_signalled(bench)
    assert run.fakes.inputs(contracts.DECIDE_APPROVAL) == [
        DecideInput("default", Decision("mcpr_1", approve=True), "temporal-signal")
    ]


SLIPS = [
    {"approval_id": "mcpr_1"},
    {"approval_id": "mcpr_1", "approve": "yes"},
    {"approval_id": "mcpr_1", "approve": 1},
    {"approval_id": 5, "approve": True},
    "mcpr_1",
    None,
]


async def test_a_slip_of_an_operator_decides_nothing(bench: Bench) -> None:
    """No verdict, a text for one, no object: refused as an update, with the right shape, dropped as a signal."""
    script: Script = {GATE: [scenarios.PENDING]}
    async with bench.running(script, waiting()) as run:
        await run.fakes.called(GATE)
        for slip in SLIPS:
            await run.handle.signal(contracts.SIGNAL_DECIDE, slip)
            with pytest.raises(WorkflowUpdateFailedError) as refused:
                await run.handle.execute_update(contracts.UPDATE_DECIDE, slip)
            assert isinstance(refused.value.cause, ApplicationError)
            assert (refused.value.cause.type, refused.value.cause.non_retryable) == ("no_verdict", True)
            assert '"approve": true' in str(refused.value.cause)
        assert (await decide(run)).won
        await run.ended()
    assert [given.how for given in run.fakes.inputs(contracts.DECIDE_APPROVAL)] == ["temporal-update"]


async def test_a_decision_before_the_asks_outcome_is_taken(bench: Bench) -> None:
    """The gate opens before the ask is visible, so there is no moment at which a decision is refused."""

    async def decided_first(given: AskInput) -> AskOutcome:
        assert (await decide(run)).won
        return AskOutcome(at=1.0)

    async with bench.running({ASK: [decided_first]}, waiting()) as run:
        await run.ended()
        assert run.fakes.names() == [ASK, contracts.DECIDE_APPROVAL, GATE, contracts.EXECUTE_TOOLS, contracts.CALL_LLM]


async def test_an_update_without_an_open_gate_is_refused_and_leaves_no_event(bench: Bench) -> None:
    """Before any ask; refused updates cost nothing, and a signal asks nobody."""
    free = asyncio.Event()

    async def held(_: object) -> LlmOutcome:
        await free.wait()
        return done()

    async with bench.running({contracts.CALL_LLM: [held]}) as run:
        await run.fakes.called(contracts.CALL_LLM)
        before = len(await run.events())
        with pytest.raises(WorkflowUpdateFailedError) as refused:
            await decide(run)
        assert isinstance(refused.value.cause, ApplicationError)
        assert refused.value.cause.type == "no_open_approval"
        assert len(await run.events()) == before
        await run.handle.signal(contracts.SIGNAL_DECIDE, {"approval_id": "mcpr_1", "approve": True})
        free.set()
        await run.ended()
        assert run.fakes.names() == [contracts.CALL_LLM]


async def test_the_gate_is_shut_once_everything_is_decided(bench: Bench) -> None:
    """While the approved call runs there is nothing left to decide."""
    free = asyncio.Event()

    async def held(_: object) -> LlmOutcome:
        await free.wait()
        return done()

    async with bench.running({contracts.CALL_LLM: [held]}, waiting()) as run:
        await run.fakes.called(contracts.CALL_LLM)
        with pytest.raises(WorkflowUpdateFailedError):
            await decide(run)
        free.set()
        await run.ended()


async def test_a_handler_that_cannot_decide_does_not_fail_the_run(bench: Bench) -> None:
    """The signal is dropped, the update says `unknown`; the run waits on."""
    script: Script = {GATE: [scenarios.PENDING] * 3, contracts.DECIDE_APPROVAL: [BROKEN, BROKEN]}
    async with bench.running(script, waiting()) as run:
        await run.fakes.called(GATE)
        await run.handle.signal(contracts.SIGNAL_DECIDE, Decision("mcpr_1", approve=True))
        await run.fakes.called(GATE, 2)
        assert await decide(run) == Verdict("mcpr_1", "unknown")
        await run.fakes.called(GATE, 3)
        await run.handle.signal(contracts.SIGNAL_DECIDED, "mcpr_1")
        await run.ended()


async def test_a_message_nobody_can_read_is_dropped(bench: Bench) -> None:
    """A person's typing error in Temporal's UI does not stop a run."""
    async with bench.running({GATE: [scenarios.PENDING]}, waiting()) as run:
        await run.fakes.called(GATE)
        await run.handle.signal(contracts.SIGNAL_DECIDE, "yes please")
        await run.handle.signal(contracts.SIGNAL_PROGRESS, [1, 2])
        await run.handle.signal(contracts.SIGNAL_DECIDED, "mcpr_1")
        await run.ended()
        assert contracts.DECIDE_APPROVAL not in run.fakes.names()


async def test_a_deadline_that_denies_lets_the_response_go_on(bench: Bench) -> None:
    """The timer only makes expiry prompt; the rows say what it means."""
    run = await scenarios.gate_denied_by_deadline(bench)
    assert run.fakes.names() == [ASK, GATE, contracts.EXPIRE_ASKS, GATE, contracts.CALL_LLM]


async def test_a_deadline_that_fails_ends_the_response(bench: Bench) -> None:
    """With the code of its own."""
    run = await scenarios.gate_failed_by_deadline(bench)
    assert run.fakes.names() == [ASK, GATE, contracts.EXPIRE_ASKS, GATE, contracts.FINISH_RESPONSE]
    assert run.fakes.inputs(contracts.FINISH_RESPONSE)[0].state.ended == Ended(Status.FAILED, code="approval_expired")


async def test_a_gate_whose_response_has_ended_is_left(bench: Bench) -> None:
    """Nothing is ended a second time."""
    run = await scenarios.gate_gone(bench)
    assert run.fakes.names() == [ASK, GATE]
