"""Scripts that end, delete and purge a response from outside its steps."""

from dataclasses import replace

import sqlalchemy as sa

from outlast.store import asking, private, records, turns
from outlast.store.appending import MARK_ENDED, move_run, number_closing, write_stamped, write_terminal
from outlast.store.base import Ending, ResponseRecord
from outlast.store.reading import read_closing, read_open_items
from outlast.store.scripting import Emit, Query, Script, Scrub, Statement, lit
from outlast.store.stamping import stamp
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
_used = sa.and_(_a.tenant == _tenant, _a.taken_by == _id, _a.response_id != _id)
_STARTED = Query(
    sa.select(tool_calls.c.ordinal)
    .where(
        tool_calls.c.tenant == _tenant,
        tool_calls.c.response_id == _id,
        tool_calls.c.approval_id.is_not(None),
        tool_calls.c.started == lit(1),
    )
    .limit(lit(1))
    .offset(lit(0))
)
_UNTAKE = Query(sa.update(approvals).where(_used).values(taken_by=sa.null()).returning(_a.id))
_UNLIST = Query(
    sa.update(approvals)
    .where(_a.tenant == _tenant, _a.listed_by == _id, _a.response_id != _id)
    .values(listed_by=sa.bindparam("lister"))
)
_UNCLAIM = Query(
    sa.update(runs)
    .where(runs.c.tenant == _tenant, runs.c.workflow_id == sa.bindparam("workflow"), runs.c.current == _id)
    .values(current=sa.bindparam("parked_on"), state=lit("parked"))
)
_CLOSE_PARKED = Query(
    sa.update(runs)
    .where(runs.c.tenant == _tenant, runs.c.current == _id, runs.c.state == lit("parked"))
    .values(state=lit("closed"))
    .returning(runs.c.workflow_id)
)
_FORGET_ASKS = Query(
    sa.update(approvals).where(_a.tenant == _tenant, _a.response_id == _id).values(arguments=lit(""), reason=sa.null())
)
_DELETES = [
    Query(sa.delete(table).where(table.c.tenant == _tenant, table.c.response_id == _id))
    for table in (events, items, steps, tool_calls, bindings, requests)
] + [Query(sa.delete(responses).where(_r.tenant == _tenant, _r.id == _id))]
_DELETE_SECRETS = Query(sa.delete(secrets).where(secrets.c.tenant == _tenant, secrets.c.response_id == _id))
_ended = _r.status.not_in([lit("queued"), lit("in_progress")])
_IS_TRANSIENT = Query(
    sa.select(_r.conversation_id).where(_r.tenant == _tenant, _r.id == _id, _r.store == lit(0), _ended)
)
_TRANSIENT = Query(
    sa.select(_r.tenant, _r.id).where(_r.store == lit(0), _ended, _r.touched_at <= sa.bindparam("before"))
)
_OLD_SECRETS = Query(
    sa.delete(secrets).where(
        secrets.c.created_at <= sa.bindparam("before"),
        secrets.c.response_id.not_in(sa.select(_r.id).where(_r.tenant == secrets.c.tenant, sa.not_(_ended))),
        secrets.c.id.not_in(
            sa.select(_a.secret_id)
            .join(responses, sa.and_(_r.tenant == _a.tenant, _r.id == _a.taken_by))
            .where(_a.tenant == secrets.c.tenant, _a.secret_id.is_not(None), sa.not_(_ended))
        ),
    )
)

_TRANSIENT_SECONDS = 60
_SECRET_SECONDS = 7 * 86_400


