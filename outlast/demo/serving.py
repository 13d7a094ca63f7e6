"""Serve an ASGI app in the running event loop, for as long as a `with` block lasts."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Iterator

import uvicorn
from starlette.types import ASGIApp

_GRACE_SECONDS = 1


class _Embedded(uvicorn.Server):
    """A server that leaves signals to its host and says when it listens."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.listening = asyncio.Event()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Ctrl-C belongs to the process, not to one of its servers."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """As the base, which would end the whole process on a failure, then tell the waiter."""
        try:
            await super().startup(sockets)
        except SystemExit:
            raise RuntimeError("the application did not start; its log says why") from None
        self.listening.set()


@contextlib.asynccontextmanager
async def running(
    app: ASGIApp, listener: socket.socket | None = None, *, max_message: int = 16 * 1024 * 1024
) -> AsyncIterator[str]:
    """Yields the base URL, without a slash at its end. `listener`: of `listen`; None: a free port of the loopback.
    `max_message`: bytes of a WebSocket message; a larger one closes its connection with 1009.

    Connections still open at the end get a second. Raises: RuntimeError (the app's own start-up failed).
    """
    if listener is None:
        listener = listen("127.0.0.1", 0)
    # Logging is the host's business: uvicorn's own configuration would replace handlers of the whole process.
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        ws="websockets-sansio",
        ws_max_size=max_message,
        timeout_graceful_shutdown=_GRACE_SECONDS,
    )
    server = _Embedded(config)
    task = asyncio.create_task(server.serve(sockets=[listener]), name="embedded-server")
    listening = asyncio.create_task(server.listening.wait())
    try:
        await asyncio.wait({task, listening}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            host, port, *_ = listener.getsockname()
            shown = f"[{host}]" if ":" in host else host
            yield f"http://{shown}:{port}"
    finally:
        listening.cancel()
        server.should_exit = True
        try:
            await task
        finally:
            listener.close()


def listen(host: str, port: int) -> socket.socket:
    """A listening socket, as `socket.create_server`'s, but of the protocol TCP by name. Port 0: a free one.

    Raises: OSError, when the port is taken or the address is not ours.

    asyncio turns Nagle's algorithm off only for sockets that say so; with 0 there, as `create_server` leaves it, every
    answer of two writes on a kept connection waits 40 ms for a delayed acknowledgement.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen()
    except BaseException:
        listener.close()
        raise
    return listener
