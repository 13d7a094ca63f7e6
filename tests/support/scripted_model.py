"""A Responses-dialect model server that plays given rounds, a script per model name, and keeps the requests it got.

    async with scripted_model() as models:            # models.url is an upstream's base URL
        script = models.play([call("mcp__desk__refund", {"order": 1})], [say("done")])
        ...  model=script.model, then script.transcript(1)

A request after the last round is refused with 400, so that a run that asks the model too often fails by name.
"""

import asyncio
import itertools
import json
import uuid
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from outlast.demo.serving import running

JsonObject = dict[str, Any]
USAGE: JsonObject = {
    "input_tokens": 10,
    "input_tokens_details": {"cached_tokens": 4},
    "output_tokens": 5,
    "output_tokens_details": {"reasoning_tokens": 1},
    "total_tokens": 15,
}


def say(text: str) -> JsonObject:
    """A message."""
    return {
        "type": "message",
        "id": f"msg_{uuid.uuid4().hex}",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": text, "annotations": [], "logprobs": []}],
    }


def call(name: str, arguments: object = None, *, call_id: str | None = None) -> JsonObject:
    """A function call, by the name the model was given; `arguments` that are a text are sent as they are."""
    text = arguments if isinstance(arguments, str) else json.dumps(arguments or {}, separators=(",", ":"))
    unique = uuid.uuid4().hex
    return {
        "type": "function_call",
        "id": f"fc_{unique}",
        "call_id": call_id or f"call_{unique}",
        "name": name,
        "arguments": text,
        "status": "completed",
    }


@dataclass
class Script:
    """The rounds of one model name, and the bodies it was sent. `gate`: a round is answered only while it is set."""

    model: str
    rounds: list[Sequence[JsonObject]]
    requests: list[JsonObject] = field(default_factory=list)
    gate: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def asked(self) -> int:
        """How many rounds were asked for."""
        return len(self.requests)

    def transcript(self, number: int = -1) -> list[JsonObject]:
        """The input of a request, each item without id and status."""
        return [
            {key: value for key, value in item.items() if key not in ("id", "status")}
            for item in self.requests[number]["input"]
        ]


class ScriptedModels:
    """What a test uses."""

    def __init__(self) -> None:
        self.url = ""
        self._scripts: dict[str, Script] = {}

    def play(self, *rounds: Sequence[JsonObject]) -> Script:
        """A model of its own that answers with these rounds, in order."""
        script = Script(f"scripted-{uuid.uuid4().hex[:8]}", list(rounds))
        script.gate.set()
        self._scripts[script.model] = script
        return script

    async def answer(self, request: Request) -> Response:
        """POST /v1/responses."""
        body = json.loads(await request.body())
        script = self._scripts[body["model"]]
        script.requests.append(body)
        number = len(script.requests)
        if number > len(script.rounds):
            error = {"message": f"the script has no round {number}", "type": "invalid_request_error", "code": None}
            return JSONResponse({"error": {**error, "param": None}}, status_code=400)
        await script.gate.wait()
        return StreamingResponse(_frames(body["model"], script.rounds[number - 1]), media_type="text/event-stream")


@asynccontextmanager
async def scripted_model() -> AsyncIterator[ScriptedModels]:
    """The server on a free port; `url` ends in `/v1`."""
    models = ScriptedModels()
    app = Starlette(routes=[Route("/v1/responses", models.answer, methods=["POST"])])
    async with running(app) as url:
        models.url = f"{url}/v1"
        yield models


async def _frames(model: str, items: Sequence[JsonObject]) -> AsyncIterator[bytes]:
    numbers = itertools.count()
    for event in _events(model, items):
        data = json.dumps({**event, "sequence_number": next(numbers)})
        yield f"event: {event['type']}\ndata: {data}\n\n".encode()


def _events(model: str, items: Sequence[JsonObject]) -> Iterator[JsonObject]:
    base: JsonObject = {"id": f"resp_{uuid.uuid4().hex}", "object": "response", "created_at": 1, "model": model}
    for kind in ("created", "in_progress"):
        yield {"type": f"response.{kind}", "response": {**base, "status": "in_progress", "output": []}}
    for index, item in enumerate(items):
        yield from _message(item, index) if item["type"] == "message" else _call(item, index)
    done = {**base, "status": "completed", "output": list(items), "usage": USAGE}
    yield {"type": "response.completed", "response": done}


def _message(item: JsonObject, index: int) -> Iterator[JsonObject]:
    place = {"item_id": item["id"], "output_index": index, "content_index": 0}
    part = item["content"][0]
    yield _item("added", {**item, "status": "in_progress", "content": []}, index)
    yield {"type": "response.content_part.added", **place, "part": {**part, "text": ""}}
    yield {"type": "response.output_text.delta", **place, "delta": part["text"], "logprobs": []}
    yield {"type": "response.output_text.done", **place, "text": part["text"], "logprobs": []}
    yield {"type": "response.content_part.done", **place, "part": part}
    yield _item("done", item, index)


def _call(item: JsonObject, index: int) -> Iterator[JsonObject]:
    place = {"item_id": item["id"], "output_index": index}
    yield _item("added", {**item, "status": "in_progress", "arguments": ""}, index)
    yield {"type": "response.function_call_arguments.delta", **place, "delta": item["arguments"]}
    yield {
        "type": "response.function_call_arguments.done",
        **place,
        "name": item["name"],
        "arguments": item["arguments"],
    }
    yield _item("done", item, index)


def _item(what: str, item: JsonObject, index: int) -> JsonObject:
    return {"type": f"response.output_item.{what}", "output_index": index, "item": item}
