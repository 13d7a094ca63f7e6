"""A whole Outlast in this process, or in processes of its own, against a real Temporal: what integration tests use."""

import asyncio
import os
import re
import signal
import sys
import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from openai import AsyncOpenAI

from outlast import processes
from outlast.contracts import Timeouts
from outlast.demo.model import model_app
from outlast.demo.serving import running
from outlast.ports import Ports, open_ports
from outlast.sections import TemporalSettings, UpstreamSettings
from outlast.settings import Settings


def settings(
    data_dir: Path, temporal: str, *, queue: str | None = None, upstream: str | None = None, dialect: str = "responses"
) -> Settings:
    """Settings of one test: its own folder, queue and free ports."""
    upstreams = {} if upstream is None else {"test": UpstreamSettings(base_url=upstream, dialect=dialect)}
    return Settings(
        data_dir=data_dir,
        port=0,
        upstreams=upstreams,
        temporal=TemporalSettings(address=temporal, task_queue=queue or f"test-{uuid.uuid4().hex}"),
    )


@dataclass(frozen=True, slots=True)
class Outlast:
    """A running server. `url`: without `/v1`; `client`: the real openai client pointed at it, without retries."""

    url: str
    ports: Ports
    client: AsyncOpenAI


@asynccontextmanager
async def outlast(
    given: Settings, *, work: bool = True, desk: bool = True, timeouts: Timeouts | None = None
) -> AsyncIterator[Outlast]:
    """API and, unless told otherwise, a worker in this process, with the demo world beside them.

    `timeouts`: of the runs started here, whichever process works for them.
    """
    async with AsyncExitStack() as stack:
        demo_url = await stack.enter_async_context(running(model_app(word_delay=0)))
        opened = await open_ports(stack, given, temporal=given.temporal_address, demo_url=f"{demo_url}/v1")
        if timeouts is not None:
            opened = replace(opened, timeouts=timeouts)
        if work:
            await processes.work(opened, stack)
        url = await processes.serve(opened, stack, desk=desk)
        client = AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
        stack.push_async_callback(client.close)
        yield Outlast(url, opened, client)


class Process:
    """One `outlast` command as a process; its standard output is read line by line."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.lines: list[str] = []

    @classmethod
    async def start(
        cls, command: str, given: Settings, *, fail_point: str | None = None, env: Mapping[str, str] | None = None
    ) -> Self:
        """Start `outlast COMMAND` with these settings, given as environment; returns at once."""
        environment = {key: value for key, value in os.environ.items() if not key.startswith("OPENAI_")}
        environment |= _environment(given) | dict(env or {})
        environment["OUTLAST_DEMO_WORD_DELAY_MS"] = environment.get("OUTLAST_DEMO_WORD_DELAY_MS", "0")
        if fail_point is not None:
            environment["OUTLAST_FAIL_POINT"] = fail_point
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            "from outlast.cli import main; main()",
            command,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env=environment,
        )
        return cls(process)

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    async def line(self, pattern: str, *, timeout: float = 60) -> re.Match[str]:
        """The next line of output that matches. Raises: AssertionError with all output when the process ends first."""
        assert self._process.stdout is not None
        async with asyncio.timeout(timeout):
            async for raw in self._process.stdout:
                text = raw.decode().rstrip()
                self.lines.append(text)
                if found := re.search(pattern, text):
                    return found
        raise AssertionError(f"no line matches {pattern!r} in:\n" + "\n".join(self.lines))

    async def killed(self, point: str, *, timeout: float = 60) -> None:
        """Wait until the process has killed itself at this fail point."""
        await self.line(rf"fail point {point} hit", timeout=timeout)
        assert await self._process.wait() == -signal.SIGKILL

    async def kill(self) -> None:
        """SIGKILL it, unless it is gone."""
        await self._end(signal.SIGKILL)

    async def stop(self) -> None:
        """SIGTERM it and wait."""
        await self._end(signal.SIGTERM)

    async def _end(self, number: signal.Signals) -> None:
        if self._process.returncode is None:
            self._process.send_signal(number)
        # What is left in the pipe is read, or a full one would keep the process from ending.
        await self._process.communicate()


def _environment(given: Settings) -> dict[str, str]:
    values = {
        "OUTLAST_DATA_DIR": str(given.data_dir),
        "OUTLAST_PORT": str(given.port),
        "OUTLAST_TEMPORAL__ADDRESS": given.temporal_address,
        "OUTLAST_TEMPORAL__TASK_QUEUE": given.temporal.task_queue,
        "PYTHONUNBUFFERED": "1",
    }
    if given.mcp.servers:
        values["OUTLAST_MCP"] = given.mcp.model_dump_json(exclude_none=True)
    for name, upstream in given.upstreams.items():
        values[f"OUTLAST_UPSTREAMS__{name.upper()}__BASE_URL"] = upstream.base_url
        values[f"OUTLAST_UPSTREAMS__{name.upper()}__DIALECT"] = upstream.spoken_dialect
    return values
