"""The store's port: following, purging, and what the sweeper reads."""

import asyncio
from pathlib import Path

import pytest

from outlast.protocol.errors import ResponseEnded, Unavailable
from outlast.protocol.json import JsonObject
from outlast.store.base import Gone, StepHandle
from outlast.store.port import Store
from outlast.store.sqlite import SqliteStore
from tests.support import store_world as world
from tests.support.store_world import TENANT, Open, added, ask, begin, create, delta, done, park, user

CANARY = "canary-3f0c9a"


async def _write(store: Store, handle: StepHandle, pieces: int, gate: asyncio.Event | None = None) -> None:
    """A message in many appends; `gate`: waited for in the middle."""
    await store.append(handle, [added("msg_1")])
    for n in range(pieces):
        if gate is not None and n == pieces // 2:
            await gate.wait()
        await store.append(handle, [delta("msg_1", f"{n} ")])
    await world.finish(store, handle, done("msg_1"))


async def test_replay_at_every_cut_point_gives_the_same_bytes(store: Store) -> None:
    """From memory and from rows, to the end and not beyond."""
    await create(store, "a")
    live = asyncio.create_task(world.frames(store, "a"))
    await _write(store, await begin(store, "a"), 10)
    whole = await live
    assert len(whole) == 15
    for after in range(-1, 16):
        assert await world.frames(store, "a", after) == whole[after + 1 :]


async def test_readers_of_another_store_joining_at_different_cuts_see_equal_bytes(open_another: Open) -> None:
    """One writes, the others follow while it does, one of them slowly."""
    writer, reader = await open_another(), await open_another()
    await create(writer, "a")
    handle = await begin(writer, "a")
    gate = asyncio.Event()
    writing = asyncio.create_task(_write(writer, handle, 40, gate))
    seen: list[tuple[int, str, bytes]] = []

    async def slow() -> None:
        async for batch in reader.follow(TENANT, "resp_a", -1):
            seen.extend(batch.data)
            gate.set()
            await asyncio.sleep(0)

    slowly = asyncio.create_task(slow())
    await gate.wait()
    late = [asyncio.create_task(world.frames(reader, "a", after)) for after in (3, 11)]
    await asyncio.gather(writing, slowly, *late)
    whole = await world.frames(writer, "a")
    assert seen == whole
    assert [task.result() for task in late] == [whole[4:], whole[12:]]


async def test_a_tail_that_another_process_has_outrun_is_not_trusted(open_another: Open) -> None:
    """Who created the response holds its first frames only; a reader that joins at them waits for no further commit."""
    creator, worker = await open_another(), await open_another()
    await create(creator, "a")
    gate = asyncio.Event()
    writing = asyncio.create_task(_write(worker, await begin(worker, "a"), 10, gate))
    following = creator.follow(TENANT, "resp_a", -1)
    seen = 0
    async for batch in following:
        seen += len(batch.data)
        if seen > 2:
            break
    # Attached beside one that has read on, then alone after it has left.
    async with asyncio.timeout(5):
        joined = creator.follow(TENANT, "resp_a", 0)
        shown = list((await anext(joined)).data)
        while len(shown) < seen - 1:
            shown.extend((await anext(joined)).data)
        gate.set()
        await writing
        whole = await world.frames(worker, "a")
        assert [frame async for batch in following for frame in batch.data] == whole[seen:]
        assert [*shown, *[frame async for batch in joined for frame in batch.data]] == whole[1:]
        assert await world.frames(creator, "a", 0) == whole[1:]


async def test_a_reader_too_slow_for_the_tail_falls_back_to_rows(store: Store) -> None:
    """More than the tail holds goes by while it looks away; it misses nothing."""
    await create(store, "a")
    handle = await begin(store, "a")
    following = store.follow(TENANT, "resp_a", -1)
    first = await anext(following)
    await store.append(handle, [added("msg_1")])
    for _ in range(30):
        await store.append(handle, [delta("msg_1", "x") for _ in range(100)])
    await world.finish(store, handle, done("msg_1"))
    rest = [frame for batch in [batch async for batch in following] for frame in batch.data]
    assert [*first.data, *rest] == await world.frames(store, "a")
    assert len(rest) == 3_003


async def test_who_creates_and_follows_at_once_needs_no_read(store: Store) -> None:
    """The tail holds everything from number 0."""
    assert isinstance(store, SqliteStore)
    await create(store, "a")
    live = asyncio.create_task(world.frames(store, "a"))
    await _write(store, await begin(store, "a"), 3)
    assert len(await live) == 8
    assert store.stats.reads == 0


