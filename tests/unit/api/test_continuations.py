"""Approvals: over their API, and by continuation, stateful, by reference and stateless (behaviour §3)."""

import asyncio
import itertools
from collections.abc import Sequence
from dataclasses import replace

import httpx
import pytest

from outlast.loop.state import Batch, Phase
from outlast.protocol.json import JsonObject
from tests.support.fake_runs import approval, ask_item
from tests.unit.api.conftest import World

_numbers = itertools.count()
DESK = {"type": "mcp", "server_label": "desk", "server_url": "http://desk.test/mcp"}


async def asked(world: World, count: int = 1, **body: object) -> tuple[str, list[str]]:
    """A response that parked on this many asks."""
    names = [f"mcpr_{next(_numbers)}" for _ in range(count)]
    world.runs.play(lambda rid: world.activities.ask(rid, *(approval(rid, name, i) for i, name in enumerate(names))))
    answer = await world.http.post("/v1/responses", json={"model": "demo", "input": "refund 1042", **body})
    assert answer.status_code == 200, answer.text
    assert [item["id"] for item in answer.json()["output"]] == names
    return answer.json()["id"], names


async def asked_with_secret(world: World, **body: object) -> tuple[str, list[str]]:
    """One whose ask was sealed with the credentials of its request."""
    name = f"mcpr_{next(_numbers)}"

    async def part(response_id: str) -> None:
        record = await world.store.get("default", response_id)
        assert record is not None
        ask = replace(approval(response_id, name), secret_id=record.credentials["desk"])
        await world.activities.ask(response_id, ask)

    world.runs.play(part)
    answer = await world.http.post("/v1/responses", json={"model": "demo", "input": "refund 1042", **body})
    return answer.json()["id"], [name]


def verdict(approval_id: str, approve: bool = True, **more: object) -> JsonObject:
    """An `mcp_approval_response`."""
    return {"type": "mcp_approval_response", "approval_request_id": approval_id, "approve": approve, **more}


async def go_on(
    world: World, previous: str | None, items: Sequence[object], headers: dict[str, str] | None = None, **more: object
) -> httpx.Response:
    """A continuation whose run then says something."""
    world.runs.parts[:] = [lambda rid: world.activities.say(rid, "done")]
    body = {"model": "demo", "input": items, **({"previous_response_id": previous} if previous else {}), **more}
    return await world.http.post("/v1/responses", json=body, headers=headers)


async def test_an_approved_call_is_announced_and_the_parked_run_resumed(world: World) -> None:
    """The stored call, under its approval; no new run."""
    previous, (name,) = await asked(world)
    answer = await go_on(world, previous, [verdict(name)])
    response_id = answer.json()["id"]
    assert world.runs.resumed == [(previous, response_id)]
    assert len(world.runs.started) == 1
    record = await world.store.get("default", response_id)
    assert record is not None
    assert record.workflow_id == previous
    state = record.run_state
    assert (state["phase"], state["tool_calls"]) == (Phase.TOOLS, 1)
    assert state["batch"] == {"round": 0, "run": [0], "ask": [], "client": False, "names": [[0, "desk.refund_order"]]}
    stream = (await world.http.get(f"/v1/responses/{response_id}?stream=true")).text
    assert '"type":"mcp_call","approval_request_id":"' + name in stream
    shown = (await world.http.get(f"/v1/approvals/{name}")).json()
    assert (shown["status"], shown["decided_how"], shown["taken_by"]) == ("approved", "continuation", response_id)


async def test_a_parked_run_that_is_gone_is_replaced(world: World) -> None:
    """A new workflow under the new id; the client sees no difference."""
    previous, (name,) = await asked(world)
    world.runs.gone = True
    answer = await go_on(world, previous, [verdict(name)])
    response_id = answer.json()["id"]
    assert answer.json()["status"] == "completed"
    assert [workflow_id for workflow_id, _ in world.runs.started] == [previous, response_id]


async def test_a_denied_call_is_not_announced(world: World) -> None:
    """No `mcp_call`; the model is asked at once."""
    previous, (name,) = await asked(world)
    answer = await go_on(world, previous, [verdict(name, False, reason="no")])
    record = await world.store.get("default", answer.json()["id"])
    assert record is not None
    assert record.run_state["phase"] == Phase.MODEL
    assert [item["type"] for item in answer.json()["output"]] == ["message"]
    assert (await world.http.get(f"/v1/approvals/{name}")).json()["reason"] == "no"


