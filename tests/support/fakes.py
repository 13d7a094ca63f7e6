"""Activities faked by name, and a bench that runs `ResponseWorkflow` on a real server with them.

A script is a list of answers per activity: an outcome, an exception to raise, a function of the input, or `HANG`. When
a list is used up, the activity does what a run without surprises would need.
"""

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from enum import Enum
from typing import Any

from temporalio import activity
from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client, WorkflowExecutionStatus, WorkflowHandle
from temporalio.worker import Worker

from outlast import contracts
from outlast.contracts import (
    AskInput,
    CallLlmInput,
    DecideInput,
    FinishInput,
    GateInput,
    GateView,
    ParkInput,
    Resumed,
    RunInput,
    Timeouts,
    ToolDone,
    ToolInput,
    Verdict,
)
from outlast.loop.state import (
    ApprovalMode,
    AskOutcome,
    Batch,
    Ended,
    FinishOutcome,
    LlmOutcome,
    Phase,
    RunState,
    Status,
)
from outlast.runs import Runs
from outlast.sandbox import workflow_runner
from workflows.response import ResponseWorkflow

# Nothing here takes that long unless it hangs.
PATIENCE = 20.0

COMPLETED = Ended(Status.COMPLETED)
CANCELLED = Ended(Status.CANCELLED)
TIMEOUTS = Timeouts(heartbeat=5, llm_backoff=0.05, llm_backoff_max=0.1, park=600)


class Hang(Enum):
    """An activity that beats until it is cancelled."""

    HANG = 0


HANG = Hang.HANG

# An outcome, an exception, `HANG`, or a function of the input.
Answer = object
Script = Mapping[str, Sequence[Answer]]


def done() -> LlmOutcome:
    """A model round that finished in place."""
    return LlmOutcome(at=1.0, produced=True, finished=COMPLETED)


def tools(*ordinals: int, ask: Sequence[int] = (), client: bool = False) -> LlmOutcome:
    """A model round that wants gateway calls, named `docs.search`."""
    names = tuple((ordinal, "docs.search") for ordinal in (*ordinals, *ask))
    return LlmOutcome(at=1.0, run=ordinals, ask=tuple(ask), client=client, names=names)


def state(response_id: str = "resp_1", *, mode: ApprovalMode = ApprovalMode.RESPOND, **changed: Any) -> RunState:
    """Where a run starts."""
    return replace(RunState(response_id, mode=mode), **changed)


def waiting(*ordinals: int, **changed: Any) -> RunState:
    """A run whose first step asks for approval, in wait mode."""
    batch = Batch(0, ask=ordinals or (0,), names=tuple((n, "docs.delete") for n in ordinals or (0,)))
    return state(mode=ApprovalMode.WAIT, phase=Phase.ASK, batch=batch, **changed)


def asking(response_id: str = "resp_1") -> RunState:
    """A run whose first step asks for approval, in respond mode."""
    return state(response_id, phase=Phase.ASK, batch=Batch(0, ask=(0,), names=((0, "docs.delete"),)))


class Fakes:
    """The nine activities. `calls`: (name, input) in the order they began."""

    def __init__(self, script: Script) -> None:
        self._script = {name: list(answers) for name, answers in script.items()}
        self.calls: list[tuple[str, Any]] = []
        self._called = asyncio.Condition()

    def names(self) -> list[str]:
        """Of the activities that began, in order, retries included."""
        return [name for name, _ in self.calls]

    def inputs(self, name: str) -> list[Any]:
        """What an activity was given, call by call."""
        return [given for called, given in self.calls if called == name]

    async def called(self, name: str, times: int = 1) -> None:
        """Wait until an activity has begun so often."""
        async with asyncio.timeout(PATIENCE), self._called:
            await self._called.wait_for(lambda: len(self.inputs(name)) >= times)

    def activities(self) -> list[Callable[..., Any]]:
        """For a worker."""
        return [
            self._fake(contracts.CALL_LLM, CallLlmInput, LlmOutcome, lambda _: done()),
            self._fake(contracts.EXECUTE_TOOLS, ToolInput, ToolDone, lambda _: ToolDone(at=2.0)),
            self._fake(contracts.FAIL_CALL, ToolInput, ToolDone, lambda _: ToolDone(at=3.0)),
            self._fake(contracts.INTERRUPT_FOR_APPROVAL, AskInput, AskOutcome, _asked),
            self._fake(contracts.FINISH_RESPONSE, FinishInput, FinishOutcome, _finished),
            self._fake(contracts.DECIDE_APPROVAL, DecideInput, Verdict, _decided),
            self._fake(contracts.READ_GATE, GateInput, GateView, lambda _: GateView(approved=(0,), at=4.0)),
            self._fake(contracts.EXPIRE_ASKS, GateInput, GateView, lambda _: GateView()),
            self._fake(contracts.LEAVE_PARK, ParkInput, Resumed, _left),
        ]

    def _fake(
        self, name: str, given: type[object], result: type[object], otherwise: Callable[[Any], object]
    ) -> Callable[..., Any]:
        async def fake(request: Any) -> object:
            async with self._called:
                self.calls.append((name, request))
                self._called.notify_all()
            answers = self._script.get(name)
            return await _perform(answers.pop(0) if answers else otherwise(request), request)

        fake.__annotations__ = {"request": given, "return": result}
        return activity.defn(name=name)(fake)


