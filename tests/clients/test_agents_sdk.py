"""Claims about the OpenAI Agents SDK with a hosted MCP tool: it sends whole histories again, and nothing runs twice."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from agents import (
    Agent,
    HostedMCPTool,
    ModelSettings,
    OpenAIConversationsSession,
    OpenAIResponsesModel,
    Runner,
    RunResult,
    set_tracing_disabled,
)
from agents.items import TResponseInputItem

from outlast.devserver import DevServer
from tests.support.conversations import kinds
from tests.support.desk import REFUND, WAIT, Case, World, answered, desk_world, until
from tests.support.scripted_model import say
from tests.support.stack import settings

# Traces would be posted to the maker's servers.
set_tracing_disabled(True)


@pytest.fixture(scope="module")
async def world(temporal: DevServer, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    """One server for all tests of this file."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("agents")
        async with desk_world(settings(folder, temporal.address), patch) as opened:
            yield opened


def agent(case: Case, *, approve: bool | None = None, **model: Any) -> Agent[Any]:
    """An agent of the case's model with the desk. `approve`: what its callback says; None: the run stops and asks."""
    config: Any = {**case.tool, "require_approval": "always"}
    callback: Any = None if approve is None else lambda _: {"approve": approve, "reason": "" if approve else "no"}
    return Agent(
        name="clerk",
        model=OpenAIResponsesModel(case.script.model, case.client),
        model_settings=ModelSettings(**model),
        tools=[HostedMCPTool(tool_config=config, on_approval_request=callback)],
    )


def refund(world: World, *texts: str) -> Case:
    """A conversation whose first round refunds, then texts."""
    case = world.case()
    case.play([case.calls(REFUND)], *([say(text)] for text in texts))
    return case


def next_turn(result: RunResult, text: str) -> list[TResponseInputItem]:
    """The history a caller without server state sends with the next question."""
    return [*result.to_input_list(), {"role": "user", "content": text}]


def pair(case: Case, output: str) -> list[dict[str, Any]]:
    """The refund as the model sees it, whatever its id."""
    call = next(item for item in case.script.transcript() if item["type"] == "function_call")
    return answered(call["call_id"], REFUND, f'{{"order":{case.order}}}', output)


async def test_the_third_turn_after_an_approval_knows_it_and_runs_nothing(world: World) -> None:
    """The callback approves within the first run; two more turns send everything again."""
    case = refund(world, "refunded", "you are welcome", "bye")
    clerk = agent(case, approve=True)
    result = await Runner.run(clerk, "refund it")
    assert result.final_output == "refunded"
    result = await Runner.run(clerk, next_turn(result, "thanks"))
    result = await Runner.run(clerk, next_turn(result, "goodbye"))
    assert result.final_output == "bye"
    assert case.ran == ["refund"]
    assert case.script.transcript()[1:3] == pair(case, f"refunded {case.order}")


async def test_the_third_turn_after_a_denial_still_reads_it(world: World) -> None:
    """`denied: no` stands in the ask's place in every later turn."""
    case = refund(world, "then not", "because you said no", "bye")
    clerk = agent(case, approve=False)
    result = await Runner.run(clerk, "refund it")
    assert result.final_output == "then not"
    result = await Runner.run(clerk, next_turn(result, "why?"))
    result = await Runner.run(clerk, next_turn(result, "goodbye"))
    assert result.final_output == "bye"
    assert case.ran == []
    assert case.script.transcript()[1:3] == pair(case, "denied: no")


@pytest.mark.parametrize("approve", [True, False])
async def test_an_interrupted_run_is_resumed_from_its_state(world: World, approve: bool) -> None:
    """Without a callback the run stops with an interruption; its state continues it."""
    case = refund(world, "settled")
    clerk = agent(case)
    stopped = await Runner.run(clerk, "refund it")
    assert len(stopped.interruptions) == 1
    state = stopped.to_state()
    if approve:
        state.approve(stopped.interruptions[0])
    else:
        state.reject(stopped.interruptions[0])
    result = await Runner.run(clerk, state)
    assert (result.final_output, case.ran) == ("settled", ["refund"] if approve else [])


