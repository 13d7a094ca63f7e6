"""A model server whose answers are the test's own bytes, one list of them per model name.

    async with raw_model() as models:                      # models.url is an upstream's base URL
        played = models.play(replying("500 X", b"{}"), streaming(sse(*message("hi"))))
        ...  model=played.model, then played.bodies

The last answer is repeated. `streaming`, `replying`, `sse`: tests/unit/upstream/server.py.
"""

import asyncio
import json
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.unit.upstream.server import LAST, SSE_HEAD, Answer, Exchange, replying, serving, sse

JsonObject = dict[str, Any]


@dataclass
class Played:
    """The answers of one model name and the request bodies it was sent."""

    model: str
    answers: Sequence[Answer]
    bodies: list[JsonObject] = field(default_factory=list)


class RawModels:
    """What a test uses."""

    def __init__(self) -> None:
        self.url = ""
        self._played: dict[str, Played] = {}

    def play(self, *answers: Answer) -> Played:
        """A model of its own that answers with these, in order."""
        played = Played(f"raw-{uuid.uuid4().hex[:8]}", answers)
        self._played[played.model] = played
        return played

    async def answer(self, exchange: Exchange) -> None:
        """One request."""
        body = json.loads(exchange.body)
        played = self._played[body["model"]]
        played.bodies.append(body)
        await played.answers[min(len(played.bodies), len(played.answers)) - 1](exchange)


@asynccontextmanager
async def raw_model() -> AsyncIterator[RawModels]:
    """The server on a free port; `url` ends in `/v1`."""
    models = RawModels()
    async with serving(models.answer) as served:
        models.url = served.base_url
        yield models


def gated(first: bytes, gate: asyncio.Event, rest: Sequence[bytes]) -> Answer:
    """An event stream that sends `rest` when the gate is opened."""

    async def answer(exchange: Exchange) -> None:
        await exchange.send(SSE_HEAD)
        await exchange.chunk(first)
        await gate.wait()
        for chunk in rest:
            await exchange.chunk(chunk)
        await exchange.send(LAST)

    return answer


def refusing(status: str, message: str, *headers: str, code: str | None = None) -> Answer:
    """An OpenAI error envelope."""
    error = {"message": message, "type": "invalid_request_error", "param": None, "code": code}
    return replying(status, json.dumps({"error": error}).encode(), *headers)


# -- one answer in each dialect ----------------------------------------------------------------------------------------

USAGE = {"input_tokens": 3, "output_tokens": 2, "total_tokens": 5}
_PLACE: JsonObject = {"item_id": "msg_u", "output_index": 0, "content_index": 0}


def deltas(*texts: str) -> list[JsonObject]:
    """A message as far as its text has come."""
    opened = {"id": "msg_u", "type": "message", "role": "assistant", "status": "in_progress", "content": []}
    part = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
    return [
        {"type": "response.output_item.added", "output_index": 0, "item": opened},
        {"type": "response.content_part.added", **_PLACE, "part": part},
        *({"type": "response.output_text.delta", **_PLACE, "delta": text, "logprobs": []} for text in texts),
    ]


def call_events(name: str, arguments: str, index: int = 0) -> list[JsonObject]:
    """A whole function call."""
    item = {"id": "fc_u", "type": "function_call", "call_id": "call_u", "name": name}
    place = {"item_id": "fc_u", "output_index": index}
    opened = {**item, "arguments": "", "status": "in_progress"}
    done = {**item, "arguments": arguments, "status": "completed"}
    return [
        {"type": "response.output_item.added", "output_index": index, "item": opened},
        {"type": "response.function_call_arguments.delta", **place, "delta": arguments},
        {"type": "response.function_call_arguments.done", **place, "name": name, "arguments": arguments},
        {"type": "response.output_item.done", "output_index": index, "item": done},
    ]


def completed(**more: object) -> JsonObject:
    """The terminal event."""
    return {"type": "response.completed", "response": {"status": "completed", "usage": USAGE, **more}}


def chat_chunk(delta: JsonObject, finish: str | None = None) -> JsonObject:
    """One chunk of a chat completion."""
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def chat_text(*texts: str) -> list[JsonObject]:
    """Text, as far as it has come."""
    return [chat_chunk({"content": text}) for text in texts]


def chat_call(name: str, arguments: str) -> list[JsonObject]:
    """A function call in two pieces."""
    half = len(arguments) // 2
    return [
        chat_chunk({"tool_calls": [{"index": 0, "id": "call_u", "function": {"name": name, "arguments": ""}}]}),
        chat_chunk({"tool_calls": [{"index": 0, "function": {"arguments": arguments[:half]}}]}),
        chat_chunk({"tool_calls": [{"index": 0, "function": {"arguments": arguments[half:]}}]}),
    ]


def chat_end(finish: str = "stop") -> list[JsonObject | bytes]:
    """Finish reason, usage and `[DONE]`."""
    usage = {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2}}
    return [chat_chunk({}, finish), usage, b"[DONE]"]


def text_answer(dialect: str, *texts: str) -> bytes:
    """A complete message in this dialect."""
    if dialect == "chat":
        return sse(*chat_text(*texts), *chat_end())
    return sse(*deltas(*texts), completed())


def text_start(dialect: str, *texts: str) -> bytes:
    """The same without its end."""
    return sse(*(chat_text(*texts) if dialect == "chat" else deltas(*texts)))


def call_answer(dialect: str, name: str, arguments: str) -> bytes:
    """A complete round with one call."""
    if dialect == "chat":
        return sse(*chat_call(name, arguments), *chat_end("tool_calls"))
    return sse(*call_events(name, arguments), completed())
