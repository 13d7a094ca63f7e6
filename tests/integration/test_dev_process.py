"""`outlast dev` as a process: what it prints works as printed, it ends cleanly, and it starts again after SIGKILL."""

import asyncio
import json
import os
import re
import shutil
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Self

import httpx
import pytest
from openai import AsyncOpenAI
from openai.types.responses.tool_param import Mcp
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from outlast.demo.serving import running
from outlast.devserver import DevServer
from outlast.netaddr import free_port, is_taken

# Each starts several processes of some seconds.
pytestmark = pytest.mark.timeout(240)
ROOT = Path(__file__).parents[2]
# An end takes two seconds, a start that is refused five, more on a busy machine; a hang is what this finds.
_END_SECONDS = 60


class Command:
    """A process whose output is read line by line; killed at the end of `async with` when it still runs."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._lines: list[str] = []

    @classmethod
    async def start(cls, *argv: str, cwd: Path) -> Self:
        """Start it with none of our own settings in its environment."""
        ours = {name: value for name, value in os.environ.items() if not name.startswith(("OPENAI_", "OUTLAST_"))}
        process = await asyncio.create_subprocess_exec(
            *argv, cwd=cwd, env=ours, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
        return cls(process)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._process.returncode is None:
            self.send(signal.SIGKILL)
            await self._process.communicate()

    @property
    def output(self) -> str:
        """What was read so far."""
        return "".join(self._lines)

    def send(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self._process.send_signal(number)

    def children(self) -> list[int]:
        """The processes it started that are there."""
        pid = self._process.pid
        found = Path(f"/proc/{pid}/task").glob("*/children")
        return [int(child) for tasks in found for child in tasks.read_text().split()]

    async def until(self, words: str) -> str:
        """All output up to the first line with these words. Raises: AssertionError when the process ends before."""
        assert self._process.stdout is not None
        async with asyncio.timeout(60):
            async for line in self._process.stdout:
                self._lines.append(line.decode())
                if words in self._lines[-1]:
                    return self.output
        raise AssertionError(f"{words!r} is not in:\n{self.output}")

    async def ended(self) -> int:
        """Its exit code, soon. Raises: TimeoutError."""
        async with asyncio.timeout(_END_SECONDS):
            rest, _ = await self._process.communicate()
        self._lines.append(rest.decode())
        assert self._process.returncode is not None
        return self._process.returncode


class Dev:
    """Ports and a folder, on which `outlast dev` can be started more than once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.api, self.temporal, self.ui = free_port(), free_port(), free_port()

    @property
    def url(self) -> str:
        """Of the API, without `/v1`."""
        return f"http://127.0.0.1:{self.api}"

    async def start(self, *flags: str) -> Command:
        """Start it; returns at once."""
        ports = ("--port", str(self.api), "--temporal-port", str(self.temporal), "--ui-port", str(self.ui))
        return await Command.start(
            *(sys.executable, "-m", "outlast", "dev", *ports, "--data-dir", str(self.folder / "data"), *flags),
            cwd=self.folder,
        )

    def taken(self) -> list[int]:
        """Which of its ports somebody listens on."""
        return [port for port in (self.api, self.temporal, self.ui) if is_taken(port)]


@pytest.fixture
def dev(tmp_path: Path) -> Dev:
    """A folder with a space in its path."""
    folder = tmp_path / "my folder"
    folder.mkdir()
    return Dev(folder)


