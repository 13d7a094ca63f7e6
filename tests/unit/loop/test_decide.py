"""The loop's decisions as tables: (state, outcome) → the next step, whole."""

from dataclasses import replace

import pytest

from outlast.loop.decide import absorb, ends_with, initial, next_step
from outlast.loop.state import (
    ApprovalMode,
    AskOutcome,
    Batch,
    Budgets,
    CallLlm,
    Ended,
    ExecuteTools,
    Finish,
    FinishOutcome,
    GateOutcome,
    InterruptForApproval,
    LlmOutcome,
    Outcome,
    Phase,
    RunState,
    Status,
    Step,
    ToolChoice,
    ToolsOutcome,
)
from outlast.protocol.usage import Usage

FRESH = RunState("resp_1")
CAPPED = RunState("resp_1", round=1, tool_calls=2, capped=True, budgets=Budgets(max_tool_calls=2))
COMPLETED = Finish(Ended(Status.COMPLETED))
CAP_REACHED = Finish(Ended(Status.INCOMPLETE, reason="max_tool_calls"))
OVER_BUDGET = Finish(Ended(Status.INCOMPLETE, reason="budget_exceeded"))
AFTER_TOOLS = RunState("resp_1", phase=Phase.TOOLS, round=1, batch=Batch(1, run=(0,)))
WAITING = RunState("resp_1", ApprovalMode.WAIT, phase=Phase.WAITING, round=1, batch=Batch(1, ask=(1, 2)))


@pytest.mark.parametrize(
    ("outcome", "step"),
    [
        pytest.param(LlmOutcome(produced=True), COMPLETED, id="text ends the response"),
        pytest.param(LlmOutcome(), COMPLETED, id="an empty answer ends it too"),
        pytest.param(LlmOutcome(run=(0, 1)), ExecuteTools(1, (0, 1), 8), id="gateway calls run"),
        pytest.param(LlmOutcome(ask=(0,)), InterruptForApproval(1, (0,)), id="an ask goes to a human"),
        pytest.param(LlmOutcome(client=True), COMPLETED, id="client calls are handed back"),
        pytest.param(LlmOutcome(run=(1,), client=True), ExecuteTools(1, (1,), 8), id="mixed: the gateway's run first"),
        pytest.param(LlmOutcome(run=(0,), ask=(1,)), ExecuteTools(1, (0,), 8), id="free calls run before the ask"),
        pytest.param(LlmOutcome(ask=(0,), client=True), InterruptForApproval(1, (0,)), id="asks before hand-back"),
        pytest.param(LlmOutcome(refused=1), CallLlm(2, ToolChoice.AUTO), id="a refused call goes back to the model"),
        pytest.param(LlmOutcome(refused=1, client=True), COMPLETED, id="refused beside a client call: handed back"),
        pytest.param(
            LlmOutcome(refused=1, over_cap=True),
            CallLlm(2, ToolChoice.NONE),
            id="over the cap: one round without tools",
        ),
        pytest.param(
            LlmOutcome(run=(0,), incomplete="max_output_tokens"),
            Finish(Ended(Status.INCOMPLETE, reason="max_output_tokens")),
            id="a truncated round's calls are never run",
        ),
        pytest.param(
            LlmOutcome(ask=(0,), client=True, incomplete="content_filter"),
            Finish(Ended(Status.INCOMPLETE, reason="content_filter")),
            id="a filtered round asks nobody",
        ),
    ],
)
def test_the_first_round_leads_to(outcome: LlmOutcome, step: Step) -> None:
    """What follows a model's first answer."""
    assert next_step(absorb(FRESH, outcome)) == step


