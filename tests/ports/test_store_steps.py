"""The store's port: numbers, fences, steps, endings."""

import asyncio
from dataclasses import replace

import pytest

from outlast.protocol import events as wire
from outlast.protocol import json
from outlast.protocol.errors import InternalError, NotFound, PreviousResponseNotFound, ResponseEnded, StaleFence
from outlast.protocol.events import WireEvent
from outlast.store.base import Commit, Committed, Ending, Gone, StoredItem
from outlast.store.port import Store
from outlast.store.sqlite import SqliteStore
from tests.support import store_world as world
from tests.support.store_world import TENANT, Open, added, begin, create, delta, done, finished, part, user


async def test_numbers_and_indexes_are_written_into_the_stored_bytes(store: Store) -> None:
    """Contiguous from 0; an item's events carry the index it was announced with; key order is that of `body`."""
    await create(store, "a")
    handle = await begin(store, "a")
    last = await store.append(handle, [added("msg_1"), delta("msg_1", "hi")])
    await world.finish(store, handle, done("msg_1", "hi"))
    frames = await world.frames(store, "a")
    assert last == 3
    assert [number for number, _, _ in frames] == list(range(6))
    assert frames[3][2] == (
        b'{"type":"response.output_text.delta","sequence_number":3,"output_index":0,"item_id":"msg_1",'
        b'"content_index":0,"delta":"hi","logprobs":[]}'
    )
    assert json.loads(frames[5][2])["response"]["output"] == [finished("msg_1", "hi")]


async def test_parallel_steps_over_two_stores_share_one_numbering(open_another: Open) -> None:
    """No number and no index is handed out twice, none is left out."""
    stores = [await open_another(), await open_another()]
    await create(stores[0], "a")
    handles = [await begin(stores[n % 2], "a", f"tool:{n}") for n in range(6)]

    async def work(n: int) -> None:
        for turn in range(5):
            item = f"mcp_{n}_{turn}"
            await stores[n % 2].append(handles[n], [added(item, "mcp_call")])
            await stores[n % 2].append(handles[n], [done(item, kind="mcp_call")])

    await asyncio.gather(*(work(n) for n in range(6)))
    await world.end(stores[0], "a")
    bodies = [json.loads(data) for _, _, data in await world.frames(stores[1], "a")]
    assert [body["sequence_number"] for body in bodies] == list(range(2 + 60 + 1))
    opened = {body["output_index"]: body["item"]["id"] for body in bodies if body["type"] == wire.ITEM_ADDED}
    closed = {body["output_index"]: body["item"]["id"] for body in bodies if body["type"] == wire.ITEM_DONE}
    assert sorted(opened) == list(range(30))
    assert opened == closed


async def test_an_older_attempt_is_refused_and_leaves_no_trace(store: Store) -> None:
    """Its events, items and commit are rolled back; the newer attempt goes on at the next number."""
    await create(store, "a")
    old, newer = await begin(store, "a"), await begin(store, "a")
    with pytest.raises(StaleFence):
        await store.append(old, [added("msg_old")], Commit(hidden=[user("x")], outcome={"old": True}))
    assert await store.append(newer, [added("msg_new")]) == 2
    chain = await store.chain(TENANT, "resp_a")
    assert [item.item["id"] for item in chain] == ["msg_new"]


async def test_other_steps_are_not_fenced(store: Store) -> None:
    """A new attempt of one tool leaves its siblings alone."""
    await create(store, "a")
    first, other = await begin(store, "a", "tool:1"), await begin(store, "a", "tool:2")
    await begin(store, "a", "tool:2")
    assert await store.append(first, [added("mcp_1", "mcp_call")]) == 2
    with pytest.raises(StaleFence):
        await store.append(other, [added("mcp_2", "mcp_call")])


