"""Scripts that delete responses and purge what was not to be kept.

A deleted response is hidden at once and its content goes with it, with one exception: items that a running response
descends from. That run has read them and reads them again in every round, so they stay, under a row of status `deleted`
that no reader but a run's own `begin` sees, until no descendant runs. A continuation through it is refused by name,
never given a shorter history.
"""

import sqlalchemy as sa

from outlast.store import asking, idempotency, private, records, turns
from outlast.store.scripting import Emit, Query, Script, Scrub, Statement, lit
from outlast.store.tables import (
    approvals,
    bindings,
    events,
    items,
    requests,
    responses,
    runs,
    secrets,
    steps,
    tool_calls,
)

_tenant: sa.BindParameter[str] = sa.bindparam("tenant")
_id: sa.BindParameter[str] = sa.bindparam("id")
_a, _r = approvals.c, responses.c
_open = _r.status.in_([lit("queued"), lit("in_progress")])
_ended = _r.status.not_in([lit("queued"), lit("in_progress")])
_STOP_PARKED = Query(
    sa.update(runs)
    .where(runs.c.tenant == _tenant, runs.c.current == _id, runs.c.state == lit("parked"))
    .values(state=lit("stopping"), sweep_after=lit(0))
    .returning(runs.c.workflow_id)
)
# Runs to be stopped are forgotten when they are.
_FORGET_RUN = Query(
    sa.delete(runs).where(runs.c.tenant == _tenant, runs.c.current == _id, runs.c.state == lit("closed"))
)
_FORGET_ASKS = Query(
    sa.update(approvals).where(_a.tenant == _tenant, _a.response_id == _id).values(arguments=lit(""), reason=sa.null())
)
_DELETES = [
    Query(sa.delete(table).where(table.c.tenant == _tenant, table.c.response_id == _id))
    for table in (events, steps, tool_calls, bindings, requests)
]
_DELETE_KEPT = [
    Query(sa.delete(items).where(items.c.tenant == _tenant, items.c.response_id == _id)),
    Query(sa.delete(responses).where(_r.tenant == _tenant, _r.id == _id)),
]
_HIDE = Query(
    sa.update(responses)
    .where(_r.tenant == _tenant, _r.id == _id)
    .values(
        status=lit("deleted"),
        usage=sa.null(),
        error=sa.null(),
        incomplete_details=sa.null(),
        origin=sa.null(),
        sweep_after=lit(0),
    )
)
_DELETE_SECRETS = Query(sa.delete(secrets).where(secrets.c.tenant == _tenant, secrets.c.response_id == _id))


def _running_below() -> sa.Select[tuple[str]]:
    """Any response in progress that descends from this one."""
    below = (
        sa.select(_r.id, _r.status)
        .where(_r.tenant == _tenant, _r.previous_response_id == _id)
        .cte("below", recursive=True)
    )
    child = sa.select(_r.id, _r.status).where(_r.tenant == _tenant, _r.previous_response_id == below.c.id)
    below = below.union_all(child)
    runs_on = below.c.status.in_([lit("queued"), lit("in_progress")])
    return sa.select(below.c.id).where(runs_on).limit(lit(1)).offset(lit(0))


_RUNNING_BELOW = Query(_running_below())
_CONTINUED = Query(
    sa.select(_r.id)
    .where(_r.tenant == _tenant, _r.previous_response_id == _id, _r.previous_response_id.is_not(None))
    .limit(lit(1))
    .offset(lit(0))
)
_HIDDEN = Query(
    sa.select(_r.tenant, _r.id, _r.conversation_id)
    .where(_r.status == lit("deleted"), _r.sweep_after <= sa.bindparam("now"))
    .order_by(_r.sweep_after)
    .limit(sa.bindparam("page"))
    .offset(lit(0))
)
_KEEP_HIDDEN = Query(
    sa.update(responses).where(_r.tenant == _tenant, _r.id == _id).values(sweep_after=sa.bindparam("look_again"))
)
_OLD = Query(
    sa.select(_r.tenant, _r.id, _r.created_at)
    .where(
        _r.store == lit(1),
        _r.created_at < sa.bindparam("before"),
        _r.touched_at < sa.bindparam("before"),
        _ended,
        _r.status != lit("deleted"),
        sa.or_(
            _r.created_at < sa.bindparam("at"), sa.and_(_r.created_at == sa.bindparam("at"), _r.id < sa.bindparam("id"))
        ),
    )
    .order_by(_r.created_at.desc(), _r.id.desc())
    .limit(sa.bindparam("page"))
    .offset(lit(0))
)
_IS_TRANSIENT = Query(
    sa.select(_r.conversation_id).where(_r.tenant == _tenant, _r.id == _id, _r.store == lit(0), _ended)
)
_TRANSIENT = Query(
    sa.select(_r.tenant, _r.id).where(
        _r.store == lit(0),
        _ended,
        _r.touched_at <= sa.bindparam("before"),
        # A connection of WebSocket mode keeps its newest ones to go on from.
        _r.sweep_after <= sa.bindparam("now"),
    )
)
_used_by_taker = (
    sa.select(_a.id)
    .join(responses, sa.and_(_r.tenant == _a.tenant, _r.id == _a.taken_by))
    .where(_a.tenant == secrets.c.tenant, _a.secret_id == secrets.c.id, _open)
)
_OLD_SECRETS = Query(
    sa.delete(secrets).where(
        secrets.c.created_at <= sa.bindparam("before"),
        sa.not_(sa.exists().where(_r.tenant == secrets.c.tenant, _r.id == secrets.c.response_id, _open)),
        sa.not_(_used_by_taker.exists()),
    )
)

