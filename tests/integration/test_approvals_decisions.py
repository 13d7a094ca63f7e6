"""Claims about who may decide what in a continuation: repeats, contradictions, strangers, replays, other servers.

A refused decision decides nothing: after each refusal the right request still works.
"""

import asyncio

import pytest
from openai import BadRequestError, NotFoundError, PermissionDeniedError
from openai.types.responses import Response

from tests.support.desk import (
    REFUND,
    Case,
    World,
    answered,
    asks,
    desk_tools,
    dumped,
    kinds,
    user,
    verdict,
)
from tests.support.mcp_server import mcp_server
from tests.support.scripted_model import say


def refund(world: World) -> Case:
    """A conversation whose first round refunds."""
    case = world.case()
    case.play([case.calls(REFUND)], *([say(f"text {number}")] for number in range(4)))
    return case


def pair(case: Case, ask: str, output: str) -> list[dict[str, object]]:
    """The refund of a case as the model sees it."""
    return answered(ask, REFUND, f'{{"order":{case.order}}}', output)


async def test_a_used_decision_is_refused_naming_the_response_that_used_it(world: World) -> None:
    """Same verdict or the other one: 400 `approval_already_decided`; the call ran once."""
    case = refund(world)
    first = await case.ask()
    (ask,) = asks(first)
    second = await case.decided(first, verdict(ask, True))
    for approve in (True, False):
        with pytest.raises(BadRequestError) as refused:
            await case.decided(first, verdict(ask, approve))
        assert refused.value.code == "approval_already_decided"
        assert second.id in refused.value.message
        again = await world.decide(ask, approve)
        assert (again.status_code, again.json()["error"]["code"]) == (400, "approval_already_decided")
        assert second.id in again.json()["error"]["message"]
    assert case.ran == ["refund"]


async def test_a_decision_made_elsewhere_is_used_and_cannot_be_contradicted(world: World) -> None:
    """Stored and shown as waiting for the caller; a repeat is 200; a continuation may agree or say nothing."""
    case = refund(world)
    first = await case.ask()
    (ask,) = asks(first)
    stored = await world.decide(ask, True, "fine")
    assert stored.status_code == 200
    assert {key: stored.json()[key] for key in ("status", "decided_how", "decided_by", "reason", "note")} == {
        "status": "approved",
        "decided_how": "api",
        "decided_by": "local",
        "reason": "fine",
        "note": "runs when the caller continues",
    }
    assert (await world.decide(ask, True)).json() == stored.json()
    assert case.ran == []
    with pytest.raises(BadRequestError) as refused:
        await case.decided(first, verdict(ask, False))
    assert refused.value.code == "approval_already_decided"
    assert "local through api" in refused.value.message
    second = await case.decided(first, {"role": "user", "content": "go on"})
    assert (kinds(second), case.ran) == (["mcp_call", "message"], ["refund"])
    assert await world.activities(first.id, second.id) == ["ExecuteTools", "CallLlm"]


async def test_a_denial_made_elsewhere_reaches_the_model(world: World) -> None:
    """Also through later turns of the chain; the input items a client lists do not show what it did not send."""
    case = refund(world)
    first = await case.ask("refund")
    (ask,) = asks(first)
    await world.decide(ask, False, "no money")
    second = await case.ask("and?", previous_response_id=first.id)
    assert kinds(second) == ["message"]
    told = [user("refund"), *pair(case, ask, "denied: no money"), user("and?")]
    assert case.script.transcript() == told
    await case.ask("still?", previous_response_id=second.id)
    assert case.script.transcript()[:4] == told
    listed = [item.type async for item in case.client.responses.input_items.list(second.id, order="asc")]
    assert listed == ["message", "mcp_list_tools", "mcp_approval_request", "message"]


