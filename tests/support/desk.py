"""A desk with one caller: a scripted model, an MCP server that counts, a whole Outlast, and what tests ask of them."""

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from openai import AsyncOpenAI, AsyncStream
from openai.types.responses import Response
from starlette.requests import HTTPConnection
from temporalio.api.enums.v1 import EventType

from api.app import create_app
from api.deps import Principal, principal
from outlast import processes
from outlast.settings import Settings
from tests.support.mcp_server import McpTestServer, Tool, mcp_server
from tests.support.scripted_model import Script, ScriptedModels, call, scripted_model
from tests.support.stack import Outlast, outlast

JsonObject = dict[str, Any]
REFUND = "mcp__desk__refund"
LOOKUP = "mcp__desk__lookup"
WAIT: JsonObject = {"outlast": {"approval_mode": "wait"}}
# The events of a message with one delta.
MESSAGE = [
    "response.output_item.added",
    "response.content_part.added",
    "response.output_text.delta",
    "response.output_text.done",
    "response.content_part.done",
    "response.output_item.done",
]
_ORDERS = itertools.count(1)


def desk_tools() -> dict[str, Tool]:
    """`refund` is unsafe, `lookup` read-only, `note` says nothing of itself."""
    order = {"type": "object", "properties": {"order": {"type": "integer"}}}
    return {
        "refund": Tool(lambda a: f"refunded {a['order']}", schema=order, annotations={"destructiveHint": True}),
        "lookup": Tool(lambda a: f"found {a['order']}", schema=order, annotations={"readOnlyHint": True}),
        "note": Tool(lambda a: f"noted {a['order']}", schema=order),
    }


@dataclass
class World:
    """What the tests of a module share: tests tell their calls apart by order number, scripts by model name."""

    server: Outlast
    models: ScriptedModels
    desk: McpTestServer
    http: httpx.AsyncClient

    def case(self, *rounds: Sequence[JsonObject]) -> "Case":
        """One conversation."""
        return Case(self, self.models.play(*rounds), next(_ORDERS))

    async def approvals(self, status: str = "pending") -> list[JsonObject]:
        """The inbox."""
        found = await self.http.get("/v1/approvals", params={"status": status})
        return list(found.raise_for_status().json()["data"])

    async def approval(self, approval_id: str) -> JsonObject:
        """One ask."""
        return dict((await self.http.get(f"/v1/approvals/{approval_id}")).raise_for_status().json())

    async def decide(self, approval_id: str, approve: bool, reason: str | None = None) -> httpx.Response:
        """Through the API."""
        body = {"approve": approve} | ({"reason": reason} if reason else {})
        return await self.http.post(f"/v1/approvals/{approval_id}", json=body)

    async def activities(self, workflow_id: str, response_id: str) -> list[str]:
        """Activities one workflow scheduled for one response, in order."""
        handle = self.server.ports.client.get_workflow_handle(workflow_id)
        names = []
        async for event in handle.fetch_history_events():
            if event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED:
                scheduled = event.activity_task_scheduled_event_attributes
                if any(response_id.encode() in payload.data for payload in scheduled.input.payloads):
                    names.append(scheduled.activity_type.name)
        return names


