"""`<think>…</think>` at the beginning of a text, told from the text while it streams.

Only a tag that nothing but white space precedes counts: a model that writes about the tag later is not cut. White
space before the tag, and between its end and the answer, belongs to the chat template and is dropped.
"""

from enum import Enum, auto

_OPEN = "<think>"
_CLOSE = "</think>"


class _State(Enum):
    START = auto()
    THINKING = auto()
    AFTER = auto()
    PASSING = auto()


class ThinkSplitter:
    """The state between two chunks and what is held back because a tag may be split there."""

    def __init__(self) -> None:
        self._state = _State.START
        self._held = ""

    @property
    def passing(self) -> bool:
        """Whether all that follows is text, so `feed` need not be asked."""
        return self._state is _State.PASSING

    def feed(self, text: str) -> list[tuple[bool, str]]:
        """Pieces that are certain by now: (is thinking, text), never empty ones."""
        self._held += text
        pieces: list[tuple[bool, str]] = []
        if self._state is _State.START:
            self._start()
        if self._state is _State.THINKING:
            self._thinking(pieces)
        if self._state is _State.AFTER:
            self._held = self._held.lstrip()
            if self._held:
                self._state = _State.PASSING
        if self._state is _State.PASSING and self._held:
            pieces.append((False, self._held))
            self._held = ""
        return pieces

    def flush(self) -> list[tuple[bool, str]]:
        """What was held at the end of the text. White space alone is no text."""
        held, self._held = self._held, ""
        thinking = self._state is _State.THINKING
        return [(thinking, held)] if held and (thinking or not held.isspace()) else []

    def _start(self) -> None:
        stripped = self._held.lstrip()
        if stripped.startswith(_OPEN):
            self._state, self._held = _State.THINKING, stripped[len(_OPEN) :]
        elif not _OPEN.startswith(stripped):
            self._state = _State.PASSING

    def _thinking(self, pieces: list[tuple[bool, str]]) -> None:
        thought, tag, rest = self._held.partition(_CLOSE)
        if tag:
            self._state, self._held = _State.AFTER, rest
        else:
            keep = _partial_tag(thought)
            thought, self._held = thought[: len(thought) - keep], thought[len(thought) - keep :]
        if thought:
            pieces.append((True, thought))


def _partial_tag(text: str) -> int:
    """Length of the longest end of `text` that may be the beginning of the closing tag."""
    return next((n for n in range(len(_CLOSE) - 1, 0, -1) if text.endswith(_CLOSE[:n])), 0)
