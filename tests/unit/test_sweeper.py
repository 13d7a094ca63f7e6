"""The sweeper over a real store and a Temporal that says what a test wants."""

from collections.abc import AsyncIterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

import pytest

from outlast.contracts import RunInput, Timeouts
from outlast.loop.state import ApprovalMode, Batch, Budgets, RunState
from outlast.protocol.errors import Unavailable
from outlast.store.base import Commit
from outlast.store.port import Store
from outlast.store.sqlite import open_store
from outlast.sweeper import Pace, Sweeper
from tests.support import store_world as world
from tests.support.store_world import TENANT


@dataclass
class Temporal:
    """What Temporal says of every workflow, and what it was asked. `away`: it does not answer."""

    running: bool | None = True
    away: bool = False
    started: list[str] = field(default_factory=list)
    signals: list[tuple[str, str]] = field(default_factory=list)

    async def start(self, run: RunInput, workflow_id: str, *, again: bool = False) -> None:
        self.started.append(workflow_id)

    async def resume(self, workflow_id: str, response_id: str) -> bool:
        self.signals.append(("resume", response_id))
        return True

    async def decided(self, workflow_id: str, approval_id: str) -> bool:
        self.signals.append(("decided", approval_id))
        return True

    async def cancel(self, workflow_id: str) -> None:
        self._answer()

    async def is_running(self, workflow_id: str) -> bool | None:
        self._answer()
        return self.running

    def _answer(self) -> None:
        if self.away:
            raise Unavailable("Temporal did not answer.")


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    """An empty store."""
    opened = await open_store(tmp_path / "outlast.db", tmp_path / "secrets.key")
    yield opened
    await opened.aclose()


def sweeper(store: Store, temporal: Temporal, *, lease: float = 30.0, ahead: float = 0.0) -> Sweeper:
    """One to which every row is silent; its clock is `ahead` of the store's."""
    pace = Pace(silent=-1.0, lease=lease)
    return Sweeper(store, temporal, Timeouts(), pace=pace, clock=lambda: world.now() + ahead)


def state(name: str) -> dict[str, object]:
    """A first state as a row holds it."""
    budgets = Budgets(max_rounds=64, max_tool_calls=128)
    return asdict(RunState(f"resp_{name}", ApprovalMode.RESPOND, budgets, batch=Batch(round=0)))


async def waiting(store: Store) -> None:
    """A response of wait mode with a decided and an open ask."""
    await world.create(store, "a", mode="wait")
    asks = [world.ask("mcpr_1", mode="wait"), world.ask("mcpr_2", mode="wait", ordinal=1)]
    await store.append(await world.begin(store, "a", "ask:1"), [], Commit(approvals=asks, outcome={}))
    await store.decide(TENANT, world.wish("mcpr_1"))


async def test_a_run_that_is_well_is_looked_at_again_when_it_has_been_silent_twice_as_long(store: Store) -> None:
    """Each look is a signal in its history: one every lease would fill the history of a run that waits for days."""
    temporal = Temporal()
    await waiting(store)
    minute = sweeper(store, temporal, lease=-1e9, ahead=60.0)
    assert await store.stale(silent_since=world.now() + 1, limit=1, lease_until=0.0)
    await minute._wake((await store.get(TENANT, "resp_a")), world.now() + 60.0)  # type: ignore[arg-type]
    assert temporal.signals == [("decided", "mcpr_1")]
    assert await store.stale(silent_since=world.now() + 1, limit=1, lease_until=0.0) == []
