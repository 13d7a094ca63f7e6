"""Claims about requests sent twice and responses deleted, made by the official client with its own retries."""

import asyncio
from typing import Any

import pytest
from openai import AsyncOpenAI, BadRequestError, NotFoundError
from openai.types.responses import Response

from outlast.contracts import Timeouts
from outlast.protocol.errors import Unavailable
from outlast.runs import Runs
from outlast.sweeper import Sweeper
from tests.support.cutting import cutting
from tests.support.desk import LOOKUP, REFUND, World, kinds, until, user
from tests.support.scripted_model import say


def keyed(key: str) -> Any:
    """The header, as a caller of the official client sends it."""
    return {"extra_headers": {"Idempotency-Key": key}}


# -- the client's own retries ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cut", ["while the model works", "in the middle of the answer"])
async def test_a_retry_after_a_lost_connection_joins_the_run(world: World, cut: str) -> None:
    """The client sends its POST again, marked; one run, one tool call, one answer."""
    case = world.case()
    case.tool["require_approval"] = "never"
    case.play([case.calls(REFUND)], [say("Refunded.")])
    async with cutting(world.server.url) as line:
        if cut == "while the model works":
            case.script.gate.clear()
            line.cut_when(lambda: case.script.asked == 1)
        else:
            line.cut_after(400)
        async with AsyncOpenAI(base_url=f"{line.url}/v1", api_key="none", max_retries=2) as client:
            asking = asyncio.create_task(
                client.responses.create(model=case.script.model, input="refund it", tools=[case.tool])  # type: ignore[list-item]  # a plain dict
            )
            await until(lambda: _reached(line.connections == 2))
            case.script.gate.set()
            answer = await asking
    assert (answer.status, answer.output_text) == ("completed", "Refunded.")
    assert kinds(answer) == ["mcp_list_tools", "mcp_call", "message"]
    assert (case.ran, case.script.asked) == (["refund"], 2)
    assert (await case.client.responses.retrieve(answer.id)).to_dict() == answer.to_dict()


async def test_a_stream_that_is_asked_for_again_begins_at_its_first_event(world: World) -> None:
    """Cut before its headers: the client repeats it, and reads all of the one run."""
    case = world.case([say("Hello.")])
    case.script.gate.clear()
    async with cutting(world.server.url) as line:
        line.cut_when(lambda: case.script.asked == 1)
        async with AsyncOpenAI(base_url=f"{line.url}/v1", api_key="none", max_retries=2) as client:
            opening = asyncio.create_task(client.responses.create(model=case.script.model, input="hi", stream=True))
            await until(lambda: _reached(line.connections == 2))
            case.script.gate.set()
            events = [event async for event in await opening]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert events[0].type == "response.created"
    final = events[-1].response  # type: ignore[union-attr]  # the terminal event
    assert (final.output_text, case.script.asked) == ("Hello.", 1)


async def _reached(now: bool) -> bool:
    return now


@pytest.mark.parametrize("stream", [False, True], ids=["json", "stream"])
async def test_a_failure_after_a_tool_call_is_no_error_a_client_repeats(world: World, stream: bool) -> None:
    """The model refuses its second round: 200 and `failed`; with the client's retries on, the tool ran once."""
    case = world.case()
    case.tool["require_approval"] = "never"
    case.play([case.calls(REFUND)])
    client = case.client.with_options(max_retries=2)
    known: dict[str, Any] = {"model": case.script.model, "input": "refund it", "tools": [case.tool]}
    if stream:
        last = [event async for event in await client.responses.create(**known, stream=True)][-1]
        assert last.type == "response.failed"
        failed: Response = last.response
    else:
        failed = await client.responses.create(**known)
    assert (failed.status, kinds(failed)) == ("failed", ["mcp_list_tools", "mcp_call"])
    assert failed.error is not None
    assert "no round 2" in failed.error.message
    assert (case.ran, case.script.asked) == (["refund"], 2)


# -- Idempotency-Key ---------------------------------------------------------------------------------------------------


