"""The README's commands, what `make run` prints, the examples and programs of the docs, run as a newcomer would.

`make run` itself is run, without its setup: the environment of the test is set up. Ports are free ones instead of those
the README prints; nothing else of a command is changed.
"""

import asyncio
import contextlib
import json
import os
import re
import shlex
import signal
from asyncio.subprocess import PIPE, STDOUT, Process
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from outlast.demo.script import STORIES

ROOT = Path(__file__).resolve().parents[2]
PRINTED = "http://127.0.0.1:8080"
# Seconds for one command; only a hanging one needs them.
PATIENCE = 100
BLOCKS = re.findall(r"^```bash\n(.*?)^```$", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)

pytestmark = pytest.mark.timeout(400)


@dataclass(frozen=True, slots=True)
class Running:
    """`make run`, ready. `printed`: what it said until then; `url`: without `/v1`."""

    process: Process
    printed: str
    url: str

    async def shell(self, command: str) -> str:
        """The output of a command that must succeed and must not complain."""
        process = await self.start(command)
        async with asyncio.timeout(PATIENCE):
            out, err = await process.communicate()
        assert (process.returncode, err.decode()) == (0, ""), command
        return out.decode()

    async def start(self, command: str) -> Process:
        """A command of the README, pointed at this server."""
        env = _environment({"OUTLAST_URL": self.url})
        strict = f"set -euo pipefail\n{command.replace(PRINTED, self.url)}"
        return await asyncio.create_subprocess_exec("bash", "-c", strict, cwd=ROOT, env=env, stdout=PIPE, stderr=PIPE)


@pytest.fixture(scope="module")
async def running(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Running]:
    """The server of this module."""
    async with make_run(tmp_path_factory.mktemp("readme")) as found:
        yield found


@asynccontextmanager
async def make_run(folder: Path) -> AsyncIterator[Running]:
    """Started in a session of its own, ended by what Ctrl-C sends."""
    env = _environment({f"OUTLAST_{name}PORT": "0" for name in ("", "TEMPORAL_", "UI_")})
    env |= {"OUTLAST_DATA_DIR": str(folder / "data"), "OUTLAST_DEMO_WORD_DELAY_MS": "0", "PYTHONUNBUFFERED": "1"}
    process = await asyncio.create_subprocess_exec(
        *("make", "--old-file=.venv/.outlast-setup", "run"),
        cwd=ROOT,
        env=env,
        stdout=PIPE,
        stderr=STDOUT,
        start_new_session=True,
    )
    try:
        printed = await _until(process, "Ctrl-C ends everything.")
        found = re.search(r"API +(http://\S+)/v1", printed)
        assert found is not None, printed
        yield Running(process, printed, found[1])
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGINT)
        async with asyncio.timeout(PATIENCE):
            await process.communicate()


async def test_readme_begins_with_make_run() -> None:
    """The only command that is not run as a block of its own is the one that starts everything."""
    assert BLOCKS[0] == "make run\n"
    assert len(BLOCKS) == 6


async def test_readme_commands_work_as_printed(running: Running) -> None:
    """First request twice, an approval in respond mode, one in wait mode."""
    _, with_curl, with_openai, respond, wait, approve = BLOCKS

    response = json.loads(await running.shell(with_curl))
    assert response["status"] == "completed"
    assert response["output"][-1]["content"][0]["text"] in STORIES
    assert (await running.shell(with_openai)).strip() in STORIES
    assert (await running.shell(respond)).splitlines() == [
        'May I? refund_order {"order_id":1042,"reason":"asked for by the customer"}',
        "Done. Refunded 129.50 EUR for order 1042 to Jonas Keller. Reason: asked for by the customer.",
    ]

    stream = await running.start(wait)
    await _asked(running.url, "wait")
    assert re.search(r"mcpr_\w+: approved by local\n$", await running.shell(approve))
    async with asyncio.timeout(PATIENCE):
        out, _ = await stream.communicate()
    assert out.decode().endswith("\n\ndata: [DONE]\n\n")
    assert "Refunded 84.90 EUR for order 1044 to Luis Moreno." in out.decode()


