"""The Python snippets of docs/clients.md, run as they are printed, but for the address."""

import asyncio
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


async def _printed(program: str) -> str:
    """What a program prints; it must not complain."""
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", program, stdout=PIPE, stderr=PIPE)
    async with asyncio.timeout(60):
        out, err = await process.communicate()
    assert (process.returncode, err.decode()) == (0, "")
    return out.decode()
