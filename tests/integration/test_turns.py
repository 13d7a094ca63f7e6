"""Claims about turns: chains, functions, parameters and limits, through the official client."""

import asyncio
import json
from typing import Any

import pytest
from openai import BadRequestError
from openai.types.responses import Response
from pydantic import BaseModel

from tests.support.api_client import hanging_up
from tests.support.desk import MESSAGE, World, dumped, kinds, user
from tests.support.scripted_model import call, say

WEATHER = {
    "type": "function",
    "name": "weather",
    "description": "The weather of a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    "strict": False,
}
PIXEL = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJ"
    "RU5ErkJggg=="
)
CALL = [
    "response.output_item.added",
    "response.function_call_arguments.delta",
    "response.function_call_arguments.done",
    "response.output_item.done",
]


# -- chains and tools --------------------------------------------------------------------------------------------------


async def test_a_chain_of_three_reaches_back_to_the_first_turn(world: World) -> None:
    """Turn 3 sees turn 1; instructions and tools are those of the turn alone; a streamed id chains as well as any."""
    case = world.case([say("one")], [say("two")], [say("three")])
    first = await case.ask("first", tools=[WEATHER], instructions="speak like a pirate")
    second: Response = (await case.stream("second", tools=[], previous_response_id=first.id))[-1].response
    third = await case.ask("third", tools=[], previous_response_id=second.id)
    assert (third.output_text, third.previous_response_id, third.instructions) == ("three", second.id, None)
    said = [(item["role"], item["content"][0]["text"]) for item in case.script.transcript()]
    assert said == [
        ("user", "first"),
        ("assistant", "one"),
        ("user", "second"),
        ("assistant", "two"),
        ("user", "third"),
    ]
    assert [request.get("instructions") for request in case.script.requests] == ["speak like a pirate", None, None]
    assert ["tools" in request for request in case.script.requests] == [True, False, False]


async def test_a_chain_may_follow_the_terminal_event_at_once(world: World) -> None:
    """The id of `response.created` chains in the moment its stream has ended, and 10 ms later."""
    case = world.case([say("one")], [say("two")], [say("three")])
    async with hanging_up(await case.streamed("first", tools=[])) as stream:
        created = (await anext(stream)).response
        async for event in stream:
            if event.type == "response.completed":
                break
        second = await case.ask("second", tools=[], previous_response_id=created.id)
    await asyncio.sleep(0.01)
    third = await case.ask("third", tools=[], previous_response_id=second.id)
    assert third.output_text == "three"
    assert len(case.script.transcript()) == 5


async def test_a_chain_from_a_running_response_is_refused(world: World) -> None:
    """400 that says so."""
    case = world.case([say("later")])
    case.script.gate.clear()
    created = await case.ask("hi", tools=[], background=True)
    with pytest.raises(BadRequestError) as refused:
        await case.ask("and?", tools=[], previous_response_id=created.id)
    assert (refused.value.code, refused.value.param) == ("response_in_progress", "previous_response_id")
    case.script.gate.set()
    await case.ended(created)


async def test_functions_go_to_the_client_and_their_outputs_come_back(world: World) -> None:
    """Two calls in one round, each whole; the follow-up may be chained or stateless and reaches the model alike."""
    paris, rome = (
        call("weather", {"city": "Paris"}, call_id="call_p"),
        call("weather", {"city": "Rome"}, call_id="call_r"),
    )
    case = world.case([say("I ask"), paris, rome], [say("mild")], [say("mild again")])
    events = await case.stream("weather?", tools=[WEATHER])
    assert [event.type for event in events] == [
        "response.created",
        "response.in_progress",
        *MESSAGE,
        *CALL,
        *CALL,
        "response.completed",
    ]
    first: Response = events[-1].response
    assert [(item["type"], item.get("call_id"), item.get("arguments")) for item in dumped(first)] == [
        ("message", None, None),
        ("function_call", "call_p", '{"city":"Paris"}'),
        ("function_call", "call_r", '{"city":"Rome"}'),
    ]
    outputs: list[Any] = [
        {"type": "function_call_output", "call_id": "call_p", "output": "sunny"},
        {"type": "function_call_output", "call_id": "call_r", "output": [{"type": "input_text", "text": "rain"}]},
    ]
    second = await case.ask(outputs, tools=[WEATHER], previous_response_id=first.id)
    assert second.output_text == "mild"
    chained = case.script.transcript()
    third = await case.ask([user("weather?"), *dumped(first), *outputs], tools=[WEATHER])
    assert third.output_text == "mild again"
    assert case.script.transcript() == chained
    assert [item["type"] for item in chained] == [
        "message",
        "message",
        "function_call",
        "function_call",
        "function_call_output",
        "function_call_output",
    ]


async def test_a_forced_choice_holds_for_the_first_round(world: World) -> None:
    """`tool_choice` as given in round one, `auto` afterwards; the echo keeps the caller's."""
    case = world.case()
    case.tool["require_approval"] = "never"
    case.play([case.calls("mcp__desk__lookup")], [say("done")])
    answered = await case.ask(tool_choice="required", parallel_tool_calls=False)
    assert [request["tool_choice"] for request in case.script.requests] == ["required", "auto"]
    assert [request["parallel_tool_calls"] for request in case.script.requests] == [False, False]
    assert (answered.tool_choice, answered.parallel_tool_calls) == ("required", False)


