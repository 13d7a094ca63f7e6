"""Scripts of what items have beside their public JSON: recalled by copies of them, and images as blobs.

A blob is written before the step that names it, apart: a few megabytes are not held in a step's transaction. The
reference to it is written with it, by the response, so a purge finds both even if the step never came. Conversations
refer to what their items name. The last reference takes the blob along.
"""

import time
from collections.abc import Iterable, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import JSONB

from outlast.protocol import json
from outlast.protocol.errors import ResponseEnded
from outlast.protocol.json import JsonObject
from outlast.store import records
from outlast.store.base import Blob
from outlast.store.scripting import Batch, Query, Script, Statement, lit
from outlast.store.tables import blob_refs, blobs, items, responses
from outlast.store.upserts import INSERTS

_tenant: sa.BindParameter[str] = sa.bindparam("tenant")
_id: sa.BindParameter[str] = sa.bindparam("id")
_b, _f, _i, _r = blobs.c, blob_refs.c, items.c, responses.c


def _listed(dialect: str) -> sa.Select[Any]:
    """The texts of the JSON array `listed`: one statement for any number of them."""
    listed: sa.BindParameter[str] = sa.bindparam("listed", type_=sa.Text)
    if dialect == "sqlite":
        rows = sa.func.json_each(listed).table_valued("value")
    else:
        rows = sa.func.jsonb_array_elements_text(sa.cast(listed, JSONB)).table_valued("value")
    return sa.select(rows.c.value)


_RECALL = Query(
    lambda dialect: (
        sa.select(_i.item_id, _i.private)
        .join(responses, sa.and_(_r.tenant == _i.tenant, _r.id == _i.response_id))
        .where(
            _i.tenant == _tenant,
            _i.item_id.in_(_listed(dialect)),
            # The originals: a client that sends everything every turn leaves as many copies as turns.
            sa.or_(sa.and_(_r.store == lit(1), _i.side == lit("output")), _r.id == sa.bindparam("held")),
            _i.private.is_not(None),
            records.NOT_DELETED,
        )
        .order_by(_r.created_at)
    )
)
_READ_BLOBS = Query(
    lambda dialect: sa.select(_b.hash, _b.mime_type, _b.data).where(_b.tenant == _tenant, _b.hash.in_(_listed(dialect)))
)
_KNOWN = Query(sa.select(_r.id).where(_r.tenant == _tenant, _r.id == _id, records.NOT_DELETED))


def _insert_new(table: sa.Table) -> Query:
    """A row that may be there already."""
    values: dict[str, Any] = {column.name: sa.bindparam(column.name) for column in table.columns}
    return Query(lambda dialect: INSERTS[dialect](table).values(values).inline().on_conflict_do_nothing())


_KEEP = _insert_new(blobs)
_REFER = _insert_new(blob_refs)
_REFS = Query(sa.select(_f.hash).where(_f.tenant == _tenant, _f.owner == _id))
_UNREFER = Query(sa.delete(blob_refs).where(_f.tenant == _tenant, _f.owner == _id, _f.hash == sa.bindparam("of_hash")))
_other = sa.select(_f.hash).where(_f.tenant == _b.tenant, _f.hash == _b.hash)
_FORGET = Query(
    sa.delete(blobs).where(_b.tenant == _tenant, _b.hash == sa.bindparam("of_hash"), sa.not_(_other.exists()))
)


def recall(tenant: str, item_ids: Sequence[str], held: str | None = None) -> Script[dict[str, JsonObject]]:
    """Private parts of items by id, of the outputs of the tenant's stored responses and of all items of the response
    `held`; the newest one's."""
    if not item_ids:
        return {}
    listed = json.dumps_text(list(item_ids))
    rows = yield Statement(_RECALL, {"tenant": tenant, "listed": listed, "held": held})
    return {row[0]: records.opened(row[1]) for row in rows}


def refer(tenant: str, owner: str, parts: Iterable[JsonObject | None]) -> Script[None]:
    """Items of this response or conversation name these images too. `parts`: their private ones."""
    if hashes := _named(parts):
        yield Batch(_REFER, [_ref(tenant, owner, found) for found in sorted(hashes)])


def keep_blobs(tenant: str, response_id: str, kept: Sequence[Blob]) -> Script[None]:
    """See `Store.keep_blobs`."""
    if not (yield Statement(_KNOWN, {"tenant": tenant, "id": response_id})):
        raise ResponseEnded(f"response {response_id} is gone")
    now = int(time.time())
    rows = [
        {"tenant": tenant, "hash": blob.hash, "mime_type": blob.mime_type, "data": blob.data, "created_at": now}
        for blob in kept
    ]
    yield Batch(_KEEP, rows)
    yield Batch(_REFER, [_ref(tenant, response_id, blob.hash) for blob in kept])


def read_blobs(tenant: str, hashes: Sequence[str]) -> Script[dict[str, Blob]]:
    """See `Store.blobs`."""
    if not hashes:
        return {}
    rows = yield Statement(_READ_BLOBS, {"tenant": tenant, "listed": json.dumps_text(list(hashes))})
    return {row[0]: Blob(row[0], row[1], row[2]) for row in rows}


def forget(tenant: str, owner: str, left: Query | None = None) -> Script[None]:
    """End its references, and take the blobs nobody else refers to. `left`: reads the private parts (of `id`) that are
    left of it; what they name stays."""
    key: dict[str, object] = {"tenant": tenant, "id": owner}
    held = {row[0] for row in (yield Statement(_REFS, key))}
    if not held:
        return
    still = (yield Statement(left, key)) if left is not None else ()
    gone = [key | {"of_hash": found} for found in sorted(held - _named(records.opened(row[0]) for row in still))]
    if gone:
        yield Batch(_UNREFER, gone)
        yield Batch(_FORGET, gone)


def _named(parts: Iterable[JsonObject | None]) -> set[str]:
    """Hashes of the images in private parts."""
    return {image["hash"] for part in parts if part is not None for image in part.get("images", ())}


def _ref(tenant: str, owner: str, found: str) -> dict[str, object]:
    return {"tenant": tenant, "hash": found, "owner": owner}
