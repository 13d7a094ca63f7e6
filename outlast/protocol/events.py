"""The one currency of streaming: an event envelope that keeps what it does not know.

Every event of a response, relayed, synthetic or parked, is a `WireEvent`. Adapters make them, the assembler rewrites
them, the event log stamps `sequence_number` and, for `response.output_item.added`, allots `output_index`. Nobody else
numbers. `rest` holds the whole body but `type`, `sequence_number` and `output_index`, so unknown fields survive.
"""

from dataclasses import dataclass, field, replace

from outlast.protocol import json
from outlast.protocol.json import JsonObject

CREATED = "response.created"
QUEUED = "response.queued"
IN_PROGRESS = "response.in_progress"
COMPLETED = "response.completed"
FAILED = "response.failed"
INCOMPLETE = "response.incomplete"
ITEM_ADDED = "response.output_item.added"
ITEM_DONE = "response.output_item.done"
PART_ADDED = "response.content_part.added"
PART_DONE = "response.content_part.done"
TEXT_DELTA = "response.output_text.delta"
TEXT_DONE = "response.output_text.done"
ANNOTATION_ADDED = "response.output_text.annotation.added"
REFUSAL_DELTA = "response.refusal.delta"
REFUSAL_DONE = "response.refusal.done"
REASONING_TEXT_DELTA = "response.reasoning_text.delta"
REASONING_TEXT_DONE = "response.reasoning_text.done"
SUMMARY_PART_ADDED = "response.reasoning_summary_part.added"
SUMMARY_PART_DONE = "response.reasoning_summary_part.done"
SUMMARY_TEXT_DELTA = "response.reasoning_summary_text.delta"
SUMMARY_TEXT_DONE = "response.reasoning_summary_text.done"
ARGUMENTS_DELTA = "response.function_call_arguments.delta"
ARGUMENTS_DONE = "response.function_call_arguments.done"
MCP_IN_PROGRESS = "response.mcp_call.in_progress"
MCP_ARGUMENTS_DELTA = "response.mcp_call_arguments.delta"
MCP_ARGUMENTS_DONE = "response.mcp_call_arguments.done"
MCP_COMPLETED = "response.mcp_call.completed"
MCP_FAILED = "response.mcp_call.failed"
LIST_IN_PROGRESS = "response.mcp_list_tools.in_progress"
LIST_COMPLETED = "response.mcp_list_tools.completed"
LIST_FAILED = "response.mcp_list_tools.failed"
ERROR = "error"
KEEPALIVE = "keepalive"

TERMINAL = frozenset({COMPLETED, FAILED, INCOMPLETE})
LIFECYCLE = frozenset({CREATED, QUEUED, IN_PROGRESS}) | TERMINAL


@dataclass(frozen=True, slots=True)
class WireEvent:
    """One event. `rest` is shared, never mutated: rewrite with `with_rest`."""

    type: str
    rest: JsonObject = field(default_factory=dict)
    output_index: int | None = None
    sequence_number: int | None = None

    @property
    def item_id(self) -> str | None:
        """The item this event belongs to: `item_id`, or `item.id` of added/done; None for lifecycle events."""
        item_id = self.rest.get("item_id")
        if isinstance(item_id, str):
            return item_id
        item = self.rest.get("item")
        return item.get("id") if isinstance(item, dict) else None

    def with_rest(self, **fields: object) -> "WireEvent":
        """The same event with some body fields replaced."""
        return replace(self, rest={**self.rest, **fields})

    def body(self) -> JsonObject:
        """The JSON body as clients see it; key order: type, sequence_number, output_index, rest."""
        head: JsonObject = {"type": self.type}
        if self.sequence_number is not None:
            head["sequence_number"] = self.sequence_number
        if self.output_index is not None:
            head["output_index"] = self.output_index
        return {**head, **self.rest}


def parse(body: JsonObject) -> WireEvent:
    """The envelope of a body from an upstream. Raises: ValueError when it has no string `type`."""
    rest = dict(body)
    kind = rest.pop("type", None)
    if not isinstance(kind, str):
        raise ValueError("event without type")
    index = rest.pop("output_index", None)
    number = rest.pop("sequence_number", None)
    return WireEvent(
        type=kind,
        rest=rest,
        output_index=index if isinstance(index, int) else None,
        sequence_number=number if isinstance(number, int) else None,
    )


def frame(kind: str, data: bytes) -> bytes:
    """One SSE frame as it leaves in one write."""
    return b"event: " + kind.encode() + b"\ndata: " + data + b"\n\n"


def encode(event: WireEvent) -> bytes:
    """The `data:` bytes of an event, as stored and as sent."""
    return json.dumps(event.body())


DONE_FRAME = b"data: [DONE]\n\n"
