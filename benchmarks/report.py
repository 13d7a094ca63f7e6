"""Figures, their goals, and the table they are printed as."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Figure:
    """One line. `goal`: what `value` is at most; None: for comparison only."""

    name: str
    value: float
    unit: str
    goal: float | None = None
    how: str = ""


def table(figures: Sequence[Figure]) -> str:
    """The figures as text."""
    rows = [("", "measured", "goal", "", ""), *map(_row, figures)]
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    name, measured, goal, verdict = widths
    return "\n".join(
        f"{r[0]:<{name}}  {r[1]:>{measured}}  {r[2]:>{goal}}  {r[3]:<{verdict}}  {r[4]}".rstrip() for r in rows
    )


def _row(figure: Figure) -> tuple[str, str, str, str, str]:
    value = f"{figure.value:.2f} {figure.unit}"
    if figure.goal is None:
        return figure.name, value, "", "", figure.how
    verdict = "ok" if figure.value <= figure.goal else "short"
    return figure.name, value, f"{figure.goal:.2f} {figure.unit}", verdict, figure.how
