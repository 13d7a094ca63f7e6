"""The store can rebuild a run: Temporal forgets, is told to forget, or never heard of it."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from outlast.contracts import RunInput
from outlast.devserver import DevServer
from outlast.ports import KEY_FILE
from outlast.protocol.json import JsonObject
from outlast.runs import Runs
from outlast.store.sqlite import open_store
from outlast.sweeper import Pace, Sweeper
from tests.chaos.lost import lose
from tests.chaos.world import PAID, TIMEOUTS, World, ask_of, items, text_of, whole, world

NOW = Pace(silent=0)
WAIT = {"approval_mode": "wait"}


@pytest.fixture
async def own_temporal(tmp_path: Path) -> AsyncIterator[DevServer]:
    """A server that a test may break."""
    async with DevServer(tmp_path / "temporal", port=0, ui_port=0) as server:
        yield server


@pytest.fixture
async def breakable(tmp_path: Path, own_temporal: DevServer) -> AsyncIterator[World]:
    """An Outlast on it, with a worker in this process."""
    async with world(tmp_path / "data", own_temporal.address) as made:
        await made.work()
        yield made


async def sweep(outlast: World) -> int:
    """One pass that takes every open row for a silent one."""
    return await Sweeper(outlast.served.ports.store, outlast.served.ports.runs, TIMEOUTS, pace=NOW).sweep()


async def terminate(outlast: World, workflow_id: str) -> None:
    """End the workflow as an operator does in Temporal's UI."""
    await outlast.served.ports.client.get_workflow_handle(workflow_id).terminate()


# -- terminated --------------------------------------------------------------------------------------------------------


async def test_a_terminated_run_that_has_begun_is_failed(outlast: World) -> None:
    """Fails without `if not await self._store.steps_begun(...)` in `Sweeper._after_close`: it would be paid again."""
    await outlast.work()
    outlast.model.hold(1, after=b"response.output_text.delta")
    begun = await outlast.start("Tell me something nice", until="response.output_text.delta")
    response_id = begun[0]["response"]["id"]
    await terminate(outlast, response_id)
    assert await sweep(outlast) == 1
    response = whole(await outlast.rest(begun))
    assert response["status"] == "failed"
    assert response["error"]["code"] == "server_error"
    assert [(item["status"], item["content"]) for item in response["output"]] == [("incomplete", [])]
    assert len(outlast.model.requests) == 1


async def test_a_terminated_run_that_has_not_begun_is_started_again(outlast: World) -> None:
    """Fails without `again=True` in `Sweeper._restart`: Temporal refuses the id of a closed run."""
    begun = await outlast.start("Tell me something nice")
    await terminate(outlast, begun[0]["response"]["id"])
    assert await sweep(outlast) == 1
    await outlast.work()
    response = whole(await outlast.rest(begun))
    assert response["status"] == "completed"
    assert text_of(response) != ""
    assert len(outlast.model.requests) == 1


@pytest.mark.parametrize("swept", [False, True])
async def test_a_continuation_of_a_terminated_parked_run_gets_a_run_of_its_own(outlast: World, swept: bool) -> None:
    """Fails without `_take_over` in `api.create._launch` (not swept) or `leave_park` in `Sweeper.sweep` (swept)."""
    await outlast.work()
    asked = await parked(outlast)
    await terminate(outlast, asked["id"])
    if swept:
        await sweep(outlast)
        assert await outlast.served.ports.store.parked_on("default", asked["id"]) is None
    await paid_by_continuation(outlast, asked)


# -- Temporal's file is gone ----------------------------------------------------------------------------------------


async def test_a_run_in_progress_goes_on_after_temporal_lost_everything(
    breakable: World, own_temporal: DevServer
) -> None:
    """Its round and its unsafe tool call are committed and not repeated; the round under way is asked again.

    Fails without `case None: await self._restart(record)` in `Sweeper._mend`.
    """
    breakable.model.hold(2, after=b"response.created")
    begun = await breakable.start("Please pay 17", breakable.office("pay_bill"))
    await breakable.model.until(lambda model: len(model.requests) == 2)
    await lose(own_temporal)
    assert await sweep(breakable) == 1
    response = whole(await breakable.rest(begun))
    (call,) = items(response, "mcp_call")
    assert (response["status"], call["status"], call["output"]) == ("completed", "completed", PAID)
    assert [made.tool for made in breakable.mcp.calls] == ["pay_bill"]
    assert len(breakable.model.requests) == 3


async def test_a_parked_run_and_its_decision_outlive_temporals_file(breakable: World, own_temporal: DevServer) -> None:
    """Decided out of band, then Temporal forgets; fails without `_take_over` in `api.create._launch`."""
    asked = await parked(breakable)
    await breakable.decide(ask_of(asked)["id"], approve=True)
    await lose(own_temporal)
    assert [(ask["id"], ask["status"]) for ask in await breakable.approvals()] == [(ask_of(asked)["id"], "approved")]
    await paid_by_continuation(breakable, asked)


