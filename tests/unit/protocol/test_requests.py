"""`POST /v1/responses`: what a body may say, and what an error about it says."""

from typing import Any

import pytest

from outlast.protocol import json, requests
from outlast.protocol.errors import (
    InvalidRequest,
    PayloadTooLarge,
    PreviousResponseNotFound,
    UnsupportedFeature,
)
from outlast.protocol.requests import RequestLimits

LIMITS = RequestLimits(max_items=3, max_tools=2, max_tool_calls=10, max_rounds=5)
BASE: dict[str, Any] = {"model": "demo", "input": "hi"}


def parse(**fields: Any) -> requests.CreateResponse:
    """A body with the base's fields replaced or added."""
    return requests.parse_create(json.dumps({**BASE, **fields}), LIMITS)


def refused(**fields: Any) -> tuple[str | None, str]:
    """(param, text) of the refusal."""
    with pytest.raises(InvalidRequest) as caught:
        parse(**fields)
    return caught.value.param, caught.value.message


def test_the_record_keeps_what_was_given_and_nothing_else() -> None:
    """A later round must tell given from default; secrets, input and stream options are not kept."""
    given = {
        "instructions": "be kind",
        "temperature": 0.5,
        "top_p": 1,
        "max_output_tokens": 16,
        "max_tool_calls": 10,
        "parallel_tool_calls": False,
        "tool_choice": "auto",
        "text": {"format": {"type": "json_schema", "name": "x", "schema": {"type": "object"}, "strict": True}},
        "reasoning": {"effort": "low", "summary": "auto"},
        "metadata": {"case": "1"},
        "include": ["reasoning.encrypted_content"],
        "service_tier": "flex",
        "truncation": "auto",
        "user": "u",
        "safety_identifier": "s",
        "prompt_cache_key": "k",
        "outlast": {"approval_mode": "respond", "budget": {"max_rounds": 5, "max_seconds": 1.5}},
    }
    request = parse(
        **given,
        stream=True,
        stream_options={"include_obfuscation": True},
        top_logprobs=None,
        flavour="salty",
        tools=[{"type": "mcp", "server_label": "d", "server_url": "http://d/", "headers": {"K": "secret"}}],
    )
    assert requests.echo(request) == {
        "model": "demo",
        **given,
        "tools": [{"type": "mcp", "server_label": "d", "server_url": "http://d/"}],
    }


def test_store_is_the_default() -> None:
    """Null and missing both mean true."""
    assert [parse().stored, parse(store=None).stored, parse(store=False).stored] == [True, True, False]


def test_string_input_is_stored_as_one_user_message() -> None:
    """With an id, a status and list content."""
    assert requests.canonical_inputs(parse(), lambda kind: f"new_{kind}") == [
        {
            "type": "message",
            "role": "user",
            "content": [{"type": "input_text", "text": "hi"}],
            "id": "new_message",
            "status": "completed",
        }
    ]


