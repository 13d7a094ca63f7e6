"""Scripts that write a step: begin, append, finish. Order of every one: row, fence, then the rest.

The response's row is taken first. That orders all writers of a response, gives the numbers, and on PostgreSQL makes the
fence check after it read what was committed before. Whatever raises is rolled back whole by the runner.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import sqlalchemy as sa

from outlast.protocol import events as wire
from outlast.protocol import json
from outlast.protocol.errors import ResponseEnded, StaleFence
from outlast.protocol.events import WireEvent
from outlast.protocol.ids import mint_item
from outlast.protocol.json import JsonObject
from outlast.protocol.responses import terminal_event
from outlast.store import records, turns
from outlast.store.asking import after_end
from outlast.store.base import CallRow, Commit, Ending, ResponseRecord, StepHandle
from outlast.store.scripting import Batch, Emit, Query, Row, Rows, Script, Statement, lit
from outlast.store.stamping import Stamped, announced, stamp
from outlast.store.tables import approvals, bindings, events, items, responses, runs, steps, tool_calls
from outlast.store.upserts import upsert

NO_PRIVATE: Mapping[str, JsonObject] = {}

_r = responses.c
OPEN = _r.status.in_([lit("queued"), lit("in_progress")])
_MINE = sa.and_(_r.tenant == sa.bindparam("tenant"), _r.id == sa.bindparam("id"))
_ALLOT = {
    "next_sequence": _r.next_sequence + sa.bindparam("numbers"),
    "next_index": _r.next_index + sa.bindparam("indexes"),
    "next_ordinal": _r.next_ordinal + sa.bindparam("ordinals"),
    "touched_at": sa.bindparam("now"),
}
_ALLOTTED = (_r.next_sequence, _r.next_index, _r.next_ordinal, _r.workflow_id, _r.sealed)
_take = sa.update(responses).where(_MINE, OPEN)
# A transient response lives as long as its reader: with a lapsed lease a step writes nothing any more.
_ATTENDED = sa.or_(_r.store == lit(1), _r.sweep_after > sa.bindparam("now"))
_take_for_step = _take.where(_ATTENDED)
_ENDED_BY = {
    "status": sa.bindparam("new_status"),
    "usage": sa.bindparam("usage", type_=sa.LargeBinary),
    "error": sa.bindparam("error", type_=sa.LargeBinary),
    "incomplete_details": sa.bindparam("incomplete_details", type_=sa.LargeBinary),
    "completed_at": sa.bindparam("completed_at"),
}
_TAKE = Query(_take_for_step.values(_ALLOT).returning(*_ALLOTTED))
_TAKE_AND_START = Query(_take_for_step.values({**_ALLOT, "status": lit("in_progress")}).returning(*_ALLOTTED))
_TAKE_AND_END = Query(_take_for_step.values({**_ALLOT, **_ENDED_BY}).returning(*_ALLOTTED))
# For an ending without a step: the row is ours already, only the numbers were not known when it was taken.
MARK_ENDED = Query(_take.values({**_ENDED_BY, "touched_at": sa.bindparam("now")}).returning(_r.sealed, _r.claimed_from))
_NUMBER_CLOSING = Query(
    sa.update(responses).where(_MINE).values(next_sequence=_r.next_sequence + sa.bindparam("numbers"))
)

_step = sa.and_(
    steps.c.tenant == sa.bindparam("tenant"),
    steps.c.response_id == sa.bindparam("id"),
    steps.c.step == sa.bindparam("step"),
)
_fence = sa.and_(_step, steps.c.token == sa.bindparam("token"), steps.c.outcome.is_(None))
_CHECK_FENCE = Query(sa.select(steps.c.token).where(_fence))
_COMMIT_STEP = Query(
    sa.update(steps).where(_fence).values(outcome=sa.bindparam("outcome_json")).returning(steps.c.token)
)

_ITEM_NAMES = (
    "tenant",
    "response_id",
    "side",
    "ordinal",
    "output_index",
    "item_id",
    "data",
    "done",
    "hidden",
    "round",
    "step",
    "private",
)
INSERT_ITEM = Query(sa.insert(items).values({name: sa.bindparam(name) for name in _ITEM_NAMES}).inline())
_CLOSE_ITEM = Query(
    sa.update(items)
    .where(
        items.c.tenant == sa.bindparam("tenant"),
        items.c.response_id == sa.bindparam("response"),
        items.c.item_id == sa.bindparam("item"),
        items.c.side == lit("output"),
    )
    # What was kept when the item was opened stays, unless its end brings more.
    .values(
        data=sa.bindparam("final"),
        done=lit(1),
        private=sa.func.coalesce(sa.bindparam("private_part", type_=sa.LargeBinary), items.c.private),
    )
)
_RESETTLE = Query(
    sa.update(items)
    .where(
        items.c.tenant == sa.bindparam("tenant"),
        items.c.response_id == sa.bindparam("response"),
        items.c.item_id == sa.bindparam("item"),
        items.c.hidden == lit(1),
    )
    .values(
        data=sa.bindparam("final"),
        private=sa.func.coalesce(sa.bindparam("private_part", type_=sa.LargeBinary), items.c.private),
    )
    .returning(items.c.item_id)
)
INSERT_EVENT = Query(
    sa.insert(events)
    .values({name: sa.bindparam(name) for name in ("tenant", "response_id", "number", "type", "data")})
    .inline()
)
PUBLIC_OUTPUT = (
    sa.select(items.c.data, items.c.private)
    .where(
        items.c.tenant == sa.bindparam("tenant"),
        items.c.response_id == sa.bindparam("id"),
        items.c.side == lit("output"),
        items.c.hidden == lit(0),
        items.c.done == lit(1),
    )
    .order_by(items.c.output_index)
)
READ_OUTPUT = Query(PUBLIC_OUTPUT)
# A call announced in an earlier append of the same round keeps its markers.
_UPSERT_CALL = upsert(tool_calls, ("tenant", *records.CALL_FIELDS), keep=("started", "done"))
_INSERT_APPROVAL = Query(
    sa.insert(approvals).values({name: sa.bindparam(name) for name in records.APPROVAL_FIELDS}).inline()
)
_INSERT_BINDINGS = Query(
    sa.insert(bindings).values({name: sa.bindparam(name) for name in ("tenant", "id", "response_id", "data")}).inline()
)
_call_key = sa.and_(
    tool_calls.c.tenant == sa.bindparam("tenant"),
    tool_calls.c.response_id == sa.bindparam("response"),
    tool_calls.c.round == sa.bindparam("of_round"),
    tool_calls.c.ordinal == sa.bindparam("of_ordinal"),
)
_MARK_STARTED = Query(sa.update(tool_calls).where(_call_key).values(started=lit(1)))
_MARK_DONE = Query(sa.update(tool_calls).where(_call_key).values(done=lit(1)))
_MOVE_RUN = Query(
    sa.update(runs)
    .where(
        runs.c.tenant == sa.bindparam("tenant"),
        runs.c.workflow_id == sa.bindparam("workflow"),
        runs.c.current == sa.bindparam("id"),
    )
    .values(state=sa.bindparam("new_state"))
)


@dataclass(frozen=True, slots=True)
class Appended:
    """What the caller's handle learns: the last number, indexes of new items; the ended row, for a finish."""

    last: int
    indexes: dict[str, int]
    record: ResponseRecord


