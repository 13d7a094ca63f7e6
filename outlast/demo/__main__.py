"""`python -m outlast.demo`, or `make demo`: kill workers in the middle of tool calls, and check what is left.

Exit code: 0 when all checks hold, 1 when one does not, 130 after Ctrl-C or SIGTERM.
"""

import asyncio
import os
import signal
import sys

from outlast.demo import story
from outlast.demo.story_report import Report

_INTERRUPTED = 130


async def _run(report: Report) -> int:
    task = asyncio.current_task()
    assert task is not None
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, _cancel_once, task)
    try:
        await story.tell(report)
    except asyncio.CancelledError:
        report.say("Stopped.")
        return _INTERRUPTED
    report.summary()
    return report.exit_code


def _cancel_once(task: asyncio.Task[None]) -> None:
    # A second Ctrl-C does not cut the clean-up short.
    if not task.cancelling():
        task.cancel()


if __name__ == "__main__":
    code = asyncio.run(_run(Report(lambda line: print(line, flush=True))))
    sys.stderr.flush()
    # Temporal's client threads can abort the interpreter's own end.
    os._exit(code)
