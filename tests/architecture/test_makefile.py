"""Claims about the Makefile, run in an empty folder with programs that only tell how they were called."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# In the place of Python: what it is told, and whether a key would reach a real model server.
TELLS = '#!/bin/sh\necho "ran: $*"\necho "key: ${OPENAI_API_KEY:-none} at ${OPENAI_BASE_URL:-nowhere}"\n'


def make(folder: Path, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    """`make` there, by somebody who has a model server of their own. `more`: of the environment."""
    foreign = {"OPENAI_API_KEY": "a-key", "OPENAI_BASE_URL": "http://127.0.0.1:9/v1"}
    # Not those of the `make test` that runs this.
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("MAKE", "MFLAGS"))}
    command = [shutil.which("make") or "make", "-f", str(ROOT / "Makefile"), *arguments]
    given = {**environment, **foreign, **more}
    return subprocess.run(command, cwd=folder, env=given, text=True, capture_output=True)


def program(path: Path, text: str) -> Path:
    """A script at `path`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A clone, as far as make looks at it; a space in its path."""
    folder = tmp_path / "a clone"
    folder.mkdir()
    for name in ("requirements.lock", "pyproject.toml"):
        (folder / name).touch()
    return folder


@pytest.fixture
def ready(folder: Path) -> Path:
    """One whose environment is set up; its Python tells."""
    program(folder / ".venv/bin/python", TELLS)
    (folder / ".venv/.outlast-setup").touch()
    return folder


def test_a_python_without_venv_is_answered_with_the_package_to_install(folder: Path) -> None:
    """Debian keeps `ensurepip` apart."""
    python = program(folder / "python", '#!/bin/sh\ncase "$*" in *ensurepip*) exit 1;; esac\n')
    made = make(folder, "run", f"PYTHON=./{python.name}")
    assert made.returncode != 0
    assert "sudo apt-get install python3-venv" in made.stderr
    assert not (folder / ".venv").exists()


def test_an_old_python_is_named(folder: Path) -> None:
    """With the way to choose another."""
    python = program(folder / "python", '#!/bin/sh\ncase "$*" in *version_info*) exit 1;; esac\n')
    made = make(folder, "test", f"PYTHON=./{python.name}")
    assert made.returncode != 0
    assert "needs Python 3.11 or newer" in made.stderr


@pytest.mark.parametrize(
    ("target", "runs"), [("test", "-m pytest"), ("demo", "-m outlast.demo"), ("bench", "-m bench")]
)
def test_tests_demo_and_benchmark_never_reach_a_real_model_server(ready: Path, target: str, runs: str) -> None:
    """Whatever `OPENAI_*` says outside."""
    ran, key = make(ready, target).stdout.splitlines()
    assert ran.startswith(f"ran: {runs}")
    assert key == "key: none at nowhere"


def test_run_takes_the_model_server_of_the_environment(ready: Path) -> None:
    """That is how a real model is put behind it."""
    program(ready / ".venv/bin/outlast", TELLS)
    assert make(ready, "run").stdout.splitlines() == ["ran: dev", "key: a-key at http://127.0.0.1:9/v1"]


def test_check_asks_every_judge(ready: Path) -> None:
    """Linter, format, types, imports, sizes, spelling; each may fail it."""
    ran = [line for line in make(ready, "check").stdout.splitlines() if line.startswith("ran: ")]
    judges = ["ruff check", "ruff format --check", "mypy", "importlinter", "check_sizes.py", "codespell"]
    assert len(ran) == len(judges)
    assert all(judge in line for judge, line in zip(judges, ran, strict=True)), ran


def test_nothing_is_installed_again_until_the_lock_changes(ready: Path) -> None:
    """A second run needs no network."""
    assert make(ready, "setup", "PYTHON=false").stdout == ""
    later = (ready / ".venv/.outlast-setup").stat().st_mtime + 10
    os.utime(ready / "requirements.lock", (later, later))
    assert make(ready, "setup", "PYTHON=true").stdout.splitlines()[0].startswith("setup: installing the packages")


@pytest.mark.parametrize(("there", "missing"), [("npm", "node"), ("node", "npm")])
def test_a_client_s_program_that_is_missing_is_named(ready: Path, there: str, missing: str) -> None:
    """With the package to install."""
    programs = program(ready / "programs" / there, TELLS).parent
    for name in ("package.json", "package-lock.json"):
        (ready / "tests/clients/node").mkdir(parents=True, exist_ok=True)
        (ready / "tests/clients/node" / name).touch()
    made = make(ready, "test-clients", PATH=str(programs))
    assert made.returncode != 0
    assert f"needs {missing}, which is not here" in made.stderr
    assert "sudo apt-get install nodejs npm" in made.stderr
