"""One Outlast over raw model servers of both dialects, for claims about what reaches a model server."""

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from openai import AsyncOpenAI

from outlast.contracts import Timeouts
from outlast.settings import Settings
from tests.support.raw_model import Played, completed, raw_model
from tests.support.stack import outlast, settings
from tests.unit.upstream.server import Answer, sse, streaming

JsonObject = dict[str, Any]


@dataclass
class Dialects:
    """The client and a model of each kind."""

    client: AsyncOpenAI
    http: httpx.AsyncClient
    responses: Played
    chat: Played

    async def post(self, played: Played, **body: Any) -> httpx.Response:
        """A request as it is: real clients send what the official types do not have."""
        return await self.http.post("/v1/responses", json={"model": played.model, **body})

    async def ask(self, played: Played, **body: Any) -> JsonObject:
        """The response object, from JSON or from a stream's last event."""
        answer = (await self.post(played, **body)).raise_for_status()
        if not body.get("stream"):
            found: JsonObject = answer.json()
            return found
        frames = [line.removeprefix("data: ") for line in answer.text.split("\n") if line.startswith("data: {")]
        ended: JsonObject = json.loads(frames[-1])["response"]
        return ended


@asynccontextmanager
async def dialects(folder: Path, temporal: str, **sections: JsonObject) -> AsyncIterator[Dialects]:
    """The server while the context is open; `sections`: more of its settings."""
    async with AsyncExitStack() as stack:
        models = await stack.enter_async_context(raw_model())
        native, chat = models.play(), models.play()
        plain = settings(folder, temporal)
        served = {
            "upstreams": {
                "native": {"base_url": models.url, "dialect": "responses"},
                "chat": {"base_url": models.url, "dialect": "chat"},
            },
            "models": {native.model: {"upstream": "native"}, chat.model: {"upstream": "chat"}},
        }
        given = Settings.model_validate({**plain.model_dump(), **served, **sections})
        server = await stack.enter_async_context(outlast(given, desk=False, timeouts=Timeouts(llm_backoff=0.05)))
        http = await stack.enter_async_context(httpx.AsyncClient(base_url=server.url, timeout=60))
        yield Dialects(server.client, http, native, chat)


def play(played: Played, *answers: Answer) -> Played:
    """The model says this from here on."""
    played.answers = answers
    played.bodies.clear()
    return played


def items(*whole: JsonObject) -> Answer:
    """A round of the Responses API with these items, each opened and closed."""
    events = [
        {"type": f"response.output_item.{what}", "output_index": index, "item": item}
        for index, item in enumerate(whole)
        for what in ("added", "done")
    ]
    return streaming(sse(*events, completed()))


def message(text: str, item_id: str = "msg_u") -> JsonObject:
    """A whole message."""
    part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    return {"type": "message", "id": item_id, "role": "assistant", "status": "completed", "content": [part]}
