"""The tables, as SQLAlchemy Core metadata; `migrations/` builds them, a test compares the two.

Every row carries the tenant (but `workers`, which belong to the deployment). JSON is kept as the bytes our encoder made
and flags as integers, so a statement's parameters need no dialect's conversion and run on `sqlite3` as they are.

`responses` is the hot row, rewritten by every append; what never changes (the request, the first state) is in
`requests` beside it: rewriting 30 KB of tools for each delta would be most of the write-ahead log.
"""

from typing import Any

import sqlalchemy as sa

HEAD = "0004"

metadata = sa.MetaData()


def _table(name: str, *columns: sa.Column[Any] | sa.Index, clustered: bool = False) -> sa.Table:
    """`clustered`: small rows only read by key order; SQLite then keeps them in the key's tree itself."""
    return sa.Table(name, metadata, *columns, sqlite_with_rowid=not clustered)


def _key(name: str, kind: type[sa.types.TypeEngine[Any]] = sa.Text) -> sa.Column[Any]:
    return sa.Column(name, kind, primary_key=True, autoincrement=False)


def _text(name: str, *, null: bool = False) -> sa.Column[Any]:
    return sa.Column(name, sa.Text, nullable=null)


def _int(name: str, *, null: bool = False) -> sa.Column[Any]:
    return sa.Column(name, sa.BigInteger, nullable=null)


def _real(name: str, *, null: bool = False) -> sa.Column[Any]:
    return sa.Column(name, sa.Double, nullable=null)


def _blob(name: str, *, null: bool = False) -> sa.Column[Any]:
    return sa.Column(name, sa.LargeBinary, nullable=null)


responses = _table(
    "responses",
    _key("tenant"),
    _key("id"),
    _text("workflow_id"),
    # `deleted`: without its request no response any more, kept for the items that running descendants read.
    _text("status"),
    _int("store"),
    _text("previous_response_id", null=True),
    # The response whose parked run this one claimed; given back to it when this one ends unused.
    _text("claimed_from", null=True),
    # 1: the terminal commit has secrets to look at.
    _int("sealed"),
    _int("next_sequence"),
    _int("next_index"),
    # Ordinals of output-side rows: public and hidden ones in one order.
    _int("next_ordinal"),
    _int("created_at"),
    _int("completed_at", null=True),
    _blob("usage", null=True),
    _blob("error", null=True),
    _blob("incomplete_details", null=True),
    _real("touched_at"),
    # The sweeper's lease; of an open `store:false` response, its reader's.
    _real("sweep_after"),
    # The conversation it is a turn of, and where that stood: items before this position are its history.
    _text("conversation_id", null=True),
    _int("conversation_end", null=True),
    # SHA-256 over who sent which body: finds what a client's own retry repeats.
    _blob("origin", null=True),
)
requests = _table(
    "requests",
    _key("tenant"),
    _key("response_id"),
    _text("model"),
    _blob("request"),
    _blob("run_state"),
    _int("background"),
    _text("mode"),
    _blob("credentials"),
    _text("owner"),
)
runs = _table(
    "runs",
    _key("tenant"),
    _key("workflow_id"),
    # The response it serves, or is parked on.
    _text("current"),
    # running | parked | stopping: to be cancelled, until it is known to be closed | closed
    _text("state"),
    _real("sweep_after"),
)
# What an `Idempotency-Key` has made; outlives the response, so that a repeat is told and not run.
idempotency_keys = _table(
    "idempotency_keys",
    _key("tenant"),
    _key("key"),
    _blob("body_hash"),
    _text("response_id"),
    _real("created_at"),
)
workers = _table("workers", _key("id"), _text("kind"), _real("beat_at"))
items = _table(
    "items",
    _key("tenant"),
    _key("response_id"),
    _key("side"),
    _key("ordinal", sa.BigInteger),
    _int("output_index", null=True),
    _text("item_id"),
    _blob("data"),
    _int("done"),
    _int("hidden"),
    _int("round"),
    # The step that opened it; empty for what came with the request.
    _text("step"),
    # What belongs to it and no client is shown: see `StoredItem.private`.
    _blob("private", null=True),
)
steps = _table(
    "steps",
    _key("tenant"),
    _key("response_id"),
    _key("step"),
    _int("token"),
    _blob("outcome", null=True),
    clustered=True,
)
tool_calls = _table(
    "tool_calls",
    _key("tenant"),
    _key("response_id"),
    _key("round", sa.BigInteger),
    _key("ordinal", sa.BigInteger),
    _text("item_id"),
    _text("action"),
    _text("call_id"),
    _text("name"),
    _text("arguments"),
    _text("server_label", null=True),
    _text("server_url", null=True),
    _text("secret_id", null=True),
    _int("safe"),
    _real("timeout", null=True),
    _text("approval_id", null=True),
    _blob("hosted", null=True),
    _int("hidden"),
    _int("started"),
    _int("done"),
)
bindings = _table("bindings", _key("tenant"), _key("id"), _text("response_id"), _blob("data"))
events = _table(
    "events",
    _key("tenant"),
    _key("response_id"),
    _key("number", sa.BigInteger),
    _text("type"),
    _blob("data"),
    clustered=True,
)
approvals = _table(
    "approvals",
    _key("tenant"),
    _key("id"),
    _text("response_id"),
    _int("round"),
    _int("ordinal"),
    _text("mode"),
    _text("item_id"),
    _text("call_id"),
    _text("server_label"),
    _text("server_url"),
    _text("name"),
    _text("arguments"),
    _text("fingerprint"),
    _int("safe"),
    _int("created_at"),
    _text("listed_by"),
    _text("status"),
    _text("secret_id", null=True),
    _text("owner", null=True),
    _text("decided_by", null=True),
    _text("decided_how", null=True),
    _int("decided_at", null=True),
    _text("reason", null=True),
    _text("taken_by", null=True),
    _real("deadline", null=True),
    _text("on_deadline"),
)
# Images a tool returned, by the SHA-256 of their bytes; kept while a response or a conversation refers to them.
blobs = _table(
    "blobs",
    _key("tenant"),
    _key("hash"),
    _text("mime_type"),
    _blob("data"),
    _int("created_at"),
)
blob_refs = _table("blob_refs", _key("tenant"), _key("hash"), _key("owner"), clustered=True)
secrets = _table(
    "secrets",
    _key("tenant"),
    _key("id"),
    _text("response_id"),
    _text("key_id"),
    _blob("sealed"),
    _int("created_at"),
)