def end(tenant: str, response_id: str, ending: Ending, now: float) -> Script[tuple[ResponseRecord | None, bool]]:
    """See `Store.end`. The conditional update comes first: who does not get the row writes nothing."""
    key: dict[str, object] = {"tenant": tenant, "id": response_id}
    rows = yield Statement(records.LOCK_RECORD, key)
    if not rows:
        return None, False
    record = records.record(rows[0])
    won = yield Statement(MARK_ENDED, key | records.ending_params(ending) | {"now": now})
    if not won:
        return record, False
    sealed, claimed_from = won[0]
    record = yield from _write_end(records.ended(record, ending))
    # What completed has used its decisions, also where none of them started a call.
    unused = ending.status != "completed" and bool(sealed)
    given_back, parked = (yield from _give_back(record, claimed_from)) if unused else (False, False)
    if not parked:
        yield from move_run(record, "closed")
    yield from asking.after_end(record, sealed=bool(sealed), withdraw=True)
    if not given_back:
        yield from turns.append(record)
    return record, True


def _write_end(record: ResponseRecord) -> Script[ResponseRecord]:
    """Close what is open, then the terminal event; the record with its final numbers."""
    open_items = (yield from read_open_items(record.tenant, record.id)) if record.next_index else []
    closers = yield from read_closing(record.tenant, record.id, [row[0] for row in open_items])
    yield from number_closing(record, len(closers) + 1)
    if closers:
        indexes = {row[0]: row[1] for row in open_items}
        stamped = stamp(closers, number=record.next_sequence, index=0, ordinal=0, indexes=indexes)
        yield from write_stamped(record, stamped, step="", round=0)
    record = replace(record, next_sequence=record.next_sequence + len(closers) + 1)
    yield from write_terminal(record)
    return record


def _give_back(record: ResponseRecord, claimed_from: str | None) -> Script[tuple[bool, bool]]:
    """A continuation that started none of its approved calls returns what it took; (whether it did, whether the run is
    parked again)."""
    key: dict[str, object] = {"tenant": record.tenant, "id": record.id}
    if (yield Statement(_STARTED, key)):
        return False, False
    untaken = bool((yield Statement(_UNTAKE, key)))
    asked_before = claimed_from or record.previous_response_id
    if asked_before is not None:
        yield Statement(_UNLIST, key | {"lister": asked_before})
    if claimed_from is None:
        return untaken, False
    yield Statement(_UNCLAIM, key | {"workflow": record.workflow_id, "parked_on": claimed_from})
    return untaken, True


def delete(tenant: str, response_id: str) -> Script[str | None]:
    """See `Store.delete`."""
    key: dict[str, object] = {"tenant": tenant, "id": response_id}
    rows = yield Statement(records.LOCK_RECORD, key)
    if not rows:
        return None
    yield from asking.withdraw_shown(tenant, response_id)
    parked = yield Statement(_CLOSE_PARKED, key)
    yield from _purge(tenant, response_id, records.record(rows[0]).conversation_id)
    yield Statement(_DELETE_SECRETS, key)
    return parked[0][0] if parked else None


def purge(tenant: str, response_id: str) -> Script[bool]:
    """See `Store.purge`. Asks stay, without their arguments; their secrets stay as long as they may be needed."""
    key: dict[str, object] = {"tenant": tenant, "id": response_id}
    rows = yield Statement(_IS_TRANSIENT, key)
    if not rows:
        return False
    yield from _purge(tenant, response_id, rows[0][0])
    yield from asking.purge_secrets(tenant, response_id)
    return True


def _purge(tenant: str, response_id: str, conversation_id: str | None) -> Script[None]:
    key: dict[str, object] = {"tenant": tenant, "id": response_id}
    yield Statement(_FORGET_ASKS, key)
    for query in _DELETES:
        yield Statement(query, key)
    yield from private.forget(tenant, response_id)
    yield from turns.forget(tenant, conversation_id)
    yield Emit(tenant, response_id, gone=True)
    yield Scrub()


def purge_transient(now: float) -> Script[int]:
    """See `Store.purge_transient`."""
    rows = yield Statement(_TRANSIENT, {"before": now - _TRANSIENT_SECONDS})
    for tenant, response_id in rows:
        yield from purge(tenant, response_id)
    yield Statement(_OLD_SECRETS, {"before": int(now - _SECRET_SECONDS)})
    return len(rows)
