"""What others got wrong has a test here: `tests/rules.toml` maps each rule to those that hold it."""

import ast
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# Faults met on other servers, by group: streams, the tool loop, history, reasoning, tolerance, compaction.
REQUIRED = {
    *("A1", "A2", "A3", "A6"),
    *("B1", "B2"),
    *("D1", "D2", "D3", "D4", "D6", "D9"),
    *("E1", "E2"),
    *("F1", "F2"),
    *("P1", "P2", "P4"),
}


def functions_of(path: Path) -> set[str]:
    """Names of the functions of a file."""
    nodes = ast.parse(path.read_text(encoding="utf-8")).body
    return {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def test_every_rule_has_tests_that_exist() -> None:
    """A rule without one, or a test that was renamed away, fails."""
    rules = tomllib.loads((ROOT / "tests" / "rules.toml").read_text(encoding="utf-8"))
    assert set(rules) == REQUIRED
    missing = []
    for name, rule in rules.items():
        assert set(rule) == {"rule", "tests"}, name
        assert rule["tests"], name
        for test in rule["tests"]:
            path, _, function = test.partition("::")
            here = (ROOT / path).is_file() and function.startswith("test_") and function in functions_of(ROOT / path)
            if not here:
                missing.append((name, test))
    assert missing == []