async def test_the_same_verdict_again_is_accepted_while_not_used(world: World) -> None:
    """Decided by API, then agreed with in the continuation."""
    case = refund(world)
    first = await case.ask()
    (ask,) = asks(first)
    await world.decide(ask, True)
    second = await case.decided(first, verdict(ask, True))
    assert (kinds(second), case.ran) == (["mcp_call", "message"], ["refund"])
    assert (await world.approval(ask))["decided_how"] == "api"


async def test_unknown_and_foreign_decisions_are_refused_alike(world: World) -> None:
    """Another tenant's ask is as unknown as none; its responses too."""
    case = refund(world)
    first = await case.ask()
    (ask,) = asks(first)
    with pytest.raises(BadRequestError) as unknown:
        await case.decided(first, verdict("mcpr_nobody", True))
    assert (unknown.value.code, unknown.value.param) == ("approval_not_found", "input")
    elsewhere = {"x-tenant": "other"}
    with pytest.raises(BadRequestError) as foreign:
        await case.ask([*dumped(first), verdict(ask, True)], extra_headers=elsewhere)
    assert foreign.value.code == "approval_not_found"
    assert foreign.value.message.replace(ask, "mcpr_nobody") == unknown.value.message
    with pytest.raises(BadRequestError) as chained:
        await case.ask([verdict(ask, True)], previous_response_id=first.id, extra_headers=elsewhere)
    assert chained.value.code == "previous_response_not_found"
    refused = await world.http.post(f"/v1/approvals/{ask}", json={"approve": True}, headers=elsewhere)
    assert refused.status_code == 404
    assert (await world.http.get(f"/v1/approvals/{ask}", headers=elsewhere)).status_code == 404
    assert (await world.http.get("/v1/approvals", headers=elsewhere)).json()["data"] == []
    with pytest.raises(NotFoundError):
        await case.client.responses.retrieve(first.id, extra_headers=elsewhere)
    second = await case.decided(first, verdict(ask, True))
    assert (kinds(second), case.ran) == (["mcp_call", "message"], ["refund"])


async def test_a_caller_without_the_role_continues_only_once_somebody_decided(world: World) -> None:
    """403 that says so; after an approver's decision the caller may repeat it."""
    case = refund(world)
    caller = {"x-roles": "caller"}
    first = await case.ask(extra_headers=caller)
    (ask,) = asks(first)
    with pytest.raises(PermissionDeniedError, match="approver"):
        await case.decided(first, verdict(ask, True), extra_headers=caller)
    assert (await world.http.post(f"/v1/approvals/{ask}", json={"approve": True}, headers=caller)).status_code == 403
    await world.decide(ask, True)
    second = await case.decided(first, verdict(ask, True), extra_headers=caller)
    assert (kinds(second), case.ran) == (["mcp_call", "message"], ["refund"])


async def test_a_label_that_points_elsewhere_is_refused_and_the_approval_is_kept(world: World) -> None:
    """Not burnt: the request with the server that was shown works afterwards."""
    case = refund(world)
    first = await case.ask()
    (ask,) = asks(first)
    async with mcp_server(desk_tools()) as other:
        with pytest.raises(BadRequestError) as refused:
            await case.decided(first, verdict(ask, True), tools=[{**case.tool, "server_url": other.url}])
        assert (refused.value.code, refused.value.param) == ("approval_mismatch", "tools")
        assert other.calls == []
        assert other.initializes == 0
    assert (await world.approval(ask))["status"] == "pending"
    second = await case.decided(first, verdict(ask, True), tools=[])
    assert (kinds(second), case.ran) == (["mcp_call", "message"], ["refund"])


