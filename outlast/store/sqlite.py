"""The store on one SQLite file: the driver part, and how a store is opened.

Opening makes the folder, the key file and the tables. A file at the newest revision is recognised by one read, without
importing Alembic; anything else is migrated under a file lock, so processes that start together do it once.
"""

import asyncio
import fcntl
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from outlast.protocol.errors import ConfigurationError
from outlast.store import reading
from outlast.store.hub import Hub
from outlast.store.reader import Reader
from outlast.store.scripting import Frame, Script, T
from outlast.store.sealed import Sealer, load_sealer
from outlast.store.sql import SqlStore
from outlast.store.tables import HEAD
from outlast.store.writer import Stats, Writer, connect


class _Sqlite:
    """The driver: one writing thread, a pool of readers."""

    def __init__(self, path: Path) -> None:
        self.stats = Stats()
        self.hub = Hub(self._page, self._watch)
        self._reader = Reader(path, self.stats)
        self._writer = Writer(path, self.hub.publish, self.hub.foreign, self.stats)

    async def write(self, key: str, script: Script[T]) -> T:
        return await self._writer.write(key, script)

    async def read(self, script: Script[T]) -> T:
        return await self._reader.read(script)

    async def aclose(self) -> None:
        await self._writer.aclose()
        await self._reader.aclose()
        self.hub.foreign()  # whoever still follows finds the store closed

    async def _page(self, tenant: str, response_id: str, after: int, size: int) -> tuple[str | None, list[Frame]]:
        return await self._reader.read(reading.page(tenant, response_id, after, size))

    def _watch(self, change: int) -> None:
        self._writer.watch(change)


class SqliteStore(SqlStore):
    """The record in one SQLite file, this process's view of it. Open it with `open_store`."""

    def __init__(self, database: _Sqlite, sealer: Sealer) -> None:
        super().__init__(database, database.hub, sealer)
        self.stats = database.stats


async def open_store(path: Path, key_file: Path) -> SqliteStore:
    """Open the store at `path`, made and migrated as needed; secrets are sealed with `key_file`.

    Belongs to the running event loop. Raises: ConfigurationError when file or key cannot be used.
    """
    await asyncio.to_thread(_prepare, path)
    sealer = await asyncio.to_thread(load_sealer, key_file)
    return SqliteStore(_Sqlite(path), sealer)


def _prepare(path: Path) -> None:
    """The file at the newest revision."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and _revision(path) == HEAD:
            return
        with _lock(path):
            if _revision(path) != HEAD:
                # Alembic costs a quarter of a second to import, and is needed once per file and release.
                from outlast.store.migrate import upgrade

                upgrade(lambda: connect(path))
    except (OSError, sqlite3.Error) as error:
        raise ConfigurationError(f"the store {path} cannot be opened: {error}") from error


def _revision(path: Path) -> str | None:
    """The revision a file is at; None for a new one."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA busy_timeout=5000")
        if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'alembic_version'").fetchall():
            return None
        rows = connection.execute("SELECT version_num FROM alembic_version").fetchall()
        return rows[0][0] if rows else None


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    """One process at a time, whatever happens to it."""
    with path.with_name(path.name + ".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
