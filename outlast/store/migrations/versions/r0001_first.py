"""The first tables."""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Apply."""
    _approvals()
    _bindings()
    _events()
    _items()
    _requests()
    _responses()
    _runs()
    _secrets()
    _steps()
    _tool_calls()
    _workers()


def _c(name: str, kind: sa.types.TypeEngine[Any], *, nullable: bool = False) -> sa.Column[Any]:
    return sa.Column(name, kind, nullable=nullable)


def _approvals() -> None:
    op.create_table(
        "approvals",
        _c("tenant", sa.Text()),
        _c("id", sa.Text()),
        _c("response_id", sa.Text()),
        _c("round", sa.BigInteger()),
        _c("ordinal", sa.BigInteger()),
        _c("mode", sa.Text()),
        _c("item_id", sa.Text()),
        _c("call_id", sa.Text()),
        _c("server_label", sa.Text()),
        _c("server_url", sa.Text()),
        _c("name", sa.Text()),
        _c("arguments", sa.Text()),
        _c("fingerprint", sa.Text()),
        _c("safe", sa.BigInteger()),
        _c("created_at", sa.BigInteger()),
        _c("listed_by", sa.Text()),
        _c("status", sa.Text()),
        _c("secret_id", sa.Text(), nullable=True),
        _c("owner", sa.Text(), nullable=True),
        _c("decided_by", sa.Text(), nullable=True),
        _c("decided_how", sa.Text(), nullable=True),
        _c("decided_at", sa.BigInteger(), nullable=True),
        _c("reason", sa.Text(), nullable=True),
        _c("taken_by", sa.Text(), nullable=True),
        _c("deadline", sa.Double(), nullable=True),
        _c("on_deadline", sa.Text()),
        sa.PrimaryKeyConstraint("tenant", "id"),
    )
    op.create_index("approvals_by_listing", "approvals", ["tenant", "listed_by"])
    op.create_index("approvals_by_response", "approvals", ["tenant", "response_id"])
    op.create_index("approvals_by_secret", "approvals", ["tenant", "secret_id"])
    op.create_index("approvals_by_taker", "approvals", ["tenant", "taken_by"])


def _bindings() -> None:
    op.create_table(
        "bindings",
        _c("tenant", sa.Text()),
        _c("id", sa.Text()),
        _c("response_id", sa.Text()),
        _c("data", sa.LargeBinary()),
        sa.PrimaryKeyConstraint("tenant", "id"),
    )
    op.create_index("bindings_by_response", "bindings", ["tenant", "response_id"])


def _events() -> None:
    op.create_table(
        "events",
        _c("tenant", sa.Text()),
        _c("response_id", sa.Text()),
        _c("number", sa.BigInteger()),
        _c("type", sa.Text()),
        _c("data", sa.LargeBinary()),
        sa.PrimaryKeyConstraint("tenant", "response_id", "number"),
        sqlite_with_rowid=False,
    )


def _items() -> None:
    op.create_table(
        "items",
        _c("tenant", sa.Text()),
        _c("response_id", sa.Text()),
        _c("side", sa.Text()),
        _c("ordinal", sa.BigInteger()),
        _c("output_index", sa.BigInteger(), nullable=True),
        _c("item_id", sa.Text()),
        _c("data", sa.LargeBinary()),
        _c("done", sa.BigInteger()),
        _c("hidden", sa.BigInteger()),
        _c("round", sa.BigInteger()),
        _c("step", sa.Text()),
        sa.PrimaryKeyConstraint("tenant", "response_id", "side", "ordinal"),
    )
    op.create_index("items_by_id", "items", ["tenant", "item_id"])


def _requests() -> None:
    op.create_table(
        "requests",
        _c("tenant", sa.Text()),
        _c("response_id", sa.Text()),
        _c("model", sa.Text()),
        _c("request", sa.LargeBinary()),
        _c("run_state", sa.LargeBinary()),
        _c("background", sa.BigInteger()),
        _c("mode", sa.Text()),
        _c("credentials", sa.LargeBinary()),
        _c("owner", sa.Text()),
        sa.PrimaryKeyConstraint("tenant", "response_id"),
    )


def _responses() -> None:
    op.create_table(
        "responses",
        _c("tenant", sa.Text()),
        _c("id", sa.Text()),
        _c("workflow_id", sa.Text()),
        _c("status", sa.Text()),
        _c("store", sa.BigInteger()),
        _c("previous_response_id", sa.Text(), nullable=True),
        _c("claimed_from", sa.Text(), nullable=True),
        _c("sealed", sa.BigInteger()),
        _c("next_sequence", sa.BigInteger()),
        _c("next_index", sa.BigInteger()),
        _c("next_ordinal", sa.BigInteger()),
        _c("created_at", sa.BigInteger()),
        _c("completed_at", sa.BigInteger(), nullable=True),
        _c("usage", sa.LargeBinary(), nullable=True),
        _c("error", sa.LargeBinary(), nullable=True),
        _c("incomplete_details", sa.LargeBinary(), nullable=True),
        _c("touched_at", sa.Double()),
        _c("sweep_after", sa.Double()),
        sa.PrimaryKeyConstraint("tenant", "id"),
    )
    op.create_index(
        "responses_open",
        "responses",
        ["sweep_after"],
        sqlite_where=sa.text("status IN ('queued', 'in_progress')"),
        postgresql_where=sa.text("status IN ('queued', 'in_progress')"),
    )
    op.create_index(
        "responses_transient",
        "responses",
        ["created_at"],
        sqlite_where=sa.text("store = 0"),
        postgresql_where=sa.text("store = 0"),
    )


def _runs() -> None:
    op.create_table(
        "runs",
        _c("tenant", sa.Text()),
        _c("workflow_id", sa.Text()),
        _c("current", sa.Text()),
        _c("state", sa.Text()),
        _c("sweep_after", sa.Double()),
        sa.PrimaryKeyConstraint("tenant", "workflow_id"),
    )
    op.create_index("runs_current", "runs", ["tenant", "current"])
    op.create_index(
        "runs_parked",
        "runs",
        ["sweep_after"],
        sqlite_where=sa.text("state = 'parked'"),
        postgresql_where=sa.text("state = 'parked'"),
    )


def _secrets() -> None:
    op.create_table(
        "secrets",
        _c("tenant", sa.Text()),
        _c("id", sa.Text()),
        _c("response_id", sa.Text()),
        _c("key_id", sa.Text()),
        _c("sealed", sa.LargeBinary()),
        _c("created_at", sa.BigInteger()),
        sa.PrimaryKeyConstraint("tenant", "id"),
    )
    op.create_index("secrets_by_response", "secrets", ["tenant", "response_id"])


def _steps() -> None:
    op.create_table(
        "steps",
        _c("tenant", sa.Text()),
        _c("response_id", sa.Text()),
        _c("step", sa.Text()),
        _c("token", sa.BigInteger()),
        _c("outcome", sa.LargeBinary(), nullable=True),
        sa.PrimaryKeyConstraint("tenant", "response_id", "step"),
        sqlite_with_rowid=False,
    )


def _tool_calls() -> None:
    op.create_table(
        "tool_calls",
        _c("tenant", sa.Text()),
        _c("response_id", sa.Text()),
        _c("round", sa.BigInteger()),
        _c("ordinal", sa.BigInteger()),
        _c("item_id", sa.Text()),
        _c("action", sa.Text()),
        _c("call_id", sa.Text()),
        _c("name", sa.Text()),
        _c("arguments", sa.Text()),
        _c("server_label", sa.Text(), nullable=True),
        _c("server_url", sa.Text(), nullable=True),
        _c("secret_id", sa.Text(), nullable=True),
        _c("safe", sa.BigInteger()),
        _c("timeout", sa.Double(), nullable=True),
        _c("approval_id", sa.Text(), nullable=True),
        _c("started", sa.BigInteger()),
        _c("done", sa.BigInteger()),
        sa.PrimaryKeyConstraint("tenant", "response_id", "round", "ordinal"),
    )


def _workers() -> None:
    op.create_table(
        "workers", _c("id", sa.Text()), _c("kind", sa.Text()), _c("beat_at", sa.Double()), sa.PrimaryKeyConstraint("id")
    )
