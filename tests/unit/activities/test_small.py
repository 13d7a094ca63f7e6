"""The small activities over a real store: heartbeats, ends, headers, parks and gates."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from temporalio.testing import ActivityEnvironment

from activities import base
from activities.base import Deps
from activities.execute_tools import ExecuteToolsActivity
from activities.finish_response import LocalActivities
from activities.interrupt_for_approval import InterruptForApprovalActivity
from outlast.contracts import AskInput, GateInput, GateView, ParkInput, Resumed, Timeouts, ToolInput
from outlast.loop.state import Batch, Ended, Phase, RunState, Status
from outlast.mcp.base import NotDispatched, ServerRef, ToolOutcome, ToolSpec
from outlast.mcp.client import McpClients
from outlast.protocol.json import JsonObject
from outlast.protocol.usage import Usage
from outlast.store.base import Commit
from outlast.store.port import Store
from outlast.store.sqlite import open_store
from outlast.upstream.base import Upstream
from tests.support import store_world as world

# The workflow an activity environment says it works for.
WORKFLOW = "test"
URL = "http://desk/mcp"


class NoModels:
    """None of these asks a model."""

    def resolve(self, model: str) -> tuple[Upstream, str]:
        raise AssertionError(model)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    """A store of its own."""
    opened = await open_store(tmp_path / "outlast.db", tmp_path / "secrets.key")
    yield opened
    await opened.aclose()


def deps(store: Store, **more: object) -> Deps:
    """Of an activity."""
    return replace(Deps(store=store, models=NoModels(), mcp=McpClients(), clock=lambda: 2_000.0), **more)  # type: ignore[arg-type]


async def test_a_step_beats_every_second() -> None:
    """A lost worker is noticed by its silence, and a cancellation arrives with a beat."""
    beaten = asyncio.Event()
    environment = ActivityEnvironment()
    environment.on_heartbeat = lambda *_: beaten.set()

    async def step() -> None:
        async with asyncio.timeout(20), base.beating():
            await beaten.wait()

    await environment.run(step)


@pytest.mark.parametrize(
    ("code", "shown", "kind"),
    [
        ("approval_expired", "invalid_prompt", "invalid_request_error"),
        ("step_failed", "server_error", "server_error"),
    ],
)
def test_only_a_deadline_is_the_callers_failure(code: str, shown: str, kind: str) -> None:
    """Sent again as it is, it may do; of everything else the caller can change nothing."""
    ending = base.ending(Ended(Status.FAILED, code=code), Usage(), 1.0)
    assert ending.error is not None
    assert (ending.error["code"], ending.error["type"]) == (shown, kind)


async def test_the_headers_of_a_request_win_over_the_configured_ones(store: Store) -> None:
    """The caller's token, not the operator's; purged ones are not replaced by less."""
    await store.create(world.new(world.record("a"), secrets={"sec_1": {"authorization": "theirs"}}))
    given = deps(store, server_headers={URL: {"authorization": "ours", "x-team": "desk"}})
    assert await base.server_headers(given, world.TENANT, URL, "sec_1") == {"authorization": "theirs", "x-team": "desk"}
    assert await base.server_headers(given, world.TENANT, URL, None) == {"authorization": "ours", "x-team": "desk"}
    assert await base.server_headers(given, world.TENANT, URL, "sec_gone") is None


class Away:
    """An MCP server nobody can connect to."""

    def __init__(self) -> None:
        self.tries = 0

    async def list_tools(self, server: ServerRef, *, timeout: float) -> tuple[ToolSpec, ...]:
        raise AssertionError(server)

    async def call(
        self,
        server: ServerRef,
        tool: str,
        arguments: JsonObject,
        *,
        idempotency_key: str,
        timeout: float,
        encoded_images: bool = False,
    ) -> ToolOutcome:
        self.tries += 1
        raise NotDispatched("refused")

    async def aclose(self) -> None:
        raise AssertionError


@pytest.mark.parametrize(
    ("own", "times", "tries"),
    [
        (None, Timeouts(tool=0.1), 1),
        (None, Timeouts(tool=0.9), 2),
        (0.1, Timeouts(tool=0.9), 1),
        (0.9, Timeouts(tool=0.1, tool_own=0.9), 2),
        # A row of another process's settings: the activity's limit is this input's.
        (0.9, Timeouts(tool=0.1), 1),
    ],
)
async def test_a_server_that_is_away_is_tried_again_within_the_calls_deadline(
    store: Store, own: float | None, times: Timeouts, tries: int
) -> None:
    """Past it the activity would be cut, and a call that never left count as unknown. `own`: the tool's."""
    await store.create(world.new(world.record("a", workflow_id=WORKFLOW)))
    handle = await world.begin(store, "a", "llm:1", workflow_id=WORKFLOW)
    await store.append(
        handle, [world.added("mcp_a0", "mcp_call")], Commit(calls=[world.call(0, timeout=own)], outcome={})
    )
    mcp = Away()
    request = ToolInput(world.TENANT, "resp_a", 1, 0, times)
    await ActivityEnvironment().run(ExecuteToolsActivity(deps(store, mcp=mcp)).execute_tools, request)
    assert mcp.tries == tries
    (item,) = await store.output(world.TENANT, "resp_a")
    assert item["status"] == "failed"
    assert "could not be reached: refused" in item["error"]["content"][0]["text"]


