"""Claims about the official Python client against a running server."""

import asyncio
import json
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI
from openai.types.responses import Response
from pydantic import BaseModel

from tests.support.client_model import GREETING
from tests.support.clients import CHATTING, CUT_AT, LONG, MODEL, SEALING, Served, use
from tests.support.desk import dumped, kinds, until

JsonObject = dict[str, Any]
LOOKUP: JsonObject = {
    "type": "function",
    "name": "lookup",
    "description": "Looks a key up.",
    "strict": True,
    "parameters": {
        "type": "object",
        "properties": {"key": {"type": "string"}},
        "required": ["key"],
        "additionalProperties": False,
    },
}
WHOLE_MESSAGE = [
    "response.created",
    "response.in_progress",
    "response.output_item.added",
    "response.content_part.added",
    *["response.output_text.delta"] * 4,
    "response.output_text.done",
    "response.content_part.done",
    "response.output_item.done",
    "response.completed",
]


class Person(BaseModel):
    """What a model is asked for."""

    name: str
    age: int


def output(response: Response, text: str) -> JsonObject:
    """What the client's function returned for the one call of a response."""
    call = response.output[-1]
    assert call.type == "function_call", kinds(response)
    return {"type": "function_call_output", "call_id": call.call_id, "output": text}


async def test_a_text_comes_whole(world: Served) -> None:
    """`output_text`, usage, and the response read again is the same."""
    made = await world.client.responses.create(model=MODEL, input="hello", instructions="be brief")
    assert (made.status, made.output_text) == ("completed", GREETING)
    assert made.usage is not None
    assert made.usage.total_tokens == made.usage.input_tokens + made.usage.output_tokens > 0
    assert await world.client.responses.retrieve(made.id) == made


async def test_a_stream_has_every_event_in_order(world: Served) -> None:
    """Numbers without a gap; the deltas are the text; the last event holds the whole response."""
    opened = await world.client.responses.create(model=MODEL, input="hello", stream=True)
    events = [event async for event in opened]
    assert [event.type for event in events] == WHOLE_MESSAGE
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == GREETING
    last = events[-1]
    assert last.type == "response.completed"
    assert last.response.output_text == GREETING


async def test_the_helper_accumulates_what_the_server_says(world: Served) -> None:
    """`responses.stream` builds the response itself and compares ids and indexes on the way."""
    async with world.client.responses.stream(model=MODEL, input="hello") as stream:
        kinds_seen = [event.type async for event in stream]
        final = await stream.get_final_response()
    assert kinds_seen == WHOLE_MESSAGE
    assert final.output_text == GREETING


@pytest.mark.parametrize("model", [MODEL, SEALING, CHATTING])
@pytest.mark.parametrize("stateless", [True, False])
async def test_a_function_is_called_and_its_output_read(world: Served, stateless: bool, model: str) -> None:
    """The call comes out of a stream; the output goes back with the whole history, or on the chain."""
    asked: JsonObject = {"model": model, "tools": [LOOKUP], "include": ["reasoning.encrypted_content"]}
    history: list[Any] = [{"role": "user", "content": use("lookup", key="k1")}]
    async with world.client.responses.stream(**asked, input=history, store=not stateless) as stream:
        called = await stream.get_final_response()
    assert kinds(called) == (["reasoning", "function_call"] if model == SEALING else ["function_call"])
    assert json.loads(called.output[-1].arguments) == {"key": "k1"}
    result = output(called, "value-41")
    more: JsonObject = {"input": [*history, *dumped(called), result], "store": False}
    if not stateless:
        more = {"input": [result], "previous_response_id": called.id}
    answered = await world.client.responses.create(**asked, **more)
    assert answered.output_text == "The tool says: value-41"


async def test_an_mcp_tool_runs_without_a_question(world: Served) -> None:
    """`require_approval: never`: list, call and message in one response."""
    async with world.client.responses.stream(
        model=MODEL, input=use("echo", text="free"), tools=[world.mcp("never")]
    ) as stream:
        events = [event.type async for event in stream]
        made = await stream.get_final_response()
    assert kinds(made) == ["mcp_list_tools", "mcp_call", "message"]
    assert (made.output[1].output, made.output_text) == ("echo free", "The tool says: echo free")
    assert "response.mcp_call.completed" in events
    assert world.echoed("free") == 1