async def test_what_make_run_prints_works_as_printed(running: Running) -> None:
    """The curl stream, approved from a second shell, and the openai snippet both end with the refund."""
    curl = _printed(running, r"^curl .*\\\n.*$")
    approve = _printed(running, r"^\S*outlast approvals approve ID.*$")
    python = _printed(running, r"^\S*python - <<'EOF'\n(?:.*\n)*?EOF$")

    stream = await running.start(curl)
    approval_id = await _asked(running.url, "wait")
    assert approval_id in await running.shell(_printed(running, r"^\S*outlast approvals list.*$"))
    await running.shell(approve.replace("ID", approval_id))
    async with asyncio.timeout(PATIENCE):
        out, _ = await stream.communicate()
    assert "Done. Refunded 129.50 EUR for order 1042" in out.decode()
    assert (await running.shell(python)).splitlines()[-1].startswith("Done. Refunded 129.50 EUR for order 1042")


@pytest.mark.parametrize(
    ("command", "end"),
    [
        (".venv/bin/python examples/first_request.py", "response.completed"),
        (".venv/bin/python examples/approve_refund.py", "the call: ['mcp_call', 'message']"),
        ("bash examples/wait_mode.sh", "1 event: response.completed"),
    ],
)
async def test_examples_run(running: Running, command: str, end: str) -> None:
    """Each to its end."""
    assert (await running.shell(command)).rstrip().endswith(end)


@pytest.mark.parametrize("page", ["approvals", "compaction", "conversations", "retries", "websocket"])
async def test_the_programs_of_a_page_run_as_printed(running: Running, tmp_path: Path, page: str) -> None:
    """Each to its end, without a complaint."""
    text = (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")
    programs = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert programs
    for program in programs:
        written = tmp_path / "program.py"
        written.write_text(program.replace(PRINTED, running.url), encoding="utf-8")
        await running.shell(f".venv/bin/python {shlex.quote(str(written))}")


async def test_ctrl_c_ends_everything_within_seconds(tmp_path: Path) -> None:
    """The output ends when the last process that holds it has ended: server, worker and Temporal."""
    async with make_run(tmp_path) as found:
        os.killpg(found.process.pid, signal.SIGINT)
        async with asyncio.timeout(15):
            said, _ = await found.process.communicate()
        assert said.decode().strip() == "Stopping ..."


async def _until(process: Process, line: str) -> str:
    """What a process prints, this line included. Raises: AssertionError when it ends first."""
    assert process.stdout is not None
    said = ""
    async with asyncio.timeout(PATIENCE):
        async for raw in process.stdout:
            said += raw.decode()
            if raw.decode().strip() == line:
                return said
    raise AssertionError(f"ended before it said {line!r}:\n{said}")


def _printed(running: Running, pattern: str) -> str:
    """A command `make run` printed."""
    found = re.search(pattern, running.printed, re.MULTILINE)
    assert found is not None, running.printed
    return found[0]


async def _asked(url: str, mode: str) -> str:
    """Wait until an ask of this mode is open; its id."""
    async with httpx.AsyncClient() as client, asyncio.timeout(PATIENCE):
        while True:
            found = (await client.get(f"{url}/v1/approvals?status=pending")).json()["data"]
            for ask in found:
                if ask["mode"] == mode:
                    return str(ask["id"])
            await asyncio.sleep(0.05)


def _environment(ours: Mapping[str, str]) -> dict[str, str]:
    """This process's environment without settings of Outlast, keys of OpenAI and options of an outer make."""
    own = ("OUTLAST_", "OPENAI_", "MAKE", "MFLAGS")
    return {name: value for name, value in os.environ.items() if not name.startswith(own)} | dict(ours)
