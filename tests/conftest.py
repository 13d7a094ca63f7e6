"""One Temporal development server per test process, started by the first test that needs one."""

from collections.abc import AsyncIterator

import hypothesis
import pytest

from outlast.devserver import DevServer

# How long an example takes says more about the machine's other work than about ours.
hypothesis.settings.register_profile("any machine", deadline=None)
hypothesis.settings.load_profile("any machine")


@pytest.fixture(scope="session")
async def temporal(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[DevServer]:
    """A running server with our search attributes. Every test uses a queue of its own."""
    async with DevServer(tmp_path_factory.mktemp("temporal"), port=0, ui_port=0) as server:
        yield server
