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


WORKFLOWS = sorted((ROOT / "workflows").glob("*.py"), key=str)
# Nothing here tells the time, rolls dice or does I/O; of `datetime` and `asyncio` the linter bans the members that do.
FOR_WORKFLOWS = {
    "asyncio",
    "collections.abc",
    "contextlib",
    "dataclasses",
    "datetime",
    "typing",
    "temporalio",
    "temporalio.exceptions",
    "outlast",
    "outlast.contracts",
    "workflows",
}
OURS_FOR_WORKFLOWS = ("outlast.loop.", "outlast.protocol.", "workflows.")


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_workflow_code_imports_nothing_that_differs_between_two_replays(path: Path) -> None:
    """It is passed through the sandbox, whose list of refused modules does not reach it."""
    names = [
        name
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    ]
    foreign = {name for name in names if not f"{name}.".startswith(OURS_FOR_WORKFLOWS)}
    assert foreign <= FOR_WORKFLOWS


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_workflow_code_keeps_nothing_at_module_level(path: Path) -> None:
    """Runs share the module: a list, a dict or a counter there would leak from one run into another's replay."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    assert not [node for node in ast.walk(tree) if isinstance(node, ast.Global)]
    holders = [tree.body, *(node.body for node in ast.walk(tree) if isinstance(node, ast.ClassDef))]
    for node in (node for body in holders for node in body if isinstance(node, (ast.Assign, ast.AnnAssign))):
        constant = node.value is None or isinstance(node.value, ast.Constant)
        variable = isinstance(node.value, ast.Call) and ast.unparse(node.value.func) == "TypeVar"
        assert constant or variable, ast.unparse(node)


def test_the_lock_is_hashed_and_names_no_index() -> None:
    """It installs from whatever index a machine uses, and Outlast itself without one."""
    lines = (ROOT / "requirements.lock").read_text(encoding="utf-8").splitlines()
    pins = [line for line in lines if line and not line.startswith((" ", "#"))]
    assert [line for line in pins if "==" not in line] == []
    assert [line for line in lines if "://" in line or line.startswith("--")] == []
    assert any(line.startswith("setuptools==") for line in pins)
    hashes = sum(line.lstrip().startswith("--hash=sha256:") for line in lines)
    assert hashes >= len(pins)
