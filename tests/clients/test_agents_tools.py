"""Claims about the OpenAI Agents SDK without MCP: texts, functions, handoffs, structured output, sealed reasoning."""

import json
from typing import Any

import openai
import pytest
from agents import (
    Agent,
    ModelSettings,
    OpenAIResponsesCompactionSession,
    OpenAIResponsesModel,
    OpenAIResponsesWSModel,
    Runner,
    SQLiteSession,
    function_tool,
    set_tracing_disabled,
)
from openai import AsyncOpenAI
from pydantic import BaseModel

from tests.support.client_model import GREETING, SUMMARY
from tests.support.clients import CHATTING, CUT_AT, LONG, MODEL, OPENAI_NAME, SEALING, Served, use

# Traces would be posted to the maker's servers.
set_tracing_disabled(True)
INCLUDE = "reasoning.encrypted_content"


class Person(BaseModel):
    """What a model is asked for."""

    name: str
    age: int


@function_tool
def lookup(key: str) -> str:
    """Looks a key up."""
    return f"value of {key}"


def agent(world: Served, model: str = MODEL, *, socket: bool = False, **more: Any) -> Agent[Any]:
    """An agent with `lookup`, over HTTP or a socket."""
    kind = OpenAIResponsesWSModel if socket else OpenAIResponsesModel
    return Agent(name="clerk", model=kind(model, world.client), **{"tools": [lookup], **more})


@pytest.mark.parametrize("streamed", [True, False])
async def test_a_text(world: Served, streamed: bool) -> None:
    """Whole, and as deltas that add up."""
    if not streamed:
        assert (await Runner.run(agent(world), "hello")).final_output == GREETING
        return
    result = Runner.run_streamed(agent(world), "hello")
    raw: list[Any] = [event.data async for event in result.stream_events() if event.type == "raw_response_event"]
    assert "".join(event.delta for event in raw if event.type == "response.output_text.delta") == GREETING
    assert result.final_output == GREETING


@pytest.mark.parametrize(
    ("model", "chained", "socket"),
    [
        (MODEL, False, True),
        (SEALING, False, False),
        (SEALING, False, True),
        (SEALING, True, False),
        (CHATTING, False, False),
        (CHATTING, True, True),
    ],
)
async def test_a_function_round_and_the_turn_after_it(world: Served, model: str, chained: bool, socket: bool) -> None:
    """The history goes back as the SDK keeps it, reasoning and its ids included."""
    clerk = agent(world, model, socket=socket, model_settings=ModelSettings(response_include=[INCLUDE]))
    result = await Runner.run(clerk, use("lookup", key="k1"), auto_previous_response_id=chained)
    assert result.final_output == "The tool says: value of k1"
    following: Any = "thanks" if chained else [*result.to_input_list(), {"role": "user", "content": "thanks"}]
    previous = result.last_response_id if chained else None
    assert (await Runner.run(clerk, following, previous_response_id=previous)).final_output == GREETING
    given = world.model.bodies[-1]["input"]
    if model == SEALING:
        assert [item["encrypted_content"][:7] for item in given if item.get("type") == "reasoning"] == ["sealed-"] * 2


async def test_structured_output(world: Served) -> None:
    """`output_type`, strict."""
    result = await Runner.run(agent(world, output_type=Person), 'answer with {"name": "Ada", "age": 36}')
    assert result.final_output == Person(name="Ada", age=36)


async def test_a_handoff(world: Served) -> None:
    """A function for the SDK: the other agent goes on with the same history."""
    other = Agent(name="other", model=OpenAIResponsesModel(MODEL, world.client))
    result = await Runner.run(agent(world, handoffs=[other]), use("transfer_to_other"))
    assert result.last_agent.name == "other"
    assert "other" in result.final_output


async def test_a_session_compacts_itself(world: Served) -> None:
    """`OpenAIResponsesCompactionSession` after each turn: the next one reads the summary in the place of the answer."""
    session = OpenAIResponsesCompactionSession(
        "one",
        SQLiteSession("one"),
        client=world.client,
        model=OPENAI_NAME,
        should_trigger_compaction=lambda _: True,
    )
    assert (await Runner.run(agent(world), use("lookup", key="k1"), session=session)).final_output[-2:] == "k1"
    assert (await Runner.run(agent(world), "thanks", session=session)).final_output == GREETING
    given = json.dumps(world.model.bodies[-2]["input"])
    assert SUMMARY in given
    assert "value of k1" not in given


async def test_an_error_is_the_one_of_the_client_below(world: Served) -> None:
    """A 429 of the model's server."""
    with pytest.raises(openai.RateLimitError):
        await Runner.run(agent(world), "fail with 429")


async def test_a_stream_killed_in_mid_text_is_no_answer(world: Served) -> None:
    """The SDK raises instead of taking the half for the whole; the same turn, run again, is complete."""
    world.line.cut_at(CUT_AT)
    async with AsyncOpenAI(base_url=f"{world.line.url}/v1", api_key="none", max_retries=0) as client:
        clerk = Agent(name="clerk", model=OpenAIResponsesModel(MODEL, client))
        with pytest.raises(openai.APIConnectionError):
            await _streamed(clerk)
        assert (await _streamed(clerk)).endswith(f"word-{LONG}")


async def _streamed(clerk: Agent[Any]) -> str:
    result = Runner.run_streamed(clerk, f"tell {LONG} words to an agent")
    async for _ in result.stream_events():
        pass
    return str(result.final_output)
