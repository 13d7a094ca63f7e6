"""The size ceiling: no Python file over 400 lines, no function over 60. Exit code 1 if something is.

Usage: python scripts/check_sizes.py PATH...
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 60


def breaches(path: Path) -> Iterator[str]:
    """One line of text for each thing that is too long in one file."""
    text = path.read_text(encoding="utf-8")
    lines = len(text.splitlines())
    if lines > MAX_FILE_LINES:
        yield f"{path}: {lines} lines, at most {MAX_FILE_LINES}"
    for node in ast.walk(ast.parse(text, filename=str(path))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            # Without decorators: they are declarations, not steps.
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > MAX_FUNCTION_LINES:
                yield f"{path}:{node.lineno}: {node.name} has {length} lines, at most {MAX_FUNCTION_LINES}"


def python_files(roots: list[str]) -> Iterator[Path]:
    """Every Python file named or below a folder named."""
    for root in map(Path, roots):
        yield from sorted(root.rglob("*.py")) if root.is_dir() else [root]


def main(roots: list[str]) -> int:
    """The exit code."""
    found = [breach for path in python_files(roots) for breach in breaches(path)]
    for breach in found:
        sys.stdout.write(breach + "\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
