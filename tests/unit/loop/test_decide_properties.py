"""Whatever the model, the tools and the humans do: every run ends, in bounded rounds, and no call runs twice."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

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
    Phase,
    RunState,
    Status,
    ToolChoice,
    ToolsOutcome,
)

_FATES = ("run", "ask", "client", "refused", "over_cap")


@st.composite
def rounds(draw: st.DrawFn) -> LlmOutcome:
    """Any answer of a model, its calls given fates at random."""
    fates = draw(st.lists(st.sampled_from(_FATES), max_size=5))

    def ordinals(fate: str) -> tuple[int, ...]:
        return tuple(index for index, each in enumerate(fates) if each == fate)

    return LlmOutcome(
        run=ordinals("run"),
        ask=ordinals("ask"),
        client="client" in fates,
        refused=len(ordinals("refused")) + len(ordinals("over_cap")),
        over_cap="over_cap" in fates,
        produced=draw(st.booleans()),
        incomplete=draw(st.sampled_from([None, None, None, "max_output_tokens"])),
    )


STATES = st.builds(
    RunState,
    st.just("resp_1"),
    mode=st.sampled_from(ApprovalMode),
    budgets=st.builds(Budgets, max_rounds=st.integers(1, 5)),
    batch=st.builds(Batch, st.just(0), run=st.sampled_from([(), (0,)]), ask=st.sampled_from([(), (1,)])),
)


@given(STATES, st.data())
def test_every_run_ends(state: RunState, data: st.DataObject) -> None:
    """An interpreter of the steps, driven at random, always comes to an end."""
    state = initial(state)
    ran: set[tuple[int, int]] = set()
    asked: set[tuple[int, int]] = set()
    model_rounds = 0
    # A round brings at most: model, tools, ask, gate, tools; one more such row for what a continuation brings, one end.
    for _ in range(5 * (state.budgets.max_rounds + 1) + 1):
        if state.phase is Phase.ENDED:
            break
        if state.phase is Phase.WAITING:
            approved = data.draw(st.lists(st.sampled_from(state.batch.ask), unique=True))
            state = absorb(state, GateOutcome(tuple(approved), failed=data.draw(st.booleans())))
            continue
        match next_step(state):
            case CallLlm(number, choice):
                model_rounds += 1
                assert number == model_rounds
                assert (choice is ToolChoice.GIVEN) == (number == 1 and not state.capped)
                state = absorb(state, data.draw(rounds()))
            case ExecuteTools(number, ordinals, _):
                calls = {(number, ordinal) for ordinal in ordinals}
                assert ordinals
                assert not calls & ran
                ran |= calls
                state = absorb(state, ToolsOutcome())
            case InterruptForApproval(number, ordinals):
                asks = {(number, ordinal) for ordinal in ordinals}
                assert ordinals
                assert not asks & (ran | asked)
                asked |= asks
                respond = state.mode is ApprovalMode.RESPOND
                state = absorb(state, AskOutcome(finished=Ended(Status.COMPLETED) if respond else None))
            case Finish(ended):
                assert ends_with(state) == ended
                state = absorb(state, FinishOutcome(ended))
    assert state.phase is Phase.ENDED
    assert state.ended is not None
    assert model_rounds <= state.budgets.max_rounds


@given(STATES, rounds())
def test_a_finished_round_beats_whatever_it_brought(state: RunState, outcome: LlmOutcome) -> None:
    """Finish in place: the loop obeys the end its activity committed."""
    after = absorb(state, replace(outcome, finished=Ended(Status.COMPLETED)))
    assert (after.phase, after.ended) == (Phase.ENDED, Ended(Status.COMPLETED))
