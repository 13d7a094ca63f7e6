"""Compile modules once a process, however often the workflow sandbox imports them anew.

The sandbox does so for every run, from bytecode where Python may write it. Where it may not (PYTHONDONTWRITEBYTECODE,
an installation that is read-only, as in most containers) each run would compile the workflow's source on the worker's
event loop: 9 ms, as much as all else the loop does for a bare workflow.
"""

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from types import CodeType, ModuleType


class _Once(SourceFileLoader):
    """A loader that keeps what it compiled."""

    _code: CodeType | None = None

    def get_code(self, fullname: str) -> CodeType | None:
        """See the base class."""
        if self._code is None:
            self._code = super().get_code(fullname)
        return self._code


class _Finder(MetaPathFinder):
    """Finds one module, always through the same loader."""

    def __init__(self, name: str, path: str) -> None:
        self._name, self._path = name, path
        self._loader = _Once(name, path)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """See the base class."""
        if fullname != self._name:
            return None
        return spec_from_file_location(fullname, self._path, loader=self._loader)


_finders: dict[str, _Finder] = {}


def compile_once(*modules: ModuleType) -> None:
    """From now on, whoever imports one of these anew gets its code from memory."""
    for module in modules:
        name, path = module.__name__, module.__file__
        if path is not None and name not in _finders:
            _finders[name] = _Finder(name, path)
            sys.meta_path.insert(0, _finders[name])
