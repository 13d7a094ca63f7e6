"""Whether anybody would run what is started now."""

from pathlib import Path

import pytest

from api.liveness import Liveness
from outlast.protocol.errors import Unavailable
from outlast.store.sqlite import open_store


async def test_a_worker_counts_from_its_first_beat_until_half_a_minute_after_its_last(tmp_path: Path) -> None:
    """That one lives is believed for a second; that none does is never believed twice."""
    store, now = await open_store(tmp_path / "outlast.db", tmp_path / "secrets.key"), 1_000.0
    alive = Liveness(store, lambda: now)
    with pytest.raises(Unavailable):
        await alive.require()
    await store.beat("w", "worker", now)
    await alive.require()
    reads = store.stats.reads
    now += 0.9
    await alive.require()
    assert store.stats.reads == reads
    now = 1_030.0
    await alive.require()
    now = 1_031.0
    with pytest.raises(Unavailable):
        await alive.require()
    await store.aclose()
