"""One world per module of client tests."""

from collections.abc import AsyncIterator

import pytest

from outlast.devserver import DevServer
from tests.support.clients import Served, served


@pytest.fixture(scope="session")
async def world(temporal: DevServer, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    """A server that the clients of this folder share."""
    async with served(tmp_path_factory.mktemp("clients"), temporal.address) as opened:
        yield opened
