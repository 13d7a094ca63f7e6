"""Claims about compaction in its three forms, and about counted tokens, through the official client."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from openai import BadRequestError
from openai.types.responses import Response

from outlast.devserver import DevServer
from tests.support.desk import World, answered, asks, desk_world, dumped, kinds, user, verdict
from tests.support.scripted_model import USAGE, call, say
from tests.support.stack import settings

JsonObject = dict[str, Any]
TRIGGER: JsonObject = {"type": "compaction_trigger"}
WEATHER: JsonObject = {
    "type": "function",
    "name": "weather",
    "description": "The weather of a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    "strict": False,
}


@pytest.fixture(scope="module")
async def world(temporal: DevServer, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    """One server for all tests of this file."""
    with pytest.MonkeyPatch.context() as patch:
        async with desk_world(settings(tmp_path_factory.mktemp("compaction"), temporal.address), patch) as opened:
            yield opened


def notes(summary: str) -> JsonObject:
    """What a model reads in the place of what was compacted."""
    return user(
        f"The conversation so far was compacted. This is your own summary of it:\n\n{summary}\n\n"
        "Go on from there: do not repeat what is done, and do not speak of the summary."
    )


def asked(text: str) -> JsonObject:
    """A message as clients send it."""
    return {"role": "user", "content": text}


def tokens(rounds: int) -> tuple[int, int, int, int]:
    """The usage of so many scripted rounds."""
    return 10 * rounds, 4 * rounds, 5 * rounds, 15 * rounds


def spent(usage: Any) -> tuple[int, int, int, int]:
    """A usage object in the same figures."""
    cached = usage.input_tokens_details.cached_tokens
    return usage.input_tokens, cached, usage.output_tokens, usage.total_tokens


# -- POST /v1/responses/compact ----------------------------------------------------------------------------------------


async def test_a_window_replaces_the_conversation_it_was_made_of(world: World) -> None:
    """All user messages, then one item; sent back, the model reads the summary in the place of the rest."""
    case = world.case([say("notes of one")], [say("three")])
    said = [asked("one"), {"role": "assistant", "content": "answer one"}, asked("two")]
    window = await case.client.responses.compact(model=case.script.model, input=said)  # type: ignore[arg-type]  # easy form
    assert (window.object, window.id[:5], spent(window.usage)) == ("response.compaction", "resp_", tokens(1))
    assert [item.type for item in window.output] == ["message", "message", "compaction"]
    made = window.output[-1]
    assert made.type == "compaction"
    assert made.id.startswith("cmp_")
    assert "notes" not in made.encrypted_content
    prompt = case.script.transcript(0)[-1]["content"][0]["text"]
    assert "[user]\none\n\n[assistant]\nanswer one\n\n[user]\ntwo" in prompt
    back = [item.to_dict(warnings=False) for item in window.output]
    answer = await case.ask([*back, asked("three?")])
    assert answer.output_text == "three"
    assert case.script.transcript() == [user("one"), notes("notes of one"), user("two"), user("three?")]


async def test_a_chain_goes_on_through_its_compaction_twice(world: World) -> None:
    """By `previous_response_id` alone, with tools in it; the newest item stands for all before it."""
    case = world.case([call("weather", {"city": "Rome"}, call_id="call_1")], [say("sunny")])
    first = await case.ask("weather?", tools=[WEATHER])
    output = {"type": "function_call_output", "call_id": "call_1", "output": "sun"}
    second = await case.ask([output], previous_response_id=first.id)
    case.play([say("notes one")], [say("umbrella")], [say("notes two")], [say("bye")])
    once = await case.client.responses.compact(model=case.script.model, previous_response_id=second.id)
    assert "[calls weather]\n" in case.script.transcript()[-1]["content"][0]["text"]
    third = await case.ask("umbrella?", previous_response_id=once.id)
    assert case.script.transcript() == [user("weather?"), notes("notes one"), user("umbrella?")]
    twice = await case.client.responses.compact(model=case.script.model, previous_response_id=third.id)
    prompt = case.script.transcript()[-1]["content"][0]["text"]
    assert "[notes on what was before]\nnotes one" in prompt
    assert "[calls weather]" not in prompt
    assert [item.type for item in twice.output] == ["message", "message", "compaction"]
    await case.ask("bye", previous_response_id=twice.id)
    assert case.script.transcript() == [user("weather?"), user("umbrella?"), notes("notes two"), user("bye")]
    assert kinds(await case.client.responses.retrieve(twice.id)) == ["compaction"]


async def test_a_pending_call_is_answered_after_its_compaction(world: World) -> None:
    """It is not summed up: its output is still to come, also when everything before the item is dropped."""
    case = world.case([call("weather", {"city": "Rome"}, call_id="call_1")], [say("notes")], [say("sun")], [say("sun")])
    first = await case.ask("weather?", tools=[WEATHER])
    window = await case.client.responses.compact(model=case.script.model, previous_response_id=first.id)
    output = {"type": "function_call_output", "call_id": "call_1", "output": "sunny"}
    read = [user("weather?"), notes("notes"), *answered("call_1", "weather", '{"city":"Rome"}', "sunny")]
    await case.ask([output], previous_response_id=window.id)
    assert case.script.transcript() == read
    await case.ask([window.output[-1].to_dict(), output])
    assert case.script.transcript() == read


async def test_an_open_ask_outlives_a_compaction(world: World) -> None:
    """It is decided from the response that compacted it; the stored call runs once."""
    case = world.case()
    case.play([case.calls("mcp__desk__refund")], [say("notes")], [say("done")])
    first = await case.ask("refund")
    [approval] = asks(first)
    window = await case.client.responses.compact(model=case.script.model, previous_response_id=first.id)
    assert [item.type for item in window.output] == ["message", "compaction"]
    final = await case.ask([verdict(approval, True)], previous_response_id=window.id)
    assert (kinds(final), case.ran) == (["mcp_call", "message"], ["refund"])
    pair = answered(approval, "mcp__desk__refund", f'{{"order":{case.order}}}', f"refunded {case.order}")
    assert case.script.transcript() == [user("refund"), notes("notes"), *pair]


# -- the trigger -------------------------------------------------------------------------------------------------------


async def test_a_trigger_is_answered_by_one_compaction_and_nothing_else(world: World) -> None:
    """As Codex asks for it: the whole history, the trigger last, `store: false`, streamed."""
    case = world.case([say("notes")], [say("on it")])
    history = [
        {"type": "message", "role": "developer", "content": "rules"},
        asked("fix it"),
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": None, "content": None},
        {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "shell", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "call_1", "output": "fixed"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "done"}]},
    ]
    events = await case.stream([*history, TRIGGER], store=False, tools=[WEATHER], tool_choice="auto")
    assert [event.type for event in events] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.output_item.done",
        "response.completed",
    ]
    assert [event.sequence_number for event in events] == list(range(5))
    made = events[3].item.to_dict()
    assert set(made) == {"id", "type", "encrypted_content"}
    final = events[-1].response
    assert dumped(final) == [made]
    assert spent(final.usage) == tokens(1)
    renewed = [{"type": "message", "role": "developer", "content": "new rules"}, asked("fix it"), made, asked("more")]
    await case.ask(renewed, store=False)
    rules = {**user("new rules"), "role": "developer"}
    assert case.script.transcript() == [rules, user("fix it"), notes("notes"), user("more")]


async def test_a_trigger_leaves_no_trace_but_its_compaction(world: World) -> None:
    """Stored: it is no input item; the response is one like any other and continues like one."""
    case = world.case([say("hi")], [say("notes")], [say("hello again")])
    first = await case.ask("hello", tools=[])
    second = await case.ask([TRIGGER], previous_response_id=first.id, tools=[])
    assert kinds(second) == ["compaction"]
    assert (second.status, second.output_text) == ("completed", "")
    found = await case.client.responses.input_items.list(second.id, order="asc")
    assert [item.type for item in found.data] == ["message", "message"]
    await case.ask("again", previous_response_id=second.id, tools=[])
    assert case.script.transcript() == [user("hello"), notes("notes"), user("again")]


async def test_a_conversation_is_compacted_in_place(world: World) -> None:
    """Its newest compaction item supersedes what stands before it."""
    case = world.case([say("hi")], [say("notes")], [say("hello again")])
    conversation = await case.client.conversations.create()
    await case.ask("hello", conversation=conversation.id, tools=[])
    await case.ask([TRIGGER], conversation=conversation.id, tools=[])
    await case.ask("again", conversation=conversation.id, tools=[])
    assert case.script.transcript() == [user("hello"), notes("notes"), user("again")]
    items = await case.client.conversations.items.list(conversation.id, order="asc")
    assert [item.type for item in items.data] == ["message", "message", "compaction", "message", "message"]


# -- context_management ------------------------------------------------------------------------------------------------


async def test_a_long_context_is_compacted_inside_its_response(world: World) -> None:
    """Above the threshold: the item is the first of the output, the round gets the rest, the tokens of both count."""
    case = world.case([say("x" * 6000)], [say("notes")], [say("short")], [say("shorter")])
    manage: Any = [{"type": "compaction", "compact_threshold": 1000}]
    first = await case.ask("long", context_management=manage, tools=[])
    assert kinds(first) == ["message"]
    events = await case.stream("and now?", previous_response_id=first.id, context_management=manage, tools=[])
    final: Response = events[-1].response
    assert kinds(final) == ["compaction", "message"]
    assert spent(final.usage) == tokens(2)
    assert case.script.transcript() == [user("long"), notes("notes"), user("and now?")]
    assert [event.type for event in events[2:5]] == [
        "response.output_item.added",
        "response.output_item.done",
        "response.output_item.added",
    ]
    await case.ask("more", previous_response_id=final.id, context_management=manage, tools=[])
    transcript = case.script.transcript()
    assert transcript.pop(3)["content"][0]["text"] == "short"
    assert transcript == [user("long"), notes("notes"), user("and now?"), user("more")]


async def test_a_context_that_grows_inside_a_response_is_compacted_between_rounds(world: World) -> None:
    """The tool's output is summed up with its call, once; the tool does not run again."""
    case = world.case()
    manage: Any = [{"type": "compaction", "compact_threshold": 1000}]
    big = {"order": case.order, "note": "x" * 6000}
    case.play([call("mcp__desk__lookup", big, call_id="call_1")], [say("notes")], [say("found")])
    tool = {**case.tool, "require_approval": "never"}
    response = await case.ask("look it up", tools=[tool], context_management=manage)
    assert kinds(response) == ["mcp_list_tools", "mcp_call", "compaction", "message"]
    assert case.ran == ["lookup"]
    assert spent(response.usage) == tokens(3)
    assert case.script.transcript() == [user("look it up"), notes("notes")]
    assert len(case.script.requests[-1]["tools"]) == 3


