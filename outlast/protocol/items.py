"""Items as types: what a client sends, what we store, what a prepared transcript is made of.

Every model keeps fields it does not know (`extra="allow"`) and `dump` writes only what was given, so a stored item is
what was sent or streamed. `parse_item` never refuses a type it does not know (behaviour.md §2): it gives an
`UnknownItem`. Fields a client may leave out are optional here; wire types carry no default ids and no default status.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, StrictBool, Tag, TypeAdapter

from outlast.protocol import native
from outlast.protocol.json import JsonObject


class WireItem(BaseModel):
    """Base: frozen, tolerant of unknown fields."""

    model_config = ConfigDict(frozen=True, extra="allow")

    id: str | None = None


Part = JsonObject  # a content part; its shape is checked by `requests`, translated by the adapters


class Message(WireItem):
    """A message in easy or full form; `type` may be missing on the wire."""

    type: Literal["message"] = "message"
    role: Literal["user", "assistant", "system", "developer"]
    content: str | list[Part] | None = None
    status: str | None = None
    phase: str | None = None


class FunctionCall(WireItem):
    """A call of a client-owned function, or the prepared form of any call."""

    type: Literal["function_call"]
    call_id: str
    name: str
    arguments: str
    status: str | None = None
    namespace: str | None = None


class FunctionCallOutput(WireItem):
    """Its output: text or content parts."""

    type: Literal["function_call_output"]
    call_id: str
    output: str | list[Part]
    status: str | None = None


class CustomToolCall(WireItem):
    """A free-text call of a client-owned tool."""

    type: Literal["custom_tool_call"]
    call_id: str
    name: str
    input: str


class CustomToolCallOutput(WireItem):
    """Its output."""

    type: Literal["custom_tool_call_output"]
    call_id: str
    output: str | list[Part]


class Reasoning(WireItem):
    """Reasoning; how it is replayed: behaviour.md §2.1."""

    type: Literal["reasoning"]
    summary: list[Part] | None = None
    content: list[Part] | None = None
    encrypted_content: Any = None
    status: str | None = None


class McpListTools(WireItem):
    """Its presence means: this label's list was shown in the chain."""

    type: Literal["mcp_list_tools"]
    server_label: str
    tools: list[JsonObject] = []
    error: Any = None


class McpCall(WireItem):
    """A gateway call with its result; replayed as a pair, never executed again."""

    type: Literal["mcp_call"]
    server_label: str
    name: str
    arguments: str
    output: str | None = None
    error: Any = None
    status: str | None = None
    approval_request_id: str | None = None


class McpApprovalRequest(WireItem):
    """An open or answered ask."""

    type: Literal["mcp_approval_request"]
    id: str
    server_label: str
    name: str
    arguments: str


class McpApprovalResponse(WireItem):
    """A decision: by position a new one or history (behaviour.md §3)."""

    type: Literal["mcp_approval_response"]
    approval_request_id: str
    # Strict: a consent is never guessed from "yes" or 1.
    approve: StrictBool
    reason: str | None = None


class ItemReference(WireItem):
    """An item by id; `type` may be missing on the wire."""

    type: Literal["item_reference"] = "item_reference"
    id: str


class Compaction(WireItem):
    """A sealed summary of what came before."""

    type: Literal["compaction"]
    encrypted_content: Any = None


class CompactionTrigger(WireItem):
    """A control signal, never stored."""

    type: Literal["compaction_trigger"]


class NativeItem(WireItem):
    """An item of the API that is neither made nor run here: calls of hosted and client-side tools, their outputs,
    tools that come as items."""

    type: str


class UnknownItem(WireItem):
    """Any other type: tolerated (behaviour.md §2)."""

    type: str


_KNOWN: dict[str, type[WireItem]] = {
    "message": Message,
    "function_call": FunctionCall,
    "function_call_output": FunctionCallOutput,
    "custom_tool_call": CustomToolCall,
    "custom_tool_call_output": CustomToolCallOutput,
    "reasoning": Reasoning,
    "mcp_list_tools": McpListTools,
    "mcp_call": McpCall,
    "mcp_approval_request": McpApprovalRequest,
    "mcp_approval_response": McpApprovalResponse,
    "item_reference": ItemReference,
    "compaction": Compaction,
    "compaction_trigger": CompactionTrigger,
}
_TAGS = {**{kind: kind for kind in _KNOWN}, **dict.fromkeys(native.ITEMS, "native")}


def _tag(value: Any) -> str:
    """The discriminator: `type`, or what the shape says when it was left out."""
    if isinstance(value, WireItem):
        kind = getattr(value, "type", None)
    elif isinstance(value, dict):
        kind = value.get("type")
        if kind is None:
            return "message" if "role" in value else "item_reference"
    else:
        kind = None
    return _TAGS.get(kind, "unknown") if isinstance(kind, str) else "unknown"


Item = Annotated[
    Annotated[Message, Tag("message")]
    | Annotated[FunctionCall, Tag("function_call")]
    | Annotated[FunctionCallOutput, Tag("function_call_output")]
    | Annotated[CustomToolCall, Tag("custom_tool_call")]
    | Annotated[CustomToolCallOutput, Tag("custom_tool_call_output")]
    | Annotated[Reasoning, Tag("reasoning")]
    | Annotated[McpListTools, Tag("mcp_list_tools")]
    | Annotated[McpCall, Tag("mcp_call")]
    | Annotated[McpApprovalRequest, Tag("mcp_approval_request")]
    | Annotated[McpApprovalResponse, Tag("mcp_approval_response")]
    | Annotated[ItemReference, Tag("item_reference")]
    | Annotated[Compaction, Tag("compaction")]
    | Annotated[CompactionTrigger, Tag("compaction_trigger")]
    | Annotated[NativeItem, Tag("native")]
    | Annotated[UnknownItem, Tag("unknown")],
    Discriminator(_tag),
]

# What `prepare_transcript` may hand to an adapter; an adapter that meets another type raises.
# A `NativeItem` is only for servers that speak the Responses API, a `Compaction` for the one that made it.
PreparedItem = (
    Message
    | FunctionCall
    | FunctionCallOutput
    | CustomToolCall
    | CustomToolCallOutput
    | Reasoning
    | NativeItem
    | Compaction
)

_item: TypeAdapter[Item] = TypeAdapter(Item)


def parse_item(raw: JsonObject) -> Item:
    """One item from JSON. Raises: pydantic.ValidationError when a known type lacks what it needs."""
    return _item.validate_python(raw)


def brings_tools(item: WireItem) -> bool:
    """Whether the model gets tools by this item."""
    return isinstance(item, NativeItem) and item.type in native.TOOL_ITEMS


def dump(item: WireItem) -> JsonObject:
    """The item as JSON, only with what was given; `type` is always written."""
    body = item.model_dump(exclude_unset=True)
    return body if "type" in body else {"type": getattr(item, "type", "unknown"), **body}
