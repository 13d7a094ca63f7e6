"""What a check is and what it can find.

A check is a function that talks to the server and returns when its claim holds. It raises `Failed` with what was seen
beside what was expected, or `NotOffered` when the server refuses an optional part of the API by name: an honest no is
neither a pass nor a fault.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from outlast.conformance.target import Target

Run = Callable[[Target], Awaitable[None]]
Verdict = Literal["pass", "fail", "not offered"]


class Failed(Exception):
    """The claim does not hold; the text says what was seen and what was expected."""


class NotOffered(Exception):
    """The server refuses this part of the API by name; the text is the server's."""


@dataclass(frozen=True, slots=True)
class Check:
    """One claim. `source`: where it comes from: a section of a specification, a type of the SDK, a recording."""

    name: str
    group: str
    claim: str
    source: str
    run: Run


@dataclass(frozen=True, slots=True)
class Finding:
    """What a check found; `said` is empty for a pass."""

    check: Check
    verdict: Verdict
    said: str
    seconds: float


class Group:
    """A registry of checks, in the order they are written."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.checks: list[Check] = []

    def check(self, name: str, source: str) -> Callable[[Run], Run]:
        """Registers a check; its docstring is the claim."""

        def register(run: Run) -> Run:
            self.checks.append(Check(name, self.name, " ".join((run.__doc__ or "").split()), source, run))
            return run

        return register


def expect(holds: object, said: str) -> None:
    """Raises: Failed unless it holds."""
    if not holds:
        raise Failed(said)


def equal(seen: object, wanted: object, what: str) -> None:
    """Raises: Failed showing both."""
    if seen != wanted:
        raise Failed(f"{what}: expected {wanted!r}, saw {seen!r}"[:600])


def types(items: Sequence[object]) -> list[str]:
    """The `type` of each item or event."""
    return [str(item.get("type")) if isinstance(item, dict) else "?" for item in items]
