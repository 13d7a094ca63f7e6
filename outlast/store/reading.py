"""Scripts that read, and `begin`, which reads all an attempt needs in the transaction that gives it its token."""

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from outlast.protocol import events as wire
from outlast.protocol import json
from outlast.protocol.closing import closing_events
from outlast.protocol.errors import NotFound, PreviousResponseNotFound
from outlast.protocol.events import WireEvent
from outlast.protocol.json import JsonObject
from outlast.store import records, turns
from outlast.store.appending import PUBLIC_OUTPUT
from outlast.store.base import (
    Approval,
    Begun,
    CallRow,
    Committed,
    Gone,
    ResponseRecord,
    StepHandle,
    StoredItem,
    whole,
)
from outlast.store.scripting import Frame, Query, Row, Rows, Script, Statement, lit
from outlast.store.sealed import Sealed
from outlast.store.tables import approvals, bindings, events, items, responses, runs, secrets, steps, tool_calls
from outlast.store.upserts import INSERTS

_tenant: sa.BindParameter[str] = sa.bindparam("tenant")
_id: sa.BindParameter[str] = sa.bindparam("id")
_r, _i = responses.c, items.c


def _chain_query(*shown: sa.ColumnElement[bool]) -> sa.Select[*tuple[Any, ...]]:
    """Response, ancestors, and their items, oldest first; one row without item for a response that has none. `shown`:
    of each; the line ends before one that is not."""
    line = (
        sa.select(_r.id, _r.previous_response_id, lit(0).label("depth"), _r.conversation_id, _r.conversation_end)
        .where(_r.tenant == _tenant, _r.id == _id, *shown)
        .cte("line", recursive=True)
    )
    parent = sa.select(
        _r.id, _r.previous_response_id, line.c.depth + lit(1), _r.conversation_id, _r.conversation_end
    ).where(_r.tenant == _tenant, _r.id == line.c.previous_response_id, *shown)
    line = line.union_all(parent)
    joined = line.outerjoin(items, sa.and_(_i.tenant == _tenant, _i.response_id == line.c.id))
    columns = (_i.side, _i.ordinal, _i.data, _i.output_index, _i.done, _i.hidden, _i.round, _i.private)
    return (
        sa.select(
            line.c.id,
            *columns,
            line.c.previous_response_id,
            _i.item_id,
            line.c.conversation_id,
            line.c.conversation_end,
        )
        .select_from(joined)
        .order_by(line.c.depth.desc(), _i.side, _i.ordinal)
    )


_CHAIN = Query(_chain_query(records.NOT_DELETED))
# Of a run that goes on: what was deleted meanwhile is kept for it.
_WHOLE_CHAIN = Query(_chain_query())


def _ancestors_query() -> sa.Select[*tuple[Any, ...]]:
    """What the oldest response of a line that is there continues: null when nothing is missing."""
    line = (
        sa.select(_r.previous_response_id, lit(0).label("depth"))
        .where(_r.tenant == _tenant, _r.id == _id, records.NOT_DELETED)
        .cte("line", recursive=True)
    )
    parent = sa.select(_r.previous_response_id, line.c.depth + lit(1)).where(
        _r.tenant == _tenant, _r.id == line.c.previous_response_id, records.NOT_DELETED
    )
    line = line.union_all(parent)
    return sa.select(line.c.previous_response_id).order_by(line.c.depth.desc()).limit(lit(1)).offset(lit(0))


