"""Statements, migrations and the writer's refusals, without a response."""

import asyncio
import re
import sqlite3
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from sqlalchemy.dialects import sqlite
from sqlalchemy.dialects.postgresql import asyncpg

from outlast.protocol.errors import ConfigurationError, InternalError, Unavailable
from outlast.store import (
    appending,
    asking,
    conversations,
    creating,
    ending,
    idempotency,
    migrate,
    private,
    purging,
    reading,
    records,
    repair,
    turns,
)
from outlast.store.scripting import Query, Script, Statement, lit
from outlast.store.sealed import Sealed, load_sealer
from outlast.store.sqlite import open_store
from outlast.store.tables import HEAD, metadata, workers
from outlast.store.writer import Stats, Writer
from tests.support.store_world import create

_SCRIPTS = (
    appending, asking, conversations, creating, ending, idempotency,
    private, purging, reading, records, repair, turns,
)  # fmt: skip


def _named_queries() -> Iterator[tuple[str, Query]]:
    for module in _SCRIPTS:
        for name, value in vars(module).items():
            several = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else [value]
            yield from ((f"{module.__name__}.{name}", each) for each in several if isinstance(each, Query))


def test_every_statement_compiles_for_both_dialects_with_the_same_parameters() -> None:
    """PostgreSQL runs the same scripts: no literal becomes a parameter, no construct is SQLite's own."""
    queries = [query for _, query in _named_queries()]
    assert len(queries) > 60
    for query in queries:
        for dialect in (sqlite.dialect(), asyncpg.dialect()):  # type: ignore[no-untyped-call]  # SQLAlchemy's gap
            assert query.on(dialect).sql


async def test_the_migrations_build_exactly_the_tables_of_the_metadata(tmp_path: Path) -> None:
    """Nothing to add, nothing to drop."""
    store = await open_store(tmp_path / "o.db", tmp_path / "k")
    await store.aclose()
    engine = sa.create_engine(f"sqlite:///{tmp_path / 'o.db'}")
    with engine.connect() as connection:
        difference = compare_metadata(MigrationContext.configure(connection), metadata)
    engine.dispose()
    assert difference == []


async def test_a_file_of_every_older_revision_is_brought_to_the_newest(tmp_path: Path) -> None:
    """`HEAD` is what decides whether a file is migrated at all: behind the newest one it would skip the last step."""
    for revision in ("0001", "0002", "0003"):
        path = tmp_path / f"{revision}.db"
        _at(path, revision)
        await (await open_store(path, tmp_path / "k")).aclose()
        with closing(sqlite3.connect(path)) as connection:
            assert connection.execute("SELECT version_num FROM alembic_version").fetchall() == [(HEAD,)]
            connection.execute("SELECT hosted, hidden FROM tool_calls")


def _at(path: Path, revision: str) -> None:
    """A file as an older release left it."""
    config = Config()
    config.set_main_option("script_location", str(Path(migrate.__file__).with_name("migrations")))
    engine = sa.create_engine(f"sqlite:///{path}")
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, revision)
    engine.dispose()


async def test_no_statement_reads_all_rows_of_a_table_or_tenant_but_lists_and_sweeps(tmp_path: Path) -> None:
    """The work of a request does not grow with what is stored: SQLite's own plans, which know no statistics here."""
    store = await open_store(tmp_path / "o.db", tmp_path / "k")
    await store.aclose()
    with sqlite3.connect(tmp_path / "o.db") as connection:
        everything = {
            name.removeprefix("outlast.store.")
            for name, query in _named_queries()
            for step in _plan(connection, query)
            if re.match(rf"SCAN ({'|'.join(metadata.tables)})\b|SEARCH .*\(tenant=\?\)$", step)
        }
    connection.close()
    assert everything == {"reading._APPROVALS", "purging._TRANSIENT", "purging._OLD_SECRETS", "repair._ALIVE"}


def _plan(connection: sqlite3.Connection, query: Query) -> list[str]:
    compiled = query.on(sqlite.dialect())
    parameters = compiled.arrange(defaultdict(lambda: None))
    return [str(row[3]) for row in connection.execute(f"EXPLAIN QUERY PLAN {compiled.sql}", parameters)]


async def test_opening_a_file_at_head_changes_nothing_and_several_may_open_a_new_one(tmp_path: Path) -> None:
    """Four at once, on no file; all write to the same database under the same key."""
    stores = await asyncio.gather(*(open_store(tmp_path / "a b" / "o.db", tmp_path / "k") for _ in range(4)))
    for n, store in enumerate(stores):
        await create(store, str(n))
    assert [await stores[0].get("default", f"resp_{n}") is not None for n in range(4)] == [True] * 4
    for store in stores:
        await store.aclose()