async def test_the_undecided_rest_is_listed_again(world: World) -> None:
    """The new response lists it; the old one is stale for it."""
    previous, (first, second) = await asked(world, 2)
    world.runs.parts[:] = []
    body = {"model": "demo", "input": [verdict(first)], "previous_response_id": previous, "background": True}
    response_id = (await world.http.post("/v1/responses", json=body)).json()["id"]
    record = await world.store.get("default", response_id)
    assert record is not None
    batch = record.run_state["batch"]
    assert (batch["round"], batch["run"], batch["ask"]) == (0, [0], [1])
    assert (await world.http.get(f"/v1/approvals/{second}")).json()["response_id"] == response_id
    stale = (await go_on(world, previous, [verdict(second)])).json()["error"]
    assert stale["code"] == "approval_stale"
    assert response_id in stale["message"]


@pytest.mark.parametrize("form", ["reference", "whole"])
async def test_a_stateless_continuation_claims_the_same_run(world: World, form: str) -> None:
    """Only the ids count."""
    previous, (name,) = await asked(world)
    ask = {"type": "item_reference", "id": name} if form == "reference" else ask_item(approval(previous, name))
    answer = await go_on(world, None, [{"role": "user", "content": "refund 1042"}, ask, verdict(name)])
    assert world.runs.resumed == [(previous, answer.json()["id"])]


async def test_an_ask_of_a_response_that_was_not_stored_needs_its_request_back(world: World) -> None:
    """Arguments were not kept; the fingerprint says whether it is the same call."""
    previous, (name,) = await asked(world, store=False)
    ask = ask_item(approval(previous, name))
    for sent, code in (([], None), ([{**ask, "arguments": '{"order_id":"1"}'}], "approval_mismatch")):
        refused = await go_on(world, None, [*sent, verdict(name)], store=False)
        assert (refused.status_code, refused.json()["error"]["code"]) == (400, code)
    assert (await go_on(world, None, [ask, verdict(name)], store=False)).status_code == 200
    assert world.runs.resumed == []


async def test_a_decision_made_elsewhere_is_used_and_shown_to_the_model(world: World) -> None:
    """Denied over the API: the next continuation carries it as a hidden input."""
    previous, (name,) = await asked(world)
    stored = (await world.http.post(f"/v1/approvals/{name}", json={"approve": False, "reason": "fraud"})).json()
    assert (stored["status"], stored["note"]) == ("denied", "runs when the caller continues")
    answer = await go_on(world, previous, [{"role": "user", "content": "well?"}])
    chain = await world.store.chain("default", answer.json()["id"])
    (hidden,) = [stored.item for stored in chain if stored.hidden]
    assert (hidden["approval_request_id"], hidden["approve"], hidden["reason"]) == (name, False, "fraud")
    assert world.runs.resumed == [(previous, answer.json()["id"])]


async def test_a_continuation_that_decides_nothing_is_a_branch(world: World) -> None:
    """No claim; the gate stays."""
    previous, (name,) = await asked(world)
    answer = await go_on(world, previous, [{"role": "user", "content": "never mind"}])
    assert world.runs.resumed == []
    assert world.runs.started[-1][1].state.batch == Batch()
    assert (await world.http.get(f"/v1/approvals/{name}")).json()["status"] == "pending"
    assert await world.store.parked_on("default", previous) == previous
    assert answer.json()["status"] == "completed"


async def test_unknown_and_foreign_asks_are_refused_by_name(world: World) -> None:
    """4xx that says which; nothing is decided."""
    previous, (name,) = await asked(world)
    unknown = await go_on(world, previous, [verdict(name), verdict("mcpr_nobody")])
    assert (unknown.status_code, unknown.json()["error"]["code"]) == (400, "approval_not_found")
    assert "mcpr_nobody" in unknown.json()["error"]["message"]
    foreign = await go_on(world, None, [verdict(name)], headers={"x-tenant": "other"})
    assert (foreign.status_code, foreign.json()["error"]["code"]) == (400, "approval_not_found")
    assert (await world.http.get(f"/v1/approvals/{name}")).json()["status"] == "pending"
    assert (await world.http.get(f"/v1/approvals/{name}", headers={"x-tenant": "other"})).status_code == 404


async def test_a_contradiction_names_the_winner(world: World) -> None:
    """In a continuation and over the API alike; a repeat answers what stands."""
    previous, (name,) = await asked(world)
    await world.http.post(f"/v1/approvals/{name}", json={"approve": False}, headers={"x-outlast-via": "cli"})
    repeat = await world.http.post(f"/v1/approvals/{name}", json={"approve": False})
    assert (repeat.status_code, repeat.json()["decided_how"]) == (200, "cli")
    for refused in (
        await go_on(world, previous, [verdict(name, True)]),
        await world.http.post(f"/v1/approvals/{name}", json={"approve": True}),
    ):
        assert (refused.status_code, refused.json()["error"]["code"]) == (400, "approval_already_decided")
        assert "denied by local through cli" in refused.json()["error"]["message"]


