"""The `tool_choice` of a model round, in the names the model sees."""

from typing import assert_never

from outlast.loop.bindings import Bindings
from outlast.loop.state import ToolChoice
from outlast.protocol import hosted
from outlast.protocol.json import JsonObject


def model_choice(given: str | JsonObject | None, choice: ToolChoice, bindings: Bindings) -> str | JsonObject | None:
    """What the upstream is sent. `given`: the request's; a later round gets `auto`, but a restriction stays."""
    match choice:
        case ToolChoice.NONE:
            return "none"
        case ToolChoice.GIVEN:
            return _translated(given, bindings)
        case ToolChoice.AUTO:
            if given == "none":
                return "none"
            if isinstance(given, dict) and given["type"] == "allowed_tools":
                return _translated({**given, "mode": "auto"}, bindings)
            return None if given is None else "auto"
        case _:
            assert_never(choice)


def _translated(given: str | JsonObject | None, bindings: Bindings) -> str | JsonObject | None:
    if not isinstance(given, dict):
        return given
    match given["type"]:
        case "mcp":
            found = _gateway_tools(given, bindings)
            return found[0] if len(found) == 1 else _allowed("required", found)
        case "allowed_tools":
            found = [ref for tool in given["tools"] for ref in _refs(tool, bindings)]
            return _allowed(given["mode"], found)
        case _:
            return _hosted(given, bindings) or given


def _refs(tool: JsonObject, bindings: Bindings) -> list[JsonObject]:
    if tool["type"] == "mcp":
        return _gateway_tools(tool, bindings)
    return [_hosted(tool, bindings) or tool]


def _hosted(tool: JsonObject, bindings: Bindings) -> JsonObject | None:
    """The function a hosted type is to the model, where it runs here."""
    kind = hosted.key_of(tool["type"])
    return {"type": "function", "name": kind} if kind in bindings.hosted else None


def _gateway_tools(tool: JsonObject, bindings: Bindings) -> list[JsonObject]:
    """A server's tools, or one of them; nothing when its listing does not have it."""
    wanted = tool.get("name")
    return [
        {"type": "function", "name": bound.internal_name}
        for bound in bindings.tools
        if bound.label == tool["server_label"] and wanted in (None, bound.name)
    ]


def _allowed(mode: str, refs: list[JsonObject]) -> JsonObject | str:
    # Forcing one of no tools would be refused by every upstream.
    return {"type": "allowed_tools", "mode": mode, "tools": refs} if refs else "none"
