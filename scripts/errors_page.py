"""Print docs/errors.md, made from the exception tree and from the places that raise it with a code of their own.

Usage: .venv/bin/python -m scripts.errors_page > docs/errors.md
"""

import ast
import inspect
import sys
from collections.abc import Iterator
from pathlib import Path

from outlast.protocol import errors, responses
from outlast.protocol.errors import OutlastError
from outlast.sections import LimitSettings

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ("outlast", "api", "activities")

HEAD = """\
# Errors

Generated from `outlast/protocol/errors.py`; after a change there run
`.venv/bin/python -m scripts.errors_page > docs/errors.md`.

Every refused request is answered with the envelope of the OpenAI API, all four keys always there:

```json
{"error": {"message": "…", "type": "invalid_request_error", "param": "tools[0].type", "code": "unsupported_feature"}}
```

* `x-request-id` is on every answer; a 500 quotes it and tells nothing else.
* `x-should-retry: false` is on what Outlast has already retried: an upstream's failure, a response that failed.
* No answer has status 409 or 422: the official SDKs send a request again after 409, and a refusal must be final.
* Once a model round or a tool call is committed, a failure is no HTTP error any more: JSON is 200 with
  `status: "failed"`, a stream ends with `response.failed`. Both carry `error: {code, message, type}`. Before that the
  POST itself is refused, and `x-outlast-response-id` names the failed response, which stays readable.
"""

CLASSES = """
## By class

*Retried*: a step that meets it is tried again by Temporal before anybody sees the failure.

| Class | Status | `type` | `code` | Retried | Meaning |
|---|---|---|---|---|---|
"""

CODES = """
## More codes

Given where the error is raised, instead of the code of its class.

| `code` | Class | Raised in |
|---|---|---|
"""

ENDINGS = """
## Codes of a failed response

`response.error.code` is from a closed set. Most failures end as `server_error`; an upstream's own code is kept when it
is one of these.

"""

LIMITS = """
## Limits

`[limits]` of `outlast.toml`, each also as `OUTLAST_LIMITS__NAME`. A refusal names the limit.

| Limit | Default | Of what |
|---|---|---|
"""

INTERNAL = """
## Never on the wire

| Class | Meaning |
|---|---|
"""

# What the class alone does not tell.
STATUS_TEXT: dict[type[OutlastError], str] = {errors.UpstreamRefused: "as upstream"}
NEVER_ANSWERED = (errors.StaleFence, errors.ResponseEnded, errors.ConfigurationError)


def descendants(kind: type[OutlastError]) -> Iterator[type[OutlastError]]:
    """All classes below, in the order of the tree."""
    for each in kind.__subclasses__():
        if each.__module__ == errors.__name__:
            yield each
            yield from descendants(each)


def meaning(kind: type[OutlastError]) -> str:
    """The docstring as one line of a table."""
    return " ".join((inspect.getdoc(kind) or "").split()).replace("|", "\\|")


def class_row(kind: type[OutlastError]) -> str:
    """One line of the first table."""
    status = STATUS_TEXT.get(kind, str(kind.status))
    code = f"`{kind.default_code}`" if kind.default_code else "none"
    retried = "yes" if kind.retryable else "no"
    return f"| {kind.__name__} | {status} | `{kind.type}` | {code} | {retried} | {meaning(kind)} |\n"


def raised_codes() -> list[tuple[str, str, str]]:
    """(code, class, file) of every call of a class of the tree that gives a literal code."""
    names = {kind.__name__ for kind in descendants(OutlastError)}
    found = set()
    for path in sorted(path for folder in SOURCES for path in (ROOT / folder).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and (kind := _called(node)) in names:
                for keyword in node.keywords:
                    if keyword.arg == "code" and isinstance(keyword.value, ast.Constant) and keyword.value.value:
                        found.add((str(keyword.value.value), kind, path.relative_to(ROOT).as_posix()))
    return sorted(found)


def _called(node: ast.Call) -> str:
    match node.func:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case _:
            return ""


def page() -> str:
    """The whole page."""
    kinds = list(descendants(OutlastError))
    shown = "".join(class_row(kind) for kind in kinds if kind not in NEVER_ANSWERED)
    codes = "".join(f"| `{code}` | {kind} | `{file}` |\n" for code, kind, file in raised_codes())
    closed = ", ".join(f"`{code}`" for code in sorted(responses.ERROR_CODES)) + "\n"
    limits = "".join(
        f"| `{name}` | {field.default} | {field.description} |\n" for name, field in LimitSettings.model_fields.items()
    )
    internal = "".join(f"| {kind.__name__} | {meaning(kind)} |\n" for kind in NEVER_ANSWERED)
    return HEAD + CLASSES + shown + CODES + codes + ENDINGS + closed + LIMITS + limits + INTERNAL + internal


if __name__ == "__main__":
    sys.stdout.write(page())
