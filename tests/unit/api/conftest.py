"""A server over the real store and runs without Temporal."""

import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

import httpx
import pytest
from fastapi import FastAPI
from openai import AsyncOpenAI
from starlette.requests import HTTPConnection

from api.app import ApprovalDefaults, Services, create_app
from api.deps import Principal, principal
from outlast.contracts import Timeouts
from outlast.protocol.requests import RequestLimits
from outlast.store.port import Store
from outlast.store.sqlite import SqliteStore, open_store
from tests.support import api_client
from tests.support.api_client import FakeCatalog
from tests.support.fake_runs import Activities, FakeRuns


@dataclass
class Clock:
    """Real time, and what a test adds to it."""

    ahead: float = 0.0

    def __call__(self) -> float:
        return time.time() + self.ahead


@dataclass(repr=False)
class World:
    """One server and its ports."""

    app: FastAPI
    store: Store
    runs: FakeRuns
    activities: Activities
    clock: Clock
    openai: AsyncOpenAI
    http: httpx.AsyncClient
    url: str


async def by_header(connection: HTTPConnection) -> Principal:
    """The principal a test asks for: `x-tenant`, `x-key`, `x-roles`."""
    named = connection.headers
    roles = named.get("x-roles", "caller,approver").split(",")
    return Principal(
        tenant=named.get("x-tenant", "default"),
        key_id=named.get("x-key", "local"),
        roles=frozenset(role for role in ("caller", "approver", "admin") if role in roles),
    )


@pytest.fixture(scope="session")
async def store(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[SqliteStore]:
    """One file for all tests of this folder: ids never meet."""
    folder = tmp_path_factory.mktemp("store")
    opened = await open_store(folder / "outlast.db", folder / "secrets.key")
    yield opened
    await opened.aclose()


Configure = Callable[[Services], Services]


@pytest.fixture
async def world(store: SqliteStore, request: pytest.FixtureRequest) -> AsyncIterator[World]:
    """A server; a test may change its services with an indirect parameter."""
    configure: Configure = getattr(request, "param", lambda services: services)
    clock, runs = Clock(), FakeRuns()
    services = Services(
        store=store,
        conversations=store.conversations,
        runs=runs,
        catalog=FakeCatalog(),
        limits=RequestLimits(max_body_bytes=200_000),
        approvals=ApprovalDefaults(),
        timeouts=Timeouts(),
        clock=clock,
    )
    app = create_app(configure(services))
    app.dependency_overrides[principal] = by_header
    await store.beat("worker-1", "worker", clock())
    async with api_client.serve(app) as url, api_client.official(url) as openai, api_client.raw(url) as http:
        yield World(app, store, runs, Activities(store), clock, openai, http, url)
        await runs.settle()


@pytest.fixture
async def open_world(world: World) -> World:
    """Every run that is started says one word and ends."""

    async def end(response_id: str) -> None:
        await world.activities.say(response_id, "done")

    world.runs.usual = end
    # A thousand requests take longer than a worker may be silent.
    await world.store.beat("worker-1", "worker", world.clock() + 24 * 3600)
    return world