@dataclass
class Case:
    """One scripted conversation about one order of its own."""

    world: World
    script: Script
    order: int
    tool: JsonObject = field(init=False)

    def __post_init__(self) -> None:
        self.tool = {"type": "mcp", "server_label": "desk", "server_url": self.world.desk.url}

    @property
    def ran(self) -> list[str]:
        """Tools that ran for this order."""
        return [each.tool for each in self.world.desk.calls if each.arguments.get("order") == self.order]

    @property
    def client(self) -> AsyncOpenAI:
        """The official client."""
        return self.world.server.client

    def play(self, *rounds: Sequence[JsonObject]) -> None:
        """More rounds, which may name the order."""
        self.script.rounds.extend(rounds)

    def calls(self, name: str, **more: object) -> JsonObject:
        """A call about the order."""
        return call(name, {"order": self.order, **more})

    async def ask(self, given: Any = "please", **parameters: Any) -> Response:
        """One turn, as JSON."""
        known: dict[str, Any] = {"model": self.script.model, "tools": [self.tool], **parameters}
        response: Response = await self.client.responses.create(input=given, **known)
        return response

    async def stream(self, given: Any = "please", **parameters: Any) -> list[Any]:
        """One turn, as its events."""
        return [event async for event in await self.streamed(given, **parameters)]

    async def streamed(self, given: Any = "please", **parameters: Any) -> AsyncStream[Any]:
        """One turn, as it comes."""
        known: dict[str, Any] = {"model": self.script.model, "tools": [self.tool], **parameters}
        opened: AsyncStream[Any] = await self.client.responses.create(input=given, stream=True, **known)
        return opened

    async def start(self, given: Any = "please", **parameters: Any) -> Response:
        """A response in the background, in wait mode."""
        return await self.ask(given, background=True, extra_body=WAIT, **parameters)

    async def open_asks(self, response: Response, count: int = 1) -> list[str]:
        """Ids of the asks that hold up a response, once there are so many."""

        async def pending() -> list[str]:
            found = [ask["id"] for ask in await self.world.approvals() if ask["response_id"] == response.id]
            return found if len(found) == count else []

        return list(await until(pending))

    async def ended(self, response: Response) -> Response:
        """The response, once it has ended."""

        async def terminal() -> Response | None:
            found = await self.client.responses.retrieve(response.id)
            return None if found.status in ("queued", "in_progress") else found

        found: Response = await until(terminal)
        return found

    async def decided(
        self, previous: Response, *verdicts: JsonObject, extra: Sequence[JsonObject] = (), **parameters: Any
    ) -> Response:
        """A chained continuation."""
        return await self.ask([*verdicts, *extra], previous_response_id=previous.id, **parameters)


@asynccontextmanager
async def desk_world(given: Settings, patch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    """A world; who sends a request is said by `x-tenant`, `x-key` and `x-roles`."""

    def with_principals(services: Any) -> FastAPI:
        app = create_app(services)
        app.dependency_overrides[principal] = by_header
        return app

    async with AsyncExitStack() as stack:
        models = await stack.enter_async_context(scripted_model())
        desk = await stack.enter_async_context(mcp_server(desk_tools()))
        upstreams = {"test": {"base_url": models.url, "dialect": "responses"}}
        whole = Settings.model_validate({**given.model_dump(), "upstreams": upstreams})
        patch.setattr(processes, "create_app", with_principals)
        server = await stack.enter_async_context(outlast(whole, desk=False))
        patch.undo()
        http = await stack.enter_async_context(httpx.AsyncClient(base_url=server.url, timeout=60))
        yield World(server, models, desk, http)


async def by_header(connection: HTTPConnection) -> Principal:
    """The principal a test asks for; by default the local one."""
    named: Mapping[str, str] = connection.headers
    roles = named.get("x-roles", "caller,approver,admin").split(",")
    return Principal(
        tenant=named.get("x-tenant", "default"),
        key_id=named.get("x-key", "local"),
        roles=frozenset(role for role in ("caller", "approver", "admin") if role in roles),
    )


async def until(reached: Callable[[], Awaitable[Any]]) -> Any:
    """What it answers once that is something."""
    async with asyncio.timeout(30):
        while not (found := await reached()):  # noqa: ASYNC110  # nobody here is told when it changes
            await asyncio.sleep(0.02)
    return found


def verdict(approval_id: str, approve: bool, reason: str | None = None) -> JsonObject:
    """A decision as an input item."""
    item = {"type": "mcp_approval_response", "approval_request_id": approval_id, "approve": approve}
    return item | ({"reason": reason} if reason else {})


def kinds(response: Response) -> list[str]:
    """Types of the output, in order."""
    return [item.type for item in response.output]


def asks(response: Response) -> list[str]:
    """Ids of the open asks an output shows."""
    return [item.id for item in response.output if item.type == "mcp_approval_request"]


def dumped(response: Response) -> list[JsonObject]:
    """The output as a client sends it back."""
    return [json.loads(item.to_json(indent=None)) for item in response.output]


def user(text: str) -> JsonObject:
    """What the user said, as the model gets it."""
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}


def answered(call_id: str, name: str, arguments: str, output: str) -> list[JsonObject]:
    """The pair a gateway call is for the model."""
    return [
        {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments},
        {"type": "function_call_output", "call_id": call_id, "output": output},
    ]