conversations = _table(
    "conversations",
    _key("tenant"),
    _key("id"),
    _int("created_at"),
    _blob("metadata"),
    _int("next_position"),
)
conversation_items = _table(
    "conversation_items",
    _key("tenant"),
    _key("conversation_id"),
    _key("position", sa.BigInteger),
    _text("item_id"),
    _blob("data"),
    _int("hidden"),
    _text("side"),
    # The response it is a copy from; null: posted.
    _text("response_id", null=True),
    _blob("private", null=True),
    # Taken out at this position; kept for responses whose history ends between the two.
    _int("removed_at", null=True),
)


def _partial(name: str, where: str, *columns: sa.Column[Any], unique: bool = False) -> None:
    """An index of the rows that match `where` only."""
    condition = sa.text(where)
    sa.Index(name, *columns, unique=unique, sqlite_where=condition, postgresql_where=condition)


_r = responses.c
_OPEN = "status IN ('queued', 'in_progress')"
_partial("responses_open", _OPEN, _r.sweep_after)
_partial("responses_transient", "store = 0", _r.created_at)
_partial("responses_deleted", "status = 'deleted'", _r.sweep_after)
_partial("responses_by_age", "store = 1", _r.created_at)
_partial("responses_by_origin", "origin IS NOT NULL", _r.tenant, _r.origin, _r.created_at)
_partial("responses_by_previous", "previous_response_id IS NOT NULL", _r.tenant, _r.previous_response_id)
# The lock of a conversation.
_partial("responses_turn", f"conversation_id IS NOT NULL AND {_OPEN}", _r.tenant, _r.conversation_id, unique=True)
_partial("responses_by_conversation", "conversation_id IS NOT NULL", _r.tenant, _r.conversation_id)
_partial("runs_parked", "state = 'parked'", runs.c.sweep_after)
_partial("runs_stopping", "state = 'stopping'", runs.c.sweep_after)
sa.Index("conversation_items_by_id", conversation_items.c.tenant, conversation_items.c.item_id)
sa.Index("runs_current", runs.c.tenant, runs.c.current)
sa.Index("idempotency_keys_by_age", idempotency_keys.c.created_at)
sa.Index("items_by_id", items.c.tenant, items.c.item_id)
sa.Index("blob_refs_by_owner", blob_refs.c.tenant, blob_refs.c.owner)
sa.Index("bindings_by_response", bindings.c.tenant, bindings.c.response_id)
sa.Index("approvals_by_response", approvals.c.tenant, approvals.c.response_id)
sa.Index("approvals_by_listing", approvals.c.tenant, approvals.c.listed_by)
sa.Index("approvals_by_taker", approvals.c.tenant, approvals.c.taken_by)
sa.Index("approvals_by_secret", approvals.c.tenant, approvals.c.secret_id)
sa.Index("secrets_by_response", secrets.c.tenant, secrets.c.response_id)
