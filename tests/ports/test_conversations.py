"""Claims about conversations in the store: the lock, what the end of a turn appends, what deleting leaves."""

import asyncio
from collections.abc import Sequence

import pytest
import sqlalchemy as sa

from outlast.protocol.errors import ConversationLocked, InvalidRequest, NotFound
from outlast.protocol.json import JsonObject
from outlast.store.base import Commit, Created, Ending, StoredItem
from outlast.store.conversations_port import Conversation, Conversations, History
from outlast.store.port import Store
from outlast.store.scripting import Query, Script, Statement
from outlast.store.sql import SqlStore
from outlast.store.tables import conversation_items
from tests.support.store_world import (
    CANCELLED,
    COMPLETED,
    TENANT,
    Open,
    added,
    ask,
    begin,
    begin_all,
    done,
    end,
    finish,
    new,
    record,
    user,
    wish,
)

CONV = "conv_1"
FAILED = Ending(status="failed", error={"code": "server_error", "message": "gone", "type": "server_error"})


@pytest.fixture
def conversations(store: Store) -> Conversations:
    """The conversations of the same database."""
    assert isinstance(store, SqlStore)
    return store.conversations


_COUNT = Query(sa.select(sa.func.count()).select_from(conversation_items))


async def rows(store: Store) -> int:
    """How many items of conversations there are, taken out or not."""

    def count() -> Script[int]:
        found = yield Statement(_COUNT, {})
        return int(found[0][0])

    assert isinstance(store, SqlStore)
    return await store._database.read(count())


def posted(item_id: str, text: str = "hi") -> JsonObject:
    """A message as it is stored."""
    return {**user(text), "id": item_id, "status": "completed"}


async def opened(conversations: Conversations, *items: JsonObject) -> Conversation:
    """A conversation with these items."""
    conversation = Conversation(TENANT, CONV, 1_000, {"topic": "demo"})
    await conversations.create(conversation, items)
    return conversation


async def known(conversations: Conversations) -> History:
    """What a turn would continue now."""
    found = await conversations.history(TENANT, CONV)
    assert found is not None
    return found


async def turn(into: Store, conversations: Conversations, name: str, *inputs: JsonObject, **changes: object) -> Created:
    """A response in progress in the conversation."""
    now = await known(conversations)
    taken = record(name, conversation_id=CONV, conversation_end=now.end, **changes)
    return await into.create(new(taken, *inputs))


async def listed(conversations: Conversations) -> list[str]:
    """Ids of the public items, oldest first."""
    shown, more = await conversations.page(TENANT, CONV, after=None, limit=100, descending=False, sealed=False)
    assert not more
    return [item["id"] for item in shown]


def ids(items: Sequence[StoredItem]) -> list[str]:
    """Ids of a chain."""
    return [item.item["id"] for item in items]


async def say(store: Store, name: str, *texts: str) -> None:
    """A round with messages that ends the response."""
    handle = await begin(store, name)
    events = [each for text in texts for each in (added(f"msg_{text}"), done(f"msg_{text}", text))]
    await finish(store, handle, *events)


async def test_one_of_twenty_responses_at_once_takes_the_conversation(open_another: Open) -> None:
    """Over two views of the database; the others are told so and leave nothing. The end frees it for the next one."""
    stores = [await open_another(), await open_another()]
    first = stores[0]
    assert isinstance(first, SqlStore)
    await opened(first.conversations)
    racers = [
        stores[n % 2].create(new(record(str(n), conversation_id=CONV, conversation_end=0), user("hi")))
        for n in range(20)
    ]
    results = await asyncio.gather(*racers, return_exceptions=True)
    won = [result for result in results if isinstance(result, Created)]
    assert len(won) == 1
    refused = [result for result in results if isinstance(result, ConversationLocked)]
    assert len(refused) == 19
    assert all(won[0].record.id in error.message and error.param == "conversation" for error in refused)
    assert [await first.get(TENANT, f"resp_{n}") is not None for n in range(20)].count(True) == 1
    await first.end(TENANT, won[0].record.id, CANCELLED)
    assert (await known(first.conversations)).turn is None


