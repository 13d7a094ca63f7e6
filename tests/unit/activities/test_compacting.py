"""`CallLlm` with a compaction before its round, over a real store: paid for once, cut once, whatever is lost."""

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from activities.base import Deps
from activities.call_llm import CallLlmActivity
from outlast.contracts import CallLlmInput
from outlast.loop.state import LlmOutcome, RunState, Status
from outlast.mcp.client import McpClients
from outlast.protocol.compaction import ASKED_FOR_SUMMARY
from outlast.protocol.errors import UpstreamUnavailable
from outlast.protocol.events import WireEvent, parse
from outlast.protocol.usage import Usage
from outlast.store.port import Store
from outlast.store.sqlite import open_store
from outlast.upstream.base import Capabilities, Round, Timeouts, Upstream, UpstreamRequest
from tests.support import fakes
from tests.support import store_world as world
from tests.support.raw_model import completed, deltas

# The workflow an activity environment says it works for.
WORKFLOW = "test"
SPENT = Usage(input_tokens=3, output_tokens=2, total_tokens=5)


@dataclass
class Model:
    """Says what it is told to; a text that is an exception is raised."""

    says: list[str | Exception]
    asked: list[Round] = field(default_factory=list)
    capabilities: Capabilities = field(default_factory=Capabilities)

    def resolve(self, model: str) -> tuple[Upstream, str]:
        return self, model

    def build(self, round: Round) -> UpstreamRequest:
        self.asked.append(round)
        return UpstreamRequest("/responses", b"")

    async def stream(self, request: UpstreamRequest, timeouts: Timeouts) -> AsyncGenerator[Sequence[WireEvent]]:
        said = self.says.pop(0)
        if isinstance(said, Exception):
            raise said
        yield [parse(event) for event in (*deltas(said), completed())]

    async def count(self, round: Round) -> int | None:
        return None

    async def models(self) -> list[str]:
        return []

    async def aclose(self) -> None:
        """Nothing is open."""

    @property
    def summaries(self) -> int:
        """How many summaries it was asked for."""
        return sum(ASKED_FOR_SUMMARY in str(asked.transcript[0]) for asked in self.asked)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    """A store of its own."""
    opened = await open_store(tmp_path / "outlast.db", tmp_path / "secrets.key")
    yield opened
    await opened.aclose()


async def started(store: Store, **request: Any) -> CallLlmInput:
    """A response with a long past."""
    past = {"type": "message", "role": "assistant", "content": "x" * 8000}
    given = {"model": "demo", "context_management": [{"type": "compaction", "compact_threshold": 1000}], **request}
    record = world.record("a", workflow_id=WORKFLOW, request=given)
    await store.create(world.new(record, world.user("one"), past, world.user("two")))
    return CallLlmInput(world.TENANT, RunState("resp_a"), fakes.TIMEOUTS)


async def attempt(store: Store, model: Model, given: CallLlmInput) -> LlmOutcome:
    """One attempt of the activity."""
    activity = CallLlmActivity(Deps(store=store, models=model, mcp=McpClients()))
    outcome: LlmOutcome = await ActivityEnvironment().run(activity.call_llm, given)
    return outcome


async def shown(store: Store) -> list[str]:
    """Types of the output."""
    return [item["type"] for item in await store.output(world.TENANT, "resp_a")]


async def test_a_summary_is_paid_for_once_when_its_round_is_lost(store: Store) -> None:
    """The next attempt finds the step, its item and its usage, and asks for the round alone."""
    given = await started(store)
    model = Model(["notes", UpstreamUnavailable("gone"), "answer"])
    with pytest.raises(ApplicationError):
        await attempt(store, model, given)
    assert await shown(store) == ["compaction"]
    outcome = await attempt(store, model, given)
    assert outcome.usage == SPENT + SPENT
    assert await shown(store) == ["compaction", "message"]
    assert model.summaries == 1
    assert [len(asked.transcript) for asked in model.asked] == [1, 3, 3]


async def test_a_summary_that_is_lost_leaves_the_context_as_it_was(store: Store) -> None:
    """Cut off, empty: nothing is committed, the next attempt makes it."""
    given = await started(store)
    model = Model([UpstreamUnavailable("gone"), "", "notes", "answer"])
    for _ in range(2):
        with pytest.raises(ApplicationError):
            await attempt(store, model, given)
        assert await shown(store) == []
    outcome = await attempt(store, model, given)
    assert (outcome.usage, model.summaries) == (SPENT + SPENT, 3)
    assert await shown(store) == ["compaction", "message"]


async def test_a_round_that_fails_for_good_reports_its_summary(store: Store) -> None:
    """It was paid for."""
    given = await started(store)
    given = CallLlmInput(given.tenant, given.state, replace(given.timeouts, llm_attempts=1))
    outcome = await attempt(store, Model(["notes", UpstreamUnavailable("gone")]), given)
    assert outcome.finished is not None
    record = await store.get(world.TENANT, "resp_a")
    assert record is not None
    assert (record.status, record.usage) == ("failed", SPENT)


async def test_a_short_context_costs_nothing(store: Store) -> None:
    """No summary, no step."""
    given = await started(store, context_management=[{"type": "compaction", "compact_threshold": 9000}])
    model = Model(["answer"])
    assert (await attempt(store, model, given)).usage == SPENT
    assert (await shown(store), len(model.asked)) == (["message"], 1)


async def test_a_response_that_is_a_compaction_ends_with_it(store: Store) -> None:
    """In one transaction, and not a second time."""
    given = await started(store)
    state = RunState("resp_a", compacts=True)
    given = CallLlmInput(given.tenant, state, given.timeouts)
    model = Model(["notes"])
    outcome = await attempt(store, model, given)
    assert outcome.finished is not None
    assert (outcome.finished.status, outcome.usage) == (Status.COMPLETED, SPENT)
    assert await attempt(store, model, given) == outcome
    assert (await shown(store), len(model.asked)) == (["compaction"], 1)
