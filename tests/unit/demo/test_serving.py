"""Serving an app inside the loop."""

import asyncio
import socket

import httpx
import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from outlast.demo.serving import listen, running


def app() -> Starlette:
    return Starlette(routes=[Route("/", lambda _: PlainTextResponse("hello"))])


async def test_an_app_is_up_inside_the_block_and_gone_after_it() -> None:
    """On a free port, and no task is left."""
    before = asyncio.all_tasks()
    async with running(app()) as url, httpx.AsyncClient() as client:
        assert (await client.get(url)).text == "hello"
    async with httpx.AsyncClient() as client:
        with pytest.raises(httpx.ConnectError):
            await client.get(url)
    assert asyncio.all_tasks() == before


def test_a_taken_port_is_an_oserror() -> None:
    """The caller names the port to the user."""
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(OSError, match="in use"):
        listen("127.0.0.1", taken.getsockname()[1])


async def test_an_app_is_served_where_its_caller_listens() -> None:
    """The URL names the address of the socket."""
    listener = listen("127.0.0.1", 0)
    async with running(app(), listener) as url:
        assert url == f"http://127.0.0.1:{listener.getsockname()[1]}"


async def test_an_app_that_does_not_start_is_an_error() -> None:
    """A lifespan that fails does not leave a half server."""

    async def lifespan_fails(_: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "lifespan.startup.failed", "message": "no database"})

    with pytest.raises(RuntimeError, match="did not start"):
        async with running(lifespan_fails):
            pass
