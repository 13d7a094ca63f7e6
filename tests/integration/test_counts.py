"""What a run costs in things that can be counted: history, calls to Temporal, statements and transactions.

Exact numbers, so that a change which adds one says so. The upstream writes its whole answer at once and a run takes
less than a second, so neither commits of single deltas nor heartbeats come in between.
"""

from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from openai import AsyncOpenAI
from openai.types.responses import Response as Answer
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client
from temporalio.runtime import MetricBuffer, Runtime, TelemetryConfig

from activities.base import Deps
from api import liveness
from outlast import processes
from outlast.demo import responses_wire, script
from outlast.demo.serving import running
from outlast.devserver import DevServer
from outlast.ports import open_ports
from outlast.protocol import json
from outlast.protocol.json import JsonObject
from outlast.runs import Runs
from outlast.temporal import DATA_CONVERTER
from tests.support.stack import Outlast, settings
from worker import create_worker

_PLAIN_HISTORY = [
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
_HISTORY_BYTES = 8192


@dataclass(frozen=True, slots=True)
class Spent:
    """What a run took. `calls`: to Temporal by name, without polls and heartbeats."""

    calls: Mapping[str, int]
    transactions: int
    statements: int
    reads: int


class Counted:
    """An Outlast without anything that runs by the clock: no sweeper, no beats of the worker."""

    def __init__(self, outlast: Outlast, observer: Client, metrics: MetricBuffer) -> None:
        self.client = outlast.client
        self._outlast, self._observer, self._metrics = outlast, observer, metrics

    async def create(self, **request: object) -> Answer:
        """A request whose run is over, workflow included."""
        answer: Answer = await self.client.responses.create(model="one-chunk", **request)  # type: ignore[call-overload]  # as given
        await self._observer.get_workflow_handle(answer.id).result()
        assert answer.status == "completed"
        return answer

    async def spent(self, **request: object) -> Spent:
        """What such a request takes once the process is warm."""
        await self.create(**request)
        self._calls()
        stats = self._outlast.ports.store.stats
        before = replace(stats)
        await self.create(**request)
        return Spent(
            self._calls(),
            stats.transactions - before.transactions,
            stats.statements - before.statements,
            stats.reads - before.reads,
        )

    async def history(self, answer: Answer) -> list[HistoryEvent]:
        """The events of its workflow."""
        return list((await self._observer.get_workflow_handle(answer.id).fetch_history()).events)

    @property
    def desk(self) -> JsonObject:
        """The demo's support desk as a tool that needs no approval."""
        url = f"{self._outlast.url}/demo/mcp"
        return {"type": "mcp", "server_label": "desk", "server_url": url, "require_approval": "never"}

    def _calls(self) -> dict[str, int]:
        counted: Counter[str] = Counter()
        for update in self._metrics.retrieve_updates():
            # Polls are `temporal_long_request`.
            if update.metric.name == "temporal_request":
                counted[str(update.attributes["operation"])] += int(update.value)
        return {name: calls for name, calls in counted.items() if "Heartbeat" not in name}


async def _answer_at_once(request: Request) -> Response:
    reading = responses_wire.read(json.loads(await request.body()))
    events = [event async for event in responses_wire.write(reading, script.reply(reading.prompt), 0)]
    return Response(b"".join(events), media_type="text/event-stream")


@asynccontextmanager
async def _counted(temporal: DevServer, folder: Path) -> AsyncIterator[Counted]:
    metrics = MetricBuffer(10_000)
    client = await Client.connect(
        temporal.address,
        data_converter=DATA_CONVERTER,
        runtime=Runtime(telemetry=TelemetryConfig(metrics=metrics)),
    )
    async with AsyncExitStack() as stack:
        model = Starlette(routes=[Route("/v1/responses", _answer_at_once, methods=["POST"])])
        upstream = await stack.enter_async_context(running(model))
        given = settings(folder, temporal.address, upstream=f"{upstream}/v1")
        opened = await open_ports(stack, given, temporal=temporal.address, demo_url=None)
        observer = opened.client
        opened = replace(opened, client=client, runs=Runs(client, given.temporal.task_queue))
        deps = Deps(store=opened.store, models=opened.catalog, mcp=opened.mcp)
        await stack.enter_async_context(create_worker(client, given.temporal.task_queue, deps))
        await opened.store.beat("worker", "worker", deps.clock())
        url = await processes.serve(opened, stack, desk=True)
        openai = AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
        stack.push_async_callback(openai.close)
        yield Counted(Outlast(url, opened, openai), observer, metrics)


@pytest.fixture(autouse=True)
def _workers_are_looked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """How often they are depends on the time."""
    monkeypatch.setattr(liveness, "_CACHE_SECONDS", 3600)


def _long() -> list[JsonObject]:
    return [{"role": "user" if at % 2 == 0 else "assistant", "content": f"text {at} " * 20} for at in range(1999)]


async def test_a_plain_run_has_eleven_events_and_starts_eagerly(temporal: DevServer, folder: Path) -> None:
    """One activity, no workflow task waited for on the way to it."""
    async with _counted(temporal, folder) as counted:
        events = await counted.history(await counted.create(input="hello"))
        assert [EventType.Name(event.event_type).removeprefix("EVENT_TYPE_") for event in events] == _PLAIN_HISTORY
        assert events[0].workflow_execution_started_event_attributes.eager_execution_accepted


async def test_a_history_does_not_grow_with_the_transcript(temporal: DevServer, folder: Path) -> None:
    """2,000 items sent, and 2,000 in the chain before it: ids and numbers only."""
    async with _counted(temporal, folder) as counted:
        short = await counted.create(input="hello")
        long = await counted.create(input=[*_long(), {"role": "user", "content": "hello"}])
        chained = await counted.create(input="hello", previous_response_id=long.id)
        sizes = []
        for answer in (short, long, chained):
            events = await counted.history(answer)
            assert len(events) == len(_PLAIN_HISTORY)
            sizes.append(sum(event.ByteSize() for event in events))
        assert max(sizes) < _HISTORY_BYTES
        # Numbers differ in their length, and what the server notes of a late task; 2,000 items would be 100 KB.
        assert max(sizes) - min(sizes) < 512


async def test_a_plain_run_costs_this_much(temporal: DevServer, folder: Path) -> None:
    """One start, one activity between two workflow tasks; created, begun, ended."""
    async with _counted(temporal, folder) as counted:
        assert await counted.spent(input="hello") == Spent(
            calls={"StartWorkflowExecution": 1, "RespondWorkflowTaskCompleted": 2, "RespondActivityTaskCompleted": 1},
            transactions=3,
            statements=16,
            reads=0,
        )


async def test_a_tool_round_costs_this_much(temporal: DevServer, folder: Path) -> None:
    """Two model rounds with one call between them: an activity and a workflow task more for each."""
    async with _counted(temporal, folder) as counted:
        assert await counted.spent(input="Look up order 1042.", tools=[counted.desk]) == Spent(
            calls={"StartWorkflowExecution": 1, "RespondWorkflowTaskCompleted": 4, "RespondActivityTaskCompleted": 3},
            transactions=10,
            statements=45,
            reads=1,
        )


async def test_a_turn_of_a_conversation_costs_this_much(temporal: DevServer, folder: Path) -> None:
    """A plain run, and: the history read twice, the lock, the append."""
    async with _counted(temporal, folder) as counted:
        conversation = await counted.client.conversations.create()
        assert await counted.spent(input="hello", conversation=conversation.id) == Spent(
            calls={"StartWorkflowExecution": 1, "RespondWorkflowTaskCompleted": 2, "RespondActivityTaskCompleted": 1},
            transactions=3,
            statements=22,
            reads=1,
        )
