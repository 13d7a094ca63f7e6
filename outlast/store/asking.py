"""Scripts around asks: decide, take, expire, withdraw, and the secrets that live as long as an ask may need them.

A row leaves `pending` by one conditional update with the deadline in its WHERE: whoever gets the row back has decided,
everybody else reads who did. Refusals are returned, not raised, where the same transaction has found an ask overdue and
must keep that.
"""

from collections.abc import Collection
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa

from outlast.protocol.errors import ApprovalAlreadyDecided, InvalidRequest, NotFound, OutlastError
from outlast.store import records
from outlast.store.base import Approval, Decided, DecisionRequest, ResponseRecord
from outlast.store.scripting import Query, Script, Statement, lit
from outlast.store.tables import approvals, responses, secrets

_a = approvals.c
_tenant: sa.BindParameter[str] = sa.bindparam("tenant")
_response: sa.BindParameter[str] = sa.bindparam("response")
_ONE = sa.and_(_a.tenant == _tenant, _a.id == sa.bindparam("approval"))
_PENDING = _a.status == lit("pending")
_OVERDUE = sa.and_(_PENDING, _a.deadline <= sa.bindparam("now"))
_BY_DEADLINE = {
    "status": sa.case((_a.on_deadline == lit("deny"), lit("denied")), else_=lit("expired")),
    "decided_by": lit("deadline"),
    "decided_how": lit("deadline"),
    "decided_at": sa.bindparam("decided_at"),
}

_READ_APPROVAL = Query(sa.select(*records.APPROVAL_COLUMNS).where(_ONE))
_DECIDE = Query(
    sa.update(approvals)
    .where(_ONE, _PENDING, sa.or_(_a.deadline.is_(None), _a.deadline > sa.bindparam("now")))
    .values(
        status=sa.bindparam("verdict"),
        decided_by=sa.bindparam("who"),
        decided_how=sa.bindparam("how"),
        decided_at=sa.bindparam("decided_at"),
        reason=sa.bindparam("why"),
    )
    .returning(*records.APPROVAL_COLUMNS)
)
_EXPIRE_ONE = Query(
    sa.update(approvals).where(_ONE, _OVERDUE).values(_BY_DEADLINE).returning(*records.APPROVAL_COLUMNS)
)
# A sign of life of the run that waits for it: should the wake-up be lost, it is repeated soon.
_AWAITED = Query(
    sa.update(responses)
    .where(
        responses.c.tenant == _tenant,
        responses.c.id == _response,
        responses.c.status == lit("in_progress"),
        responses.c.store == lit(1),
    )
    .values(touched_at=sa.bindparam("now"), sweep_after=lit(0))
)
# Two statements, not an OR: SQLite would read every ask of the tenant for it.
_OF_RESPONSE = (_a.response_id == _response, _a.listed_by == _response)
_EXPIRE_ALL = [
    Query(sa.update(approvals).where(_a.tenant == _tenant, of_response, _OVERDUE).values(_BY_DEADLINE).returning(_a.id))
    for of_response in _OF_RESPONSE
]
# Unless a newer response has listed it meanwhile: two continuations of one response must not divide its asks.
_still_shown = _a.listed_by == sa.func.coalesce(sa.bindparam("shown_by", type_=sa.Text), _a.listed_by)
_TAKE = Query(
    sa.update(approvals)
    .where(_ONE, _still_shown, _a.taken_by.is_(None), _a.status.in_([lit("approved"), lit("denied")]))
    .values(taken_by=sa.bindparam("taker"))
    .returning(_a.id)
)
_RELIST = Query(
    sa.update(approvals)
    .where(_ONE, _still_shown, _a.taken_by.is_(None))
    .values(listed_by=sa.bindparam("lister"))
    .returning(_a.id)
)
_REARM = Query(
    sa.update(approvals)
    .where(
        _a.tenant == _tenant,
        _a.listed_by == sa.bindparam("lister"),
        _a.server_label == sa.bindparam("label"),
        _PENDING,
    )
    .values(secret_id=sa.bindparam("secret"))
)
_KEEP_SECRET = Query(
    sa.update(secrets)
    .where(secrets.c.tenant == _tenant, secrets.c.id == sa.bindparam("secret"))
    .values(response_id=_response)
)
_withdraw = sa.update(approvals).where(_a.tenant == _tenant, _PENDING).values(status=lit("withdrawn"))
_WITHDRAW_ASKED = Query(_withdraw.where(_a.response_id == _response))
_WITHDRAW_SHOWN = [Query(_withdraw.where(of_response)) for of_response in _OF_RESPONSE]