# -- refusals ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sealed", ["gAAAA", "outlast1.0000.AAAA", "outlast1."])
async def test_what_nobody_here_sealed_is_refused(world: World, sealed: str) -> None:
    """400 that names the item; only the newest one is looked at."""
    case = world.case([say("notes")], [say("fine")])
    strange: JsonObject = {"type": "compaction", "id": "cmp_x", "encrypted_content": sealed}
    with pytest.raises(BadRequestError, match=r"cmp_x.*cannot be opened") as refused:
        await case.ask([asked("a"), strange, asked("b")])
    assert (refused.value.param, case.script.asked) == ("input[1]", 0)
    window = await case.client.responses.compact(model=case.script.model, input="a")
    await case.ask([strange, asked("a"), window.output[-1].to_dict(), asked("b")])
    assert case.script.transcript() == [notes("notes"), user("a"), user("b")]


async def test_another_tenants_compaction_is_refused(world: World) -> None:
    """It is sealed for the tenant it was made for."""
    case = world.case([say("notes")], [say("fine")])
    window = await case.client.responses.compact(model=case.script.model, input="a")
    with pytest.raises(BadRequestError, match="cannot be opened"):
        await case.ask([window.output[-1].to_dict(), asked("b")], extra_headers={"x-tenant": "other"})


