"""Scripts of a response that is a turn of a conversation: what it continues, the lock, what its end appends.

The lock is the response's own row while it is not terminal; the unique index `responses_turn` is its backstop. Who
changes a conversation takes its row first, which orders them on PostgreSQL; SQLite has one writer anyway.
"""

from collections.abc import Sequence

import sqlalchemy as sa

from outlast.protocol import json
from outlast.protocol.errors import ConversationLocked, NotFound
from outlast.protocol.json import JsonObject
from outlast.store import private, records
from outlast.store.base import ResponseRecord, StoredItem
from outlast.store.scripting import Batch, Params, Query, Row, Script, Statement, lit
from outlast.store.tables import approvals, conversation_items, conversations, items, responses

_tenant: sa.BindParameter[str] = sa.bindparam("tenant")
_conversation: sa.BindParameter[str] = sa.bindparam("conversation")
_c, _m, _r, _i = conversations.c, conversation_items.c, responses.c, items.c
ROW = sa.and_(_c.tenant == _tenant, _c.id == _conversation)
ITEMS = sa.and_(_m.tenant == _tenant, _m.conversation_id == _conversation)

_POSITION = sa.select(_c.next_position).where(ROW)
READ_POSITION = Query(_POSITION)
_LOCK_POSITION = Query(_POSITION.with_for_update())
_TURN = Query(
    sa.select(_r.id).where(
        _r.tenant == _tenant,
        _r.conversation_id == _conversation,
        _r.status.in_([lit("queued"), lit("in_progress")]),
    )
)
_HISTORY = Query(
    sa.select(_m.response_id, _m.side, _m.position, _m.data, _m.hidden, _m.private, _m.item_id)
    .where(
        ITEMS,
        _m.position < sa.bindparam("end"),
        sa.or_(_m.removed_at.is_(None), _m.removed_at >= sa.bindparam("end")),
    )
    .order_by(_m.position)
)
ALLOT = Query(
    sa.update(conversations)
    .where(ROW)
    .values(next_position=_c.next_position + sa.bindparam("count"))
    .returning(_c.next_position)
)
INSERT_ITEM = Query(
    sa.insert(conversation_items)
    .values({column.name: sa.bindparam(column.name) for column in _m if column.name != "removed_at"})
    .inline()
)
REMOVE = Query(
    sa.update(conversation_items)
    .where(ITEMS, _m.item_id == sa.bindparam("item"), _m.removed_at.is_(None))
    .values(removed_at=sa.bindparam("at"))
    .returning(_m.position)
)
_needed = (
    sa.select(_r.id)
    .where(
        _r.tenant == _tenant,
        _r.conversation_id == _conversation,
        _r.conversation_end > _m.position,
        _r.conversation_end <= _m.removed_at,
    )
    .exists()
)
_FORGET = Query(sa.delete(conversation_items).where(ITEMS, _m.removed_at.is_not(None), sa.not_(_needed)))
_PRIVATE = Query(
    sa.select(_m.private).where(_m.tenant == _tenant, _m.conversation_id == sa.bindparam("id"), _m.private.is_not(None))
)
_TURN_ITEMS = Query(
    sa.select(_i.side, _i.item_id, _i.data, _i.hidden, _i.private)
    .where(_i.tenant == _tenant, _i.response_id == sa.bindparam("id"), _i.done == lit(1))
    .order_by(_i.side, _i.ordinal)
)
_TOOK = Query(
    sa.select(approvals.c.id)
    .where(approvals.c.tenant == _tenant, approvals.c.taken_by == sa.bindparam("id"))
    .limit(lit(1))
    .offset(lit(0))
)


def key(tenant: str, conversation_id: str) -> dict[str, object]:
    """Parameters that name a conversation."""
    return {"tenant": tenant, "conversation": conversation_id}


def unknown(conversation_id: str, param: str = "conversation_id") -> NotFound:
    """No such conversation, for whoever asks. `param`: where its id was given, the path by default."""
    return NotFound(f"Conversation with id '{conversation_id}' not found.", param=param)


def turn_of(tenant: str, conversation_id: str) -> Script[str | None]:
    """The response in progress that holds the conversation."""
    rows = yield Statement(_TURN, key(tenant, conversation_id))
    return rows[0][0] if rows else None


def history(tenant: str, conversation_id: str, end: int) -> Script[list[tuple[StoredItem, str]]]:
    """Items of a conversation as a response sees it whose history ends there, with their ids; oldest first."""
    rows = yield Statement(_HISTORY, key(tenant, conversation_id) | {"end": end})
    return [(_stored(row), row[6]) for row in rows]


