"""Claims about the `conversation` parameter of a request; the judge is the official client."""

from typing import Any

import pytest
from openai import BadRequestError, NotFoundError

from outlast.protocol.errors import UpstreamAuth
from tests.support.conversations import kinds, opened, texts, told
from tests.unit.api.conftest import World

HI: Any = {"role": "user", "content": "hi"}


@pytest.mark.parametrize("as_object", [False, True])
@pytest.mark.parametrize("stream", [False, True])
async def test_a_response_continues_a_conversation_and_is_added_to_it(
    world: World, as_object: bool, stream: bool
) -> None:
    """By id or as an object, echoed as an object everywhere; its history are the items, they come before its input."""
    created = await opened(world.openai, "before")
    given: Any = {"id": created.id} if as_object else created.id
    world.runs.play(lambda rid: world.activities.say(rid, "answered"))
    asked: Any = {"model": "demo", "input": "asked", "conversation": given}
    if stream:
        events = [event async for event in await world.openai.responses.create(stream=True, **asked)]
        snapshots = [event.response for event in events if hasattr(event, "response")]
        response = snapshots[-1]
    else:
        response = await world.openai.responses.create(**asked)
        snapshots = [response]
    snapshots.append(await world.openai.responses.retrieve(response.id))
    assert [each.conversation.id for each in snapshots] == [created.id] * len(snapshots)
    assert {each.previous_response_id for each in snapshots} == {None}
    assert await texts(world.openai, created.id) == ["before", "asked", "answered"]
    listed = await world.openai.responses.input_items.list(response.id, order="asc")
    assert told(listed.data) == ["before", "asked"]
    ids = [item.id for item in (await world.openai.conversations.items.list(created.id, order="asc")).data]
    assert ids == [*(item.id for item in listed.data), response.output[0].id]
    plain = await world.http.post("/v1/responses", json={"model": "demo", "input": "hi", "background": True})
    assert "conversation" not in plain.json()


async def test_a_response_may_have_no_input_of_its_own(world: World) -> None:
    """The conversation says enough, unless it is empty."""
    created = await opened(world.openai, "what is 2+2?")
    world.runs.play(lambda rid: world.activities.say(rid, "4"))
    await world.openai.responses.create(model="demo", conversation=created.id)
    assert await texts(world.openai, created.id) == ["what is 2+2?", "4"]
    empty = await opened(world.openai)
    with pytest.raises(BadRequestError) as caught:
        await world.openai.responses.create(model="demo", conversation=empty.id)
    assert caught.value.param == "input"


async def test_a_conversation_in_use_is_locked_until_the_response_ends(world: World) -> None:
    """For responses in fore- and background and for posted items; nothing happens of what is refused."""
    created = await opened(world.openai, "before")
    running = await world.openai.responses.create(model="demo", input="one", conversation=created.id, background=True)
    started = len(world.runs.started)
    for background in (False, True):
        with pytest.raises(BadRequestError) as caught:
            await world.openai.responses.create(
                model="demo", input="two", conversation=created.id, background=background
            )
        assert (caught.value.code, caught.value.param) == ("conversation_locked", "conversation")
        assert running.id in caught.value.message
    with pytest.raises(BadRequestError) as posting:
        await world.openai.conversations.items.create(created.id, items=[HI])
    assert posting.value.code == "conversation_locked"
    assert len(world.runs.started) == started
    assert (await world.openai.conversations.update(created.id, metadata={"a": "b"})).metadata == {"a": "b"}
    await world.openai.responses.cancel(running.id)
    world.runs.play(lambda rid: world.activities.say(rid, "answered"))
    await world.openai.responses.create(model="demo", input="two", conversation=created.id)
    assert await texts(world.openai, created.id) == ["before", "two", "answered"]


@pytest.mark.parametrize(
    ("given", "status", "param", "code"),
    [
        ("conv_unknown", 404, "conversation", "not_found"),
        ("thread_1", 400, "conversation", "invalid_value"),
        ("conv_ü", 400, "conversation", "invalid_value"),
        ({"id": "thread_1"}, 400, "conversation.id", "invalid_value"),
        ({"name": "conv_1"}, 400, "conversation", None),
        (7, 400, "conversation", None),
    ],
)
async def test_what_names_no_conversation_is_refused(
    world: World, given: object, status: int, param: str, code: str | None
) -> None:
    """Before anything is written."""
    answer = await world.http.post("/v1/responses", json={"model": "demo", "input": "hi", "conversation": given})
    error = answer.json()["error"]
    assert (answer.status_code, error["param"]) == (status, param)
    assert code is None or error["code"] == code