@pytest.mark.parametrize(
    ("given", "param"),
    [
        ({"input": [TRIGGER, asked("and?")]}, "input[0]"),
        ({"input": [TRIGGER]}, "input"),
        ({"input": [asked("a"), verdict("mcpr_x", True), TRIGGER]}, "input"),
        ({"input": [{"type": "compaction", "encrypted_content": None}]}, "input[0].encrypted_content"),
        (
            {"input": "a", "context_management": [{"type": "compaction", "compact_threshold": 999}]},
            "context_management",
        ),
        ({"input": "a", "context_management": [{"type": "forget"}]}, "context_management"),
    ],
)
async def test_what_makes_no_sense_is_refused_by_name(world: World, given: JsonObject, param: str) -> None:
    """Before anything runs."""
    case = world.case()
    with pytest.raises(BadRequestError) as refused:
        await case.client.responses.create(model=case.script.model, **given)
    assert str(refused.value.param).startswith(param)
    assert case.script.asked == 0


# -- input_tokens ------------------------------------------------------------------------------------------------------


async def test_tokens_are_counted_without_a_run(world: World) -> None:
    """Of the whole context: the chain, the input, instructions, tools."""
    case = world.case([say("hi")])
    first = await case.ask("hello")
    count = case.client.responses.input_tokens.count
    small = await count(model=case.script.model, input="x" * 400)
    assert (small.object, small.input_tokens) == ("response.input_tokens", 105)
    chained = await count(model=case.script.model, input="x" * 400, previous_response_id=first.id)
    assert chained.input_tokens > small.input_tokens
    more = await count(input="x" * 400, instructions="y" * 400, tools=[WEATHER])  # type: ignore[list-item]  # as sent
    assert more.input_tokens > small.input_tokens + 100
    assert case.script.asked == 1


async def test_usage_of_the_model_stays_what_it_said(world: World) -> None:
    """Estimates decide, they are never reported."""
    case = world.case([say("hi")])
    response = await case.ask("hello")
    assert response.usage is not None
    assert response.usage.total_tokens == USAGE["total_tokens"]
