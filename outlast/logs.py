"""Logging of a process: one line for what is expected to go wrong, a stack for what is not.

The SDK logs every failed activity with its stack, uvicorn every request it cuts at the end. A refused model call, a
cancelled activity and a Ctrl-C are everyday events, and their stacks would bury the ones that tell of a bug.
"""

import asyncio
import logging

from temporalio.exceptions import ApplicationError, CancelledError

_EXPECTED = (ApplicationError, CancelledError, asyncio.CancelledError)
# Content must not reach the log: they write URLs, session ids and bodies below WARNING (mcp, httpx) or of answers
# nobody could read.
_NOISY = ("httpx", "httpx2", "mcp")


class WithoutExpectedStacks(logging.Filter):
    """Drops the stack, not the line, of an expected exception."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Always true: nothing is hidden."""
        if record.exc_info and isinstance(record.exc_info[1], _EXPECTED):
            record.exc_info = None
            record.exc_text = None
        return True


def configure(level: str) -> None:
    """Log to standard error from `level` on, e.g. `WARNING`."""
    logging.basicConfig(level=level.upper(), format="%(asctime)s %(levelname)s %(name)s %(message)s")
    for handler in logging.getLogger().handlers:
        handler.addFilter(WithoutExpectedStacks())
    for name in _NOISY:
        logging.getLogger(name).setLevel(logging.WARNING)
