"""Make a Temporal development server forget everything."""

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable

from outlast import temporal
from outlast.devserver import DevServer
from outlast.protocol.errors import ConfigurationError, Unavailable


async def until(condition: Callable[[], Awaitable[bool]], seconds: float = 60) -> None:
    """Wait for state that another process changes."""
    async with asyncio.timeout(seconds):
        while not await condition():  # noqa: ASYNC110  # another process changes it
            await asyncio.sleep(0.02)


async def lose(server: DevServer) -> None:
    """Delete its file, kill it, and wait until it is back, empty."""
    killed = server.pid
    assert killed is not None
    for suffix in ("", "-wal", "-shm"):
        server.file.with_name(server.file.name + suffix).unlink(missing_ok=True)
    os.kill(killed, signal.SIGKILL)

    async def back() -> bool:
        if server.pid in (killed, None):
            return False
        try:
            await temporal.ensure_search_attributes(await temporal.connect(server.address))
        except (Unavailable, ConfigurationError):
            return False
        return True

    await until(back)
