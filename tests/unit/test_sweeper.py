"""The sweeper over a real store and a Temporal that says what a test wants."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from outlast.contracts import RunInput, Timeouts
from outlast.loop import decide
from outlast.loop.state import RunState
from outlast.protocol.errors import Unavailable
from outlast.protocol.json import JsonObject
from outlast.store import sql
from outlast.store.base import Commit, Ending
from outlast.store.port import Store
from outlast.store.sqlite import open_store
from outlast.sweeper import Pace, Sweeper
from tests.support import store_world as world
from tests.support.store_world import TENANT


@dataclass
class Temporal:
    """What Temporal says of every workflow, and what it was asked. `away`: it does not answer; `lost`: nor does it
    describe a run, which the sweeper learns in the middle of a sweep."""

    running: bool | None = True
    away: bool = False
    lost: bool = False
    cancelled: list[str] = field(default_factory=list)
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
        self.cancelled.append(workflow_id)

    async def healthy(self) -> bool:
        return not self.away

    async def is_running(self, workflow_id: str) -> bool | None:
        if self.lost:
            raise Unavailable("Temporal did not answer.")
        return self.running


@dataclass
class Clock:
    """The time of the store and of its sweepers."""

    now: float = 1_000.0

    def time(self) -> float:
        """As `time.time`."""
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Moved by the test alone."""
    clock = Clock()
    monkeypatch.setattr(sql, "time", clock)
    return clock


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    """An empty store."""
    opened = await open_store(tmp_path / "outlast.db", tmp_path / "secrets.key")
    yield opened
    await opened.aclose()


async def waiting(store: Store) -> None:
    """A response of wait mode with a decided and an open ask."""
    await world.create(store, "a", mode="wait")
    asks = [world.ask("mcpr_1", mode="wait"), world.ask("mcpr_2", mode="wait", ordinal=1)]
    await store.append(await world.begin(store, "a", "ask:1"), [], Commit(approvals=asks, outcome={}))
    await store.decide(TENANT, world.wish("mcpr_1"))


async def looks(sweeper: Sweeper, clock: Clock, seconds: int) -> list[int]:
    """The seconds from now at which a sweep looked at a row, swept once a second."""
    start, found = clock.now, []
    for second in range(1, seconds + 1):
        clock.now = start + second
        if await sweeper.sweep():
            found.append(second)
    return found


async def test_a_run_that_is_well_is_looked_at_when_it_was_silent_twice_as_long(store: Store, clock: Clock) -> None:
    """A look is a signal in its history, and one every lease would fill the history of a run that waits for days."""
    temporal = Temporal()
    await waiting(store)
    assert await looks(Sweeper(store, temporal, Timeouts(), clock=clock.time), clock, 500) == [61, 122, 244, 488]
    assert temporal.signals == [("decided", "mcpr_1")] * 4


async def test_a_decision_is_waked_for_again_within_minutes_however_long_the_run_was_silent(
    store: Store, clock: Clock
) -> None:
    """Its own wake-up may have been lost."""
    temporal = Temporal()
    await waiting(store)
    sweeper = Sweeper(store, temporal, Timeouts(), clock=clock.time)
    clock.now += 90_000
    assert await looks(sweeper, clock, 300) == [1]
    await store.decide(TENANT, world.wish("mcpr_2"))
    assert await looks(sweeper, clock, 100) == [61]
    assert temporal.signals[-1] == ("decided", "mcpr_2")


