"""All MCP servers of a process: the port over the official client, streamable HTTP.

Sessions are kept per address and credentials and shared by every run that speaks as the same principal. A call is sent
a second time only when the first surely did not reach the tool: the server no longer knew our session, a kept session
turned out dead before anything left, or the server refused the request's headers.
"""

import asyncio
import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import assert_never

import mcp_types
import pydantic
from mcp.client.session import ClientSession
from mcp.shared.exceptions import MCPError

from outlast.mcp import results
from outlast.mcp.base import (
    Annotations,
    ListFailed,
    NotDispatched,
    ServerRef,
    ToolOutcome,
    ToolSpec,
    ToolUnknown,
)
from outlast.mcp.session import Limits, Session
from outlast.mcp.wire import Exchange
from outlast.protocol import json
from outlast.protocol.json import JsonObject

IDEMPOTENCY_META_KEY = "outlast/idempotency-key"

_Key = tuple[str, bytes]
_RESULT: pydantic.TypeAdapter[mcp_types.CallToolResult | mcp_types.InputRequiredResult] = pydantic.TypeAdapter(
    mcp_types.CallToolResult | mcp_types.InputRequiredResult
)


@dataclass(frozen=True, slots=True)
class _Again:
    """The call surely did not reach the tool. `always`: a second try is due even if the session was new."""

    reason: str
    always: bool = False
    relist: bool = False


