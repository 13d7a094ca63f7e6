"""Every test has its own folder; the server is shared (tests/conftest.py)."""

from pathlib import Path

import pytest


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The data folder of one Outlast."""
    return tmp_path / "data"