@pytest.mark.parametrize("approve", [True, False])
async def test_an_mcp_tool_asks_and_hears_the_answer(world: Served, approve: bool) -> None:
    """`require_approval: always`: the request ends the response, the answer continues it."""
    text = f"asked-{approve}"
    tools: Any = [world.mcp("always")]
    asked = await world.client.responses.create(model=MODEL, input=use("echo", text=text), tools=tools)
    assert kinds(asked) == ["mcp_list_tools", "mcp_approval_request"]
    answer: Any = {"type": "mcp_approval_response", "approval_request_id": asked.output[-1].id, "approve": approve}
    opened = await world.client.responses.create(
        model=MODEL, input=[answer], tools=tools, previous_response_id=asked.id, stream=True
    )
    last = [event async for event in opened][-1]
    assert last.type == "response.completed"
    assert kinds(last.response) == (["mcp_call", "message"] if approve else ["message"])
    assert world.echoed(text) == approve


@pytest.mark.parametrize("streamed", [True, False])
async def test_structured_output_is_parsed(world: Served, streamed: bool) -> None:
    """`responses.parse` and the helper give the pydantic object."""
    prompt = 'answer with {"name": "Ada", "age": 36}'
    if streamed:
        async with world.client.responses.stream(model=MODEL, input=prompt, text_format=Person) as stream:
            parsed = await stream.get_final_response()
    else:
        parsed = await world.client.responses.parse(model=MODEL, input=prompt, text_format=Person)
    assert parsed.output_parsed == Person(name="Ada", age=36)
    assert world.model.asked(prompt[:11])[-1]["text"]["format"]["name"] == "Person"


async def test_a_background_response_is_polled_to_its_end(world: Served) -> None:
    """Queued or in progress at once, completed later."""
    made = await world.client.responses.create(model=MODEL, input="hello", background=True)
    assert made.status in ("queued", "in_progress")

    async def ended() -> Response | None:
        found = await world.client.responses.retrieve(made.id)
        return None if found.status in ("queued", "in_progress") else found

    assert (await until(ended)).output_text == GREETING


async def test_a_background_response_is_cancelled(world: Served) -> None:
    """While its model still writes; twice is the same."""
    made = await world.client.responses.create(model=MODEL, input="wait 100 s, never-mind", background=True)
    await until(lambda: _true(bool(world.model.asked("never-mind"))))
    for _ in range(2):
        assert (await world.client.responses.cancel(made.id)).status == "cancelled"
    assert (await world.client.responses.retrieve(made.id)).status == "cancelled"


async def test_a_stream_killed_in_mid_text_is_read_on(world: Served) -> None:
    """`starting_after` what came last: no gap, no repeat, and the model was asked once."""
    world.line.cut_at(CUT_AT)
    events: list[Any] = []
    async with AsyncOpenAI(base_url=f"{world.line.url}/v1", api_key="none", max_retries=0) as client:
        opened = await client.responses.create(model=MODEL, input=f"tell {LONG} words to a cut line", stream=True)
        with pytest.raises(openai.APIConnectionError):
            await _read(opened, events)
        assert events[-1].type == "response.output_text.delta"
        response_id, seen = events[0].response.id, events[-1].sequence_number
        rest = await client.responses.retrieve(response_id, stream=True, starting_after=seen)
        events += [event async for event in rest]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    assert text == events[-1].response.output_text
    assert text.endswith(f"word-{LONG}")
    assert len(world.model.asked("a cut line")) == 1


async def test_the_helper_reads_a_response_on(world: Served) -> None:
    """`responses.stream(response_id=..., starting_after=...)` replays all of it and shows the rest."""
    opened = await world.client.responses.create(model=MODEL, input="tell 9 words", stream=True, background=True)
    events = [event async for event in opened]
    async with world.client.responses.stream(response_id=events[0].response.id, starting_after=6) as stream:
        assert [event.sequence_number async for event in stream] == list(range(7, len(events)))
        assert (await stream.get_final_response()).output_text == events[-1].response.output_text


