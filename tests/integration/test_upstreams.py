"""Claims about both upstream dialects end to end: what is relayed, what is retried, and what the client is told."""

import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import pytest
from openai import APIStatusError, AsyncOpenAI

from outlast.contracts import Timeouts
from outlast.devserver import DevServer
from outlast.settings import Settings
from tests.support.mcp_server import Tool, mcp_server
from tests.support.raw_model import (
    RawModels,
    call_answer,
    call_events,
    completed,
    deltas,
    raw_model,
    refusing,
    text_answer,
    text_start,
)
from tests.support.stack import outlast, settings
from tests.unit.upstream.server import Answer, sse, streaming

JsonObject = dict[str, Any]
MINE = {"type": "function", "name": "mine", "parameters": {"type": "object", "properties": {}}}


@dataclass
class World:
    """An Outlast over one raw model server."""

    dialect: str
    client: AsyncOpenAI
    models: RawModels

    def streaming(self, *texts: str) -> Answer:
        """A complete answer."""
        return streaming(text_answer(self.dialect, *texts))


@pytest.fixture(scope="module", params=["responses", "chat"])
async def world(
    request: pytest.FixtureRequest, temporal: DevServer, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[World]:
    """One server per dialect; retries come after 50 ms."""
    async with AsyncExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        patch.setenv("OUTLAST_TEST_UPSTREAM_KEY", "sk-upstream-canary")
        models = await stack.enter_async_context(raw_model())
        plain = settings(tmp_path_factory.mktemp(request.param), temporal.address)
        upstream = {"base_url": models.url, "dialect": request.param, "api_key_env": "OUTLAST_TEST_UPSTREAM_KEY"}
        given = Settings.model_validate({**plain.model_dump(), "upstreams": {"test": upstream}})
        server = await stack.enter_async_context(outlast(given, desk=False, timeouts=Timeouts(llm_backoff=0.05)))
        yield World(request.param, server.client, models)


async def test_a_round_of_each_dialect_is_one_stream(world: World) -> None:
    """Text in pieces, usage, and a transcript that goes back as the dialect wants it."""
    played = world.models.play(world.streaming("Hel", "lo"), world.streaming("again"))
    stream = await world.client.responses.create(model=played.model, input="hi", instructions="be brief", stream=True)
    events = [event async for event in stream]
    assert [event.type for event in events] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.delta",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ]
    final = events[-1].response  # type: ignore[union-attr]  # the terminal event
    assert final.usage is not None
    assert (final.output_text, final.usage.total_tokens) == ("Hello", 5)
    await world.client.responses.create(model=played.model, input="more", previous_response_id=final.id)
    first, second = played.bodies
    if world.dialect == "chat":
        assert first["messages"] == [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hi"}]
        assert [message["role"] for message in second["messages"]] == ["user", "assistant", "user"]
        assert first["stream_options"] == {"include_usage": True}
    else:
        assert (first["instructions"], first["store"], "previous_response_id" in second) == ("be brief", False, False)
        assert [item["role"] for item in second["input"]] == ["user", "assistant", "user"]


async def test_a_gateway_call_and_its_result_travel_in_each_dialect(world: World) -> None:
    """Two rounds; the tool's output reaches the model as the dialect's tool result."""
    async with mcp_server({"add": Tool(lambda a: str(a["a"] + a["b"]))}) as server:
        played = world.models.play(
            streaming(call_answer(world.dialect, "mcp__calc__add", '{"a":1,"b":2}')), world.streaming("three")
        )
        tool: Any = {
            "type": "mcp",
            "server_label": "calc",
            "server_url": server.url,
            "require_approval": "never",
        }
        answer = await world.client.responses.create(model=played.model, input="1+2", tools=[tool])
    assert [item.type for item in answer.output] == ["mcp_list_tools", "mcp_call", "message"]
    assert answer.usage is not None
    assert (answer.output_text, answer.usage.total_tokens) == ("three", 10)
    call_id = answer.to_dict()["output"][1]["id"]  # type: ignore[index]  # a dump is typed as plain objects
    second = played.bodies[1]
    if world.dialect == "chat":
        assert second["messages"][-1] == {"role": "tool", "tool_call_id": call_id, "content": "3"}
        assert second["messages"][-2]["tool_calls"][0]["function"] == {
            "name": "mcp__calc__add",
            "arguments": '{"a":1,"b":2}',
        }
    else:
        assert second["input"][-1] == {"type": "function_call_output", "call_id": call_id, "output": "3"}


async def test_a_refusal_of_the_upstream_is_the_clients_error(world: World) -> None:
    """Status, text and code are passed on, once, with x-should-retry: false; the failed response is readable."""
    played = world.models.play(refusing("400 X", "that is too long", code="context_length_exceeded"))
    for stream in (False, True):
        with pytest.raises(APIStatusError) as refused:
            await world.client.responses.create(model=played.model, input="hi", stream=stream)
        error, headers = refused.value, refused.value.response.headers
        assert (error.status_code, error.code) == (400, "context_length_exceeded")
        assert "that is too long" in error.message
        assert headers["x-should-retry"] == "false"
        failed = await world.client.responses.retrieve(headers["x-outlast-response-id"])
        assert failed.status == "failed"
        assert failed.error is not None
        assert failed.error.to_dict() == {
            "code": "invalid_prompt",
            "message": "that is too long",
            "type": "invalid_request_error",
        }
    assert len(played.bodies) == 2


@pytest.mark.parametrize("status", ["401", "403"])
async def test_our_own_credentials_are_the_operators_problem(world: World, status: str) -> None:
    """502 `upstream_auth` that names the config key and the variable, never the key."""
    played = world.models.play(refusing(f"{status} X", "Incorrect API key: sk-upstream-canary"))
    with pytest.raises(APIStatusError) as refused:
        await world.client.responses.create(model=played.model, input="hi")
    assert (refused.value.status_code, refused.value.code) == (502, "upstream_auth")
    assert "upstreams.test.api_key_env" in refused.value.message
    assert "OUTLAST_TEST_UPSTREAM_KEY" in refused.value.message
    assert "canary" not in refused.value.response.text
    assert len(played.bodies) == 1


@pytest.mark.parametrize("status", ["500 X", "503 X", "408 X", "429 X"])
async def test_a_passing_failure_is_tried_again(world: World, status: str) -> None:
    """The client sees the second answer only."""
    played = world.models.play(refusing(status, "busy"), world.streaming("fine"))
    answer = await world.client.responses.create(model=played.model, input="hi")
    assert (answer.status, answer.output_text, len(played.bodies)) == ("completed", "fine", 2)


async def test_a_lasting_failure_is_answered_after_the_last_try(world: World) -> None:
    """Four attempts, then the upstream's text as 502 that no SDK repeats."""
    played = world.models.play(refusing("500 X", "on fire"))
    with pytest.raises(APIStatusError) as refused:
        await world.client.responses.create(model=played.model, input="hi")
    assert (refused.value.status_code, refused.value.code) == (502, "upstream_unavailable")
    assert "on fire" in refused.value.message
    assert refused.value.response.headers["x-should-retry"] == "false"
    assert len(played.bodies) == 4


async def test_retry_after_is_waited_for(world: World) -> None:
    """The next attempt comes no earlier than the upstream said."""
    played = world.models.play(refusing("429 X", "slow down", "retry-after: 1"), world.streaming("fine"))
    started = time.monotonic()
    answer = await world.client.responses.create(model=played.model, input="hi")
    assert (answer.output_text, len(played.bodies)) == ("fine", 2)
    assert time.monotonic() - started >= 1


async def test_a_long_retry_after_is_left_to_the_client(world: World) -> None:
    """429 at once, with the upstream's Retry-After."""
    played = world.models.play(refusing("429 X", "come back later", "retry-after: 60"))
    with pytest.raises(APIStatusError) as refused:
        await world.client.responses.create(model=played.model, input="hi")
    assert (refused.value.status_code, len(played.bodies)) == (429, 1)
    assert refused.value.response.headers["retry-after"] == "60"


async def test_a_stream_cut_before_anything_was_shown_is_repeated_unseen(world: World) -> None:
    """The client sees one message."""
    played = world.models.play(streaming(end=b""), world.streaming("fine"))
    stream = await world.client.responses.create(model=played.model, input="hi", stream=True)
    events = [event async for event in stream]
    assert [event.type for event in events].count("response.output_item.added") == 1
    assert events[-1].response.output_text == "fine"  # type: ignore[union-attr]  # the terminal event
    assert len(played.bodies) == 2


async def test_a_stream_cut_after_deltas_closes_its_item_and_goes_on(world: World) -> None:
    """The shown text is closed, the item ends incomplete and empty, the new attempt has the next index."""
    played = world.models.play(streaming(text_start(world.dialect, "Once", " upon"), end=b""), world.streaming("fine"))
    stream = await world.client.responses.create(model=played.model, input="hi", stream=True)
    events: list[Any] = [event async for event in stream]
    shown = "".join(e.delta for e in events if e.type == "response.output_text.delta" and e.output_index == 0)
    (text_done,) = [e for e in events if e.type == "response.output_text.done" and e.output_index == 0]
    (item_done,) = [e for e in events if e.type == "response.output_item.done" and e.output_index == 0]
    assert text_done.text == shown
    assert "Once upon".startswith(shown)
    assert (item_done.item.status, item_done.item.content) == ("incomplete", [])
    final = events[-1].response
    assert [(item.id, item.status) for item in final.output] == [
        (item_done.item.id, "incomplete"),
        (final.output[1].id, "completed"),
    ]
    assert (final.status, final.output_text, len(played.bodies)) == ("completed", "fine", 2)
    assert [event.sequence_number for event in events] == list(range(len(events)))
    await world.client.responses.create(model=played.model, input="and?", previous_response_id=final.id)
    sent = str(played.bodies[2].get("messages") or played.bodies[2]["input"])
    assert "fine" in sent
    assert "Once" not in sent


# -- what only the Responses dialect can say ---------------------------------------------------------------------------


def only_responses(world: World) -> None:
    """Skip the other dialect: it has no such events."""
    if world.dialect != "responses":
        pytest.skip("no such thing in the chat dialect")


async def test_what_we_do_not_know_is_relayed(world: World) -> None:
    """Unknown fields of items, parts and deltas and unknown event types arrive, renumbered, with our ids."""
    only_responses(world)
    first, part, delta = deltas("hi")
    first["item"]["x_item"] = {"deep": [1]}
    done = {**first["item"], "status": "completed", "content": [{**part["part"], "text": "hi", "x_part": 1}]}
    payloads = [
        first,
        part,
        {**delta, "x_delta": True},
        {"type": "response.brand_new", "item_id": "msg_u", "output_index": 0, "x": {"y": 1}},
        {"type": "response.output_item.done", "output_index": 0, "item": done},
        completed(),
    ]
    played = world.models.play(streaming(sse(*payloads)))
    stream = await world.client.responses.create(model=played.model, input="hi", stream=True)
    events = [event.to_dict() async for event in stream]
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    by_type: dict[str, Any] = {str(event["type"]): event for event in events}
    added = by_type["response.output_item.added"]
    assert added["item"]["x_item"] == {"deep": [1]}
    assert by_type["response.output_text.delta"]["x_delta"] is True
    new = by_type["response.brand_new"]
    assert (new["x"], new["item_id"], new["output_index"]) == ({"y": 1}, added["item"]["id"], 0)
    output = by_type["response.completed"]["response"]["output"]
    assert output == [by_type["response.output_item.done"]["item"]]
    assert (output[0]["x_item"], output[0]["content"][0]["x_part"]) == ({"deep": [1]}, 1)
    assert "msg_u" not in str(events)


async def test_a_cut_after_a_complete_client_call_ends_the_round(world: World) -> None:
    """The client may have run it already: nothing is asked again, the response completes with the call."""
    only_responses(world)
    played = world.models.play(streaming(sse(*call_events("mine", "{}")), end=b""), world.streaming("never"))
    tool: Any = MINE
    answer = await world.client.responses.create(model=played.model, input="hi", tools=[tool])
    assert [(item.type, item.status) for item in answer.output] == [  # type: ignore[union-attr]  # one call
        ("function_call", "completed")
    ]
    assert (answer.status, len(played.bodies)) == ("completed", 1)


async def test_a_response_the_upstream_failed_is_ours_failed(world: World) -> None:
    """Before anything: the HTTP error; after a shown delta: `response.failed` as the terminal, no SSE error."""
    only_responses(world)
    error = {"code": "invalid_prompt", "message": "not like this"}
    failed = {"type": "response.failed", "response": {"status": "failed", "error": error}}
    played = world.models.play(streaming(sse(failed)))
    with pytest.raises(APIStatusError, match="not like this") as refused:
        await world.client.responses.create(model=played.model, input="hi", stream=True)
    assert (refused.value.status_code, len(played.bodies)) == (400, 1)
    played = world.models.play(streaming(sse(*deltas("so far")), sse(failed)))
    stream = await world.client.responses.create(model=played.model, input="hi", stream=True)
    events: list[Any] = [event async for event in stream]
    assert events[-1].type == "response.failed"
    assert events[-1].response.error.to_dict() == {**error, "type": "invalid_request_error"}
    assert [item.status for item in events[-1].response.output] == ["incomplete"]
    assert "error" not in [event.type for event in events]
    assert len(played.bodies) == 1