def _runs(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def _snippets(output: str) -> list[str]:
    """The commands in a banner: curl with its second line, the two of the second terminal, Python with its document."""
    # A path with a space is quoted.
    pattern = r"^curl .*\n  -d .*|^\S.*outlast'? approvals .*|^\S.*python'? - <<'EOF'\n(?s:.*?)\nEOF$"
    return re.findall(pattern, output, re.MULTILINE)


async def _shell(command: str, cwd: Path) -> str:
    process = await Command.start("bash", "-euo", "pipefail", "-c", command, cwd=cwd)
    code = await process.ended()
    assert code == 0, process.output
    return process.output


async def _asked(command: str, cwd: Path) -> str:
    """Run the printed list command until somebody asks; the id it shows."""
    async with asyncio.timeout(30):
        while not (found := re.search(r"^mcpr_\w+", await _shell(command, cwd))):  # noqa: ASYNC110  # as a human does
            await asyncio.sleep(0.2)
    return found[0]


@pytest.mark.skipif(shutil.which("curl") is None, reason="the snippet is for curl")
async def test_what_it_prints_works_as_printed_and_ctrl_c_ends_all_of_it(dev: Dev) -> None:
    """curl waits at the refund, the printed commands approve it, curl goes on; the openai snippet asks and refunds."""
    async with await dev.start() as process:
        output = await process.until("Ctrl-C")
        for url in (f"{dev.url}/v1", f"http://127.0.0.1:{dev.ui}", f"{dev.url}/demo/mcp"):
            assert re.search(rf" {url}( |$)", output, re.MULTILINE), output
        curl, listing, approve, python = _snippets(output)

        streaming = asyncio.create_task(_shell(curl, dev.folder))
        ask = await _asked(listing, dev.folder)
        assert f"{ask}: approved by local" in await _shell(approve.replace("approve ID", f"approve {ask}"), dev.folder)
        assert (await streaming).rstrip().endswith("data: [DONE]")
        assert "Done. Refunded 129.50 EUR for order 1042" in await streaming

        said = await _shell(python, dev.folder)
        assert re.search(r'^asks to run refund_order \{"order_id":1042.*\}$', said, re.MULTILINE)
        assert "Done. Refunded 129.50 EUR for order 1042" in said

        async with httpx.AsyncClient() as browser:
            assert (await browser.get(f"http://127.0.0.1:{dev.ui}")).status_code == 200
        children = process.children()
        assert len(children) == 1, "Temporal's server"
        process.send(signal.SIGINT)
        assert await process.ended() == 0, process.output
        assert "Traceback" not in process.output
        assert [pid for pid in children if _runs(pid)] == []
        assert dev.taken() == []


async def _park(client: AsyncOpenAI, dev: Dev) -> tuple[str, str]:
    """Ask for a refund; ids of the response that ended with the question, and of the question."""
    tool: Mcp = {
        "type": "mcp",
        "server_label": "desk",
        "server_url": f"{dev.url}/demo/mcp",
        "require_approval": {"never": {"tool_names": ["lookup_order"]}},
    }
    first = await client.responses.create(model="demo", input="Refund order 1044", tools=[tool])
    ask = first.output[-1]
    assert ask.type == "mcp_approval_request"
    return first.id, ask.id


async def test_after_sigkill_it_starts_again_on_the_same_ports_and_an_old_question_is_still_decidable(dev: Dev) -> None:
    """The parent gets no chance to clean up; its successor takes over ports, folder and the parked run."""
    async with AsyncOpenAI(base_url=f"{dev.url}/v1", api_key="none", max_retries=0) as client:
        async with await dev.start() as process:
            await process.until("Ctrl-C")
            first, ask = await _park(client, dev)
            process.send(signal.SIGKILL)
            assert await process.ended() == -signal.SIGKILL
        async with await dev.start() as process:
            await process.until("Ctrl-C")
            second = await client.responses.create(
                model="demo",
                previous_response_id=first,
                input=[{"type": "mcp_approval_response", "approval_request_id": ask, "approve": True}],
            )
            assert second.status == "completed"
            assert second.output_text.startswith("Done. Refunded 84.90 EUR for order 1044")
            process.send(signal.SIGTERM)
            assert await process.ended() == 0, process.output
    ledger = (dev.folder / "data" / "ledger.jsonl").read_text().splitlines()
    assert [json.loads(line)["order_id"] for line in ledger] == [1044]
    assert dev.taken() == []


@pytest.mark.parametrize(("which", "flag"), [("api", "--port"), ("temporal", "--temporal-port"), ("ui", "--ui-port")])
async def test_a_taken_port_is_named_and_nothing_is_left_running(dev: Dev, which: str, flag: str) -> None:
    """One line that says which port and which flag chooses another, exit code 1, the other ports free."""
    port = getattr(dev, which)
    with socket.create_server(("127.0.0.1", port)):
        async with await dev.start() as process:
            assert await process.ended() == 1
            assert re.search(rf"^outlast: .*\bport {port}\b.* is taken .* {flag}$", process.output, re.MULTILINE)
            assert "Traceback" not in process.output
        assert dev.taken() == [port]


async def test_an_upstream_that_is_its_own_address_is_refused_at_the_start(dev: Dev) -> None:
    """An endless loop in waiting: exit code 1 before anything is started, whatever the spelling."""
    async with await dev.start("--upstream", f"http://localhost:{dev.api}/v1") as process:
        assert await process.ended() == 1
        assert re.search(rf"^outlast: upstream .*http://localhost:{dev.api}/v1.* this server", process.output)
        assert process.output.count("\n") == 1


@asynccontextmanager
async def _upstream() -> AsyncIterator[str]:
    async def models(_: Request) -> JSONResponse:
        return JSONResponse({"object": "list", "data": [{"id": "other", "object": "model"}]})

    async with running(Starlette(routes=[Route("/v1/models", models)])) as url:
        yield f"{url}/v1"


async def test_the_demo_model_is_listed_beside_an_upstream_and_without_it(dev: Dev) -> None:
    """On all interfaces, which earns a warning; the upstream's model goes when the upstream does, `demo` stays."""
    async with httpx.AsyncClient(base_url=dev.url) as client:

        async def names() -> list[str]:
            return [model["id"] for model in (await client.get("/v1/models")).json()["data"]]

        async with _upstream() as url:
            process = await dev.start("--host", "0.0.0.0", "--upstream", url)
            output = await process.until("Ctrl-C")
            assert "Warning: --host 0.0.0.0 opens the API to the network" in output
            assert f"demo, and every other name through {url}" in output
            assert await names() == ["demo", "other"]
        async with process:
            assert await names() == ["demo"]
            body = {"model": "demo", "input": "Hello"}
            assert (await client.post("/v1/responses", json=body)).json()["status"] == "completed"
            process.send(signal.SIGTERM)
            assert await process.ended() == 0, process.output


async def test_ctrl_c_during_the_start_ends_it_too(dev: Dev) -> None:
    """Temporal is being started when it comes, and comes twice."""
    async with await dev.start() as process:
        await process.until("Starting Temporal")
        process.send(signal.SIGINT)
        process.send(signal.SIGINT)
        assert await process.ended() == 0, process.output
        assert "Traceback" not in process.output
    assert dev.taken() == []


@pytest.mark.parametrize("command", [("-m", "outlast", "worker"), (str(ROOT / "worker.py"),)])
async def test_a_worker_is_started_by_either_name(temporal: DevServer, dev: Dev, command: tuple[str, ...]) -> None:
    """`outlast worker` and `python worker.py` take the same flags and say where they poll."""
    port = temporal.address.rpartition(":")[2]
    flags = ("--temporal-port", port, "--data-dir", str(dev.folder / "data"))
    async with await Command.start(sys.executable, *command, *flags, cwd=dev.folder) as process:
        await process.until(f"Outlast worker polls outlast at {temporal.address}")
        process.send(signal.SIGINT)
        assert await process.ended() == 0, process.output
        assert "Traceback" not in process.output
