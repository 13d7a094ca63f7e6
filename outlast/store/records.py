"""Rows to the port's records and back: one place that knows both spellings."""

from dataclasses import asdict, fields, replace
from typing import Any

import sqlalchemy as sa

from outlast.protocol import json
from outlast.protocol.json import JsonObject
from outlast.protocol.usage import Usage
from outlast.store.base import READER_LEASE, Approval, CallRow, Ending, ResponseRecord, StoredItem
from outlast.store.scripting import Params, Query, Row, lit
from outlast.store.tables import approvals, requests, responses, tool_calls

_r, _q = responses.c, requests.c

RECORD_COLUMNS = (
    _r.tenant,
    _r.id,
    _r.workflow_id,
    _r.status,
    _q.model,
    _q.request,
    _q.run_state,
    _r.created_at,
    _q.background,
    _r.store,
    _q.mode,
    _r.previous_response_id,
    _r.completed_at,
    _r.usage,
    _r.error,
    _r.incomplete_details,
    _r.next_sequence,
    _r.next_index,
    _q.credentials,
    _q.owner,
    _r.conversation_id,
    _r.conversation_end,
)
NOT_DELETED = _r.status != lit("deleted")
# The join hides what was deleted and is kept for running descendants: its request is gone.
SELECT_RECORD = sa.select(*RECORD_COLUMNS).join(requests, sa.and_(_q.tenant == _r.tenant, _q.response_id == _r.id))
_RECORD = SELECT_RECORD.where(_r.tenant == sa.bindparam("tenant"), _r.id == sa.bindparam("id"))
# Readers take it as it is; writers lock it first, which orders them on PostgreSQL (SQLite has one writer anyway).
READ_RECORD = Query(_RECORD)
LOCK_RECORD = Query(_RECORD.with_for_update(of=responses))


def opened(raw: bytes | None) -> Any:
    """A column of JSON that may be null."""
    return None if raw is None else json.loads(raw)


def packed(value: object | None) -> bytes | None:
    """The same the other way."""
    return None if value is None else json.dumps(value)


def record(row: Row) -> ResponseRecord:
    """A row of `RECORD_COLUMNS`."""
    usage = opened(row[13])
    return ResponseRecord(
        tenant=row[0],
        id=row[1],
        workflow_id=row[2],
        status=row[3],
        model=row[4],
        request=json.loads(row[5]),
        run_state=json.loads(row[6]),
        created_at=row[7],
        background=bool(row[8]),
        store=bool(row[9]),
        mode=row[10],
        previous_response_id=row[11],
        completed_at=row[12],
        usage=None if usage is None else Usage(**usage),
        error=opened(row[14]),
        incomplete_details=opened(row[15]),
        next_sequence=row[16],
        next_index=row[17],
        credentials=json.loads(row[18]),
        owner=row[19],
        conversation_id=row[20],
        conversation_end=row[21],
    )


def response_params(
    record: ResponseRecord, *, touched_at: float, sealed: bool, claimed_from: str | None, origin: bytes | None
) -> Params:
    """The `responses` row of a new record."""
    return {
        "tenant": record.tenant,
        "id": record.id,
        "workflow_id": record.workflow_id,
        "status": record.status,
        "store": int(record.store),
        "previous_response_id": record.previous_response_id,
        "claimed_from": claimed_from,
        "sealed": int(sealed),
        "next_sequence": record.next_sequence,
        "next_index": record.next_index,
        "next_ordinal": record.next_index,
        "created_at": record.created_at,
        "touched_at": touched_at,
        "sweep_after": 0.0 if record.store else touched_at + READER_LEASE,
        "conversation_id": record.conversation_id,
        "conversation_end": record.conversation_end,
        "origin": origin,
    }


def request_params(record: ResponseRecord) -> Params:
    """The `requests` row of a new record."""
    return {
        "tenant": record.tenant,
        "response_id": record.id,
        "model": record.model,
        "request": json.dumps(record.request),
        "run_state": json.dumps(record.run_state),
        "background": int(record.background),
        "mode": record.mode,
        "credentials": json.dumps(dict(record.credentials)),
        "owner": record.owner,
    }


def ended(record: ResponseRecord, ending: Ending) -> ResponseRecord:
    """The record as this ending leaves it."""
    return replace(
        record,
        status=ending.status,
        usage=ending.usage,
        error=ending.error,
        incomplete_details=ending.incomplete_details,
        completed_at=ending.completed_at,
    )


def ending_params(ending: Ending) -> dict[str, object]:
    """The columns an ending sets."""
    return {
        "new_status": ending.status,
        "completed_at": ending.completed_at,
        "usage": None if ending.usage is None else json.dumps(asdict(ending.usage)),
        "error": packed(ending.error),
        "incomplete_details": packed(ending.incomplete_details),
    }


APPROVAL_FIELDS = tuple(f.name for f in fields(Approval))
APPROVAL_COLUMNS = tuple(approvals.c[name] for name in APPROVAL_FIELDS)
_SAFE = APPROVAL_FIELDS.index("safe")


def approval(row: Row) -> Approval:
    """A row of `APPROVAL_COLUMNS`."""
    values = list(row)
    values[_SAFE] = bool(values[_SAFE])
    return Approval(*values)


def approval_params(ask: Approval) -> Params:
    """The row of a new ask."""
    return {name: getattr(ask, name) for name in APPROVAL_FIELDS} | {"safe": int(ask.safe)}


CALL_FIELDS = tuple(f.name for f in fields(CallRow))
CALL_COLUMNS = tuple(tool_calls.c[name] for name in CALL_FIELDS)
_CALL_FLAGS = ("safe", "hidden", "started", "done")


def call(row: Row) -> CallRow:
    """A row of `CALL_COLUMNS`."""
    values: dict[str, Any] = dict(zip(CALL_FIELDS, row, strict=True))
    flags: dict[str, Any] = {name: bool(values[name]) for name in _CALL_FLAGS}
    return CallRow(**values | flags | {"hosted": opened(values["hosted"])})


def call_params(tenant: str, row: CallRow) -> Params:
    """The row of a call as it is written first."""
    values: dict[str, object] = {name: getattr(row, name) for name in CALL_FIELDS}
    flags = {name: int(getattr(row, name)) for name in _CALL_FLAGS}
    return values | {"tenant": tenant, "hosted": packed(row.hosted)} | flags


def stored_item(row: Row) -> StoredItem:
    """(response_id, side, ordinal, data, output_index, done, hidden, round, private)."""
    return StoredItem(
        response_id=row[0],
        side=row[1],
        ordinal=row[2],
        item=json.loads(row[3]),
        output_index=row[4],
        done=bool(row[5]),
        hidden=bool(row[6]),
        round=row[7],
        private=opened(row[8]),
    )


def with_id(item_id: str, data: bytes) -> JsonObject:
    """An item as lists show it: what a client sent without an id has the one we minted."""
    item: JsonObject = json.loads(data)
    return item if item.get("id") == item_id else {**item, "id": item_id}
