"""Every shape a run can take, played to its end on fakes: what workflow tests judge and replay keeps as histories."""

from collections.abc import Awaitable, Callable
from dataclasses import replace

from temporalio.client import WorkflowExecutionStatus
from temporalio.exceptions import ApplicationError

from outlast import contracts
from outlast.contracts import Decision, GateView, Mark, Resumed
from outlast.loop.state import Batch, Budgets, LlmOutcome, Phase
from tests.support.fakes import HANG, TIMEOUTS, Bench, Run, Script, asking, done, state, tools, waiting

CANCELED = WorkflowExecutionStatus.CANCELED
PENDING = GateView(pending=1)


def lost(name: str = "WorkerShutdown") -> ApplicationError:
    """An attempt that ended without an outcome."""
    return ApplicationError("lost", type=name)


async def plain(bench: Bench) -> Run:
    """One round that finishes in place."""
    async with bench.running() as run:
        await run.ended()
        return run


async def budget_spent(bench: Bench) -> Run:
    """A response that ends without a model round."""
    async with bench.running({}, state(budgets=Budgets(max_rounds=0))) as run:
        await run.ended()
        return run


async def model_retried(bench: Bench) -> Run:
    """A round that needs three attempts."""
    async with bench.running({contracts.CALL_LLM: [lost(), lost(), done()]}) as run:
        await run.ended()
        return run


async def model_lost(bench: Bench) -> Run:
    """A round whose attempts are all lost: the response fails, the workflow completes."""
    async with bench.running({contracts.CALL_LLM: [lost() for _ in range(4)]}) as run:
        await run.ended()
        return run


async def tool_round(bench: Bench) -> Run:
    """Three calls, then a last round."""
    async with bench.running({contracts.CALL_LLM: [tools(0, 1, 2)]}) as run:
        await run.ended()
        return run


async def tool_lost(bench: Bench) -> Run:
    """A call whose attempts are all lost is recorded as failed, and the run goes on."""
    script: Script = {contracts.CALL_LLM: [tools(0)], contracts.EXECUTE_TOOLS: [lost() for _ in range(3)]}
    async with bench.running(script) as run:
        await run.ended()
        return run


async def resumed(bench: Bench) -> Run:
    """Ask, park, a stale and a true wake-up, an approved call, a round, the end."""
    approved = state("resp_2", phase=Phase.TOOLS, batch=Batch(0, run=(0,), names=((0, "docs.delete"),)))
    script: Script = {contracts.LEAVE_PARK: [Resumed(), Resumed(approved, model="second")]}
    async with bench.running(script, asking()) as run:
        await run.parked()
        await run.handle.signal(contracts.SIGNAL_RESUME, "resp_stale")
        await run.fakes.called(contracts.LEAVE_PARK)
        await run.handle.signal(contracts.SIGNAL_RESUME, "resp_2")
        await run.ended()
        return run


async def park_over(bench: Bench) -> Run:
    """Nobody comes."""
    async with bench.running({}, asking(), timeouts=replace(TIMEOUTS, park=0.2)) as run:
        await run.ended()
        return run


async def gate_decided(bench: Bench) -> Run:
    """Wait mode, decided through the API: the same response goes on."""
    script: Script = {contracts.READ_GATE: [PENDING, GateView(approved=(0,), at=4.0)]}
    async with bench.running(script, waiting()) as run:
        await run.fakes.called(contracts.READ_GATE)
        await run.handle.signal(contracts.SIGNAL_DECIDED, "mcpr_1")
        await run.ended()
        return run


async def gate_updated(bench: Bench) -> Run:
    """Wait mode, denied through Temporal's update."""
    script: Script = {contracts.READ_GATE: [PENDING, GateView(at=4.0)]}
    async with bench.running(script, waiting()) as run:
        await run.fakes.called(contracts.READ_GATE)
        await run.handle.execute_update(contracts.UPDATE_DECIDE, Decision("mcpr_1", approve=False))
        await run.ended()
        return run


