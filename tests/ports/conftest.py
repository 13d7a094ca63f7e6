"""Stores for the suites of the store's port: every implementation, any number of views of one database."""

from collections.abc import AsyncIterator
from pathlib import Path
from shutil import copyfile

import pytest

from outlast.store.port import Store
from outlast.store.sqlite import open_store
from tests.support.store_world import Open


@pytest.fixture(scope="session")
async def migrated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty database at the newest revision: migrating costs more than most tests."""
    folder = tmp_path_factory.mktemp("migrated")
    store = await open_store(folder / "outlast.db", folder / "secrets.key")
    await store.aclose()
    return folder / "outlast.db"


@pytest.fixture(params=["sqlite"])
async def open_another(request: pytest.FixtureRequest, tmp_path: Path, migrated: Path) -> AsyncIterator[Open]:
    """Opens one more view of this test's database."""
    assert request.param == "sqlite"
    path = tmp_path / "outlast.db"
    copyfile(migrated, path)
    stores: list[Store] = []

    async def another() -> Store:
        stores.append(await open_store(path, tmp_path / "secrets.key"))
        return stores[-1]

    yield another
    for store in stores:
        await store.aclose()


@pytest.fixture
async def store(open_another: Open) -> Store:
    """One view of it."""
    return await open_another()