@pytest.mark.parametrize(
    ("state", "outcome", "step"),
    [
        pytest.param(AFTER_TOOLS, ToolsOutcome(), CallLlm(2, ToolChoice.AUTO), id="results go to the model"),
        pytest.param(
            replace(AFTER_TOOLS, batch=Batch(1, run=(0,), client=True)),
            ToolsOutcome(),
            COMPLETED,
            id="mixed: handed back",
        ),
        pytest.param(
            replace(AFTER_TOOLS, batch=Batch(1, run=(0,), ask=(1,))),
            ToolsOutcome(),
            InterruptForApproval(1, (1,)),
            id="the ask follows the free calls",
        ),
        pytest.param(WAITING, GateOutcome(approved=(2,)), ExecuteTools(1, (2,), 8), id="approved calls run"),
        pytest.param(WAITING, GateOutcome(), CallLlm(2, ToolChoice.AUTO), id="all denied: the model is told"),
        pytest.param(
            replace(WAITING, batch=Batch(1, ask=(1,), client=True)),
            GateOutcome(),
            COMPLETED,
            id="denied, then hand-back",
        ),
        pytest.param(
            WAITING,
            GateOutcome(failed=True),
            Finish(Ended(Status.FAILED, code="approval_expired")),
            id="a deadline fails",
        ),
        pytest.param(CAPPED, LlmOutcome(produced=True), COMPLETED, id="capped round with text"),
        pytest.param(CAPPED, LlmOutcome(), CAP_REACHED, id="capped round with nothing"),
        pytest.param(CAPPED, LlmOutcome(refused=1, over_cap=True), CAP_REACHED, id="capped round that calls again"),
        pytest.param(
            CAPPED, LlmOutcome(refused=1, over_cap=True, produced=True), COMPLETED, id="capped round: text and a call"
        ),
        pytest.param(CAPPED, LlmOutcome(client=True), COMPLETED, id="capped round with a client call"),
    ],
)
def test_an_outcome_leads_to(state: RunState, outcome: Outcome, step: Step) -> None:
    """What follows tools, decisions and the round after the cap."""
    assert next_step(absorb(state, outcome)) == step


def test_a_cap_that_is_hit_beside_a_running_call_holds_for_the_next_round() -> None:
    """The call within the cap runs, then the model answers without tools."""
    state = absorb(FRESH, LlmOutcome(run=(0,), refused=1, over_cap=True))
    assert next_step(state) == ExecuteTools(1, (0,), 8)
    assert next_step(absorb(state, ToolsOutcome())) == CallLlm(2, ToolChoice.NONE)


@pytest.mark.parametrize(
    ("state", "step"),
    [
        pytest.param(FRESH, CallLlm(1, ToolChoice.GIVEN), id="round one gets the caller's choice"),
        pytest.param(replace(FRESH, round=1), CallLlm(2, ToolChoice.AUTO), id="later rounds get auto"),
        pytest.param(replace(FRESH, round=64), OVER_BUDGET, id="64 rounds are the server's cap"),
        pytest.param(replace(FRESH, budgets=Budgets(max_rounds=1), round=1), OVER_BUDGET, id="max_rounds"),
        pytest.param(
            replace(FRESH, budgets=Budgets(max_total_tokens=10), usage=Usage(total_tokens=10)), OVER_BUDGET, id="tokens"
        ),
        pytest.param(
            replace(FRESH, budgets=Budgets(max_total_tokens=10), usage=Usage(total_tokens=9)),
            CallLlm(1, ToolChoice.GIVEN),
            id="tokens left",
        ),
        pytest.param(replace(FRESH, budgets=Budgets(deadline=5.0), now=5.0), OVER_BUDGET, id="deadline"),
        pytest.param(
            replace(FRESH, budgets=Budgets(deadline=5.0), now=4.9),
            CallLlm(1, ToolChoice.GIVEN),
            id="before the deadline",
        ),
        pytest.param(replace(CAPPED, budgets=Budgets(max_rounds=1)), OVER_BUDGET, id="the capped round is a round too"),
    ],
)
def test_budgets_are_checked_before_a_model_call(state: RunState, step: Step) -> None:
    """A model round is due."""
    assert next_step(state) == step


