"""The store's port: requests that were sent before, known by their key or by who sent which body."""

import asyncio

import pytest

from outlast.protocol.errors import ApprovalAlreadyDecided, IdempotencyKeyReused, InvalidRequest
from outlast.store.base import Created, Ending, IdempotencyKey, ResponseRecord
from outlast.store.port import Store
from tests.support import store_world as world
from tests.support.store_world import TENANT, Open, ask, begin, park, user

KEY = IdempotencyKey("order-1042", b"a" * 32)
OTHER_BODY = IdempotencyKey("order-1042", b"b" * 32)
DAY = 86_400.0


async def made(open_store: Store, name: str, key: IdempotencyKey | None = KEY, **changes: object) -> Created:
    """A create transaction with a key."""
    return await open_store.create(world.new(world.record(name, **changes), user("hi"), key=key))


async def test_of_twenty_racing_requests_with_one_key_one_creates(open_another: Open) -> None:
    """Over two stores; the others are given its row, and nothing of theirs is there."""
    stores = [await open_another(), await open_another()]
    results = await asyncio.gather(*(made(stores[n % 2], f"r{n}") for n in range(20)))
    (winner,) = [created.record for created in results if not created.repeated]
    assert all(created.record == winner for created in results)
    stored = [await stores[0].get(TENANT, f"resp_r{n}") for n in range(20)]
    assert [record for record in stored if record is not None] == [winner]
    assert await stores[1].by_key(TENANT, KEY) == winner


async def test_a_key_is_one_tenants_and_one_bodys(store: Store) -> None:
    """Another tenant's is another key; another body is refused and writes nothing."""
    first = await made(store, "a")
    assert await store.by_key("stranger", KEY) is None
    assert not (await made(store, "b", tenant="stranger")).repeated
    for refused in (store.by_key(TENANT, OTHER_BODY), made(store, "c", OTHER_BODY)):
        with pytest.raises(IdempotencyKeyReused, match="resp_a"):
            await refused
    assert await store.get(TENANT, "resp_c") is None
    assert await store.by_key(TENANT, KEY) == first.record


async def test_a_key_shows_its_response_as_it_stands(store: Store) -> None:
    """Ended, also when it failed in a step: what was paid for is not paid again."""
    await made(store, "a")
    failed = await world.finish(store, await begin(store, "a"), ending=Ending("failed", error={"code": "server_error"}))
    assert await store.by_key(TENANT, KEY) == failed
    assert (await made(store, "b")).record == failed


async def test_a_request_that_was_refused_has_not_used_its_key(store: Store) -> None:
    """The key is written with the response or not at all."""
    await park(store, "p", ask("mcpr_1"))
    wishes = [world.wish("mcpr_1", approve=False)]
    await store.create(world.new(world.record("d"), decisions=wishes, takes=["mcpr_1"]))
    with pytest.raises(ApprovalAlreadyDecided):
        await store.create(world.new(world.record("a"), key=KEY, takes=["mcpr_1"]))
    assert await store.by_key(TENANT, KEY) is None
    assert not (await made(store, "b", OTHER_BODY)).repeated


async def test_a_response_nothing_of_which_was_run_lets_its_key_go(open_another: Open) -> None:
    """Temporal did not take the run: of those who try again, with any body, one creates."""
    stores = [await open_another(), await open_another()]
    await made(stores[0], "a")
    await world.end(stores[0], "a", Ending("failed", error={"code": "server_error"}))
    assert await stores[0].by_key(TENANT, KEY) is None
    results = await asyncio.gather(*(made(stores[n % 2], f"r{n}", OTHER_BODY) for n in range(8)))
    assert [created.repeated for created in results].count(False) == 1
    assert len({created.record.id for created in results}) == 1


@pytest.mark.parametrize("kept", [True, False], ids=["deleted", "not-stored"])
async def test_a_key_whose_response_is_gone_is_refused_and_runs_nothing(store: Store, kept: bool) -> None:
    """Deleted, or purged because it was not to be kept."""
    await made(store, "a", store=kept)
    await world.end(store, "a")
    await (store.delete(TENANT, "resp_a") if kept else store.purge(TENANT, "resp_a"))
    for refused in (store.by_key(TENANT, KEY), made(store, "b")):
        with pytest.raises(InvalidRequest, match="resp_a") as raised:
            await refused
        assert (raised.value.code, raised.value.param) == ("idempotency_key_spent", "Idempotency-Key")
    assert await store.get(TENANT, "resp_b") is None


async def test_a_key_is_kept_for_a_day(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then it is free, whether or not somebody has purged it yet."""
    now = world.now()
    await made(store, "a")
    await made(store, "b", IdempotencyKey("other", b"c" * 32))
    await store.purge_transient(now + DAY - 60)
    assert (await store.by_key(TENANT, KEY)) is not None
    await store.purge_transient(now + DAY + 60)
    assert await store.by_key(TENANT, KEY) is None
    monkeypatch.setattr("outlast.store.sql.time.time", lambda: now + 2 * DAY)
    fresh = IdempotencyKey("other", b"d" * 32)
    assert await store.by_key(TENANT, fresh) is None
    assert not (await made(store, "c", fresh)).repeated
    assert (await made(store, "d", fresh)).record.id == "resp_c"


async def test_what_was_sent_before_is_found_by_sender_and_body(store: Store) -> None:
    """The newest of this tenant since then that has not failed; in progress or ended."""

    async def sent(name: str, at: int, origin: bytes = b"o" * 32, **changes: object) -> ResponseRecord:
        record = world.record(name, created_at=at, **changes)
        return (await store.create(world.new(record, origin=origin))).record

    older, newer = await sent("a", 1_000), await sent("b", 1_900)
    await sent("c", 1_950, b"p" * 32)
    await sent("d", 1_960, tenant="stranger")
    await sent("e", 1_970)
    await world.end(store, "e", Ending("failed", error={"code": "server_error"}))
    assert await store.by_origin(TENANT, b"o" * 32, 1_000) == newer
    await store.delete(TENANT, "resp_b")
    assert await store.by_origin(TENANT, b"o" * 32, 1_000) == older
    assert await store.by_origin(TENANT, b"o" * 32, 1_001) is None
    ended, _ = await world.end(store, "a")
    assert await store.by_origin(TENANT, b"o" * 32, 1_000) == ended