async def test_a_conversation_and_a_previous_response_exclude_each_other(world: World) -> None:
    """400; a turn may be continued as a chain of its own, which is not added to the conversation."""
    created = await opened(world.openai, "before")
    world.runs.play(lambda rid: world.activities.say(rid, "one"), lambda rid: world.activities.say(rid, "two"))
    first = await world.openai.responses.create(model="demo", input="1", conversation=created.id)
    with pytest.raises(BadRequestError):
        await world.openai.responses.create(
            model="demo", input="2", conversation=created.id, previous_response_id=first.id
        )
    await world.openai.conversations.items.create(created.id, items=[HI])
    branch = await world.openai.responses.create(model="demo", input="2", previous_response_id=first.id)
    assert branch.conversation is None
    listed = await world.openai.responses.input_items.list(branch.id, order="asc")
    assert told(listed.data) == ["before", "1", "one", "2"]
    assert await texts(world.openai, created.id) == ["before", "1", "one", "hi"]


async def test_a_call_in_a_conversation_wants_its_output(world: World) -> None:
    """The next request brings it, or is refused naming the call."""
    call: Any = {"type": "function_call", "call_id": "call_1", "name": "f", "arguments": "{}"}
    created = await world.openai.conversations.create(items=[HI, call])
    with pytest.raises(BadRequestError, match="No tool output found for function call call_1"):
        await world.openai.responses.create(model="demo", input="and?", conversation=created.id)
    output: Any = {"type": "function_call_output", "call_id": "call_1", "output": "4"}
    world.runs.play(lambda rid: world.activities.say(rid, "it is 4"))
    await world.openai.responses.create(model="demo", input=[output], conversation=created.id)
    assert await kinds(world.openai, created.id) == ["message", "function_call", "function_call_output", "message"]


async def test_an_item_of_the_conversation_may_be_referred_to_and_is_not_doubled(world: World) -> None:
    """In its own conversation it is there already; elsewhere it is resolved."""
    created = await opened(world.openai, "stored")
    (item,) = (await world.openai.conversations.items.list(created.id)).data
    reference: Any = [{"type": "item_reference", "id": item.id}, HI]
    world.runs.play(lambda rid: world.activities.say(rid, "a"), lambda rid: world.activities.say(rid, "b"))
    await world.openai.responses.create(model="demo", input=reference, conversation=created.id)
    assert await texts(world.openai, created.id) == ["stored", "hi", "a"]
    elsewhere = await world.openai.responses.create(model="demo", input=reference)
    listed = await world.openai.responses.input_items.list(elsewhere.id, order="asc")
    assert told(listed.data) == ["stored", "hi"]


async def test_a_response_that_failed_before_it_said_anything_leaves_the_conversation_as_it_was(world: World) -> None:
    """Its input is sent again with the next try."""
    created = await opened(world.openai, "before")
    world.runs.play(lambda rid: world.activities.fail(rid, UpstreamAuth("no key")))
    answer = await world.http.post("/v1/responses", json={"model": "demo", "input": "lost", "conversation": created.id})
    assert answer.status_code == 502
    assert await texts(world.openai, created.id) == ["before"]
    world.runs.play(lambda rid: world.activities.say(rid, "here"))
    await world.openai.responses.create(model="demo", input="again", conversation=created.id)
    assert await texts(world.openai, created.id) == ["before", "again", "here"]


async def test_a_response_nobody_stores_reads_the_conversation_and_leaves_nothing_in_it(world: World) -> None:
    """Nor anywhere else."""
    created = await opened(world.openai, "before")
    world.runs.play(lambda rid: world.activities.say(rid, "whispered"))
    response = await world.openai.responses.create(model="demo", input="secret", conversation=created.id, store=False)
    assert (response.output_text, response.conversation and response.conversation.id) == ("whispered", created.id)
    assert await texts(world.openai, created.id) == ["before"]
    with pytest.raises(NotFoundError):
        await world.openai.responses.retrieve(response.id)
    with pytest.raises(NotFoundError):
        await world.openai.conversations.items.retrieve(response.output[0].id or "", conversation_id=created.id)


async def test_a_deleted_conversation_leaves_its_responses_readable(world: World) -> None:
    """And continuable as chains; deleting a response leaves the conversation its copy."""
    created = await opened(world.openai, "before")
    world.runs.play(lambda rid: world.activities.say(rid, "one"), lambda rid: world.activities.say(rid, "two"))
    first = await world.openai.responses.create(model="demo", input="1", conversation=created.id)
    second = await world.openai.responses.create(model="demo", input="2", conversation=created.id)
    await world.openai.responses.delete(second.id)
    assert await texts(world.openai, created.id) == ["before", "1", "one", "2", "two"]
    await world.openai.conversations.delete(created.id)
    assert (await world.openai.responses.retrieve(first.id)).output_text == "one"
    with pytest.raises(NotFoundError) as caught:
        await world.openai.responses.create(model="demo", input="3", conversation=created.id)
    assert caught.value.param == "conversation"
    world.runs.play(lambda rid: world.activities.say(rid, "three"))
    chained = await world.openai.responses.create(model="demo", input="3", previous_response_id=first.id)
    listed = await world.openai.responses.input_items.list(chained.id, order="asc")
    assert told(listed.data) == ["before", "1", "one", "3"]
