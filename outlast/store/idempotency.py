"""Scripts that tell a repeated request from a new one: by the client's own key, or by who sent which body.

A key is written in the transaction that creates its response, so a request refused before that has not used it, and of
any number of racers one creates. It is kept for a day, also when its response is not: then the repeat is refused. The
one response a key lets go of is one that failed before any step of it began, as when Temporal did not take the run:
nothing was run, and the client was told to try again.
"""

import sqlalchemy as sa

from outlast.protocol.errors import IdempotencyKeyReused, InvalidRequest
from outlast.store import reading, records
from outlast.store.base import IdempotencyKey, ResponseRecord
from outlast.store.scripting import Query, Script, Statement, lit
from outlast.store.tables import idempotency_keys, responses
from outlast.store.upserts import INSERTS

KEY_SECONDS = 86_400.0
HEADER = "Idempotency-Key"

_tenant: sa.BindParameter[str] = sa.bindparam("tenant")
_k, _r = idempotency_keys.c, responses.c
_NEW: dict[str, sa.BindParameter[object]] = {
    name: sa.bindparam(name) for name in ("body_hash", "response_id", "created_at")
}
_ONE = sa.and_(_k.tenant == _tenant, _k.key == sa.bindparam("key"))
_CLAIM = Query(
    lambda dialect: (
        INSERTS[dialect](idempotency_keys)
        .values(tenant=_tenant, key=sa.bindparam("key"), **_NEW)
        .inline()
        # One that nobody has purged yet.
        .on_conflict_do_update(
            index_elements=["tenant", "key"], set_=_NEW, where=_k.created_at <= sa.bindparam("expired")
        )
        .returning(_k.key)
    )
)
_TAKE_OVER = Query(sa.update(idempotency_keys).where(_ONE).values(_NEW))
_READ = Query(sa.select(_k.response_id, _k.body_hash).where(_ONE, _k.created_at > sa.bindparam("expired")))
_PURGE = Query(sa.delete(idempotency_keys).where(_k.created_at <= sa.bindparam("expired")))
_BY_ORIGIN = Query(
    records.SELECT_RECORD.where(
        _r.tenant == _tenant,
        _r.origin == sa.bindparam("origin", type_=sa.LargeBinary),
        _r.created_at >= sa.bindparam("since"),
        _r.status != lit("failed"),
    )
    .order_by(_r.created_at.desc())
    .limit(lit(1))
    .offset(lit(0))
)


def claim(tenant: str, key: IdempotencyKey, response_id: str, now: float) -> Script[ResponseRecord | None]:
    """Give the key to a response about to be written; the response that has it instead. Raises: as `by_key`."""
    values: dict[str, object] = {
        "tenant": tenant,
        "key": key.key,
        "body_hash": key.body_hash,
        "response_id": response_id,
        "created_at": now,
    }
    if (yield Statement(_CLAIM, values | {"expired": now - KEY_SECONDS})):
        return None
    found = yield from by_key(tenant, key, now)
    if found is None:
        yield Statement(_TAKE_OVER, values)
    return found


def by_key(tenant: str, key: IdempotencyKey, now: float) -> Script[ResponseRecord | None]:
    """See `Store.by_key`."""
    rows = yield Statement(_READ, {"tenant": tenant, "key": key.key, "expired": now - KEY_SECONDS})
    if not rows:
        return None
    response_id, body_hash = rows[0]
    record = yield from reading.get(tenant, response_id)
    unstarted = record is not None and record.status == "failed"
    if unstarted and not (yield from reading.steps_begun(tenant, response_id)):
        return None
    if bytes(body_hash) != key.body_hash:
        raise IdempotencyKeyReused(
            f"This {HEADER} was used with another body, for response '{response_id}': a new request needs a new key.",
            param=HEADER,
        )
    if record is None:
        raise spent(response_id)
    return record


def spent(response_id: str) -> InvalidRequest:
    """The key's response cannot be shown any more, and is not run a second time."""
    return InvalidRequest(
        f"This {HEADER} has made response '{response_id}', which is not kept any more (deleted, or store: false). "
        "It is not run again: send a new key for a new response.",
        param=HEADER,
        code="idempotency_key_spent",
    )


def by_origin(tenant: str, origin: bytes, since: float) -> Script[ResponseRecord | None]:
    """See `Store.by_origin`."""
    rows = yield Statement(_BY_ORIGIN, {"tenant": tenant, "origin": origin, "since": int(since)})
    return records.record(rows[0]) if rows else None


def purge(now: float) -> Script[None]:
    """Forget keys older than a day."""
    yield Statement(_PURGE, {"expired": now - KEY_SECONDS})
