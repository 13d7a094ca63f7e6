"""The store's port: deleting in the middle of a chain, and deleting what is old."""

from pathlib import Path

import pytest

from outlast.protocol.errors import PreviousResponseNotFound, ResponseEnded
from outlast.store.base import Blob, Ending
from outlast.store.port import Store
from tests.support import store_world as world
from tests.support.store_world import TENANT, added, ask, begin, create, done, finished, park, user, wish

IMAGE = Blob("f" * 64, "image/png", b"\x89PNG")
DAY = 86_400


async def turn(store: Store, name: str, parent: str | None = None, at: int = 1_000) -> None:
    """A completed turn that said its own name."""
    await create(store, name, user(name), previous_response_id=parent, created_at=at)
    handle = await begin(store, name)
    private = {f"msg_{name}": {"images": [{"hash": IMAGE.hash, "mime_type": IMAGE.mime_type}]}}
    await store.keep_blobs(TENANT, f"resp_{name}", [IMAGE])
    await world.finish(store, handle, added(f"msg_{name}"), done(f"msg_{name}", name), private=private)


async def history(store: Store, name: str) -> list[str]:
    """What a run's next round is made from."""
    begun = await world.begin_all(store, name, "llm:9", chain=True)
    return [stored.item.get("id") or stored.item["content"] for stored in begun.chain]


async def test_a_run_goes_on_with_its_history_after_an_ancestor_was_deleted(store: Store, tmp_path: Path) -> None:
    """Nobody else sees any of it; when the run has ended it is in no file any more."""
    await turn(store, "a")
    await turn(store, "b", "resp_a")
    await create(store, "c", user("c"), previous_response_id="resp_b")
    await store.delete(TENANT, "resp_a")
    await store.delete(TENANT, "resp_b")
    assert await history(store, "c") == ["a", "msg_a", "b", "msg_b", "c"]
    assert (await store.blobs(TENANT, [IMAGE.hash])) == {IMAGE.hash: IMAGE}
    for name in "ab":
        assert await store.get(TENANT, f"resp_{name}") is None
        assert await store.output(TENANT, f"resp_{name}") == []
        assert await world.frames(store, name) == []
        assert await store.delete(TENANT, f"resp_{name}") is None
        with pytest.raises(ResponseEnded):
            await store.keep_blobs(TENANT, f"resp_{name}", [IMAGE])
    assert await store.find_items(TENANT, ["msg_a", "msg_b"]) == {}
    assert [item["content"] for item in await store.input_items(TENANT, "resp_c")] == ["c"]
    await store.purge_transient(world.now())
    assert await history(store, "c") == ["a", "msg_a", "b", "msg_b", "c"]
    await world.end(store, "c")
    await store.purge_transient(world.now() + 61)
    assert await store.blobs(TENANT, [IMAGE.hash]) == {}
    # With its quote: the id of another item may begin like that.
    await world.until_gone(tmp_path, b'"msg_a"')


async def test_what_no_run_reads_of_a_deleted_ancestor_is_in_no_file_at_once(store: Store, tmp_path: Path) -> None:
    """Its request and its events: a run that goes on needs its items alone."""
    await store.create(world.new(world.record("a", request={"model": "demo", "instructions": "canary-1"}), user("a")))
    shown = [added("msg_a"), world.part("msg_a"), world.delta("msg_a", "canary-2"), done("msg_a", "a")]
    await world.finish(store, await begin(store, "a"), *shown)
    await create(store, "b", user("b"), previous_response_id="resp_a")
    await store.delete(TENANT, "resp_a")
    for canary in (b"canary-1", b"canary-2"):
        await world.until_gone(tmp_path, canary)
    assert await history(store, "b") == ["a", "msg_a", "b"]


async def test_a_continuation_through_a_deleted_ancestor_is_refused_by_name(store: Store) -> None:
    """Whether its items are kept for a run or not; also for one whose history was read before."""
    for name, parent in (("a", None), ("b", "resp_a"), ("c", "resp_b")):
        await turn(store, name, parent)
    await create(store, "d", user("d"), previous_response_id="resp_c")
    for deleted in ("resp_a", "resp_b"):
        await store.delete(TENANT, deleted)
        for refused in (store.chain(TENANT, "resp_c"), create(store, "e", previous_response_id="resp_c")):
            with pytest.raises(PreviousResponseNotFound, match=deleted) as raised:
                await refused
            assert raised.value.param == "previous_response_id"
    assert await store.get(TENANT, "resp_e") is None
    record = await store.get(TENANT, "resp_c")
    assert record is not None
    assert record.previous_response_id == "resp_b"
    assert await store.output(TENANT, "resp_c") == [finished("msg_c", "c")]


