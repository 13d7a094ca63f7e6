"""What internal servers need: a call no client sees."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Apply."""
    op.add_column("tool_calls", sa.Column("hidden", sa.BigInteger(), nullable=False, server_default="0"))
