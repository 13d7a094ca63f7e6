"""What a worker does to a run it lets go of without an eviction, as one that is stopped does."""

import asyncio

from outlast.contracts import RunInput, Timeouts
from outlast.loop.state import ApprovalMode, Budgets, RunState
from workflows.response import ResponseWorkflow


async def test_a_run_that_is_dropped_awaits_nothing_more() -> None:
    """Its coroutine is closed from outside of any workflow: an await there would be an error nobody can see."""
    budgets = Budgets(max_rounds=1, max_tool_calls=1, parallel=1)
    state = RunState(response_id="resp_a", mode=ApprovalMode.RESPOND, budgets=budgets)
    given = RunInput("default", state, "demo", Timeouts())
    dropped = ResponseWorkflow(given)

    async def never() -> None:
        await asyncio.Future()

    dropped._respond = never  # type: ignore[method-assign]  # a step that is under way
    running = dropped.run(given)
    running.send(None)
    running.close()
