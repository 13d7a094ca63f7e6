"""What the whole wire needs: private copies of items, conversations, idempotency keys."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Apply."""
    _conversations()
    _private()
    _repeats()
    _deleting()


def _conversations() -> None:
    op.create_table(
        "conversations",
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("metadata", sa.LargeBinary(), nullable=False),
        sa.Column("next_position", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("tenant", "id"),
    )
    op.create_table(
        "conversation_items",
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("conversation_id", sa.Text(), nullable=False),
        sa.Column("position", sa.BigInteger(), nullable=False),
        sa.Column("item_id", sa.Text(), nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.Column("hidden", sa.BigInteger(), nullable=False),
        sa.Column("side", sa.Text(), nullable=False),
        sa.Column("response_id", sa.Text(), nullable=True),
        sa.Column("private", sa.LargeBinary(), nullable=True),
        sa.Column("removed_at", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("tenant", "conversation_id", "position"),
    )
    op.create_index("conversation_items_by_id", "conversation_items", ["tenant", "item_id"])
    op.add_column("responses", sa.Column("conversation_id", sa.Text(), nullable=True))
    op.add_column("responses", sa.Column("conversation_end", sa.BigInteger(), nullable=True))
    turn = ["tenant", "conversation_id"]
    open_turn = "conversation_id IS NOT NULL AND status IN ('queued', 'in_progress')"
    _partial("responses_turn", "responses", turn, open_turn, unique=True)
    _partial("responses_by_conversation", "responses", turn, "conversation_id IS NOT NULL")


def _private() -> None:
    op.add_column("items", sa.Column("private", sa.LargeBinary(), nullable=True))
    op.create_table(
        "blobs",
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("hash", sa.Text(), nullable=False),
        sa.Column("mime_type", sa.Text(), nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("tenant", "hash"),
    )
    op.create_table(
        "blob_refs",
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("hash", sa.Text(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("tenant", "hash", "owner"),
        sqlite_with_rowid=False,
    )
    op.create_index("blob_refs_by_owner", "blob_refs", ["tenant", "owner"])


def _repeats() -> None:
    op.create_table(
        "idempotency_keys",
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("body_hash", sa.LargeBinary(), nullable=False),
        sa.Column("response_id", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("tenant", "key"),
    )
    op.create_index("idempotency_keys_by_age", "idempotency_keys", ["created_at"])
    op.add_column("responses", sa.Column("origin", sa.LargeBinary(), nullable=True))
    _partial("responses_by_origin", "responses", ["tenant", "origin", "created_at"], "origin IS NOT NULL")


def _deleting() -> None:
    _partial("responses_deleted", "responses", ["sweep_after"], "status = 'deleted'")
    _partial("responses_by_age", "responses", ["created_at"], "store = 1")
    _partial(
        "responses_by_previous", "responses", ["tenant", "previous_response_id"], "previous_response_id IS NOT NULL"
    )
    _partial("runs_stopping", "runs", ["sweep_after"], "state = 'stopping'")


def _partial(name: str, table: str, columns: list[str], where: str, *, unique: bool = False) -> None:
    condition = sa.text(where)
    op.create_index(name, table, columns, unique=unique, sqlite_where=condition, postgresql_where=condition)
