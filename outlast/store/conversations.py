"""`Conversations` over scripts: rows, posted items, pages. What responses do to a conversation is in `turns.py`."""

from collections.abc import Mapping, Sequence
from typing import Protocol

import sqlalchemy as sa

from outlast.protocol import json
from outlast.protocol.errors import InvalidRequest, NotFound
from outlast.protocol.json import JsonObject
from outlast.store import records, turns
from outlast.store.base import whole
from outlast.store.conversations_port import Conversation, History
from outlast.store.scripting import Query, Row, Script, Scrub, Statement, T, lit
from outlast.store.tables import conversation_items, conversations
from outlast.store.turns import ITEMS, ROW, key

_c, _m = conversations.c, conversation_items.c
_LAST = 2**62

_ROW_COLUMNS = (_c.tenant, _c.id, _c.created_at, _c.metadata)
_INSERT = Query(sa.insert(conversations).values({column.name: sa.bindparam(column.name) for column in _c}).inline())
_READ = Query(sa.select(*_ROW_COLUMNS).where(ROW))
_UPDATE = Query(
    sa.update(conversations).where(ROW).values(metadata=sa.bindparam("new_metadata")).returning(*_ROW_COLUMNS)
)
_DELETE = Query(sa.delete(conversations).where(ROW).returning(_c.next_position))
_REMOVE_ALL = Query(
    sa.update(conversation_items).where(ITEMS, _m.removed_at.is_(None)).values(removed_at=sa.bindparam("at"))
)
_shown = sa.and_(ITEMS, _m.removed_at.is_(None), _m.hidden == lit(0))
_with_id = sa.and_(_shown, _m.item_id == sa.bindparam("item"))
_ITEM_COLUMNS = (_m.item_id, _m.data, _m.private)
_newest = (_m.position.desc(),)
_PRESENT = Query(sa.select(_m.position).where(_with_id).limit(lit(1)).offset(lit(0)))
_ITEM = Query(sa.select(*_ITEM_COLUMNS).where(_with_id).order_by(*_newest).limit(lit(1)).offset(lit(0)))
# Of several copies the last one of the listing: a page that ends with any of them is never given again.
_CURSOR = {
    False: Query(sa.select(sa.func.max(_m.position)).where(_with_id)),
    True: Query(sa.select(sa.func.min(_m.position)).where(_with_id)),
}
_page = sa.select(*_ITEM_COLUMNS)
_PAGE = {
    False: Query(
        _page.where(_shown, _m.position > sa.bindparam("after"))
        .order_by(_m.position)
        .limit(sa.bindparam("count"))
        .offset(lit(0))
    ),
    True: Query(
        _page.where(_shown, _m.position < sa.bindparam("after"))
        .order_by(*_newest)
        .limit(sa.bindparam("count"))
        .offset(lit(0))
    ),
}
_FIND = Query(
    sa.select(_m.data)
    .where(
        _m.tenant == sa.bindparam("tenant"),
        _m.item_id == sa.bindparam("item"),
        _m.removed_at.is_(None),
        _m.hidden == lit(0),
    )
    .order_by(*_newest)
    .limit(lit(1))
    .offset(lit(0))
)


class Database(Protocol):
    """What runs the scripts, see `sql.Database`."""

    async def write(self, key: str, script: Script[T]) -> T:
        """The result, after the commit."""
        ...

    async def read(self, script: Script[T]) -> T:
        """The result of a script that only reads."""
        ...