def append(handle: StepHandle, new: Sequence[WireEvent], commit: Commit, now: float) -> Script[Appended]:
    """One append of a step, see `Store.append`."""
    started = any(event.type == wire.IN_PROGRESS for event in new)
    query = _TAKE_AND_START if started else _TAKE
    row = yield from _take_row(handle, query, _counts(new, commit, numbers=len(new)), now)
    yield from _pass_fence(handle, commit)
    stamped = yield from _write(handle, row, new, commit, numbers=len(new))
    return Appended(row[0] - 1, stamped.indexes, handle.record)


def finish(
    handle: StepHandle, new: Sequence[WireEvent], commit: Commit, ending: Ending, now: float
) -> Script[Appended]:
    """The append that ends the response, see `Store.finish`: one update decides, the terminal is numbered last."""
    numbers = len(new) + 1
    values = _counts(new, commit, numbers=numbers) | records.ending_params(ending)
    row = yield from _take_row(handle, _TAKE_AND_END, values, now)
    yield from _pass_fence(handle, commit)
    stamped = yield from _write(handle, row, new, commit, numbers=numbers)
    record = records.ended(handle.record, ending)
    record = replace(record, next_sequence=row[0], next_index=row[1], workflow_id=row[3])
    yield from write_terminal(record)
    yield from move_run(record, "parked" if ending.park else "closed")
    yield from after_end(record, sealed=bool(row[4]))
    yield from turns.append(record)
    return Appended(row[0] - 1, stamped.indexes, record)


