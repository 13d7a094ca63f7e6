"""Every scenario runs twice: with a worker that keeps workflows, and with one that replays at every task."""

import pytest

from outlast import temporal as connecting
from outlast.devserver import DevServer
from tests.support.fakes import Bench


@pytest.fixture(params=[0, 1000], ids=["replaying", "cached"])
async def bench(temporal: DevServer, request: pytest.FixtureRequest) -> Bench:
    """A queue of one's own."""
    return Bench(await connecting.connect(temporal.address), request.param)
