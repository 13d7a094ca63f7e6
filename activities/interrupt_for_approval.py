"""`InterruptForApproval`: write the asks and show them; the *workflow* waits, no activity does.

respond mode: the asks, their items, the end of the response and the park are one transaction, so a client that sees
the terminal event can continue at once. wait mode: only rows; the response stays open until somebody decides.
"""

from dataclasses import replace
from typing import assert_never

from temporalio import activity

from activities import base
from activities.base import Deps
from outlast import contracts, failpoints
from outlast.contracts import AskInput
from outlast.loop.approvals import fingerprint
from outlast.loop.state import ApprovalMode, AskOutcome, Ended, RunState, Status
from outlast.protocol import building, ids
from outlast.protocol.errors import ResponseEnded, StaleFence
from outlast.protocol.events import WireEvent
from outlast.store.base import Approval, Begun, CallRow, Commit, Committed, Gone


class InterruptForApprovalActivity:
    """The activity and its ports."""

    def __init__(self, deps: Deps) -> None:
        self._deps = deps
        self._store = deps.store

    @activity.defn(name=contracts.INTERRUPT_FOR_APPROVAL)
    async def interrupt_for_approval(self, request: AskInput) -> AskOutcome:
        """Write every pending ask of the batch."""
        state = request.state
        begun = await self._store.begin(
            request.tenant,
            state.response_id,
            f"ask:{state.batch.round}",
            workflow_id=base.workflow_id(),
            calls=state.batch.round,
        )
        match begun:
            case Gone(record):
                return AskOutcome(at=self._deps.clock(), finished=base.ended_as(record))
            case Committed(committed):
                return base.decode(AskOutcome, committed)
            case Begun():
                pass
            case _:
                assert_never(begun)
        rows = [row for row in begun.calls if row.ordinal in state.batch.ask]
        try:
            outcome = await self._write(begun, rows, request)
        except (StaleFence, ResponseEnded):
            record = await self._store.get(request.tenant, state.response_id)
            return AskOutcome(at=self._deps.clock(), finished=base.ended_as(record))
        failpoints.hit(failpoints.PARKED)
        return outcome

    async def _write(self, begun: Begun, rows: list[CallRow], request: AskInput) -> AskOutcome:
        state, now = request.state, self._deps.clock()
        # A row with an approval id is an old ask that is listed again, under the same id.
        new = [self._ask(begun, row, state) for row in _unasked(rows)]
        if state.mode is ApprovalMode.WAIT:
            outcome = AskOutcome(at=now)
            # The call keeps its row: once approved it is dispatched under the approval's id.
            calls = [replace(row, approval_id=ask.id) for row, ask in zip(_unasked(rows), new, strict=True)]
            commit = Commit(approvals=new, calls=calls, outcome=base.encode(outcome))
            await self._store.append(begun.handle, [], commit)
            return outcome
        ended = Ended(Status.COMPLETED)
        park = request.may_park and begun.handle.record.store
        outcome = AskOutcome(at=now, finished=ended, parked=park)
        commit = Commit(
            approvals=new,
            outcome=base.encode(outcome),
            ending=base.ending(ended, state.usage, now, park=park),
        )
        await self._store.finish(begun.handle, _shown(rows, new), commit)
        return outcome

    def _ask(self, begun: Begun, row: CallRow, state: RunState) -> Approval:
        record, now = begun.handle.record, self._deps.clock()
        label, url = row.server_label or "", row.server_url or ""
        return Approval(
            tenant=record.tenant,
            id=ids.mint(ids.Prefix.MCP_APPROVAL),
            response_id=record.id,
            round=row.round,
            ordinal=row.ordinal,
            mode=state.mode.value,
            item_id=row.item_id,
            call_id=row.call_id,
            server_label=label,
            server_url=url,
            name=row.name,
            arguments=row.arguments,
            fingerprint=fingerprint(
                tenant=record.tenant, server=url, tool=row.name, arguments=row.arguments, owner=record.owner
            ),
            safe=row.safe,
            created_at=int(now),
            listed_by=record.id,
            secret_id=row.secret_id,
            owner=record.owner,
            deadline=self._deadline(state, now),
            on_deadline=self._deps.on_deadline,
        )

    def _deadline(self, state: RunState, now: float) -> float | None:
        """When somebody else decides; without an `on_deadline` nobody does, and the ask stays open."""
        if state.approval_deadline is None or self._deps.on_deadline == "none":
            return None
        return now + state.approval_deadline


def _unasked(rows: list[CallRow]) -> list[CallRow]:
    return [row for row in rows if row.approval_id is None]


def _shown(rows: list[CallRow], new: list[Approval]) -> list[WireEvent]:
    """The ask items in the model's order."""
    minted = {(ask.round, ask.ordinal): ask.id for ask in new}
    events: list[WireEvent] = []
    for row in rows:
        approval_id = row.approval_id or minted[row.round, row.ordinal]
        item = building.approval_request_item(approval_id, row.server_label or "", row.name, row.arguments)
        events.extend(building.approval_request_events(item))
    return events
