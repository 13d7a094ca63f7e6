"""One session with one server as one principal, owned by one task.

anyio's cancel scopes must be entered and left in the same task, so a task of its own opens the session, waits, and
closes it; calls run in tasks of their own beside it. A call whose time is up is cancelled but never awaited: the
client shields a last write for seconds, and our deadline is a promise.

A session that met anything odd (a deadline, a cancelled call, a cut connection) is retired: it takes no new call and
closes with its last one, because the client leaves an abandoned request of the older protocol open on the connection.
"""

import asyncio
import contextlib
import contextvars
import functools
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from importlib import metadata
from typing import TypeVar

import httpx2
import mcp_types
from mcp import Client
from mcp.client.session import ClientSession
from mcp.client.streamable_http import streamable_http_client

from outlast.mcp import wire
from outlast.mcp.base import NotDispatched, ServerRef
from outlast.mcp.wire import Exchange

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Limits:
    """Times in seconds, sizes in bytes."""

    idle: float = 60.0
    open: float = 10.0
    close: float = 2.0
    tools: int = 128
    definitions: int = 1 << 20
    output: int = 1 << 20
    # Of all images of one call.
    images: int = 8 << 20
    # One whole answer, base64 images included.
    body: int = 16 << 20


class Session:
    """Opened at once, in the background. `on_retired` is called once, when it takes no more calls."""

    def __init__(self, server: ServerRef, limits: Limits, on_retired: Callable[["Session"], None]) -> None:
        self._server = server
        self._limits = limits
        self._on_retired = on_retired
        self._client: ClientSession | None = None
        self._refusal = "the session is closed"
        self._settled = asyncio.Event()
        self._stop = asyncio.Event()
        self._calls: set[asyncio.Task[object]] = set()
        self._idle: asyncio.TimerHandle | None = None
        self.retired = False
        # An empty context: the opening request's own variables must not live as long as the session.
        self.owner = asyncio.create_task(self._own(), name=f"mcp-{server.label}", context=contextvars.Context())

    async def run(self, operation: Callable[[ClientSession], Awaitable[T]], exchange: Exchange, deadline: float) -> T:
        """Run `operation` on the open session; `deadline` in loop time.

        Raises: TimeoutError, NotDispatched (never opened), what the client raises.
        """
        task = asyncio.create_task(self._operate(operation, exchange))
        self._begin(task)
        try:
            done, _ = await asyncio.wait({task}, timeout=deadline - asyncio.get_running_loop().time())
        except asyncio.CancelledError:
            self._abandon(task)
            raise
        if not done:
            self._abandon(task)
            raise TimeoutError
        return task.result()

    def retire(self) -> None:
        """Take no more calls; close as soon as none is left."""
        if not self.retired:
            self.retired = True
            self._on_retired(self)
        if not self._calls:
            self._stop.set()

    def close(self) -> None:
        """Close now: calls in flight end with their connection."""
        self.retire()
        self._stop.set()

    async def _operate(self, operation: Callable[[ClientSession], Awaitable[T]], exchange: Exchange) -> T:
        await self._settled.wait()
        if self._client is None:
            raise NotDispatched(self._refusal)
        wire.current.set(exchange)
        return await operation(self._client)

    def _begin(self, task: asyncio.Task[T]) -> None:
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None
        self._calls.add(task)
        task.add_done_callback(self._end)

    def _end(self, task: asyncio.Task[T]) -> None:
        if not task.cancelled():
            # Read, or asyncio reports the error of an abandoned call as lost.
            task.exception()
        self._calls.discard(task)
        if self._calls:
            return
        if self.retired:
            self._stop.set()
        else:
            self._idle = asyncio.get_running_loop().call_later(self._limits.idle, self.retire)

    def _abandon(self, task: asyncio.Task[T]) -> None:
        # The task goes on for a moment: it still tells the server that nobody waits. The session closes after it.
        task.cancel()
        self.retire()

    async def _own(self) -> None:
        opening = Exchange()
        wire.current.set(opening)
        try:
            await self._serve(opening)
        except asyncio.CancelledError:
            # Only aclose() cancels this task, after its patience.
            raise
        except Exception as error:  # noqa: BLE001  # whatever ends a session ends only the session; calls see it closed
            self._refusal = self._explain(opening, error)
        finally:
            self._client = None
            self._settled.set()
            if self._idle is not None:
                self._idle.cancel()
            self.retire()

    async def _serve(self, opening: Exchange) -> None:
        async with contextlib.AsyncExitStack() as stack:
            http = await stack.enter_async_context(self._http())
            transport = streamable_http_client(self._server.url, http_client=http, max_sse_event_size=None)
            async with asyncio.timeout(self._limits.open):
                client = await stack.enter_async_context(Client(transport, cache=None, client_info=_us()))
            self._client = client.session
            self._settled.set()
            await self._stop.wait()
            self._client = None
            # Bounded as opening is: a hung server must not keep this task.
            async with asyncio.timeout(self._limits.close):
                await stack.aclose()

    def _http(self) -> httpx2.AsyncClient:
        # Without accept-encoding a body is as long as it is; redirects leave the origin only by the client's rule.
        headers = {**self._server.headers, "accept-encoding": "identity"}
        secure = self._server.url.lower().startswith("https:")
        transport = wire.Wire(secure=secure, max_body=self._limits.body, connect_seconds=self._limits.open)
        return httpx2.AsyncClient(transport=transport, headers=headers, follow_redirects=False)

    def _explain(self, opening: Exchange, error: Exception) -> str:
        if self._client is not None:
            return "the connection to the server was lost"
        if opening.failure is not None:
            return f"could not connect: {opening.failure}"
        if isinstance(error, TimeoutError):
            return f"the server did not initialise within {self._limits.open:g} s"
        if opening.status is not None and opening.status >= 300 and not opening.rpc_error:
            return f"could not initialise: HTTP {opening.status} {opening.reason}".rstrip()
        return f"could not initialise: {_innermost(error)}"


def _innermost(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}"


@functools.cache
def _us() -> mcp_types.Implementation:
    try:
        version = metadata.version("outlast")
    except metadata.PackageNotFoundError:
        version = "unreleased"  # a checkout that is not installed
    return mcp_types.Implementation(name="outlast", version=version)
