"""docs/clients.md: its Python snippets, run as they are printed but for the address, and its versions."""

import asyncio
import json
import re
import sys
from asyncio.subprocess import PIPE
from pathlib import Path

from outlast.demo.script import STORIES
from outlast.devserver import DevServer
from tests.support.clients import REFUNDED, snippets
from tests.support.stack import outlast, settings


async def test_the_snippets_for_python_work_as_printed(temporal: DevServer, tmp_path: Path) -> None:
    """openai tells a story; Agents SDK and LangChain approve a refund."""
    async with outlast(settings(tmp_path, temporal.address)) as server:
        story, *refunds = await asyncio.gather(*(_printed(each) for each in snippets("python", server.url)))
    assert story.strip() in STORIES
    assert len(refunds) == 2
    for refund in refunds:
        assert re.fullmatch(REFUNDED, refund), refund


def test_the_page_names_the_versions_that_are_driven() -> None:
    """As the lock files have them."""
    root = Path(__file__).resolve().parents[2]
    locked = (root / "requirements.lock").read_text(encoding="utf-8")
    versions = dict(re.findall(r"^(openai|openai-agents|langchain-openai)==(\d+\.\d+)", locked, re.MULTILINE))
    from_npm = json.loads((root / "tests/clients/node/package.json").read_text(encoding="utf-8"))["dependencies"]
    rows = {
        "openai for Python": versions["openai"],
        "openai for Node": _minor(from_npm["openai"]),
        "OpenAI Agents SDK": versions["openai-agents"],
        "LangChain": f"langchain-openai {versions['langchain-openai']}",
        "Codex CLI": _minor(from_npm["@openai/codex"]),
    }
    page = (root / "docs" / "clients.md").read_text(encoding="utf-8")
    assert dict(re.findall(r"^\| \[([^]]+)\]\(#\S+\) \| ([^|]+) \|", page, re.MULTILINE)) == rows


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])


async def _printed(program: str) -> str:
    """What a program prints; it must not complain."""
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", program, stdout=PIPE, stderr=PIPE)
    async with asyncio.timeout(60):
        out, err = await process.communicate()
    assert (process.returncode, err.decode()) == (0, "")
    return out.decode()
