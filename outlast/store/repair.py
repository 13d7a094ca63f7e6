"""Scripts of workers and the sweeper: beats, parked runs, silent responses and their leases."""

from collections.abc import Sequence

import sqlalchemy as sa

from outlast.store import records
from outlast.store.base import ResponseRecord
from outlast.store.creating import run_params
from outlast.store.scripting import Query, Script, Statement, lit
from outlast.store.tables import responses, runs, workers
from outlast.store.upserts import upsert

_tenant: sa.BindParameter[str] = sa.bindparam("tenant")
_id: sa.BindParameter[str] = sa.bindparam("id")
_r, _w = responses.c, runs.c
_open = _r.status.in_([lit("queued"), lit("in_progress")])
_BEAT = upsert(workers, ("id", "kind", "beat_at"))
_ALIVE = Query(sa.select(sa.func.count()).select_from(workers).where(workers.c.beat_at >= sa.bindparam("since")))
_SET_WORKFLOW = Query(
    sa.update(responses)
    .where(_r.tenant == _tenant, _r.id == _id, _r.workflow_id == sa.bindparam("old"), _open)
    .values(workflow_id=sa.bindparam("new"))
    .returning(_r.id)
)
_CLOSE_RUN = Query(
    sa.update(runs)
    .where(_w.tenant == _tenant, _w.workflow_id == sa.bindparam("old"), _w.current == _id)
    .values(state=lit("closed"))
)
_UPSERT_RUN = upsert(runs, [column.name for column in runs.columns])
_LEAVE = Query(
    sa.update(runs)
    .where(
        _w.tenant == _tenant, _w.workflow_id == sa.bindparam("workflow"), _w.current == _id, _w.state == lit("parked")
    )
    .values(state=lit("closed"))
    .returning(_w.workflow_id)
)
_RUN = Query(sa.select(_w.current, _w.state).where(_w.tenant == _tenant, _w.workflow_id == sa.bindparam("workflow")))
_SILENT = Query(
    sa.select(_r.tenant, _r.id)
    .where(
        _open,
        # A transient one is not waited for: its reader is gone.
        sa.or_(_r.touched_at < sa.bindparam("silent_since"), _r.store == lit(0)),
        _r.sweep_after <= sa.bindparam("now"),
    )
    .order_by(_r.touched_at)
    .limit(sa.bindparam("page"))
    .offset(lit(0))
)
_LEASE = Query(
    sa.update(responses)
    .where(_r.tenant == _tenant, _r.id == _id, _open, _r.sweep_after <= sa.bindparam("now"))
    .values(sweep_after=sa.bindparam("lease_until"))
    .returning(_r.id)
)
_REST = Query(
    sa.select(_r.touched_at, _r.sweep_after).where(_r.tenant == _tenant, _r.id == _id, _r.store == lit(1), _open)
)
_SET_REST = Query(
    sa.update(responses).where(_r.tenant == _tenant, _r.id == _id, _open).values(sweep_after=sa.bindparam("until"))
)
_ATTEND = Query(
    sa.update(responses)
    .where(_r.tenant == _tenant, _r.id == _id, records.NOT_DELETED, _r.store == lit(0))
    .values(sweep_after=sa.bindparam("until"))
)
_PARKED = Query(
    sa.select(_w.tenant, _w.workflow_id, _w.current)
    .where(_w.state == lit("parked"), _w.sweep_after <= sa.bindparam("now"))
    .order_by(_w.sweep_after, _w.workflow_id)
    .limit(sa.bindparam("page"))
    .offset(lit(0))
)
_lease_run = (
    sa.update(runs)
    .where(_w.tenant == _tenant, _w.workflow_id == sa.bindparam("workflow"), _w.sweep_after <= sa.bindparam("now"))
    .values(sweep_after=sa.bindparam("lease_until"))
    .returning(_w.workflow_id)
)
_LEASE_PARKED = Query(_lease_run.where(_w.state == lit("parked")))
_STOPPING = Query(
    sa.select(_w.tenant, _w.workflow_id)
    .where(_w.state == lit("stopping"), _w.sweep_after <= sa.bindparam("now"))
    .order_by(_w.sweep_after, _w.workflow_id)
    .limit(sa.bindparam("page"))
    .offset(lit(0))
)
_LEASE_STOPPING = Query(_lease_run.where(_w.state == lit("stopping")))
_stopping = sa.and_(_w.tenant == _tenant, _w.workflow_id == sa.bindparam("workflow"), _w.state == lit("stopping"))
_served = sa.select(_r.id).where(_r.tenant == _w.tenant, _r.id == _w.current)
_STOPPED = [
    Query(sa.delete(runs).where(_stopping, sa.not_(_served.exists()))),
    Query(sa.update(runs).where(_stopping).values(state=lit("closed"))),
]