def _counts(new: Sequence[WireEvent], commit: Commit, *, numbers: int) -> dict[str, object]:
    opened = announced(new)
    return {"numbers": numbers, "indexes": opened, "ordinals": opened + len(commit.hidden)}


def _take_row(handle: StepHandle, query: Query, values: dict[str, object], now: float) -> Script[Row]:
    """Advance the row. Raises: ResponseEnded (terminal, deleted, another workflow's, or transient and unattended)."""
    record = handle.record
    rows = yield Statement(query, {"tenant": record.tenant, "id": record.id, "now": now, **values})
    if not rows:
        raise ResponseEnded(f"response {record.id} has ended")
    if handle.workflow_id is not None and rows[0][3] != handle.workflow_id:
        raise ResponseEnded(f"response {record.id} belongs to another run")
    return rows[0]


def _pass_fence(handle: StepHandle, commit: Commit) -> Script[None]:
    """The newest token of an uncommitted step, or StaleFence; committing the step is the same check."""
    key: dict[str, object] = {
        "tenant": handle.record.tenant,
        "id": handle.record.id,
        "step": handle.step,
        "token": handle.token,
    }
    if commit.outcome is None:
        rows: Rows = yield Statement(_CHECK_FENCE, key)
    else:
        rows = yield Statement(_COMMIT_STEP, key | {"outcome_json": json.dumps(commit.outcome)})
    if not rows:
        raise StaleFence(f"attempt {handle.token} of {handle.step} is not the newest one of {handle.record.id}")


def _write(handle: StepHandle, row: Row, new: Sequence[WireEvent], commit: Commit, *, numbers: int) -> Script[Stamped]:
    """Events, items and the rest of a commit, numbered from what `row` allotted."""
    opened = announced(new)
    ordinal = row[2] - opened - len(commit.hidden)
    stamped = stamp(new, number=row[0] - numbers, index=row[1] - opened, ordinal=ordinal, indexes=handle.indexes)
    yield from write_stamped(handle.record, stamped, step=handle.step, round=handle.round, private=commit.private)
    for offset, item in enumerate(commit.hidden, start=ordinal + opened):
        yield from _write_hidden(handle, item, offset, commit.private.get(str(item.get("id"))))
    yield from _write_commit(handle.record, commit)
    return stamped


def _write_hidden(handle: StepHandle, item: JsonObject, ordinal: int, private: JsonObject | None) -> Script[None]:
    """A new item for the model alone, or what has become of one."""
    record = handle.record
    new = hidden_item(record, item, ordinal, "output", handle.step, handle.round)
    new["private"] = records.packed(private)
    known = yield Statement(
        _RESETTLE,
        {
            "tenant": record.tenant,
            "response": record.id,
            "item": new["item_id"],
            "final": new["data"],
            "private_part": new["private"],
        },
    )
    if not known:
        yield Statement(INSERT_ITEM, new)


