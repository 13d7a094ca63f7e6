"""What the whole wire needs: private copies of items, conversations, idempotency keys."""

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Apply."""
