"""Functions the client runs."""

import json

from outlast.conformance.base import Group, equal, expect, types
from outlast.conformance.shapes import added, completed, items, numbered, ok, order, refused, streamed
from outlast.conformance.target import Target
from outlast.protocol.json import JsonObject

group = Group("Functions")
WEATHER: JsonObject = {
    "type": "function",
    "name": "weather",
    "description": "The weather of a city.",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
        "additionalProperties": False,
    },
    "strict": True,
}
_CLOCK: JsonObject = {**WEATHER, "name": "clock", "description": "The local time of a city."}
_BOTH = "Call the function weather and, at the same time, the function clock, both for Paris."
_ASKED = "What is the weather in Paris?"
_EVENTS = [
    "output_item.added",
    "function_call_arguments.delta",
    "function_call_arguments.done",
    "output_item.done",
]


async def _called(target: Target) -> JsonObject:
    """A response that ended with a call of `weather`."""
    answer = await target.create(_ASKED, tools=[WEATHER], tool_choice={"type": "function", "name": "weather"})
    response = completed(ok(answer))
    expect(items(response, "function_call"), f"no function_call in {types(response['output'])}")
    return response


def _output(call: JsonObject, text: str = "Sunny, 21 degrees.") -> JsonObject:
    return {"type": "function_call_output", "call_id": call["call_id"], "output": text}


@group.check("function-call", "openai.types.responses.ResponseFunctionToolCall")
async def function_call(target: Target) -> None:
    """A forced function is called: name, call_id, arguments as a JSON text of its schema; the response completes."""
    call = items(await _called(target), "function_call")[0]
    equal((call.get("name"), call.get("status")), ("weather", "completed"), "name and status")
    expect(isinstance(call.get("call_id"), str) and call["call_id"], f"call_id: {call}")
    arguments = json.loads(call["arguments"])
    expect(isinstance(arguments.get("city"), str), f"arguments: {call['arguments']!r}")


@group.check("function-tools-echo", "openai.types.responses.FunctionTool")
async def function_tools_echo(target: Target) -> None:
    """`tools` and `tool_choice` come back as they were sent."""
    response = await _called(target)
    [tool] = response["tools"]
    equal({key: tool.get(key) for key in WEATHER}, WEATHER, "tools[0]")
    equal(response["tool_choice"], {"type": "function", "name": "weather"}, "tool_choice")


@group.check("function-events", "openai.types.responses.ResponseFunctionCallArgumentsDeltaEvent")
async def function_events(target: Target) -> None:
    """A call is announced with empty arguments; its deltas add up to the done arguments and to the final item."""
    choice = {"type": "function", "name": "weather"}
    stream = streamed(await target.stream(_ASKED, tools=[WEATHER], tool_choice=choice))
    numbered(stream)
    call = added(stream, "function_call")[0]
    equal(call.get("arguments"), "", "arguments of the announced call")
    equal(order(stream, call.get("id")), _EVENTS, "its events")
    [done] = stream.of("response.function_call_arguments.done")
    deltas = "".join(data["delta"] for data in stream.of("response.function_call_arguments.delta"))
    final = items(stream.last, "function_call")[0]["arguments"]
    equal((deltas, final), (done["arguments"], done["arguments"]), "deltas and final arguments")


@group.check("function-round", "OpenAI guide: function calling; previous_response_id")
async def function_round(target: Target) -> None:
    """The output, sent back on the chain, leads to a text."""
    first = await _called(target)
    output = _output(items(first, "function_call")[0])
    second = completed(ok(await target.create([output], previous_response_id=first["id"], tools=[WEATHER])))
    expect(items(second, "message"), f"no message in {types(second['output'])}")
    expect(not items(second, "function_call"), "the function was called again")


@group.check("function-round-stateless", "OpenAI guide: function calling with the whole history as input")
async def function_round_stateless(target: Target) -> None:
    """The same with the whole history sent back and nothing stored."""
    first = await _called(target)
    history = [{"role": "user", "content": _ASKED}, *first["output"], _output(items(first, "function_call")[0])]
    second = completed(ok(await target.create(history, tools=[WEATHER], store=False)))
    expect(items(second, "message"), f"no message in {types(second['output'])}")