_ANCESTORS = Query(_ancestors_query())
_TAKE_TOKEN = Query(
    lambda dialect: (
        INSERTS[dialect](steps)
        .values(tenant=_tenant, response_id=_id, step=sa.bindparam("step"), token=lit(1), outcome=sa.null())
        .inline()
        .on_conflict_do_update(
            index_elements=["tenant", "response_id", "step"],
            set_={"token": steps.c.token + lit(1)},
            where=steps.c.outcome.is_(None),
        )
        .returning(steps.c.token)
    )
)
_OUTCOME = Query(
    sa.select(steps.c.outcome).where(
        steps.c.tenant == _tenant, steps.c.response_id == _id, steps.c.step == sa.bindparam("step")
    )
)
_OPEN_ITEMS = Query(
    sa.select(_i.item_id, _i.output_index, _i.step)
    .where(
        _i.tenant == _tenant, _i.response_id == _id, _i.side == lit("output"), _i.hidden == lit(0), _i.done == lit(0)
    )
    .order_by(_i.output_index)
)
_EVENTS = sa.select(events.c.number, events.c.type, events.c.data).where(
    events.c.tenant == _tenant, events.c.response_id == _id
)
_ALL_EVENTS = Query(_EVENTS.order_by(events.c.number))
_PAGE = Query(
    _EVENTS.where(events.c.number > sa.bindparam("after"))
    .order_by(events.c.number)
    .limit(sa.bindparam("page"))
    .offset(lit(0))
)
_STATUS = Query(sa.select(_r.status).where(_r.tenant == _tenant, _r.id == _id, records.NOT_DELETED))
_OUTPUT = Query(PUBLIC_OUTPUT.where(sa.exists().where(_r.tenant == _tenant, _r.id == _id, records.NOT_DELETED)))
_UNATTENDED = Query(
    sa.select(responses.c.id).where(
        responses.c.tenant == _tenant, responses.c.id == _id, responses.c.sweep_after <= sa.bindparam("now")
    )
)
_CALLS = Query(
    sa.select(*records.CALL_COLUMNS)
    .where(
        tool_calls.c.tenant == _tenant, tool_calls.c.response_id == _id, tool_calls.c.round == sa.bindparam("of_round")
    )
    .order_by(tool_calls.c.ordinal)
)
_FIND_ITEM = Query(
    sa.select(_i.data)
    .join(responses, sa.and_(_r.tenant == _i.tenant, _r.id == _i.response_id))
    .where(
        _i.tenant == _tenant,
        _i.item_id == sa.bindparam("item"),
        _i.hidden == lit(0),
        _i.done == lit(1),
        _r.store == lit(1),
        records.NOT_DELETED,
    )
    .order_by(_r.created_at.desc(), _i.ordinal.desc())
    .limit(lit(1))
    .offset(lit(0))
)
_BINDINGS = Query(sa.select(bindings.c.data).where(bindings.c.tenant == _tenant, bindings.c.id == _id))
_SECRET = Query(sa.select(secrets.c.key_id, secrets.c.sealed).where(secrets.c.tenant == _tenant, secrets.c.id == _id))
_asks = sa.select(*records.APPROVAL_COLUMNS).where(approvals.c.tenant == _tenant)
_asks_in_order = (approvals.c.created_at, approvals.c.round, approvals.c.ordinal, approvals.c.id)
_status_is = approvals.c.status == sa.bindparam("status")
_listed_by = approvals.c.listed_by == sa.bindparam("response")
# Keyed by (with status, with response).
_APPROVALS = {
    (False, False): Query(_asks.order_by(*_asks_in_order)),
    (True, False): Query(_asks.where(_status_is).order_by(*_asks_in_order)),
    (False, True): Query(_asks.where(_listed_by).order_by(*_asks_in_order)),
    (True, True): Query(_asks.where(_status_is, _listed_by).order_by(*_asks_in_order)),
}
_PARKED_ON = Query(
    sa.select(runs.c.workflow_id).where(runs.c.tenant == _tenant, runs.c.current == _id, runs.c.state == lit("parked"))
)
_ANY_STEP = Query(
    sa.select(steps.c.step).where(steps.c.tenant == _tenant, steps.c.response_id == _id).limit(lit(1)).offset(lit(0))
)


def get(tenant: str, response_id: str) -> Script[ResponseRecord | None]:
    """See `Store.get`."""
    rows = yield Statement(records.READ_RECORD, {"tenant": tenant, "id": response_id})
    return records.record(rows[0]) if rows else None