@pytest.mark.parametrize(
    ("started", "safe", "unknown"), [(True, False, True), (True, True, False), (False, False, False)]
)
async def test_only_an_unsafe_call_that_was_dispatched_may_have_happened(
    store: Store, started: bool, safe: bool, unknown: bool
) -> None:
    """Every attempt was lost: what the model is told says no more than is known."""
    await store.create(world.new(world.record("a", workflow_id=WORKFLOW)))
    handle = await world.begin(store, "a", "llm:1", workflow_id=WORKFLOW)
    calls = [world.call(0, safe=safe)]
    await store.append(handle, [world.added("mcp_a0", "mcp_call")], Commit(calls=calls, outcome={}))
    if started:
        handle = await world.begin(store, "a", "tool:1.0", workflow_id=WORKFLOW, calls=1)
        await store.append(handle, [], Commit(started=[(1, 0)]))
    request = ToolInput(world.TENANT, "resp_a", 1, 0, Timeouts())
    await ActivityEnvironment().run(ExecuteToolsActivity(deps(store)).fail_call, request)
    (item,) = await store.output(world.TENANT, "resp_a")
    said = item["error"]["content"][0]["text"]
    assert ("outcome_unknown" in said, "the worker that ran it was lost" in said) == (unknown, True)


@pytest.mark.parametrize("stored", [True, False])
async def test_only_a_stored_response_parks_its_run(store: Store, stored: bool) -> None:
    """Nobody may continue from one that is purged, so nobody would take the run."""
    await store.create(world.new(world.record("a", workflow_id=WORKFLOW, store=stored)))
    await store.attend(world.TENANT, "resp_a", world.now() + 60)
    handle = await world.begin(store, "a", "llm:1", workflow_id=WORKFLOW)
    await store.append(handle, [], Commit(calls=[world.call(0, action="ask")], outcome={}))
    state = RunState("resp_a", phase=Phase.ASK, batch=Batch(1, ask=(0,)))
    interrupt = InterruptForApprovalActivity(deps(store)).interrupt_for_approval
    outcome = await ActivityEnvironment().run(interrupt, AskInput(world.TENANT, state))
    assert (outcome.finished, outcome.parked) == (Ended(Status.COMPLETED), stored)


@pytest.mark.parametrize("served_by", [WORKFLOW, "another"])
async def test_a_run_takes_only_what_is_its_own(store: Store, served_by: str) -> None:
    """A continuation that was moved to a run of its own is not served twice."""
    state = RunState("resp_b")
    await store.create(world.new(world.record("b", workflow_id=served_by, run_state=asdict(state), model="m")))
    leave = LocalActivities(deps(store)).leave_park
    resumed = await ActivityEnvironment().run(leave, ParkInput(world.TENANT, "resp_a", "resp_b"))
    assert resumed == (Resumed(state, "m") if served_by == WORKFLOW else Resumed())


async def test_a_gate_that_fails_announces_no_call(store: Store) -> None:
    """One ask was approved, the other not in time: the response ends, and nothing of it runs."""
    await store.create(world.new(world.record("a", workflow_id=WORKFLOW, mode="wait")))
    handle = await world.begin(store, "a", "ask:1", workflow_id=WORKFLOW)
    rows = [world.call(n, action="ask", approval_id=f"mcpr_{n}") for n in range(2)]
    late: dict[str, Any] = {"deadline": world.now() + 60, "on_deadline": "fail"}
    asks = [world.ask("mcpr_0", mode="wait"), world.ask("mcpr_1", mode="wait", ordinal=1, **late)]
    await store.append(handle, [], Commit(calls=rows, approvals=asks, outcome={}))
    await store.decide(world.TENANT, world.wish("mcpr_0"))
    await store.expire(world.TENANT, "resp_a", world.now() + 61)
    before = await store.get(world.TENANT, "resp_a")
    read = LocalActivities(deps(store)).read_gate
    assert await ActivityEnvironment().run(read, GateInput(world.TENANT, "resp_a", 1)) == GateView(
        approved=(0,), failed=True, at=2_000.0
    )
    # Its numbers too.
    assert await store.get(world.TENANT, "resp_a") == before
