"""`ResponseWorkflow`: performs the steps the pure loop decides, and waits for people.

Rules:

1. It decides nothing: `next_step` says what to do, `absorb` takes what came of it; who ends a response, who decides an
   ask, who takes a parked run is settled by one row update in an activity, never here.
2. Only ids, numbers and short codes pass through; content stays in the store.
3. Handlers wake, they never raise and never carry state: whatever they say is read from the row.
4. Only `FailureError` and cancellation are caught. Another exception is a bug: the task suspends, is alerted on and
   goes on after the roll-back; making it a failed response would fail every parked run in one bad deploy.
"""

import asyncio
from collections.abc import Awaitable
from dataclasses import replace
from datetime import timedelta
from typing import TypeVar, assert_never

from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError, FailureError, is_cancelled_exception

with workflow.unsafe.imports_passed_through():
    from outlast import contracts
    from outlast.contracts import (
        AskInput,
        CallLlmInput,
        FinishInput,
        Mark,
        Resumed,
        RunInput,
        ToolDone,
        ToolInput,
        Verdict,
        read_decision,
    )
    from outlast.loop.decide import absorb, next_step
    from outlast.loop.state import (
        MAX_STATE_BYTES,
        AskOutcome,
        Batch,
        CallLlm,
        Ended,
        ExecuteTools,
        Finish,
        FinishOutcome,
        InterruptForApproval,
        LlmOutcome,
        Outcome,
        Phase,
        RunState,
        Status,
        Step,
        ToolsOutcome,
    )
    from outlast.protocol import json

    from workflows import showing, steps
    from workflows.waiting import Gate, Park

T = TypeVar("T")

_DECISION_SHAPE = 'a decision is {"approval_id": "mcpr_…", "approve": true}, with true or false as JSON has them'


