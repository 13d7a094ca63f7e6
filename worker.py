"""Composition root of a worker process: settings -> clients -> activities -> Worker.

`python worker.py` is `outlast worker`: a process that runs workflows and activities and serves no HTTP.
"""

import os
import sys
import uuid
from collections.abc import Awaitable, Callable
from datetime import timedelta

from temporalio.client import Client
from temporalio.worker import Worker

from activities.base import Deps
from activities.call_llm import CallLlmActivity
from activities.execute_tools import ExecuteToolsActivity
from activities.finish_response import LocalActivities
from activities.interrupt_for_approval import InterruptForApprovalActivity
from outlast.sandbox import workflow_runner
from workflows.response import ResponseWorkflow

# Model calls are I/O: many at once cost nothing but memory.
_SLOTS = 200


def activities_of(deps: Deps) -> list[Callable[..., Awaitable[object]]]:
    """Every activity, bound to its ports."""
    local = LocalActivities(deps)
    tools = ExecuteToolsActivity(deps)
    return [
        CallLlmActivity(deps).call_llm,
        tools.execute_tools,
        tools.fail_call,
        InterruptForApprovalActivity(deps).interrupt_for_approval,
        local.finish_response,
        local.decide_approval,
        local.read_gate,
        local.expire_asks,
        local.leave_park,
    ]


def create_worker(client: Client, task_queue: str, deps: Deps, *, cached_workflows: int = 1000) -> Worker:
    """A worker of the queue; use `async with`. `cached_workflows` 0: every task replays its history, for tests."""
    return Worker(
        client,
        task_queue=task_queue,
        workflows=[ResponseWorkflow],
        activities=activities_of(deps),
        workflow_runner=workflow_runner(),
        identity=f"outlast-{os.getpid()}@{uuid.uuid4().hex[:6]}",
        max_cached_workflows=cached_workflows,
        max_concurrent_activities=_SLOTS,
        # How long a run waits for a dead worker's cache before another one takes it (default 10 s).
        sticky_queue_schedule_to_start_timeout=timedelta(seconds=2),
        # A cancellation arrives with a heartbeat; the default throttle would hold it back for 8 s.
        max_heartbeat_throttle_interval=timedelta(seconds=1),
        default_heartbeat_throttle_interval=timedelta(seconds=1),
        graceful_shutdown_timeout=timedelta(seconds=5),
    )


if __name__ == "__main__":
    # The command line composes processes; importing it at the top would be a cycle.
    from outlast.cli import main

    main(["worker", *sys.argv[1:]])