async def test_a_file_that_is_no_database_is_a_configuration_error(tmp_path: Path) -> None:
    """It names the file and is left as it is."""
    (tmp_path / "o.db").write_text("not a database, and longer than its header would be, so it is read" * 20)
    with pytest.raises(ConfigurationError, match=r"o\.db"):
        await open_store(tmp_path / "o.db", tmp_path / "k")


async def test_a_row_refused_by_the_database_is_a_bug_of_its_member_only(tmp_path: Path) -> None:
    """The same id twice: the second create is an internal error, its neighbour is committed."""
    store = await open_store(tmp_path / "o.db", tmp_path / "k")
    await create(store, "a")
    results = await asyncio.gather(create(store, "a"), create(store, "b"), return_exceptions=True)
    assert isinstance(results[0], InternalError)
    assert not isinstance(results[1], BaseException)
    await store.aclose()


async def test_a_transaction_that_cannot_begin_fails_all_its_members_as_unavailable(tmp_path: Path) -> None:
    """Another connection holds the write lock for longer than we wait; afterwards writing works again."""
    store = await open_store(tmp_path / "o.db", tmp_path / "k")
    await store.aclose()
    writer = Writer(tmp_path / "o.db", lambda _: None, lambda: None, Stats())
    count = Query(sa.select(sa.func.count()).select_from(workers))

    def impatient() -> Script[None]:
        yield Statement(Query(sa.text("PRAGMA busy_timeout=0")), {})

    def read() -> Script[int]:
        rows = yield Statement(count, {})
        found: int = rows[0][0]
        return found

    await writer.write("", impatient())
    blocker = sqlite3.connect(tmp_path / "o.db", isolation_level=None)
    blocker.execute("BEGIN IMMEDIATE")
    refused = await asyncio.gather(writer.write("a", read()), writer.write("b", read()), return_exceptions=True)
    blocker.execute("ROLLBACK")
    blocker.close()
    assert [type(error) for error in refused] == [Unavailable, Unavailable]
    assert await writer.write("a", read()) == 0
    await writer.aclose()


def test_a_constant_that_would_become_a_parameter_is_refused() -> None:
    """It must be written with `lit`."""
    with pytest.raises(TypeError, match="inline parameters"):
        Query(sa.select(workers.c.id).where(workers.c.kind == "x")).on(sqlite.dialect())
    assert Query(sa.select(workers.c.id).where(workers.c.kind == lit("x"))).on(sqlite.dialect()).arrange({}) == ()


def test_a_sealed_row_opens_only_where_it_was_sealed(tmp_path: Path) -> None:
    """Another tenant, another id, another key, altered bytes: each is refused; a reloaded key file opens it."""
    sealer = load_sealer(tmp_path / "k")
    sealed = sealer.seal("t", "sec_1", {"authorization": "x"})
    assert load_sealer(tmp_path / "k").open("t", "sec_1", sealed) == {"authorization": "x"}
    for tenant, secret_id, row in (
        ("u", "sec_1", sealed),
        ("t", "sec_2", sealed),
        ("t", "sec_1", Sealed(sealed.key_id, sealed.data[:-1] + b"\0\0")),
    ):
        with pytest.raises(InternalError):
            sealer.open(tenant, secret_id, row)
    with pytest.raises(ConfigurationError, match="other"):
        sealer.open("t", "sec_1", Sealed("other", sealed.data))


def test_a_text_that_clients_carry_opens_for_its_tenant_alone(tmp_path: Path) -> None:
    """Whatever else comes is no text of ours: it is the client's word, not a row of ours that was altered."""
    sealer = load_sealer(tmp_path / "k")
    text = sealer.seal_text("t", {"summary": "x"})
    assert text.startswith("outlast1.")
    assert load_sealer(tmp_path / "k").open_text("t", text) == {"summary": "x"}
    assert sealer.open_text("u", text) is None
    for strange in ("", "gAAA", "outlast1.", "outlast1.x.AAAA", text[:-8], text[:-4] + "AAA=", text[9:], text + "ä"):
        assert sealer.open_text("t", strange) is None, strange


def test_an_added_key_seals_and_the_old_one_still_opens(tmp_path: Path) -> None:
    """Rotation: the newest line is used."""
    old = load_sealer(tmp_path / "k").seal("t", "s", {"a": 1})
    load_sealer(tmp_path / "other")
    with (tmp_path / "k").open("a") as file:
        file.write((tmp_path / "other").read_text())
    both = load_sealer(tmp_path / "k")
    assert both.open("t", "s", old) == {"a": 1}
    assert both.seal("t", "s", {}).key_id == (tmp_path / "other").read_text().split()[0]


def test_a_broken_key_file_is_a_configuration_error(tmp_path: Path) -> None:
    """Empty or not ours."""
    for text in ("", "one two three", "id not-base64!"):
        (tmp_path / "k").write_text(text)
        with pytest.raises(ConfigurationError, match="key file"):
            load_sealer(tmp_path / "k")