@pytest.mark.parametrize(
    ("fields", "param", "text"),
    [
        ({"temperature": 3}, "temperature", "Invalid value for 'temperature': 3 must be at most 2.0."),
        ({"temperature": "1"}, "temperature", "Invalid type for 'temperature': expected a number, got a string."),
        ({"top_p": -1}, "top_p", "Invalid value for 'top_p': -1 must be at least 0.0."),
        ({"top_logprobs": 21}, "top_logprobs", "Invalid value for 'top_logprobs': 21 must be at most 20."),
        (
            {"max_output_tokens": 15},
            "max_output_tokens",
            "Invalid value for 'max_output_tokens': 15 must be at least 16.",
        ),
        (
            {"max_output_tokens": 20.5},
            "max_output_tokens",
            "Invalid type for 'max_output_tokens': expected an integer, got a number.",
        ),
        ({"max_tool_calls": 0}, "max_tool_calls", "Invalid value for 'max_tool_calls': 0 must be at least 1."),
        (
            {"max_tool_calls": 11},
            "max_tool_calls",
            "'max_tool_calls' is 11: this server allows at most 10 (limits.max_tool_calls).",
        ),
        ({"stream": "yes"}, "stream", "Invalid type for 'stream': expected a boolean, got a string."),
        ({"store": 1}, "store", "Invalid type for 'store': expected a boolean, got an integer."),
        (
            {"truncation": "head"},
            "truncation",
            "Invalid value for 'truncation': 'head'. Supported values are: 'auto', 'disabled'.",
        ),
        ({"metadata": {"a": 1}}, "metadata.a", "Invalid type for 'metadata.a': expected a string, got an integer."),
        (
            {"metadata": {"a": "x" * 513}},
            "metadata.a",
            "Invalid value for 'metadata.a': it must have at most 512 characters.",
        ),
        (
            {"metadata": {str(n): "" for n in range(17)}},
            "metadata",
            "Invalid value for 'metadata': it must have at most 16 entries.",
        ),
        ({"user": "u" * 65}, "user", "Invalid value for 'user': it must have at most 64 characters."),
        ({"instructions": ["x"]}, "instructions", "Invalid type for 'instructions': expected a string, got an array."),
        ({"model": ""}, "model", "Invalid value for 'model': it must have at least 1 characters."),
        (
            {"reasoning": {"summary": "long"}},
            "reasoning.summary",
            "Invalid value for 'reasoning.summary': 'long'. Supported values are: 'auto', 'concise', 'detailed'.",
        ),
        (
            {"text": {"format": {"type": "xml"}}},
            "text.format.type",
            "Invalid value for 'text.format.type': 'xml'. Supported values are: 'text', 'json_object', 'json_schema'.",
        ),
        ({"text": {"format": {}}}, "text.format.type", "Missing required parameter: 'text.format.type'."),
        (
            {"text": {"format": {"type": "json_schema", "name": "x"}}},
            "text.format.schema",
            "Missing required parameter: 'text.format.schema'.",
        ),
        ({"text": "json"}, "text", "Invalid type for 'text': expected an object, got a string."),
        ({"tools": {}}, "tools", "Invalid type for 'tools': expected an array, got an object."),
        ({"stream_options": {}}, "stream_options", "'stream_options' is only allowed with 'stream: true'."),
        (
            {"background": True, "store": False},
            "background",
            "'background' needs the response to be stored: leave out 'store: false'.",
        ),
        ({"outlast": {"mode": "wait"}}, "outlast.mode", "Unknown parameter: 'outlast.mode'. Remove it."),
        (
            {"outlast": {"budget": {"max_cost": 1}}},
            "outlast.budget.max_cost",
            "Unknown parameter: 'outlast.budget.max_cost'. Remove it.",
        ),
        (
            {"outlast": {"budget": {"max_seconds": 0}}},
            "outlast.budget.max_seconds",
            "Invalid value for 'outlast.budget.max_seconds': 0 must be more than 0.0.",
        ),
        *(
            (
                {"outlast": {"budget": {name: 0}}},
                f"outlast.budget.{name}",
                f"Invalid value for 'outlast.budget.{name}': 0 must be at least 1.",
            )
            for name in ("max_total_tokens", "max_rounds")
        ),
        (
            {"outlast": {"budget": {"max_rounds": 6}}},
            "outlast.budget.max_rounds",
            "'outlast.budget.max_rounds' is 6: this server allows at most 5 (limits.max_rounds).",
        ),
        (
            {"outlast": {"approval_mode": "wait"}},
            "outlast.approval_mode",
            "Approval mode 'wait' keeps the response open: it needs 'stream: true' or 'background: true'.",
        ),
        (
            {"conversation": "conv_1", "previous_response_id": "resp_1"},
            "previous_response_id",
            "'previous_response_id' and 'conversation' cannot be used together: give one of them.",
        ),
        ({"input": []}, "input", "Missing required parameter: 'input'."),
        ({"input": ["a"] * 4}, "input", "'input' has 4 items: at most 3 are allowed (limits.max_items)."),
        ({"tools": [{}] * 3}, "tools", "'tools' has 3 entries: at most 2 are allowed (limits.max_tools)."),
    ],
)
def test_a_wrong_value_is_refused_with_its_path_and_what_to_change(
    fields: dict[str, Any], param: str, text: str
) -> None:
    """Nothing of a validator's vocabulary reaches the client."""
    assert refused(**fields) == (param, text)


@pytest.mark.parametrize(
    "fields",
    [
        {"temperature": 0},
        {"temperature": 2},
        {"top_p": 0},
        {"top_p": 1},
        {"top_logprobs": 0, "include": ["message.output_text.logprobs"]},
        {"top_logprobs": 20, "include": ["message.output_text.logprobs"]},
        {"presence_penalty": -2, "frequency_penalty": 2},
        {"max_output_tokens": 16},
        {"max_tool_calls": 1},
        {"max_tool_calls": 10},
        {"input": [{"role": "user", "content": "a"}] * 3},
        {"tools": [{"type": "function", "name": f"f{n}", "parameters": {}} for n in range(2)]},
        {"outlast": {"budget": {"max_total_tokens": 1, "max_rounds": 5, "max_seconds": 0.001}}},
        {"instructions": "", "user": "u" * 64, "safety_identifier": "s" * 128, "prompt_cache_key": "k" * 64},
    ],
)
def test_exactly_a_limit_is_taken(fields: dict[str, Any]) -> None:
    """The last value on the good side of every bound."""
    given = {key: value for key, value in fields.items() if key not in ("input", "tools")}
    assert requests.echo(parse(**fields)).items() >= given.items()


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"prompt": {"id": "p"}}, "prompt"),
        ({"moderation": {"model": "m"}}, "moderation"),
        ({"background_options": {"completion_window": "8h"}}, "background_options.completion_window"),
    ],
)
def test_what_this_version_does_not_serve_is_refused_by_name(fields: dict[str, Any], param: str) -> None:
    """400, code unsupported_feature."""
    with pytest.raises(UnsupportedFeature) as caught:
        parse(**fields)
    assert (caught.value.http_status, caught.value.code, caught.value.param) == (400, "unsupported_feature", param)