def output(tenant: str, response_id: str, *, sealed: bool) -> Script[list[JsonObject]]:
    """See `Store.output`."""
    rows = yield Statement(_OUTPUT, {"tenant": tenant, "id": response_id})
    return [whole(json.loads(row[0]), records.opened(row[1]) if sealed else None) for row in rows]


def begin(
    tenant: str, response_id: str, step: str, *, workflow_id: str | None, chain: bool, calls: int | None, now: float
) -> Script[Begun | Committed | Gone]:
    """See `Store.begin`. A committed step answers with its outcome also after the response ended with it."""
    key: dict[str, object] = {"tenant": tenant, "id": response_id}
    rows = yield Statement(records.LOCK_RECORD, key)
    if not rows:
        return Gone(None)
    record = records.record(rows[0])
    if workflow_id is not None and record.workflow_id != workflow_id:
        return Gone(record)
    if not record.ended:
        if not record.store and (yield Statement(_UNATTENDED, key | {"now": now})):
            return Gone(record)
        rows = yield Statement(_TAKE_TOKEN, key | {"step": step})
        if rows:
            handle = StepHandle(record, step, rows[0][0], workflow_id, round=_round_of(step, calls))
            return (yield from _begun(handle, chain=chain, calls=calls))
    rows = yield Statement(_OUTCOME, key | {"step": step})
    if rows and rows[0][0] is not None:
        return Committed(json.loads(rows[0][0]))
    return Gone(record)


def _round_of(step: str, calls: int | None) -> int:
    number = step.rpartition(":")[2]
    return int(number) if number.isdecimal() else calls or 0


def _begun(handle: StepHandle, *, chain: bool, calls: int | None) -> Script[Begun]:
    record = handle.record
    line = (yield from _line(_WHOLE_CHAIN, record.tenant, record.id)) if chain else ()
    rows: list[CallRow] = []
    if calls is not None:
        found = yield Statement(_CALLS, {"tenant": record.tenant, "id": record.id, "of_round": calls})
        rows = [records.call(row) for row in found]
    closing: list[WireEvent] = []
    if record.next_index:
        open_items = yield from read_open_items(record.tenant, record.id)
        handle.indexes.update({row[0]: row[1] for row in open_items})
        # The first attempt has left nothing.
        mine = [row[0] for row in open_items if row[2] == handle.step] if handle.token > 1 else []
        closing = yield from read_closing(record.tenant, record.id, mine)
    return Begun(handle, line, rows, closing)


def read_open_items(tenant: str, response_id: str) -> Script[list[Row]]:
    """(item id, index, step) of public items announced and not finished, in index order."""
    return list((yield Statement(_OPEN_ITEMS, {"tenant": tenant, "id": response_id})))


def read_closing(tenant: str, response_id: str, item_ids: list[str]) -> Script[list[WireEvent]]:
    """The events that close these open items as abandoned, from what the log has shown of them."""
    if not item_ids:
        return []
    shown: dict[str, list[WireEvent]] = {item_id: [] for item_id in item_ids}
    for _, _, data in (yield Statement(_ALL_EVENTS, {"tenant": tenant, "id": response_id})):
        event = wire.parse(json.loads(data))
        if event.item_id in shown:
            shown[event.item_id].append(event)
    return [event for item_events in shown.values() for event in closing_events(item_events)]


def read_chain(tenant: str, response_id: str) -> Script[list[StoredItem]]:
    """See `Store.chain`."""
    return (yield from _line(_CHAIN, tenant, response_id))


def _line(query: Query, tenant: str, response_id: str) -> Script[list[StoredItem]]:
    rows = yield Statement(query, {"tenant": tenant, "id": response_id})
    _check_line(response_id if not rows else rows[0][9])
    before = yield from _before(tenant, rows)
    own = [records.stored_item(row[:9]) for row in rows if row[1] is not None]
    return [*(item for item, _ in before), *own]


