"""What the documentation promises about itself."""

import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from outlast import cli
from outlast.protocol.errors import OutlastError
from outlast.settings import Settings

ROOT = Path(__file__).resolve().parents[2]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted(ROOT.glob("docs/**/*.md")), *sorted(ROOT.glob("examples/*.md"))]
DECISIONS = sorted(ROOT.glob("docs/adr/[0-9]*.md"))


def _name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def _classes(kind: type[OutlastError]) -> Iterator[type[OutlastError]]:
    yield kind
    for each in kind.__subclasses__():
        yield from _classes(each)


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_links_of_a_page_resolve(page: Path) -> None:
    """Every relative link names a file or folder of the repository."""
    targets = re.findall(r"\]\(([^)#\s]+)", page.read_text(encoding="utf-8"))
    relative = [target for target in targets if "://" not in target]
    assert [target for target in relative if not (page.parent / target).exists()] == []


def test_the_settings_of_every_page_are_settings() -> None:
    """A TOML block that has one of our sections loads as `outlast.toml`; other programs have their own."""
    text = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    blocks = map(tomllib.loads, re.findall(r"^```toml\n(.*?)^```$", text, re.MULTILINE | re.DOTALL))
    ours = [block for block in blocks if block.keys() & Settings.model_fields.keys()]
    assert [Settings.model_validate(block) for block in ours]


def test_the_commands_of_every_page_are_commands(capsys: pytest.CaptureFixture[str]) -> None:
    """Every `outlast …` in code, with its flags; `outlast approvals` alone names the group."""
    found = []
    for page in PAGES:
        for code in re.findall(r"`([^`\n]+)`", page.read_text(encoding="utf-8")):
            words = shlex.split(code) if re.match(r"(\.venv/bin/)?outlast [a-z]", code) else []
            if words and words[1:] != ["approvals"]:
                found.append(words[1])
                try:
                    cli._parser().parse_args(words[1:])
                except SystemExit:
                    pytest.fail(f"{_name(page)}: {code}: {capsys.readouterr().err}")
    assert set(found) == {"dev", "serve", "api", "worker", "approvals", "conformance"}


def test_the_page_of_errors_is_current() -> None:
    """It is what the generator prints."""
    command = [sys.executable, "-m", "scripts.errors_page"]
    made = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    assert (ROOT / "docs" / "errors.md").read_text(encoding="utf-8") == made.stdout


def test_no_error_has_a_status_that_sdks_retry_or_misread() -> None:
    """Decision 0010."""
    assert [kind.__name__ for kind in _classes(OutlastError) if kind.status in (408, 409, 422)] == []


@pytest.mark.parametrize("decision", DECISIONS, ids=_name)
def test_a_decision_names_what_enforces_it(decision: Path) -> None:
    """It has the template's three sections in order, and paths that exist in the last one."""
    text = decision.read_text(encoding="utf-8")
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == ["Context", "Decision", "Enforced by"]
    enforced = text.split("## Enforced by")[1]
    named = [
        name for name in re.findall(r"`([^`\s]+)`", enforced) if "/" in name or name in ("Makefile", ".importlinter")
    ]
    assert named
    assert [name for name in named if not (ROOT / name).exists()] == []


@pytest.mark.parametrize("decision", DECISIONS, ids=_name)
def test_a_decision_is_short_and_listed(decision: Path) -> None:
    """Context in at most four sentences, decision in one; the index has its title."""
    text = decision.read_text(encoding="utf-8")
    number, title = re.match(r"# (\d{4}) · (.+)\n", text).groups()  # type: ignore[union-attr]  # no match fails the test
    context, rest = text.split("## Context")[1].split("## Decision")
    chosen = rest.split("## Enforced by")[0]
    assert len(_sentences(context)) <= 4
    assert len(_sentences(chosen)) == 1
    assert f"| [{number}]({decision.name}) | {title} |" in (ROOT / "docs/adr/README.md").read_text(encoding="utf-8")


def _sentences(text: str) -> list[str]:
    return [each for each in re.split(r"[.?!]\"?\s+(?=[\"A-Z`]|$)", text.strip() + "\n") if each.strip()]


def test_the_terminology_has_one_row_a_word() -> None:
    """No word is defined twice, and none stands in its own column of words to avoid."""
    rows = re.findall(r"^\| ([^|]+) \| ([^|]+) \| ([^|]+) \|$", _terminology(), re.MULTILINE)[1:]
    words = [word for word, _, _ in rows]
    assert len(words) == len(set(words)) > 30
    assert [word for word, _, avoid in rows if word in avoid.split(", ")] == []


def _terminology() -> str:
    return (ROOT / "docs" / "terminology.md").read_text(encoding="utf-8")
