"""What the suite prints: a line of progress, then one row per check, then the counts."""

import json
import sys
from collections import Counter
from collections.abc import Sequence
from typing import TextIO

from outlast.conformance.base import Check, Finding

_MARKS = {"pass": "ok", "fail": "FAIL", "not offered": "-"}
_WIDTH = 100


class Progress:
    """How many are done; on a terminal one line that is written over, else a line per tenth."""

    def __init__(self, total: int, out: TextIO = sys.stderr) -> None:
        self._total = total
        self._done = 0
        self._out = out

    def step(self) -> None:
        """One more."""
        self._done += 1
        if self._out.isatty():
            end = "\n" if self._done == self._total else ""
            print(f"\r{self._done}/{self._total} checks", end=end, file=self._out, flush=True)
        elif self._done % max(1, self._total // 10) == 0:
            print(f"{self._done}/{self._total} checks", file=self._out, flush=True)


def table(checks: Sequence[Check], found: Sequence[Finding]) -> str:
    """One row per check in the suite's order, grouped, with what was seen where a claim does not hold."""
    by_name = {finding.check.name: finding for finding in found}
    width = max(len(check.name) for check in checks)
    lines: list[str] = []
    group = ""
    for check in checks:
        if check.group != group:
            group = check.group
            lines += ["", group]
        finding = by_name[check.name]
        lines.append(f"  {_MARKS[finding.verdict]:<4}  {check.name:<{width}}  {check.claim}")
        if finding.said:
            shown = finding.said if finding.verdict == "fail" else finding.said[:_WIDTH]
            lines.append(f"        {'':<{width}}  {shown}")
        if finding.verdict == "fail":
            lines.append(f"        {'':<{width}}  source: {check.source}")
    counts = Counter(finding.verdict for finding in found)
    total = f"{counts['pass']} passed, {counts['fail']} failed, {counts['not offered']} not offered"
    return "\n".join([*lines[1:], "", f"{total}."])


def as_json(found: Sequence[Finding]) -> str:
    """The same for programs: one object per check."""
    rows = [
        {
            "name": finding.check.name,
            "group": finding.check.group,
            "claim": finding.check.claim,
            "source": finding.check.source,
            "verdict": finding.verdict,
            "said": finding.said,
            "seconds": round(finding.seconds, 3),
        }
        for finding in found
    ]
    return json.dumps(rows, indent=2, ensure_ascii=False)