def _stored(row: Row) -> StoredItem:
    return StoredItem(
        response_id=row[0] or "",
        side=row[1],
        ordinal=row[2],
        item=json.loads(row[3]),
        hidden=bool(row[4]),
        private=records.opened(row[5]),
    )


def join(record: ResponseRecord) -> Script[None]:
    """Take the lock for a response about to be written, if it is a turn. Raises: NotFound; ConversationLocked when
    another response holds it, or something was changed since this one's history was read."""
    if record.conversation_id is None:
        return
    rows = yield Statement(_LOCK_POSITION, key(record.tenant, record.conversation_id))
    if not rows:
        raise unknown(record.conversation_id, "conversation")
    turn = yield from turn_of(record.tenant, record.conversation_id)
    if turn is not None or rows[0][0] != record.conversation_end:
        raise locked(turn)


def locked(turn: str | None) -> ConversationLocked:
    """Somebody else is at it. `turn`: the response that is."""
    named = "" if turn is None else f": response '{turn}' is in progress"
    return ConversationLocked(
        f"Another process is currently operating on this conversation{named}. Try again once it is done.",
        param="conversation",
    )


def append(record: ResponseRecord) -> Script[None]:
    """What an ended turn leaves in its conversation, unless that was deleted meanwhile. Behaviour §8."""
    if record.conversation_id is None or not record.store:
        return
    found = yield Statement(_TURN_ITEMS, {"tenant": record.tenant, "id": record.id})
    rows = [row for row in found if row[0] == "input" or row[3] or not _shell(row[2])]
    if not (record.status == "completed" or any(map(_told, rows)) or (yield from _took(record))):
        return
    named = key(record.tenant, record.conversation_id)
    allotted = yield Statement(ALLOT, named | {"count": len(rows)})
    if not allotted or not rows:
        return
    first = allotted[0][0] - len(rows)
    # An ask listed again is the same item, which now stands here.
    asks = [row[1] for row in rows if row[0] == "output" and _kind(row[2]) == "mcp_approval_request"]
    if asks:
        yield Batch(REMOVE, [named | {"item": item_id, "at": first} for item_id in asks])
    yield Batch(INSERT_ITEM, [_copy(record, row, first + offset) for offset, row in enumerate(rows)])
    yield from private.refer(record.tenant, record.conversation_id, [records.opened(row[4]) for row in rows])


def _took(record: ResponseRecord) -> Script[bool]:
    """Whether it used decisions: a denial runs nothing and is an answer all the same."""
    return bool((yield Statement(_TOOK, {"tenant": record.tenant, "id": record.id})))


def _told(row: Row) -> bool:
    """An output that says or did something; a list of tools is asked for again."""
    return bool(row[0] == "output" and (row[3] or _kind(row[2]) != "mcp_list_tools"))


def _kind(data: bytes) -> object:
    return json.loads(data).get("type")


def _shell(data: bytes) -> bool:
    """A message or reasoning that was given up: closed as incomplete, with nothing in it (`protocol.closing`)."""
    item = json.loads(data)
    if item.get("status") != "incomplete" or item.get("type") not in ("message", "reasoning"):
        return False
    return not any(item.get(part) for part in ("content", "summary", "encrypted_content"))


def _copy(record: ResponseRecord, row: Row, position: int) -> Params:
    side, item_id, data, hidden, part = row
    return {
        "tenant": record.tenant,
        "conversation_id": record.conversation_id,
        "position": position,
        "item_id": item_id,
        "data": data,
        "hidden": hidden,
        "side": side,
        "response_id": record.id,
        "private": part,
    }


def forget(tenant: str, conversation_id: str | None) -> Script[None]:
    """Delete for good what was taken out and no response was made from, or none any more."""
    if conversation_id is not None:
        yield Statement(_FORGET, key(tenant, conversation_id))
        yield from private.forget(tenant, conversation_id, _PRIVATE)


def post(tenant: str, conversation_id: str, posted: Sequence[JsonObject], first: int) -> Script[None]:
    """Insert items at `first` and the positions after it. Copies of items of ours bring what those have in private."""
    parts = yield from private.recall(tenant, [item["id"] for item in posted])
    rows = [
        {
            "tenant": tenant,
            "conversation_id": conversation_id,
            "position": first + offset,
            "item_id": item["id"],
            "data": json.dumps(item),
            "hidden": 0,
            "side": "input",
            "response_id": None,
            "private": records.packed(parts.get(item["id"])),
        }
        for offset, item in enumerate(posted)
    ]
    yield Batch(INSERT_ITEM, rows)
    yield from private.refer(tenant, conversation_id, parts.values())
