"""`make demo`: the story as a process."""

import asyncio
import os
import re
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

CLAIMS = [
    "the money moved once: ledger lines of the order",
    "the call is not claimed to have worked",
    "the model was told, and tells the user",
    "the response completed",
    "one run, two workers (killed, successor)",
    "the client's stream, open through the kill: no gap, no repeat",
    "it was dispatched again: look-ups at the desk",
    "under one idempotency key",
    "the result was used",
    "the response completed",
    "the client's stream, open through the kill: no gap, no repeat",
    "no money moved before the decision: ledger lines",
    "the operator's command decided it",
    "then the refund ran, once: ledger lines",
    "the call names its approval",
    "the response completed",
    "the cut was in the middle: status when re-attached",
    "both parts together: no gap, no repeat",
    "the words read are the final text",
    "the response completed",
]


async def _start(folder: Path) -> asyncio.subprocess.Process:
    # What a reader has set must not reach the demo: this port answers nobody.
    foreign = {"OPENAI_BASE_URL": "http://127.0.0.1:9/v1", "OPENAI_API_KEY": "none", "OUTLAST_PORT": "9"}
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "outlast.demo"),
        cwd=folder,
        env={**os.environ, **foreign, "TMPDIR": str(folder)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )


async def _lines(process: asyncio.subprocess.Process) -> list[str]:
    output, _ = await process.communicate()
    return output.decode().splitlines()


def _pids(lines: Sequence[str]) -> list[int]:
    return [int(found[1]) for line in lines if (found := re.search(r"^ +(?:Temporal|API|worker) +pid (\d+)", line))]


def _folders(where: Path) -> list[Path]:
    return list(where.glob("outlast-demo-*"))


def _gone(pid: int) -> bool:
    return not Path(f"/proc/{pid}").exists()


# A minute, and as much again on a busy machine.
@pytest.mark.timeout(240)
async def test_the_demo_tells_its_story_and_every_check_holds(tmp_path: Path) -> None:
    """Twenty checks in their order, exit 0, no key needed, and nothing is left: no process, no file."""
    process = await _start(tmp_path)
    lines = await _lines(process)
    shown = "\n".join(lines)
    checks = [found.groups() for line in lines if (found := re.match(r"   (ok    |FAILED)  (.*)", line))]
    assert [verdict for verdict, _ in checks] == ["ok    "] * len(CLAIMS), shown
    assert all(seen.startswith(f"{claim}: ") for (_, seen), claim in zip(checks, CLAIMS, strict=True)), shown
    assert process.returncode == 0
    pids = _pids(lines)
    assert len(pids) == 5, "Temporal, the API, a worker and its two successors"
    assert [pid for pid in pids if not _gone(pid)] == []
    assert _folders(tmp_path) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_a_stopped_demo_leaves_nothing_behind(tmp_path: Path, number: signal.Signals) -> None:
    """Ctrl-C while processes run: all of them are ended, the folder is gone, exit code 130."""
    process = await _start(tmp_path)
    assert process.stdout is not None
    lines: list[str] = []
    async with asyncio.timeout(60):
        async for line in process.stdout:
            lines.append(line.decode())
            if " API " in lines[-1]:
                break
    process.send_signal(number)
    lines += await _lines(process)
    assert process.returncode == 130, "".join(lines)
    assert [pid for pid in _pids(lines) if not _gone(pid)] == []
    assert _folders(tmp_path) == []
