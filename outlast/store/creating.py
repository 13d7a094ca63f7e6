"""The script that creates a response: decisions, takes, claim, rows and first events, all or nothing."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import sqlalchemy as sa

from outlast.protocol import events as wire
from outlast.protocol import json
from outlast.protocol.errors import OutlastError
from outlast.protocol.ids import mint_item
from outlast.protocol.json import JsonObject
from outlast.store import asking, idempotency, reading, records, turns
from outlast.store.appending import INSERT_ITEM, hidden_item, write_calls, write_stamped
from outlast.store.base import Created, NewResponse, ResponseRecord
from outlast.store.private import recall, refer
from outlast.store.scripting import Batch, Params, Query, Script, Statement, lit
from outlast.store.sealed import Sealed
from outlast.store.stamping import announced, stamp
from outlast.store.tables import requests, responses, runs, secrets


def _insert(table: sa.Table, *, later: Sequence[str] = ()) -> Query:
    """All columns but those that are null until `later`."""
    names = [column.name for column in table.columns if column.name not in later]
    return Query(sa.insert(table).values({name: sa.bindparam(name) for name in names}).inline())


_INSERT_RESPONSE = _insert(responses, later=("completed_at", "usage", "error", "incomplete_details"))
_INSERT_REQUEST = _insert(requests)
INSERT_RUN = _insert(runs)
_INSERT_SECRET = _insert(secrets)
_CLAIM = Query(
    sa.update(runs)
    .where(
        runs.c.tenant == sa.bindparam("tenant"),
        runs.c.workflow_id == sa.bindparam("workflow"),
        runs.c.current == sa.bindparam("parked_on"),
        runs.c.state == lit("parked"),
    )
    .values(current=sa.bindparam("new"), state=lit("running"))
    .returning(runs.c.workflow_id)
)


@dataclass(frozen=True, slots=True)
class SealedSecret:
    """A secret ready to be stored."""

    id: str
    sealed: Sealed


def create(new: NewResponse, sealed: Sequence[SealedSecret], now: float) -> Script[Created]:
    """See `Store.create`. What may refuse comes first: key, ancestors, the conversation's lock, decisions."""
    record = new.record
    if new.key is not None:
        made = yield from idempotency.claim(record.tenant, new.key, record.id, now)
        if made is not None:
            return Created(made, claimed=False, repeated=True)
    if record.previous_response_id is not None:
        yield from reading.check_ancestors(record.tenant, record.previous_response_id)
    yield from turns.join(record)
    for wish in new.decisions:
        decided = yield from asking.decide(record.tenant, wish, now, used=wish.approval_id in new.takes)
        if isinstance(decided, OutlastError):
            raise decided
    for approval_id in new.takes:
        yield from asking.take(record.tenant, approval_id, record.id, new.continues)
    for approval_id in new.relist:
        yield from asking.relist(record.tenant, approval_id, record.id, new.continues)
    if new.takes:
        yield from asking.hand_over(record, new.secrets)
    claimed_from = yield from _claim(new)
    if claimed_from is not None and new.claim is not None:
        record = replace(record, workflow_id=new.claim[0])
    else:
        yield Statement(INSERT_RUN, run_params(record.tenant, record.workflow_id, record.id))
    if sealed:
        yield Batch(_INSERT_SECRET, [_secret_params(record, secret) for secret in sealed])
    record = yield from _write_rows(new, record, claimed_from, bool(sealed or new.takes or new.relist), now)
    yield from write_calls(record, new.calls)
    return Created(record, claimed=claimed_from is not None)


def run_params(tenant: str, workflow_id: str, response_id: str) -> Params:
    """The row of a run that serves a response."""
    return {
        "tenant": tenant,
        "workflow_id": workflow_id,
        "current": response_id,
        "state": "running",
        "sweep_after": 0.0,
    }


def _claim(new: NewResponse) -> Script[str | None]:
    """Take over the parked run; the response it parked on, or None when there is none to take (no error)."""
    if new.claim is None:
        return None
    workflow_id, parked_on = new.claim
    rows = yield Statement(
        _CLAIM,
        {"tenant": new.record.tenant, "workflow": workflow_id, "parked_on": parked_on, "new": new.record.id},
    )
    return parked_on if rows else None


def _write_rows(
    new: NewResponse, record: ResponseRecord, claimed_from: str | None, sealed: bool, now: float
) -> Script[ResponseRecord]:
    """The response, its request, inputs and first events."""
    opened = announced(new.events)
    status = record.status
    if status == "queued" and any(event.type == wire.IN_PROGRESS for event in new.events):
        status = "in_progress"
    record = replace(record, status=status, next_sequence=len(new.events), next_index=opened)
    row = records.response_params(record, touched_at=now, sealed=sealed, claimed_from=claimed_from, origin=new.origin)
    yield Statement(_INSERT_RESPONSE, row)
    yield Statement(_INSERT_REQUEST, records.request_params(record))
    private = yield from recall(record.tenant, new.recalled, new.held)
    yield from refer(record.tenant, record.id, private.values())
    rows = [
        _input_row(record, item, ordinal, private.get(str(item.get("id")))) for ordinal, item in enumerate(new.inputs)
    ]
    for ordinal, item in enumerate(new.hidden_inputs, start=len(rows)):
        rows.append(hidden_item(record, item, ordinal, "input", "", 0))
    if rows:
        yield Batch(INSERT_ITEM, rows)
    stamped = stamp(new.events, number=0, index=0, ordinal=0, indexes={})
    yield from write_stamped(record, stamped, step="", round=0)
    return record


def _input_row(record: ResponseRecord, item: JsonObject, ordinal: int, private: JsonObject | None) -> dict[str, object]:
    return {
        "tenant": record.tenant,
        "response_id": record.id,
        "side": "input",
        "ordinal": ordinal,
        "output_index": None,
        # Stored as it was sent; lists show the id beside it.
        "item_id": item.get("id") or mint_item(str(item.get("type", "message"))),
        "data": json.dumps(item),
        "done": 1,
        "hidden": 0,
        "round": 0,
        "step": "",
        "private": records.packed(private),
    }


def _secret_params(record: ResponseRecord, secret: SealedSecret) -> Params:
    return {
        "tenant": record.tenant,
        "id": secret.id,
        "response_id": record.id,
        "key_id": secret.sealed.key_id,
        "sealed": secret.sealed.data,
        "created_at": record.created_at,
    }
