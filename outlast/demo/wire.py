"""What both dialects of the demo model share: a request that was read, words, and the stop at a token limit."""

import asyncio
import re
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass

from outlast.demo import script
from outlast.protocol.json import JsonObject

# Where texts are, in both dialects; roles, types and ids are not counted.
_SPOKEN = frozenset({"content", "text", "output", "arguments", "tool_calls", "function"})
_WORDS = re.compile(r"\s*\S+")


class BadRequest(Exception):
    """The request cannot be served; `param` names the field."""

    def __init__(self, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.param = param


@dataclass(frozen=True, slots=True)
class Reading:
    """A request, read. `limit`: output tokens, which are words here."""

    body: JsonObject
    prompt: script.Prompt
    words_in: int
    limit: int | None


@dataclass(frozen=True, slots=True)
class Said:
    """A text cut at the limit."""

    words: tuple[str, ...]
    cut: bool

    @property
    def text(self) -> str:
        """The words joined; they carry their own spaces."""
        return "".join(self.words)


def say(text: str, limit: int | None) -> Said:
    """The words of a text, at most `limit` of them."""
    words = tuple(_WORDS.findall(text))
    return Said(words[:limit], cut=limit is not None and len(words) > limit)


def count(value: object) -> int:
    """Words of what was said in a message, an item or a list of them: the demo's tokens."""
    match value:
        case str():
            return len(_WORDS.findall(value))
        case Mapping():
            return sum(count(inner) for name, inner in value.items() if name in _SPOKEN)
        case list():
            return sum(count(inner) for inner in value)
        case _:
            return 0


async def slowly(words: Iterable[str], delay: float) -> AsyncIterator[str]:
    """The words, `delay` seconds before each."""
    for word in words:
        # Also without a delay: each word leaves in a write of its own.
        await asyncio.sleep(delay)
        yield word


def text_of(content: object) -> str:
    """The text of a message's content or of a tool's output, in either dialect: a string or parts with `text`."""
    match content:
        case str():
            return content
        case list():
            return "\n".join(part["text"] for part in content if isinstance(part, dict) and "text" in part)
        case _:
            return ""


def choice_of(value: object) -> str:
    """`tool_choice` of either dialect as the script knows it."""
    match value:
        case None | "auto":
            return "auto"
        case "none" | "required" as word:
            return word
        case {"type": "function", "name": str() as name} | {"type": "function", "function": {"name": str() as name}}:
            return name
        case {"type": "allowed_tools", "mode": str() as mode} | {"allowed_tools": {"mode": str() as mode}}:
            return mode
        case _:
            raise BadRequest(f"The demo model does not know the tool_choice {value!r}.", "tool_choice")


def limit_of(body: JsonObject, *names: str) -> int | None:
    """The first of the named limits that is set."""
    for name in names:
        if (value := body.get(name)) is None:
            continue
        if not isinstance(value, int) or value < 1:
            raise BadRequest(f"{name} must be a whole number above 0.", name)
        return value
    return None
