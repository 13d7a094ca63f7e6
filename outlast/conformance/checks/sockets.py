"""WebSocket mode: many responses over one connection."""

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidHandshake

from outlast.conformance.base import Group, NotOffered, equal, expect
from outlast.conformance.checks.mcp import ECHO, kinds, server
from outlast.conformance.shapes import completed, numbered, ok, refused, streamed
from outlast.conformance.target import TERMINAL, Answer, Frame, Stream, Target
from outlast.protocol.json import JsonObject

group = Group("WebSocket")


class Socket:
    """A connection; what is heard is kept in the form of a stream, so that it is judged like one."""

    def __init__(self, target: Target, connection: ClientConnection) -> None:
        self._target = target
        self._connection = connection

    async def say(self, frame: object) -> None:
        """Send a text message: a string as it is, anything else as JSON."""
        await self._connection.send(frame if isinstance(frame, str) else json.dumps(frame))

    async def ask(self, given: object = "Say hello.", **fields: object) -> None:
        """Ask for a response."""
        await self.say({"type": "response.create", "model": self._target.model, "input": given, **fields})

    async def hear(self) -> Stream:
        """Messages up to the end of a response, or an error."""
        frames: list[Frame] = []
        while not frames or frames[-1].type not in (*TERMINAL, "error"):
            raw = await self._connection.recv(decode=False)
            frame = Frame(None, json.loads(raw), raw)
            if frame.type != "keepalive":
                frames.append(frame)
        return Stream(200, {}, frames, 0, 0)

    async def turn(self, given: object = "Say hello.", **fields: object) -> Stream:
        """Ask and hear."""
        await self.ask(given, **fields)
        return await self.hear()


@asynccontextmanager
async def _socket(target: Target) -> AsyncIterator[Socket]:
    """A connection. Raises: NotOffered when the handshake is refused."""
    url = f"{target.base_url.replace('http', 'ws', 1)}/responses"
    key = target.http.headers.get("authorization")
    headers = {} if key is None else {"authorization": key}
    try:
        connection = await connect(url, additional_headers=headers, max_size=None)
    except InvalidHandshake as refusal:
        raise NotOffered(str(refusal)) from refusal
    async with connection:
        yield Socket(target, connection)


def _without_repeats(types: Sequence[str]) -> list[str]:
    """Types of events, a run of deltas once: a text may come in any number of pieces."""
    return [kind for place, kind in enumerate(types) if not (kind.endswith(".delta") and kind == types[place - 1])]


def _error(stream: Stream, *, status: Sequence[int] = (400,), code: str | None = None) -> None:
    """One error message and nothing else."""
    equal(stream.types, ["error"], "what was heard")
    said = stream.frames[0].data
    refused(Answer(int(said.get("status", 0)), {}, said), status=status, code=code)
    expect(isinstance(said["error"]["code"], str), f"error.code is no string: {said}")


@group.check("socket", "Open Responses 2026-04-24: WebSocket mode, the events of the stream as text messages")
async def socket(target: Target) -> None:
    """A response's events are those of a stream, in the same order, numbered from 0; it is read again by its id."""
    async with _socket(target) as wire:
        heard = await wire.turn()
    numbered(heard)
    sent = streamed(await target.stream())
    equal(_without_repeats(heard.types), _without_repeats(sent.types), "types of the events")
    response = completed(heard.last)
    equal(ok(await target.get(f"/responses/{response['id']}"))["output"], response["output"], "output, read again")


@group.check("socket-tools", "Responses API guide: MCP tools; Open Responses 2026-04-24: WebSocket mode")
async def socket_tools(target: Target) -> None:
    """A run with a server's tool over the connection: list, call, message; numbered through."""
    tag = target.tools.tag()
    async with _socket(target) as wire:
        heard = await wire.turn(ECHO, tools=[server(target, tag)])
    numbered(heard)
    equal(kinds(completed(heard.last)), ["mcp_list_tools", "mcp_call", "message"], "output")
    equal(target.tools.calls(tag)["echo"], 1, "how often echo ran")