async def test_a_refused_member_does_not_harm_the_group_it_was_committed_with(store: Store) -> None:
    """Stale, ended and broken appends beside good ones: each is answered for itself."""
    for name in "abcd":
        await create(store, name)
    stale, broken, ended, good = [await begin(store, name) for name in "abcd"]
    await begin(store, "a")
    await world.end(store, "c")
    results = await asyncio.gather(
        store.append(stale, [added("msg_1")]),
        store.append(broken, [done("msg_never_announced")]),
        store.append(ended, [added("msg_1")]),
        *(store.append(good, [added(f"msg_{n}")]) for n in range(4)),
        return_exceptions=True,
    )
    assert [type(result) for result in results[:3]] == [StaleFence, InternalError, ResponseEnded]
    assert results[3:] == [2, 3, 4, 5]


async def test_a_committed_step_gives_its_outcome_to_every_later_attempt(store: Store) -> None:
    """Also when that commit ended the response; its old handle may write no more."""
    await create(store, "a")
    handle = await begin(store, "a")
    await store.append(handle, [], Commit(outcome={"round": 1}))
    assert await store.begin(TENANT, "resp_a", "llm:1", workflow_id="resp_a") == Committed({"round": 1})
    with pytest.raises(StaleFence):
        await store.append(handle, [added("msg_1")])
    last = await begin(store, "a", "llm:2")
    await store.finish(last, [], Commit(outcome={"round": 2}, ending=world.COMPLETED))
    assert await store.begin(TENANT, "resp_a", "llm:2", workflow_id="resp_a") == Committed({"round": 2})


async def test_ended_deleted_moved_and_foreign_responses_are_gone(store: Store) -> None:
    """With the row, when there is one."""
    await create(store, "a")
    moved = await store.begin(TENANT, "resp_a", "llm:1", workflow_id="resp_other")
    assert isinstance(moved, Gone)
    assert moved.record == world.record("a", next_sequence=2)
    ended, _ = await world.end(store, "a")
    assert await store.begin(TENANT, "resp_a", "llm:1", workflow_id="resp_a") == Gone(ended)
    assert await store.begin("stranger", "resp_a", "llm:1", workflow_id="resp_a") == Gone(None)
    await store.delete(TENANT, "resp_a")
    assert await store.begin(TENANT, "resp_a", "llm:1", workflow_id="resp_a") == Gone(None)


async def test_a_handle_of_another_workflow_cannot_write(store: Store) -> None:
    """The response was moved while the attempt ran."""
    await create(store, "a")
    handle = await begin(store, "a", workflow_id="resp_a")
    assert await store.set_workflow(TENANT, "resp_a", old="resp_a", new="resp_b")
    assert not await store.set_workflow(TENANT, "resp_a", old="resp_a", new="resp_c")
    with pytest.raises(ResponseEnded):
        await store.append(handle, [added("msg_1")])


async def test_in_progress_takes_a_queued_response_out_of_the_queue(store: Store) -> None:
    """The event is the change of status."""
    queued = world.record("a", status="queued", background=True)
    await store.create(world.new(queued, events=world.lifecycle(wire.CREATED, wire.QUEUED)))
    handle = await begin(store, "a")
    await store.append(handle, world.lifecycle(wire.IN_PROGRESS))
    stored = await store.get(TENANT, "resp_a")
    assert stored == world.record("a", background=True, next_sequence=3)


async def test_begin_reads_chain_and_calls_and_closes_what_its_earlier_attempt_left_open(store: Store) -> None:
    """Nothing of other steps is closed; indexes of all open items are known to the new attempt."""
    await create(store, "a", user("hi"))
    other = await begin(store, "a", "tool:x")
    await store.append(other, [added("mcp_0", "mcp_call")], Commit(calls=[world.call(0)]))
    first = await begin(store, "a")
    await store.append(first, [added("msg_1"), part("msg_1"), delta("msg_1", "Hel"), delta("msg_1", "lo")])
    begun = await world.begin_all(store, "a", chain=True, calls=1)
    where = {"item_id": "msg_1", "content_index": 0}
    assert begun.handle.token == 2
    assert begun.handle.indexes == {"mcp_0": 0, "msg_1": 1}
    assert begun.calls == [world.call(0)]
    assert begun.closing == [
        WireEvent(wire.TEXT_DONE, {**where, "text": "Hello", "logprobs": []}),
        WireEvent(wire.PART_DONE, {**where, "part": {"type": "output_text", "text": "Hello", "annotations": []}}),
        WireEvent(wire.ITEM_DONE, {"item": {**finished("msg_1"), "status": "incomplete"}}),
    ]
    assert [(item.side, item.ordinal, item.output_index, item.done, item.round) for item in begun.chain] == [
        ("input", 0, None, True, 0),
        ("output", 0, 0, False, 0),
        ("output", 1, 1, False, 1),
    ]
    await store.append(begun.handle, [*begun.closing, added("msg_2"), done("msg_2", "Hello")])
    assert await store.output(TENANT, "resp_a") == [
        {**finished("msg_1"), "status": "incomplete"},
        finished("msg_2", "Hello"),
    ]