class SqlConversations:
    """The conversations in one database. Implements `Conversations`; its docstrings are there."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def create(self, conversation: Conversation, items: Sequence[JsonObject]) -> None:
        await self._database.write(conversation.id, _create(conversation, items))

    async def get(self, tenant: str, conversation_id: str) -> Conversation | None:
        return await self._database.read(_get(tenant, conversation_id))

    async def update(self, tenant: str, conversation_id: str, metadata: Mapping[str, str]) -> Conversation | None:
        return await self._database.write(conversation_id, _update(tenant, conversation_id, metadata))

    async def delete(self, tenant: str, conversation_id: str) -> bool:
        return await self._database.write(conversation_id, _delete(tenant, conversation_id))

    async def add(self, tenant: str, conversation_id: str, items: Sequence[JsonObject]) -> None:
        await self._database.write(conversation_id, _add(tenant, conversation_id, items))

    async def page(
        self, tenant: str, conversation_id: str, *, after: str | None, limit: int, descending: bool, sealed: bool
    ) -> tuple[Sequence[JsonObject], bool]:
        rows = await self._database.read(_read_page(tenant, conversation_id, after, limit + 1, descending))
        return [_item(row, sealed) for row in rows[:limit]], len(rows) > limit

    async def item(self, tenant: str, conversation_id: str, item_id: str, *, sealed: bool) -> JsonObject | None:
        row = await self._database.read(_read_item(tenant, conversation_id, item_id))
        return None if row is None else _item(row, sealed)

    async def remove(self, tenant: str, conversation_id: str, item_id: str) -> Conversation | None:
        return await self._database.write(conversation_id, _remove(tenant, conversation_id, item_id))

    async def history(self, tenant: str, conversation_id: str) -> History | None:
        return await self._database.read(_history(tenant, conversation_id))

    async def find_items(self, tenant: str, item_ids: Sequence[str]) -> Mapping[str, JsonObject]:
        return await self._database.read(_find_items(tenant, item_ids))


def _create(new: Conversation, items: Sequence[JsonObject]) -> Script[None]:
    yield Statement(
        _INSERT,
        {
            "tenant": new.tenant,
            "id": new.id,
            "created_at": new.created_at,
            "metadata": json.dumps(dict(new.metadata)),
            "next_position": len(items),
        },
    )
    if items:
        yield from turns.post(new.tenant, new.id, items, 0)


def _conversation(row: Row) -> Conversation:
    return Conversation(tenant=row[0], id=row[1], created_at=row[2], metadata=json.loads(row[3]))


def _item(row: Row, sealed: bool) -> JsonObject:
    return whole(records.with_id(row[0], row[1]), records.opened(row[2]) if sealed else None)


def _get(tenant: str, conversation_id: str) -> Script[Conversation | None]:
    rows = yield Statement(_READ, key(tenant, conversation_id))
    return _conversation(rows[0]) if rows else None


def _update(tenant: str, conversation_id: str, metadata: Mapping[str, str]) -> Script[Conversation | None]:
    named = key(tenant, conversation_id)
    rows = yield Statement(_UPDATE, named | {"new_metadata": json.dumps(dict(metadata))})
    return _conversation(rows[0]) if rows else None


def _delete(tenant: str, conversation_id: str) -> Script[bool]:
    named = key(tenant, conversation_id)
    rows = yield Statement(_DELETE, named)
    if not rows:
        return False
    yield Statement(_REMOVE_ALL, named | {"at": rows[0][0]})
    yield from turns.forget(tenant, conversation_id)
    yield Scrub()
    return True


def _add(tenant: str, conversation_id: str, items: Sequence[JsonObject]) -> Script[None]:
    """The row first: it orders this with the turns that begin and end."""
    named = key(tenant, conversation_id)
    allotted = yield Statement(turns.ALLOT, named | {"count": len(items)})
    if not allotted:
        raise turns.unknown(conversation_id)
    turn = yield from turns.turn_of(tenant, conversation_id)
    if turn is not None:
        raise turns.locked(turn)
    for item_id in dict.fromkeys(item["id"] for item in items):
        if (yield Statement(_PRESENT, named | {"item": item_id})):
            raise InvalidRequest(
                f"Item with id '{item_id}' is already in this conversation.",
                param="items",
                code="item_already_in_conversation",
            )
    if items:
        yield from turns.post(tenant, conversation_id, items, allotted[0][0] - len(items))


def _read_page(
    tenant: str, conversation_id: str, after: str | None, count: int, descending: bool
) -> Script[Sequence[Row]]:
    named = key(tenant, conversation_id)
    if not (yield Statement(_READ, named)):
        raise turns.unknown(conversation_id)
    start = _LAST if descending else -1
    if after is not None:
        rows = yield Statement(_CURSOR[descending], named | {"item": after})
        if rows[0][0] is None:
            raise NotFound(f"Item with id '{after}' not found in this conversation.", param="after")
        start = rows[0][0]
    return (yield Statement(_PAGE[descending], named | {"after": start, "count": count}))


def _read_item(tenant: str, conversation_id: str, item_id: str) -> Script[Row | None]:
    rows = yield Statement(_ITEM, key(tenant, conversation_id) | {"item": item_id})
    return rows[0] if rows else None


def _remove(tenant: str, conversation_id: str, item_id: str) -> Script[Conversation | None]:
    """A position of its own for the removal: it says which turns had begun before."""
    named = key(tenant, conversation_id)
    if not (yield Statement(_PRESENT, named | {"item": item_id})):
        return None
    allotted = yield Statement(turns.ALLOT, named | {"count": 1})
    if not allotted:
        return None
    yield Statement(turns.REMOVE, named | {"item": item_id, "at": allotted[0][0] - 1})
    yield from turns.forget(tenant, conversation_id)
    yield Scrub()
    return (yield from _get(tenant, conversation_id))


def _history(tenant: str, conversation_id: str) -> Script[History | None]:
    """The position first: whatever is changed after it was read makes the turn find the conversation locked."""
    rows = yield Statement(turns.READ_POSITION, key(tenant, conversation_id))
    if not rows:
        return None
    turn = yield from turns.turn_of(tenant, conversation_id)
    found = yield from turns.history(tenant, conversation_id, rows[0][0])
    return History([item for item, _ in found], rows[0][0], turn)


def _find_items(tenant: str, item_ids: Sequence[str]) -> Script[dict[str, JsonObject]]:
    found = {}
    for item_id in dict.fromkeys(item_ids):
        rows = yield Statement(_FIND, {"tenant": tenant, "item": item_id})
        if rows:
            found[item_id] = records.with_id(item_id, rows[0][0])
    return found