# A row that stays silent is left alone for as long as it has been silent, at most this.
LONGEST_SILENCE = 3600.0


def beat(worker_id: str, kind: str, now: float) -> Script[None]:
    """See `Store.beat`."""
    yield Statement(_BEAT, {"id": worker_id, "kind": kind, "beat_at": now})


def workers_alive(since: float) -> Script[int]:
    """See `Store.workers_alive`."""
    rows = yield Statement(_ALIVE, {"since": since})
    alive: int = rows[0][0]
    return alive


def set_workflow(tenant: str, response_id: str, *, old: str, new: str) -> Script[bool]:
    """See `Store.set_workflow`. The run row moves along: the old run no longer serves this response."""
    key: dict[str, object] = {"tenant": tenant, "id": response_id, "old": old}
    if not (yield Statement(_SET_WORKFLOW, key | {"new": new})):
        return False
    yield Statement(_CLOSE_RUN, key)
    yield Statement(_UPSERT_RUN, run_params(tenant, new, response_id))
    return True


def attend(tenant: str, response_id: str, until: float) -> Script[None]:
    """See `Store.attend`."""
    yield Statement(_ATTEND, {"tenant": tenant, "id": response_id, "until": until})


def leave_park(tenant: str, workflow_id: str, response_id: str) -> Script[str | None]:
    """See `Store.leave_park`."""
    key: dict[str, object] = {"tenant": tenant, "workflow": workflow_id}
    if (yield Statement(_LEAVE, key | {"id": response_id})):
        return None
    rows = yield Statement(_RUN, key)
    if rows and rows[0][1] == "running" and rows[0][0] != response_id:
        claimed_by: str = rows[0][0]
        return claimed_by
    return None


def stale(*, silent_since: float, limit: int, lease_until: float, now: float) -> Script[Sequence[ResponseRecord]]:
    """See `Store.stale`."""
    found = []
    rows = yield Statement(_SILENT, {"silent_since": silent_since, "now": now, "page": limit})
    for tenant, response_id in rows:
        key: dict[str, object] = {"tenant": tenant, "id": response_id}
        if (yield Statement(_LEASE, key | {"now": now, "lease_until": lease_until})):
            found.append(records.record((yield Statement(records.READ_RECORD, key))[0]))
    return found


def rest(tenant: str, response_id: str, now: float) -> Script[None]:
    """See `Store.rest`."""
    key: dict[str, object] = {"tenant": tenant, "id": response_id}
    for touched_at, sweep_after in (yield Statement(_REST, key)):
        until = max(sweep_after, now + min(now - touched_at, LONGEST_SILENCE))
        yield Statement(_SET_REST, key | {"until": until})


def parked(*, limit: int, lease_until: float, now: float) -> Script[Sequence[tuple[str, str, str]]]:
    """See `Store.parked`."""
    found = []
    for tenant, workflow_id, response_id in (yield Statement(_PARKED, {"now": now, "page": limit})):
        key: dict[str, object] = {"tenant": tenant, "workflow": workflow_id, "now": now}
        if (yield Statement(_LEASE_PARKED, key | {"lease_until": lease_until})):
            found.append((tenant, workflow_id, response_id))
    return found


def stopping(*, limit: int, lease_until: float, now: float) -> Script[Sequence[tuple[str, str]]]:
    """See `Store.stopping`."""
    found = []
    for tenant, workflow_id in (yield Statement(_STOPPING, {"now": now, "page": limit})):
        key: dict[str, object] = {"tenant": tenant, "workflow": workflow_id, "now": now}
        if (yield Statement(_LEASE_STOPPING, key | {"lease_until": lease_until})):
            found.append((tenant, workflow_id))
    return found


def stopped(tenant: str, workflow_id: str) -> Script[None]:
    """See `Store.stopped`."""
    for query in _STOPPED:
        yield Statement(query, {"tenant": tenant, "workflow": workflow_id})
