"""What is wrong with a request, said in the client's words: a path into its own JSON and what to change.

Validators raise what pydantic raises; `explain` turns the first of it into an `InvalidRequest`. Neither the tags of our
unions nor a validator's vocabulary reach the client.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails, PydanticCustomError

from outlast.protocol.errors import InvalidRequest

# Error type of the refusals our own validators raise; their text is the message.
_OURS = "outlast_refusal"

_EXPECTED: Mapping[str, str] = {
    "string_type": "a string",
    "int_type": "an integer",
    "int_from_float": "an integer",
    "float_type": "a number",
    "bool_type": "a boolean",
    "dict_type": "an object",
    "model_type": "an object",
    "model_attributes_type": "an object",
    "list_type": "an array",
    "tuple_type": "an array",
    "finite_number": "a finite number",
}

_BOUNDS: Mapping[str, tuple[str, str]] = {
    "greater_than_equal": ("ge", "at least"),
    "greater_than": ("gt", "more than"),
    "less_than_equal": ("le", "at most"),
    "less_than": ("lt", "less than"),
}

_LENGTHS: Mapping[str, tuple[str, str, str]] = {
    "string_too_long": ("max_length", "at most", "characters"),
    "string_too_short": ("min_length", "at least", "characters"),
    "too_long": ("max_length", "at most", "entries"),
    "too_short": ("min_length", "at least", "entries"),
}


def refusal(text: str, at: str = "") -> PydanticCustomError:
    """An error for a validator to raise about its own value or the field `at` below it (`.server_url`); `text` reaches
    the client as it is, `{param}` in it becomes the path."""
    return PydanticCustomError(_OURS, "{text}", {"text": text, "at": at})


def explain(error: ValidationError, raw: object, prefix: str = "") -> InvalidRequest:
    """The first error of a validation of `raw`, which stands at `prefix` in the body (`""`: it is the body)."""
    details = error.errors(include_url=False)[0]
    param = prefix + path(raw, details["loc"], missing=details["type"] in ("missing", "extra_forbidden"))
    if details["type"] == _OURS:
        param += details["ctx"]["at"]
    if details["type"] in ("union_tag_invalid", "union_tag_not_found"):
        # A discriminator of ours is a function; what it looks at is the type.
        named = details["ctx"]["discriminator"].strip("'")
        param += f".{named}" if named.isidentifier() else ".type"
    param = param.lstrip(".")
    return InvalidRequest(_text(details, param), param=param or None)


def path(raw: object, loc: Sequence[str | int], *, missing: bool = False) -> str:
    """`.a[0].b` for a location in `raw`. Parts that lead nowhere are names of our union members and are left out,
    but for the last one of a `missing` field."""
    text, here = "", raw
    for position, part in enumerate(loc):
        if isinstance(here, dict) and part in here:
            text, here = f"{text}.{part}", here[part]
        elif isinstance(here, list) and isinstance(part, int) and part < len(here):
            text, here = f"{text}[{part}]", here[part]
        elif missing and position == len(loc) - 1:
            text = f"{text}.{part}"
    return text


def kind_of(value: object) -> str:
    """The JSON type of a value, with its article."""
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case int():
            return "an integer"
        case float():
            return "a number"
        case str():
            return "a string"
        case list() | tuple():
            return "an array"
        case _:
            return "an object"


def wrong_type(param: str, expected: str, value: object) -> InvalidRequest:
    """`value` at `param` has another JSON type than `expected` ("a string")."""
    return InvalidRequest(f"Invalid type for '{param}': expected {expected}, got {kind_of(value)}.", param=param)


def wrong_value(param: str, value: str, supported: Sequence[str]) -> InvalidRequest:
    """`value` at `param` is none of a closed set."""
    names = ", ".join(f"'{name}'" for name in supported)
    return InvalidRequest(f"Invalid value for '{param}': {_shown(value)}. Supported values are: {names}.", param=param)


def absent(param: str) -> InvalidRequest:
    """A field that must be there is not."""
    return InvalidRequest(f"Missing required parameter: '{param}'.", param=param)


def _text(details: ErrorDetails, param: str) -> str:
    kind, value = details["type"], details["input"]
    context: dict[str, Any] = details.get("ctx") or {}
    where = f"'{param}'" if param else "the request body"
    say: Callable[[str], str] = lambda what: f"Invalid value for {where}: {what}."  # noqa: E731 (one sentence, many ends)
    if kind == _OURS:
        return str(context["text"]).replace("{param}", param)
    if kind in ("missing", "union_tag_not_found"):
        return f"Missing required parameter: {where}."
    if kind == "extra_forbidden":
        return f"Unknown parameter: {where}. Remove it."
    if kind in _EXPECTED:
        return f"Invalid type for {where}: expected {_EXPECTED[kind]}, got {kind_of(value)}."
    if kind in ("literal_error", "enum"):
        expected = str(context["expected"]).replace(" or ", ", ")
        return f"Invalid value for {where}: {_shown(value)}. Supported values are: {expected}."
    if kind == "union_tag_invalid":
        return f"Invalid value for {where}: {_shown(context['tag'])}. Supported values are: {context['expected_tags']}."
    if kind in _BOUNDS:
        key, words = _BOUNDS[kind]
        return say(f"{_shown(value)} must be {words} {context[key]}")
    if kind in _LENGTHS:
        key, words, unit = _LENGTHS[kind]
        return say(f"it must have {words} {context[key]} {unit}")
    if kind == "string_pattern_mismatch":
        return say(f"{_shown(value)} must match {context['pattern']}")
    return say("it is not of a form this server knows")


def _shown(value: object) -> str:
    """A value as an error may show it: short, so that content is not echoed."""
    text = repr(value) if isinstance(value, str) else str(value)
    return text if len(text) <= 80 else f"{text[:77]}…"
