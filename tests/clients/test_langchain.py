"""Claims about LangChain's `ChatOpenAI` over the Responses API."""

from typing import Any

import openai
import pytest
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, HumanMessage, SystemMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from pydantic import BaseModel

from tests.support.client_model import GREETING
from tests.support.clients import CUT_AT, LONG, MODEL, Served, use


class Person(BaseModel):
    """What a model is asked for."""

    name: str
    age: int


@tool
def lookup(key: str) -> str:
    """Looks a key up."""
    return f"value of {key}"


def chat(world: Served, **more: Any) -> Any:
    """A chat model, as its user makes it."""
    return ChatOpenAI(
        model=MODEL, base_url=world.base_url, api_key="none", use_responses_api=True, max_retries=0, timeout=60, **more
    )


async def joined(llm: Any, given: Any) -> AIMessageChunk:
    """The chunks of a stream added up."""
    chunks = [chunk async for chunk in llm.astream(given)]
    whole: AIMessageChunk = chunks[0]
    for chunk in chunks[1:]:
        whole += chunk
    return whole


async def test_a_text_has_its_response_id_and_usage(world: Served) -> None:
    """`invoke` with a system message."""
    message = await chat(world).ainvoke([SystemMessage("be brief"), HumanMessage("hello")])
    assert message.text == GREETING
    assert message.response_metadata["id"].startswith("resp_")
    assert message.usage_metadata["total_tokens"] > 0


async def test_chunks_of_a_stream_add_up(world: Served) -> None:
    """More than one, usage included."""
    message = await joined(chat(world), "hello")
    assert message.text == GREETING
    assert message.usage_metadata is not None
    assert message.usage_metadata["total_tokens"] > 0


@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize("options", [{}, {"store": False}, {"use_previous_response_id": True}], ids=str)
async def test_a_bound_tool_is_called_and_its_output_read(
    world: Served, options: dict[str, Any], streamed: bool
) -> None:
    """With the whole history and with `use_previous_response_id`."""
    llm = chat(world, **options).bind_tools([lookup])

    async def said(given: list[BaseMessage]) -> Any:
        return await joined(llm, given) if streamed else await llm.ainvoke(given)

    history: list[BaseMessage] = [HumanMessage(use("lookup", key="k1"))]
    history.append(await said(history))
    assert isinstance(history[-1], AIMessage)
    [called] = history[-1].tool_calls
    assert (called["name"], called["args"]) == ("lookup", {"key": "k1"})
    history.append(await lookup.ainvoke(called))
    history.append(await said(history))
    assert history[-1].text == "The tool says: value of k1"
    history.append(HumanMessage("thanks"))
    assert (await said(history)).text == GREETING


async def test_structured_output_is_an_object(world: Served) -> None:
    """`with_structured_output` by JSON schema."""
    asked = chat(world).with_structured_output(Person, method="json_schema")
    assert await asked.ainvoke('answer with {"name": "Ada", "age": 36}') == Person(name="Ada", age=36)


async def test_an_mcp_tool_runs_without_a_question(world: Served) -> None:
    """The blocks of the message show list, call and text; the history goes back whole."""
    llm = chat(world, output_version="responses/v1").bind_tools([world.mcp("never")])
    history: list[Any] = [HumanMessage(use("echo", text="chain"))]
    history.append(await llm.ainvoke(history))
    assert [block["type"] for block in history[-1].content] == ["mcp_list_tools", "mcp_call", "text"]
    history.append(HumanMessage("thanks"))
    assert (await llm.ainvoke(history)).text == GREETING
    assert world.echoed("chain") == 1


async def test_an_mcp_tool_asks_and_hears_the_answer(world: Served) -> None:
    """The request is a block, the answer a block of a human message on the chain."""
    llm = chat(world, output_version="responses/v1").bind_tools([world.mcp("always")])
    asked = await llm.ainvoke(use("echo", text="chain-asked"))
    [ask] = [block for block in asked.content if block["type"] == "mcp_approval_request"]
    answer: dict[str, Any] = {"type": "mcp_approval_response", "approve": True, "approval_request_id": ask["id"]}
    done = await llm.ainvoke([HumanMessage([answer])], previous_response_id=asked.response_metadata["id"])
    assert done.text == "The tool says: echo chain-asked"
    assert world.echoed("chain-asked") == 1


async def test_errors_are_those_of_the_client_below(world: Served) -> None:
    """A 400 by name."""
    with pytest.raises(openai.BadRequestError, match="temperature"):
        await chat(world, temperature=9).ainvoke("hello")


async def test_a_stream_killed_in_mid_text_is_no_answer(world: Served) -> None:
    """The chunks end in an error, not in a short text."""
    world.line.cut_at(CUT_AT)
    cut = ChatOpenAI(
        model=MODEL, base_url=f"{world.line.url}/v1", api_key="none", use_responses_api=True, max_retries=0
    )
    with pytest.raises(openai.APIConnectionError):
        await joined(cut, f"tell {LONG} words to a chain")
