"""The public Response object: whole shape, defaults, terminal events, error codes."""

from dataclasses import replace
from typing import Any

import pytest
from openai.types.responses import Response, ResponseError

from outlast.protocol import events, requests, responses
from outlast.protocol.errors import InvalidRequest, StaleFence, UpstreamRateLimited, UpstreamRefused
from outlast.protocol.responses import ResponseFacts
from outlast.protocol.usage import Usage

FACTS = ResponseFacts(
    id="resp_1",
    status="in_progress",
    created_at=100,
    model="demo",
    request={"model": "demo"},
    background=False,
    store=True,
)

RUNNING: dict[str, Any] = {
    "id": "resp_1",
    "object": "response",
    "created_at": 100,
    "status": "in_progress",
    "background": False,
    "completed_at": None,
    "error": None,
    "incomplete_details": None,
    "model": "demo",
    "output": [],
    "previous_response_id": None,
    "instructions": None,
    "max_output_tokens": None,
    "max_tool_calls": None,
    "safety_identifier": None,
    "prompt_cache_key": None,
    "user": None,
    "tool_choice": "auto",
    "truncation": "disabled",
    "parallel_tool_calls": True,
    "temperature": 1.0,
    "top_p": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "top_logprobs": 0,
    "tools": [],
    "text": {"format": {"type": "text"}},
    "reasoning": {"effort": None, "summary": None},
    "service_tier": "default",
    "store": True,
    "metadata": {},
    "usage": None,
}


def test_a_running_response_has_every_key_with_its_default() -> None:
    """The 31 keys of Open Responses and those the SDK reads; numbers are never null."""
    assert responses.build_response(FACTS, []) == RUNNING


def test_what_was_given_is_echoed() -> None:
    """Null members that strict readers refuse are left out."""
    request = requests.parse_create(
        b"""{"model": "demo", "input": "x", "temperature": 0, "text": {"verbosity": null}, "service_tier": "auto",
        "reasoning": {"effort": "low"}, "parallel_tool_calls": false, "metadata": {"a": "b"}, "instructions": "i",
        "tool_choice": {"type": "function", "name": "f"}, "tools": [{"type": "function", "name": "f"}]}""",
        requests.RequestLimits(),
    )
    body = responses.build_response(replace(FACTS, request=requests.echo(request)), [])
    assert body == {
        **RUNNING,
        "temperature": 0,
        "reasoning": {"effort": "low", "summary": None},
        "parallel_tool_calls": False,
        "metadata": {"a": "b"},
        "instructions": "i",
        "tool_choice": {"type": "function", "name": "f"},
        "tools": [{"type": "function", "name": "f", "description": None, "parameters": None, "strict": None}],
    }
    assert Response.model_validate(body).model_dump(mode="json", exclude_unset=True).keys() == body.keys()


def test_pending_approvals_are_shown_only_when_there_are_any() -> None:
    """Our extension object."""
    ask = {"id": "mcpr_1"}
    assert responses.build_response(FACTS, [], pending_approvals=[ask]) == {
        **RUNNING,
        "outlast": {"pending_approvals": [ask]},
    }


@pytest.mark.parametrize(
    ("status", "kind", "completed_at"),
    [
        ("completed", events.COMPLETED, 105),
        ("failed", events.FAILED, None),
        ("incomplete", events.INCOMPLETE, None),
        ("cancelled", events.INCOMPLETE, None),
    ],
)
def test_the_terminal_event_carries_the_whole_response(status: Any, kind: str, completed_at: int | None) -> None:
    """`completed_at` is a fact of completed responses only; a cancelled one ends with response.incomplete."""
    facts = replace(
        FACTS, status=status, completed_at=105, usage=Usage(input_tokens=2, output_tokens=3, total_tokens=5)
    )
    event = responses.terminal_event(facts, [{"type": "message"}])
    assert event.type == kind
    assert event.rest == {
        "response": {
            **RUNNING,
            "status": status,
            "completed_at": completed_at,
            "output": [{"type": "message"}],
            "usage": {
                "input_tokens": 2,
                "input_tokens_details": {"cached_tokens": 0},
                "output_tokens": 3,
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": 5,
            },
        }
    }


def test_a_running_response_has_no_terminal_event() -> None:
    """Asking for one is a bug."""
    with pytest.raises(ValueError, match="in_progress"):
        responses.terminal_event(FACTS, [])


def test_the_closed_set_is_the_sdks() -> None:
    """`response.error.code` is an enum there."""
    codes = ResponseError.model_fields["code"].annotation
    assert set(getattr(codes, "__args__", ())) == responses.ERROR_CODES


@pytest.mark.parametrize(
    ("failure", "code"),
    [
        (InvalidRequest("x"), "invalid_prompt"),
        (UpstreamRefused("x", upstream_status=400), "invalid_prompt"),
        (UpstreamRefused("x", upstream_status=400, code="image_too_large"), "image_too_large"),
        (UpstreamRateLimited("x"), "rate_limit_exceeded"),
        (StaleFence("x"), "server_error"),
    ],
)
def test_our_errors_get_a_code_of_the_closed_set(failure: Any, code: str) -> None:
    """A code that is a member is kept."""
    assert responses.error_of(failure) == {"code": code, "message": "x", "type": failure.type}


@pytest.mark.parametrize(
    ("code", "shown"),
    [
        ("approval_expired", "invalid_prompt"),
        ("insufficient_quota", "rate_limit_exceeded"),
        ("odd", "server_error"),
        (None, "server_error"),
        ("invalid_image", "invalid_image"),
    ],
)
def test_any_code_is_mapped_into_the_closed_set(code: str | None, shown: str) -> None:
    """What nobody listed is a server_error."""
    assert responses.response_error(code, "x") == {"code": shown, "message": "x", "type": "server_error"}
