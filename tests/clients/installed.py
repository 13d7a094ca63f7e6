"""Where `make test-clients` has put the clients from npm."""

import os
from pathlib import Path

HERE = Path(__file__).parent / "node"


def path() -> str:
    """`PATH` with the installed programs first. A Node is among them: distributions have an older one."""
    return f"{HERE / 'node_modules' / '.bin'}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
