"""What hosted tools need: the item of a call that is no `mcp_call`."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Apply."""
    op.add_column("tool_calls", sa.Column("hosted", sa.LargeBinary(), nullable=True))
