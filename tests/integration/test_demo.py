"""`make demo`: the story as a process, and its judges on outcomes that must not pass."""

import asyncio
import os
import re
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from outlast.demo import story_judges as judges
from outlast.demo.desk import ORDERS
from outlast.demo.story_client import Frame
from outlast.demo.story_report import Report
from outlast.protocol import json
from outlast.protocol.json import JsonObject

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


def _response(error: JsonObject | None, text: str, output: str | None = None) -> JsonObject:
    call = {"id": "mcp_1", "type": "mcp_call", "status": "failed" if error else "completed", "error": error}
    call |= {"output": output, "approval_request_id": "mcpr_1"}
    message = {"type": "message", "content": [{"type": "output_text", "text": text}]}
    return {"id": "resp_1", "status": "completed", "output": [call, message]}


def _frames(*numbers: int) -> list[Frame]:
    return [
        Frame(json.dumps_text(data), data)
        for data in ({"type": "response.output_text.delta", "sequence_number": n, "delta": f"{n} "} for n in numbers)
    ]


LOST: JsonObject = {"type": "mcp_tool_execution_error", "content": [{"type": "text", "text": "outcome_unknown: lost"}]}


def _refund(
    *, ledger: int = 1, error: JsonObject | None = LOST, worked: Sequence[int] = (1, 2), live: Sequence[int] = (0, 1, 2)
) -> judges.KilledRefund:
    return judges.KilledRefund(
        ledger=[{"order_id": 1042}] * ledger,
        response=_response(error, "It may or may not have gone through."),
        pids=(1, 2),
        worked=set(worked),
        live=_frames(*live),
        replayed=_frames(0, 1, 2),
    )


@pytest.mark.parametrize(
    ("seen", "failed"),
    [
        (_refund(), []),
        (_refund(ledger=2), ["the money moved once: ledger lines of the order: 2"]),
        (_refund(ledger=0), ["the money moved once: ledger lines of the order: 0"]),
        (_refund(error=None), ["the call is not claimed to have worked: mcp_1 completed, "]),
        (_refund(worked=(2,)), ["one run, two workers (killed, successor): [2] in Temporal's history"]),
        (_refund(live=(0, 2)), [f"{CLAIMS[5]}: events 0, 2, not equal to a replay of all 3"]),
        (_refund(live=(0, 1, 1, 2)), [f"{CLAIMS[5]}: events 0-1, 1-2, not equal to a replay of all 3"]),
        (_refund(live=()), [f"{CLAIMS[5]}: events none, not equal to a replay of all 3"]),
    ],
)
def test_a_refund_that_went_wrong_fails_the_demo(seen: judges.KilledRefund, failed: list[str]) -> None:
    """Exactly the check that does not hold is printed as failed, and the exit code is not 0."""
    lines: list[str] = []
    report = Report(lines.append)
    judges.refund(report, seen)
    assert [line.removeprefix("   FAILED  ") for line in lines if "FAILED" in line] == failed
    assert report.exit_code == (1 if failed else 0)


@pytest.mark.parametrize("keys", [["a", "b"], ["a"], ["a", "a", "a"], [None, None]])
def test_a_lookup_without_exactly_one_repeat_under_one_key_fails_the_demo(keys: list[str | None]) -> None:
    """One dispatch, three, two keys or none: each is a failure."""
    item = ORDERS[1043].item
    seen = judges.KilledLookup(
        lookups=[{"idempotency_key": key} for key in keys],
        order=ORDERS[1043],
        response=_response(None, f"Found: {item}", output=item),
        pids=(1, 2),
        live=_frames(0),
        replayed=_frames(0),
    )
    report = Report(lambda _: None)
    judges.lookup(report, seen)
    assert report.exit_code == 1


def test_a_broken_story_and_an_empty_one_fail_the_demo() -> None:
    """A failure outside of checks counts, with the logs' last lines; no check at all proves nothing."""
    lines: list[str] = []
    report = Report(lines.append)
    assert report.exit_code == 1
    report.broke("TimeoutError: ", ["worker-1.log: it said this"])
    assert lines == ["   FAILED  TimeoutError: ", "     | worker-1.log: it said this"]
    assert report.exit_code == 1
