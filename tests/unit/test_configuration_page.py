"""Claims about docs/configuration.md."""

from pathlib import Path

import pytest

from outlast import settings
from outlast.settings import Settings
from scripts import configuration_page

ROOT = Path(__file__).resolve().parents[2]


def test_the_page_is_what_the_settings_say() -> None:
    """After a change: `.venv/bin/python -m scripts.configuration_page > docs/configuration.md`."""
    assert (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8") == configuration_page.page()


def test_every_setting_says_what_it_is() -> None:
    """In its type, for the page."""
    silent = [
        f"{place}.{name}"
        for place, kind in configuration_page.sections(Settings)
        for name, field in kind.model_fields.items()
        if not field.description
    ]
    assert silent == []


def test_the_example_is_read_and_has_every_section(monkeypatch: pytest.MonkeyPatch) -> None:
    """But `store`, which has one key that is for another database."""
    for name in ("OPENAI_BASE_URL", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    loaded = settings.load(configuration_page.EXAMPLE)
    assert loaded.model_fields_set >= {"upstreams", "models", "mcp", "temporal", "approvals", "limits", "tools"}
    assert loaded.route("coder") == settings.ModelRoute("local", "Qwen/Qwen3-Coder", images=False)
