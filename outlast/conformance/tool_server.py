"""An MCP server of the suite's own, whose calls are counted per check.

Every check gets a path of its own (`/{tag}/mcp`), so that checks running side by side count apart. Requests are counted
where they arrive, in front of the protocol library.
"""

import itertools
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import mcp_types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from outlast.demo.serving import listen, running
from outlast.protocol import json
from outlast.protocol.json import JsonObject

_Context = ServerRequestContext[object]
_TEXT: JsonObject = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}

TOOLS = (
    mcp_types.Tool(
        name="echo",
        description="Repeats a text. Changes nothing.",
        input_schema=_TEXT,
        annotations=mcp_types.ToolAnnotations(read_only_hint=True, idempotent_hint=True, destructive_hint=False),
    ),
    mcp_types.Tool(
        name="publish",
        description="Publishes a text. It cannot be taken back.",
        input_schema=_TEXT,
        annotations=mcp_types.ToolAnnotations(read_only_hint=False, idempotent_hint=False, destructive_hint=True),
    ),
    mcp_types.Tool(name="breaks", description="Always fails.", input_schema=_TEXT),
)


class ToolServer:
    """`url(tag)` is a server with three tools; `calls(tag)` counts what was called there, lists under `list`."""

    def __init__(self, base_url: str) -> None:
        self.base_url = base_url
        self._counted: dict[str, Counter[str]] = {}
        self._numbers = itertools.count(1)

    def tag(self) -> str:
        """A new server's name."""
        return f"check{next(self._numbers)}"

    def url(self, tag: str) -> str:
        """Its address."""
        return f"{self.base_url}/{tag}/mcp"

    def calls(self, tag: str) -> Counter[str]:
        """Tool name -> how often it ran; `list`: how often the tools were listed."""
        return self._counted.setdefault(tag, Counter())

    def note(self, tag: str, raw: bytes) -> None:
        """Count a request."""
        try:
            request = json.loads(raw)
        except ValueError:
            return
        match request:
            case {"method": "tools/call", "params": {"name": str() as name}}:
                self.calls(tag)[name] += 1
            case {"method": "tools/list"}:
                self.calls(tag)["list"] += 1


@asynccontextmanager
async def tool_server(host: str) -> AsyncIterator[ToolServer]:
    """The server on a free port of an address that the server under test can reach."""
    server: Server[object] = Server(name="conformance", on_list_tools=_list, on_call_tool=_call)
    inner = server.streamable_http_app(json_response=True, stateless_http=True, host=host)
    counting = ToolServer("")
    async with running(_counted(counting, inner), listen(host, 0)) as url:
        counting.base_url = url
        yield counting


def _counted(counting: ToolServer, inner: ASGIApp) -> ASGIApp:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await inner(scope, receive, send)
            return
        tag, _, _ = scope["path"].strip("/").partition("/")
        raw = b""
        more = True
        while more:
            message = await receive()
            raw += message.get("body", b"")
            more = message.get("more_body", False)
        counting.note(tag, raw)
        await inner({**scope, "path": "/mcp", "raw_path": b"/mcp"}, _replaying(raw, receive), send)

    return app


def _replaying(raw: bytes, receive: Receive) -> Receive:
    pending = [raw]

    async def replay() -> Message:
        if pending:
            return {"type": "http.request", "body": pending.pop(), "more_body": False}
        return await receive()

    return replay


async def _list(_: _Context, __: mcp_types.PaginatedRequestParams | None) -> mcp_types.ListToolsResult:
    return mcp_types.ListToolsResult(tools=list(TOOLS))


async def _call(_: _Context, params: mcp_types.CallToolRequestParams) -> mcp_types.CallToolResult:
    text = str((params.arguments or {}).get("text", ""))
    if params.name == "breaks":
        return mcp_types.CallToolResult(content=[mcp_types.TextContent(text="it broke")], is_error=True)
    said = f"echo: {text}" if params.name == "echo" else f"published: {text}"
    return mcp_types.CallToolResult(content=[mcp_types.TextContent(text=said)])
