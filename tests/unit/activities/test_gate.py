"""`ReadGate` over a real store."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from temporalio.testing import ActivityEnvironment

from activities.base import Deps
from activities.finish_response import LocalActivities
from outlast.contracts import GateInput, GateView
from outlast.mcp.client import McpClients
from outlast.store.base import Commit
from outlast.store.port import Store
from outlast.store.sqlite import open_store
from outlast.upstream.base import Upstream
from tests.support import store_world as world

NOW = 1_000_000.0
# The workflow an activity environment says it works for.
WORKFLOW = "test"


class NoModels:
    """A gate asks no model."""

    def resolve(self, model: str) -> tuple[Upstream, str]:
        raise AssertionError(model)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    """A store of its own, with one waiting response."""
    opened = await open_store(tmp_path / "outlast.db", tmp_path / "secrets.key")
    await opened.create(world.new(world.record("a", workflow_id=WORKFLOW, mode="wait")))
    yield opened
    await opened.aclose()


async def gate(store: Store, deadline: float | None) -> GateView:
    """The gate of round 1 with one open ask."""
    handle = await world.begin(store, "a", "ask:1", workflow_id=WORKFLOW)
    row = world.call(0, action="ask", approval_id="mcpr_1")
    ask = replace(world.ask("mcpr_1"), mode="wait", deadline=deadline, on_deadline="deny" if deadline else "none")
    await store.append(handle, [], Commit(calls=[row], approvals=[ask], outcome={}))
    local = LocalActivities(Deps(store=store, models=NoModels(), mcp=McpClients(), clock=lambda: NOW))
    view: GateView = await ActivityEnvironment().run(local.read_gate, GateInput(world.TENANT, "resp_a", 1))
    return view


@pytest.mark.parametrize(("deadline", "seconds"), [(None, 21_600.0), (NOW + 90, 90.0), (NOW + 90_000, 21_600.0)])
async def test_an_open_gate_looks_again_at_its_deadline_or_within_six_hours(
    store: Store, deadline: float | None, seconds: float
) -> None:
    """A cancellation lost in an outage of Temporal leaves no run that waits for ever."""
    assert await gate(store, deadline) == GateView(pending=1, deadline_in=seconds, at=NOW)


async def test_a_gate_whose_response_has_ended_is_gone(store: Store) -> None:
    """What such a look finds then."""
    await world.end(store, "a")
    local = LocalActivities(Deps(store=store, models=NoModels(), mcp=McpClients(), clock=lambda: NOW))
    view = await ActivityEnvironment().run(local.read_gate, GateInput(world.TENANT, "resp_a", 1))
    assert view == GateView(gone=True, at=NOW)
