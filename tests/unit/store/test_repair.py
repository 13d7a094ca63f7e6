"""Scripts of the sweeper, played by hand."""

from outlast.store import repair


def _leased(silent: float) -> object:
    """Until when a row of this silence (seconds) is leased at 10,000 with a lease of 30."""
    script = repair.stale(silent_since=9_940.0, limit=1, lease_until=10_030.0, now=10_000.0)
    next(script)
    lease = script.send([("default", "resp_a", 10_000.0 - silent)])
    return lease.params["lease_until"]  # type: ignore[union-attr]  # the second statement takes the lease


def test_intervals_between_two_looks_at_a_silent_row_double_up_to_an_hour() -> None:
    """A run that waits for days is not signalled every half minute."""
    assert [_leased(silent) for silent in (20.0, 60.0, 120.0, 86_400.0)] == [10_030.0, 10_060.0, 10_120.0, 13_600.0]
