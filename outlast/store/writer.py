"""The process's only writer: one thread, one connection, group commit.

Everything pending becomes one transaction, in order of response id, each member in a savepoint of its own: a member
that raises (a stale fence, an ended response) is rolled back alone. A failed COMMIT fails every member in it with
`Unavailable`; nothing is sent again, the callers' next attempts read the log. The thread sleeps in a blocking queue
read; while somebody watches for other processes' commits it wakes every 25 ms to ask `PRAGMA data_version`.
"""

import asyncio
import queue
import sqlite3
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sqlalchemy import Dialect
from sqlalchemy.dialects import sqlite as sqlite_dialect

from outlast.protocol.errors import InternalError, Unavailable
from outlast.store.scripting import Batch, Emit, Rows, Script, Scrub, Statement, T

# How many members one transaction takes: bounds how long the first of them waits.
_MAX_MEMBERS = 256
_WATCH_SECONDS = 0.025
# A checkpoint that met a reader is tried again after this long.
_SCRUB_SECONDS = 0.25
_SCRUB_BUSY_MS = 100
_BUSY_MS = 5_000


@dataclass(slots=True)
class Stats:
    """Counters since the store was opened; `statements` are those of scripts, executed for one set of parameters or
    for many."""

    transactions: int = 0
    statements: int = 0
    reads: int = 0
    read_statements: int = 0


@dataclass(slots=True)
class _Member:
    """One script and whoever waits for it."""

    key: str
    script: Script[Any]
    future: "asyncio.Future[Any]"
    value: Any = None
    error: BaseException | None = None
    emits: list[Emit] = field(default_factory=list)


