"""The process that is measured: Outlast's API and worker, and the bare workflow's worker on the same client.

Commands come as lines on standard input, answers leave as JSON lines on standard output.
"""

import asyncio
import os
import sys
import time
import uuid
from contextlib import AsyncExitStack
from pathlib import Path

import uvloop
from temporalio import activity
from temporalio.client import Client
from temporalio.worker import Worker

from benchmarks.bare import BareWorkflow
from outlast import processes
from outlast.ports import open_ports
from outlast.protocol import json
from outlast.protocol.json import JsonObject
from outlast.sandbox import workflow_runner
from outlast.sections import TemporalSettings, UpstreamSettings
from outlast.settings import Settings

_QUEUE = "bare"


@activity.defn(name="Nothing")
async def nothing() -> float:
    """The clock."""
    return time.perf_counter()


async def _bare(client: Client) -> JsonObject:
    began = time.perf_counter()
    handle = await client.start_workflow(
        BareWorkflow.run, id=f"bare-{uuid.uuid4().hex}", task_queue=_QUEUE, request_eager_start=True
    )
    in_activity = await handle.result()
    return {"activity": in_activity - began, "complete": time.perf_counter() - began}


async def _answer(command: str, client: Client) -> JsonObject:
    match command:
        case "bare":
            return await _bare(client)
        case "cpu":
            return {"seconds": time.process_time()}
        case _:
            raise ValueError(command)


async def _serve(data_dir: Path, temporal: str, upstream: str) -> None:
    settings = Settings(
        data_dir=data_dir,
        port=0,
        upstreams={"bench": UpstreamSettings(base_url=upstream, dialect="responses")},
        temporal=TemporalSettings(address=temporal),
    )
    async with AsyncExitStack() as stack:
        opened = await open_ports(stack, settings, temporal=temporal, demo_url=None)
        await processes.work(opened, stack)
        worker = Worker(
            opened.client,
            task_queue=_QUEUE,
            workflows=[BareWorkflow],
            activities=[nothing],
            workflow_runner=workflow_runner(),
        )
        await stack.enter_async_context(worker)
        _say({"url": await processes.serve(opened, stack)})
        commands = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(commands), sys.stdin)
        async for line in commands:
            _say(await _answer(line.decode().strip(), opened.client))


def _say(answer: JsonObject) -> None:
    print(json.dumps_text(answer), flush=True)


def main() -> None:
    """`python -m benchmarks.subject DATA_DIR TEMPORAL UPSTREAM`, until standard input ends."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(Path(sys.argv[1]), sys.argv[2], sys.argv[3]))
    os._exit(0)


if __name__ == "__main__":
    main()
