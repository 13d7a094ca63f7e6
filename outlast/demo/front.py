"""Put the support desk beside the API, on the API's own port: its URL must outlive a restart, approvals store it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from starlette.types import ASGIApp, Receive, Scope, Send

from outlast.demo.desk import desk_app

PATH = "/demo/mcp"
# The desk's own path, see `desk_app`.
_INNER = "/mcp"


@asynccontextmanager
async def beside(app: ASGIApp, data_dir: Path) -> AsyncIterator[ASGIApp]:
    """The app with the desk under `/demo/mcp`. `data_dir`: where its ledger is."""
    desk = desk_app(data_dir)

    async def front(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] == PATH:
            await desk({**scope, "path": _INNER, "raw_path": _INNER.encode()}, receive, send)
        else:
            await app(scope, receive, send)

    async with desk.router.lifespan_context(desk):
        yield front
