"""`input` of a request as canonical items, and as the rows that are stored of them.

Every type we can emit is accepted, unknown types are carried along (behaviour.md §2). What is refused is refused by
name, with the path of the value that has to change.
"""

from collections.abc import Callable, Sequence

from pydantic import ValidationError

from outlast.protocol import invalid
from outlast.protocol.content import canonical_content
from outlast.protocol.errors import InvalidRequest
from outlast.protocol.items import Item, dump, parse_item
from outlast.protocol.json import JsonObject

_ROLES = ("user", "assistant", "system", "developer")
_OUTPUTS = frozenset({"function_call_output", "custom_tool_call_output"})
_CALLS = frozenset({"function_call", "custom_tool_call"})
# Stored items of these types have a status; the others have none in the API or keep what they came with.
_WITH_STATUS = _OUTPUTS | _CALLS | {"message"}
_MAX_CALL_ID = 64
_MAX_ID = 200


def parse_input(raw: object, *, max_items: int) -> tuple[Item, ...]:
    """Canonical items of `input`: a string is one user message. Raises: InvalidRequest."""
    match raw:
        case None:
            return ()
        case str():
            return (_parse({"type": "message", "role": "user", "content": raw}, "input", content="input"),)
        case list():
            return parse_items(raw, "input", max_items=max_items, setting="limits.max_items")
        case _:
            raise invalid.wrong_type("input", "a string or an array of items", raw)


def parse_items(raw: object, param: str, *, max_items: int, setting: str | None = None) -> tuple[Item, ...]:
    """Canonical items of a list. `setting`: where the limit is. Raises: InvalidRequest."""
    if not isinstance(raw, list):
        raise invalid.wrong_type(param, "an array of items", raw)
    if len(raw) > max_items:
        where = "" if setting is None else f" ({setting})"
        raise InvalidRequest(f"'{param}' has {len(raw)} items: at most {max_items} are allowed{where}.", param=param)
    return tuple(_parse(item, f"{param}[{index}]") for index, item in enumerate(raw))


def _parse(raw: object, param: str, *, content: str | None = None) -> Item:
    if not isinstance(raw, dict):
        raise invalid.wrong_type(param, "an object", raw)
    kind = raw.get("type")
    if kind is not None and not isinstance(kind, str):
        raise invalid.wrong_type(f"{param}.type", "a string", kind)
    _check_id(raw, param)
    body = _canonical(raw, kind, param, content or f"{param}.content")
    try:
        return parse_item(body)
    except ValidationError as error:
        raise invalid.explain(error, body, param) from error


def _check_id(raw: JsonObject, param: str) -> None:
    item_id = raw.get("id")
    if item_id is None:
        return
    if not isinstance(item_id, str):
        raise invalid.wrong_type(f"{param}.id", "a string", item_id)
    # Whoever made it chose its characters; only what no database keeps is refused.
    if len(item_id) > _MAX_ID or not item_id.isprintable():
        raise InvalidRequest(
            f"'{param}.id' is not an id: at most {_MAX_ID} printable characters are allowed.", param=f"{param}.id"
        )


def _canonical(raw: JsonObject, kind: str | None, param: str, content: str) -> JsonObject:
    """The item in stored form, `type` written out."""
    if kind is None:
        if "role" not in raw and raw.get("id") is None:
            raise invalid.absent(f"{param}.type")
        kind = "message" if "role" in raw else "item_reference"
    body = {**raw, "type": kind}
    if not body.get("id"):
        body.pop("id", None)  # null and "" are how some clients say that they have none
    if kind == "message":
        return _message(body, param, content)
    if kind in _OUTPUTS or kind in _CALLS:
        _check_call_id(body, param)
    if kind == "compaction" and not isinstance(body.get("encrypted_content"), str):
        raise invalid.wrong_type(f"{param}.encrypted_content", "a string", body.get("encrypted_content"))
    if kind in _OUTPUTS and isinstance(body.get("output"), list):
        body["output"] = canonical_content(body["output"], f"{param}.output", assistant=False)
    # Null is what "left out" looks like in many clients; strict readers of stored items want it left out.
    return {key: value for key, value in body.items() if value is not None} if kind in _WITH_STATUS else body


def _message(body: JsonObject, param: str, content: str) -> JsonObject:
    role = body.get("role")
    if role is None:
        raise invalid.absent(f"{param}.role")
    if not isinstance(role, str) or role not in _ROLES:
        raise invalid.wrong_value(f"{param}.role", str(role), _ROLES)
    if "content" not in body:
        raise invalid.absent(f"{param}.content")
    body["content"] = canonical_content(body["content"], content, assistant=role == "assistant")
    return {key: value for key, value in body.items() if value is not None}


def _check_call_id(body: JsonObject, param: str) -> None:
    call_id = body.get("call_id")
    if call_id is None:
        raise invalid.absent(f"{param}.call_id")
    if not isinstance(call_id, str):
        raise invalid.wrong_type(f"{param}.call_id", "a string", call_id)
    if not 1 <= len(call_id) <= _MAX_CALL_ID:
        raise InvalidRequest(
            f"'{param}.call_id' has {len(call_id)} characters: 1 to {_MAX_CALL_ID} are allowed.",
            param=f"{param}.call_id",
        )


def stored(items: Sequence[Item], mint: Callable[[str], str]) -> list[JsonObject]:
    """Items as they are stored and listed: each with an id (`mint(type)` gives one where the client gave none), and a
    status where its type has one."""
    bodies = []
    for item in items:
        body = dump(item)
        if body.get("id") is None:
            body["id"] = mint(body["type"])
        if body["type"] in _WITH_STATUS:
            body.setdefault("status", "completed")
        bodies.append(body)
    return bodies