def _runs(response_id: sa.ColumnElement[Any]) -> sa.Exists:
    """Whether a response is in progress. Looked up by its id: a list of all that are would be read from every row."""
    return sa.exists().where(
        responses.c.tenant == _tenant,
        responses.c.id == response_id,
        responses.c.status.in_([lit("queued"), lit("in_progress")]),
    )


# A secret is of use while its response runs, while an ask sealed with it is open, and while an approved one may still
# be run: by a continuation to come, or by the one that took it.
_needed_by_ask = (
    sa.select(_a.id)
    .where(
        _a.tenant == _tenant,
        _a.secret_id == secrets.c.id,
        sa.or_(
            _PENDING,
            sa.and_(_a.status == lit("approved"), sa.or_(_a.taken_by.is_(None), _runs(_a.taken_by))),
        ),
    )
    .exists()
)
_sealed_with = sa.select(_a.secret_id).where(_a.tenant == _tenant, _a.secret_id.is_not(None))
_concerned = sa.union_all(
    sa.select(secrets.c.id).where(secrets.c.tenant == _tenant, secrets.c.response_id == _response),
    _sealed_with.where(_a.taken_by == _response),
    _sealed_with.where(_a.response_id == _response),
)
_PURGE_SECRETS = Query(
    sa.delete(secrets).where(
        secrets.c.tenant == _tenant,
        secrets.c.id.in_(_concerned),
        sa.not_(_runs(secrets.c.response_id)),
        sa.not_(_needed_by_ask),
    )
)


def decide(tenant: str, wish: DecisionRequest, now: float, *, used: bool = False) -> Script[Decided | OutlastError]:
    """Decide one ask, or learn why not; see `Store.decide`. The refusal is returned so that an expiry found on the way
    is kept. `used`: by a response that is created with it, whose end purges the secrets."""
    key: dict[str, object] = {"tenant": tenant, "approval": wish.approval_id, "now": now}
    verdict = "approved" if wish.approve else "denied"
    rows = yield Statement(
        _DECIDE,
        key
        | {
            "verdict": verdict,
            "who": wish.who,
            "how": wish.how,
            "decided_at": wish.at or int(now),
            "why": wish.reason,
        },
    )
    if rows:
        approval = records.approval(rows[0])
        if approval.mode == "wait":
            yield Statement(_AWAITED, {"tenant": tenant, "response": approval.response_id, "now": now})
        if not wish.approve and not used:
            yield from purge_secrets(tenant, approval.response_id)
        return Decided(approval, won=True)
    standing = yield from _standing(tenant, wish.approval_id, now)
    if standing is None:
        return NotFound(f"Approval '{wish.approval_id}' not found.", param="approval_id")
    if standing.status == verdict and standing.taken_by is None:
        return Decided(standing, won=False)
    return refusal(standing)


def read(tenant: str, approval_id: str) -> Script[Approval | None]:
    """See `Store.approval`."""
    rows = yield Statement(_READ_APPROVAL, {"tenant": tenant, "approval": approval_id})
    return records.approval(rows[0]) if rows else None


def _standing(tenant: str, approval_id: str, now: float) -> Script[Approval | None]:
    """The ask as it stands; an overdue one is expired first."""
    key: dict[str, object] = {"tenant": tenant, "approval": approval_id}
    rows = yield Statement(_READ_APPROVAL, key)
    if rows and records.approval(rows[0]).status == "pending":
        rows = yield Statement(_EXPIRE_ONE, key | {"now": now, "decided_at": int(now)})
        if not rows:  # decided between the two reads
            rows = yield Statement(_READ_APPROVAL, key)
        else:
            yield from purge_secrets(tenant, records.approval(rows[0]).response_id)
    return records.approval(rows[0]) if rows else None


