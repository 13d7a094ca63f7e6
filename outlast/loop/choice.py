"""The `tool_choice` of a model round, in the names the model sees."""

from typing import assert_never

from outlast.loop.bindings import Bindings
from outlast.loop.state import ToolChoice
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
            names = _gateway_names(given, bindings)
            if len(names) == 1:
                return {"type": "function", "name": names[0]}
            return _allowed("required", names)
        case "allowed_tools":
            names = [name for tool in given["tools"] for name in _names(tool, bindings)]
            return _allowed(given["mode"], names)
        case _:
            return given


def _names(tool: JsonObject, bindings: Bindings) -> list[str]:
    return _gateway_names(tool, bindings) if tool["type"] == "mcp" else [tool["name"]]


def _gateway_names(tool: JsonObject, bindings: Bindings) -> list[str]:
    """Names of a server's tools, or of one of them; nothing when its listing does not have it."""
    wanted = tool.get("name")
    return [
        bound.internal_name
        for bound in bindings.tools
        if bound.label == tool["server_label"] and wanted in (None, bound.name)
    ]


def _allowed(mode: str, names: list[str]) -> JsonObject | str:
    # Forcing one of no tools would be refused by every upstream.
    if not names:
        return "none"
    return {"type": "allowed_tools", "mode": mode, "tools": [{"type": "function", "name": name} for name in names]}
