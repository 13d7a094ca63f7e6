"""Reads outside the writer: the same scripts over a small pool of read-only connections (SQLAlchemy's async engine)."""

from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine

from outlast.protocol.errors import Unavailable
from outlast.store.scripting import Rows, Script, Statement, T
from outlast.store.writer import Stats

_CONNECTIONS = 4


class Reader:
    """Runs scripts that only read. Each statement sees everything committed before it."""

    def __init__(self, path: Path, stats: Stats) -> None:
        url = sa.URL.create("sqlite+aiosqlite", database=str(path))
        self._engine = create_async_engine(
            url, pool_size=_CONNECTIONS, max_overflow=0, isolation_level="AUTOCOMMIT", pool_reset_on_return=None
        )
        self._stats = stats
        self._closed = False

        @sa.event.listens_for(self._engine.sync_engine, "connect")
        def read_only(connection: Any, _record: object) -> None:
            """SQLAlchemy hands over its own DBAPI wrapper, which is not typed."""
            cursor = connection.cursor()
            cursor.execute("PRAGMA busy_timeout=5000")
            cursor.execute("PRAGMA query_only=ON")
            cursor.close()

    async def read(self, script: Script[T]) -> T:
        """The script's result. Raises: Unavailable when the database cannot be read."""
        if self._closed:
            raise Unavailable("the store is closed")
        self._stats.reads += 1
        try:
            async with self._engine.connect() as connection:
                return await self._drive(connection, script)
        except sa.exc.OperationalError as error:
            raise Unavailable("the store could not be read", retry_after=1.0) from error

    async def _drive(self, connection: AsyncConnection, script: Script[T]) -> T:
        try:
            operation = next(script)
            while True:
                if not isinstance(operation, Statement):
                    raise TypeError(f"a reader was given {operation}")
                compiled = operation.query.on(self._engine.dialect)
                self._stats.read_statements += 1
                result = await connection.exec_driver_sql(compiled.sql, compiled.arrange(operation.params))
                rows: Rows = result.fetchall()
                operation = script.send(rows)
        except StopIteration as stop:
            value: T = stop.value
            return value

    async def aclose(self) -> None:
        """Close the connections."""
        self._closed = True
        await self._engine.dispose()
