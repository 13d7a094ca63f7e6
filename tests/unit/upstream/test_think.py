"""`<think>` told from the text."""

import pytest

from outlast.upstream.think import ThinkSplitter


def split(text: str, size: int) -> tuple[str, str]:
    """(thinking, text) of a text that arrives in pieces of `size`."""
    splitter = ThinkSplitter()
    pieces = [piece for at in range(0, len(text), size) for piece in splitter.feed(text[at : at + size])]
    pieces += splitter.flush()
    assert all(piece for _, piece in pieces)
    return "".join(p for thinking, p in pieces if thinking), "".join(p for thinking, p in pieces if not thinking)


@pytest.mark.parametrize("size", [1, 3, 7, 100])
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Hello", ("", "Hello")),
        ("<think>a < b </thin</think>\n\nSo b.", ("a < b </thin", "So b.")),
        ("\n<think>a</think>b</think>", ("a", "b</think>")),
        ("<think></think>b", ("", "b")),
        ("<think>never closed </th", ("never closed </th", "")),
        ("<think>only</think>\n", ("only", "")),
        ("<thing> is no tag", ("", "<thing> is no tag")),
        ("say <think>x</think>", ("", "say <think>x</think>")),
        ("<thi", ("", "<thi")),
        ("  ", ("", "")),
        ("  indented", ("", "  indented")),
    ],
)
def test_thinking_counts_at_the_beginning_only(text: str, size: int, expected: tuple[str, str]) -> None:
    """However the tags are split."""
    assert split(text, size) == expected


def test_text_that_cannot_become_a_tag_is_not_held_back() -> None:
    """The first token of an ordinary answer leaves at once, and from then on the splitter need not be asked."""
    splitter = ThinkSplitter()
    assert splitter.feed("Hi") == [(False, "Hi")]
    assert splitter.passing
