"""The SSE parser, as tables."""

import pytest

from outlast.upstream.sse import Parser

STREAM = (
    b": hello\r\n\r\n"
    b'event: a\r\ndata: {"n":1}\r\n\r\n'
    b'data:{"n":\r\ndata: 2}\r\nid: 7\r\n\r\n'
    b': comment\r\ndata: {"n":3}\r\nretry: 5\r\n\r\n'
    b"event: empty\r\n\r\n"
    b'data: [DONE]\r\n\r\ndata: {"after":1}\r\n\r\n'
)
PAYLOADS = [b'{"n":1}', b'{"n":\n2}', b'{"n":3}']


@pytest.mark.parametrize("size", [1, 2, 3, 7, 16, 1000])
@pytest.mark.parametrize("line_end", [b"\r\n", b"\n", b"\r"])
def test_payloads_do_not_depend_on_chunks_or_line_ends(size: int, line_end: bytes) -> None:
    """Comments, event names and what follows [DONE] are no payloads; data lines are joined."""
    raw = STREAM.replace(b"\r\n", line_end)
    parser = Parser()
    batches = [parser.feed(raw[at : at + size]) for at in range(0, len(raw), size)]
    assert [payload for batch in batches for payload in batch] == PAYLOADS
    assert parser.done


def test_one_read_gives_all_its_complete_events_at_once() -> None:
    """The unfinished rest waits for the next read."""
    parser = Parser()
    assert parser.feed(b"data: 1\n\ndata: 2\n\ndata: 3") == [b"1", b"2"]
    assert parser.feed(b"4\n\n") == [b"34"]
    assert not parser.done


def test_an_event_is_there_as_soon_as_its_last_byte_is() -> None:
    """A CR at the end of a chunk is a line end, not something to wait behind."""
    parser = Parser()
    assert parser.feed(b"data: 1\r\n\r") == [b"1"]
    assert parser.feed(b"\ndata: 2\r\n\r\n") == [b"2"]


def test_flush_gives_an_event_without_its_last_blank_line() -> None:
    """Only asked for at a clean end of the stream."""
    parser = Parser()
    assert parser.feed(b"data: 1\n\ndata: 2\n") == [b"1"]
    assert parser.flush() == [b"2"]
    assert parser.flush() == []


def test_a_large_event_in_small_chunks_arrives_whole() -> None:
    """A megabyte in 64-byte pieces."""
    parser = Parser()
    payload = b"x" * 1_000_000
    raw = b"data: " + payload + b"\n\n"
    got = [found for at in range(0, len(raw), 64) for found in parser.feed(raw[at : at + 64])]
    assert got == [payload]
