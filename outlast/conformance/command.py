"""`outlast conformance URL`: run the checks against a server and print what they found."""

import asyncio
import os
from collections.abc import Sequence
from dataclasses import dataclass

from outlast.conformance import report, run
from outlast.conformance.base import Check, Finding
from outlast.conformance.suite import checks
from outlast.protocol.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class Wanted:
    """The command's arguments. `only`, `skip`: check or group names, comma separated."""

    url: str
    model: str = "demo"
    key_env: str | None = None
    mcp_host: str = "127.0.0.1"
    only: str | None = None
    skip: str | None = None
    as_json: bool = False


def conform(wanted: Wanted) -> tuple[str, bool]:
    """What to print, and whether nothing failed. Raises: ConfigurationError."""
    chosen = choose(checks(), only=wanted.only, skip=wanted.skip)
    found = asyncio.run(_find(wanted, chosen))
    text = report.as_json(found) if wanted.as_json else report.table(chosen, found)
    return text, all(finding.verdict != "fail" for finding in found)


def choose(known: Sequence[Check], *, only: str | None, skip: str | None) -> list[Check]:
    """Checks by name or group. Raises: ConfigurationError for a name nobody has, or when none is left."""
    wanted, unwanted = _names(known, only), _names(known, skip)
    chosen = [
        check
        for check in known
        if (not wanted or {check.name, check.group.lower()} & wanted)
        and not {check.name, check.group.lower()} & unwanted
    ]
    if not chosen:
        raise ConfigurationError("--only and --skip leave no check")
    return chosen


def _names(known: Sequence[Check], given: str | None) -> set[str]:
    names = {name.strip().lower() for name in (given or "").split(",") if name.strip()}
    unknown = names - {check.name for check in known} - {check.group.lower() for check in known}
    if unknown:
        raise ConfigurationError(f"no check or group is called {', '.join(sorted(unknown))}: see docs/conformance.md")
    return names


async def _find(wanted: Wanted, chosen: Sequence[Check]) -> list[Finding]:
    progress = report.Progress(len(chosen))
    found: list[Finding] = []
    key = _key(wanted.key_env)
    async with run.target(wanted.url, wanted.model, key=key, mcp_host=wanted.mcp_host) as against:
        async for finding in run.findings(chosen, against):
            found.append(finding)
            progress.step()
    return found


def _key(variable: str | None) -> str | None:
    if variable is None:
        return None
    value = os.environ.get(variable)
    if not value:
        raise ConfigurationError(f"--api-key-env names the environment variable {variable}, which is not set")
    return value