async def test_a_key_makes_one_response_however_often_it_is_sent(world: World) -> None:
    """At once and afterwards, as JSON; the tool ran once; another body is refused by its code."""
    case = world.case()
    case.tool["require_approval"] = "never"
    case.play([case.calls(REFUND)], [say("Refunded.")])
    key = keyed(f"refund-{case.order}")
    answers = await asyncio.gather(*(case.ask("refund it", **key) for _ in range(5)))
    answers.append(await case.ask("refund it", **key))
    assert all(answer.to_dict() == answers[0].to_dict() for answer in answers)
    assert (answers[0].output_text, case.ran, case.script.asked) == ("Refunded.", ["refund"], 2)
    with pytest.raises(BadRequestError) as refused:
        await case.ask("refund another", **key)
    assert (refused.value.code, refused.value.param) == ("idempotency_key_reused", "Idempotency-Key")
    await case.client.responses.delete(answers[0].id)
    with pytest.raises(BadRequestError) as spent:
        await case.ask("refund it", **key)
    assert spent.value.code == "idempotency_key_spent"
    assert case.ran == ["refund"]


async def test_a_keyed_continuation_may_be_sent_again(world: World) -> None:
    """Its decision is used by then: the repeat is answered, not refused."""
    case = world.case()
    case.play([case.calls(REFUND)], [say("Refunded.")])
    asked = await case.ask("refund it")
    decision = {"type": "mcp_approval_response", "approval_request_id": asked.output[-1].id, "approve": True}
    key = keyed(f"approve-{case.order}")
    answers = await asyncio.gather(*(case.decided(asked, decision, **key) for _ in range(5)))
    answers.append(await case.decided(asked, decision, **key))
    assert {answer.id for answer in answers} == {answers[0].id}
    assert (answers[0].output_text, case.ran) == ("Refunded.", ["refund"])


# -- deleting ----------------------------------------------------------------------------------------------------------


async def test_a_run_goes_on_after_what_it_continues_was_deleted(world: World) -> None:
    """With its whole history in every round; who continues through it is refused by name."""
    case = world.case()
    case.tool["require_approval"] = "never"
    case.play([say("I am Ann.")], [case.calls(LOOKUP)], [say("You are Bob.")])
    first = await case.ask("I am Bob", tools=[])
    case.script.gate.clear()
    second = await case.ask("who am I?", previous_response_id=first.id, background=True)
    await until(lambda: _reached(case.script.asked == 2))
    await case.client.responses.delete(first.id)
    with pytest.raises(NotFoundError):
        await case.client.responses.retrieve(first.id)
    case.script.gate.set()
    ended = await case.ended(second)
    assert (ended.status, ended.output_text, ended.previous_response_id) == ("completed", "You are Bob.", first.id)
    for number in (1, 2):
        assert case.script.transcript(number)[0] == user("I am Bob")
        assert case.script.transcript(number)[1]["content"][0]["text"] == "I am Ann."
    listed = [item async for item in case.client.responses.input_items.list(second.id)]
    assert [item.to_dict()["content"] for item in listed] == [user("who am I?")["content"]]
    with pytest.raises(BadRequestError, match=first.id) as refused:
        await case.ask("and now?", previous_response_id=second.id)
    assert (refused.value.code, refused.value.param) == ("previous_response_not_found", "previous_response_id")


async def test_a_cancel_that_temporal_did_not_take_reaches_the_run(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The response is cancelled at once; the sweeper tells the run that waits, which would have looked in six hours."""
    case = world.case()
    case.play([case.calls(REFUND)])
    waiting = await case.start("refund it")
    await case.open_asks(waiting)

    async def away(*_: object) -> None:
        raise Unavailable("Temporal did not take the cancellation.")

    with monkeypatch.context() as patch:
        patch.setattr(Runs, "cancel", away)
        assert (await case.client.responses.cancel(waiting.id)).status == "cancelled"
    ports = world.server.ports
    assert await ports.runs.is_running(waiting.id)
    await Sweeper(ports.store, ports.runs, Timeouts()).sweep()
    await until(lambda: _closed(ports.runs, waiting.id))
    assert case.ran == []


async def _closed(runs: Any, workflow_id: str) -> bool:
    return await runs.is_running(workflow_id) is False