def _before(tenant: str, rows: Rows) -> Script[list[tuple[StoredItem, str]]]:
    """What the oldest response of a line was made from: a turn's history, with ids; nothing for any other."""
    conversation_id, end = rows[0][11:13]
    return [] if conversation_id is None else (yield from turns.history(tenant, conversation_id, end))


def check_ancestors(tenant: str, previous_id: str) -> Script[None]:
    """Whether all of what a response continues is still there. Raises: PreviousResponseNotFound naming what is not."""
    rows = yield Statement(_ANCESTORS, {"tenant": tenant, "id": previous_id})
    _check_line(previous_id if not rows else rows[0][0])


def _check_line(missing: str | None) -> None:
    """The line must reach a response without parent, else a part of the history is missing."""
    if missing is not None:
        raise PreviousResponseNotFound(
            f"Previous response with id '{missing}' not found.", param="previous_response_id"
        )


def input_items(tenant: str, response_id: str, *, sealed: bool) -> Script[list[JsonObject]]:
    """See `Store.input_items`."""
    rows = yield Statement(_CHAIN, {"tenant": tenant, "id": response_id})
    if not rows:
        raise NotFound(f"Response with id '{response_id}' not found.", param="response_id")
    before = yield from _before(tenant, rows)
    told = [
        whole({**stored.item, "id": item_id}, stored.private if sealed else None)
        for stored, item_id in before
        if not stored.hidden
    ]
    return told + [
        whole(records.with_id(row[10], row[3]), records.opened(row[8]) if sealed else None)
        for row in rows
        if row[1] is not None and row[5] and not row[6] and (row[1] == "input" or row[0] != response_id)
    ]


def find_items(tenant: str, item_ids: Sequence[str]) -> Script[dict[str, JsonObject]]:
    """See `Store.find_items`."""
    found = {}
    for item_id in dict.fromkeys(item_ids):
        rows = yield Statement(_FIND_ITEM, {"tenant": tenant, "item": item_id})
        if rows:
            found[item_id] = records.with_id(item_id, rows[0][0])
    return found


def page(tenant: str, response_id: str, after: int, size: int) -> Script[tuple[str | None, list[Frame]]]:
    """(status, frames after a number). The status is read first: if it is terminal, the terminal frame is there too."""
    rows = yield Statement(_STATUS, {"tenant": tenant, "id": response_id})
    if not rows:
        return None, []
    frames = yield Statement(_PAGE, {"tenant": tenant, "id": response_id, "after": after, "page": size})
    return rows[0][0], [(number, kind, data) for number, kind, data in frames]


def read_bindings(tenant: str, bindings_id: str) -> Script[JsonObject]:
    """See `Store.bindings`."""
    rows = yield Statement(_BINDINGS, {"tenant": tenant, "id": bindings_id})
    if not rows:
        raise NotFound(f"no tool bindings {bindings_id}")
    data: JsonObject = json.loads(rows[0][0])
    return data


def read_secret(tenant: str, secret_id: str) -> Script[Sealed | None]:
    """A secret as it is stored; None when purged."""
    rows = yield Statement(_SECRET, {"tenant": tenant, "id": secret_id})
    return Sealed(rows[0][0], rows[0][1]) if rows else None


def read_approvals(tenant: str, status: str | None, response_id: str | None) -> Script[list[Approval]]:
    """See `Store.approvals`."""
    query = _APPROVALS[status is not None, response_id is not None]
    params = {"tenant": tenant, "status": status, "response": response_id}
    return [records.approval(row) for row in (yield Statement(query, params))]


def parked_on(tenant: str, response_id: str) -> Script[str | None]:
    """See `Store.parked_on`."""
    rows = yield Statement(_PARKED_ON, {"tenant": tenant, "id": response_id})
    return rows[0][0] if rows else None


def steps_begun(tenant: str, response_id: str) -> Script[bool]:
    """See `Store.steps_begun`."""
    return bool((yield Statement(_ANY_STEP, {"tenant": tenant, "id": response_id})))