async def test_following_what_is_unknown_foreign_or_past_the_end_ends_at_once(store: Store) -> None:
    """No frames, no waiting."""
    await create(store, "a")
    await world.end(store, "a")
    assert await world.frames(store, "none") == []
    assert [batch async for batch in store.follow("stranger", "resp_a", -1)] == []
    assert await world.frames(store, "a", after=99) == []


async def test_a_reader_beyond_the_end_of_a_live_response_ends_with_it(open_another: Open) -> None:
    """Here and in another process."""
    stores = [await open_another(), await open_another()]
    await create(stores[0], "a")
    readers = [asyncio.create_task(world.frames(store, "a", after=50)) for store in stores]
    await world.end(stores[0], "a")
    assert await asyncio.gather(*readers) == [[], []]


async def test_deleting_ends_its_readers(open_another: Open) -> None:
    """Without a terminal frame: there is nothing to read any more."""
    stores = [await open_another(), await open_another()]
    await create(stores[0], "a")
    following = [store.follow(TENANT, "resp_a", -1) for store in stores]
    for each in following:
        assert len((await anext(each)).data) == 2
    await stores[0].delete(TENANT, "resp_a")
    assert [[batch async for batch in each] for each in following] == [[], []]


async def test_readers_that_leave_in_the_middle_of_a_read_do_no_harm(store: Store) -> None:
    """Cancelled at any point; later ones are served."""
    await create(store, "a")
    for turns in range(40):
        reader = asyncio.create_task(world.frames(store, "a", after=0))
        for _ in range(turns):
            await asyncio.sleep(0)
        reader.cancel()
        await asyncio.gather(reader, return_exceptions=True)
    await world.end(store, "a")
    assert len(await world.frames(store, "a")) == 3


async def test_a_closed_store_says_so_to_writers_and_followers(open_another: Open) -> None:
    """No hang, no invented end."""
    store = await open_another()
    await create(store, "a")
    following = store.follow(TENANT, "resp_a", -1)
    await anext(following)
    await store.aclose()
    with pytest.raises(Unavailable):
        await anext(following)
    with pytest.raises(Unavailable):
        await create(store, "b")


def _files_with(folder: Path, text: str) -> list[str]:
    return [path.name for path in folder.iterdir() if path.is_file() and text.encode() in path.read_bytes()]


async def _transient(store: Store, name: str) -> None:
    """A `store:false` response full of canaries, ended."""
    where: JsonObject = user(CANARY)
    record = world.record(name, store=False, request={"instructions": CANARY})
    await store.create(world.new(record, where, secrets={"sec_1": {"authorization": CANARY}}))
    handle = await begin(store, name)
    await store.append(handle, [added("msg_1"), delta("msg_1", CANARY)])
    await world.finish(
        store, handle, done("msg_1", CANARY), calls=[world.call(0, name, arguments=CANARY)],
        approvals=[ask("mcpr_1", name, arguments=CANARY)],
    )  # fmt: skip


async def test_after_a_purge_no_file_holds_a_byte_of_the_content(store: Store, tmp_path: Path) -> None:
    """Database, log and shared memory, searched raw."""
    await _transient(store, "a")
    assert await world.frames(store, "a")
    assert _files_with(tmp_path, CANARY)
    assert await store.purge(TENANT, "resp_a")
    assert await store.get(TENANT, "resp_a") is None
    await world.until_gone(tmp_path, CANARY.encode())
    assert not await store.purge(TENANT, "resp_a")


async def test_only_ended_transient_responses_older_than_a_minute_are_purged(store: Store) -> None:
    """Stored ones and running ones stay, whatever their age."""
    await _transient(store, "a")
    await create(store, "b")
    await store.create(world.new(world.record("c", store=False)))
    await world.end(store, "b")
    assert not await store.purge(TENANT, "resp_b")
    assert not await store.purge(TENANT, "resp_c")
    assert await store.purge_transient(world.now() + 30) == 0
    await store.attend(TENANT, "resp_a", world.now() + 100)
    assert await store.purge_transient(world.now() + 61) == 0
    assert await store.purge_transient(world.now() + 101) == 1
    left = [await store.get(TENANT, f"resp_{name}") for name in "abc"]
    assert [record.id for record in left if record is not None] == ["resp_b", "resp_c"]


async def test_secrets_are_sealed_in_the_file(store: Store, tmp_path: Path) -> None:
    """The plaintext is nowhere while the response runs; the key file is for its owner only."""
    await store.create(world.new(world.record("a"), secrets={"sec_1": {"authorization": CANARY}}))
    assert await store.secret(TENANT, "sec_1") == {"authorization": CANARY}
    assert _files_with(tmp_path, CANARY) == []
    assert (tmp_path / "secrets.key").stat().st_mode & 0o777 == 0o600


