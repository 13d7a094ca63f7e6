"""A scriptable MCP server that counts, and misbehaves on demand: plain asyncio, so that it can cut a connection.

    async with mcp_server({"add": Tool(lambda a: str(a["a"] + a["b"]))}) as server:
        ...  server.url, server.calls, server.lists

It speaks the handshake protocol (2025-11-25), with sessions unless told otherwise, and answers JSON or event streams.
`mode` may be changed while it runs; it is read when a `tools/call` (or, for the listing modes, a `tools/list`) arrives.
"""

import asyncio
import contextlib
import enum
import inspect
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

JsonObject = dict[str, Any]
# Text becomes a text block, a list is content blocks as they are, a dict is the whole result; raise ToolError to fail.
Run = Callable[[JsonObject], object | Awaitable[object]]


class ToolError(Exception):
    """Raised by a tool: the result is `isError` with this text."""


class Mode(enum.Enum):
    """How a `tools/call` or `tools/list` is answered; the tool runs where it says so, and in NORMAL."""

    NORMAL = enum.auto()
    HANG = enum.auto()  # no answer until `server.released` is set
    DIE = enum.auto()  # run the tool, then cut the connection
    CUT_BODY = enum.auto()  # run the tool, then cut in the middle of the answer
    SESSION_LOST_ONCE = enum.auto()  # 404, all sessions forgotten, then NORMAL; the call does not count
    MALFORMED = enum.auto()
    WRONG_TYPE = enum.auto()
    HTTP_503 = enum.auto()
    REDIRECT = enum.auto()
    RPC_ERROR = enum.auto()
    RAN_400 = enum.auto()  # run the tool, then answer 400 with an error of the tool's own about some session
    HUGE = enum.auto()  # `huge_bytes` of text
    ENDLESS_LIST = enum.auto()
    HUGE_LIST = enum.auto()


@dataclass(frozen=True)
class Tool:
    """One tool; `annotations` in wire spelling, None leaves the key out."""

    run: Run
    description: str = "A tool."
    schema: JsonObject = field(default_factory=lambda: {"type": "object", "properties": {}})
    annotations: JsonObject | None = None


@dataclass(frozen=True)
class Call:
    """A `tools/call` as it arrived."""

    tool: str
    arguments: JsonObject
    idempotency_key: str | None
    session: str | None


