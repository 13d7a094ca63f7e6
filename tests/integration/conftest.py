"""A world for the tests of a file, unless it makes its own; the Temporal server is shared (tests/conftest.py)."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from outlast.devserver import DevServer
from tests.support.desk import World, desk_world
from tests.support.stack import settings


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The data folder of one Outlast."""
    return tmp_path / "data"


@pytest.fixture(scope="module")
async def world(temporal: DevServer, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    """One server for all tests of a file."""
    with pytest.MonkeyPatch.context() as patch:
        async with desk_world(settings(tmp_path_factory.mktemp("data"), temporal.address), patch) as opened:
            yield opened