async def test_a_history_that_was_changed_after_it_was_read_is_refused(
    store: Store, conversations: Conversations
) -> None:
    """Posted or taken out meanwhile: what was checked is not what would be continued."""
    await opened(conversations, posted("msg_a"))
    read = (await known(conversations)).end
    await conversations.add(TENANT, CONV, [posted("msg_b")])
    with pytest.raises(ConversationLocked):
        await store.create(new(record("a", conversation_id=CONV, conversation_end=read), user("hi")))
    read = (await known(conversations)).end
    await conversations.remove(TENANT, CONV, "msg_a")
    with pytest.raises(ConversationLocked):
        await store.create(new(record("a", conversation_id=CONV, conversation_end=read), user("hi")))
    await turn(store, conversations, "a", user("hi"))


async def test_an_unknown_or_foreign_conversation_takes_no_response(store: Store, conversations: Conversations) -> None:
    """It is not made by naming it."""
    await opened(conversations)
    for tenant, name in ((TENANT, "conv_2"), ("other", CONV)):
        with pytest.raises(NotFound):
            await store.create(new(record("a", tenant=tenant, conversation_id=name, conversation_end=0), user("hi")))


async def test_a_turn_appends_its_input_and_output_in_the_order_they_were_made(
    store: Store, conversations: Conversations
) -> None:
    """Behind what was there; hidden items are for the model only. The next turn has all of it before its input."""
    await opened(conversations, posted("msg_old"))
    await store.create(
        new(
            record("a", conversation_id=CONV, conversation_end=1),
            posted("msg_in"),
            hidden_inputs=[{"id": "mcpa_1", "type": "mcp_approval_response", "approve": False}],
        )
    )
    handle = await begin(store, "a")
    await store.append(handle, [added("msg_x"), added("msg_y")])
    await finish(store, handle, done("msg_y", "second"), done("msg_x", "first"), hidden=[{"type": "note", "id": "n"}])
    assert await listed(conversations) == ["msg_old", "msg_in", "msg_x", "msg_y"]
    history = await known(conversations)
    assert ids(history.items) == ["msg_old", "msg_in", "mcpa_1", "msg_x", "msg_y", "n"]
    assert [item.side for item in history.items] == ["input", "input", "input", "output", "output", "output"]
    await turn(store, conversations, "b", posted("msg_next"))
    assert ids((await begin_all(store, "b", chain=True)).chain) == [*ids(history.items), "msg_next"]


@pytest.mark.parametrize(
    "ending", [COMPLETED, FAILED, Ending("incomplete", incomplete_details={"reason": "x"}), CANCELLED]
)
async def test_every_end_frees_the_conversation_and_appends_what_was_answered(
    store: Store, conversations: Conversations, ending: Ending
) -> None:
    """Also a failure, from a step or from outside; what was given up empty is left out."""
    await opened(conversations)
    for name, outside in (("a", False), ("b", True)):
        await turn(store, conversations, name, posted(f"msg_in_{name}"))
        handle = await begin(store, name)
        await store.append(handle, [added(f"msg_{name}"), done(f"msg_{name}", "said"), added(f"msg_open_{name}")])
        if outside:
            await end(store, name, ending)
        else:
            await finish(store, handle, ending=ending)
        assert (await known(conversations)).turn is None
    assert await listed(conversations) == ["msg_in_a", "msg_a", "msg_in_b", "msg_b"]


@pytest.mark.parametrize("ending", [FAILED, CANCELLED])
async def test_a_turn_in_which_nothing_was_answered_appends_nothing(
    store: Store, conversations: Conversations, ending: Ending
) -> None:
    """A list of tools is none, an abandoned message neither: the client sends the input again."""
    await opened(conversations)
    await turn(store, conversations, "a", posted("msg_in"))
    handle = await begin(store, "a")
    await store.append(handle, [added("mcpl_1", "mcp_list_tools"), done("mcpl_1", kind="mcp_list_tools")])
    await store.append(handle, [added("msg_open")])
    await end(store, "a", ending)
    assert await listed(conversations) == []
    await turn(store, conversations, "b", posted("msg_in"))


async def test_a_turn_nobody_stores_locks_and_leaves_nothing(store: Store, conversations: Conversations) -> None:
    """It reads the conversation and is not in it, before and after it is purged."""
    await opened(conversations, posted("msg_old"))
    await turn(store, conversations, "a", posted("msg_secret"), store=False)
    with pytest.raises(ConversationLocked):
        await turn(store, conversations, "b", user("hi"))
    chain = await store.chain(TENANT, "resp_a")
    assert ids(chain) == ["msg_old", "msg_secret"]
    await say(store, "a", "told")
    assert await listed(conversations) == ["msg_old"]
    assert await store.purge(TENANT, "resp_a")
    assert ids((await known(conversations)).items) == ["msg_old"]
    assert await conversations.find_items(TENANT, ["msg_secret", "msg_told"]) == {}