@workflow.defn(name=contracts.WORKFLOW)
class ResponseWorkflow:
    """One run: a response, and every continuation that resumes it while it is parked."""

    @workflow.init
    def __init__(self, run: RunInput) -> None:
        self._run = run
        self._model = run.model
        self._state = run.state
        self._served = [run.state.response_id]
        self._parked = False
        self._gate = Gate(run)
        self._park = Park(run)
        self._mark = Mark()

    @workflow.run
    async def run(self, run: RunInput) -> None:
        """Serve the first response, then every continuation that takes the parked run."""
        # Not in a `finally`: a worker that drops the instance closes this coroutine, where nothing may be awaited.
        try:
            await self._serve()
        except (FailureError, asyncio.CancelledError):
            await self._handlers_finished()
            raise
        await self._handlers_finished()

    async def _serve(self) -> None:
        while True:
            await self._respond()
            if not self._parked:
                return
            resumed = await self._wait_parked()
            if resumed.state is None:
                return
            self._take(resumed, resumed.state)

    async def _handlers_finished(self) -> None:
        """A handler cut off would leave its sender without an answer."""
        await workflow.wait_condition(workflow.all_handlers_finished)

    # -- one response ----------------------------------------------------------------------------------------------

    async def _respond(self) -> None:
        try:
            while self._state.phase is not Phase.ENDED:
                self._state = absorb(self._state, await self._perform_next())
        except (FailureError, asyncio.CancelledError) as error:
            await self._end_after(error)
            if is_cancelled_exception(error):
                raise

    async def _perform_next(self) -> Outcome:
        if self._state.phase is Phase.WAITING:
            return await self._gate.wait(self._state, self._show_text)
        step = next_step(self._state)
        self._show(step)
        match step:
            case CallLlm():
                return await self._call_llm(step)
            case ExecuteTools():
                return await self._execute_tools(step)
            case InterruptForApproval():
                return await self._interrupt(step)
            case Finish():
                return await self._finish(step.ended)
            case _:
                assert_never(step)

    async def _call_llm(self, step: CallLlm) -> LlmOutcome:
        timeouts = self._run.timeouts
        outcome: LlmOutcome = await workflow.execute_activity(
            contracts.CALL_LLM,
            self._guarded(CallLlmInput(self._run.tenant, self._state, timeouts)),
            result_type=LlmOutcome,
            start_to_close_timeout=timedelta(seconds=timeouts.llm),
            heartbeat_timeout=timedelta(seconds=timeouts.heartbeat),
            retry_policy=contracts.llm_retry(timeouts),
            summary=f"{self._model} · round {step.round}"[:200],
        )
        return outcome

    async def _execute_tools(self, step: ExecuteTools) -> ToolsOutcome:
        # One activity per call: a crash repeats one call's decision, not the batch's.
        slots = asyncio.Semaphore(step.parallel)

        async def one(ordinal: int) -> ToolDone:
            async with slots:
                return await self._execute_tool(step.round, ordinal)

        tasks = [asyncio.create_task(one(ordinal)) for ordinal in step.ordinals]
        try:
            done = await asyncio.gather(*tasks)
        except (FailureError, asyncio.CancelledError):
            # `gather` leaves the others running: they would start calls of a response that is being ended.
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            raise
        at = max(result.at for result in done)
        if any(result.gone for result in done):
            # The row says how it ended; this side only has to stop.
            return ToolsOutcome(at, finished=Ended(Status.CANCELLED))
        return ToolsOutcome(at)

    async def _execute_tool(self, number: int, ordinal: int) -> ToolDone:
        timeouts = self._run.timeouts
        call = ToolInput(self._run.tenant, self._state.response_id, number, ordinal, timeouts)
        try:
            done: ToolDone = await workflow.execute_activity(
                contracts.EXECUTE_TOOLS,
                call,
                result_type=ToolDone,
                # The call's own deadline is in its row, capped by the settings this input carries.
                start_to_close_timeout=timedelta(seconds=timeouts.tool_longest + timeouts.tool_margin),
                heartbeat_timeout=timedelta(seconds=timeouts.heartbeat),
                retry_policy=contracts.tool_retry(timeouts),
                summary=self._state.batch.name(ordinal)[:200],
            )
        except ActivityError as error:
            if is_cancelled_exception(error):
                raise
            # Every attempt was lost: the call is recorded as failed and the run goes on.
            done = await steps.local(contracts.FAIL_CALL, call, ToolDone, timeouts)
        return done

    async def _interrupt(self, step: InterruptForApproval) -> AskOutcome:
        # Open before the asks are visible: a decision may arrive before this activity's answer does.
        self._gate.open = True
        may_park = (
            len(self._served) < contracts.MAX_RESPONSES_PER_RUN and not workflow.info().is_continue_as_new_suggested()
        )
        outcome: AskOutcome = await workflow.execute_activity(
            contracts.INTERRUPT_FOR_APPROVAL,
            self._guarded(AskInput(self._run.tenant, self._state, may_park)),
            result_type=AskOutcome,
            start_to_close_timeout=timedelta(seconds=self._run.timeouts.ask),
            retry_policy=contracts.STORE_RETRY,
            summary=showing.names(self._state.batch, step.ordinals)[:200],
        )
        self._parked = outcome.parked
        if outcome.finished is None or outcome.parked:
            self._gate.publish(len(step.ordinals))
        else:
            self._gate.close()
        return outcome

    async def _finish(self, ended: Ended) -> FinishOutcome:
        # Without the batch, the one part that can outgrow the limit: an oversized state must still be able to end.
        state = replace(self._state, phase=Phase.ENDING, ended=ended, batch=Batch(self._state.batch.round))
        request = FinishInput(self._run.tenant, state)
        return await steps.local(contracts.FINISH_RESPONSE, request, FinishOutcome, self._run.timeouts)

    async def _end_after(self, error: BaseException) -> None:
        """End the response a failure or a cancellation has stopped, unless somebody has ended it."""
        if is_cancelled_exception(error):
            ended = Ended(Status.CANCELLED)
        else:
            cause = error.cause if isinstance(error, ActivityError) else error
            kind = cause.type if isinstance(cause, ApplicationError) else None
            ended = Ended(Status.FAILED, code=kind or "step_failed")
        self._parked = False
        self._gate.close()
        self._state = absorb(self._state, await _to_its_end(self._finish(ended)))

    # -- parked -------------------------------------------------------------------------------------------------------

    async def _wait_parked(self) -> Resumed:
        """Wait until a continuation takes this run, or the park time is over. Nothing is open meanwhile."""
        self._show_text("Parked: waiting for an approval and the caller's next request.")
        try:
            return await self._park.taken(self._state.response_id)
        except (FailureError, asyncio.CancelledError) as error:
            if not is_cancelled_exception(error):
                raise
            # A row that still offers this run would send its next caller here. Who has taken it already ends with it.
            left = await self._park.leave(self._state.response_id, None)
            if left.state is not None:
                self._take(left, left.state)
                await self._end_after(error)
            raise

    def _take(self, resumed: Resumed, state: RunState) -> None:
        self._parked = False
        self._gate.close()
        self._state = state
        self._model = resumed.model
        self._served = [*self._served, state.response_id][-contracts.MAX_RESPONSES_PER_RUN :]
        workflow.upsert_search_attributes(
            [contracts.RESPONSES_KEY.value_set(self._served), contracts.MODEL_KEY.value_set(self._model[:255])]
        )

    # -- messages --------------------------------------------------------------------------------------------------

    @workflow.signal(name=contracts.SIGNAL_RESUME, description="Outlast: a continuation has taken this parked run.")
    def on_resume(self, response_id: str) -> None:
        """Wake for the next response; repeated and stale ones are answered by the row."""
        self._park.resumes.append(response_id)

    @workflow.signal(name=contracts.SIGNAL_DECIDED, description="Outlast: an approval was decided; read the row.")
    def on_decided(self, approval_id: str) -> None:
        """Wake at the gate."""
        self._gate.wakes += 1

    @workflow.signal(name=contracts.SIGNAL_PROGRESS, description="Outlast: a durable progress mark of a long step.")
    def on_progress(self, mark: Mark) -> None:
        """Keep the last mark for the query and for people."""
        self._mark = mark
        self._show_text(f"{mark.phase} · round {mark.round} · {mark.items_done} items · {mark.tokens} tokens")

    @workflow.query(name=contracts.QUERY_PROGRESS, description="Where this run is: phase, round, items, tokens.")
    def progress(self) -> Mark:
        """The last mark, at least the phase and round of the loop."""
        mark = self._mark
        return mark if mark.phase else Mark(phase=self._state.phase, round=self._state.round)

    @workflow.update(
        name=contracts.UPDATE_DECIDE,
        description='Decide an open approval: {"approval_id": "mcpr_…", "approve": true}. Reasons: through the API.',
    )
    async def decide(self, given: object = None) -> Verdict:
        """Decide from Temporal's UI or CLI; answers the decision that stands, whoever made it."""
        decision = read_decision(given)
        return Verdict() if decision is None else await self._gate.decide(decision, "temporal-update")

    @decide.validator
    def _can_decide(self, given: object = None) -> None:
        if not self._gate.open:
            raise ApplicationError("no approval is open in this run", type="no_open_approval", non_retryable=True)
        if read_decision(given) is None:
            raise ApplicationError(_DECISION_SHAPE, type="no_verdict", non_retryable=True)

    @workflow.signal(
        name=contracts.SIGNAL_DECIDE,
        description='Decide an open approval without an answer: {"approval_id": "mcpr_…", "approve": true}.',
    )
    async def on_decide(self, given: object = None) -> None:
        """As the update; a decision that loses changes nothing."""
        decision = read_decision(given)
        if self._gate.open and decision is not None:
            await self._gate.decide(decision, "temporal-signal")

    # -- helpers ---------------------------------------------------------------------------------------------------

    def _guarded(self, argument: T) -> T:
        # An oversized payload issued by workflow code would not fail the run: its task is refused and retried for ever.
        size = len(json.dumps(argument))
        if size > MAX_STATE_BYTES:
            raise ApplicationError(f"run state of {size} bytes", type="state_too_large", non_retryable=True)
        return argument

    def _show(self, step: Step) -> None:
        # The last mark belongs to the step before.
        self._mark = Mark()
        self._show_text(showing.text(step, self._model, self._state.batch))

    def _show_text(self, text: str) -> None:
        workflow.set_current_details(f"**{self._state.response_id}**\n\n{text}")


async def _to_its_end(ending: Awaitable[T]) -> T:
    """Obey a cancellation that arrives meanwhile only afterwards: without its end a response would stay open."""
    task = asyncio.ensure_future(ending)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await task
        raise
