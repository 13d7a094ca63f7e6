"""Approval policy and the place of decisions, pure.

* `require_approval` missing means always; a tool matched by neither list asks; a tool matched by both asks.
* Only approval responses after the last model-made item of the input are decisions. Earlier ones are history that
  stateless clients send again every turn: never refused, never applied.
* An approval is bound to what was shown: `fingerprint`.
"""

import hashlib
import json  # not protocol.json: integers beyond 64 bits must keep every digit here
from collections.abc import Sequence
from dataclasses import dataclass

from outlast.protocol.errors import InvalidRequest
from outlast.protocol.items import (
    Compaction,
    CustomToolCall,
    FunctionCall,
    Item,
    McpApprovalRequest,
    McpApprovalResponse,
    McpCall,
    McpListTools,
    Message,
    NativeItem,
    Reasoning,
    UnknownItem,
)
from outlast.protocol.tools import AllowedTools, ApprovalPolicy, RequireApproval, ToolFilter


def needs_approval(require_approval: RequireApproval | None, tool: str, read_only: bool | None) -> bool:
    """Whether a call of `tool` asks. `read_only`: its readOnlyHint, None when the server does not say."""
    match require_approval:
        case None | "always":
            return True
        case "never":
            return False
        case ApprovalPolicy(always=always, never=never):
            asks = _selects(always, tool, read_only)
            return asks or not _selects(never, tool, read_only)


def allowed(allowed_tools: AllowedTools | None, tool: str, read_only: bool | None) -> bool:
    """Whether `tool` is offered to the model; a filter without criteria restricts nothing, an empty list everything."""
    match allowed_tools:
        case None:
            return True
        case ToolFilter():
            return allowed_tools.empty or _selects(allowed_tools, tool, read_only)
        case _:
            return tool in allowed_tools


def _selects(criteria: ToolFilter | None, tool: str, read_only: bool | None) -> bool:
    """All given criteria hold. None given selects nothing: `never: {}` must not open every tool."""
    if criteria is None or criteria.empty:
        return False
    by_name = criteria.tool_names is None or tool in criteria.tool_names
    return by_name and (criteria.read_only is None or criteria.read_only == bool(read_only))


def fingerprint(*, tenant: str, server: str, tool: str, arguments: str, owner: str) -> str:
    """SHA-256, hex, of what a human approved. `server`: URL or configured name; `owner`: whose credentials, not their
    bytes. Arguments that are equal as JSON are equal; those that are no JSON count as text."""
    try:
        value, kind = json.loads(arguments), "json"
    except (ValueError, RecursionError):
        value, kind = arguments, "text"
    bound = [tenant, server, tool, owner, kind, value]
    return hashlib.sha256(json.dumps(bound, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def told_reason(decided_how: str | None, reason: str | None) -> str | None:
    """Why an ask was denied, for the model; a deadline gives no reason of its own."""
    return "the deadline for a decision has passed" if decided_how == "deadline" else reason


@dataclass(frozen=True, slots=True)
class Split:
    """An input taken apart: new decisions, one per ask, in order; everything else, history included."""

    decisions: tuple[McpApprovalResponse, ...]
    rest: tuple[Item, ...]


def split_decisions(items: Sequence[Item]) -> Split:
    """The decisions of a request's own input. Raises: InvalidRequest when two of them contradict each other."""
    start = next((index + 1 for index in range(len(items) - 1, -1, -1) if model_made(items[index])), 0)
    decisions: dict[str, McpApprovalResponse] = {}
    rest: list[Item] = list(items[:start])
    for index, item in enumerate(items[start:], start):
        if not isinstance(item, McpApprovalResponse):
            rest.append(item)
            continue
        first = decisions.setdefault(item.approval_request_id, item)
        if first.approve != item.approve:
            raise InvalidRequest(
                f"'input' both approves and denies {item.approval_request_id[:80]!r}: send one decision per request.",
                param=f"input[{index}].approve",
            )
    return Split(decisions=tuple(decisions.values()), rest=tuple(rest))


def model_made(item: Item) -> bool:
    """Whether the model (or the gateway for it) produced this item, so that what stands before it is history."""
    match item:
        case Message():
            return item.role == "assistant"
        case FunctionCall() | CustomToolCall() | Reasoning() | McpListTools() | McpCall() | McpApprovalRequest():
            return True
        case Compaction():
            return True
        case NativeItem() | UnknownItem():
            # Hosted calls of every kind are named so; their outputs and control items are not.
            return item.type.endswith("_call")
        case _:
            return False
