"""The workflow's module is compiled once a process, however often it is imported anew."""

import importlib
import sys
from pathlib import Path

import pytest

from outlast.compiled import compile_once


def test_a_module_imported_anew_gets_its_code_from_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own state is new each time; its source is not read again."""
    name = "compiled_once_for_a_test"
    source = tmp_path / f"{name}.py"
    source.write_text("seen = []\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    first = importlib.import_module(name)
    compile_once(first)
    compile_once(first)

    def again() -> list[str]:
        monkeypatch.delitem(sys.modules, name)
        seen: list[str] = importlib.import_module(name).seen
        return seen

    again().append("run 1")
    source.unlink()
    assert again() == []