async def test_a_streamed_chained_run_shows_request_and_response(world: World) -> None:
    """With `previous_response_id` only new items are sent."""
    case = refund(world, "refunded")
    result = Runner.run_streamed(agent(case, approve=True), "refund it", auto_previous_response_id=True)
    names = [event.name async for event in result.stream_events() if event.type == "run_item_stream_event"]
    assert (result.final_output, case.ran) == ("refunded", ["refund"])
    assert {"mcp_approval_requested", "mcp_approval_response", "mcp_list_tools"} <= set(names)


async def test_nothing_stored_works_as_well(world: World) -> None:
    """`store: false`: each round sends everything; the ask is honoured once."""
    case = refund(world, "refunded", "bye")
    clerk = agent(case, approve=True, store=False)
    result = await Runner.run(clerk, "refund it")
    result = await Runner.run(clerk, next_turn(result, "thanks"))
    assert (result.final_output, case.ran) == ("bye", ["refund"])


@pytest.mark.parametrize("approve", [True, False])
async def test_a_run_waits_in_place_for_somebody_else(world: World, approve: bool) -> None:
    """Wait mode over a stream: the SDK sees no open question, the run goes on when it is decided elsewhere, and the
    next turn knows what happened."""
    case = refund(world, "settled", "bye")
    clerk = agent(case, extra_body=WAIT)

    async def turn() -> list[TResponseInputItem]:
        result = Runner.run_streamed(clerk, "refund it")
        async for _ in result.stream_events():
            pass
        assert (result.final_output, result.interruptions) == ("settled", [])
        return [*result.to_input_list(), {"role": "user", "content": "thanks"}]

    running = asyncio.create_task(turn())

    async def open_ask() -> str | None:
        text = f'{{"order":{case.order}}}'
        return next((ask["id"] for ask in await world.approvals() if ask["arguments"] == text), None)

    await world.decide(await until(open_ask), approve, None if approve else "no")
    history = await running
    assert case.ran == (["refund"] if approve else [])
    result = await Runner.run(clerk.clone(model_settings=ModelSettings()), history)
    assert result.final_output == "bye"
    assert case.ran == (["refund"] if approve else [])
    if approve:
        assert case.script.transcript()[1:3] == pair(case, f"refunded {case.order}")


async def test_a_session_kept_in_a_conversation_is_the_history_of_the_next_run(world: World) -> None:
    """The SDK posts and lists the items itself; nothing runs twice, and what is popped or cleared is gone."""
    case = refund(world, "refunded", "you are welcome")
    clerk, session = agent(case, approve=True), OpenAIConversationsSession(openai_client=case.client)
    result = await Runner.run(clerk, "refund it", session=session)
    assert result.final_output == "refunded"
    result = await Runner.run(clerk, "thanks", session=session)
    assert (result.final_output, case.ran) == ("you are welcome", ["refund"])
    assert case.script.transcript()[1:3] == pair(case, f"refunded {case.order}")
    kept = await session.get_items()
    newest: Any = await session.pop_item()
    assert newest["content"][0]["text"] == "you are welcome"
    assert await session.get_items() == kept[:-1]
    await session.clear_session()
    assert await session.get_items() == []


async def test_a_run_in_a_conversation_sends_only_what_is_new(world: World) -> None:
    """`conversation_id`: the server has the rest, the ask is answered in it, and so is the next run."""
    case = refund(world, "refunded", "you are welcome")
    clerk = agent(case, approve=True)
    conversation = await case.client.conversations.create()
    result = await Runner.run(clerk, "refund it", conversation_id=conversation.id)
    result = await Runner.run(clerk, "thanks", conversation_id=conversation.id)
    assert (result.final_output, case.ran) == ("you are welcome", ["refund"])
    assert case.script.transcript()[1:3] == pair(case, f"refunded {case.order}")
    assert await kinds(case.client, conversation.id) == [
        "message",
        "mcp_list_tools",
        "mcp_approval_request",
        "mcp_approval_response",
        "mcp_call",
        "message",
        "message",
        "message",
    ]