def refusal(approval: Approval) -> InvalidRequest:
    """Why an ask cannot be decided or used any more, naming who or what came first."""
    if approval.status == "withdrawn":
        return InvalidRequest(f"Approval {approval.id} was withdrawn: its response was cancelled or deleted.")
    if approval.status == "pending":
        return InvalidRequest(f"Approval {approval.id} is still waiting for a decision.")
    at = datetime.fromtimestamp(approval.decided_at or 0, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    if approval.status == "expired":
        told = f"Approval {approval.id} expired at its deadline ({at})."
    else:
        winner = f"{approval.decided_by} through {approval.decided_how}"
        told = f"Approval {approval.id} was already {approval.status} by {winner} at {at}."
    if approval.taken_by is not None:
        told += f" Response {approval.taken_by} has used it."
    return ApprovalAlreadyDecided(told)


def take(tenant: str, approval_id: str, taker: str, shown_by: str | None) -> Script[None]:
    """Use a decision, once. `shown_by`: the response it was decided from. Raises: NotFound, ApprovalAlreadyDecided
    naming the taker, InvalidRequest."""
    key: dict[str, object] = {"tenant": tenant, "approval": approval_id}
    if not (yield Statement(_TAKE, key | {"taker": taker, "shown_by": shown_by})):
        raise (yield from _passed(tenant, approval_id, shown_by))


def hand_over(record: ResponseRecord, fresh: Collection[str]) -> Script[None]:
    """The credentials of a continuation: those of the run before live as long as it does, `fresh` ones (secret ids) are
    what the asks it lists again will run with."""
    for label, secret_id in record.credentials.items():
        key: dict[str, object] = {"tenant": record.tenant, "secret": secret_id}
        if secret_id in fresh:
            yield Statement(_REARM, key | {"label": label, "lister": record.id})
        else:
            yield Statement(_KEEP_SECRET, key | {"response": record.id})


def relist(tenant: str, approval_id: str, lister: str, shown_by: str | None) -> Script[None]:
    """A newer response shows a still open ask. Raises: as `take`."""
    key: dict[str, object] = {"tenant": tenant, "approval": approval_id}
    if not (yield Statement(_RELIST, key | {"lister": lister, "shown_by": shown_by})):
        raise (yield from _passed(tenant, approval_id, shown_by))


def _passed(tenant: str, approval_id: str, shown_by: str | None) -> Script[OutlastError]:
    """Why an ask could not be taken or listed again."""
    rows = yield Statement(_READ_APPROVAL, {"tenant": tenant, "approval": approval_id})
    if not rows:
        return NotFound(f"Approval '{approval_id}' not found.", param="approval_id")
    approval = records.approval(rows[0])
    if approval.taken_by is None and shown_by not in (None, approval.listed_by):
        return stale(approval, shown_by)
    return refusal(approval)


def stale(approval: Approval, shown_by: str | None) -> InvalidRequest:
    """A decision from an older response than the newest that lists the ask."""
    return InvalidRequest(
        f"Approval '{approval.id}' is not listed by response '{shown_by}': continue from '{approval.listed_by}', "
        "the newest response that lists it.",
        param="input",
        code="approval_stale",
    )


def expire(tenant: str, response_id: str, now: float) -> Script[int]:
    """Expire the overdue asks of a response, see `Store.expire`."""
    key: dict[str, object] = {"tenant": tenant, "response": response_id}
    expired = 0
    for query in _EXPIRE_ALL:
        expired += len((yield Statement(query, key | {"now": now, "decided_at": int(now)})))
    if expired:
        yield from purge_secrets(tenant, response_id)
    return expired


def withdraw_shown(tenant: str, response_id: str) -> Script[None]:
    """Withdraw every open ask this response made or lists."""
    for query in _WITHDRAW_SHOWN:
        yield Statement(query, {"tenant": tenant, "response": response_id})


def after_end(record: ResponseRecord, *, sealed: bool) -> Script[None]:
    """What an ended response leaves: its open wait asks are withdrawn, secrets nobody can use any more are purged. Asks
    of respond mode are made in the transaction that ends their response, and stay."""
    if record.mode == "wait":
        yield Statement(_WITHDRAW_ASKED, {"tenant": record.tenant, "response": record.id})
    if sealed:
        yield from purge_secrets(record.tenant, record.id)


def purge_secrets(tenant: str, response_id: str) -> Script[None]:
    """Delete the secrets around this response that no response can use any more."""
    yield Statement(_PURGE_SECRETS, {"tenant": tenant, "response": response_id})
