"""Claims about what items have beside their public JSON: sealed reasoning, and images a tool returned."""

import hashlib
from collections.abc import Sequence
from pathlib import Path

import pytest

from outlast.protocol import json
from outlast.protocol.errors import ResponseEnded
from outlast.protocol.json import JsonObject
from outlast.store.base import Blob, Commit, Ending
from outlast.store.conversations_port import Conversation
from outlast.store.port import Store
from outlast.store.sqlite import SqliteStore
from tests.support import store_world as world
from tests.support.store_world import TENANT, added, begin, begin_all, create, done, finished, user

SEALED = {"encrypted_content": "gAAAA-canary"}


def blob(text: str, mime_type: str = "image/png") -> Blob:
    """An image of a few bytes."""
    data = text.encode()
    return Blob(hashlib.sha256(data).hexdigest(), mime_type, data)


def images(*blobs: Blob) -> JsonObject:
    """The private part that names them."""
    return {"images": [{"hash": each.hash, "mime_type": each.mime_type} for each in blobs]}


async def ended(
    store: Store, name: str, item_id: str, private: JsonObject, *inputs: JsonObject, blobs: Sequence[Blob] = ()
) -> None:
    """A finished response with one output item and its private part."""
    await create(store, name, *inputs)
    handle = await begin(store, name)
    if blobs:
        await store.keep_blobs(TENANT, f"resp_{name}", blobs)
    await world.finish(store, handle, added(item_id), done(item_id), private={item_id: private})


async def test_a_private_part_is_in_the_chain_and_in_no_public_copy(store: Store) -> None:
    """Opened and finished in one append or in two; output, lists, look-ups and every frame are without it."""
    await create(store, "a", user("hi"))
    handle = await begin(store, "a")
    await store.append(handle, [added("rs_1"), done("rs_1"), added("rs_2")], Commit(private={"rs_1": SEALED}))
    await world.finish(store, handle, done("rs_2"), private={"rs_2": SEALED})
    chain = await store.chain(TENANT, "resp_a")
    assert [(stored.item.get("id"), stored.private) for stored in chain[1:]] == [("rs_1", SEALED), ("rs_2", SEALED)]
    assert [stored.whole for stored in chain[1:]] == [finished(name) | SEALED for name in ("rs_1", "rs_2")]
    await create(store, "b", user("more"), previous_response_id="resp_a")
    assert (await begin_all(store, "b", chain=True)).chain[1].private == SEALED
    public = [
        await store.output(TENANT, "resp_a"),
        await store.input_items(TENANT, "resp_b"),
        await store.find_items(TENANT, ["rs_1", "rs_2"]),
        [json.loads(data) for _, _, data in await world.frames(store, "a")],
    ]
    assert b"canary" not in json.dumps(public)


async def test_readers_that_ask_get_the_sealed_reasoning(store: Store) -> None:
    """Of outputs and of input items; images are no part of an item."""
    picture = blob("picture")
    await ended(store, "a", "rs_1", SEALED | images(picture), user("hi"))
    await create(store, "b", user("more"), previous_response_id="resp_a")
    assert await store.output(TENANT, "resp_a", sealed=True) == [finished("rs_1") | SEALED]
    listed = await store.input_items(TENANT, "resp_b", sealed=True)
    assert listed[1] == finished("rs_1") | SEALED


async def test_a_copy_of_an_item_brings_its_private_part(store: Store) -> None:
    """The newest one's, of the tenant's stored responses, and only of ids asked for; it outlives the original."""
    picture = blob("picture")
    await ended(store, "a", "rs_1", {"encrypted_content": "old"})
    await ended(store, "b", "rs_1", SEALED)
    await ended(store, "c", "mcp_1", images(picture), blobs=[picture])
    copies = [finished("rs_1"), finished("mcp_1"), finished("msg_none")]
    ids = [item["id"] for item in copies]
    await store.create(world.new(world.record("d", created_at=2_000), *copies, recalled=ids))
    chain = await store.chain(TENANT, "resp_d")
    assert [stored.private for stored in chain] == [SEALED, images(picture), None]
    await store.create(world.new(world.record("e"), *copies, recalled=["mcp_1"]))
    assert [stored.private for stored in await store.chain(TENANT, "resp_e")] == [None, images(picture), None]
    await store.create(world.new(world.record("f", tenant="stranger"), *copies, recalled=ids))
    assert [stored.private for stored in await store.chain("stranger", "resp_f")] == [None, None, None]
    for gone in "abc":
        await store.delete(TENANT, f"resp_{gone}")
    assert [stored.images for stored in await store.chain(TENANT, "resp_d")][1] == [(picture.hash, "image/png")]
    assert await store.blobs(TENANT, [picture.hash]) == {picture.hash: picture}


