"""What the demo prints: chapters, what happens, what is checked, and how long a wait takes so far."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Sequence

_TICK_SECONDS = 2


class Report:
    """Lines for a reader, and the count of what did not hold. `write` takes one line."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write
        self._begun = time.monotonic()
        self._checked = 0
        self._failed: list[str] = []

    @property
    def exit_code(self) -> int:
        """0 when something was checked and all of it held."""
        return 0 if self._checked and not self._failed else 1

    def chapter(self, title: str) -> None:
        """A heading."""
        self._write("")
        self._write(f"== {title}")

    def say(self, text: str) -> None:
        """One thing that happened."""
        self._write(f"   {text}")

    def check(self, claim: str, holds: bool, seen: object) -> None:
        """Note whether a claim holds; `seen` is the evidence, printed either way."""
        self._checked += 1
        if not holds:
            self._failed.append(claim)
        self._write(f"   {'ok    ' if holds else 'FAILED'}  {claim}: {seen}")

    def broke(self, what: str, logs: Sequence[str]) -> None:
        """The story could not go on: a failure, with the last lines of the logs."""
        self._checked += 1
        self._failed.append(what)
        self._write(f"   FAILED  {what}")
        for line in logs:
            self._write(f"     | {line}")

    @contextlib.asynccontextmanager
    async def waiting(self, why: str) -> AsyncIterator[None]:
        """Around a wait: says why at once, and every two seconds that it still goes on."""
        self.say(f"... {why}")
        ticking = asyncio.create_task(self._tick())
        try:
            yield
        finally:
            ticking.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await ticking

    async def _tick(self) -> None:
        begun = time.monotonic()
        while True:
            await asyncio.sleep(_TICK_SECONDS)
            self.say(f"... {time.monotonic() - begun:.0f} s")

    def summary(self) -> None:
        """The last words: how many checks, how many failed, which."""
        seconds = time.monotonic() - self._begun
        self._write("")
        self._write(f"{self._checked} checks, {len(self._failed)} failed, {seconds:.0f} s.")
        for claim in self._failed:
            self._write(f"FAILED  {claim}")
