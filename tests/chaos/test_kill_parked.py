"""A worker is SIGKILLed while a run stops for a human; another one takes the run up again."""

import pytest

from outlast import failpoints
from tests.chaos.world import PAID, World, ask_of, items, whole


@pytest.mark.parametrize("point", [failpoints.PARKED, None])
async def test_a_parked_run_outlives_its_worker(outlast: World, point: str | None) -> None:
    """Killed before Temporal knows of the park, or long after: one ask, one call, one history.

    Fails without `case Committed(committed): return ...` in `InterruptForApprovalActivity`: the response has ended,
    and the run would close instead of parking.
    """
    first = await outlast.worker(point)
    asked = whole(
        await outlast.rest(await outlast.start("Please pay 17", outlast.office("pay_bill", approval="always")))
    )
    if point is None:
        await outlast.until_parked(asked["id"])
        await first.kill()
    else:
        await first.killed(point)
    assert outlast.mcp.calls == []
    second = await outlast.worker()
    response = whole(await outlast.continued(asked))
    (call,) = items(response, "mcp_call")
    assert (call["status"], call["output"], call["approval_request_id"]) == ("completed", PAID, ask_of(asked)["id"])
    assert [made.idempotency_key for made in outlast.mcp.calls] == [ask_of(asked)["id"]]
    assert [ask["id"] for ask in await outlast.approvals()] == [ask_of(asked)["id"]]
    assert response["status"] == "completed"
    assert len(outlast.model.requests) == 2
    assert await outlast.activities_of(asked["id"]) == ["CallLlm", "InterruptForApproval", "ExecuteTools", "CallLlm"]
    assert await outlast.workers_of(asked["id"]) == {first.pid, second.pid}


async def test_a_run_that_waits_outlives_its_worker_and_sees_the_decision_made_meanwhile(outlast: World) -> None:
    """Fails without `case Committed(committed): return ...` in `InterruptForApprovalActivity` (a second ask)."""
    first = await outlast.worker(failpoints.PARKED)
    begun = await outlast.start(
        "Please pay 17", outlast.office("pay_bill", approval="always"), outlast={"approval_mode": "wait"}
    )
    await first.killed(failpoints.PARKED)
    (ask,) = await outlast.approvals()
    await outlast.decide(ask["id"], approve=True)
    second = await outlast.worker()
    response = whole(await outlast.rest(begun))
    (call,) = items(response, "mcp_call")
    assert (call["status"], call["output"], call["approval_request_id"]) == ("completed", PAID, ask["id"])
    assert [made.idempotency_key for made in outlast.mcp.calls] == [ask["id"]]
    assert [(each["id"], each["status"]) for each in await outlast.approvals()] == [(ask["id"], "approved")]
    assert response["status"] == "completed"
    assert await outlast.workers_of(response["id"]) == {first.pid, second.pid}
