"""`INSERT … ON CONFLICT` for the dialects we speak: the one statement whose construct differs between them."""

from collections.abc import Callable, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from outlast.store.scripting import Query

# The two constructs share the methods used here and no base class that has them.
INSERTS: dict[str, Callable[[sa.Table], Any]] = {"sqlite": sqlite.insert, "postgresql": postgresql.insert}


def upsert(table: sa.Table, names: Sequence[str], *, keep: Sequence[str] = ()) -> Query:
    """Insert the named columns; an existing row of the same key gets them all, but for its key and `keep`."""
    key = [column.name for column in table.primary_key]

    def build(dialect: str) -> sa.ClauseElement:
        insert = INSERTS[dialect](table).values({name: sa.bindparam(name) for name in names}).inline()
        changed = {name: insert.excluded[name] for name in names if name not in key and name not in keep}
        statement: sa.ClauseElement = insert.on_conflict_do_update(index_elements=key, set_=changed)
        return statement

    return Query(build)
