"""Claims about runs nobody is asked about: rounds, tools, and what Temporal shows of them."""

import asyncio
from dataclasses import replace

from temporalio.exceptions import ApplicationError

from outlast import contracts
from outlast.contracts import FinishInput, ToolDone, ToolInput
from outlast.loop.state import Budgets, Ended, LlmOutcome, Phase, Status
from tests.support.fakes import HANG, TIMEOUTS, Bench, done, state, tools


async def test_a_plain_response_costs_one_activity_and_eleven_events(bench: Bench) -> None:
    """Start, one model round, end; an outcome that finished in place is obeyed."""
    async with bench.running() as run:
        await run.ended()
        assert run.fakes.names() == [contracts.CALL_LLM]
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
        assert sum(event.ByteSize() for event in await run.events()) < 8_000
