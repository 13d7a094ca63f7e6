"""What people read of a run in Temporal's UI: one line of text per step."""

from collections.abc import Iterable
from typing import assert_never

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from outlast.loop.state import Batch, CallLlm, ExecuteTools, Finish, InterruptForApproval, Step

# Temporal takes longer details; a list of names needs no more.
_LIMIT = 400


def names(batch: Batch, ordinals: Iterable[int]) -> str:
    """`label.tool` of these calls."""
    return ", ".join(batch.name(ordinal) for ordinal in ordinals)[:_LIMIT]


def text(step: Step, model: str, batch: Batch) -> str:
    """What a run is about to do."""
    match step:
        case CallLlm():
            return f"Calling {model}, round {step.round}"
        case ExecuteTools():
            return f"Running {names(batch, step.ordinals)}"
        case InterruptForApproval():
            return f"Asking for approval: {names(batch, step.ordinals)}"
        case Finish():
            return f"Ending: {step.ended.status}"
        case _:
            assert_never(step)