async def gate_signalled(bench: Bench) -> Run:
    """Wait mode, approved through Temporal's signal."""
    script: Script = {contracts.READ_GATE: [PENDING]}
    async with bench.running(script, waiting()) as run:
        await run.fakes.called(contracts.READ_GATE)
        await run.handle.signal(contracts.SIGNAL_DECIDE, Decision("mcpr_1", approve=True))
        await run.ended()
        return run


async def gate_denied_by_deadline(bench: Bench) -> Run:
    """Nobody decides; the deadline denies and the model is told."""
    script: Script = {contracts.READ_GATE: [GateView(pending=1, deadline_in=0.2), GateView(at=4.0)]}
    async with bench.running(script, waiting()) as run:
        await run.ended()
        return run


async def gate_failed_by_deadline(bench: Bench) -> Run:
    """Nobody decides; the deadline fails the response."""
    script: Script = {contracts.READ_GATE: [GateView(pending=1, deadline_in=0.2), GateView(failed=True, at=4.0)]}
    async with bench.running(script, waiting()) as run:
        await run.ended()
        return run


async def gate_gone(bench: Bench) -> Run:
    """The response ended while the run waited."""
    async with bench.running({contracts.READ_GATE: [GateView(gone=True)]}, waiting()) as run:
        await run.ended()
        return run


async def cancelled_model(bench: Bench) -> Run:
    """Cancelled in a round."""
    async with bench.running({contracts.CALL_LLM: [HANG]}) as run:
        await run.fakes.called(contracts.CALL_LLM)
        await run.handle.cancel()
        await run.ended(CANCELED)
        return run


async def cancelled_tools(bench: Bench) -> Run:
    """Cancelled in a batch of two, one of which waits for its turn."""
    given = state(budgets=Budgets(parallel=1))
    script: Script = {contracts.CALL_LLM: [tools(0, 1)], contracts.EXECUTE_TOOLS: [HANG]}
    async with bench.running(script, given) as run:
        await run.fakes.called(contracts.EXECUTE_TOOLS)
        await run.handle.cancel()
        await run.ended(CANCELED)
        return run


async def cancelled_gate(bench: Bench) -> Run:
    """Cancelled while a human thinks."""
    script: Script = {contracts.READ_GATE: [GateView(pending=1, deadline_in=600)]}
    async with bench.running(script, waiting()) as run:
        await run.parked()
        await run.handle.cancel()
        await run.ended(CANCELED)
        return run


async def cancelled_park(bench: Bench) -> Run:
    """Cancelled while nothing is open."""
    async with bench.running({}, asking()) as run:
        await run.parked()
        await run.handle.cancel()
        await run.ended(CANCELED)
        return run


async def oversized(bench: Bench) -> Run:
    """A state that grew past its limit fails before it is sent."""
    names = tuple((ordinal, "n" * 200) for ordinal in range(45))
    big = LlmOutcome(at=1.0, run=(0,), names=names)
    async with bench.running({contracts.CALL_LLM: [big]}) as run:
        await run.ended()
        return run


async def progressing(bench: Bench) -> Run:
    """A mark that comes while a round is open."""

    async def mark_first(_: object) -> LlmOutcome:
        await run.handle.signal(contracts.SIGNAL_PROGRESS, Mark("model", 1, 2, 30))
        return done()

    async with bench.running({contracts.CALL_LLM: [mark_first]}) as run:
        await run.ended()
        return run


SCENARIOS: dict[str, Callable[[Bench], Awaitable[Run]]] = {
    scenario.__name__: scenario
    for scenario in (
        plain,
        budget_spent,
        model_retried,
        model_lost,
        tool_round,
        tool_lost,
        resumed,
        park_over,
        gate_decided,
        gate_updated,
        gate_signalled,
        gate_denied_by_deadline,
        gate_failed_by_deadline,
        gate_gone,
        cancelled_model,
        cancelled_tools,
        cancelled_gate,
        cancelled_park,
        oversized,
        progressing,
    )
}
