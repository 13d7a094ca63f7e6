"""The agent loop as two pure functions: `next_step` says what to do, `absorb` takes what came of it.

Theory of operation. A response is a row of model rounds. A round may leave a batch: gateway calls to run, asks to put
to a human, client calls to hand back. Order of the cases, and why:

1. An ended response gets no step: recorded outcomes are obeyed, never decided again.
2. Free calls run before asks are shown: a human may take days, and what needs no consent should be done by then.
3. Asks come before hand-back: the client must see every open question of the round at once.
4. Client calls end the response; the follow-up brings their outputs.
5. A budget is checked before a model call, never after: what was paid for is used.
"""

from dataclasses import replace
from typing import assert_never

from outlast.loop.state import (
    AskOutcome,
    Batch,
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

COMPLETED = Ended(Status.COMPLETED)


def next_step(state: RunState) -> Step:
    """The next step of a response that has not ended. Raises: ValueError for an ended or waiting one."""
    match state.phase:
        case Phase.TOOLS:
            return ExecuteTools(state.batch.round, state.batch.run, state.budgets.parallel)
        case Phase.ASK:
            return InterruptForApproval(state.batch.round, state.batch.ask)
        case Phase.MODEL:
            return _model_round(state)
        case Phase.ENDING:
            return Finish(state.ended or COMPLETED)
        case Phase.WAITING | Phase.ENDED:
            raise ValueError(f"no step follows phase {state.phase}")
        case _:
            assert_never(state.phase)


def _model_round(state: RunState) -> Step:
    budgets = state.budgets
    over_tokens = budgets.max_total_tokens is not None and state.usage.total_tokens >= budgets.max_total_tokens
    over_time = budgets.deadline is not None and state.now >= budgets.deadline
    if state.round >= budgets.max_rounds or over_tokens or over_time:
        return Finish(Ended(Status.INCOMPLETE, reason="budget_exceeded"))
    if state.capped:
        return CallLlm(state.round + 1, ToolChoice.NONE)
    # Round 0 means no model was asked yet in this response: the caller's choice still stands.
    return CallLlm(state.round + 1, ToolChoice.GIVEN if state.round == 0 else ToolChoice.AUTO)


def absorb(state: RunState, outcome: Outcome) -> RunState:
    """The state after a step. Outcomes of a parallel batch arrive here as one, in batch order."""
    match outcome:
        case LlmOutcome():
            return _absorb_round(state, outcome)
        case ToolsOutcome():
            batch = replace(state.batch, run=())
            return _settle(replace(state, batch=batch, now=outcome.at), outcome.finished)
        case AskOutcome():
            if outcome.finished is not None:
                return replace(state, phase=Phase.ENDED, ended=outcome.finished, now=outcome.at)
            return replace(state, phase=Phase.WAITING, now=outcome.at)
        case GateOutcome():
            return _absorb_gate(state, outcome)
        case FinishOutcome():
            return replace(state, phase=Phase.ENDED, ended=outcome.ended)
        case _:
            assert_never(outcome)


def _absorb_round(state: RunState, outcome: LlmOutcome) -> RunState:
    after = replace(
        state,
        round=state.round + 1,
        usage=state.usage + outcome.usage,
        tool_calls=state.tool_calls + len(outcome.run) + len(outcome.ask) + outcome.hosted,
        batch=Batch(state.round + 1, outcome.run, outcome.ask, outcome.client, outcome.names),
        bindings=outcome.bindings or state.bindings,
        now=outcome.at,
    )
    if outcome.finished is not None:
        return replace(after, phase=Phase.ENDED, ended=outcome.finished)
    if outcome.incomplete is not None:
        # A truncated round's calls are never executed: their arguments may be cut.
        cut = replace(after, batch=Batch(after.round))
        return _ending(cut, Ended(Status.INCOMPLETE, reason=outcome.incomplete))
    if outcome.run or outcome.ask or outcome.client:
        return _settle(replace(after, capped=state.capped or outcome.over_cap), None)
    if outcome.refused and not state.capped:
        return replace(after, phase=Phase.MODEL, capped=outcome.over_cap)
    if state.capped and not outcome.produced:
        return _ending(after, Ended(Status.INCOMPLETE, reason="max_tool_calls"))
    return _ending(after, COMPLETED)


def _absorb_gate(state: RunState, outcome: GateOutcome) -> RunState:
    after = replace(state, now=outcome.at, batch=replace(state.batch, run=outcome.approved, ask=()))
    if outcome.failed:
        return _ending(after, Ended(Status.FAILED, code="approval_expired"))
    return _settle(after, None)


def _settle(state: RunState, finished: Ended | None) -> RunState:
    """The phase that follows from what is left of the batch."""
    if finished is not None:
        return replace(state, phase=Phase.ENDED, ended=finished)
    if state.batch.run:
        return replace(state, phase=Phase.TOOLS)
    if state.batch.ask:
        return replace(state, phase=Phase.ASK)
    if state.batch.client:
        return _ending(state, COMPLETED)
    return replace(state, phase=Phase.MODEL)


def _ending(state: RunState, ended: Ended) -> RunState:
    return replace(state, phase=Phase.ENDING, ended=ended)


def ends_with(state: RunState) -> Ended | None:
    """How the response ends if the next step ends it, else None: what `CallLlm` asks to finish in place."""
    if state.phase is Phase.ENDED:
        return None
    step = next_step(state)
    return step.ended if isinstance(step, Finish) else None


def initial(state: RunState) -> RunState:
    """A fresh state with the phase its batch asks for (a continuation starts with approved calls or open asks).

    Approved calls are the first of the new response and count against its `max_tool_calls`.
    """
    return _settle(replace(state, tool_calls=len(state.batch.run)), None)