@group.check("socket-order", "Open Responses 2026-04-24: one response in flight per connection, turns in order")
async def socket_order(target: Target) -> None:
    """Two requests sent at once are answered one after the other, each whole."""
    async with _socket(target) as wire:
        await wire.ask()
        await wire.ask("Say goodbye.")
        first, second = await wire.hear(), await wire.hear()
    for heard in (first, second):
        numbered(heard)
        completed(heard.last)
        ids = {frame.data["response"]["id"] for frame in heard.frames if "response" in frame.data}
        equal(ids, {heard.last["id"]}, "ids within a response")
    expect(first.last["id"] != second.last["id"], "two responses with one id")


@group.check("socket-chain", "Open Responses 2026-04-24: a connection keeps its newest response")
async def socket_chain(target: Target) -> None:
    """`store: false` responses are continued on their connection, and are not readable over HTTP."""
    async with _socket(target) as wire:
        first = completed((await wire.turn("My name is Ada.", store=False)).last)
        second = completed((await wire.turn("Who am I?", store=False, previous_response_id=first["id"])).last)
        third = completed((await wire.turn("And I?", store=False, previous_response_id=second["id"])).last)
    equal(third["previous_response_id"], second["id"], "previous_response_id")
    for response in (first, second, third):
        refused(await target.get(f"/responses/{response['id']}"), status=(404,))


@group.check("socket-chain-stored", "Open Responses 2026-04-24: previous_response_id over a connection")
async def socket_chain_stored(target: Target) -> None:
    """A stored response is continued on any connection."""
    first = completed(ok(await target.create("My name is Ada.")))
    async with _socket(target) as wire:
        second = completed((await wire.turn("Who am I?", previous_response_id=first["id"])).last)
    listed = ok(await target.get(f"/responses/{second['id']}/input_items", order="asc"))["data"]
    equal([item["role"] for item in listed if item["type"] == "message"], ["user", "assistant", "user"], "roles")


@group.check("socket-stranger", "Open Responses 2026-04-24: previous_response_not_found on another connection")
async def socket_stranger(target: Target) -> None:
    """What was not stored is unknown to another connection, which goes on."""
    async with _socket(target) as wire, _socket(target) as other:
        first = completed((await wire.turn(store=False)).last)
        heard = await other.turn("And?", store=False, previous_response_id=first["id"])
        _error(heard, status=(400, 404), code="previous_response_not_found")
        completed((await other.turn()).last)


@group.check("socket-failed-continuation", "Open Responses 2026-04-24: a failed continuation evicts the response")
async def socket_failed_continuation(target: Target) -> None:
    """A continuation that is refused forgets what it continued, if only the connection had it."""
    output: JsonObject = {"type": "function_call_output", "call_id": "call_of_nobody", "output": "?"}
    async with _socket(target) as wire:
        first = completed((await wire.turn(store=False)).last)
        again = {"store": False, "previous_response_id": first["id"]}
        _error(await wire.turn([output], **again), status=(400, 404))
        _error(await wire.turn("And?", **again), status=(400, 404), code="previous_response_not_found")


@group.check("socket-bad-message", "openai.types.responses.ResponsesServerEvent: error; code is a string")
async def socket_bad_message(target: Target) -> None:
    """What is no JSON, no object, of no known type or has no model is answered as an error; the connection goes on."""
    async with _socket(target) as wire:
        for frame in ("{", "[1]", {"input": "Hello."}, {"type": "response.nonsense"}, {"type": "response.create"}):
            await wire.say(frame)
            _error(await wire.hear())
        completed((await wire.turn()).last)


@group.check("socket-background", "Open Responses 2026-04-24: background is not for a connection")
async def socket_background(target: Target) -> None:
    """`background` is refused as an error message."""
    async with _socket(target) as wire:
        _error(await wire.turn(background=True))
