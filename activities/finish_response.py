"""Local activities: one conditional update or read each. They settle what signals only announce."""

from collections.abc import Sequence
from typing import assert_never

from temporalio import activity

from activities import base
from activities.base import Deps
from outlast import contracts
from outlast.contracts import DecideInput, FinishInput, GateInput, GateView, ParkInput, Resumed, Verdict
from outlast.loop.approvals import told_reason
from outlast.loop.state import Ended, FinishOutcome, RunState, Status
from outlast.protocol import building, ids
from outlast.protocol.errors import ApprovalAlreadyDecided, NotFound
from outlast.protocol.events import WireEvent
from outlast.protocol.json import JsonObject
from outlast.store.base import Approval, Begun, CallRow, Commit, Committed, DecisionRequest, Gone

# Seconds after which a gate reads its row though nobody woke it. The sweeper repeats what was lost; should it not run
# anywhere, nothing waits for ever. About seven history events each.
_LOOK_AGAIN = 6 * 3600.0


class LocalActivities:
    """The small ones of a run."""

    def __init__(self, deps: Deps) -> None:
        self._deps = deps
        self._store = deps.store

    @activity.defn(name=contracts.FINISH_RESPONSE)
    async def finish_response(self, request: FinishInput) -> FinishOutcome:
        """End a response without a model round: failure, budget, cancellation, hand-back after a tool batch."""
        state = request.state
        ended = state.ended or Ended(Status.COMPLETED)
        row = base.ending(ended, state.usage, self._deps.clock())
        record, _ = await self._store.end(request.tenant, state.response_id, row)
        return FinishOutcome(base.ended_as(record))

    @activity.defn(name=contracts.DECIDE_APPROVAL)
    async def decide_approval(self, request: DecideInput) -> Verdict:
        """A decision from Temporal's UI or CLI; whoever was first is answered to everybody."""
        decision = request.decision
        wish = DecisionRequest(
            approval_id=decision.approval_id,
            approve=decision.approve,
            who="temporal",
            how=request.how,
            at=int(self._deps.clock()),
        )
        won = False
        try:
            decided = await self._store.decide(request.tenant, wish)
            approval, won = decided.approval, decided.won
        except (ApprovalAlreadyDecided, NotFound):
            found = await self._store.approval(request.tenant, decision.approval_id)
            if found is None:
                return Verdict(decision.approval_id)
            approval = found
        return Verdict(approval.id, approval.status, approval.decided_how, won)

    @activity.defn(name=contracts.READ_GATE)
    async def read_gate(self, request: GateInput) -> GateView:
        """Where the asks of a round stand; when all are decided, the approved calls are announced in the model's order
        and the denied ones noted for the model, in one step."""
        now = self._deps.clock()
        begun = await self._store.begin(
            request.tenant,
            request.response_id,
            f"gate:{request.round}",
            workflow_id=base.workflow_id(),
            calls=request.round,
        )
        match begun:
            case Committed(outcome):
                return base.decode(GateView, outcome)
            case Gone():
                return GateView(gone=True, at=now)
            case Begun():
                pass
            case _:
                assert_never(begun)
        asks = await self._asks(request, begun.calls)
        pending = [ask for _, ask in asks if ask.status == "pending"]
        if pending:
            deadlines = [ask.deadline - now for ask in pending if ask.deadline is not None]
            wait = max(0.0, min([*deadlines, _LOOK_AGAIN]))
            return GateView(pending=len(pending), deadline_in=wait, at=now)
        approved = [row for row, ask in asks if ask.status == "approved"]
        failed = any(ask.status == "expired" for _, ask in asks)
        view = GateView(approved=tuple(row.ordinal for row in approved), failed=failed, at=now)
        hidden = [item for _, ask in asks if ask.status == "denied" for item in _denied(ask)]
        shown = [] if failed else [row for row in approved if not row.hidden]
        hidden += [] if failed else [base.call_item(row) for row in approved if row.hidden]
        events = [event for row in shown for event in _announced(row)]
        await self._store.append(begun.handle, events, Commit(hidden=hidden, outcome=base.encode(view)))
        return view

    @activity.defn(name=contracts.EXPIRE_ASKS)
    async def expire_asks(self, request: GateInput) -> GateView:
        """Expire what is overdue; the same conditional update a decision is."""
        now = self._deps.clock()
        await self._store.expire(request.tenant, request.response_id, now)
        return GateView(at=now)

    @activity.defn(name=contracts.LEAVE_PARK)
    async def leave_park(self, request: ParkInput) -> Resumed:
        """Which response takes the parked run. A wake-up nobody's row confirms leaves the run parked."""
        if request.resumed_by is not None:
            return await self._taken_by(request.tenant, request.resumed_by)
        claimed = await self._store.leave_park(request.tenant, base.workflow_id(), request.response_id)
        if claimed is None:
            return Resumed(closed=True)
        return await self._taken_by(request.tenant, claimed)

    async def _taken_by(self, tenant: str, response_id: str) -> Resumed:
        record = await self._store.get(tenant, response_id)
        if record is None or record.ended or record.workflow_id != base.workflow_id():
            return Resumed()
        return Resumed(state=base.decode(RunState, record.run_state), model=record.model)

    async def _asks(self, request: GateInput, calls: Sequence[CallRow]) -> list[tuple[CallRow, Approval]]:
        """The asking calls of the round with their asks; an ask listed again keeps the numbers of its first round."""
        listed = await self._store.approvals(request.tenant, response_id=request.response_id)
        by_id = {ask.id: ask for ask in listed}
        return [(row, by_id[row.approval_id]) for row in calls if row.approval_id in by_id and row.action == "ask"]


def _announced(row: CallRow) -> list[WireEvent]:
    return building.announce_mcp_call(base.call_item(row))


def _denied(approval: Approval) -> list[JsonObject]:
    """The pair of control items a denied ask of wait mode becomes in the chain; preparation tells the model."""
    request = building.approval_request_item(approval.id, approval.server_label, approval.name, approval.arguments)
    item_id = ids.mint(ids.Prefix.MCP_APPROVAL_RESPONSE)
    reason = told_reason(approval.decided_how, approval.reason)
    return [request, building.approval_response_item(item_id, approval.id, approve=False, reason=reason)]
