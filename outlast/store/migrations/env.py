"""Alembic's entry: runs on the connection and in the transaction its caller has opened (`migrate.py`)."""

from alembic import context

from outlast.store.tables import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata)
context.run_migrations()
