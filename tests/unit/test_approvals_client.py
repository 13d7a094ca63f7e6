"""`outlast approvals` against servers of every kind."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from outlast import approvals_client
from outlast.demo.serving import running
from outlast.protocol.errors import ConfigurationError

_SEEN: list[str] = []


async def _stranger(request: Request) -> Response:
    _SEEN.append(request.scope["raw_path"].decode())
    return JSONResponse({"detail": "Not Found"}, status_code=404)


@pytest.fixture
async def stranger() -> AsyncIterator[str]:
    """A server that is not Outlast."""
    app = Starlette(routes=[Route("/{path:path}", _stranger, methods=["GET", "POST"])])
    async with running(app) as url:
        yield url


async def test_a_server_that_is_not_outlast_is_named(stranger: str) -> None:
    """One line that says what to change, for both commands."""
    with pytest.raises(ConfigurationError, match="is not an Outlast server: give --url"):
        await asyncio.to_thread(approvals_client.list_open, stranger, status="pending")
    with pytest.raises(ConfigurationError, match="is not an Outlast server: give --url"):
        await asyncio.to_thread(approvals_client.decide, stranger, "mcpr_1", approve=True, reason=None)


@pytest.mark.parametrize(
    ("given", "variable", "url"),
    [
        (None, None, "http://127.0.0.1:8080"),
        (None, "http://box:1/v1", "http://box:1"),
        ("http://here:2/", "http://box:1", "http://here:2"),
    ],
)
def test_the_server_is_the_flags_else_the_environments_else_this_machine(
    monkeypatch: pytest.MonkeyPatch, given: str | None, variable: str | None, url: str
) -> None:
    """With or without `/v1`."""
    monkeypatch.delenv("OUTLAST_URL", raising=False)
    if variable is not None:
        monkeypatch.setenv("OUTLAST_URL", variable)
    assert approvals_client.base_url(given) == url


async def test_an_id_stays_one_part_of_the_path(stranger: str) -> None:
    """Or a decision would be posted somewhere else."""
    _SEEN.clear()
    with pytest.raises(ConfigurationError):
        await asyncio.to_thread(approvals_client.decide, stranger, "../responses", approve=True, reason=None)
    assert _SEEN == ["/v1/approvals/..%2Fresponses"]


async def test_a_reader_that_has_had_enough_ends_the_command_without_a_word() -> None:
    """`outlast approvals list | head -0`."""

    async def nothing(_: Request) -> Response:
        return JSONResponse({"object": "list", "data": [], "has_more": False})

    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    reading, writing = os.pipe()
    os.close(reading)
    async with running(Starlette(routes=[Route("/v1/approvals", nothing)])) as url:
        command = [sys.executable, "-c", "from outlast.cli import main; main()", "approvals", "list", "--url", url]
        process = await asyncio.create_subprocess_exec(
            *command, stdout=writing, stderr=asyncio.subprocess.PIPE, env=buffered
        )
        os.close(writing)
        _, errors = await process.communicate()
    assert (process.returncode, errors) == (0, b"")
