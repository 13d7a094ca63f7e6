"""Claims about deadlines of asks: nothing, a denial, or a failed run; in both modes, and never twice."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Literal

import pytest
from openai import BadRequestError

from outlast.devserver import DevServer
from outlast.sections import ApprovalSettings
from tests.support.desk import REFUND, Case, World, answered, asks, desk_world, kinds, until, user, verdict
from tests.support.scripted_model import say
from tests.support.stack import settings

SECONDS = 0.3
TOLD = "denied: the deadline for a decision has passed"
Policy = Literal["none", "deny", "fail"]


@asynccontextmanager
async def world_with(temporal: DevServer, factory: pytest.TempPathFactory, on_deadline: Policy) -> AsyncIterator[World]:
    """A server whose asks have a deadline."""
    given = settings(factory.mktemp(on_deadline), temporal.address)
    approvals = ApprovalSettings(deadline_seconds=SECONDS, on_deadline=on_deadline)
    with pytest.MonkeyPatch.context() as patch:
        async with desk_world(given.model_copy(update={"approvals": approvals}), patch) as opened:
            yield opened


@pytest.fixture(scope="module")
async def denying(temporal: DevServer, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    """An overdue ask is denied."""
    async with world_with(temporal, tmp_path_factory, "deny") as opened:
        yield opened


@pytest.fixture(scope="module")
async def failing(temporal: DevServer, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    """An overdue ask fails its run."""
    async with world_with(temporal, tmp_path_factory, "fail") as opened:
        yield opened


@pytest.fixture(scope="module")
async def patient(temporal: DevServer, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    """A deadline that nothing follows from."""
    async with world_with(temporal, tmp_path_factory, "none") as opened:
        yield opened


def refund(world: World) -> Case:
    """A conversation whose first round refunds."""
    case = world.case()
    case.play([case.calls(REFUND)], [say("one")], [say("two")])
    return case


async def passed(since: float) -> None:
    """Wait until a deadline that began before is over."""

    async def over() -> bool:
        return time.time() > since + SECONDS

    await until(over)


def told(case: Case, ask: str) -> list[dict[str, object]]:
    """What the model reads of a refund that ran into its deadline."""
    return [user("refund"), *answered(ask, REFUND, f'{{"order":{case.order}}}', TOLD)]


async def test_an_overdue_ask_is_denied_for_the_next_turn(denying: World) -> None:
    """Nobody decided: the next turn tells the model; the row names the deadline."""
    case = refund(denying)
    first = await case.ask("refund")
    (ask,) = asks(first)
    await passed(time.time())
    second = await case.ask("well?", previous_response_id=first.id)
    assert (kinds(second), case.ran) == (["message"], [])
    assert case.script.transcript() == [*told(case, ask), user("well?")]
    row = await denying.approval(ask)
    assert (row["status"], row["decided_by"], row["decided_how"]) == ("denied", "deadline", "deadline")
    assert row["taken_by"] == second.id


async def test_an_overdue_ask_shows_what_its_deadline_did(denying: World) -> None:
    """Looked at alone, with nobody having listed or continued it."""
    case = refund(denying)
    (ask,) = asks(await case.ask("refund"))
    await passed(time.time())
    assert (await denying.approval(ask))["status"] == "denied"


async def test_a_decision_after_the_deadline_is_refused_naming_it(denying: World) -> None:
    """By continuation and by API; the inbox does not show it as open."""
    case = refund(denying)
    first = await case.ask("refund")
    (ask,) = asks(first)
    await passed(time.time())
    assert ask not in [each["id"] for each in await denying.approvals()]
    with pytest.raises(BadRequestError) as refused:
        await case.decided(first, verdict(ask, True))
    assert refused.value.code == "approval_already_decided"
    assert "denied by deadline" in refused.value.message
    late = await denying.decide(ask, True)
    assert (late.status_code, late.json()["error"]["code"]) == (400, "approval_already_decided")
    assert case.ran == []


async def test_a_waiting_response_goes_on_with_the_denial(denying: World) -> None:
    """A durable timer, nobody's message."""
    case = refund(denying)
    response = await case.start("refund")
    final = await case.ended(response)
    assert (final.status, kinds(final), case.ran) == ("completed", ["mcp_list_tools", "message"], [])
    (ask,) = [each["id"] for each in await denying.approvals("denied") if each["response_id"] == response.id]
    assert case.script.transcript() == told(case, ask)


async def test_a_decision_in_time_beats_the_deadline(denying: World) -> None:
    """Approved at once: the call runs, and the deadline changes nothing later."""
    case = refund(denying)
    first = await case.ask()
    (ask,) = asks(first)
    await denying.decide(ask, True)
    await passed(time.time())
    second = await case.decided(first, verdict(ask, True))
    assert (kinds(second), case.ran) == (["mcp_call", "message"], ["refund"])


async def test_an_overdue_wait_fails_the_response(failing: World) -> None:
    """`failed` with a text that says what happened; the call is not run, the model not asked again."""
    case = refund(failing)
    response = await case.start()
    final = await case.ended(response)
    assert final.status == "failed"
    assert final.error is not None
    assert "deadline" in final.error.message
    assert (case.ran, case.script.asked) == ([], 1)
    (row,) = [each for each in await failing.approvals("expired") if each["response_id"] == response.id]
    assert row["decided_how"] == "deadline"


async def test_an_expired_ask_cannot_be_used(failing: World) -> None:
    """Respond mode: a decision is refused as expired, a turn without one leaves it out."""
    case = refund(failing)
    first = await case.ask("refund")
    (ask,) = asks(first)
    await passed(time.time())
    with pytest.raises(BadRequestError) as refused:
        await case.decided(first, verdict(ask, True))
    assert refused.value.code == "approval_already_decided"
    assert "expired at its deadline" in refused.value.message
    second = await case.ask("well?", previous_response_id=first.id)
    assert (kinds(second), case.ran) == (["message"], [])
    assert case.script.transcript() == [user("refund"), user("well?")]


async def test_a_deadline_without_a_consequence_leaves_the_ask_open(patient: World) -> None:
    """`on_deadline = none`: decidable as ever, in both modes."""
    case, other = refund(patient), refund(patient)
    first = await case.ask()
    (ask,) = asks(first)
    response = await other.start()
    (waiting,) = await other.open_asks(response)
    await passed(time.time())
    second = await case.decided(first, verdict(ask, True))
    assert (kinds(second), case.ran) == (["mcp_call", "message"], ["refund"])
    assert (await patient.decide(waiting, True)).status_code == 200
    assert ((await other.ended(response)).status, other.ran) == ("completed", ["refund"])
