"""Claims about the shape of the repository that import-linter cannot hold."""

import ast
import importlib.metadata
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
OURS = ("workflows", "activities", "api", "worker", "outlast")


@pytest.mark.parametrize("name", OURS)
def test_no_other_installed_distribution_owns_our_top_level_names(name: str) -> None:
    """We install real top-level names; a package that brings the same one would shadow ours or be shadowed."""
    owners = set(importlib.metadata.packages_distributions().get(name, ()))
    assert owners <= {"outlast"}


def test_only_the_facade_has_an_init_with_code() -> None:
    """An import of one module never runs another one's code."""
    inits = [path for name in OURS for path in (ROOT / name).rglob("__init__.py")]
    assert ROOT / "outlast/__init__.py" in inits
    filled = [path for path in inits if path.read_text(encoding="utf-8").strip()]
    assert [path for path in filled if path != ROOT / "outlast/__init__.py"] == []


def imported_by(path: Path) -> set[str]:
    """Full names of the modules that a file imports, anywhere in it."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def test_only_the_command_line_imports_the_other_composition_roots() -> None:
    """worker.py, api/app.py and outlast/processes.py put the parts together; worker.py is no package."""
    roots = {"worker", "api.app"}
    sources = [path for name in OURS for path in (ROOT / name).rglob("*.py")]
    importers = {str(path.relative_to(ROOT)) for path in sources if imported_by(path) & roots}
    assert importers <= {"outlast/processes.py"}
    assert not {name for name in imported_by(ROOT / "worker.py") if name.split(".")[0] == "api"}


@pytest.mark.parametrize("name", ["asyncio", "time", "random", "uuid", "os", "datetime.datetime.now"])
def test_the_loop_bans_what_differs_between_two_replays(name: str) -> None:
    """It is passed through the sandbox, so the linter is its only guard."""
    banned = tomllib.loads((ROOT / "outlast/loop/ruff.toml").read_text(encoding="utf-8"))
    assert name in banned["lint"]["flake8-tidy-imports"]["banned-api"]


def test_the_lock_is_hashed_and_names_no_index() -> None:
    """It installs from whatever index a machine uses, and Outlast itself without one."""
    lines = (ROOT / "requirements.lock").read_text(encoding="utf-8").splitlines()
    pins = [line for line in lines if line and not line.startswith((" ", "#"))]
    assert [line for line in pins if "==" not in line] == []
    assert [line for line in lines if "://" in line or line.startswith("--")] == []
    assert any(line.startswith("setuptools==") for line in pins)
    hashes = sum(line.lstrip().startswith("--hash=sha256:") for line in lines)
    assert hashes >= len(pins)
