"""Rows as clients see them."""

from collections.abc import Sequence

from outlast.protocol.json import JsonObject
from outlast.protocol.responses import build_response
from outlast.store.base import Approval, ResponseRecord

# A model that gives no arguments still sends `{}`.
_ARGUMENTS_NOT_KEPT = "the arguments are not kept: the response is not stored, its caller has them"
_WAITS_FOR_CALLER = "runs when the caller continues"


def response_json(record: ResponseRecord, output: Sequence[JsonObject], asks: Sequence[Approval] = ()) -> JsonObject:
    """The Response object. `asks`: those a waiting response is held up by; they are no output items."""
    return build_response(record.facts, output, pending_approvals=[approval_json(ask) for ask in asks])


def approval_json(approval: Approval) -> JsonObject:
    """An ask. `arguments`: the effective ones, whole, as the text they run with; times are unix seconds."""
    body: JsonObject = {
        "id": approval.id,
        "object": "approval",
        "response_id": approval.listed_by,
        "status": approval.status,
        "mode": approval.mode,
        "server_label": approval.server_label,
        "name": approval.name,
        "arguments": approval.arguments,
        "created_at": approval.created_at,
        "deadline": approval.deadline,
        "decided_by": approval.decided_by,
        "decided_how": approval.decided_how,
        "decided_at": approval.decided_at,
        "reason": approval.reason,
        "taken_by": approval.taken_by,
    }
    decided = approval.status in ("approved", "denied")
    if decided and approval.mode == "respond" and approval.taken_by is None:
        body["note"] = _WAITS_FOR_CALLER
    elif not approval.arguments:
        body["note"] = _ARGUMENTS_NOT_KEPT
    return body