async def test_parking_frees_the_conversation_and_waiting_keeps_it(store: Store, conversations: Conversations) -> None:
    """`respond` ends the response with its asks; in `wait` mode it goes on being the turn."""
    await opened(conversations)
    await turn(store, conversations, "a", posted("msg_a"))
    parked = Ending(status="completed", completed_at=2_000, park=True)
    handle = await begin(store, "a")
    await store.append(handle, [added("mcpr_1", "mcp_approval_request")])
    await finish(store, handle, done("mcpr_1", kind="mcp_approval_request"), ending=parked, approvals=[ask("mcpr_1")])
    assert (await known(conversations)).turn is None
    assert await listed(conversations) == ["msg_a", "mcpr_1"]
    await turn(store, conversations, "b", posted("msg_b"), mode="wait")
    handle = await begin(store, "b", "ask:1")
    await store.append(handle, [], Commit(approvals=[ask("mcpr_w", "b", mode="wait")], outcome={}))
    assert (await known(conversations)).turn == "resp_b"
    with pytest.raises(ConversationLocked):
        await conversations.add(TENANT, CONV, [posted("msg_c")])


async def test_an_ask_listed_again_moves_to_its_new_place(store: Store, conversations: Conversations) -> None:
    """The same item, once in the conversation, behind what was said since; the older turn keeps its own view."""
    await opened(conversations)
    for name in ("a", "b"):
        await turn(store, conversations, name, posted(f"msg_{name}"))
        handle = await begin(store, name)
        await store.append(handle, [added("mcpr_1", "mcp_approval_request")])
        await finish(store, handle, done("mcpr_1", kind="mcp_approval_request"))
    assert await listed(conversations) == ["msg_a", "msg_b", "mcpr_1"]
    chain = await store.chain(TENANT, "resp_b")
    assert ids(chain) == ["msg_a", "mcpr_1", "msg_b", "mcpr_1"]


async def test_a_denial_that_nothing_followed_stays_in_the_conversation(
    store: Store, conversations: Conversations
) -> None:
    """It used the ask: without it the model would never hear of the decision. One that is given back does not."""
    await opened(conversations)
    for name, ending in (("b", "step"), ("c", "cancel")):
        asked = f"mcpr_{name}"
        await turn(store, conversations, f"ask{name}", posted(f"msg_ask{name}"))
        handle = await begin(store, f"ask{name}")
        await finish(store, handle, approvals=[ask(asked, f"ask{name}")])
        denial = {"type": "mcp_approval_response", "id": f"mcpa_{name}", "approval_request_id": asked, "approve": False}
        position = (await known(conversations)).end
        await store.create(
            new(
                record(name, conversation_id=CONV, conversation_end=position),
                denial,
                decisions=[wish(asked, approve=False)],
                takes=[asked],
                continues=f"resp_ask{name}",
            )
        )
        if ending == "step":
            await finish(store, await begin(store, name), ending=FAILED)
        else:
            await end(store, name, CANCELLED)
    assert await listed(conversations) == ["msg_askb", "mcpa_b", "msg_askc"]


async def test_items_taken_out_stay_with_the_turns_made_from_them(store: Store, conversations: Conversations) -> None:
    """Gone from the conversation and for later turns at once; kept for the response until that is deleted."""
    await opened(conversations, posted("msg_a"), posted("msg_b"))
    await turn(store, conversations, "a", posted("msg_in"))
    assert await conversations.remove(TENANT, CONV, "msg_a") is not None
    assert await conversations.item(TENANT, CONV, "msg_a", sealed=False) is None
    assert ids(await store.chain(TENANT, "resp_a")) == ["msg_a", "msg_b", "msg_in"]
    await say(store, "a", "said")
    assert await listed(conversations) == ["msg_b", "msg_in", "msg_said"]
    assert await conversations.delete(TENANT, CONV)
    assert await conversations.history(TENANT, CONV) is None
    assert [item["id"] for item in await store.input_items(TENANT, "resp_a", sealed=False)] == [
        "msg_a",
        "msg_b",
        "msg_in",
    ]
    await store.create(new(record("b", previous_response_id="resp_a"), posted("msg_then")))
    assert ids(await store.chain(TENANT, "resp_b")) == ["msg_a", "msg_b", "msg_in", "msg_said", "msg_then"]


