"""Progress marks of a long step, sent from a real activity environment."""

import pytest
from temporalio.testing import ActivityEnvironment

from activities import base
from outlast.contracts import Mark


class Handle:
    """A run that notes its signals."""

    def __init__(self) -> None:
        self.marks: list[Mark] = []

    def get_workflow_handle(self, workflow_id: str) -> "Handle":
        return self

    async def signal(self, name: str, mark: Mark) -> None:
        assert name == "progress"
        self.marks.append(mark)


@pytest.mark.parametrize(("rounds", "sent"), [(64, 3), (200, 1), (1_000, 1)])
async def test_a_round_sends_its_share_of_a_runs_signals(
    monkeypatch: pytest.MonkeyPatch, rounds: int, sent: int
) -> None:
    """64 rounds of 200 signals each would pass what Temporal allows a run; no two within a second."""
    now, run = 0.0, Handle()
    monkeypatch.setattr("activities.base.time.monotonic", lambda: now)
    monkeypatch.setattr("activities.base.activity.client", lambda: run)

    async def step() -> None:
        nonlocal now
        progress = base.Progress("model", 2, 70, rounds)
        for _ in range(10):
            await progress.item_done()
            now += 1.0
            await progress.item_done()

    await ActivityEnvironment().run(step)
    assert [mark.items_done for mark in run.marks] == [2, 4, 6][:sent]
    assert run.marks[0] == Mark("model", 2, 2, 70)
