"""Claims about days: on a server that skips the time nothing happens in."""

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta

import pytest
from temporalio.testing import WorkflowEnvironment

from outlast import contracts
from outlast.contracts import GateView, ParkInput, Timeouts
from outlast.devserver import find_program
from outlast.loop.state import Ended, Status
from outlast.temporal import DATA_CONVERTER
from tests.support.fakes import TIMEOUTS, Bench, Run, Script, asking, waiting

KEYS = (contracts.RESPONSES_KEY, contracts.TENANT_KEY, contracts.MODEL_KEY, contracts.PENDING_KEY)
WEEK = timedelta(days=7).total_seconds()


@pytest.fixture(scope="module")
async def skipping() -> AsyncIterator[WorkflowEnvironment]:
    """A server of its own; every workflow on it has a clock of its own."""
    async with await WorkflowEnvironment.start_time_skipping_v2(
        data_converter=DATA_CONVERTER,
        search_attributes=KEYS,
        dev_server_existing_path=str(find_program()),
        dev_server_startup_timeout=timedelta(seconds=30),
        dev_server_extra_args=["--dynamic-config-value", "frontend.WorkflowTimeSkippingEnabled=true"],
    ) as environment:
        yield environment


@pytest.fixture(params=[0, 1000], ids=["replaying", "cached"])
async def bench(skipping: WorkflowEnvironment, request: pytest.FixtureRequest) -> Bench:
    """As everywhere, on the other server."""
    return Bench(skipping.client, request.param)


async def lasted(run: Run) -> float:
    """Seconds between the first and the last event, by the run's own clock."""
    events = await run.events()
    return (events[-1].event_time.ToDatetime() - events[0].event_time.ToDatetime()).total_seconds()


async def test_a_gate_waits_a_week_for_its_deadline(bench: Bench) -> None:
    """Then the rows expire, and the response fails as configured."""
    script: Script = {contracts.READ_GATE: [GateView(pending=1, deadline_in=WEEK), GateView(failed=True)]}
    async with bench.running(script, waiting()) as run:
        await run.ended()
        assert run.fakes.names()[1:] == [
            contracts.READ_GATE,
            contracts.EXPIRE_ASKS,
            contracts.READ_GATE,
            contracts.FINISH_RESPONSE,
        ]
        assert run.fakes.inputs(contracts.FINISH_RESPONSE)[0].state.ended == Ended(
            Status.FAILED, code="approval_expired"
        )
        assert WEEK <= await lasted(run) < WEEK + 60


async def test_a_park_lasts_a_day_by_default(bench: Bench) -> None:
    """A week by setting; then the row is closed and the run ends."""
    for park in (Timeouts().park, WEEK):
        async with bench.running({}, asking(), timeouts=replace(TIMEOUTS, park=park)) as run:
            await run.ended()
            assert run.fakes.inputs(contracts.LEAVE_PARK) == [ParkInput("default", "resp_1", None)]
            assert park <= await lasted(run) < park + 60