@pytest.mark.parametrize(
    ("asked", "kind", "code"),
    [
        ({"model": MODEL, "input": []}, openai.BadRequestError, None),
        ({"model": MODEL, "input": "x", "temperature": 9}, openai.BadRequestError, None),
        (
            {"model": MODEL, "input": "x", "previous_response_id": "resp_no"},
            openai.BadRequestError,
            "previous_response_not_found",
        ),
        ({"model": "unknown", "input": "x"}, openai.NotFoundError, "model_not_found"),
        ({"model": MODEL, "input": "fail with 429"}, openai.RateLimitError, None),
    ],
)
async def test_errors_are_the_exceptions_of_the_client(
    world: Served, asked: JsonObject, kind: type[openai.APIStatusError], code: str | None
) -> None:
    """By status; the body's type, code and message are the exception's."""
    with pytest.raises(kind) as caught:
        await world.client.responses.create(**asked)
    assert code is None or caught.value.code == code
    assert caught.value.type
    assert caught.value.body
    assert caught.value.response.headers.get("retry-after") == ("60" if kind is openai.RateLimitError else None)


async def test_what_is_not_there_is_not_found(world: Served) -> None:
    """GET and DELETE of an unknown id."""
    for refused in (world.client.responses.retrieve, world.client.responses.delete):
        with pytest.raises(openai.NotFoundError):
            await refused("resp_unknown")


async def test_a_conversation_remembers_its_turns(world: Served) -> None:
    """Two turns are four items, paged by the client."""
    conversation = await world.client.conversations.create()
    for text in ("one", "two"):
        await world.client.responses.create(model=MODEL, conversation=conversation.id, input=text)
    found = [item async for item in world.client.conversations.items.list(conversation.id, order="asc", limit=2)]
    assert [(item.role, item.content[0].text) for item in found] == [
        ("user", "one"),
        ("assistant", GREETING),
        ("user", "two"),
        ("assistant", GREETING),
    ]
    assert (await world.client.conversations.delete(conversation.id)).deleted


@pytest.mark.parametrize("model", [MODEL, SEALING, CHATTING])
async def test_a_context_is_compacted(world: Served, model: str) -> None:
    """`responses.compact` of a chain; its window, sent back, stands for the chain."""
    first = await world.client.responses.create(model=model, input="first words")
    window = await world.client.responses.compact(model=model, previous_response_id=first.id)
    assert window.object == "response.compaction"
    assert [item.type for item in window.output] == ["message", "compaction"]
    assert window.usage.total_tokens > 0
    # The client types the user's messages as the model's and would warn that they are none.
    kept = [item.to_dict(warnings=False) for item in window.output]
    given = [*kept, {"role": "user", "content": "second words"}]
    assert (await world.client.responses.create(model=model, input=given)).output_text == GREETING
    assert GREETING not in json.dumps(world.model.bodies[-1]["input"])


async def test_tokens_are_counted(world: Served) -> None:
    """`responses.input_tokens.count`: more text, more tokens."""
    count = world.client.responses.input_tokens.count
    few, many = [(await count(model=MODEL, input="word " * words)).input_tokens for words in (10, 1000)]
    assert 0 < few < many


async def test_a_websocket_carries_two_turns(world: Served) -> None:
    """`responses.connect`: the second turn continues the first, which nobody stored."""
    async with world.client.responses.connect() as connection:

        async def turn(given: Any, **more: Any) -> Any:
            await connection.response.create(model=MODEL, input=given, tools=[LOOKUP], store=False, **more)
            async for event in connection:
                if event.type == "response.completed":
                    return event.response
            raise AssertionError("the connection ended")

        called = await turn(use("lookup", key="ws"))
        answered = await turn([output(called, "value-ws")], previous_response_id=called.id)
    assert answered.output_text == "The tool says: value-ws"


async def test_callers_at_once_get_their_own(world: Served) -> None:
    """Ten requests side by side."""

    async def one(number: int) -> str:
        made = await world.client.responses.create(model=MODEL, input=f'answer with {{"n": {number}}}')
        return str(made.output_text)

    assert await asyncio.gather(*(one(n) for n in range(10))) == [f'{{"n": {n}}}' for n in range(10)]


async def _read(opened: Any, events: list[Any]) -> None:
    async for event in opened:
        events.append(event)


async def _true(value: bool) -> bool:
    return value
