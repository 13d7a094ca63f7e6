"""Print docs/configuration.md, made from the types of the settings.

Usage: .venv/bin/python -m scripts.configuration_page > docs/configuration.md
"""

import inspect
import json
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from outlast.settings import Settings

EXAMPLE = Path(__file__).resolve().parent.parent / "examples" / "outlast.toml"

HEAD = """\
# Configuration

Generated from `outlast/settings.py` and `outlast/sections.py`; after a change there run
`.venv/bin/python -m scripts.configuration_page > docs/configuration.md`.

Flags come before the environment, that before the file `outlast.toml` (or `--config FILE`), that before the defaults.
In the environment a key is `OUTLAST_SECTION__KEY`: `OUTLAST_LIMITS__MAX_ROUNDS=32`,
`OUTLAST_UPSTREAMS__LOCAL__BASE_URL=http://127.0.0.1:8000/v1`. A key nobody knows is an error that says where it was
given. Without configured upstreams, `OPENAI_BASE_URL` and `OPENAI_API_KEY` are the upstream. Secrets are never in the
file: it names the environment variable that holds one.
"""


def sections(kind: type[BaseModel], place: str = "") -> Iterator[tuple[str, type[BaseModel]]]:
    """(header in the file, type) of every section, outer ones first."""
    yield place, kind
    for name, field in kind.model_fields.items():
        below = f"{place}.{name}".removeprefix(".")
        if inner := _section(field.annotation):
            yield from sections(inner, below)
        elif get_origin(field.annotation) is dict and (inner := _section(get_args(field.annotation)[1])):
            yield from sections(inner, f"{below}.{'TOOL' if name == 'tools' else 'NAME'}")


def _section(kind: object) -> type[BaseModel] | None:
    return kind if inspect.isclass(kind) and issubclass(kind, BaseModel) else None


def _is_section(field: FieldInfo) -> bool:
    kind = field.annotation
    return _section(kind) is not None or (get_origin(kind) is dict and _section(get_args(kind)[1]) is not None)


def spelled(kind: object) -> str:
    """A type in the words of a reader of TOML."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return spelled(inner[0])
    if origin in (Union, types.UnionType):
        return spelled(next(each for each in inner if each is not type(None)))
    if origin is Literal:
        return ", ".join(f"`{each}`" for each in inner)
    if origin is dict:
        return "table"
    return {str: "text", Path: "path", bool: "true, false", int: "integer", float: "number"}[kind]  # type: ignore[index]  # one of these


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    if value is None or value == {}:
        return "none"
    return f"`{json.dumps(value, default=str)}`"


def rows(kind: type[BaseModel]) -> Iterator[str]:
    """The table of one section; sections inside it have their own."""
    for name, field in kind.model_fields.items():
        if not _is_section(field):
            yield f"| `{name}` | {spelled(field.annotation)} | {_default(field)} | {field.description} |\n"


def page() -> str:
    """The whole page."""
    parts = [HEAD]
    for place, kind in sections(Settings):
        table = "".join(rows(kind))
        if not table:
            continue
        title, said = ("Top of the file", "") if not place else (f"`[{place}]`", _said(kind))
        parts.append(f"\n## {title}\n\n{said}| Key | Values | Default | |\n|---|---|---|---|\n{table}")
    parts.append(f"\n## Example\n\n`examples/outlast.toml`:\n\n```toml\n{EXAMPLE.read_text(encoding='utf-8')}```\n")
    return "".join(parts)


def _said(kind: type[BaseModel]) -> str:
    """The docstring behind the name of its section."""
    text = inspect.getdoc(kind) or ""
    said = text.partition(": ")[2]
    return f"{said[:1].upper()}{said[1:]}\n\n"


if __name__ == "__main__":
    sys.stdout.write(page())
