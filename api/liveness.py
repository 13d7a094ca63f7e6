"""Whether anybody would run what is started now."""

from collections.abc import Callable

from outlast.protocol.errors import Unavailable
from outlast.store.port import Store

# A worker beats every 10 s; three missed beats and it counts as gone.
WORKER_SILENCE_SECONDS = 30.0
_CACHE_SECONDS = 1.0


class Liveness:
    """The `workers` table, read at most once a second: every foreground request asks."""

    def __init__(self, store: Store, clock: Callable[[], float]) -> None:
        self._store = store
        self._clock = clock
        self._alive = False
        self._read_at = float("-inf")

    async def workers(self) -> bool:
        """Whether a worker beat within 30 s."""
        now = self._clock()
        if not self._alive or now - self._read_at >= _CACHE_SECONDS:
            self._alive = await self._store.workers_alive(now - WORKER_SILENCE_SECONDS) > 0
            self._read_at = now
        return self._alive

    async def require(self) -> None:
        """Raises: Unavailable: a foreground request would hang."""
        if not await self.workers():
            raise Unavailable("No worker is running, so nothing would execute this. Try again soon.", retry_after=5)