def test_a_budget_never_stops_what_was_paid_for() -> None:
    """Calls of the last round within budget still run."""
    state = absorb(replace(FRESH, budgets=Budgets(max_rounds=1)), LlmOutcome(run=(0,)))
    assert next_step(state) == ExecuteTools(1, (0,), 8)
    assert next_step(absorb(state, ToolsOutcome())) == OVER_BUDGET


def test_a_round_is_counted_whole() -> None:
    """Usage, calls, bindings and time of a round are in the state it leaves."""
    before = replace(FRESH, round=1, tool_calls=1, usage=Usage(5, 1, 2, 1, 7), bindings="bind_1")
    outcome = LlmOutcome(usage=Usage(10, 4, 3, 2, 13), run=(0,), ask=(2,), client=True, at=9.0)
    assert absorb(before, outcome) == RunState(
        "resp_1",
        phase=Phase.TOOLS,
        round=2,
        tool_calls=3,
        usage=Usage(15, 5, 5, 3, 20),
        batch=Batch(2, (0,), (2,), client=True),
        bindings="bind_1",
        now=9.0,
    )


def test_a_truncated_round_leaves_no_batch() -> None:
    """Nothing of it may look as if it were still to be executed."""
    state = absorb(FRESH, LlmOutcome(run=(0,), ask=(1,), client=True, incomplete="max_output_tokens"))
    assert state.batch == Batch(1)


@pytest.mark.parametrize(
    "outcome",
    [
        LlmOutcome(run=(0,), finished=Ended(Status.CANCELLED)),
        ToolsOutcome(finished=Ended(Status.CANCELLED)),
        AskOutcome(finished=Ended(Status.CANCELLED)),
        FinishOutcome(Ended(Status.CANCELLED)),
    ],
)
def test_a_recorded_end_is_obeyed(outcome: Outcome) -> None:
    """What a step committed is never decided again: no step follows."""
    state = absorb(replace(FRESH, batch=Batch(1, ask=(1,))), outcome)
    assert (state.phase, state.ended) == (Phase.ENDED, Ended(Status.CANCELLED))
    assert ends_with(state) is None
    with pytest.raises(ValueError, match="no step follows"):
        next_step(state)


def test_an_open_gate_has_no_step() -> None:
    """Wait mode: the workflow waits, nothing is scheduled."""
    state = absorb(absorb(replace(FRESH, mode=ApprovalMode.WAIT), LlmOutcome(ask=(0,))), AskOutcome(at=3.0))
    assert (state.phase, state.now) == (Phase.WAITING, 3.0)
    with pytest.raises(ValueError, match="no step follows"):
        next_step(state)


@pytest.mark.parametrize(
    ("outcome", "ended"),
    [
        (LlmOutcome(produced=True), Ended(Status.COMPLETED)),
        (LlmOutcome(client=True), Ended(Status.COMPLETED)),
        (LlmOutcome(run=(0,)), None),
        (LlmOutcome(ask=(0,)), None),
        (LlmOutcome(refused=1), None),
    ],
)
def test_a_round_that_ends_the_response_can_finish_in_place(outcome: LlmOutcome, ended: Ended | None) -> None:
    """`ends_with` is what the model activity asks before it commits."""
    assert ends_with(absorb(FRESH, outcome)) == ended


@pytest.mark.parametrize(
    ("batch", "step", "counted"),
    [
        (Batch(), CallLlm(1, ToolChoice.GIVEN), 0),
        (Batch(0, run=(0, 1)), ExecuteTools(0, (0, 1), 8), 2),
        (Batch(0, run=(0,), ask=(1,)), ExecuteTools(0, (0,), 8), 1),
        (Batch(0, ask=(1,)), InterruptForApproval(0, (1,)), 0),
    ],
)
def test_a_continuation_starts_with_what_it_brings(batch: Batch, step: Step, counted: int) -> None:
    """Approved calls run and count first, undecided asks are listed again before any model call."""
    state = initial(replace(FRESH, batch=batch))
    assert (next_step(state), state.tool_calls) == (step, counted)