async def test_silent_responses_are_leased_to_one_sweeper(open_another: Open) -> None:
    """Ended ones and those just written are not silent."""
    stores = [await open_another(), await open_another()]
    for name in ("a", "b", "c"):
        await create(stores[0], name)
    await world.end(stores[0], "c")
    soon, later = world.now() + 10, world.now() + 1_000
    assert await stores[0].stale(silent_since=world.now() - 60, limit=10, lease_until=later) == []
    found = await asyncio.gather(
        *(each.stale(silent_since=soon, limit=1, lease_until=later) for each in (*stores, *stores))
    )
    assert sorted(record.id for page in found for record in page) == ["resp_a", "resp_b"]
    assert await stores[0].stale(silent_since=soon, limit=10, lease_until=later) == []


async def test_a_silent_response_that_was_looked_after_rests_for_as_long_as_it_was_silent(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An hour at most, never shorter than its lease; a run that waits for days is not signalled every half minute."""
    clock = [1_000.0]
    monkeypatch.setattr("outlast.store.sql.time.time", lambda: clock[0])
    await create(store, "a")

    async def rests(silent: float) -> float:
        clock[0] = 1_000.0 + silent
        assert await store.stale(silent_since=clock[0], limit=1, lease_until=clock[0] + 30)
        await store.rest(TENANT, "resp_a")
        start = clock[0]
        while not await store.stale(silent_since=clock[0], limit=1, lease_until=clock[0]):
            clock[0] += 10
        return clock[0] - start

    assert [await rests(silent) for silent in (20.0, 60.0, 240.0, 86_400.0)] == [30, 60, 240, 3_600]


async def test_parked_runs_are_leased_alike(store: Store) -> None:
    """With who they are parked on."""
    await park(store, "a", ask("mcpr_1"))
    await create(store, "b")
    later = world.now() + 1_000
    assert await store.parked(limit=10, lease_until=later) == [(TENANT, "resp_a", "resp_a")]
    assert await store.parked(limit=10, lease_until=later) == []


async def test_workers_count_while_they_beat(store: Store) -> None:
    """One row a worker."""
    await store.beat("w1", "worker", 100.0)
    await store.beat("w2", "worker", 130.0)
    await store.beat("w2", "worker", 140.0)
    assert [await store.workers_alive(since) for since in (90.0, 120.0, 150.0)] == [2, 1, 0]


async def test_steps_begun_tells_a_started_response_from_one_that_never_was(store: Store) -> None:
    """By its steps, not by its status."""
    await create(store, "a")
    assert not await store.steps_begun(TENANT, "resp_a")
    await begin(store, "a")
    assert await store.steps_begun(TENANT, "resp_a")


async def test_an_append_costs_one_transaction_of_three_statements(store: Store) -> None:
    """The row, the fence, the events; counted exactly."""
    assert isinstance(store, SqliteStore)
    await create(store, "a")
    handle = await begin(store, "a")
    await store.append(handle, [added("msg_1")])
    before = (store.stats.transactions, store.stats.statements)
    await store.append(handle, [delta("msg_1", "x"), delta("msg_1", "y")])
    assert (store.stats.transactions - before[0], store.stats.statements - before[1]) == (1, 3)


async def test_a_transient_response_without_its_reader_is_given_up(store: Store) -> None:
    """Steps stop at the lapsed lease, and the sweeper is given the row without waiting for its silence."""
    await store.create(world.new(world.record("a", store=False)))
    handle = await begin(store, "a")
    await store.append(handle, [added("msg_1")])
    await store.attend(TENANT, "resp_a", world.now() - 1)
    with pytest.raises(ResponseEnded):
        await store.append(handle, [delta("msg_1", "late")])
    assert isinstance(await store.begin(TENANT, "resp_a", "llm:2", workflow_id=None), Gone)
    page = await store.stale(silent_since=0, limit=10, lease_until=world.now() + 30)
    assert [record.id for record in page] == ["resp_a"]


async def test_an_attended_transient_response_and_a_stored_one_go_on(store: Store) -> None:
    """A lease in the future, renewed or granted, and no lease for what is stored."""
    await store.create(world.new(world.record("a", store=False)))
    await create(store, "b")
    await store.attend(TENANT, "resp_a", world.now() + 60)
    await store.attend(TENANT, "resp_b", world.now() - 1)
    for name in "ab":
        await store.append(await begin(store, name), [added("msg_1")])
    assert await store.stale(silent_since=0, limit=10, lease_until=world.now() + 30) == []