_TRANSIENT_SECONDS = 60
_SECRET_SECONDS = 7 * 86_400
# How many deleted responses one sweep looks at, and how long one whose descendants run is then left alone.
_HIDDEN_PAGE = 50
_HIDDEN_SECONDS = 60.0
# Above every time and every id.
_NEWEST = (1 << 62, "")


def delete(tenant: str, response_id: str) -> Script[str | None]:
    """See `Store.delete`."""
    key: dict[str, object] = {"tenant": tenant, "id": response_id}
    rows = yield Statement(records.LOCK_RECORD, key)
    if not rows:
        return None
    yield from asking.withdraw_shown(tenant, response_id)
    parked = yield Statement(_STOP_PARKED, key)
    if (yield Statement(_RUNNING_BELOW, key)):
        yield from _hide(tenant, response_id)
    else:
        yield from _purge(tenant, response_id, records.record(rows[0]).conversation_id)
    yield Statement(_DELETE_SECRETS, key)
    return parked[0][0] if parked else None


def purge_older(before: float, after: tuple[int, str] | None, limit: int) -> Script[tuple[int, tuple[int, str] | None]]:
    """See `Store.purge_older`. Newest first: who continues a response is younger, and goes before it."""
    at, last = after or _NEWEST
    rows = yield Statement(_OLD, {"before": before, "at": at, "id": last, "page": limit})
    purged = 0
    for tenant, response_id, _ in rows:
        if not (yield Statement(_CONTINUED, {"tenant": tenant, "id": response_id})):
            yield from delete(tenant, response_id)
            purged += 1
    return purged, (rows[-1][2], rows[-1][1]) if len(rows) == limit else None


def purge(tenant: str, response_id: str) -> Script[bool]:
    """See `Store.purge`. Asks stay, without their arguments; their secrets stay as long as they may be needed."""
    key: dict[str, object] = {"tenant": tenant, "id": response_id}
    rows = yield Statement(_IS_TRANSIENT, key)
    if not rows:
        return False
    yield from _purge(tenant, response_id, rows[0][0])
    yield from asking.purge_secrets(tenant, response_id)
    return True


def purge_transient(now: float) -> Script[int]:
    """See `Store.purge_transient`."""
    rows = yield Statement(_TRANSIENT, {"before": now - _TRANSIENT_SECONDS, "now": now})
    for tenant, response_id in rows:
        yield from purge(tenant, response_id)
    yield from _purge_hidden(now)
    yield from idempotency.purge(now)
    yield Statement(_OLD_SECRETS, {"before": int(now - _SECRET_SECONDS)})
    return len(rows)


def _purge_hidden(now: float) -> Script[None]:
    """What was deleted and kept for runs that have ended by now."""
    for tenant, response_id, conversation_id in (yield Statement(_HIDDEN, {"now": now, "page": _HIDDEN_PAGE})):
        key: dict[str, object] = {"tenant": tenant, "id": response_id}
        if (yield Statement(_RUNNING_BELOW, key)):
            yield Statement(_KEEP_HIDDEN, key | {"look_again": now + _HIDDEN_SECONDS})
        else:
            yield from _purge(tenant, response_id, conversation_id)


def _hide(tenant: str, response_id: str) -> Script[None]:
    """All but the items, and the images they name: runs that go on read them."""
    key: dict[str, object] = {"tenant": tenant, "id": response_id}
    for query in (_FORGET_ASKS, *_DELETES, _HIDE):
        yield Statement(query, key)
    yield Emit(tenant, response_id, gone=True)
    yield Scrub()


def _purge(tenant: str, response_id: str, conversation_id: str | None) -> Script[None]:
    key: dict[str, object] = {"tenant": tenant, "id": response_id}
    for query in (_FORGET_ASKS, _FORGET_RUN, *_DELETES, *_DELETE_KEPT):
        yield Statement(query, key)
    yield from private.forget(tenant, response_id)
    yield from turns.forget(tenant, conversation_id)
    yield Emit(tenant, response_id, gone=True)
    yield Scrub()