async def _perform(answer: Answer, request: Any) -> object:
    if isinstance(answer, BaseException):
        raise answer
    if answer is HANG:
        while True:
            activity.heartbeat()
            await asyncio.sleep(0.05)
    return await answer(request) if callable(answer) else answer


def _asked(given: AskInput) -> AskOutcome:
    if given.state.mode is ApprovalMode.WAIT:
        return AskOutcome(at=1.0)
    return AskOutcome(at=1.0, finished=COMPLETED, parked=given.may_park)


def _finished(given: FinishInput) -> FinishOutcome:
    return FinishOutcome(given.state.ended or COMPLETED)


def _decided(given: DecideInput) -> Verdict:
    status = "approved" if given.decision.approve else "denied"
    return Verdict(given.decision.approval_id, status, given.how, won=True)


def _left(given: ParkInput) -> Resumed:
    """Whoever says so takes the run, and its model asks nothing any more."""
    return Resumed(closed=True) if given.resumed_by is None else Resumed(state(given.resumed_by), model="second")


@dataclass(frozen=True, slots=True)
class Run:
    """One workflow and the fakes it runs on."""

    handle: WorkflowHandle[Any, Any]
    fakes: Fakes

    async def ended(self, status: WorkflowExecutionStatus = WorkflowExecutionStatus.COMPLETED) -> None:
        """Wait for the end; it is this one."""
        async with asyncio.timeout(PATIENCE):
            # Not `result()`, which raises for a cancelled run what a test's own cancellation would raise.
            events = [event async for event in self.handle.fetch_history_events(wait_new_event=True)]
        assert events
        described = await self.handle.describe()
        assert described.status is status, described.status

    async def parked(self) -> None:
        """Wait until the run has parked: nothing of it is open but a timer."""
        await self.recorded(EventType.EVENT_TYPE_TIMER_STARTED)

    async def recorded(self, kind: "EventType.ValueType", times: int = 1) -> None:
        """Wait for an event of the history."""
        seen = 0
        async with asyncio.timeout(PATIENCE):
            async for event in self.handle.fetch_history_events(wait_new_event=True):
                seen += event.event_type == kind
                if seen >= times:
                    return
        raise AssertionError(f"the run ended without {EventType.Name(kind)}")

    async def events(self) -> list[HistoryEvent]:
        """The history."""
        return list((await self.handle.fetch_history()).events)

    async def event_names(self) -> list[str]:
        """The history's event types, `EVENT_TYPE_` left out."""
        return [EventType.Name(event.event_type).removeprefix("EVENT_TYPE_") for event in await self.events()]

    async def scheduled(self) -> list[tuple[str, str]]:
        """(activity, summary) of the scheduled activities; local ones have no event of their own."""
        return [
            (event.activity_task_scheduled_event_attributes.activity_type.name, _text(event))
            for event in await self.events()
            if event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED
        ]


def _text(event: HistoryEvent) -> str:
    return event.user_metadata.summary.data.decode().strip('"')


@dataclass(frozen=True, slots=True)
class Bench:
    """A server and a queue of one's own. `cached`: workflows a worker keeps; 0 replays at every task."""

    client: Client
    cached: int = 1000
    queue: str = field(default_factory=lambda: f"test-{uuid.uuid4().hex}")

    async def start(
        self, given: RunState | None = None, *, timeouts: Timeouts = TIMEOUTS, task_timeout: timedelta | None = None
    ) -> str:
        """Start a run as the API does, unless it needs a workflow task of another length; the workflow's id."""
        run = RunInput("default", given or state(), "first", timeouts)
        workflow_id = f"run-{uuid.uuid4().hex}"
        if task_timeout is None:
            await Runs(self.client, self.queue).start(run, workflow_id)
        else:
            await self.client.start_workflow(
                contracts.WORKFLOW, run, id=workflow_id, task_queue=self.queue, task_timeout=task_timeout
            )
        return workflow_id

    @asynccontextmanager
    async def worker(self, script: Script | None = None) -> AsyncIterator[Fakes]:
        """A worker with fakes, in the sandbox of the product."""
        fakes = Fakes(script or {})
        async with Worker(
            self.client,
            task_queue=self.queue,
            workflows=[ResponseWorkflow],
            activities=fakes.activities(),
            workflow_runner=workflow_runner(),
            max_cached_workflows=self.cached,
            max_heartbeat_throttle_interval=timedelta(seconds=0.1),
            default_heartbeat_throttle_interval=timedelta(seconds=0.1),
        ):
            yield fakes

    @asynccontextmanager
    async def running(
        self,
        script: Script | None = None,
        given: RunState | None = None,
        *,
        timeouts: Timeouts = TIMEOUTS,
    ) -> AsyncIterator[Run]:
        """A started run and its worker."""
        async with self.worker(script) as fakes:
            workflow_id = await self.start(given, timeouts=timeouts)
            yield Run(self.client.get_workflow_handle(workflow_id), fakes)