async def test_hidden_items_are_in_the_chain_only(store: Store) -> None:
    """In the order they were written among the public ones."""
    hidden, later = {"type": "function_call", "call_id": "c", "name": "n", "arguments": "{}"}, user("denied")
    await store.create(world.new(world.record("a"), user("hi"), hidden_inputs=[hidden]))
    handle = await begin(store, "a")
    await store.append(handle, [added("msg_1"), done("msg_1")], Commit(hidden=[later]))
    await store.append(handle, [added("msg_2"), done("msg_2")])
    assert await store.chain(TENANT, "resp_a") == [
        StoredItem("resp_a", "input", 0, user("hi")),
        StoredItem("resp_a", "input", 1, hidden, hidden=True),
        StoredItem("resp_a", "output", 0, finished("msg_1"), output_index=0, round=1),
        StoredItem("resp_a", "output", 1, later, hidden=True, round=1),
        StoredItem("resp_a", "output", 2, finished("msg_2"), output_index=1, round=1),
    ]
    assert await store.output(TENANT, "resp_a") == [finished("msg_1"), finished("msg_2")]


async def test_a_chain_reads_oldest_first_and_never_shorter_than_it_was(store: Store) -> None:
    """A deleted ancestor is named; a list of input items, which nobody continues from, begins after it."""
    for name, parent in (("a", None), ("b", "resp_a"), ("c", "resp_b")):
        await create(store, name, user(name), previous_response_id=parent)
        handle = await begin(store, name)
        await world.finish(store, handle, added(f"msg_{name}"), done(f"msg_{name}", name))
    texts = [item.item.get("id") or item.item["content"] for item in await store.chain(TENANT, "resp_c")]
    assert texts == ["a", "msg_a", "b", "msg_b", "c", "msg_c"]
    listed = await store.input_items(TENANT, "resp_c")
    assert [item["content"] for item in listed] == [
        "a", finished("x", "a")["content"], "b", finished("x", "b")["content"], "c"
    ]  # fmt: skip
    assert await store.find_items(TENANT, [item["id"] for item in listed] + ["msg_none"]) == {
        item["id"]: item for item in listed
    }
    assert await store.find_items("stranger", ["msg_a"]) == {}
    await store.delete(TENANT, "resp_a")
    with pytest.raises(PreviousResponseNotFound, match="resp_a"):
        await store.chain(TENANT, "resp_c")
    assert await store.input_items(TENANT, "resp_c") == listed[2:]
    with pytest.raises(NotFound, match="resp_a"):
        await store.input_items(TENANT, "resp_a")


async def test_a_long_chain_is_one_query(store: Store) -> None:
    """However many turns it has."""
    parent = None
    for turn in range(120):
        name = f"turn{turn}"
        await create(store, name, user(name), previous_response_id=parent)
        await world.finish(store, await begin(store, name), added(f"msg_{name}"), done(f"msg_{name}", name))
        parent = f"resp_{name}"
    assert parent is not None
    assert isinstance(store, SqliteStore)
    before = replace(store.stats)
    assert len(await store.chain(TENANT, parent)) == 240
    assert (store.stats.reads - before.reads, store.stats.read_statements - before.read_statements) == (1, 1)