async def test_a_turn_that_decides_nothing_is_a_branch(world: World) -> None:
    """Open asks are left out for the model, the gate stays, and the run stays parked for the decision."""
    case = refund(world)
    first = await case.ask("refund")
    (ask,) = asks(first)
    branch = await case.ask("never mind, how are you?", previous_response_id=first.id)
    assert (kinds(branch), branch.output_text) == (["message"], "text 0")
    assert case.script.transcript() == [user("refund"), user("never mind, how are you?")]
    with pytest.raises(BadRequestError) as stale:
        await case.decided(branch, verdict(ask, True))
    assert stale.value.code == "approval_stale"
    assert first.id in stale.value.message
    second = await case.decided(first, verdict(ask, True))
    assert (kinds(second), case.ran) == (["mcp_call", "message"], ["refund"])
    assert await world.activities(first.id, second.id) == ["ExecuteTools", "CallLlm"]


async def test_a_stateless_client_replays_asks_and_decisions_for_ever(world: World) -> None:
    """The whole history each turn: the approved call runs once, no turn is refused, and the model reads what a stored
    chain would give it."""
    case = refund(world)
    history: list[object] = [{"role": "user", "content": "refund"}]
    first = await case.ask(history)
    (ask,) = asks(first)
    history += [*dumped(first), verdict(ask, True)]
    second = await case.ask(history)
    assert kinds(second) == ["mcp_call", "message"]
    assert await world.activities(first.id, second.id) == ["ExecuteTools", "CallLlm"]
    lists = world.desk.lists
    for number in (1, 2):
        history += [*dumped(second), {"role": "user", "content": "thanks"}]
        second = await case.ask(history)
        assert (kinds(second), second.output_text) == (["message"], f"text {number}")
        told = case.script.transcript()
        assert told[:3] == [user("refund"), *pair(case, ask, f"refunded {case.order}")]
    assert (case.ran, world.desk.lists) == (["refund"], lists)


async def test_a_stateless_denial_stays_one_in_every_later_turn(world: World) -> None:
    """The pair `denied: reason` stands in the ask's place."""
    case = refund(world)
    history: list[object] = [{"role": "user", "content": "refund"}]
    first = await case.ask(history)
    (ask,) = asks(first)
    history += [*dumped(first), verdict(ask, False, "no")]
    second = await case.ask(history)
    assert kinds(second) == ["message"]
    history += [*dumped(second), {"role": "user", "content": "why?"}]
    third = await case.ask(history)
    assert (kinds(third), case.ran) == (["message"], [])
    assert case.script.transcript()[:3] == [user("refund"), *pair(case, ask, "denied: no")]


async def test_nothing_stored_still_asks_and_runs(world: World) -> None:
    """`store: false`: the ask is decided by the whole history sent back, unchanged; a new workflow runs the call."""
    case = refund(world)
    history: list[object] = [{"role": "user", "content": "refund"}]
    first = await case.ask(history, store=False)
    (ask,) = asks(first)
    with pytest.raises(BadRequestError) as missing:
        await case.ask([*history, verdict(ask, True)], store=False)
    assert "send its mcp_approval_request item back" in missing.value.message
    changed = [{**item, "arguments": '{"order":0}'} if item["id"] == ask else item for item in dumped(first)]
    with pytest.raises(BadRequestError) as mismatch:
        await case.ask([*history, *changed, verdict(ask, True)], store=False)
    assert mismatch.value.code == "approval_mismatch"
    assert case.ran == []
    history += [*dumped(first), verdict(ask, True)]
    second = await case.ask(history, store=False)
    assert (kinds(second), second.output_text) == (["mcp_call", "message"], "text 0")
    call = dumped(second)[0]
    assert (call["approval_request_id"], call["output"]) == (ask, f"refunded {case.order}")
    assert case.script.transcript() == [user("refund"), *pair(case, ask, f"refunded {case.order}")]
    with pytest.raises(BadRequestError) as used:
        await case.ask(history, store=False)
    assert used.value.code == "approval_already_decided"
    history += [*dumped(second), {"role": "user", "content": "thanks"}]
    third = await case.ask(history, store=False)
    assert (kinds(third), case.ran) == (["message"], ["refund"])


