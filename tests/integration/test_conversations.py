"""Claims about runs in a conversation: what the model is told, approvals, the lock, what nobody stores.

The judge is the official client; the model plays a script, so that what it was told is known to the byte.
"""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from openai import BadRequestError

from tests.support import conversations
from tests.support.conversations import opened, texts
from tests.support.desk import LOOKUP, REFUND, World, answered, asks, kinds, user, verdict
from tests.support.scripted_model import call, say

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "conversations.md").read_text(encoding="utf-8")


def said(text: str) -> dict[str, Any]:
    """What the model said, as it gets it back."""
    part = {"type": "output_text", "text": text, "annotations": []}
    return {"type": "message", "role": "assistant", "content": [part]}


async def test_a_turn_with_tools_is_told_to_the_next_one_as_a_chain_would_be(world: World) -> None:
    """Streamed or not: posted items, input, call and answer in order; the tools are listed once in a conversation."""
    case = world.case()
    case.tool["require_approval"] = "never"
    case.play([case.calls(LOOKUP)], [say("it is there")], [say("you are welcome")])
    created = await opened(case.client, "my name is Ann")
    events = await case.stream("where is it?", conversation=created.id)
    assert kinds(events[-1].response) == ["mcp_list_tools", "mcp_call", "message"]
    lists = world.desk.lists
    second = await case.ask("thanks", conversation={"id": created.id})
    assert (kinds(second), world.desk.lists) == (["message"], lists)
    call_id = events[-1].response.output[1].id
    assert case.script.transcript() == [
        user("my name is Ann"),
        user("where is it?"),
        *answered(call_id, LOOKUP, f'{{"order":{case.order}}}', f"found {case.order}"),
        said("it is there"),
        user("thanks"),
    ]
    assert await texts(case.client, created.id) == [
        "my name is Ann",
        "where is it?",
        "it is there",
        "thanks",
        "you are welcome",
    ]


@pytest.mark.parametrize("stream", [False, True])
async def test_an_ask_is_answered_by_the_next_request_and_the_parked_run_goes_on(world: World, stream: bool) -> None:
    """The ask is an item of the conversation; the stored call runs once, in the workflow that asked."""
    case = world.case()
    case.play([case.calls(REFUND)], [say("it is refunded")])
    created = await opened(case.client)
    first = await case.ask("refund it", conversation=created.id)
    (ask,) = asks(first)
    assert await conversations.kinds(case.client, created.id) == ["message", "mcp_list_tools", "mcp_approval_request"]
    if stream:
        second = (await case.stream([verdict(ask, True)], conversation=created.id))[-1].response
    else:
        second = await case.ask([verdict(ask, True)], conversation=created.id)
    assert kinds(second) == ["mcp_call", "message"]
    assert (case.ran, case.script.asked) == (["refund"], 2)
    assert case.script.transcript() == [
        user("refund it"),
        *answered(ask, REFUND, f'{{"order":{case.order}}}', f"refunded {case.order}"),
    ]
    assert await world.activities(first.id, second.id) == ["ExecuteTools", "CallLlm"]
    assert await conversations.kinds(case.client, created.id) == [
        "message",
        "mcp_list_tools",
        "mcp_approval_request",
        "mcp_approval_response",
        "mcp_call",
        "message",
    ]


async def test_a_decision_made_elsewhere_is_used_by_the_next_turn(world: World) -> None:
    """No verdict in the input: the ask at the end of the conversation has been denied in the inbox."""
    case = world.case()
    case.play([case.calls(REFUND)], [say("as you wish")])
    created = await opened(case.client)
    (ask,) = asks(await case.ask("refund it", conversation=created.id))
    assert (await world.decide(ask, False, "too much")).status_code == 200
    second = await case.ask("and?", conversation=created.id)
    assert (second.output_text, case.ran) == ("as you wish", [])
    assert case.script.transcript() == [
        user("refund it"),
        *answered(ask, REFUND, f'{{"order":{case.order}}}', "denied: too much"),
        user("and?"),
    ]
    assert (await world.approval(ask))["taken_by"] == second.id


async def test_a_turn_that_decides_nothing_leaves_the_ask_open_for_a_later_one(world: World) -> None:
    """It is left out of what the model is told; decided later, the call stands where it was made."""
    case = world.case()
    case.play([case.calls(REFUND)], [say("it is noon")], [say("refunded now")])
    created = await opened(case.client)
    (ask,) = asks(await case.ask("refund it", conversation=created.id))
    await case.ask("what time is it?", conversation=created.id)
    assert case.script.transcript() == [user("refund it"), user("what time is it?")]
    await case.ask([verdict(ask, True)], conversation=created.id)
    assert case.script.transcript() == [
        user("refund it"),
        *answered(ask, REFUND, f'{{"order":{case.order}}}', f"refunded {case.order}"),
        user("what time is it?"),
        said("it is noon"),
    ]
    assert case.ran == ["refund"]