@pytest.mark.parametrize("mode", [{"stream": True}, {"background": True}])
def test_wait_mode_works_with_an_open_response(mode: dict[str, Any]) -> None:
    """Stream or background."""
    request = parse(outlast={"approval_mode": "wait"}, **mode)
    assert request.outlast is not None
    assert request.outlast.approval_mode == "wait"


def test_null_is_as_good_as_left_out() -> None:
    """Official clients send nulls for what they do not use."""
    nothing = dict.fromkeys(
        ("conversation", "prompt", "tools", "tool_choice", "text", "reasoning", "metadata", "include", "outlast")
    )
    assert requests.echo(parse(**nothing, background_options=None, stream=None)) == {"model": "demo"}


def test_a_chain_may_continue_without_input() -> None:
    """With `previous_response_id` nothing else is needed."""
    raw = json.dumps({"model": "demo", "previous_response_id": "resp_1"})
    assert requests.parse_create(raw, LIMITS).input == ()


@pytest.mark.parametrize(
    "item",
    [
        {"type": "commandExecution", "id": "q", "output": "x"},
        {"type": "mcpToolCall"},
        {"type": "contextCompaction", "summary": "s"},
        {"type": "additional_tools", "role": "developer", "tools": []},
        {"type": "web_search_call", "id": "ws_1", "status": "completed"},
        {"type": "foo", "content": [{"type": "input_text", "text": "hi"}]},
        {"type": ""},
    ],
)
def test_an_item_of_an_unknown_type_is_carried_along(item: dict[str, Any]) -> None:
    """Clients replay items of other servers: tolerated as a whole request, and stored as they came."""
    request = parse(input=[{"role": "user", "content": "hi"}, item])
    assert requests.canonical_inputs(request, lambda kind: f"{kind}_1")[1].items() >= item.items()


def test_a_previous_id_that_cannot_be_one_is_not_found() -> None:
    """The same answer as for an unknown one."""
    with pytest.raises(PreviousResponseNotFound) as caught:
        parse(previous_response_id="../secret")
    assert (caught.value.param, caught.value.code) == ("previous_response_id", "previous_response_not_found")


@pytest.mark.parametrize(
    ("raw", "start"),
    [
        (b"", "The request body is not valid JSON"),
        (b'{"model": ', "The request body is not valid JSON"),
        (b'{"model": NaN}', "The request body is not valid JSON"),
        (b"\xff\xfe", "The request body is not valid JSON"),
        (b"[]", "The request body must be a JSON object, got an array."),
        (b'{"input": "x"}', "Missing required parameter: 'model'."),
        (b'{"model":"m","input":"x","metadata":' + b"[" * 230 + b"]" * 230 + b"}", "The request body is nested too"),
        (
            b'{"model":"m","input":"x","metadata":' + b"[" * 5000 + b"]" * 5000 + b"}",
            "The request body is not valid JSON",
        ),
    ],
)
def test_a_body_that_is_no_request_is_a_400(raw: bytes, start: str) -> None:
    """Also what our own encoder could not write again."""
    with pytest.raises(InvalidRequest) as caught:
        requests.parse_create(raw, LIMITS)
    assert caught.value.message.startswith(start)


def test_a_body_over_the_limit_names_the_limit() -> None:
    """413."""
    with pytest.raises(PayloadTooLarge) as caught:
        requests.parse_create(b" " * 11, RequestLimits(max_body_bytes=10))
    assert caught.value.message == "The body has 11 bytes: at most 10 are allowed (limits.max_body_bytes)."


def test_a_body_of_exactly_the_limit_is_taken() -> None:
    """Its last byte is still read."""
    raw = json.dumps(BASE)
    assert requests.parse_create(raw, RequestLimits(max_body_bytes=len(raw))).model == "demo"
