"""Named points at which a process kills itself, for tests and the demo of crashes.

`OUTLAST_FAIL_POINT=name[:n]` in the environment, and nowhere else, SIGKILLs this process the n-th time the point is
reached (default the first), after one line on standard error that says so. Without it a point costs one comparison.

    after_marker              a tool call's started marker is committed, nothing is dispatched
    after_dispatch            the request was handed to the MCP server, no answer was read yet
    after_tool_before_commit  the tool answered, its result is not committed
    mid_stream                a part of a model round's events is committed
    after_commit_before_ack   a step is committed, Temporal does not know
    parked                    the asks are committed, the run is about to wait
"""

import os
import signal

AFTER_MARKER = "after_marker"
AFTER_DISPATCH = "after_dispatch"
AFTER_TOOL_BEFORE_COMMIT = "after_tool_before_commit"
MID_STREAM = "mid_stream"
AFTER_COMMIT_BEFORE_ACK = "after_commit_before_ack"
PARKED = "parked"

VARIABLE = "OUTLAST_FAIL_POINT"


def _armed() -> tuple[str, int]:
    name, _, count = os.environ.get(VARIABLE, "").partition(":")
    return name, int(count or 1)


_name, _remaining = _armed()


def hit(point: str) -> None:
    """Die here if this point is armed and was reached often enough."""
    global _remaining
    if point != _name:
        return
    _remaining -= 1
    if _remaining == 0:
        os.write(2, f"outlast: fail point {point} hit, killing pid {os.getpid()}\n".encode())
        os.kill(os.getpid(), signal.SIGKILL)
