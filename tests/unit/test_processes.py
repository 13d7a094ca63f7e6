"""What a process does beside its work."""

import asyncio
import logging
from contextlib import AsyncExitStack

import pytest

from outlast import processes


async def test_a_background_task_that_dies_is_told_of_at_once(caplog: pytest.LogCaptureFixture) -> None:
    """Not when the process stops, which may be weeks later."""

    async def broken() -> None:
        raise RuntimeError("a bug")

    stack = AsyncExitStack()
    processes._background(stack, broken(), "sweeper")
    await asyncio.wait({task for task in asyncio.all_tasks() if task.get_name() == "sweeper"})
    assert caplog.record_tuples == [
        ("outlast.processes", logging.CRITICAL, "the sweeper of this process has died; restart it")
    ]
    with pytest.raises(RuntimeError):
        await stack.aclose()