class McpClients:
    """Implements `McpPort`. Belongs to the event loop it is first used in.

    `on_dispatched` is called each time a tool call's request has left and nothing of its answer was read.
    """

    def __init__(self, limits: Limits | None = None, *, on_dispatched: Callable[[], None] | None = None) -> None:
        self._limits = limits if limits is not None else Limits()
        self._on_dispatched = on_dispatched
        self._sessions: dict[_Key, Session] = {}
        self._owners: set[asyncio.Task[None]] = set()

    async def list_tools(self, server: ServerRef, *, timeout: float) -> tuple[ToolSpec, ...]:
        """Every page of `tools/list`. `timeout`: seconds, for all of it. Raises: ListFailed."""
        deadline = asyncio.get_running_loop().time() + timeout
        try:
            listed = await self._list_once(server, deadline)
            if isinstance(listed, _Again):
                listed = await self._list_once(server, deadline)
        except TimeoutError:
            raise ListFailed(f"{server.label}: tools/list did not finish within {timeout:g} s") from None
        if isinstance(listed, _Again):
            raise ListFailed(f"{server.label}: {listed.reason}")
        return listed

    async def call(
        self,
        server: ServerRef,
        tool: str,
        arguments: JsonObject,
        *,
        idempotency_key: str,
        timeout: float,
        encoded_images: bool = False,
    ) -> ToolOutcome:
        """One `tools/call`. Raises: NotDispatched."""
        limits = self._limits
        most = limits.output + (limits.images * 4 // 3 if encoded_images else 0)
        deadline = asyncio.get_running_loop().time() + timeout
        params = mcp_types.CallToolRequestParams(
            name=tool, arguments=arguments, _meta={IDEMPOTENCY_META_KEY: idempotency_key}
        )
        request = mcp_types.CallToolRequest(params=params)
        session, fresh = self._session(server)
        outcome = await self._call_once(session, request, deadline, most)
        if isinstance(outcome, _Again) and (outcome.always or not fresh):
            if outcome.relist:
                await self._relist(server, deadline)
            session, _ = self._session(server)
            outcome = await self._call_once(session, request, deadline, most)
        if isinstance(outcome, _Again):
            raise NotDispatched(f"{server.label}: {outcome.reason}")
        return outcome

    async def aclose(self) -> None:
        """Close every session; whatever does not close in time is cancelled."""
        for session in list(self._sessions.values()):
            session.close()
        owners = set(self._owners)
        if not owners:
            return
        _, late = await asyncio.wait(owners, timeout=self._limits.close + 1)
        for owner in late:
            owner.cancel()
        if late:
            await asyncio.wait(late, timeout=1)

    def _session(self, server: ServerRef) -> tuple[Session, bool]:
        """The session to use, and whether it was opened for this call."""
        key = _key(server)
        if (kept := self._sessions.get(key)) is not None:
            return kept, False
        session = Session(server, self._limits, lambda retired: self._forget(key, retired))
        self._sessions[key] = session
        self._owners.add(session.owner)
        session.owner.add_done_callback(self._owners.discard)
        return session, True

    def _forget(self, key: _Key, session: Session) -> None:
        if self._sessions.get(key) is session:
            del self._sessions[key]

    async def _list_once(self, server: ServerRef, deadline: float) -> tuple[ToolSpec, ...] | _Again:
        """One listing; listing has no effect, so whatever a kept session met may be tried with a new one."""
        session, fresh = self._session(server)
        exchange = Exchange()
        try:
            return await session.run(self._every_page, exchange, deadline)
        except NotDispatched as error:
            if fresh:
                raise ListFailed(f"{server.label}: {error}") from None
            return _Again(str(error))
        except MCPError as error:
            if exchange.over_cap:
                raise ListFailed(
                    f"{server.label}: a page is over {self._limits.body} bytes, the cap per answer"
                ) from None
            reason = results.describe(results.from_error(error, exchange, max_body=self._limits.body))
            gone = _session_gone(error, exchange)
            if gone or exchange.failure is not None or exchange.status is None:
                session.retire()
                if gone or not fresh:
                    return _Again(reason)
            raise ListFailed(f"{server.label}: {reason}") from None
        except pydantic.ValidationError as error:
            raise ListFailed(f"{server.label}: the listing does not fit the MCP schema: {_first(error)}") from None

    async def _relist(self, server: ServerRef, deadline: float) -> None:
        """Let the session learn which arguments the server wants as headers (protocol 2026-07-28)."""
        try:
            await self.list_tools(server, timeout=deadline - asyncio.get_running_loop().time())
        except ListFailed as error:
            raise NotDispatched(str(error)) from None

    async def _every_page(self, client: ClientSession) -> tuple[ToolSpec, ...]:
        caps = self._limits
        specs: list[ToolSpec] = []
        size = 0
        cursor: str | None = None
        for _ in range(caps.tools):
            params = mcp_types.PaginatedRequestParams(cursor=cursor) if cursor is not None else None
            page = await client.list_tools(params=params)
            for tool in page.tools:
                size += len(json.dumps([tool.name, tool.description, tool.input_schema]))
                specs.append(_spec(tool))
            if len(specs) > caps.tools:
                raise ListFailed(f"the server lists more than {caps.tools} tools, the cap per server")
            if size > caps.definitions:
                raise ListFailed(f"the tool definitions are over {caps.definitions} bytes, the cap per server")
            cursor = page.next_cursor
            if not cursor:
                return tuple(specs)
        raise ListFailed(f"the listing does not end within {caps.tools} pages, the cap per server")

    async def _call_once(
        self, session: Session, request: mcp_types.CallToolRequest, deadline: float, most: int
    ) -> ToolOutcome | _Again:
        exchange = Exchange(on_dispatched=self._on_dispatched)
        try:
            result = await session.run(lambda client: client.send_request(request, _RESULT), exchange, deadline)
        except TimeoutError:
            if exchange.may_have_arrived:
                return ToolUnknown(reason="the tool did not answer before its deadline")
            raise NotDispatched("the server could not be reached before the deadline") from None
        except NotDispatched as error:
            return _Again(str(error))
        except MCPError as error:
            return self._failed(session, error, exchange)
        except pydantic.ValidationError as error:
            return results.protocol_error(mcp_types.PARSE_ERROR, f"{results.UNREADABLE}: {_first(error)}")
        match result:
            case mcp_types.CallToolResult():
                return results.from_result(result, max_output=most, max_images=self._limits.images)
            case mcp_types.InputRequiredResult():
                return results.execution_error("The tool asks for further input, which is not supported here.")
            case _:
                assert_never(result)

    def _failed(self, session: Session, error: MCPError, exchange: Exchange) -> ToolOutcome | _Again:
        if not exchange.may_have_arrived:
            session.retire()
            return _Again(exchange.failure or error.message)
        if _session_gone(error, exchange):
            session.retire()
            return _Again("the server does not know the session it gave us", always=True)
        if exchange.rpc_error and error.code == mcp_types.HEADER_MISMATCH:
            return _Again(error.message, always=True, relist=True)
        outcome = results.from_error(error, exchange, max_body=self._limits.body)
        if isinstance(outcome, ToolUnknown):
            session.retire()
        return outcome


def _key(server: ServerRef) -> _Key:
    """Address and credentials; the credentials hashed, so that no dump of the pool shows them."""
    headers = sorted((name.lower(), value) for name, value in server.headers.items())
    return server.url, hashlib.sha256(json.dumps(headers)).digest()


def _session_gone(error: MCPError, exchange: Exchange) -> bool:
    """The server refused the session before it looked at the call: 404 by the specification, 400 of some servers."""
    if not exchange.had_session:
        return False
    if exchange.status == 400:
        # Not every error that speaks of a session: a tool that ran may mean one of its own.
        said = error.message.lower()
        return "session id" in said or "session not found" in said
    return exchange.status == 404


def _spec(tool: mcp_types.Tool) -> ToolSpec:
    hints = tool.annotations
    if hints is None:
        return ToolSpec(tool.name, tool.description, tool.input_schema, Annotations())
    return ToolSpec(
        name=tool.name,
        description=tool.description,
        input_schema=tool.input_schema,
        annotations=Annotations(
            read_only=hints.read_only_hint, idempotent=hints.idempotent_hint, destructive=hints.destructive_hint
        ),
        raw_annotations=hints.model_dump(by_alias=True, mode="json", exclude_unset=True),
    )


def _first(error: pydantic.ValidationError) -> str:
    """Where the first misfit is, without the value: error texts travel to clients."""
    detail = error.errors(include_input=False, include_url=False)[0]
    return f"{'.'.join(str(part) for part in detail['loc'])}: {detail['msg']}"
