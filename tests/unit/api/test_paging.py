"""Lists in pages."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api import paging


@given(st.text("abcd", max_size=12), st.integers(min_value=1, max_value=5))
def test_reading_page_by_page_shows_every_row_once_and_ends(rows: str, limit: int) -> None:
    """Also where ids come twice, as in a history that was sent beside its chain."""
    seen, cursor, more = "", None, True
    while more:
        page, more = paging.after(rows, cursor, limit, key=str)
        assert page or not rows
        seen += "".join(page)
        cursor = page[-1] if page else None
    assert seen == rows


@pytest.mark.parametrize(("cursor", "page"), [(None, "ab"), ("b", "cd"), ("c", "d"), ("d", "")])
def test_a_page_of_a_list_without_repeats_is_as_long_as_asked(cursor: str | None, page: str) -> None:
    """But the last one."""
    found, more = paging.after("abcd", cursor, 2, key=str)
    assert ("".join(found), more) == (page, cursor is None)
