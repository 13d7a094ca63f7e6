"""Bring a database to the newest revision. Apart from `sqlite.py`, because it imports Alembic."""

import sqlite3
from collections.abc import Callable
from pathlib import Path

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from sqlalchemy.pool import StaticPool


def upgrade(connect: Callable[[], sqlite3.Connection]) -> None:
    """Upgrade in one transaction: a process killed in it leaves the file as it was."""
    engine = sa.create_engine("sqlite://", creator=connect, poolclass=StaticPool)
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).with_name("migrations")))
    try:
        with engine.connect() as connection:
            connection.exec_driver_sql("BEGIN EXCLUSIVE")
            config.attributes["connection"] = connection
            command.upgrade(config, "head")
            connection.exec_driver_sql("COMMIT")
    finally:
        engine.dispose()
