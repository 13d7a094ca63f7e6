"""The official client for Node, driven: `make test-clients`, which installs it. Not collected by `make test`."""

import asyncio
import json
import os
import re
from asyncio.subprocess import PIPE
from pathlib import Path
from typing import Any

import pytest

from outlast.devserver import DevServer
from tests.clients.installed import HERE, path
from tests.support.client_model import GREETING
from tests.support.clients import CUT_AT, MODEL, REFUNDED, Served, snippets
from tests.support.stack import outlast, settings

SCRIPT = HERE / "checks.mjs"
NAMES = re.findall(r"^  async (\w+)\(\)", SCRIPT.read_text(encoding="utf-8"), re.MULTILINE)


async def node(*arguments: str, **more: str) -> str:
    """What a program prints; it must not complain. `more`: environment."""
    env = {"PATH": path(), "HOME": os.environ.get("HOME", "/"), **more}
    process = await asyncio.create_subprocess_exec("node", *arguments, cwd=HERE, env=env, stdout=PIPE, stderr=PIPE)
    async with asyncio.timeout(100):
        out, err = await process.communicate()
    assert (process.returncode, err.decode()) == (0, "")
    return out.decode()


@pytest.fixture(scope="module")
async def errors(world: Served) -> dict[str, str | None]:
    """What each check found, by name."""
    world.line.cut_at(CUT_AT)
    out = await node(
        str(SCRIPT),
        BASE_URL=world.base_url,
        LINE_URL=f"{world.line.url}/v1",
        MODEL=MODEL,
        MCP_URL=world.tools.url,
        GREETING=GREETING,
    )
    lines: list[dict[str, Any]] = [json.loads(line) for line in out.splitlines()]
    return {line["name"]: line["error"] for line in lines}


@pytest.mark.parametrize("name", NAMES)
async def test_node(errors: dict[str, str | None], name: str) -> None:
    """One check of `checks.mjs`."""
    assert errors[name] is None, errors[name]


async def test_the_snippet_works_as_printed(temporal: DevServer, tmp_path: Path) -> None:
    """docs/clients.md: a refund, approved."""
    async with outlast(settings(tmp_path, temporal.address)) as server:
        [program] = snippets("js", server.url)
        assert re.fullmatch(REFUNDED, await node("--input-type=module", "--eval", program))