class Writer:
    """Runs scripts as members of grouped transactions. `publish`: called on the event loop with what a commit made
    visible, before its callers go on; `foreign`: called there when another process has committed."""

    def __init__(
        self, path: Path, publish: Callable[[Sequence[Emit]], None], foreign: Callable[[], None], stats: Stats
    ) -> None:
        self._connection = connect(path)
        self._dialect: Dialect = sqlite_dialect.dialect()
        self._publish = publish
        self._foreign = foreign
        self._stats = stats
        self._loop = asyncio.get_running_loop()
        self._queue: queue.SimpleQueue[_Member | None] = queue.SimpleQueue()
        self._watchers = 0
        self._version = self._data_version()
        self._scrub_due = False
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="outlast-writer", daemon=True)
        self._thread.start()

    async def write(self, key: str, script: Script[T]) -> T:
        """The script's result, after its commit. `key`: the response it belongs to.

        A caller that is cancelled meanwhile does not undo it: what was given to the writer is committed.
        """
        if self._closed:
            raise Unavailable("the store is closed")
        member = _Member(key, script, self._loop.create_future())
        self._queue.put(member)
        value: T = await member.future
        return value

    def watch(self, change: int) -> None:
        """+1 or -1 watcher of other processes' commits."""
        self._watchers += change
        if change > 0 and self._watchers == 1:
            self._queue.put(None)

    async def aclose(self) -> None:
        """Finish what is pending, stop the thread, close the connection."""
        if not self._closed:
            self._closed = True
            self._queue.put(None)
            await asyncio.to_thread(self._thread.join)

    # -- in the thread -------------------------------------------------------------------------------------------
    def _run(self) -> None:
        while True:
            members = self._collect()
            if members:
                self._commit_group(members)
            if self._scrub_due:
                self._scrub_due = not self._scrub()
            # After the scrub: who has purged something may rely on it.
            if members:
                self._deliver(members)
            if self._watchers and (version := self._data_version()) != self._version:
                self._version = version
                self._on_loop(self._foreign)
            if self._closed and self._queue.empty():
                self._connection.close()
                return

    def _collect(self) -> list[_Member]:
        """Everything pending, in order of response id; waits for the first."""
        timeout = _WATCH_SECONDS if self._watchers else _SCRUB_SECONDS if self._scrub_due else None
        members: list[_Member] = []
        try:
            arrived = self._queue.get(timeout=timeout)
            while True:
                if arrived is not None:
                    members.append(arrived)
                if len(members) == _MAX_MEMBERS:
                    break
                arrived = self._queue.get_nowait()
        except queue.Empty:
            pass  # nothing more is pending
        return sorted(members, key=lambda member: member.key)

    def _commit_group(self, members: Sequence[_Member]) -> None:
        connection = self._connection
        try:
            connection.execute("BEGIN IMMEDIATE")
            self._stats.transactions += 1
            for member in members:
                self._run_member(member, alone=len(members) == 1)
            if connection.in_transaction:
                connection.execute("COMMIT")
        except sqlite3.Error as error:
            self._abandon(members, error)

    def _run_member(self, member: _Member, *, alone: bool) -> None:
        """One script; its failure undoes its own work only.

        Raises: sqlite3.OperationalError when the whole transaction is lost.
        """
        connection = self._connection
        if not alone:
            connection.execute("SAVEPOINT member")
        try:
            member.value = self._drive(member)
        except sqlite3.OperationalError:
            raise  # disk full, I/O error: SQLite may have rolled everything back
        except sqlite3.Error as error:
            member.error = InternalError(f"the store refused a statement: {error}")
            member.error.__cause__ = error
        except Exception as error:  # noqa: BLE001  # handed to the caller, whoever it is
            member.error = error
        if member.error is not None:
            member.emits.clear()
            connection.execute("ROLLBACK" if alone else "ROLLBACK TO member")
        if not alone:
            connection.execute("RELEASE member")

    def _drive(self, member: _Member) -> Any:
        """Run a script to its end; its return value."""
        rows: Rows = ()
        script, connection, stats = member.script, self._connection, self._stats
        try:
            operation = next(script)
            while True:
                rows = ()
                match operation:
                    case Statement(query, params):
                        compiled = query.on(self._dialect)
                        stats.statements += 1
                        rows = connection.execute(compiled.sql, compiled.arrange(params)).fetchall()
                    case Batch(query, many):
                        compiled = query.on(self._dialect)
                        stats.statements += 1
                        connection.executemany(compiled.sql, [compiled.arrange(params) for params in many])
                    case Emit():
                        member.emits.append(operation)
                    case Scrub():
                        self._scrub_due = True
                operation = script.send(rows)
        except StopIteration as stop:
            return stop.value

    def _abandon(self, members: Sequence[_Member], error: sqlite3.Error) -> None:
        """The transaction is lost, or nobody knows whether it is: every member hears so."""
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")
        for member in members:
            if member.error is None:
                member.error = Unavailable("the store could not commit", retry_after=1.0)
                member.error.__cause__ = error
            member.emits.clear()

    def _deliver(self, members: Sequence[_Member]) -> None:
        emits = [emit for member in members for emit in member.emits]

        def resolve() -> None:
            if emits:
                self._publish(emits)
            for member in members:
                if member.future.done():  # its caller was cancelled; the commit stands
                    continue
                if member.error is not None:
                    member.future.set_exception(member.error)
                else:
                    member.future.set_result(member.value)

        self._on_loop(resolve)

    def _on_loop(self, call: Callable[[], None]) -> None:
        """Hand over to the loop; when it is gone, so is everybody who could listen."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(call)

    def _data_version(self) -> int:
        """Changes when another connection has committed."""
        version: int = self._connection.execute("PRAGMA data_version").fetchone()[0]
        return version

    def _scrub(self) -> bool:
        """Move the log into the database and cut it to nothing: deleted content is then in no file. False: a reader is
        in the way, try again."""
        connection = self._connection
        try:
            connection.execute(f"PRAGMA busy_timeout={_SCRUB_BUSY_MS}")
            busy: int = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
        except sqlite3.OperationalError:
            return False
        finally:
            connection.execute(f"PRAGMA busy_timeout={_BUSY_MS}")
        return not busy


def connect(path: Path) -> sqlite3.Connection:
    """A write connection: explicit transactions, pragmas of architecture §6."""
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, cached_statements=256)
    for pragma in (
        f"busy_timeout={_BUSY_MS}",
        "journal_mode=WAL",
        "synchronous=NORMAL",
        "secure_delete=ON",
        "foreign_keys=ON",
    ):
        connection.execute(f"PRAGMA {pragma}")
    return connection