async def test_what_no_run_descends_from_is_purged_at_once(store: Store, tmp_path: Path) -> None:
    """A continuation that has ended, or a branch beside it, keeps nothing."""
    await turn(store, "root")
    await turn(store, "gone", "resp_root")
    await turn(store, "after", "resp_gone")
    await create(store, "branch", user("branch"), previous_response_id="resp_root")
    await store.delete(TENANT, "resp_gone")
    await world.until_gone(tmp_path, b"msg_gone")
    assert await history(store, "branch") == ["root", "msg_root", "branch"]


async def test_a_continuation_gives_nothing_back_to_a_deleted_response(store: Store) -> None:
    """Its run must not be parked on what nobody can continue."""
    await park(store, "a", ask("mcpr_1"))
    new = world.new(world.record("b"), decisions=[wish("mcpr_1")], takes=["mcpr_1"], claim=("resp_a", "resp_a"))
    await store.create(new)
    await store.delete(TENANT, "resp_a")
    await world.end(store, "b")
    assert await store.parked_on(TENANT, "resp_a") is None
    found = await store.approval(TENANT, "mcpr_1")
    assert found is not None
    assert (found.status, found.taken_by) == ("approved", "resp_b")


async def test_runs_that_were_told_to_stop_are_remembered_until_they_are_closed(store: Store) -> None:
    """Of a cancel from outside and of a deleted parked response; not of what ended by itself. Leased to one sweeper."""
    await create(store, "cancelled")
    await world.end(store, "cancelled", Ending("cancelled", stop=True))
    await create(store, "failed")
    await world.end(store, "failed", Ending("failed"))
    await turn(store, "completed")
    await park(store, "parked", ask("mcpr_1", "parked"))
    await store.delete(TENANT, "resp_parked")
    later = world.now() + 1_000
    assert sorted(await store.stopping(limit=10, lease_until=world.now())) == [
        (TENANT, "resp_cancelled"),
        (TENANT, "resp_parked"),
    ]
    await store.stopped(TENANT, "resp_parked")
    assert await store.stopping(limit=10, lease_until=later) == [(TENANT, "resp_cancelled")]
    assert await store.stopping(limit=10, lease_until=later) == []


async def test_a_cancelled_continuation_gives_its_asks_back_but_not_its_run(store: Store) -> None:
    """That run is told to stop: parked again, it would be offered to the next continuation."""
    await park(store, "a", ask("mcpr_1"))
    new = world.new(world.record("b"), decisions=[wish("mcpr_1")], takes=["mcpr_1"], claim=("resp_a", "resp_a"))
    await store.create(new)
    await world.end(store, "b", Ending("cancelled", stop=True))
    assert await store.parked_on(TENANT, "resp_a") is None
    assert await store.stopping(limit=10, lease_until=0) == [(TENANT, "resp_a")]
    again = await store.create(world.new(world.record("c"), takes=["mcpr_1"], claim=("resp_a", "resp_a")))
    assert not again.claimed


async def purged(store: Store, before: float) -> int:
    """A whole pass, in pages of two."""
    count, after = await store.purge_older(before, limit=2)
    while after is not None:
        more, after = await store.purge_older(before, limit=2, after=after)
        count += more
    return count


async def left(store: Store, names: str) -> str:
    """Those that are still there."""
    return "".join([name for name in names if await store.get(TENANT, f"resp_{name}") is not None])


async def test_old_responses_go_and_an_ancestor_stays_while_a_descendant_is_kept(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """a, b, c are one line, c young; d, e, f, g are all old; r runs, w was not stored."""
    clock = [1_000.0]
    monkeypatch.setattr("outlast.store.sql.time.time", lambda: clock[0])
    for at, (name, parent) in enumerate(
        [("a", None), ("b", "resp_a"), ("d", None), ("e", "resp_d"), ("f", "resp_e"), ("g", "resp_d")]
    ):
        clock[0] = 1_000.0 + at
        await turn(store, name, parent, at=int(clock[0]))
    await create(store, "r", created_at=1_010)
    await store.create(world.new(world.record("w", created_at=1_011, store=False)))
    clock[0] += 10 * DAY
    await turn(store, "c", "resp_b", at=int(clock[0]))
    assert await purged(store, 1_000) == 0
    assert await purged(store, clock[0] - DAY) == 4
    assert await left(store, "abcdefgrw") == "abcrw"
    assert await purged(store, clock[0] + DAY) == 3
    assert await left(store, "abcrw") == "rw"


async def test_an_old_response_that_was_touched_lately_stays(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that waited for weeks and has just been answered."""
    clock = [1_000.0]
    monkeypatch.setattr("outlast.store.sql.time.time", lambda: clock[0])
    await create(store, "a", user("a"))
    clock[0] += 10 * DAY
    await world.end(store, "a", world.COMPLETED)
    assert await purged(store, clock[0] - DAY) == 0
    assert await purged(store, clock[0] + DAY) == 1
