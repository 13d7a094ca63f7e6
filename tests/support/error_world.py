"""An Outlast whose every error a client can meet: low limits, a raw model server, a tool that asks, a wrong key."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from openai import AsyncOpenAI
from starlette.requests import HTTPConnection

from api.app import create_app
from api.deps import Principal, principal
from outlast import processes
from outlast.contracts import Timeouts
from outlast.protocol.errors import Unauthorized
from outlast.settings import Settings
from tests.support.desk import by_header
from tests.support.mcp_server import McpTestServer, Tool, mcp_server
from tests.support.raw_model import RawModels, call_answer, raw_model, text_answer
from tests.support.stack import Outlast, outlast, settings
from tests.unit.upstream.server import streaming

JsonObject = dict[str, Any]
LIMITS: JsonObject = {
    "max_body_bytes": 100_000,
    "max_items": 5,
    "max_tools": 2,
    "max_tool_calls": 4,
    "max_rounds": 3,
}


@dataclass
class World:
    """An Outlast with low limits over a raw model server and a tool server."""

    server: Outlast
    models: RawModels
    tools: McpTestServer
    patch: pytest.MonkeyPatch

    @property
    def client(self) -> AsyncOpenAI:
        """The official client, without retries."""
        return self.server.client

    @property
    def desk(self) -> JsonObject:
        """A tool server whose tool asks."""
        return {"type": "mcp", "server_label": "desk", "server_url": self.tools.url}

    async def ask(self, given: Any = "hi", *, model: str = "demo", **parameters: Any) -> Any:
        """One turn."""
        return await self.client.responses.create(model=model, input=given, **parameters)

    async def post(self, path: str, body: Any = None, **options: Any) -> Any:
        """What the client has no method for."""
        return await self.client.post(path, body=body, cast_to=httpx.Response, **options)

    async def asked(self) -> Any:
        """A response that ended with one open ask."""
        played = self.models.play(streaming(call_answer("responses", "mcp__desk__refund", "{}")), streaming(_TEXT))
        return await self.ask(model=played.model, tools=[self.desk])


_TEXT = text_answer("responses", "done")


def ask_of(response: Any) -> str:
    """The id of its ask."""
    return str(next(item.id for item in response.output if item.type == "mcp_approval_request"))


@asynccontextmanager
async def waiting(world: World, **more: Any) -> AsyncIterator[str]:
    """A response that stays in progress for as long."""
    response = await world.ask(
        model=world.models.play(streaming(call_answer("responses", "mcp__desk__refund", "{}"))).model,
        tools=[world.desk],
        background=True,
        extra_body={"outlast": {"approval_mode": "wait"}},
        **more,
    )
    try:
        yield response.id
    finally:
        await world.client.responses.cancel(response.id)


@asynccontextmanager
async def error_world(temporal: str, folder: Path) -> AsyncIterator[World]:
    """The server, for as long."""

    def app(services: Any) -> FastAPI:
        made = create_app(services)
        made.dependency_overrides[principal] = by_key
        return made

    async with AsyncExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        models = await stack.enter_async_context(raw_model())
        tools = await stack.enter_async_context(mcp_server({"refund": Tool(lambda _: "refunded")}))
        upstreams = {"test": {"base_url": models.url, "dialect": "responses"}}
        plain = settings(folder, temporal).model_dump()
        given = Settings.model_validate({**plain, "upstreams": upstreams, "limits": LIMITS})
        patch.setattr(processes, "create_app", app)
        server = await stack.enter_async_context(outlast(given, desk=False, timeouts=Timeouts(llm_backoff=0.01)))
        yield World(server, models, tools, patch)


async def by_key(connection: HTTPConnection) -> Principal:
    """As `by_header`; one key is wrong."""
    if connection.headers.get("authorization") == "Bearer wrong":
        raise Unauthorized("This API key is not known here: check OPENAI_API_KEY.")
    return await by_header(connection)
