"""The public Response object: every key the Open Responses schema wants, every key the official SDK reads.

It is made from `ResponseFacts`, which whoever holds a response's row can fill in; defaults of what the client did not
give are filled in here and nowhere else, so a record tells given from default.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, assert_never

from outlast.protocol import events
from outlast.protocol.errors import OutlastError
from outlast.protocol.events import WireEvent
from outlast.protocol.json import JsonObject
from outlast.protocol.usage import Usage

ResponseStatus = Literal["queued", "in_progress", "completed", "failed", "incomplete", "cancelled"]


@dataclass(frozen=True, slots=True)
class ResponseFacts:
    """What a Response object is made of. `request`: as `requests.echo` made it; times are unix seconds."""

    id: str
    status: ResponseStatus
    created_at: int
    model: str
    request: JsonObject
    background: bool
    store: bool
    previous_response_id: str | None = None
    usage: Usage | None = None
    error: JsonObject | None = None
    incomplete_details: JsonObject | None = None
    completed_at: int | None = None
    conversation_id: str | None = None


# Numbers and enums that are never null on the wire (contract: Open Responses).
_NEVER_NULL: Mapping[str, object] = {
    "tool_choice": "auto",
    "truncation": "disabled",
    "parallel_tool_calls": True,
    "temperature": 1.0,
    "top_p": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "top_logprobs": 0,
}
_NULLABLE = ("instructions", "max_output_tokens", "max_tool_calls", "safety_identifier", "prompt_cache_key", "user")
# Shown only when given: strict readers know no null for them.
_WHEN_GIVEN = ("prompt_cache_options", "prompt_cache_retention", "image", "access_programs")


def build_response(
    facts: ResponseFacts, output: Sequence[JsonObject], *, pending_approvals: Sequence[JsonObject] = ()
) -> JsonObject:
    """The Response object. `usage` and `completed_at` are null until they are facts; `outlast` is there only when
    approvals are pending (wait mode: the ask is no output item)."""
    given = facts.request
    completed = facts.status == "completed"
    body: JsonObject = {
        "id": facts.id,
        "object": "response",
        "created_at": facts.created_at,
        "status": facts.status,
        "background": facts.background,
        "completed_at": facts.completed_at if completed else None,
        "error": facts.error,
        "incomplete_details": facts.incomplete_details,
        "model": facts.model,
        "output": list(output),
        # As given where the row has no parent: a connection held the history (WebSocket mode).
        "previous_response_id": facts.previous_response_id or given.get("previous_response_id"),
        **{key: given.get(key) for key in _NULLABLE},
        **{key: given.get(key, default) for key, default in _NEVER_NULL.items()},
        "tools": given.get("tools", []),
        "text": _text(given.get("text") or {}),
        "reasoning": {"effort": None, "summary": None, **(given.get("reasoning") or {})},
        "service_tier": _tier(given.get("service_tier")),
        "store": facts.store,
        "metadata": given.get("metadata", {}),
        "usage": facts.usage.wire() if facts.usage is not None else None,
        **{key: given[key] for key in _WHEN_GIVEN if key in given},
    }
    if facts.conversation_id is not None:
        body["conversation"] = {"id": facts.conversation_id}
    if pending_approvals:
        body["outlast"] = {"pending_approvals": list(pending_approvals)}
    return body


def _text(given: JsonObject) -> JsonObject:
    kept = {key: value for key, value in given.items() if value is not None}
    return {"format": {"type": "text"}, **kept}


def _tier(given: str | None) -> str:
    """The tier used: what was left to us is the default one."""
    return "default" if given in (None, "auto") else given


def lifecycle(kind: str, response: JsonObject) -> WireEvent:
    """A lifecycle event (`events.CREATED`, …) with the full Response object."""
    return WireEvent(type=kind, rest={"response": response})


def terminal_event(facts: ResponseFacts, output: Sequence[JsonObject]) -> WireEvent:
    """The event that ends the stream; a cancelled one ends with `response.incomplete`: there is no cancelled event.

    Raises: ValueError when the response has not ended.
    """
    return lifecycle(_terminal_kind(facts.status), build_response(facts, output))


def _terminal_kind(status: ResponseStatus) -> str:
    match status:
        case "completed":
            return events.COMPLETED
        case "failed":
            return events.FAILED
        case "incomplete" | "cancelled":
            return events.INCOMPLETE
        case "queued" | "in_progress":
            raise ValueError(f"a response that is {status} has no terminal event")
        case _:
            assert_never(status)


# The closed set of `response.error.code` (contract: errors). Anything else must be mapped to one of these.
ERROR_CODES = frozenset(
    {
        "server_error",
        "rate_limit_exceeded",
        "invalid_prompt",
        "data_residency_mismatch",
        "bio_policy",
        "misalignment_policy_violation",
        "vector_store_timeout",
        "invalid_image",
        "invalid_image_format",
        "invalid_base64_image",
        "invalid_image_url",
        "image_too_large",
        "image_too_small",
        "image_parse_error",
        "image_content_policy_violation",
        "invalid_image_mode",
        "image_file_too_large",
        "unsupported_image_media_type",
        "empty_image_file",
        "failed_to_download_image",
        "image_file_not_found",
    }
)

# Codes of ours and of upstreams that are no member, and which member says it best.
_MEANS: Mapping[str, str] = {
    "approval_expired": "invalid_prompt",
    "context_length_exceeded": "invalid_prompt",
    "insufficient_quota": "rate_limit_exceeded",
    "too_many_requests": "rate_limit_exceeded",
}


def error_code(code: str | None) -> str:
    """The member of the closed set that `code` is or means; `server_error` for what nobody listed."""
    if code in ERROR_CODES:
        return code
    return _MEANS.get(code or "", "server_error")


def response_error(code: str | None, message: str, kind: str = "server_error") -> JsonObject:
    """`response.error`: {code, message, type}, whatever `code` was."""
    return {"code": error_code(code), "message": message, "type": kind}


def error_of(failure: OutlastError) -> JsonObject:
    """`response.error` of a run that ended with one of our exceptions; a code of the closed set is kept."""
    code = failure.code if failure.code in ERROR_CODES else failure.response_code
    return response_error(code, failure.message, failure.type)
