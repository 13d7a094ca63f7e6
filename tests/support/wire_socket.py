"""WebSocket mode as the wire has it."""

import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
from websockets.asyncio.client import ClientConnection, connect

from outlast.protocol.json import JsonObject

_LAST = ("response.completed", "response.failed", "response.incomplete", "error")


class Socket:
    """A raw connection: frames as the wire has them."""

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection

    async def say(self, frame: Any) -> None:
        """Send one frame."""
        await self.connection.send(frame if isinstance(frame, str | bytes) else json.dumps(frame))

    async def hear(self) -> JsonObject:
        """The next frame."""
        return dict(json.loads(await self.connection.recv()))

    async def turn(self, model: str, given: Any = "please", **parameters: Any) -> list[JsonObject]:
        """One response, up to its terminal event or an error."""
        await self.say({"type": "response.create", "model": model, "input": given, **parameters})
        return await self.rest()

    async def rest(self) -> list[JsonObject]:
        """What comes up to a terminal event or an error."""
        heard = [await self.hear()]
        while heard[-1]["type"] not in _LAST:
            heard.append(await self.hear())
        return heard


@contextlib.asynccontextmanager
async def socket(url: httpx.URL) -> AsyncIterator[Socket]:
    """One raw connection. `url`: of the server."""
    address = str(url).replace("http", "ws", 1).rstrip("/")
    async with connect(f"{address}/v1/responses") as connection:
        yield Socket(connection)
