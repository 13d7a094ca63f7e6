"""Transactions as scripts that do no I/O, and statements compiled once per dialect.

A script is a generator: it yields operations and is sent the rows of each. Whoever runs it (the writer thread over
`sqlite3`, a reader over an async engine, a PostgreSQL connection) decides what a transaction is; a script that raises
leaves no trace because its runner rolls it back. `Emit` and `Scrub` ask for something after the commit.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, TypeVar

from sqlalchemy import ClauseElement, ColumnElement, Dialect, literal_column

T = TypeVar("T")

# One row as the driver gives it: what a column holds is known by the statement, not by the type system.
Row = Sequence[Any]
Rows = Sequence[Row]
Params = Mapping[str, object]
# (sequence number, event type, `data:` bytes)
Frame = tuple[int, str, bytes]


@dataclass(frozen=True, slots=True)
class Compiled:
    """SQL text of one dialect and how named parameters are put into its order."""

    sql: str
    arrange: Callable[[Params], tuple[object, ...]]


class Query:
    """A statement with named parameters. `build`: the construct, or how to make it for a dialect's name (upserts)."""

    __slots__ = ("_build", "_compiled")

    def __init__(self, build: ClauseElement | Callable[[str], ClauseElement]) -> None:
        self._build = build
        self._compiled: dict[str, Compiled] = {}

    def on(self, dialect: Dialect) -> Compiled:
        """Compiled for this dialect; once per process."""
        compiled = self._compiled.get(dialect.name)
        if compiled is None:
            compiled = self._compiled[dialect.name] = self._compile(dialect)
        return compiled

    def _compile(self, dialect: Dialect) -> Compiled:
        build = self._build
        statement = build if isinstance(build, ClauseElement) else build(dialect.name)
        compiled = statement.compile(dialect=dialect)
        # A literal in the construct would be a parameter no caller passes: write it with `lit` (SQLite's LIMIT makes
        # one of its own unless an OFFSET is given).
        constants = {name: value for name, value in (compiled.params or {}).items() if value is not None}
        if constants:
            raise TypeError(f"statement with inline parameters {sorted(constants)}: {compiled}")
        return Compiled(str(compiled), _arranger(tuple(getattr(compiled, "positiontup", None) or ())))


def _arranger(names: tuple[str, ...]) -> Callable[[Params], tuple[object, ...]]:
    match names:
        case ():
            return lambda _params: ()
        case (name,):
            return lambda params: (params[name],)
        case _:
            return itemgetter(*names)


def lit(value: str | int) -> ColumnElement[Any]:
    """A constant written into the SQL text; ours only, never input."""
    return literal_column(f"'{value}'" if isinstance(value, str) else str(value))


@dataclass(frozen=True, slots=True)
class Statement:
    """Execute once; its rows are sent back."""

    query: Query
    params: Params


@dataclass(frozen=True, slots=True)
class Batch:
    """Execute for every row of parameters; sends back no rows."""

    query: Query
    rows: Sequence[Params]


@dataclass(frozen=True, slots=True)
class Emit:
    """After the commit: these frames are visible. `gone`: the response was purged, readers look again."""

    tenant: str
    response_id: str
    frames: Sequence[Frame] = ()
    gone: bool = False


@dataclass(frozen=True, slots=True)
class Scrub:
    """After the commit: nothing of what was deleted may stay in the database's files."""


Operation = Statement | Batch | Emit | Scrub
Script = Generator[Operation, Rows, T]
