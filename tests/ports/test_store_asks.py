"""The store's port: decisions, takes, claims, give-back, secrets."""

import asyncio

import pytest

from outlast.protocol.errors import ApprovalAlreadyDecided, InvalidRequest, NotFound, OutlastError
from outlast.store.base import Approval, Begun, Commit, Decided
from outlast.store.port import Store
from tests.support import store_world as world
from tests.support.store_world import TENANT, Open, ask, begin, create, park, user, wish


async def _ask(store: Store, approval_id: str) -> Approval:
    found = await store.approval(TENANT, approval_id)
    assert found is not None
    return found


async def test_of_twenty_racing_decisions_over_two_stores_one_wins(open_another: Open) -> None:
    """Who agrees with the winner gets its decision, who contradicts is told who won."""
    stores = [await open_another(), await open_another()]
    await park(stores[0], "a", ask("mcpr_1"))
    wishes = [wish("mcpr_1", approve=n % 2 == 0, who=f"user{n}", at=3_000) for n in range(20)]
    results = await asyncio.gather(
        *(stores[n // 2 % 2].decide(TENANT, each) for n, each in enumerate(wishes)), return_exceptions=True
    )
    stands = await _ask(stores[0], "mcpr_1")
    agreeing = [result for result in results if isinstance(result, Decided)]
    assert sum(decided.won for decided in agreeing) == 1
    assert len(agreeing) == 10
    assert all(decided.approval == stands for decided in agreeing)
    for result in results:
        if not isinstance(result, Decided):
            assert isinstance(result, ApprovalAlreadyDecided)
            assert f"by {stands.decided_by} through api at 1970-01-01T00:50:00Z" in result.message


async def test_a_decision_records_who_how_when_and_why(store: Store) -> None:
    """The row as it stands, then and later."""
    await park(store, "a", ask("mcpr_1"), secrets={"sec_1": {"authorization": "t"}})
    decided = await store.decide(TENANT, wish("mcpr_1", approve=False, how="cli", reason="too much", at=3_000))
    assert decided == Decided(
        ask(
            "mcpr_1",
            status="denied",
            decided_by="ann",
            decided_how="cli",
            decided_at=3_000,
            reason="too much",
        ),
        won=True,
    )
    assert await store.approvals(TENANT, status="denied") == [decided.approval]
    assert await store.approvals(TENANT, status="pending") == []


async def test_unknown_and_foreign_asks_are_not_found(store: Store) -> None:
    """The same answer for both."""
    await park(store, "a", ask("mcpr_1"))
    for tenant, approval_id in (("stranger", "mcpr_1"), (TENANT, "mcpr_none")):
        with pytest.raises(NotFound):
            await store.decide(tenant, wish(approval_id))
        assert await store.approval(tenant, approval_id) is None


@pytest.mark.parametrize(("on_deadline", "status"), [("deny", "denied"), ("fail", "expired")])
async def test_an_overdue_ask_is_expired_by_whoever_meets_it_first(store: Store, on_deadline: str, status: str) -> None:
    """A late approval is refused, and the refusal does not undo the expiry."""
    await park(store, "a", ask("mcpr_1", deadline=1.0, on_deadline=on_deadline))
    with pytest.raises(ApprovalAlreadyDecided, match="deadline"):
        await store.decide(TENANT, wish("mcpr_1"))
    expired = await _ask(store, "mcpr_1")
    assert (expired.status, expired.decided_by, expired.decided_how) == (status, "deadline", "deadline")
    assert await store.expire(TENANT, "resp_a", world.now()) == 0


async def test_expire_takes_only_overdue_asks_of_the_response(store: Store) -> None:
    """Others, and those with time left, stay open."""
    later = world.now() + 1_000
    await park(
        store, "a", ask("mcpr_1", deadline=5.0, on_deadline="fail"), ask("mcpr_2", deadline=later), ask("mcpr_3")
    )
    assert await store.expire(TENANT, "resp_a", 10.0) == 1
    assert [each.id for each in await store.approvals(TENANT, status="pending", response_id="resp_a")] == [
        "mcpr_2",
        "mcpr_3",
    ]


async def test_of_racing_continuations_one_takes_the_ask_and_the_parked_run(open_another: Open) -> None:
    """The others leave nothing and are told which response has it."""
    stores = [await open_another(), await open_another()]
    await park(stores[0], "a", ask("mcpr_1"))

    async def go_on(n: int) -> str:
        created = await stores[n % 2].create(
            world.new(
                world.record(f"c{n}"),
                decisions=[wish("mcpr_1", how="continuation")],
                takes=["mcpr_1"],
                claim=("resp_a", "resp_a"),
            )
        )
        assert created.claimed
        assert created.record.workflow_id == "resp_a"
        return created.record.id

    results = await asyncio.gather(*(go_on(n) for n in range(8)), return_exceptions=True)
    winner = next(result for result in results if isinstance(result, str))
    losers = [result for result in results if not isinstance(result, str)]
    assert len(losers) == 7
    for loser in losers:
        assert isinstance(loser, ApprovalAlreadyDecided)
        assert f"Response {winner} has used it" in loser.message
    assert (await _ask(stores[0], "mcpr_1")).taken_by == winner
    stored = [await stores[0].get(TENANT, f"resp_c{n}") for n in range(8)]
    assert [record.id for record in stored if record is not None] == [winner]


async def test_a_decision_made_elsewhere_is_used_once(store: Store) -> None:
    """The second continuation brings no decision that could be refused: the ask itself says that it was used."""
    await park(store, "a", ask("mcpr_1"))
    await store.decide(TENANT, wish("mcpr_1"))
    await store.create(world.new(world.record("b"), takes=["mcpr_1"]))
    with pytest.raises(ApprovalAlreadyDecided, match="Response resp_b has used it"):
        await store.create(world.new(world.record("c"), takes=["mcpr_1"]))
    assert (await _ask(store, "mcpr_1")).taken_by == "resp_b"


async def test_leaving_the_park_and_claiming_it_exclude_each_other(open_another: Open) -> None:
    """Either the run is closed and the continuation starts its own, or the run learns who claimed it."""
    stores = [await open_another(), await open_another()]
    for n in range(6):
        await park(stores[0], f"p{n}", ask(f"mcpr_{n}", f"p{n}"))
        new = world.new(world.record(f"c{n}"), claim=(f"resp_p{n}", f"resp_p{n}"))
        created, left = await asyncio.gather(
            stores[1].create(new), stores[0].leave_park(TENANT, f"resp_p{n}", f"resp_p{n}")
        )
        assert left == (f"resp_c{n}" if created.claimed else None)
        assert created.record.workflow_id == (f"resp_p{n}" if created.claimed else f"resp_c{n}")
        assert await stores[0].parked_on(TENANT, f"resp_p{n}") is None


async def test_a_refused_decision_leaves_no_part_of_a_create_behind(store: Store) -> None:
    """Two asks, the second one contradicted: the first stays open, the run parked, the response unknown."""
    await park(store, "a", ask("mcpr_1"), ask("mcpr_2", ordinal=1))
    await store.decide(TENANT, wish("mcpr_2", approve=False))
    new = world.new(
        world.record("b"), decisions=[wish("mcpr_1"), wish("mcpr_2")], takes=["mcpr_1"], claim=("resp_a", "resp_a")
    )
    with pytest.raises(ApprovalAlreadyDecided, match="mcpr_2"):
        await store.create(new)
    assert (await _ask(store, "mcpr_1")).status == "pending"
    assert await store.parked_on(TENANT, "resp_a") == "resp_a"
    assert await store.get(TENANT, "resp_b") is None


async def test_a_continuation_that_started_nothing_gives_everything_back(store: Store) -> None:
    """Its asks can be used again, open ones are listed where they were, the run is parked on the old response."""
    await park(store, "a", ask("mcpr_1"), ask("mcpr_2", ordinal=1))
    new = world.new(
        world.record("b", previous_response_id="resp_a"),
        decisions=[wish("mcpr_1")],
        takes=["mcpr_1"],
        relist=["mcpr_2"],
        claim=("resp_a", "resp_a"),
        calls=[world.call(0, "b", round=0, approval_id="mcpr_1")],
    )
    await store.create(new)
    assert [each.id for each in await store.approvals(TENANT, response_id="resp_b")] == ["mcpr_2"]
    assert await store.parked_on(TENANT, "resp_a") is None
    await world.end(store, "b")
    assert (await _ask(store, "mcpr_1")).taken_by is None
    assert (await _ask(store, "mcpr_2")) == ask("mcpr_2", ordinal=1)
    assert await store.parked_on(TENANT, "resp_a") == "resp_a"
    again = await store.create(world.new(world.record("c"), takes=["mcpr_1"], claim=("resp_a", "resp_a")))
    assert again.claimed


async def test_a_continuation_that_started_an_approved_call_gives_nothing_back(store: Store) -> None:
    """The call may have happened: its approval is used up and the run is closed."""
    await park(store, "a", ask("mcpr_1"))
    call = world.call(0, "b", round=0, approval_id="mcpr_1")
    await store.create(
        world.new(
            world.record("b"),
            decisions=[wish("mcpr_1")],
            takes=["mcpr_1"],
            claim=("resp_a", "resp_a"),
            calls=[call],
        )
    )
    handle = await begin(store, "b", "tool:mcp_b0")
    await store.append(handle, [], Commit(started=[(0, 0)]))
    await world.end(store, "b")
    assert (await _ask(store, "mcpr_1")).taken_by == "resp_b"
    assert await store.parked_on(TENANT, "resp_a") is None


async def test_a_call_nobody_was_asked_for_uses_no_decision_up(store: Store) -> None:
    """A denial starts no call; what the model ran freely after it is no use of an approval."""
    await park(store, "a", ask("mcpr_1"))
    decisions = [wish("mcpr_1", approve=False)]
    await store.create(world.new(world.record("b"), decisions=decisions, takes=["mcpr_1"], claim=("resp_a", "resp_a")))
    handle = await begin(store, "b", "llm:1")
    await store.append(handle, [], Commit(calls=[world.call(0, "b", round=1)], outcome={}))
    handle = await begin(store, "b", "tool:1.0", calls=1)
    await store.append(handle, [], Commit(started=[(1, 0)]))
    await world.end(store, "b")
    assert (await _ask(store, "mcpr_1")).taken_by is None
    assert await store.parked_on(TENANT, "resp_a") == "resp_a"


async def test_a_continuation_that_completes_uses_its_decisions_up(store: Store) -> None:
    """A denied ask starts no call, and a hand-back of client calls is an end without a step: nothing is given back."""
    await park(store, "a", ask("mcpr_1"))
    decisions = [wish("mcpr_1", approve=False)]
    await store.create(world.new(world.record("b"), decisions=decisions, takes=["mcpr_1"], claim=("resp_a", "resp_a")))
    await world.end(store, "b", world.COMPLETED)
    assert (await _ask(store, "mcpr_1")).taken_by == "resp_b"
    assert await store.parked_on(TENANT, "resp_a") is None


async def test_asks_of_wait_mode_are_withdrawn_with_their_response_and_those_of_respond_mode_stay(
    store: Store,
) -> None:
    """A withdrawn ask is refused as such."""
    await create(store, "w", mode="wait")
    handle = await begin(store, "w", "ask:1")
    await store.append(handle, [], Commit(approvals=[ask("mcpr_w", "w", mode="wait")], outcome={}))
    await world.finish(store, await begin(store, "w"))
    await park(store, "a", ask("mcpr_1"))
    assert [(await _ask(store, each)).status for each in ("mcpr_w", "mcpr_1")] == ["withdrawn", "pending"]
    for refused in (store.decide(TENANT, wish("mcpr_w")), store.create(world.new(world.record("b"), takes=["mcpr_w"]))):
        with pytest.raises(InvalidRequest, match="withdrawn"):
            await refused


async def test_deleting_a_parked_response_withdraws_its_asks_and_closes_the_run(store: Store) -> None:
    """Nothing of it is readable; the run that waits for nobody now is named; a second delete finds nothing."""
    await park(store, "a", ask("mcpr_1"), secrets={"sec_1": {"authorization": "t"}})
    assert await store.delete(TENANT, "resp_a") == "resp_a"
    assert (await _ask(store, "mcpr_1")).status == "withdrawn"
    assert await store.parked_on(TENANT, "resp_a") is None
    assert await store.get(TENANT, "resp_a") is None
    assert await store.secret(TENANT, "sec_1") is None
    assert await store.delete(TENANT, "resp_a") is None


async def test_deleting_a_response_leaves_the_run_alone_that_a_continuation_has_claimed(store: Store) -> None:
    """It serves the continuation: stopping it would cancel somebody else's response."""
    await park(store, "a", ask("mcpr_1"))
    decisions = [wish("mcpr_1")]
    await store.create(world.new(world.record("b"), decisions=decisions, takes=["mcpr_1"], claim=("resp_a", "resp_a")))
    assert await store.delete(TENANT, "resp_a") is None
    assert isinstance(await store.begin(TENANT, "resp_b", "llm:1", workflow_id="resp_a"), Begun)


async def test_a_secret_lives_until_no_response_can_use_it(store: Store) -> None:
    """Through an open ask, its approval and the continuation that runs it; not a commit longer."""
    secret = {"authorization": "Bearer t"}
    await park(store, "a", ask("mcpr_1", secret_id="sec_1"), secrets={"sec_1": secret, "sec_2": secret})
    assert await store.secret(TENANT, "sec_2") is None
    await store.decide(TENANT, wish("mcpr_1"))
    assert await store.secret(TENANT, "sec_1") == secret
    assert await store.secret("stranger", "sec_1") is None
    await store.create(world.new(world.record("b"), takes=["mcpr_1"], claim=("resp_a", "resp_a")))
    handle = await begin(store, "b")
    assert await store.secret(TENANT, "sec_1") == secret
    await world.finish(store, handle)
    assert await store.secret(TENANT, "sec_1") is None


async def test_a_secret_stays_for_the_response_that_runs_its_call(store: Store) -> None:
    """Whatever becomes of the other asks it was for."""
    asks = [ask("mcpr_1", secret_id="sec_1"), ask("mcpr_2", ordinal=1, secret_id="sec_1")]
    await park(store, "a", *asks, secrets={"sec_1": {"authorization": "t"}})
    await store.create(world.new(world.record("b"), decisions=[wish("mcpr_1")], takes=["mcpr_1"]))
    await store.decide(TENANT, wish("mcpr_2", approve=False))
    assert await store.secret(TENANT, "sec_1") == {"authorization": "t"}
    await world.finish(store, await begin(store, "b"))
    assert await store.secret(TENANT, "sec_1") is None


@pytest.mark.parametrize("way", ["denied", "overdue", "expired", "deleted"])
async def test_a_secret_goes_with_the_last_ask_that_could_use_it(store: Store, way: str) -> None:
    """Denied, found overdue by who would have decided, expired or withdrawn."""
    left = -1 if way == "overdue" else 1_000
    asked = ask("mcpr_1", secret_id="sec_1", deadline=world.now() + left, on_deadline="fail")
    await park(store, "a", asked, secrets={"sec_1": {"authorization": "t"}})
    match way:
        case "denied":
            await store.decide(TENANT, wish("mcpr_1", approve=False))
        case "overdue":
            with pytest.raises(ApprovalAlreadyDecided):
                await store.decide(TENANT, wish("mcpr_1"))
        case "expired":
            await store.expire(TENANT, "resp_a", world.now() + 2_000)
        case _:
            await store.delete(TENANT, "resp_a")
    assert await store.secret(TENANT, "sec_1") is None


async def test_a_secret_is_kept_for_a_week_and_for_what_runs(store: Store) -> None:
    """An ask that is still open then runs without it; a response in progress needs it however old it is."""
    week = 7 * 86_400
    asks = [ask(f"mcpr_{n}", ordinal=n, secret_id=f"sec_{n}") for n in range(3)]
    await park(store, "a", *asks, secrets={f"sec_{n}": {"authorization": "t"} for n in range(3)})
    await store.create(world.new(world.record("b"), decisions=[wish("mcpr_0")], takes=["mcpr_0"]))
    await store.create(world.new(world.record("c"), secrets={"sec_c": {"authorization": "t"}}))

    async def kept() -> list[str]:
        return [each for each in ("sec_0", "sec_1", "sec_2", "sec_c") if await store.secret(TENANT, each) is not None]

    await store.purge_transient(1_000 + week - 1)
    assert await kept() == ["sec_0", "sec_1", "sec_2", "sec_c"]
    await store.purge_transient(1_000 + week)
    assert await kept() == ["sec_0", "sec_c"]


async def test_an_ask_of_a_purged_response_keeps_no_content(store: Store) -> None:
    """It stays decidable: neither what it would run nor why it was decided is left."""
    await store.create(world.new(world.record("a", store=False), user("refund")))
    await store.attend(TENANT, "resp_a", world.now() + 60)
    await world.finish(store, await begin(store, "a"), approvals=[ask("mcpr_1")])
    await store.decide(TENANT, wish("mcpr_1", approve=False, reason="too much"))
    assert await store.purge(TENANT, "resp_a")
    left = await _ask(store, "mcpr_1")
    assert (left.status, left.arguments, left.reason) == ("denied", "", None)


async def test_a_run_that_is_told_to_stop_while_it_leaves_its_park_is_still_stopped(store: Store) -> None:
    """It may be leaving because it was told."""
    await park(store, "a", ask("mcpr_1"))
    assert await store.delete(TENANT, "resp_a") == "resp_a"
    assert await store.leave_park(TENANT, "resp_a", "resp_a") is None
    assert await store.stopping(limit=5, lease_until=world.now() + 60) == [(TENANT, "resp_a")]


async def test_a_run_whose_continuation_was_moved_elsewhere_has_nobody_to_serve(store: Store) -> None:
    """Were it to come back, it would wait for a response that is not its own."""
    await park(store, "a", ask("mcpr_1"))
    decisions = [wish("mcpr_1")]
    await store.create(world.new(world.record("b"), decisions=decisions, takes=["mcpr_1"], claim=("resp_a", "resp_a")))
    assert await store.leave_park(TENANT, "resp_a", "resp_a") == "resp_b"
    assert await store.set_workflow(TENANT, "resp_b", old="resp_a", new="resp_b")
    assert await store.leave_park(TENANT, "resp_a", "resp_a") is None


async def test_taking_what_is_not_decided_or_not_there_is_refused(store: Store) -> None:
    """Each refusal says which."""
    await park(store, "a", ask("mcpr_1"))
    with pytest.raises(InvalidRequest, match="still waiting"):
        await store.create(world.new(world.record("b"), user("go"), takes=["mcpr_1"]))
    refused: OutlastError
    with pytest.raises(NotFound) as info:
        await store.create(world.new(world.record("b"), user("go"), takes=["mcpr_none"]))
    refused = info.value
    assert refused.param == "approval_id"