async def test_started_and_done_marks_are_read_back_with_the_calls(store: Store) -> None:
    """A call written again keeps its marks."""
    await create(store, "a")
    handle = await begin(store, "a")
    await store.append(handle, [], Commit(calls=[world.call(0), world.call(1)], started=[(1, 0)]))
    await store.append(handle, [], Commit(calls=[world.call(0), world.call(1)], done=[(1, 0)]))
    begun = await world.begin_all(store, "a", "tool:mcp_a0", calls=1)
    assert begun.calls == [world.call(0, started=True, done=True), world.call(1)]
    assert begun.handle.round == 1


async def test_one_of_a_racing_cancel_and_finish_wins(open_another: Open) -> None:
    """There is one terminal frame, the row says the same, the loser wrote nothing."""
    stores = [await open_another(), await open_another()]
    for n in range(8):
        name = f"r{n}"
        await create(stores[0], name)
        handle = await begin(stores[0], name)
        finished_by_step, cancelled = await asyncio.gather(
            world.finish(stores[0], handle, added("msg_1"), done("msg_1")),
            world.end(stores[1], name),
            return_exceptions=True,
        )
        assert not isinstance(cancelled, BaseException)
        frames = await world.frames(stores[1], name)
        if cancelled[1]:
            assert isinstance(finished_by_step, ResponseEnded)
            assert [kind for _, kind, _ in frames] == [wire.CREATED, wire.IN_PROGRESS, wire.INCOMPLETE]
        else:
            assert not isinstance(finished_by_step, BaseException)
            assert finished_by_step == cancelled[0]
            assert [kind for _, kind, _ in frames][2:] == [wire.ITEM_ADDED, wire.ITEM_DONE, wire.COMPLETED]


async def test_an_ending_from_outside_closes_open_items_first(store: Store) -> None:
    """Text as shown, the item incomplete; the terminal output has it; nothing can be appended after."""
    await create(store, "a")
    handle = await begin(store, "a")
    await store.append(handle, [added("msg_1"), part("msg_1"), delta("msg_1", "Hel"), added("mcp_1", "mcp_call")])
    ended, won = await world.end(store, "a")
    bodies = [json.loads(data) for _, _, data in await world.frames(store, "a", after=5)]
    abandoned = [
        {**finished("msg_1"), "status": "incomplete"},
        {**finished("mcp_1", kind="mcp_call"), "status": "incomplete"},
    ]
    assert won
    assert ended == world.record("a", status="cancelled", completed_at=2_000, next_sequence=11, next_index=2)
    assert [(body["type"], body.get("output_index")) for body in bodies] == [
        (wire.TEXT_DONE, 0),
        (wire.PART_DONE, 0),
        (wire.ITEM_DONE, 0),
        (wire.ITEM_DONE, 1),
        (wire.INCOMPLETE, None),
    ]
    assert bodies[-1]["response"]["output"] == abandoned
    assert await store.output(TENANT, "resp_a") == abandoned
    assert await world.end(store, "a") == (ended, False)
    with pytest.raises(ResponseEnded):
        await store.append(handle, [delta("msg_1", "lo")])


async def test_ending_what_is_unknown_wins_nothing(store: Store) -> None:
    """No row, no event."""
    assert await world.end(store, "none") == (None, False)


async def test_an_end_that_is_none_ends_nothing(store: Store) -> None:
    """The row goes on, at the numbers it had."""
    await create(store, "a")
    handle = await begin(store, "a")
    with pytest.raises(ValueError, match="no terminal event"):
        await store.finish(handle, [added("msg_1")], Commit(outcome={}, ending=Ending("in_progress")))
    assert await store.append(handle, [added("msg_1")]) == 2


async def test_bindings_are_read_by_id(store: Store) -> None:
    """As they were written; foreign ones are unknown."""
    await create(store, "a")
    handle = await begin(store, "a")
    await store.append(handle, [], Commit(bindings=("bind_1", {"tools": ["x"]})))
    assert await store.bindings(TENANT, "bind_1") == {"tools": ["x"]}
