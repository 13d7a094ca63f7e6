"""The demo model as an upstream that counts what it is asked and can keep the rest of an answer back."""

import asyncio
from collections.abc import Callable

from starlette.types import Message, Receive, Scope, Send

from outlast.demo.model import model_app
from outlast.protocol import json
from outlast.protocol.json import JsonObject


class CountingModel:
    """An ASGI app. `requests`: bodies in order of arrival; each is a model call somebody pays for."""

    def __init__(self, word_delay: float) -> None:
        self._app = model_app(word_delay)
        self.requests: list[JsonObject] = []
        self._held: dict[int, bytes] = {}
        self._released = asyncio.Event()
        self._changed = asyncio.Condition()

    def hold(self, number: int, *, after: bytes) -> None:
        """Answer the request of this number (from 1) up to the event with these bytes, then wait for `release`."""
        self._held[number] = after

    def release(self) -> None:
        """Send what was kept back."""
        self._released.set()

    async def until(self, condition: Callable[["CountingModel"], bool]) -> None:
        """Wait until what has arrived makes the condition true."""
        async with asyncio.timeout(60), self._changed:
            await self._changed.wait_for(lambda: condition(self))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http" or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        body = await _body(receive)
        self.requests.append(json.loads(body))
        mark = self._held.get(len(self.requests))
        async with self._changed:
            self._changed.notify_all()
        await self._app(scope, _replayed(body, receive), send if mark is None else self._holding(send, mark))

    def _holding(self, send: Send, mark: bytes) -> Send:
        async def hold(message: Message) -> None:
            await send(message)
            if mark in message.get("body", b""):
                await self._released.wait()

        return hold


async def _body(receive: Receive) -> bytes:
    parts: list[bytes] = []
    while True:
        message = await receive()
        parts.append(message.get("body", b""))
        if not message.get("more_body"):
            return b"".join(parts)


def _replayed(body: bytes, receive: Receive) -> Receive:
    first = True

    async def replay() -> Message:
        nonlocal first
        if first:
            first = False
            return {"type": "http.request", "body": body, "more_body": False}
        return await receive()

    return replay
