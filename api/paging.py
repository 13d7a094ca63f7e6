"""Lists in pages: `after` is the id the last page ended with."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from outlast.protocol.errors import InvalidRequest
from outlast.protocol.json import JsonObject

T = TypeVar("T")


def after(rows: Sequence[T], cursor: str | None, limit: int, *, key: Callable[[T], str]) -> tuple[Sequence[T], bool]:
    """`limit` rows behind the cursor, and whether there are more. A client that sends its history beside
    `previous_response_id` has ids twice in the list: a page does not end with an id that comes again, but goes on, or
    the next one would begin at the wrong place and a client that reads all pages would never end.

    Raises: InvalidRequest, param after, for a cursor that is not in the list: an empty page would read as its end."""
    last = {key(row): index for index, row in enumerate(rows)}
    start = 0
    if cursor is not None:
        if cursor not in last:
            raise InvalidRequest(f"'{cursor}' is not an id of this list.", param="after", code="invalid_value")
        start = last[cursor] + 1
    end = start + limit
    while end < len(rows) and last[key(rows[end - 1])] >= end:
        end += 1
    return rows[start:end], len(rows) > end


def page(data: Sequence[JsonObject], *, has_more: bool) -> JsonObject:
    """The list object."""
    return {
        "object": "list",
        "data": list(data),
        "first_id": data[0]["id"] if data else None,
        "last_id": data[-1]["id"] if data else None,
        "has_more": has_more,
    }