async def test_a_transient_response_gives_its_private_parts_to_nobody(store: Store) -> None:
    """As its items."""
    await store.create(world.new(world.record("a", store=False)))
    handle = await begin(store, "a")
    await store.append(handle, [added("rs_1"), done("rs_1")], Commit(private={"rs_1": SEALED}))
    await store.create(world.new(world.record("b"), finished("rs_1"), recalled=["rs_1"]))
    assert [stored.private for stored in await store.chain(TENANT, "resp_b")] == [None]


async def test_a_transient_response_gives_its_private_parts_to_the_connection_that_holds_it(store: Store) -> None:
    """Of its outputs, and of what it was given by the one before it."""
    picture = blob("picture")
    await store.create(world.new(world.record("a", store=False)))
    handle = await begin(store, "a")
    await store.keep_blobs(TENANT, "resp_a", [picture])
    await store.append(handle, [added("mcp_1"), done("mcp_1")], Commit(private={"mcp_1": images(picture)}))
    for turn, held in (("b", "a"), ("c", "b")):
        new = world.new(world.record(turn, store=False), finished("mcp_1"), recalled=["mcp_1"], held=f"resp_{held}")
        await store.end(TENANT, f"resp_{held}", Ending("completed", completed_at=1_000))
        await store.create(new)
        assert await store.purge(TENANT, f"resp_{held}")
    assert [stored.private for stored in await store.chain(TENANT, "resp_c")] == [images(picture)]
    assert await store.blobs(TENANT, [picture.hash]) == {picture.hash: picture}


async def test_a_blob_is_kept_once_and_until_its_last_response_is_deleted(store: Store) -> None:
    """Also one that no step came to name; of other tenants nobody hears."""
    picture, orphan = blob("picture"), blob("orphan")
    await ended(store, "a", "mcp_1", images(picture), blobs=[picture, picture])
    await ended(store, "b", "mcp_2", images(picture), blobs=[picture, orphan])
    both = [picture.hash, orphan.hash]
    assert await store.blobs(TENANT, [*both, "none"]) == {each.hash: each for each in (picture, orphan)}
    assert await store.blobs("stranger", both) == {}
    assert await store.blobs(TENANT, []) == {}
    await store.delete(TENANT, "resp_b")
    assert await store.blobs(TENANT, both) == {picture.hash: picture}
    await store.delete(TENANT, "resp_a")
    assert await store.blobs(TENANT, both) == {}


async def test_no_blob_is_kept_for_a_response_that_is_gone(store: Store) -> None:
    """Nobody would ever purge it."""
    picture = blob("picture")
    with pytest.raises(ResponseEnded):
        await store.keep_blobs(TENANT, "resp_none", [picture])
    assert await store.blobs(TENANT, [picture.hash]) == {}


async def test_a_purge_takes_private_parts_and_blobs_out_of_the_file(store: Store, tmp_path: Path) -> None:
    """No byte is left behind."""
    picture = blob("canary-image")
    await store.create(world.new(world.record("a", store=False)))
    handle = await begin(store, "a")
    await store.keep_blobs(TENANT, "resp_a", [picture])
    private = {"mcp_1": images(picture) | {"encrypted_content": "canary-sealed"}}
    await world.finish(store, handle, added("mcp_1"), done("mcp_1"), private=private)
    assert b"canary-image" in files(tmp_path)
    assert await store.purge(TENANT, "resp_a")
    for left in (b"canary-", picture.hash.encode()):
        await world.until_gone(tmp_path, left)


def files(folder: Path) -> bytes:
    """All bytes of the database."""
    return b"".join(path.read_bytes() for path in folder.iterdir())


async def test_a_conversation_keeps_the_images_of_its_items(store: SqliteStore) -> None:
    """After the response that brought them is deleted; until the item, or the conversation, is."""
    talks = store.conversations
    one, two = blob("one"), blob("two")
    await talks.create(Conversation(TENANT, "conv_1", 1_000), [])
    for name, picture, end in (("a", one, 0), ("b", two, 1)):
        await store.create(world.new(world.record(name, conversation_id="conv_1", conversation_end=end)))
        handle = await begin(store, name)
        await store.keep_blobs(TENANT, f"resp_{name}", [picture])
        item_id = f"mcp_{name}"
        private = {item_id: images(picture)}
        await world.finish(store, handle, added(item_id, "mcp_call"), done(item_id, kind="mcp_call"), private=private)
        await store.delete(TENANT, f"resp_{name}")
    history = await talks.history(TENANT, "conv_1")
    assert history is not None
    assert [stored.images for stored in history.items] == [[(one.hash, "image/png")], [(two.hash, "image/png")]]
    both = [one.hash, two.hash]
    assert await store.blobs(TENANT, both) == {one.hash: one, two.hash: two}
    await talks.remove(TENANT, "conv_1", "mcp_a")
    assert await store.blobs(TENANT, both) == {two.hash: two}
    await talks.delete(TENANT, "conv_1")
    assert await store.blobs(TENANT, both) == {}