async def test_a_continuation_whose_wake_up_and_run_are_lost_goes_on(
    breakable: World, own_temporal: DevServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It had claimed the parked run; fails without `set_workflow` in `Sweeper._restart`: the new run would own none."""
    asked = await parked(breakable)
    with monkeypatch.context() as patched:
        patched.setattr(Runs, "resume", _taken_and_lost)
        begun = await breakable.continued(asked, until="response.created")
    await lose(own_temporal)
    assert await sweep(breakable) == 1
    await paid(breakable, asked, whole(await breakable.rest(begun)))


async def test_a_run_that_waits_goes_on_with_the_decision_made_while_temporal_had_forgotten_it(
    breakable: World, own_temporal: DevServer
) -> None:
    """Fails without `case None: await self._restart(record)` in `Sweeper._mend`; one ask only because `ask:1` is
    committed."""
    begun = await breakable.start("Please pay 17", breakable.office("pay_bill", approval="always"), outlast=WAIT)
    (ask,) = await breakable.until_asked()
    await lose(own_temporal)
    await breakable.decide(ask["id"], approve=True)
    assert await sweep(breakable) == 1
    response = whole(await breakable.rest(begun))
    (call,) = items(response, "mcp_call")
    assert (response["status"], call["output"], call["approval_request_id"]) == ("completed", PAID, ask["id"])
    assert [made.idempotency_key for made in breakable.mcp.calls] == [ask["id"]]
    assert [(each["id"], each["status"]) for each in await breakable.approvals()] == [(ask["id"], "approved")]
    assert len(breakable.model.requests) == 2


# -- lost messages, two sweepers ---------------------------------------------------------------------------------------


async def test_a_lost_wake_up_is_sent_again(outlast: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The continuation has claimed the parked run; fails without `self._runs.resume` in `Sweeper._wake`."""
    await outlast.work()
    asked = await parked(outlast)
    with monkeypatch.context() as patched:
        patched.setattr(Runs, "resume", _taken_and_lost)
        begun = await outlast.continued(asked, until="response.created")
    assert await sweep(outlast) == 1
    response = whole(await outlast.rest(begun))
    await paid(outlast, asked, response)
    assert await outlast.activities_of(asked["id"]) == ["CallLlm", "InterruptForApproval", "ExecuteTools", "CallLlm"]


async def test_of_two_sweepers_each_lost_start_is_mended_by_one(
    outlast: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows without a workflow, two processes' sweepers at once: every run is started once, and completes.

    Fails without `.values(sweep_after=lease_until)` in `repair._LEASE`: no pass would come to an end.
    """
    with monkeypatch.context() as patched:
        patched.setattr(Runs, "start", _never_arrives)
        begun = [await outlast.start("Tell me something nice") for _ in range(3)]
    started: list[str] = []
    send = Runs.start

    async def counted(self: Runs, run: RunInput, workflow_id: str, *, again: bool = False) -> None:
        started.append(workflow_id)
        await send(self, run, workflow_id, again=again)

    monkeypatch.setattr(Runs, "start", counted)
    mine = outlast.served.ports
    other = await open_store(outlast.given.data_dir / "outlast.db", outlast.given.data_dir / KEY_FILE)
    try:
        sweepers = [Sweeper(store, mine.runs, TIMEOUTS, pace=NOW) for store in (mine.store, other)]
        async with asyncio.timeout(30):
            seen = await asyncio.gather(*(sweeper.sweep() for sweeper in sweepers))
    finally:
        await other.aclose()
    assert sum(seen) == 3
    assert sorted(started) == sorted(frames[0]["response"]["id"] for frames in begun)
    await outlast.work()
    responses = [whole(await outlast.rest(frames)) for frames in begun]
    assert [response["status"] for response in responses] == ["completed"] * 3
    assert len(outlast.model.requests) == 3


async def _never_arrives(self: Runs, run: RunInput, workflow_id: str, *, again: bool = False) -> None:
    """A start that was lost on its way."""


async def _taken_and_lost(self: Runs, workflow_id: str, response_id: str) -> bool:
    """A signal that was lost on its way."""
    return True


# -- helpers -----------------------------------------------------------------------------------------------------------


async def parked(outlast: World) -> JsonObject:
    """A response that ended with an ask, its run parked."""
    begun = await outlast.start("Please pay 17", outlast.office("pay_bill", approval="always"))
    asked = whole(await outlast.rest(begun))
    await outlast.until_parked(asked["id"])
    return asked


async def paid_by_continuation(outlast: World, asked: JsonObject) -> None:
    """Continue with a yes: a run of its own serves it, with the same public result."""
    response = whole(await outlast.continued(asked))
    await paid(outlast, asked, response)
    record = await outlast.served.ports.store.get("default", response["id"])
    assert record is not None
    assert record.workflow_id == response["id"]


async def paid(outlast: World, asked: JsonObject, response: JsonObject) -> None:
    """The approved call ran once, under its approval's id, and the response tells of it."""
    (call,) = items(response, "mcp_call")
    assert (call["status"], call["output"], call["approval_request_id"]) == ("completed", PAID, ask_of(asked)["id"])
    assert [made.idempotency_key for made in outlast.mcp.calls] == [ask_of(asked)["id"]]
    assert response["status"] == "completed"
    assert len(outlast.model.requests) == 2