def write_stamped(
    record: ResponseRecord,
    stamped: Stamped,
    *,
    step: str,
    round: int,
    private: Mapping[str, JsonObject] = NO_PRIVATE,
) -> Script[None]:
    """Store stamped events and the items they open and close, and show them after the commit. `private`: by item."""
    key = {"tenant": record.tenant, "response_id": record.id}
    if stamped.opened:
        yield Batch(
            INSERT_ITEM,
            [
                key
                | {
                    "side": "output",
                    "ordinal": opened.ordinal,
                    "output_index": opened.output_index,
                    "item_id": item_id,
                    "data": json.dumps(opened.item),
                    "done": int(opened.done),
                    "hidden": 0,
                    "round": round,
                    "step": step,
                    "private": records.packed(private.get(item_id)),
                }
                for item_id, opened in stamped.opened.items()
            ],
        )
    if stamped.closed:
        yield Batch(
            _CLOSE_ITEM,
            [
                {
                    "tenant": record.tenant,
                    "response": record.id,
                    "item": item_id,
                    "final": json.dumps(item),
                    "private_part": records.packed(private.get(item_id)),
                }
                for item_id, item in stamped.closed.items()
            ],
        )
    if stamped.frames:
        yield Batch(
            INSERT_EVENT,
            [key | {"number": number, "type": kind, "data": data} for number, kind, data in stamped.frames],
        )
        yield Emit(record.tenant, record.id, stamped.frames)


def hidden_item(
    record: ResponseRecord, item: JsonObject, ordinal: int, side: str, step: str, round: int
) -> dict[str, object]:
    """The row of an item only the model sees."""
    return {
        "tenant": record.tenant,
        "response_id": record.id,
        "side": side,
        "ordinal": ordinal,
        "output_index": None,
        "item_id": item.get("id") or mint_item(str(item.get("type"))),
        "data": json.dumps(item),
        "done": 1,
        "hidden": 1,
        "round": round,
        "step": step,
        "private": None,
    }


def write_calls(record: ResponseRecord, calls: Sequence[CallRow]) -> Script[None]:
    """Rows of a round's calls."""
    if calls:
        yield Batch(_UPSERT_CALL, [records.call_params(record.tenant, call) for call in calls])


def _write_commit(record: ResponseRecord, commit: Commit) -> Script[None]:
    yield from write_calls(record, commit.calls)
    if commit.approvals:
        yield Batch(_INSERT_APPROVAL, [records.approval_params(ask) for ask in commit.approvals])
    if commit.bindings is not None:
        bindings_id, data = commit.bindings
        yield Statement(
            _INSERT_BINDINGS,
            {"tenant": record.tenant, "id": bindings_id, "response_id": record.id, "data": json.dumps(data)},
        )
    for query, marked in ((_MARK_STARTED, commit.started), (_MARK_DONE, commit.done)):
        if marked:
            key: dict[str, object] = {"tenant": record.tenant, "response": record.id}
            yield Batch(query, [key | {"of_round": number, "of_ordinal": ordinal} for number, ordinal in marked])


def write_terminal(record: ResponseRecord) -> Script[None]:
    """The terminal event at the last number of an ended row, from its public output."""
    rows = yield Statement(READ_OUTPUT, {"tenant": record.tenant, "id": record.id})
    event = terminal_event(record.facts, [json.loads(row[0]) for row in rows])
    stamped = stamp([event], number=record.next_sequence - 1, index=0, ordinal=0, indexes={})
    yield from write_stamped(record, stamped, step="", round=0)


def number_closing(record: ResponseRecord, numbers: int) -> Script[None]:
    """Advance an ended row by the numbers its closing events and terminal take."""
    yield Statement(_NUMBER_CLOSING, {"tenant": record.tenant, "id": record.id, "numbers": numbers})


def move_run(record: ResponseRecord, state: str) -> Script[None]:
    """The run that served this response parks on it or closes."""
    yield Statement(
        _MOVE_RUN,
        {"tenant": record.tenant, "workflow": record.workflow_id, "id": record.id, "new_state": state},
    )
