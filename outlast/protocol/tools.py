"""Tools and tool choices: functions of the client, MCP servers, and what only a model server knows (`native`).

A tool keeps what it does not know (`extra="allow"`), because a response echoes what the client sent; `public` leaves
out the two fields that are secrets of one request, `authorization` and `headers`.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, TypeAdapter, ValidationError, model_validator

from outlast.protocol import invalid, native
from outlast.protocol.errors import InvalidRequest, UnsupportedFeature
from outlast.protocol.json import JsonObject
from outlast.protocol.native import NativeTool

_NAME = r"^[a-zA-Z0-9_-]{1,64}$"
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


class _Wire(BaseModel):
    model_config = ConfigDict(frozen=True, extra="allow", strict=True)


class FunctionTool(_Wire):
    """A function the client runs."""

    type: Literal["function"]
    name: str = Field(pattern=_NAME)
    description: str | None = None
    parameters: JsonObject | None = None
    strict: bool | None = None


class ToolFilter(_Wire):
    """Which tools of a server: all given criteria must hold; without any it selects nothing in particular."""

    tool_names: list[str] | None = None
    read_only: bool | None = None

    @property
    def empty(self) -> bool:
        """No criterion is given."""
        return self.tool_names is None and self.read_only is None


class ApprovalPolicy(_Wire):
    """Who asks and who never does; a tool matched by neither asks."""

    model_config = ConfigDict(extra="forbid")

    always: ToolFilter | None = None
    never: ToolFilter | None = None


def _printable(text: str) -> bool:
    return text.isascii() and text.isprintable()


def _by_shape(value: Any) -> str:
    return "object" if isinstance(value, dict | BaseModel) else "plain"


RequireApproval = Annotated[
    Annotated[Literal["always", "never"], Tag("plain")] | Annotated[ApprovalPolicy, Tag("object")],
    Discriminator(_by_shape),
]
AllowedTools = Annotated[
    Annotated[list[str], Tag("plain")] | Annotated[ToolFilter, Tag("object")], Discriminator(_by_shape)
]


class McpTool(_Wire):
    """An MCP server whose tools the gateway runs, by its address or by the name the operator gave it (`connector_id`).

    `require_approval` None means always; `required` is our extension: a server that cannot be listed then fails the
    response.
    """

    type: Literal["mcp"]
    server_label: str = Field(pattern=_NAME)
    server_url: str | None = None
    connector_id: str | None = None
    headers: dict[str, str] | None = Field(default=None, repr=False)
    authorization: str | None = Field(default=None, repr=False)
    allowed_tools: AllowedTools | None = None
    require_approval: RequireApproval | None = None
    server_description: str | None = None
    required: bool | None = None

    @model_validator(mode="after")
    def _reachable(self) -> Self:
        if self.server_url is None:
            if self.connector_id is None:
                raise invalid.refusal("Missing required parameter: '{param}'.", ".server_url")
            return self
        if self.connector_id is not None:
            raise invalid.refusal("'{param}' is given besides 'server_url': give one of them.", ".connector_id")
        try:
            url = urlsplit(self.server_url)
            ok = url.scheme in ("http", "https") and bool(url.hostname) and url.port != 0
        except ValueError:
            ok = False
        if not ok:
            raise invalid.refusal("'{param}' must be an http:// or https:// URL with a host.", ".server_url")
        if url.username is not None or url.password is not None:
            # The URL is echoed and stored in the open.
            raise invalid.refusal(
                "'{param}' must not carry a user or password: use 'authorization' or 'headers'.", ".server_url"
            )
        return self

    @model_validator(mode="after")
    def _sendable(self) -> Self:
        named = {name.lower() for name in self.headers or {}}
        if self.authorization is not None and "authorization" in named:
            raise invalid.refusal(
                "'{param}' is given besides an Authorization header in 'headers': give one of them.", ".authorization"
            )
        if self.authorization is not None and not _printable(self.authorization):
            raise invalid.refusal("'{param}' must be printable ASCII without line breaks.", ".authorization")
        for name, value in (self.headers or {}).items():
            if _HEADER_NAME.fullmatch(name) is None or not _printable(value):
                raise invalid.refusal(
                    f"'{{param}}' has a header {name[:64]!r} that cannot be sent: names are HTTP tokens, values "
                    "printable ASCII without line breaks.",
                    ".headers",
                )
        return self

    def address(self, connectors: Mapping[str, str]) -> str:
        """Its URL. `connectors`: of configured servers, by name. Raises: InvalidRequest for a name that is none."""
        if self.server_url is not None:
            return self.server_url
        name = self.connector_id or ""
        if name not in connectors:
            known = ", ".join(sorted(connectors)) or "none"
            raise InvalidRequest(
                f"'connector_id' of MCP server {self.server_label!r} is {name[:64]!r}, which is no server of this "
                f"deployment (known: {known}). Give its address as 'server_url', or have the operator configure "
                f"[mcp.servers.{name[:64]}].",
                param="tools",
            )
        return connectors[name]

    def secrets(self) -> dict[str, str]:
        """The headers this request brings for the server, `authorization` as a bearer token; empty when none."""
        bearer = {} if self.authorization is None else {"Authorization": f"Bearer {self.authorization}"}
        return {**(self.headers or {}), **bearer}


Tool = FunctionTool | McpTool | NativeTool


class FunctionChoice(_Wire):
    """Force one function."""

    type: Literal["function"]
    name: str


class McpChoice(_Wire):
    """Force a server, or one of its tools."""

    type: Literal["mcp"]
    server_label: str
    name: str | None = None


def _ref_kind(value: Any) -> str:
    kind = value.get("type") if isinstance(value, dict) else getattr(value, "type", None)
    return kind if kind in ("function", "mcp") else "native"


# A choice of another tool is its type, for a custom tool with its name: it has the form of the tool.
ToolRef = Annotated[
    Annotated[FunctionChoice, Tag("function")]
    | Annotated[McpChoice, Tag("mcp")]
    | Annotated[NativeTool, Tag("native")],
    Discriminator(_ref_kind),
]


class AllowedToolsChoice(_Wire):
    """A hard restriction to some of the declared tools."""

    type: Literal["allowed_tools"]
    mode: Literal["auto", "required"]
    tools: list[ToolRef] = Field(min_length=1, max_length=128)


ToolChoice = Literal["none", "auto", "required"] | FunctionChoice | McpChoice | NativeTool | AllowedToolsChoice

_CHOICES: dict[str, type[FunctionChoice | McpChoice | AllowedToolsChoice]] = {
    "function": FunctionChoice,
    "mcp": McpChoice,
    "allowed_tools": AllowedToolsChoice,
}
_MODES = ("none", "auto", "required")
_function: TypeAdapter[FunctionTool] = TypeAdapter(FunctionTool)
_mcp: TypeAdapter[McpTool] = TypeAdapter(McpTool)
_native: TypeAdapter[NativeTool] = TypeAdapter(NativeTool)


def parse_tools(raw: Sequence[object]) -> tuple[Tool, ...]:
    """The tools of a request or of its echo. Raises: InvalidRequest, UnsupportedFeature; `param` is `tools[i]…`."""
    tools = tuple(_parse_tool(value, f"tools[{index}]") for index, value in enumerate(raw))
    _refuse_doubles(tools)
    return tools


def _parse_tool(raw: object, param: str) -> Tool:
    if not isinstance(raw, dict):
        raise invalid.wrong_type(param, "an object", raw)
    kind = raw.get("type")
    if kind is None:
        raise invalid.absent(f"{param}.type")
    if not isinstance(kind, str):
        raise invalid.wrong_type(f"{param}.type", "a string", kind)
    try:
        match kind:
            case "function":
                return _function.validate_python(_flat(raw, param))
            case "mcp":
                return _mcp.validate_python(_by_url(raw, param))
            case _:
                return _without_secrets(_native.validate_python(raw), param)
    except ValidationError as error:
        raise invalid.explain(error, raw, param) from error


def _flat(raw: JsonObject, param: str) -> JsonObject:
    if "name" not in raw and isinstance(raw.get("function"), dict):
        raise InvalidRequest(
            f"Missing required parameter: '{param}.name'. Functions are flat here: move 'name', 'description' and "
            f"'parameters' out of '{param}.function'.",
            param=f"{param}.name",
        )
    return raw


def _by_url(raw: JsonObject, param: str) -> JsonObject:
    if raw.get("tunnel_id") is not None:
        raise UnsupportedFeature(
            f"'{param}.tunnel_id' is not supported: give the server's address as 'server_url'.",
            param=f"{param}.tunnel_id",
        )
    return raw


def _without_secrets(tool: NativeTool, param: str) -> NativeTool:
    place = native.secret_place(tool)
    if place is not None:
        raise UnsupportedFeature(
            f"'{param}.{place}' is not supported: it would be stored and shown with the tool.", param=f"{param}.{place}"
        )
    return tool


def _refuse_doubles(tools: Sequence[Tool]) -> None:
    seen: dict[tuple[str, str], int] = {}
    for index, tool in enumerate(tools):
        if isinstance(tool, NativeTool):
            continue  # the model server's business
        what, name = ("server_label", tool.server_label) if isinstance(tool, McpTool) else ("name", tool.name)
        first = seen.setdefault((what, name), index)
        if first != index:
            raise InvalidRequest(
                f"'tools[{first}].{what}' and 'tools[{index}].{what}' are both {name!r}: give each tool its own.",
                param=f"tools[{index}].{what}",
            )


def parse_tool_choice(raw: object, tools: Sequence[Tool]) -> ToolChoice | None:
    """The choice, None when none was given. Raises: InvalidRequest for a choice of something `tools` does not
    declare."""
    match raw:
        case None:
            return None
        case "none" | "auto" | "required":
            if raw == "required" and not tools:
                raise InvalidRequest(
                    "'tool_choice' is 'required' but 'tools' is empty: declare a tool.", param="tool_choice"
                )
            return raw
        case str():
            raise invalid.wrong_value("tool_choice", raw, _MODES)
        case dict():
            return _parse_choice(raw, tools)
        case _:
            raise invalid.wrong_type("tool_choice", "a string or an object", raw)


def _parse_choice(raw: JsonObject, tools: Sequence[Tool]) -> ToolChoice:
    _check_kind(raw, "tool_choice", tuple(_CHOICES), tools)
    entries = raw.get("tools")
    if raw["type"] == "allowed_tools" and isinstance(entries, list):
        for index, entry in enumerate(entries):
            if isinstance(entry, dict):
                _check_kind(entry, f"tool_choice.tools[{index}]", ("function", "mcp"), tools)
    try:
        choice = _CHOICES.get(raw["type"], NativeTool).model_validate(raw)
    except ValidationError as error:
        raise invalid.explain(error, raw, "tool_choice") from error
    if isinstance(choice, AllowedToolsChoice):
        for index, entry in enumerate(choice.tools):
            _refuse_undeclared(entry, tools, f"tool_choice.tools[{index}]")
    else:
        _refuse_undeclared(choice, tools, "tool_choice")
    return choice


def _check_kind(raw: JsonObject, param: str, served: tuple[str, ...], tools: Sequence[Tool]) -> None:
    """Refuse by name before the shape is looked at."""
    kind = raw.get("type")
    if kind is None:
        raise invalid.absent(f"{param}.type")
    if not isinstance(kind, str):
        raise invalid.wrong_type(f"{param}.type", "a string", kind)
    if kind in served or any(isinstance(tool, NativeTool) and _chosen_by(tool, raw) for tool in tools):
        return
    if native.known(kind):
        name = raw.get("name")
        what = f"{kind} {name[:64]!r}" if isinstance(name, str) else f"'{kind}'"
        raise InvalidRequest(f"'{param}' chooses {what}, which 'tools' does not declare.", param=f"{param}.type")
    raise invalid.wrong_value(f"{param}.type", kind, served)


def _chosen_by(tool: NativeTool, raw: JsonObject) -> bool:
    """Whether a choice means this tool. Dated and older spellings of a type are one; a custom tool goes by name."""
    kind, name = raw["type"], raw.get("name")
    if kind == "custom":
        own = (tool.model_extra or {}).get("name")
        return (tool.type == "custom" and own == name) or _has_nested(tool, "custom", name)
    return _family(tool.type) == _family(kind)


def _family(kind: str) -> str:
    return next((stem for stem in ("web_search", "computer") if kind.startswith(stem)), kind)


def _has_nested(tool: Tool, kind: str, name: object) -> bool:
    return isinstance(tool, NativeTool) and any(
        each.get("type") == kind and each.get("name") == name for each in native.nested(tool)
    )


def _refuse_undeclared(choice: FunctionChoice | McpChoice | NativeTool, tools: Sequence[Tool], param: str) -> None:
    if isinstance(choice, NativeTool):
        return
    if isinstance(choice, FunctionChoice):
        found = any(
            (isinstance(tool, FunctionTool) and tool.name == choice.name) or _has_nested(tool, "function", choice.name)
            for tool in tools
        )
        what, key = f"function {choice.name[:64]!r}", "name"
    else:
        found = any(isinstance(tool, McpTool) and tool.server_label == choice.server_label for tool in tools)
        what, key = f"MCP server {choice.server_label[:64]!r}", "server_label"
    if not found:
        raise InvalidRequest(f"'{param}' chooses {what}, which 'tools' does not declare.", param=f"{param}.{key}")


def public(tool: Tool) -> JsonObject:
    """What a response shows of a tool: as sent, without secrets; a function always has its three keys."""
    body = tool.model_dump(exclude_unset=True, exclude={"authorization", "headers"})
    if isinstance(tool, FunctionTool):
        return {**body, "description": tool.description, "parameters": tool.parameters, "strict": tool.strict}
    return body
