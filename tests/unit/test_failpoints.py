"""A fail point kills its process the n-th time it is reached, and no other point does."""

import os
import signal
import subprocess
import sys

import pytest

from outlast import failpoints

REACHING = """
from outlast import failpoints
for number in (1, 2, 3, 4):
    print(number, flush=True)
    failpoints.hit(failpoints.MID_STREAM)
    failpoints.hit(failpoints.PARKED)
"""


@pytest.mark.parametrize(
    ("armed", "reached"),
    [
        ("mid_stream", [1]),
        ("mid_stream:1", [1]),
        ("mid_stream:3", [1, 2, 3]),
        ("mid_stream:5", [1, 2, 3, 4]),
        ("after_marker", [1, 2, 3, 4]),
        ("", [1, 2, 3, 4]),
    ],
)
def test_a_process_dies_the_nth_time_it_reaches_its_point(armed: str, reached: list[int]) -> None:
    """By SIGKILL, after a line that says so."""
    environment = {**os.environ, failpoints.VARIABLE: armed}
    ended = subprocess.run(
        [sys.executable, "-c", REACHING], env=environment, capture_output=True, text=True, check=False, timeout=60
    )
    dies = len(reached) < 4
    assert [int(number) for number in ended.stdout.split()] == reached
    assert ended.returncode == (-signal.SIGKILL if dies else 0)
    assert ended.stderr.startswith("outlast: fail point mid_stream hit, killing pid ") is dies
