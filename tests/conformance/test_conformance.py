"""The conformance suite against this server: every check by name, and the command as a user runs it."""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from outlast.conformance import run
from outlast.conformance.suite import checks
from outlast.devserver import DevServer
from scripts import conformance_page
from tests.support.stack import Outlast, outlast, settings

ROOT = Path(__file__).resolve().parents[2]
NAMES = [check.name for check in checks()]


@pytest.fixture(scope="module")
async def server(temporal: DevServer, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Outlast]:
    """This server with its demo model."""
    async with outlast(settings(tmp_path_factory.mktemp("conformance"), temporal.address), desk=False) as opened:
        yield opened


def test_names_are_unique_and_every_check_says_what_it_claims_and_why() -> None:
    """The table and `--only` go by name."""
    assert len(set(NAMES)) == len(NAMES) > 100
    assert [check.name for check in checks() if not check.claim or not check.source] == []


async def test_this_server_conforms(server: Outlast) -> None:
    """Every check passes; 'not offered' is no answer of ours."""
    async with run.target(server.url, "demo", key=None, mcp_host="127.0.0.1") as against:
        found = {finding.check.name: finding async for finding in run.findings(checks(), against)}
    assert set(found) == set(NAMES)
    assert {name: (each.verdict, each.said) for name, each in found.items() if each.verdict != "pass"} == {}


@pytest.mark.parametrize("name", ["plain", "mcp-never", "stateless-stitched", "no-relist", "mixed-approval"])
def test_the_checks_the_suite_was_made_for_are_there(name: str) -> None:
    """By the names people look for."""
    assert name in NAMES


async def test_the_command_prints_a_table_and_says_with_its_exit_code(server: Outlast) -> None:
    """0 against this server; 1 and the reason against one that is not there. No question it asked is left open."""
    command = [sys.executable, "-c", "from outlast.cli import main; main()", "conformance"]

    async def ran(*arguments: str) -> subprocess.CompletedProcess[str]:
        return await asyncio.to_thread(
            subprocess.run, [*command, *arguments], capture_output=True, text=True, check=False
        )

    good, bad, rows, wrong = await asyncio.gather(
        ran(server.url, "--only", "plain,stream-done"),
        ran("http://127.0.0.1:9", "--only", "plain"),
        ran(server.url, "--only", "approval-always", "--json"),
        ran(server.url, "--only", "plane"),
    )
    assert (good.returncode, good.stderr) == (0, "1/2 checks\n2/2 checks\n")
    assert [line.split()[:2] for line in good.stdout.splitlines() if "ok" in line.split()[:1]] == [
        ["ok", "plain"],
        ["ok", "stream-done"],
    ]
    assert good.stdout.endswith("2 passed, 0 failed, 0 not offered.\n")
    assert (bad.returncode, bad.stderr) == (
        1,
        "outlast: no server answers at http://127.0.0.1:9: start it, or give its base URL\n",
    )
    assert [row["verdict"] for row in json.loads(rows.stdout)] == ["pass"]
    async with httpx.AsyncClient() as http:
        assert (await http.get(f"{server.url}/v1/approvals?status=pending")).json()["data"] == []
    assert (wrong.returncode, "plane" in wrong.stderr) == (1, True)


def test_the_page_lists_the_checks() -> None:
    """docs/conformance.md is what `scripts.conformance_page` prints."""
    assert (ROOT / "docs" / "conformance.md").read_text(encoding="utf-8") == conformance_page.page()