class McpTestServer:
    """What a test reads and sets."""

    def __init__(self, tools: Mapping[str, Tool], *, sessions: bool, sse: bool, page: int) -> None:
        self.tools = dict(tools)
        self.sse = sse
        self.mode = Mode.NORMAL
        self.released = asyncio.Event()
        # Cleared by a test: `initialize` is answered only when it is set again.
        self.started = asyncio.Event()
        self.started.set()
        self.huge_bytes = 2 << 20
        self.calls: list[Call] = []
        self.lists = 0
        self.initializes = 0
        self.cancelled: list[int] = []
        self.deleted: list[str] = []
        self.connections = 0
        self.open_connections = 0
        # Headers of every request, lower case.
        self.headers: list[dict[str, str]] = []
        self.port = 0
        self._sessions_on = sessions
        self._page = page
        self._live: set[str] = set()
        self._changed = asyncio.Condition()

    @property
    def url(self) -> str:
        """The endpoint."""
        return f"http://127.0.0.1:{self.port}/mcp"

    async def until(self, condition: Callable[["McpTestServer"], bool]) -> None:
        """Wait until something that arrived makes the condition true."""
        async with asyncio.timeout(10), self._changed:
            await self._changed.wait_for(lambda: condition(self))

    async def _tell(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, until either side ends it."""
        self.connections += 1
        self.open_connections += 1
        try:
            while (request := await _read_request(reader)) is not None:
                method, headers, body = request
                self.headers.append(headers)
                if not await self._http(method, headers, body, writer):
                    break
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            self.open_connections -= 1
            writer.close()
            await self._tell()

    async def _http(self, method: str, headers: dict[str, str], body: bytes, writer: asyncio.StreamWriter) -> bool:
        """Answer one HTTP request; False cuts the connection."""
        session = headers.get("mcp-session-id")
        if method == "DELETE":
            self.deleted.append(session or "")
            return await _reply(writer, 200, b"")
        if method != "POST":
            return await _reply(writer, 405, b"")
        message = json.loads(body)
        if "id" not in message:
            if message["method"] == "notifications/cancelled":
                self.cancelled.append(message["params"]["requestId"])
                await self._tell()
            return await _reply(writer, 202, b"")
        if message["method"] not in ("initialize", "server/discover") and self._lost(session):
            return await _reply(writer, 404, b'"session not found"')
        return await self._rpc(message, session, writer)

    def _lost(self, session: str | None) -> bool:
        if self.mode is Mode.SESSION_LOST_ONCE:
            self.mode = Mode.NORMAL
            self._live.clear()
        return self._sessions_on and session not in self._live

    async def _rpc(self, message: JsonObject, session: str | None, writer: asyncio.StreamWriter) -> bool:
        params = message.get("params") or {}
        match message["method"]:
            case "initialize":
                return await self._initialize(message, writer)
            case "tools/list":
                self.lists += 1
                return await self._result(message, self._listing(params.get("cursor")), writer)
            case "tools/call":
                return await self._call(message, params, session, writer)
            case other:
                error = {"code": -32601, "message": f"no method {other}"}
                return await self._answer({"jsonrpc": "2.0", "id": message["id"], "error": error}, writer)

    async def _initialize(self, message: JsonObject, writer: asyncio.StreamWriter) -> bool:
        self.initializes += 1
        await self._tell()
        await self.started.wait()
        result = {
            "protocolVersion": message["params"]["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "test", "version": "1"},
        }
        extra = {}
        if self._sessions_on:
            session = f"session-{self.initializes}"
            self._live.add(session)
            extra = {"mcp-session-id": session}
        return await self._result(message, result, writer, extra)

    def _listing(self, cursor: str | None) -> JsonObject:
        if self.mode is Mode.ENDLESS_LIST:
            return {"tools": [], "nextCursor": f"{self.lists}"}
        listed = [_definition(name, tool) for name, tool in self.tools.items()]
        if self.mode is Mode.HUGE_LIST:
            listed[0]["description"] = "x" * self.huge_bytes
        start = int(cursor or 0)
        page: JsonObject = {"tools": listed[start : start + self._page]}
        if start + self._page < len(listed):
            page["nextCursor"] = str(start + self._page)
        return page

    async def _call(
        self, message: JsonObject, params: JsonObject, session: str | None, writer: asyncio.StreamWriter
    ) -> bool:
        key = (params.get("_meta") or {}).get("outlast/idempotency-key")
        arguments = params.get("arguments") or {}
        self.calls.append(Call(params["name"], arguments, key, session))
        await self._tell()
        match self.mode:
            case Mode.HANG:
                await self.released.wait()
                return False
            case Mode.DIE:
                await self._run(params["name"], arguments)
                return False
            case Mode.CUT_BODY:
                await self._run(params["name"], arguments)
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 500\r\n\r\n{")
                await writer.drain()
                return False
            case Mode.MALFORMED:
                return await _reply(writer, 200, b'{"jsonrpc": "2.0", "id')
            case Mode.WRONG_TYPE:
                return await _reply(writer, 200, b"<h1>hello</h1>", {"content-type": "text/html"})
            case Mode.HTTP_503:
                return await _reply(writer, 503, b"away", {"content-type": "text/plain"})
            case Mode.REDIRECT:
                return await _reply(writer, 307, b"", {"location": "http://other.invalid/mcp"})
            case Mode.RPC_ERROR:
                error = {"code": -32602, "message": "no such tool"}
                return await self._answer({"jsonrpc": "2.0", "id": message["id"], "error": error}, writer)
            case Mode.RAN_400:
                await self._run(params["name"], arguments)
                error = {"code": -32000, "message": "the customer's checkout session has expired"}
                body = json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": error}).encode()
                return await _reply(writer, 400, body)
            case Mode.HUGE:
                result: JsonObject = {"content": [{"type": "text", "text": "x" * self.huge_bytes}]}
                return await self._result(message, result, writer)
            case _:
                return await self._result(message, await self._run(params["name"], arguments), writer)

    async def _run(self, name: str, arguments: JsonObject) -> JsonObject:
        try:
            value = self.tools[name].run(arguments)
            if inspect.isawaitable(value):
                value = await value
        except ToolError as error:
            return {"content": [{"type": "text", "text": str(error)}], "isError": True}
        if isinstance(value, dict):
            return value
        return {"content": value if isinstance(value, list) else [{"type": "text", "text": str(value)}]}

    async def _result(
        self,
        message: JsonObject,
        result: JsonObject,
        writer: asyncio.StreamWriter,
        extra: Mapping[str, str] | None = None,
    ) -> bool:
        return await self._answer({"jsonrpc": "2.0", "id": message["id"], "result": result}, writer, extra)

    async def _answer(
        self, payload: JsonObject, writer: asyncio.StreamWriter, extra: Mapping[str, str] | None = None
    ) -> bool:
        body = json.dumps(payload).encode()
        if not self.sse:
            return await _reply(writer, 200, body, extra)
        stream = b"event: message\ndata: " + body + b"\n\n"
        return await _reply(writer, 200, stream, {"content-type": "text/event-stream", **(extra or {})})


def _definition(name: str, tool: Tool) -> JsonObject:
    definition: JsonObject = {"name": name, "description": tool.description, "inputSchema": tool.schema}
    if tool.annotations is not None:
        definition["annotations"] = tool.annotations
    return definition


async def _read_request(reader: asyncio.StreamReader) -> tuple[str, dict[str, str], bytes] | None:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    lines = head.decode().split("\r\n")
    pairs = (line.split(":", 1) for line in lines[1:] if line)
    headers = {name.strip().lower(): value.strip() for name, value in pairs}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return lines[0].split(" ")[0], headers, body


async def _reply(
    writer: asyncio.StreamWriter, status: int, body: bytes, extra: Mapping[str, str] | None = None
) -> bool:
    headers = {"content-type": "application/json", "content-length": str(len(body)), **(extra or {})}
    head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    writer.write(f"HTTP/1.1 {status} X\r\n{head}\r\n".encode() + body)
    await writer.drain()
    return True


@contextlib.asynccontextmanager
async def mcp_server(
    tools: Mapping[str, Tool], *, sessions: bool = True, sse: bool = False, page: int = 50
) -> AsyncIterator[McpTestServer]:
    """A server on a free port of the loopback; `page`: tools per page of the listing."""
    server = McpTestServer(tools, sessions=sessions, sse=sse, page=page)
    connections: set[asyncio.Task[None]] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(server.serve(reader, writer))
        connections.add(task)
        task.add_done_callback(connections.discard)

    listener = await asyncio.start_server(accept, "127.0.0.1", 0, limit=1 << 24)
    server.port = listener.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listener.close()
        open_now = list(connections)
        for task in open_now:
            task.cancel()
        await asyncio.gather(*open_now, return_exceptions=True)
