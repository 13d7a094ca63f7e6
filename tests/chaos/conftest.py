"""One Temporal per test process for the kill tests; every test has its own queue, folder, model and tools."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from outlast.devserver import DevServer
from tests.chaos.world import World, world


@pytest.fixture(scope="session")
async def temporal(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[DevServer]:
    """A running server with our search attributes."""
    async with DevServer(tmp_path_factory.mktemp("temporal"), port=0, ui_port=0) as server:
        yield server


@pytest.fixture
async def outlast(tmp_path: Path, temporal: DevServer) -> AsyncIterator[World]:
    """An API here, no worker yet; the model takes its time between two words."""
    async with world(tmp_path / "data", temporal.address, word_delay=0.02) as made:
        yield made
