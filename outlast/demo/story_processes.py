"""The world of the demo: a folder, Temporal, an API, a support desk, and workers one after the other, to be killed."""

import asyncio
import contextlib
import os
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Self

from outlast.demo.desk import desk_app
from outlast.demo.serving import running
from outlast.demo.story_client import Client
from outlast.demo.story_report import Report
from outlast.devserver import DevServer
from outlast.protocol import json
from outlast.protocol.json import JsonObject
from outlast.temporal import connect

_READY = b" serves "
_POLLS = b" polls "
_STOP_SECONDS = 8
_LOOK_SECONDS = 0.05
_LOG_LINES = 8
# A demo must not depend on what its reader has set, and never reaches a real model.
_FOREIGN = ("OPENAI_", "OUTLAST_", "TEMPORAL_")


class Process:
    """One `outlast` command, in a session of its own: Ctrl-C reaches the demo, which ends its processes in order."""

    def __init__(self, process: asyncio.subprocess.Process, log: Path) -> None:
        self._process = process
        self._log = log

    @classmethod
    async def start(cls, arguments: Sequence[str], folder: Path, log: Path) -> Self:
        """Start it; standard error goes to `log`."""
        with log.open("ab") as errors:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "outlast", *arguments),
                cwd=folder,
                env=_environment(os.environ),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
            )
        return cls(process, log)

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    async def said(self, words: bytes) -> str:
        """The first line of output with these words. Raises: RuntimeError when the process ends before."""
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            if words in line:
                return line.decode().strip()
        code, said = await self._process.wait(), self._log.read_text(errors="replace").strip()
        raise RuntimeError(f"process {self.pid} ended with code {code} before it was ready: {said}")

    async def finished(self) -> tuple[int, str]:
        """Its exit code and what it printed."""
        output, _ = await self._process.communicate()
        return await self._process.wait(), output.decode().strip()

    async def kill(self) -> None:
        """SIGKILL: no clean-up, no last words."""
        self._process.send_signal(signal.SIGKILL)
        await self._process.wait()

    async def stop(self) -> None:
        """SIGTERM, and SIGKILL when that takes too long."""
        if self._process.returncode is not None:
            return
        self._process.terminate()
        try:
            async with asyncio.timeout(_STOP_SECONDS):
                await self._process.wait()
        except TimeoutError:
            await self.kill()


class World:
    """Everything that runs during the story. Built by `open_world`."""

    def __init__(self, folder: Path, report: Report, temporal: DevServer) -> None:
        self._folder = folder
        self._report = report
        self._temporal = temporal
        self._processes: list[Process] = []
        self._worker: Process | None = None
        self.api_url = self.desk_url = ""

    @property
    def ui_url(self) -> str:
        """Temporal's UI, up while the demo runs."""
        return self._temporal.ui_url

    async def start_api(self) -> None:
        """Start the process clients talk to."""
        process = await self._start("api", "api", "--port", "0")
        line = await process.said(_READY)
        self.api_url = line.rsplit(" ", 1)[-1].removesuffix("/v1")
        self._report.say(f"API       pid {process.pid}  {self.api_url}")

    async def start_worker(self) -> int:
        """Start a process that executes runs; its pid, when it polls for work."""
        number = sum(1 for log in self._folder.glob("worker-*.log")) + 1
        process = await self._start(f"worker-{number}", "worker")
        await process.said(_POLLS)
        self._report.say(f"worker    pid {process.pid}  polls Temporal for work")
        self._worker = process
        return process.pid

    async def kill_worker(self) -> int:
        """SIGKILL the worker there is; its pid."""
        assert self._worker is not None
        await self._worker.kill()
        self._report.say(f"SIGKILL   pid {self._worker.pid}: the only worker is dead, its answer is lost")
        return self._worker.pid

    async def command(self, *arguments: str) -> str:
        """Run `outlast ARGUMENTS` as from another shell and show it. Raises: RuntimeError when it fails."""
        self._report.say(f"$ outlast {' '.join(arguments)}")
        process = await self._launch("command", arguments)
        code, output = await process.finished()
        for line in output.splitlines():
            self._report.say(f"  {line}")
        if code != 0:
            raise RuntimeError(f"`outlast {arguments[0]}` ended with code {code}")
        return output

    def client(self) -> Client:
        """A client of the API."""
        return Client(self.api_url)

    def written(self, name: str, order_id: int) -> list[JsonObject]:
        """The desk's lines about an order: `ledger` for money paid back, `lookups` for looks."""
        path = self._folder / f"{name}.jsonl"
        lines = path.read_bytes().splitlines() if path.exists() else []
        return [line for line in map(json.loads, lines) if line["order_id"] == order_id]

    async def until_written(self, name: str, order_id: int) -> None:
        """Return when the desk has written such a line."""
        while not self.written(name, order_id):  # noqa: ASYNC110  # the desk tells nobody but its file
            await asyncio.sleep(_LOOK_SECONDS)

    @contextlib.contextmanager
    def held(self, tool: str) -> Iterator[None]:
        """Inside, the desk does the tool's work but keeps its answer back."""
        hold = self._folder / f"hold-{tool}"
        hold.touch()
        try:
            yield
        finally:
            hold.unlink()

    async def worker_pids(self, workflow_id: str) -> set[int]:
        """Which processes completed activities of a run, from Temporal's history."""
        client = await connect(self._temporal.address, "default")
        history = await client.get_workflow_handle(workflow_id).fetch_history()
        names = [
            event.activity_task_started_event_attributes.identity
            for event in history.events
            if event.HasField("activity_task_started_event_attributes")
        ]
        return {int(name.removeprefix("outlast-").partition("@")[0]) for name in names}

    def last_words(self) -> list[str]:
        """The end of every log, for a reader whose demo broke."""
        found = []
        for log in sorted(self._folder.glob("*.log")):
            lines = log.read_text(errors="replace").splitlines()[-_LOG_LINES:]
            found += [f"{log.name}: {line}" for line in lines]
        return found

    async def stop(self) -> None:
        """End every process."""
        await asyncio.gather(*(process.stop() for process in self._processes))

    async def _start(self, name: str, command: str, *flags: str) -> Process:
        port = self._temporal.address.rpartition(":")[2]
        return await self._launch(
            name, (command, *flags, "--temporal-port", port, "--data-dir", str(self._folder / "data"))
        )

    async def _launch(self, name: str, arguments: Sequence[str]) -> Process:
        process = await Process.start(arguments, self._folder, self._folder / f"{name}.log")
        self._processes.append(process)
        return process


@contextlib.asynccontextmanager
async def open_world(report: Report) -> AsyncIterator[World]:
    """Start all of it in a temporary folder, on free ports; end all of it on the way out, whatever happened."""
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="outlast-demo-")))
        async with report.waiting("starting Temporal, then an API and a worker, as processes of their own"):
            temporal = await stack.enter_async_context(DevServer(folder / "temporal", port=0, ui_port=0))
            world = World(folder, report, temporal)
            report.say(f"Temporal  pid {temporal.pid}  {temporal.ui_url} (its UI, while this runs)")
            stack.push_async_callback(world.stop)
            world.desk_url = await stack.enter_async_context(running(desk_app(folder))) + "/mcp"
            report.say(f"desk      pid {os.getpid()}  {world.desk_url} (MCP server; in this process, it stays alive)")
            async with asyncio.TaskGroup() as group:
                group.create_task(world.start_api())
                group.create_task(world.start_worker())
        yield world


def _environment(ours: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in ours.items() if not name.startswith(_FOREIGN)}
