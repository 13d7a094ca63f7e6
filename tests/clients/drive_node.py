"""The official client for Node, driven: `make test-clients`, which installs it. Not collected by `make test`."""

import asyncio
import json
import os
import re
from asyncio.subprocess import PIPE
from typing import Any

import pytest

from tests.clients.installed import HERE, path
from tests.support.client_model import GREETING
from tests.support.clients import CUT_AT, MODEL, Served

SCRIPT = HERE / "checks.mjs"
NAMES = re.findall(r"^  async (\w+)\(\)", SCRIPT.read_text(encoding="utf-8"), re.MULTILINE)


@pytest.fixture(scope="module")
async def errors(world: Served) -> dict[str, str | None]:
    """What each check found, by name."""
    world.line.cut_at(CUT_AT)
    env = {
        "PATH": path(),
        "HOME": os.environ.get("HOME", "/"),
        "BASE_URL": world.base_url,
        "LINE_URL": f"{world.line.url}/v1",
        "MODEL": MODEL,
        "MCP_URL": world.tools.url,
        "GREETING": GREETING,
    }
    process = await asyncio.create_subprocess_exec("node", str(SCRIPT), env=env, stdout=PIPE, stderr=PIPE)
    async with asyncio.timeout(100):
        out, err = await process.communicate()
    assert (process.returncode, err.decode()) == (0, "")
    lines: list[dict[str, Any]] = [json.loads(line) for line in out.splitlines()]
    return {line["name"]: line["error"] for line in lines}


@pytest.mark.parametrize("name", NAMES)
async def test_node(errors: dict[str, str | None], name: str) -> None:
    """One check of `checks.mjs`."""
    assert errors[name] is None, errors[name]
