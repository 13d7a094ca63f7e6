"""A worker is SIGKILLed around a tool call; another one settles the call and finishes the run."""

import json

import pytest

from outlast import failpoints
from tests.chaos.world import METER, World, items, told, whole

UNKNOWN = (
    "outcome_unknown: the call was dispatched and its result was lost (the worker that ran it was lost). "
    "It may or may not have happened. Do not repeat it before checking."
)


@pytest.mark.parametrize(
    ("point", "dispatches"),
    [(failpoints.AFTER_MARKER, 0), (failpoints.AFTER_DISPATCH, 1), (failpoints.AFTER_TOOL_BEFORE_COMMIT, 1)],
)
async def test_an_unsafe_tool_runs_at_most_once_and_the_model_is_told(
    outlast: World, point: str, dispatches: int
) -> None:
    """Fails without `if row.started and not row.safe: return results.unknown(...)` in `ExecuteToolsActivity._run`."""
    first = await outlast.worker(point)
    begun = await outlast.start("Please pay 17", outlast.office("pay_bill"))
    await first.killed(point)
    second = await outlast.worker()
    response = whole(await outlast.rest(begun))
    assert len(outlast.mcp.calls) == dispatches
    (call,) = items(response, "mcp_call")
    assert call == {
        "id": call["id"],
        "type": "mcp_call",
        "server_label": "office",
        "name": "pay_bill",
        "arguments": "{}",
        "approval_request_id": None,
        "status": "failed",
        "output": None,
        "error": {"type": "mcp_tool_execution_error", "content": [{"type": "text", "text": UNKNOWN}]},
    }
    assert [UNKNOWN in output for output in told(outlast.model)] == [True]
    assert response["status"] == "completed"
    assert len(outlast.model.requests) == 2
    assert await outlast.workers_of(response["id"]) == {first.pid, second.pid}


@pytest.mark.parametrize(
    ("point", "dispatches"),
    [(failpoints.AFTER_MARKER, 1), (failpoints.AFTER_DISPATCH, 2), (failpoints.AFTER_TOOL_BEFORE_COMMIT, 2)],
)
async def test_a_safe_tool_is_dispatched_again_with_its_key_and_the_result_is_used(
    outlast: World, point: str, dispatches: int
) -> None:
    """Fails without `and not row.safe` in `ExecuteToolsActivity._run`, the key without `item_id` in
    `CallRow.idempotency_key`."""
    first = await outlast.worker(point)
    begun = await outlast.start("Please read it", outlast.office("read_meter"))
    await first.killed(point)
    second = await outlast.worker()
    response = whole(await outlast.rest(begun))
    (call,) = items(response, "mcp_call")
    assert [made.idempotency_key for made in outlast.mcp.calls] == [call["id"]] * dispatches
    assert (call["status"], call["output"], call["error"]) == ("completed", METER, None)
    assert told(outlast.model) == [METER]
    assert response["status"] == "completed"
    assert len(outlast.model.requests) == 2
    assert await outlast.workers_of(response["id"]) == {first.pid, second.pid}


@pytest.mark.parametrize(("step", "hits"), [("CallLlm", 1), ("ExecuteTools", 2), ("the end", 3)])
async def test_a_committed_step_is_neither_paid_nor_run_again(outlast: World, step: str, hits: int) -> None:
    """Fails without `case Committed(outcome): return ...` in `CallLlmActivity._round` (CallLlm, the end) or in
    `ExecuteToolsActivity._settle` (ExecuteTools)."""
    first = await outlast.worker(f"{failpoints.AFTER_COMMIT_BEFORE_ACK}:{hits}")
    begun = await outlast.start("Please pay 17", outlast.office("pay_bill"))
    await first.killed(failpoints.AFTER_COMMIT_BEFORE_ACK)
    second = await outlast.worker()
    response = whole(await outlast.rest(begun))
    await outlast.served.ports.client.get_workflow_handle(response["id"]).result()
    (call,) = items(response, "mcp_call")
    assert (response["status"], call["status"], call["error"]) == ("completed", "completed", None)
    assert len(outlast.model.requests) == 2
    assert [made.arguments for made in outlast.mcp.calls] == [json.loads(call["arguments"])]
    assert await outlast.failures_of(response["id"]) == []
    assert await outlast.workers_of(response["id"]) == {first.pid, second.pid}


@pytest.mark.parametrize(
    ("kind", "asked", "dispatches", "status", "output"),
    [
        ("code_interpreter", "Please use the interpreter", 1, "failed", UNKNOWN),
        ("web_search", "Please search for it", 2, "completed", METER),
    ],
)
async def test_a_hosted_call_is_settled_as_its_tool_allows(
    outlast: World, kind: str, asked: str, dispatches: int, status: str, output: str
) -> None:
    """At most once, or again with its key. Fails as the two above; without the row's `hosted` it ends as an
    `mcp_call`."""
    first = await outlast.worker(failpoints.AFTER_DISPATCH)
    begun = await outlast.start(asked, {"type": kind})
    await first.killed(failpoints.AFTER_DISPATCH)
    second = await outlast.worker()
    response = whole(await outlast.rest(begun))
    (call,) = items(response, f"{kind}_call")
    assert [made.idempotency_key for made in outlast.mcp.calls] == [call["id"]] * dispatches
    assert call["status"] == status
    assert told(outlast.model) == [output]
    assert response["status"] == "completed"
    assert len(outlast.model.requests) == 2
    assert await outlast.workers_of(response["id"]) == {first.pid, second.pid}
