"""The demo model's Responses dialect: read a request, write the events of its answer."""

import itertools
import time
import uuid
from collections.abc import AsyncIterator, Iterator, Sequence

from outlast.demo import script, wire
from outlast.demo.wire import BadRequest, Reading
from outlast.protocol import json
from outlast.protocol.json import JsonObject


def read(body: JsonObject) -> Reading:
    """A request body. Raises: BadRequest."""
    items = _items(body.get("input"))
    user, answered = _conversation(items)
    prompt = script.Prompt(
        user=user,
        answered=answered,
        tools=tuple(_tools(body.get("tools") or [])),
        choice=wire.choice_of(body.get("tool_choice")),
        parallel=body.get("parallel_tool_calls") is not False,
        schema=_schema(body.get("text") or {}),
    )
    words_in = wire.count(items) + wire.count(body.get("instructions"))
    return Reading(body=body, prompt=prompt, words_in=words_in, limit=wire.limit_of(body, "max_output_tokens"))


async def write(reading: Reading, reply: script.Say | script.Do, delay: float) -> AsyncIterator[bytes]:
    """The server-sent events of the answer, one yield an event."""
    answer = _Answer(reading)
    yield answer.event("response.created", {"response": answer.response("in_progress")})
    yield answer.event("response.in_progress", {"response": answer.response("in_progress")})
    match reply:
        case script.Say(text=text):
            said = wire.say(text, reading.limit)
            async for event in answer.message(said, delay):
                yield event
            cut = said.cut
        case script.Do(calls=calls):
            for call in calls:
                for event in answer.call(call):
                    yield event
            cut = False
    kind = "incomplete" if cut else "completed"
    yield answer.event(f"response.{kind}", {"response": answer.response(kind)})


class _Answer:
    """One response while it is written: its items so far and the numbers of its events."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._id = f"resp_{uuid.uuid4().hex}"
        self._created = int(time.time())
        self._numbers = itertools.count()
        self._output: list[JsonObject] = []
        self._words_out = 0

    def event(self, kind: str, fields: JsonObject) -> bytes:
        payload = {"type": kind, "sequence_number": next(self._numbers), **fields}
        return b"event: " + kind.encode() + b"\ndata: " + json.dumps(payload) + b"\n\n"

    async def message(self, said: wire.Said, delay: float) -> AsyncIterator[bytes]:
        item: JsonObject = {"id": f"msg_{uuid.uuid4().hex}", "type": "message", "role": "assistant"}
        place = {"item_id": item["id"], "output_index": len(self._output), "content_index": 0}
        part = {"type": "output_text", "annotations": [], "logprobs": []}
        yield self._item_event("added", {**item, "status": "in_progress", "content": []})
        yield self.event("response.content_part.added", {**place, "part": {**part, "text": ""}})
        async for word in wire.slowly(said.words, delay):
            yield self.event("response.output_text.delta", {**place, "delta": word, "logprobs": []})
        yield self.event("response.output_text.done", {**place, "text": said.text, "logprobs": []})
        yield self.event("response.content_part.done", {**place, "part": {**part, "text": said.text}})
        status = "incomplete" if said.cut else "completed"
        done = {**item, "status": status, "content": [{**part, "text": said.text}]}
        yield self._item_event("done", done)
        self._finish(done, len(said.words))

    def call(self, call: script.Call) -> Iterator[bytes]:
        arguments = json.dumps_text(call.arguments)
        item: JsonObject = {
            "id": f"fc_{uuid.uuid4().hex}",
            "type": "function_call",
            "call_id": f"call_{uuid.uuid4().hex}",
            "name": call.name,
        }
        place = {"item_id": item["id"], "output_index": len(self._output)}
        yield self._item_event("added", {**item, "status": "in_progress", "arguments": ""})
        yield self.event("response.function_call_arguments.delta", {**place, "delta": arguments})
        yield self.event("response.function_call_arguments.done", {**place, "name": call.name, "arguments": arguments})
        done = {**item, "status": "completed", "arguments": arguments}
        yield self._item_event("done", done)
        self._finish(done, wire.count(arguments))

    def response(self, status: str) -> JsonObject:
        ended = status != "in_progress"
        body = self._reading.body
        return {
            "id": self._id,
            "object": "response",
            "created_at": self._created,
            "status": status,
            "model": body["model"],
            "output": list(self._output),
            "tools": body.get("tools") or [],
            "tool_choice": body.get("tool_choice") or "auto",
            "parallel_tool_calls": self._reading.prompt.parallel,
            "instructions": body.get("instructions"),
            "max_output_tokens": self._reading.limit,
            "metadata": body.get("metadata") or {},
            "text": body.get("text") or {"format": {"type": "text"}},
            "temperature": 1.0,
            "top_p": 1.0,
            "error": None,
            "incomplete_details": {"reason": "max_output_tokens"} if status == "incomplete" else None,
            "usage": self._usage() if ended else None,
        }

    def _usage(self) -> JsonObject:
        words_in = self._reading.words_in
        return {
            "input_tokens": words_in,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": self._words_out,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": words_in + self._words_out,
        }

    def _item_event(self, what: str, item: JsonObject) -> bytes:
        return self.event(f"response.output_item.{what}", {"output_index": len(self._output), "item": item})

    def _finish(self, item: JsonObject, words: int) -> None:
        self._output.append(item)
        self._words_out += words


def _items(value: object) -> list[JsonObject]:
    match value:
        case str():
            return [{"type": "message", "role": "user", "content": value}]
        case list() if all(isinstance(item, dict) for item in value):
            return value
        case _:
            raise BadRequest("input must be a string or a list of items.", "input")


def _conversation(items: Sequence[JsonObject]) -> tuple[str, tuple[script.Answered, ...]]:
    """The newest user text, and the calls answered since."""
    user = ""
    names: dict[str, str] = {}
    answered: list[script.Answered] = []
    for item in items:
        match item:
            case {"type": "function_call", "call_id": str() as call_id, "name": str() as name}:
                names[call_id] = name
            case {"type": "function_call_output", "call_id": str() as call_id, "output": output}:
                answered.append(script.Answered(names.get(call_id, call_id), wire.text_of(output)))
            case {"role": "user", "content": content}:
                user = wire.text_of(content)
                answered.clear()
            case _:
                pass  # instructions, reasoning, what the model said: the script needs none of it
    return user, tuple(answered)


def _tools(values: Sequence[JsonObject]) -> Iterator[script.Tool]:
    for value in values:
        if value.get("type") != "function":
            raise BadRequest(f"The demo model knows function tools only, not {value.get('type')!r}.", "tools")
        yield script.Tool(value["name"], value.get("parameters") or {})


def _schema(text: JsonObject) -> JsonObject | None:
    match text.get("format"):
        case {"type": "json_schema", "schema": dict() as schema}:
            return schema
        case {"type": "json_object"}:
            return {}
        case _:
            return None
