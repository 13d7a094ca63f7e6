"""A model server without delays: the events of an answer are made once and then only written, one write an event."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from outlast.demo import responses_wire, script
from outlast.protocol import json

_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
_END = b"0\r\n\r\n"


def model(tokens: int) -> str:
    """The name of the model that answers with so many tokens."""
    return f"bench-{tokens}"


@asynccontextmanager
async def upstream() -> AsyncIterator[str]:
    """Yields its base URL."""
    answers: dict[str, list[bytes]] = {}

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                body = json.loads(await _body(reader))
                name = body["model"]
                if name not in answers:
                    answers[name] = await _events(name)
                writer.write(_HEAD)
                for event in answers[name]:
                    writer.write(b"%x\r\n%s\r\n" % (len(event), event))
                    # Its reader runs in between, as with a model that writes each token when it has it.
                    await asyncio.sleep(0)
                writer.write(_END)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    finally:
        server.close()


async def _body(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    (length,) = (int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
    return await reader.readexactly(length)


async def _events(name: str) -> list[bytes]:
    text = " ".join(["token"] * int(name.removeprefix("bench-")))
    reading = responses_wire.read({"model": name, "input": "hello", "stream": True})
    return [event async for event in responses_wire.write(reading, script.Say(text), 0)]
