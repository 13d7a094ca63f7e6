"""The demo model as the official client sees it."""

import time
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from openai import AsyncOpenAI

from outlast.demo.model import model_app
from outlast.demo.script import STORIES, WELCOME
from outlast.demo.serving import running

WEATHER = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


@pytest.fixture(scope="module")
async def base_url() -> AsyncIterator[str]:
    """A model that does not pause."""
    async with running(model_app(word_delay=0)) as url:
        yield f"{url}/v1"


@pytest.fixture(scope="module")
async def client(base_url: str) -> AsyncIterator[AsyncOpenAI]:
    """The official client, no retries."""
    async with AsyncOpenAI(base_url=base_url, api_key="none", max_retries=0) as client:
        yield client


async def test_a_text_stream_adds_up(client: AsyncOpenAI) -> None:
    """Events in the documented order, numbered from 0; deltas, part and final text agree; usage counts words."""
    async with client.responses.stream(model="demo", input="tell me something", instructions="be brief") as stream:
        events = [event async for event in stream]
        final = await stream.get_final_response()
    deltas = [event for event in events if event.type == "response.output_text.delta"]
    kinds = [event.type for event in events if event.type != "response.output_text.delta"]
    assert kinds == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert final.output_text in STORIES
    assert "".join(event.delta for event in deltas) == final.output_text
    assert final.usage is not None
    assert (final.usage.input_tokens, final.usage.output_tokens) == (5, len(deltas))
    assert (final.status, final.model) == ("completed", "demo")


async def test_a_function_call_stream_adds_up_and_its_output_is_told(client: AsyncOpenAI) -> None:
    """One call with arguments made from the schema; the next round tells the answer."""
    tool = {"type": "function", "name": "get_weather", "parameters": WEATHER, "strict": True}
    asked = {"role": "user", "content": [{"type": "input_text", "text": "What is the weather in Oslo?"}]}
    async with client.responses.stream(model="demo", input=[asked], tools=[tool]) as stream:  # type: ignore[list-item]  # plain dicts
        kinds = [event.type async for event in stream]
        call = (await stream.get_final_response()).output[0]
    assert call.type == "function_call"
    assert (call.name, call.arguments) == ("get_weather", '{"city":"Oslo"}')
    assert kinds.count("response.function_call_arguments.done") == 1
    answered = [
        asked,
        call.to_dict(),
        {"type": "function_call_output", "call_id": call.call_id, "output": "rain, 7 degrees"},
    ]
    async with client.responses.stream(model="demo", input=answered, tools=[tool]) as stream:  # type: ignore[arg-type,list-item]  # plain dicts
        final = await stream.get_final_response()
    assert final.output_text == "get_weather says: rain, 7 degrees"


async def test_the_token_limit_ends_incomplete(client: AsyncOpenAI) -> None:
    """Cut after the words allowed, item and response say so."""
    stream = await client.responses.create(model="demo", input="tell me", max_output_tokens=3, stream=True)
    last = [event async for event in stream][-1]
    assert last.type == "response.incomplete"
    assert last.response.incomplete_details is not None
    assert last.response.incomplete_details.reason == "max_output_tokens"
    assert len(last.response.output_text.split()) == 3
    assert last.response.output[0].status == "incomplete"  # type: ignore[union-attr]  # a message


async def test_chat_completions_stream_text_and_usage(client: AsyncOpenAI) -> None:
    """Content deltas, a finish reason, usage on its own chunk."""
    stream = await client.chat.completions.create(
        model="demo",
        messages=[{"role": "system", "content": "be kind"}, {"role": "user", "content": "hello"}],
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = [chunk async for chunk in stream]
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks[:-1]) == WELCOME
    assert [chunk.choices[0].finish_reason for chunk in chunks[-2:-1]] == ["stop"]
    usage = chunks[-1].usage
    assert usage is not None
    assert (usage.prompt_tokens, usage.completion_tokens) == (3, len(WELCOME.split()))


async def test_chat_completions_stream_calls(client: AsyncOpenAI) -> None:
    """Look up, then refund, then tell: the whole story over the other dialect."""
    tools = [
        {"type": "function", "function": {"name": f"mcp__desk__{name}", "parameters": {"type": "object"}}}
        for name in ("lookup_order", "refund_order")
    ]
    body: dict[str, Any] = {"model": "demo", "messages": [{"role": "user", "content": "refund order 1042"}]}
    # Plain dicts in, as a wire test wants them: the client's typed overloads say nothing about these.
    create: Any = client.chat.completions.create
    names = []
    for output in ("Order 1042: boots.", "Refunded 129.50 EUR."):
        chunks = [chunk async for chunk in await create(**body, tools=tools, stream=True)]
        assert chunks[-1].choices[0].finish_reason == "tool_calls"
        call = next(chunk.choices[0].delta.tool_calls[0] for chunk in chunks if chunk.choices[0].delta.tool_calls)
        made = call.to_dict()
        names.append((made.pop("index"), made["function"]["name"]))
        body["messages"] += [
            {"role": "assistant", "content": None, "tool_calls": [made]},
            {"role": "tool", "tool_call_id": made["id"], "content": output},
        ]
    chunks = [chunk async for chunk in await create(**body, tools=tools, stream=True)]
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "Done. Refunded 129.50 EUR."
    assert names == [(0, "mcp__desk__lookup_order"), (0, "mcp__desk__refund_order")]


async def test_structured_output_parses(client: AsyncOpenAI) -> None:
    """text.format json_schema gives an object that fits."""
    schema = {
        "type": "object",
        "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
        "required": ["name", "age"],
        "additionalProperties": False,
    }
    stream = await client.responses.create(
        model="demo",
        input="tell of Ada, 36",
        text={"format": {"type": "json_schema", "name": "person", "schema": schema, "strict": True}},
        stream=True,
    )
    last = [event async for event in stream][-1]
    assert last.type == "response.completed"
    assert last.response.output_text == '{"name": "Ada", "age": 36}'


async def test_models_lists_demo(client: AsyncOpenAI) -> None:
    """One model, named as the snippets name it."""
    assert [model.id async for model in await client.models.list()] == ["demo"]


@pytest.mark.parametrize(
    ("body", "param"),
    [
        (b"{", None),
        (b"{}", "model"),
        (b'{"model": "demo", "input": "hi"}', "stream"),
        (b'{"model": "demo", "input": 3, "stream": true}', "input"),
        (b'{"model": "demo", "input": "hi", "stream": true, "tools": [{"type": "mcp"}]}', "tools"),
        (b'{"model": "demo", "input": "hi", "stream": true, "max_output_tokens": 0}', "max_output_tokens"),
    ],
)
async def test_a_request_it_cannot_serve_is_a_400_with_param(base_url: str, body: bytes, param: str | None) -> None:
    """The envelope of the real API."""
    async with httpx.AsyncClient() as http:
        answer = await http.post(f"{base_url}/responses", content=body)
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert (error["type"], error["param"], error["code"]) == ("invalid_request_error", param, None)


async def test_the_pause_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Milliseconds; nonsense fails at start, not at the first word."""
    monkeypatch.setenv("OUTLAST_DEMO_WORD_DELAY_MS", "soon")
    with pytest.raises(ValueError, match="soon"):
        model_app()


async def test_slowly_slows_the_words_down(client: AsyncOpenAI) -> None:
    """So that people see a stream: 0.15 s before each word."""
    started = time.monotonic()
    stream = await client.responses.create(model="demo", input="tell slowly", max_output_tokens=1, stream=True)
    assert [event async for event in stream][-1].type == "response.incomplete"
    assert time.monotonic() - started >= 0.15