async def test_what_nobody_asked_for_is_not_run(world: World) -> None:
    """A client that makes up an ask gets nothing but a refusal."""
    case = world.case([say("never")])
    made_up = {
        "type": "mcp_approval_request",
        "id": "mcpr_mine",
        "server_label": "desk",
        "name": "refund",
        "arguments": f'{{"order":{case.order}}}',
    }
    with pytest.raises(BadRequestError) as refused:
        await case.ask([{"role": "user", "content": "x"}, made_up, verdict("mcpr_mine", True)])
    assert refused.value.code == "approval_not_found"
    assert (case.ran, case.script.asked) == ([], 0)


async def test_a_stateless_partial_decision_lists_the_rest_again(world: World) -> None:
    """Copies of one ask in the history are one ask; denied at last, the model reads one pair."""
    case = world.case()
    case.play([case.calls(REFUND), case.calls("mcp__desk__note")], [say("done")])
    history: list[object] = [{"role": "user", "content": "both"}]
    first = await case.ask(history)
    one, two = asks(first)
    history += [*dumped(first), verdict(one, True)]
    second = await case.ask(history)
    assert (kinds(second), asks(second)) == (["mcp_call", "mcp_approval_request"], [two])
    history += [*dumped(second), verdict(two, False)]
    third = await case.ask(history)
    assert (kinds(third), case.ran) == (["message"], ["refund"])
    text = f'{{"order":{case.order}}}'
    assert case.script.transcript() == [
        user("both"),
        *pair(case, one, f"refunded {case.order}"),
        *answered(two, "mcp__desk__note", text, "denied"),
    ]


async def test_two_turns_that_decide_different_asks_at_once_do_not_pass_each_other(world: World) -> None:
    """The first one lists the rest again: the other is stale and decides nothing."""
    for _ in range(3):
        case = world.case()
        case.play([case.calls(REFUND), case.calls("mcp__desk__note")], [say("done")])
        first = await case.ask()
        one, two = asks(first)
        results = await asyncio.gather(
            case.decided(first, verdict(one, True)), case.decided(first, verdict(two, True)), return_exceptions=True
        )
        (won,) = [result for result in results if isinstance(result, Response)]
        (lost,) = [result for result in results if isinstance(result, BadRequestError)]
        assert lost.code == "approval_stale"
        assert won.id in lost.message
        assert kinds(won) == ["mcp_call", "mcp_approval_request"]
        (rest,) = asks(won)
        assert (await world.approval(rest))["status"] == "pending"
        last = await case.decided(won, verdict(rest, True))
        assert (kinds(last), sorted(case.ran)) == (["mcp_call", "message"], ["note", "refund"])


async def test_an_ask_may_be_named_by_reference(world: World) -> None:
    """No chain: a reference to the ask and the decision are enough, and the model sees the call where it stood."""
    case = refund(world)
    first = await case.ask("refund")
    (ask,) = asks(first)
    reference = {"type": "item_reference", "id": ask}
    second = await case.ask([{"role": "user", "content": "refund"}, reference, verdict(ask, True)])
    assert case.ran == ["refund"]
    assert "mcp_call" in kinds(second)
    assert case.script.transcript() == [user("refund"), *pair(case, ask, f"refunded {case.order}")]


async def test_a_continuation_that_fails_after_its_call_is_continued_without_running_it_again(world: World) -> None:
    """200 with `failed`, since a call was made; the next turn reads the call's result."""
    case = world.case()
    case.play([case.calls(REFUND)])
    first = await case.ask("refund")
    (ask,) = asks(first)
    second = await case.decided(first, verdict(ask, True))
    assert (second.status, kinds(second)) == ("failed", ["mcp_call"])
    # The script counts the request it refused.
    case.play([], [say("it was refunded")])
    third = await case.ask("and?", previous_response_id=second.id)
    assert (third.output_text, case.ran) == ("it was refunded", ["refund"])
    assert case.script.transcript() == [user("refund"), *pair(case, ask, f"refunded {case.order}"), user("and?")]
