"""The script that ends a response from outside its steps."""

from dataclasses import replace

import sqlalchemy as sa

from outlast.store import asking, records, turns
from outlast.store.appending import MARK_ENDED, move_run, number_closing, write_stamped, write_terminal
from outlast.store.base import Ending, ResponseRecord
from outlast.store.reading import read_closing, read_open_items
from outlast.store.scripting import Query, Script, Statement, lit
from outlast.store.stamping import stamp
from outlast.store.tables import approvals, responses, runs, tool_calls

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
_IS_THERE = Query(sa.select(_r.id).where(_r.tenant == _tenant, _r.id == _id, records.NOT_DELETED))
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
    given_back, parked = (yield from _give_back(record, claimed_from, ending)) if unused else (False, False)
    if not parked:
        yield from move_run(record, "stopping" if ending.stop else "closed")
    yield from asking.after_end(record, sealed=bool(sealed))
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


def _give_back(record: ResponseRecord, claimed_from: str | None, ending: Ending) -> Script[tuple[bool, bool]]:
    """A continuation that started none of its approved calls returns what it took; (whether it did, whether the run is
    parked again: one that is being stopped cannot be)."""
    key: dict[str, object] = {"tenant": record.tenant, "id": record.id}
    if (yield Statement(_STARTED, key)):
        return False, False
    asked_before = claimed_from or record.previous_response_id
    if asked_before is not None:
        if not (yield Statement(_IS_THERE, {"tenant": record.tenant, "id": asked_before})):
            # Deleted meanwhile: there is nobody to return it to.
            return False, False
        yield Statement(_UNLIST, key | {"lister": asked_before})
    untaken = bool((yield Statement(_UNTAKE, key)))
    if claimed_from is None or ending.stop:
        return untaken, False
    yield Statement(_UNCLAIM, key | {"workflow": record.workflow_id, "parked_on": claimed_from})
    return untaken, True
