"""The scripted model `demo`: a model server that needs no key, speaking both dialects, always streaming.

What it says is decided in `script`; here is how it says it: word by word, with a small pause. It serves what Outlast
itself asks for (`stream: true`); anything else is a 400 that says so.
"""

import os
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from outlast.demo import chat_wire, responses_wire, script
from outlast.demo.wire import BadRequest, Reading
from outlast.protocol import json
from outlast.protocol.json import JsonObject

MODEL = "demo"
WORD_DELAY_ENV = "OUTLAST_DEMO_WORD_DELAY_MS"
_DEFAULT_DELAY_MS = "10"
_SLOWLY_SECONDS = 0.15

_Read = Callable[[JsonObject], Reading]
_Write = Callable[[Reading, script.Say | script.Do, float], AsyncIterator[bytes]]


@dataclass(frozen=True, slots=True)
class DemoModel:
    """The model's routes. `word_delay`: seconds before each word; "slowly" in the user's text makes it 0.15."""

    word_delay: float

    async def responses(self, request: Request) -> Response:
        """POST /v1/responses."""
        return await self._serve(request, responses_wire.read, responses_wire.write)

    async def chat(self, request: Request) -> Response:
        """POST /v1/chat/completions."""
        return await self._serve(request, chat_wire.read, chat_wire.write)

    async def models(self, _: Request) -> Response:
        """GET /v1/models."""
        entry = {"id": MODEL, "object": "model", "created": 0, "owned_by": "outlast"}
        return JSONResponse({"object": "list", "data": [entry]})

    async def _serve(self, request: Request, read: _Read, write: _Write) -> Response:
        try:
            reading = read(await _body(request))
        except BadRequest as error:
            return _refusal(str(error), error.param)
        delay = _SLOWLY_SECONDS if "slowly" in reading.prompt.user.lower() else self.word_delay
        events = write(reading, script.reply(reading.prompt), delay)
        return StreamingResponse(events, media_type="text/event-stream", headers={"cache-control": "no-store"})


def model_app(word_delay: float | None = None) -> Starlette:
    """The model server. `word_delay` in seconds; None takes OUTLAST_DEMO_WORD_DELAY_MS, by default 10 ms."""
    if word_delay is None:
        word_delay = float(os.environ.get(WORD_DELAY_ENV, _DEFAULT_DELAY_MS)) / 1000
    model = DemoModel(word_delay)
    return Starlette(
        routes=[
            Route("/v1/responses", model.responses, methods=["POST"]),
            Route("/v1/chat/completions", model.chat, methods=["POST"]),
            Route("/v1/models", model.models, methods=["GET"]),
        ]
    )


async def _body(request: Request) -> JsonObject:
    try:
        body = json.loads(await request.body())
    except ValueError:
        raise BadRequest("The body is not JSON.") from None
    if not isinstance(body, dict) or not isinstance(body.get("model"), str):
        raise BadRequest("model is required.", "model")
    if body.get("stream") is not True:
        raise BadRequest("The demo model only streams: set stream to true.", "stream")
    return body


def _refusal(message: str, param: str | None) -> Response:
    error = {"message": message, "type": "invalid_request_error", "param": param, "code": None}
    return JSONResponse({"error": error}, status_code=400)
