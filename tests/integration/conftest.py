"""One Temporal development server per test process; every test has its own queue and folder."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from outlast.devserver import DevServer


@pytest.fixture(scope="session")
async def temporal(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[DevServer]:
    """A running server with our search attributes."""
    async with DevServer(tmp_path_factory.mktemp("temporal"), port=0, ui_port=0) as server:
        yield server


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The data folder of one Outlast."""
    return tmp_path / "data"