async def test_what_no_response_was_made_from_is_deleted_for_good(store: Store, conversations: Conversations) -> None:
    """Items alone, a whole conversation, and what was kept for a response once that is deleted."""
    await opened(conversations, posted("msg_a"), posted("msg_b"))
    await conversations.remove(TENANT, CONV, "msg_a")
    assert await rows(store) == 1
    await turn(store, conversations, "a", posted("msg_in"))
    await say(store, "a", "said")
    assert await conversations.delete(TENANT, CONV)
    assert await rows(store) == 1
    await store.delete(TENANT, "resp_a")
    assert await rows(store) == 0


async def test_posting_is_all_or_nothing_and_an_item_is_in_a_conversation_once(conversations: Conversations) -> None:
    """Twice in one batch is accepted, as the real API does; what is there already is refused."""
    await opened(conversations, posted("msg_a"))
    await conversations.add(TENANT, CONV, [posted("msg_b"), posted("msg_b")])
    assert await listed(conversations) == ["msg_a", "msg_b", "msg_b"]
    with pytest.raises(InvalidRequest) as caught:
        await conversations.add(TENANT, CONV, [posted("msg_c"), posted("msg_a")])
    assert (caught.value.code, caught.value.param) == ("item_already_in_conversation", "items")
    assert await listed(conversations) == ["msg_a", "msg_b", "msg_b"]
    with pytest.raises(NotFound):
        await conversations.add("other", CONV, [posted("msg_d")])


async def test_pages_go_through_every_item_in_both_orders(conversations: Conversations) -> None:
    """Any size of page; a cursor that is not in it is not found."""
    names = [f"msg_{n}" for n in range(7)]
    await opened(conversations, *(posted(name) for name in names))
    for descending in (False, True):
        for limit in (1, 2, 3, 7, 8):
            seen: list[str] = []
            more = True
            while more:
                shown, more = await conversations.page(
                    TENANT, CONV, after=seen[-1] if seen else None, limit=limit, descending=descending, sealed=False
                )
                assert len(shown) == limit or not more
                seen += [item["id"] for item in shown]
            assert seen == (names[::-1] if descending else names)
    with pytest.raises(NotFound) as caught:
        await conversations.page(TENANT, CONV, after="msg_9", limit=5, descending=True, sealed=False)
    assert caught.value.param == "after"


async def test_a_foreign_conversation_is_unknown_to_every_method(conversations: Conversations) -> None:
    """Nothing of it is read, nothing changed."""
    conversation = await opened(conversations, posted("msg_a"))
    assert await conversations.get("other", CONV) is None
    assert await conversations.update("other", CONV, {"a": "b"}) is None
    assert await conversations.delete("other", CONV) is False
    assert await conversations.item("other", CONV, "msg_a", sealed=False) is None
    assert await conversations.remove("other", CONV, "msg_a") is None
    assert await conversations.history("other", CONV) is None
    assert await conversations.find_items("other", ["msg_a"]) == {}
    with pytest.raises(NotFound):
        await conversations.page("other", CONV, after=None, limit=5, descending=True, sealed=False)
    assert await conversations.get(TENANT, CONV) == conversation
    assert await listed(conversations) == ["msg_a"]


async def test_the_private_part_of_an_item_goes_with_its_copy(store: Store, conversations: Conversations) -> None:
    """Sealed reasoning is shown where it is asked for, and goes back to the model server in the next turn."""
    await opened(conversations)
    await turn(store, conversations, "a", posted("msg_in"))
    handle = await begin(store, "a")
    sealed: JsonObject = {"encrypted_content": "sealed"}
    await store.append(handle, [added("rs_1", "reasoning")])
    await finish(store, handle, done("rs_1", kind="reasoning"), private={"rs_1": sealed})
    public = await conversations.item(TENANT, CONV, "rs_1", sealed=False)
    assert public is not None
    assert "encrypted_content" not in public
    assert await conversations.item(TENANT, CONV, "rs_1", sealed=True) == {**public, **sealed}
    shown, _ = await conversations.page(TENANT, CONV, after="msg_in", limit=9, descending=False, sealed=True)
    assert shown == [{**public, **sealed}]
    assert (await known(conversations)).items[-1].whole == {**public, **sealed}
    await conversations.create(Conversation(TENANT, "conv_2", 1_000), [public])
    assert await conversations.item(TENANT, "conv_2", "rs_1", sealed=True) == {**public, **sealed}
