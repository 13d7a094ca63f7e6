"""The demo model's Chat Completions dialect: read a request, write the chunks of its answer."""

import time
import uuid
from collections.abc import AsyncIterator, Iterator, Sequence

from outlast.demo import script, wire
from outlast.demo.wire import BadRequest, Reading
from outlast.protocol import json
from outlast.protocol.json import JsonObject


def read(body: JsonObject) -> Reading:
    """A request body. Raises: BadRequest."""
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise BadRequest("messages must be a list with at least one message.", "messages")
    user, answered = _conversation(messages)
    prompt = script.Prompt(
        user=user,
        answered=answered,
        tools=tuple(_tools(body.get("tools") or [])),
        choice=wire.choice_of(body.get("tool_choice")),
        parallel=body.get("parallel_tool_calls") is not False,
        schema=_schema(body.get("response_format")),
    )
    limit = wire.limit_of(body, "max_completion_tokens", "max_tokens")
    return Reading(body=body, prompt=prompt, words_in=wire.count(messages), limit=limit)


async def write(reading: Reading, reply: script.Say | script.Do, delay: float) -> AsyncIterator[bytes]:
    """The server-sent chunks of the answer, one yield a chunk, `[DONE]` last."""
    head: JsonObject = {
        "id": f"chatcmpl-{uuid.uuid4().hex}",
        "object": "chat.completion.chunk",
        "created": int(time.time()),
        "model": reading.body["model"],
    }

    def chunk(delta: JsonObject, finish: str | None = None) -> bytes:
        return _frame({**head, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})

    yield chunk({"role": "assistant", "content": ""})
    match reply:
        case script.Say(text=text):
            said = wire.say(text, reading.limit)
            async for word in wire.slowly(said.words, delay):
                yield chunk({"content": word})
            words_out, finish = len(said.words), "length" if said.cut else "stop"
        case script.Do(calls=calls):
            deltas = [_call_delta(index, call) for index, call in enumerate(calls)]
            for delta in deltas:
                yield chunk({"tool_calls": [delta]})
            words_out, finish = wire.count(deltas), "tool_calls"
    yield chunk({}, finish)
    if (reading.body.get("stream_options") or {}).get("include_usage"):
        usage = {
            "prompt_tokens": reading.words_in,
            "completion_tokens": words_out,
            "total_tokens": reading.words_in + words_out,
        }
        yield _frame({**head, "choices": [], "usage": usage})
    yield b"data: [DONE]\n\n"


def _frame(payload: JsonObject) -> bytes:
    return b"data: " + json.dumps(payload) + b"\n\n"


def _call_delta(index: int, call: script.Call) -> JsonObject:
    function = {"name": call.name, "arguments": json.dumps_text(call.arguments)}
    return {"index": index, "id": f"call_{uuid.uuid4().hex}", "type": "function", "function": function}


def _conversation(messages: Sequence[JsonObject]) -> tuple[str, tuple[script.Answered, ...]]:
    """The newest user text, and the calls answered since."""
    user = ""
    names: dict[str, str] = {}
    answered: list[script.Answered] = []
    for message in messages:
        match message:
            case {"role": "assistant", "tool_calls": [*calls]}:
                names.update({call["id"]: call["function"]["name"] for call in calls})
            case {"role": "tool", "tool_call_id": str() as call_id, "content": content}:
                answered.append(script.Answered(names.get(call_id, call_id), wire.text_of(content)))
            case {"role": "user", "content": content}:
                user = wire.text_of(content)
                answered.clear()
            case _:
                pass  # system, developer, what the model said: the script needs none of it
    return user, tuple(answered)


def _tools(values: Sequence[JsonObject]) -> Iterator[script.Tool]:
    for value in values:
        match value:
            case {"type": "function", "function": {"name": str() as name, "parameters": dict() as parameters}}:
                yield script.Tool(name, parameters)
            case {"type": "function", "function": {"name": str() as name}}:
                yield script.Tool(name, {})
            case _:
                raise BadRequest("The demo model knows function tools only.", "tools")


def _schema(response_format: object) -> JsonObject | None:
    match response_format:
        case {"type": "json_schema", "json_schema": {"schema": dict() as schema}}:
            return schema
        case {"type": "json_object"}:
            return {}
        case _:
            return None