async def test_two_requests_at_once_are_one_turn_and_a_refusal(world: World) -> None:
    """The other is told who holds the conversation; once that has ended it can come."""
    case = world.case()
    case.play([say("first")], [say("second")])
    case.script.gate.clear()
    created = await opened(case.client)
    running = [asyncio.ensure_future(case.ask(str(n), conversation=created.id, tools=[])) for n in range(2)]
    done, held = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
    error = done.pop().exception()
    assert isinstance(error, BadRequestError)
    assert (error.code, error.param) == ("conversation_locked", "conversation")
    case.script.gate.set()
    first = await held.pop()
    assert first.id in error.message
    await case.ask("again", conversation=created.id, tools=[])
    assert (await texts(case.client, created.id))[1:] == ["first", "again", "second"]


async def test_a_response_that_waits_for_a_decision_keeps_the_conversation(world: World) -> None:
    """Until somebody decides and it has ended; what was denied is in the conversation for the model only."""
    case = world.case()
    case.play([case.calls(REFUND)], [say("then not")], [say("fine")])
    created = await opened(case.client)
    waiting = await case.start("refund it", conversation=created.id)
    (ask,) = await case.open_asks(waiting)
    with pytest.raises(BadRequestError) as caught:
        await case.ask("hello?", conversation=created.id)
    assert caught.value.code == "conversation_locked"
    await world.decide(ask, False)
    await case.ended(waiting)
    assert await conversations.kinds(case.client, created.id) == ["message", "mcp_list_tools", "message"]
    await case.ask("ok", conversation=created.id)
    told = case.script.transcript()
    assert [item.get("output") for item in told if item["type"] == "function_call_output"] == ["denied"]


async def test_a_turn_that_failed_after_a_tool_ran_is_told_to_the_next_one(world: World) -> None:
    """The refund happened: the conversation has it, though the response failed."""
    case = world.case()
    case.tool["require_approval"] = "never"
    case.play([case.calls(REFUND)])
    created = await opened(case.client)
    failed = await case.ask("refund it", conversation=created.id)
    assert failed.status == "failed"
    case.script.rounds += [[], [say("it was refunded")]]
    await case.ask("did it work?", conversation=created.id)
    assert case.script.transcript()[1:3] == answered(
        failed.output[1].id or "", REFUND, f'{{"order":{case.order}}}', f"refunded {case.order}"
    )
    assert case.ran == ["refund"]


async def test_what_nobody_stores_is_not_readable_through_its_conversation(world: World) -> None:
    """Tools and all: it reads the history and adds nothing."""
    case = world.case()
    case.tool["require_approval"] = "never"
    case.play([case.calls(LOOKUP)], [say("whispered")], [say("aloud")])
    created = await opened(case.client, "before")
    silent = await case.ask("secret", conversation=created.id, store=False)
    assert (silent.output_text, case.ran) == ("whispered", ["lookup"])
    assert case.script.transcript()[:2] == [user("before"), user("secret")]
    assert await texts(case.client, created.id) == ["before"]
    await case.ask("aloud?", conversation=created.id)
    assert case.script.transcript() == [user("before"), user("aloud?")]


async def test_the_example_of_the_page_runs(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    """docs/conversations.md, as it is printed; only the address is another."""
    code = PAGE.split("```python\n")[1].split("```")[0].replace("http://127.0.0.1:8080", world.server.url)
    await asyncio.to_thread(exec, code, {})
    said = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in said] == ["user", "user", "assistant", "user", "assistant"]
    assert said[0] == "user My name is Ann."


async def test_a_function_call_of_a_turn_is_answered_in_the_conversation(world: World) -> None:
    """Handed back to the client, whose output comes with the next request."""
    case = world.case()
    mine: Any = {"type": "function", "name": "mine", "parameters": {"type": "object", "properties": {}}}
    case.play([call("mine", call_id="call_mine")], [say("42 it is")])
    created = await opened(case.client)
    first = await case.ask("use it", conversation=created.id, tools=[mine])
    assert kinds(first) == ["function_call"]
    output = {"type": "function_call_output", "call_id": "call_mine", "output": "42"}
    second = await case.ask([output], conversation=created.id, tools=[mine])
    assert second.output_text == "42 it is"
    assert await conversations.kinds(case.client, created.id) == [
        "message",
        "function_call",
        "function_call_output",
        "message",
    ]


async def test_a_websocket_takes_turns_in_a_conversation(world: World) -> None:
    """One after the other; a turn nobody stores is continued on its connection with the history it had."""
    case = world.case()
    case.play([say("one")], [say("two")], [say("three")])
    created = await opened(case.client, "before")
    common: Any = {"model": case.script.model, "conversation": created.id}

    async with case.client.responses.connect() as connection:

        async def turn(text: str, **fields: Any) -> Any:
            await connection.response.create(input=text, **fields)
            async for event in connection:
                if event.type in ("response.completed", "error"):
                    return event
            return None

        await turn("1", **common)
        whispered = await turn("2", store=False, **common)
        assert whispered.response.conversation.id == created.id
        previous = whispered.response.id
        last = await turn("3", model=case.script.model, store=False, previous_response_id=previous)
    assert last.response.conversation is None
    heard = [item["content"][0]["text"] for item in case.script.transcript()]
    assert heard == ["before", "1", "one", "2", "two", "3"]
    assert await texts(case.client, created.id) == ["before", "1", "one"]