async def test_a_decision_is_used_once(world: World) -> None:
    """The second continuation is told who took it."""
    previous, (name,) = await asked(world)
    taker = (await go_on(world, previous, [verdict(name)])).json()["id"]
    for start in (previous, taker, None):
        again = await go_on(world, start, [verdict(name)])
        assert (again.status_code, again.json()["error"]["code"]) == (400, "approval_already_decided"), start
        assert taker in again.json()["error"]["message"]


async def test_an_approval_does_not_move_to_another_server(world: World) -> None:
    """A re-pointed label, or credentials of another key: refused, and not burnt."""
    previous, (name,) = await asked(world)
    moved = await go_on(world, previous, [verdict(name)], tools=[{**DESK, "server_url": "http://evil.test/mcp"}])
    other = await go_on(
        world, previous, [verdict(name)], tools=[{**DESK, "authorization": "t"}], headers={"x-key": "key_2"}
    )
    for refused in (moved, other):
        assert (refused.status_code, refused.json()["error"]["code"]) == (400, "approval_mismatch")
    assert (await go_on(world, previous, [verdict(name)], tools=[DESK])).status_code == 200


async def test_credentials_of_another_key_serve_no_later_round(world: World) -> None:
    """The approved call runs with its own; what comes after it is the business of who continued."""
    owned = {"tools": [{**DESK, "authorization": "t"}]}
    for key, kept in (("local", True), ("key_2", False)):
        previous, (name,) = await asked_with_secret(world, **owned)
        answer = await go_on(world, previous, [verdict(name)], headers={"x-key": key})
        record = await world.store.get("default", answer.json()["id"])
        assert record is not None
        assert bool(record.credentials) is kept, key


async def test_a_key_without_the_approver_role_continues_only_what_was_decided(world: World) -> None:
    """403 by continuation and over the API, until an approver has decided the same."""
    previous, (name,) = await asked(world)
    caller = {"x-roles": "caller"}
    assert (await go_on(world, previous, [verdict(name)], headers=caller)).status_code == 403
    denied = await world.http.post(f"/v1/approvals/{name}", json={"approve": True}, headers=caller)
    assert denied.status_code == 403
    await world.http.post(f"/v1/approvals/{name}", json={"approve": True})
    assert (await go_on(world, previous, [verdict(name)], headers=caller)).status_code == 200


async def test_an_admin_may_do_what_callers_and_approvers_may(world: World) -> None:
    """Without holding either role."""
    previous, (name,) = await asked(world)
    assert (await go_on(world, previous, [verdict(name)], headers={"x-roles": "admin"})).status_code == 200
    assert (await world.http.get(f"/v1/approvals/{name}")).json()["status"] == "approved"


@pytest.mark.parametrize("body", [{}, {"approve": "yes"}, {"approve": True, "reason": 1}])
async def test_a_decision_must_be_a_boolean(world: World, body: JsonObject) -> None:
    """400 naming the field."""
    _, (name,) = await asked(world)
    refused = await world.http.post(f"/v1/approvals/{name}", json=body)
    assert refused.status_code == 400
    assert refused.json()["error"]["param"] in ("approve", "reason")


async def test_a_waiting_response_shows_its_asks_and_a_decision_wakes_it(world: World) -> None:
    """No output item; GET shows the ask, chaining names it, the decision wakes the run."""
    name = f"mcpr_{next(_numbers)}"
    written = asyncio.Event()

    async def part(response_id: str) -> None:
        await world.activities.ask(response_id, approval(response_id, name, mode="wait"))
        written.set()

    world.runs.play(part)
    body = {"model": "demo", "input": "refund", "background": True, "outlast": {"approval_mode": "wait"}}
    response_id = (await world.http.post("/v1/responses", json=body)).json()["id"]
    await written.wait()
    waiting = (await world.http.get(f"/v1/responses/{response_id}")).json()
    assert (waiting["status"], waiting["output"]) == ("in_progress", [])
    assert [ask["id"] for ask in waiting["outlast"]["pending_approvals"]] == [name]
    chained = (await go_on(world, response_id, [verdict(name)])).json()["error"]
    assert name in chained["message"]
    pending = (await world.http.get("/v1/approvals?status=pending")).json()["data"]
    assert name in [ask["id"] for ask in pending]
    decided = (await world.http.post(f"/v1/approvals/{name}", json={"approve": True})).json()
    assert (decided["status"], decided["decided_by"], "note" in decided) == ("approved", "local", False)
    assert world.runs.woken == [(response_id, name)]
    assert "outlast" not in (await world.http.get(f"/v1/responses/{response_id}")).json()
