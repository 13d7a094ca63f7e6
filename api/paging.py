"""Lists in pages: `after` is the id the last page ended with."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from outlast.protocol.errors import InvalidRequest
from outlast.protocol.json import JsonObject

T = TypeVar("T")


def after(rows: Sequence[T], cursor: str | None, limit: int, *, key: Callable[[T], str]) -> tuple[Sequence[T], bool]:
    """At most `limit` rows behind the cursor, and whether there are more. Raises: InvalidRequest, param after, for a
    cursor that is not in the list: an empty page would read as its end."""
    start = 0
    if cursor is not None:
        found = next((index for index, row in enumerate(rows) if key(row) == cursor), None)
        if found is None:
            raise InvalidRequest(f"'{cursor}' is not an id of this list.", param="after", code="invalid_value")
        start = found + 1
    return rows[start : start + limit], len(rows) > start + limit


def page(data: Sequence[JsonObject], *, has_more: bool) -> JsonObject:
    """The list object."""
    return {
        "object": "list",
        "data": list(data),
        "first_id": data[0]["id"] if data else None,
        "last_id": data[-1]["id"] if data else None,
        "has_more": has_more,
    }