@group.check("function-unanswered", "recording of the API: No tool output found for function call")
async def function_unanswered(target: Target) -> None:
    """A chain whose call nobody answered is a 400 that names the call."""
    first = await _called(target)
    answer = await target.create("And now?", previous_response_id=first["id"])
    refused(answer)
    call_id = items(first, "function_call")[0]["call_id"]
    expect(call_id in answer.error["message"], f"the message does not name {call_id}: {answer}")


@group.check("parallel-calls", "OpenAI guide: parallel function calling; parallel_tool_calls, true when it is missing")
async def parallel_calls(target: Target) -> None:
    """Two functions asked for at once are two items, each with a call id of its own; both outputs lead to a text."""
    first = completed(ok(await target.create(_BOTH, tools=[WEATHER, _CLOCK])))
    equal(first["parallel_tool_calls"], True, "parallel_tool_calls")
    calls = items(first, "function_call")
    equal(sorted(call["name"] for call in calls), ["clock", "weather"], "functions called")
    expect(calls[0]["call_id"] != calls[1]["call_id"], f"one call_id for two calls: {calls}")
    outputs = [_output(call) for call in calls]
    second = completed(ok(await target.create(outputs, previous_response_id=first["id"], tools=[WEATHER, _CLOCK])))
    equal((bool(items(second, "message")), items(second, "function_call")), (True, []), "a text, no further call")


@group.check("parallel-calls-events", "openai.types.responses: item_id and output_index tell one call's events apart")
async def parallel_calls_events(target: Target) -> None:
    """Streamed, each of two calls has its whole order of events and its own arguments."""
    stream = streamed(await target.stream(_BOTH, tools=[WEATHER, _CLOCK]))
    numbered(stream)
    calls = added(stream, "function_call")
    equal(len(calls), 2, "calls announced")
    final = {item["id"]: item["arguments"] for item in items(completed(stream.last), "function_call")}
    for call in calls:
        equal(order(stream, call["id"]), _EVENTS, f"events of {call['name']}")
        pieces = [data for data in stream.of("response.function_call_arguments.delta") if data["item_id"] == call["id"]]
        equal("".join(data["delta"] for data in pieces), final[call["id"]], f"arguments of {call['name']}")


@group.check("parallel-calls-off", "OpenAI API reference: parallel_tool_calls")
async def parallel_calls_off(target: Target) -> None:
    """With `parallel_tool_calls: false` one response has one call, however many were asked for."""
    response = completed(ok(await target.create(_BOTH, tools=[WEATHER, _CLOCK], parallel_tool_calls=False)))
    equal(len(items(response, "function_call")), 1, "calls")


@group.check("tool-choice-none", "openai.types.responses.ToolChoiceOptions")
async def tool_choice_none(target: Target) -> None:
    """`none` means a text, whatever tools there are."""
    response = completed(ok(await target.create(_ASKED, tools=[WEATHER], tool_choice="none")))
    equal(items(response, "function_call"), [], "calls")


@group.check("tool-choice-required", "openai.types.responses.ToolChoiceOptions")
async def tool_choice_required(target: Target) -> None:
    """`required` means at least one call."""
    response = completed(ok(await target.create("Hello.", tools=[WEATHER], tool_choice="required")))
    expect(items(response, "function_call"), f"no call in {types(response['output'])}")


@group.check("tool-choice-unknown", "OpenAI API reference: tool_choice")
async def tool_choice_unknown(target: Target) -> None:
    """A forced function that is not declared is a 400."""
    refused(await target.create(_ASKED, tools=[WEATHER], tool_choice={"type": "function", "name": "other"}))


@group.check("same-call-twice", "recording of the API: the same output given twice, the last one counts")
async def same_call_twice(target: Target) -> None:
    """An output that is sent twice is accepted."""
    first = await _called(target)
    call = items(first, "function_call")[0]
    twice = [_output(call, "Rain."), _output(call)]
    completed(ok(await target.create(twice, previous_response_id=first["id"], tools=[WEATHER])))


@group.check("function-input-items", "OpenAI API reference: list input items")
async def function_input_items(target: Target) -> None:
    """The follow-up's input items hold the call and its output, oldest first when asked so."""
    first = await _called(target)
    call = items(first, "function_call")[0]
    second = ok(await target.create([_output(call)], previous_response_id=first["id"], tools=[WEATHER]))
    listed = ok(await target.get(f"/responses/{second['id']}/input_items", order="asc", limit=100))["data"]
    kinds = [kind for kind in types(listed) if kind != "reasoning"]
    equal(kinds, ["message", "function_call", "function_call_output"], "types")
