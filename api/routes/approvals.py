"""Asks: list them, look at one, decide one."""

import logging
from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from api import body, paging
from api.asks import ask_now, asks_now
from api.deps import Caller, Ports
from api.errors import Json
from api.paging import page
from api.services import Services
from api.views import approval_json
from outlast.protocol import requests
from outlast.protocol.errors import InvalidRequest, NotFound, Unavailable
from outlast.protocol.json import JsonObject
from outlast.store.base import Approval, ApprovalStatus, DecisionRequest

# The command line says so of itself; it is recorded as `decided_how` and grants nothing.
VIA_HEADER = "x-outlast-via"

router = APIRouter(prefix="/v1/approvals", tags=["approvals"])
_log = logging.getLogger(__name__)


@router.get("")
async def list_approvals(
    caller: Caller,
    ports: Ports,
    status: ApprovalStatus | None = None,
    after: str | None = None,
    limit: Annotated[int, Query(ge=1, le=100)] = 100,
) -> Response:
    """Asks of the tenant, oldest first."""
    found = list(await asks_now(ports.store, caller.tenant, ports.clock(), status=status))
    shown, more = paging.after(found, after, limit, key=lambda approval: approval.id)
    return Json(page([approval_json(approval) for approval in shown], has_more=more))


@router.get("/{approval_id}")
async def get_approval(approval_id: str, caller: Caller, ports: Ports) -> Response:
    """One ask."""
    return Json(approval_json(await _known(ports, caller.tenant, approval_id)))


@router.post("/{approval_id}")
async def decide(approval_id: str, request: Request, caller: Caller, ports: Ports) -> Response:
    """Decide it: `{"approve": true, "reason": "…"}`. A repeat of the verdict that stands is answered with it."""
    caller.require("approver")
    approve, reason = _verdict(requests.load(await body.read(request, body.SMALL_BODY_BYTES), ports.limits))
    how = "cli" if request.headers.get(VIA_HEADER) == "cli" else "api"
    wish = DecisionRequest(approval_id, approve, who=caller.key_id, how=how, reason=reason, at=int(ports.clock()))
    decided = (await ports.store.decide(caller.tenant, wish)).approval
    if decided.mode == "wait":
        await _wake(ports, decided)
    return Json(approval_json(decided))


async def _known(ports: Services, tenant: str, approval_id: str) -> Approval:
    approval = await ask_now(ports.store, tenant, approval_id, ports.clock())
    if approval is None:
        raise NotFound(f"Approval '{approval_id}' not found.", param="approval_id")
    return approval


def _verdict(wish: JsonObject) -> tuple[bool, str | None]:
    approve, reason = wish.get("approve"), wish.get("reason")
    if not isinstance(approve, bool):
        raise InvalidRequest("'approve' must be true or false.", param="approve")
    if reason is not None and not isinstance(reason, str):
        raise InvalidRequest("'reason' must be a text.", param="reason")
    return approve, reason


async def _wake(ports: Services, approval: Approval) -> None:
    record = await ports.store.get(approval.tenant, approval.response_id)
    if record is None:
        return
    try:
        await ports.runs.decided(record.workflow_id, approval.id)
    except Unavailable:
        # The decision stands in its row; the sweeper repeats the wake-up.
        _log.warning("could not wake the run of %s after a decision", approval.response_id)
