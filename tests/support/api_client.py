"""The HTTP side as a client sees it: a real uvicorn on a free port, the official client, and httpx for raw answers."""

import contextlib
import json
import socket
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx
import uvicorn
from fastapi import FastAPI
from openai import APIConnectionError, AsyncOpenAI, AsyncStream

from outlast.loop.tokens import Context
from outlast.protocol.errors import NotFound
from outlast.protocol.json import JsonObject


@dataclass(frozen=True)
class Reads:
    """What a model can read."""

    images: bool = True
    encrypted_reasoning: bool = False
    native: bool = False


@dataclass(frozen=True)
class FakeCatalog:
    """Two models."""

    known: Sequence[str] = ("demo", "gpt-4.1")
    reads: Reads = field(default_factory=Reads)

    def resolve(self, model: str) -> object:
        if model not in self.known:
            raise NotFound(f"The model '{model}' does not exist here.", param="model", code="model_not_found")
        return model

    def capabilities(self, model: str) -> Reads:
        return self.reads

    async def count(self, model: str, context: Context) -> int | None:
        return None

    async def names(self) -> Sequence[str]:
        return self.known


@contextlib.asynccontextmanager
async def serve(app: FastAPI) -> AsyncIterator[str]:
    """The application on a free port of the loopback; its base URL, without `/v1`."""
    listening = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(app, lifespan="off", log_level="error", access_log=False, timeout_graceful_shutdown=2)
    config.load()
    server = uvicorn.Server(config)
    server.lifespan = config.lifespan_class(config)
    # `serve` would also take over the process's signal handlers.
    await server.startup(sockets=[listening])
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        await server.shutdown(sockets=[listening])


@contextlib.asynccontextmanager
async def official(url: str) -> AsyncIterator[AsyncOpenAI]:
    """The official client; it retries nothing, so that a test sees each answer."""
    async with AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
        yield client


@contextlib.asynccontextmanager
async def hanging_up(stream: AsyncStream[Any]) -> AsyncIterator[AsyncStream[Any]]:
    """A stream of the official client that may be left before its end.

    `close` drops the connection and leaves ten nested generators half way. The garbage collector would end them, all
    at once, and CPython 3.11 then raises `async generator already executing` in whatever runs at that moment.
    Reading on after `close` ends them here.
    """
    async with stream:
        yield stream
    with contextlib.suppress(APIConnectionError):
        async for _ in stream:
            pass


@contextlib.asynccontextmanager
async def raw(url: str) -> AsyncIterator[httpx.AsyncClient]:
    """httpx, for what the official client hides."""
    async with httpx.AsyncClient(base_url=url, timeout=30) as client:
        yield client


@dataclass(frozen=True)
class Event:
    """One SSE frame."""

    name: str
    data: JsonObject


def frames(body: str) -> list[Event]:
    """The frames of a complete body. Fails when it does not end with `[DONE]`, once."""
    blocks = [block for block in body.split("\n\n") if block and not block.startswith(":")]
    assert blocks[-1] == "data: [DONE]", body[-200:]
    found = []
    for block in blocks[:-1]:
        name, data = block.split("\n")
        found.append(Event(name.removeprefix("event: "), json.loads(data.removeprefix("data: "))))
    return found