async def test_a_run_that_cannot_be_mended_keeps_no_other_waiting(
    store: Store, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    """Its first state is of another version, say."""
    temporal = Temporal(running=None)
    await world.create(store, "a", run_state={"phase": "of another version"})
    clock.now += 1
    await world.create(store, "b")
    clock.now += 61
    assert await Sweeper(store, temporal, Timeouts(), clock=clock.time).sweep() == 2
    assert temporal.started == ["resp_b"]
    assert "response resp_a cannot be mended" in caplog.text


async def test_content_that_was_not_to_be_kept_is_purged_while_temporal_is_away(store: Store, clock: Clock) -> None:
    """It needs nobody but the store."""
    await store.create(world.new(world.record("a", store=False)))
    await world.end(store, "a")
    clock.now += 61
    assert await Sweeper(store, Temporal(away=True), Timeouts(), clock=clock.time).sweep() == 0
    assert await store.get(TENANT, "resp_a") is None


async def test_nothing_is_leased_while_temporal_is_away(store: Store, clock: Clock) -> None:
    """The first sweep after its return mends at once."""
    temporal = Temporal(running=None, away=True)
    await world.create(store, "a", run_state=_first_state("resp_a"))
    clock.now += 61
    sweeper = Sweeper(store, temporal, Timeouts(), clock=clock.time)
    assert await sweeper.sweep() == 0
    temporal.away = False
    assert await sweeper.sweep() == 1
    assert temporal.started == ["resp_a"]


async def test_every_kind_of_answer_wakes_a_run_that_waits(store: Store, clock: Clock) -> None:
    """Approved, denied, and what its deadline answers now; an open ask wakes nobody."""
    temporal = Temporal()
    await world.create(store, "a", mode="wait")
    late: dict[str, Any] = {"deadline": clock.now + 10, "on_deadline": "fail"}
    asks = [world.ask(f"mcpr_{n}", mode="wait", ordinal=n, **(late if n == 2 else {})) for n in range(4)]
    await store.append(await world.begin(store, "a", "ask:1"), [], Commit(approvals=asks, outcome={}))
    await store.decide(TENANT, world.wish("mcpr_0"))
    await store.decide(TENANT, world.wish("mcpr_1", approve=False))
    clock.now += 61
    assert await Sweeper(store, temporal, Timeouts(), clock=clock.time).sweep() == 1
    assert temporal.signals == [("decided", f"mcpr_{n}") for n in range(3)]


async def test_overdue_asks_of_a_parked_run_expire(store: Store, clock: Clock) -> None:
    """Nobody waits for them, and nobody need look."""
    await world.park(store, "a", world.ask("mcpr_1", deadline=clock.now + 10, on_deadline="deny"))
    clock.now += 11
    await Sweeper(store, Temporal(), Timeouts(), clock=clock.time).sweep()
    found = await store.approval(TENANT, "mcpr_1")
    assert found is not None
    assert (found.status, found.decided_by) == ("denied", "deadline")


async def test_a_sweep_that_failed_is_tried_again(store: Store, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Temporal went away in the middle of it."""
    temporal = Temporal(running=None, lost=True)
    await world.create(store, "a", run_state=_first_state("resp_a"))
    clock.now += 61
    slept = 0

    async def sleep(seconds: float) -> None:
        nonlocal slept
        assert seconds == 5
        slept += 1
        clock.now += 60
        temporal.lost = False
        if slept == 2:
            raise asyncio.CancelledError

    sweeper = Sweeper(store, temporal, Timeouts(), pace=Pace(every=5), clock=clock.time)
    monkeypatch.setattr("outlast.sweeper.asyncio", SimpleNamespace(sleep=sleep))
    with pytest.raises(asyncio.CancelledError):
        await sweeper.run_forever()
    assert temporal.started == ["resp_a"]


async def test_a_sweep_cut_short_delays_its_row_by_its_lease_only(store: Store, clock: Clock) -> None:
    """Killed, or left by Temporal, between the lease and the mending: the row had been silent for a day."""
    temporal = Temporal(running=None, lost=True)
    await world.create(store, "a", run_state=_first_state("resp_a"))
    clock.now += 86_400
    sweeper = Sweeper(store, temporal, Timeouts(), clock=clock.time)
    with pytest.raises(Unavailable):
        await sweeper.sweep()
    temporal.lost = False
    assert await looks(sweeper, clock, 60) == [30]
    assert temporal.started == ["resp_a"]


async def test_a_cancel_that_temporal_did_not_take_is_repeated_until_the_run_is_closed(
    store: Store, clock: Clock
) -> None:
    """Every lease; not for a response that ended by itself, and not after."""
    temporal = Temporal()
    sweeper = Sweeper(store, temporal, Timeouts(), clock=clock.time)
    await world.create(store, "a", mode="wait")
    await world.end(store, "a", Ending("cancelled", stop=True))
    await world.create(store, "b")
    await world.end(store, "b", Ending("failed"))
    await looks(sweeper, clock, 65)
    assert temporal.cancelled == ["resp_a"] * 3
    temporal.running = False
    await looks(sweeper, clock, 30)
    temporal.running = True
    await looks(sweeper, clock, 100)
    assert temporal.cancelled == ["resp_a"] * 3


def _first_state(response_id: str) -> JsonObject:
    return asdict(decide.initial(RunState(response_id=response_id)))
