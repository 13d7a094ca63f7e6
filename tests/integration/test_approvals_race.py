"""Claims about twenty decisions at once on one ask, half of them contradicting, through every door there is.

One wins, the tool runs once or not at all, and every refusal that has an answer names the winner.
"""

import asyncio
from dataclasses import dataclass

from openai import BadRequestError
from temporalio.client import WorkflowUpdateFailedError
from temporalio.service import RPCError

from outlast import approvals_client, contracts
from outlast.protocol.errors import ConfigurationError
from tests.support.desk import REFUND, Case, World, asks, kinds, verdict
from tests.support.scripted_model import say


@dataclass(frozen=True)
class Answer:
    """What one decision came to. `text`: a refusal's words; `how`: of the decision that stands, where it is said."""

    approve: bool
    accepted: bool
    text: str = ""
    how: str | None = None


@dataclass(frozen=True)
class Race:
    """One ask and its deciders."""

    case: Case
    ask: str
    # The workflow that holds the gate.
    workflow_id: str

    async def api(self, approve: bool) -> Answer:
        """POST /v1/approvals/{id}."""
        answer = await self.case.world.decide(self.ask, approve)
        if answer.status_code == 200:
            return Answer(approve, True, how=answer.json()["decided_how"])
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "approval_already_decided")
        return Answer(approve, False, answer.json()["error"]["message"])

    async def command(self, approve: bool) -> Answer:
        """What `outlast approvals` does."""
        url = self.case.world.server.url
        try:
            text = await asyncio.to_thread(approvals_client.decide, url, self.ask, approve=approve, reason=None)
        except ConfigurationError as error:
            return Answer(approve, False, error.message)
        return Answer(approve, True, text)

    async def temporal(self, approve: bool) -> Answer:
        """Temporal's update: it answers with the decision that stands."""
        handle = self.case.world.server.ports.client.get_workflow_handle(self.workflow_id)
        decision = contracts.Decision(self.ask, approve)
        try:
            found = await handle.execute_update(contracts.UPDATE_DECIDE, decision, result_type=contracts.Verdict)
        except (RPCError, WorkflowUpdateFailedError) as error:
            # The gate has closed before: there is no answer that could name anybody.
            return Answer(approve, False, f"gate: {error!r}")
        accepted = found.status == ("approved" if approve else "denied")
        return Answer(approve, accepted, f"{found.status} through {found.decided_how}", found.decided_how)

    async def settle(self, *answers: "asyncio.Task[Answer]") -> list[Answer]:
        """All answers, judged against the row."""
        found = await asyncio.gather(*answers)
        row = await self.case.world.approval(self.ask)
        approved = row["status"] == "approved"
        assert row["status"] in ("approved", "denied")
        assert all(answer.approve == approved for answer in found if answer.accepted), found
        winner = f"{row['status']} by {row['decided_by']} through {row['decided_how']}"
        for answer in found:
            if answer.accepted:
                assert answer.how in (None, row["decided_how"])
            elif not answer.text.startswith("gate"):
                assert winner in answer.text or answer.text == f"{row['status']} through {row['decided_how']}"
        assert any(answer.accepted for answer in found)
        return found


async def test_one_of_twenty_decides_what_the_caller_will_continue_with(world: World) -> None:
    """A respond ask: six over the API, four by command, six by Temporal, four in continuations."""
    case = world.case()
    case.play([case.calls(REFUND)], *([say("done")] for _ in range(4)))
    first = await case.ask()
    (ask,) = asks(first)
    race = Race(case, ask, first.id)
    used: list[str] = []

    async def continuation(approve: bool) -> Answer:
        try:
            second = await case.decided(first, verdict(ask, approve))
        except BadRequestError as error:
            return Answer(approve, False, error.message if error.code == "approval_already_decided" else repr(error))
        used.append(second.id)
        assert kinds(second) == (["mcp_call", "message"] if approve else ["message"])
        return Answer(approve, True)

    tasks = [
        asyncio.create_task(decide(number % 2 == 0))
        for decide, count in ((race.api, 6), (race.temporal, 6), (continuation, 4), (race.command, 4))
        for number in range(count)
    ]
    assert len(tasks) == 20
    # A verdict refused because the decision was used names who made it and who used it.
    await race.settle(*tasks)
    row = await world.approval(ask)
    if not used:
        second = await case.decided(first, {"role": "user", "content": "go on"})
        used.append(second.id)
    assert len(used) == 1
    assert (await world.approval(ask))["taken_by"] == used[0]
    assert case.ran == (["refund"] if row["status"] == "approved" else [])


async def test_one_of_twenty_decides_what_holds_up_a_response(world: World) -> None:
    """A wait ask: eight over the API, four by command, eight by Temporal."""
    case = world.case()
    case.play([case.calls(REFUND)], [say("done")])
    response = await case.start()
    (ask,) = await case.open_asks(response)
    race = Race(case, ask, response.id)
    tasks = [
        asyncio.create_task(decide(number % 2 == 0))
        for decide, count in ((race.temporal, 8), (race.api, 8), (race.command, 4))
        for number in range(count)
    ]
    assert len(tasks) == 20
    await race.settle(*tasks)
    final = await case.ended(response)
    assert final.status == "completed"
    approved = (await world.approval(ask))["status"] == "approved"
    assert kinds(final) == ["mcp_list_tools", *(["mcp_call"] if approved else []), "message"]
    assert case.ran == (["refund"] if approved else [])