async def test_structured_output_is_parsed_by_the_client(world: World) -> None:
    """`text.format` reaches the upstream as given and is echoed; `responses.parse` reads the answer."""

    class Order(BaseModel):
        number: int

    case = world.case([say('{"number": 1042}')])
    parsed = await case.client.responses.parse(model=case.script.model, input="order?", text_format=Order)
    assert parsed.output_parsed == Order(number=1042)
    (sent,) = case.script.requests
    assert sent["text"]["format"]["type"] == "json_schema"
    assert sent["text"]["format"]["name"] == "Order"
    assert parsed.text is not None
    assert json.loads(parsed.text.to_json())["format"] == sent["text"]["format"]


async def test_reasoning_include_and_metadata_are_taken_and_echoed(world: World) -> None:
    """`reasoning` is passed on and echoed, `include` passed on."""
    case = world.case([say("ok")])
    answered = await case.ask(
        "hi", tools=[], reasoning={"effort": "low"}, include=["message.output_text.logprobs"], metadata={"a": "1"}
    )
    assert answered.reasoning is not None
    assert (answered.reasoning.effort, answered.metadata) == ("low", {"a": "1"})
    (sent,) = case.script.requests
    assert (sent["reasoning"], sent["include"]) == ({"effort": "low"}, ["message.output_text.logprobs"])
    assert "metadata" not in sent


async def test_an_image_reaches_the_model_in_every_turn(world: World) -> None:
    """The data URL is stored, shown in input_items and sent again on a chain."""
    case = world.case([say("a pixel")], [say("still")])
    content = [{"type": "input_text", "text": "what?"}, {"type": "input_image", "image_url": PIXEL, "detail": "low"}]
    first = await case.ask([{"role": "user", "content": content}], tools=[])
    await case.ask("and now?", tools=[], previous_response_id=first.id)
    for request in case.script.requests:
        assert request["input"][0]["content"] == content
    (item,) = [item async for item in case.client.responses.input_items.list(first.id)]
    assert item.to_dict()["content"] == content


# -- limits ------------------------------------------------------------------------------------------------------------


async def test_calls_over_max_tool_calls_fail_and_the_model_answers(world: World) -> None:
    """One runs, one ends failed with a reason, then one more round with `tool_choice: none` completes the response."""
    case = world.case()
    case.tool["require_approval"] = "never"
    case.play([case.calls("mcp__desk__lookup"), case.calls("mcp__desk__note")], [say("that is all")])
    answered = await case.ask(max_tool_calls=1)
    output = dumped(answered)
    assert (answered.status, answered.max_tool_calls) == ("completed", 1)
    assert [(item["type"], item.get("status")) for item in output[1:]] == [
        ("mcp_call", "completed"),
        ("mcp_call", "failed"),
        ("message", "completed"),
    ]
    assert "max_tool_calls" in output[2]["error"]["content"][0]["text"]
    assert output[2]["output"] is None
    assert case.ran == ["lookup"]
    assert case.script.requests[1]["tool_choice"] == "none"
    told = [item["output"] for item in case.script.transcript() if item["type"] == "function_call_output"]
    assert told[0] == f"found {case.order}"
    assert "max_tool_calls" in told[1]


async def test_a_capped_round_without_an_answer_is_incomplete(world: World) -> None:
    """`max_tool_calls` is the reason, only when the last round said nothing."""
    case = world.case()
    case.tool["require_approval"] = "never"
    case.play([case.calls("mcp__desk__lookup"), case.calls("mcp__desk__note")], [case.calls("mcp__desk__lookup")])
    answered = await case.ask(max_tool_calls=1)
    assert answered.status == "incomplete"
    assert answered.incomplete_details is not None
    assert answered.incomplete_details.to_dict() == {"reason": "max_tool_calls"}
    assert case.ran == ["lookup"]


async def test_the_end_of_the_last_allowed_round_keeps_the_numbering(world: World) -> None:
    """A budget of two rounds, three items each: dense numbers and indexes up to `response.incomplete`."""
    case = world.case()
    case.tool["require_approval"] = "never"
    item = [say("hm"), case.calls("mcp__desk__lookup"), case.calls("mcp__desk__note")]
    case.play(item, [say("hm"), *item[1:]])
    events = await case.stream(extra_body={"outlast": {"budget": {"max_rounds": 2}}})
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert [e.output_index for e in events if e.type == "response.output_item.added"] == list(range(7))
    assert sorted(e.output_index for e in events if e.type == "response.output_item.done") == list(range(7))
    assert events[-1].type == "response.incomplete"
    final = events[-1].response
    assert (final.status, final.incomplete_details.reason) == ("incomplete", "budget_exceeded")
    assert kinds(final) == ["mcp_list_tools", *["message", "mcp_call", "mcp_call"] * 2]
    assert final.usage.total_tokens == 30
    assert case.script.asked == 2
    assert (await case.client.responses.retrieve(final.id)).to_dict() == final.to_dict()
