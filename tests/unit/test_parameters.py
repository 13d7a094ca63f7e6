"""docs/parameters.md says what happens: each row, for both dialects, from the body to the model server's body."""

import json
import re
from dataclasses import replace
from typing import Any

import pytest

from activities import rounds
from outlast.loop.bindings import Bindings
from outlast.loop.prepare import prepare
from outlast.loop.state import CallLlm, ToolChoice
from outlast.protocol import native, requests, responses
from outlast.protocol.errors import InvalidRequest, UnsupportedFeature
from outlast.protocol.requests import CreateResponse, RequestLimits
from outlast.upstream import auto
from outlast.upstream.base import Upstream
from tests.support.parameters_page import REFUSED, Row, rows
from tests.support.store_world import record

JsonObject = dict[str, Any]
ROWS = rows()
UPSTREAMS: dict[str, Upstream] = {
    dialect: auto.create(dialect, "http://127.0.0.1:9/v1", dialect, None, None, openai=False)
    for dialect in ("responses", "chat")
}


def parsed(given: JsonObject, upstream: Upstream) -> CreateResponse:
    """The request, as far as the front door lets it."""
    request = requests.parse_create(json.dumps({"model": "m", "input": "hi", **given}).encode(), RequestLimits())
    if not upstream.capabilities.native:
        native.admit(request.tools, request.tool_choice, bound=(), skip=False)
    return request


def sent(request: CreateResponse, upstream: Upstream) -> JsonObject:
    """What the model server gets in the first round."""
    kept = replace(record("parameters"), request=requests.echo(request))
    transcript = prepare(request.input, upstream=upstream.capabilities).transcript
    left = request.max_tool_calls or 128
    step = CallLlm(1, ToolChoice.GIVEN)
    asked = rounds.build(kept, step, "m", transcript, Bindings("b"), upstream.capabilities, tool_calls_left=left)
    body: JsonObject = json.loads(upstream.build(asked).body)
    return body


def bare(dialect: str, given: JsonObject) -> JsonObject:
    """What is sent without the parameter, but with what it needs beside it."""
    upstream = UPSTREAMS[dialect]
    beside = dict(list(given.items())[1:])
    try:
        return sent(parsed(beside, upstream), upstream)
    except UnsupportedFeature:
        return {}


def test_the_table_has_every_parameter_once() -> None:
    """Of the request type, but for what is no setting; rows of one parameter differ by their name."""
    elsewhere = {"model", "input", "previous_response_id", "conversation", "stream", "background", "outlast"}
    named = {row.parameter for row in ROWS}
    assert not CreateResponse.model_fields.keys() - elsewhere - named
    assert len({row.name for row in ROWS}) == len(ROWS) > 40


@pytest.mark.parametrize("dialect", ["responses", "chat"])
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_row_says_what_a_model_server_is_sent(row: Row, dialect: str) -> None:
    """The parameter, its translation, nothing, or a refusal that names it."""
    upstream = UPSTREAMS[dialect]
    if row.refused(dialect):
        with pytest.raises(UnsupportedFeature) as caught:
            parsed(row.request, upstream)
        assert caught.value.param is not None
        assert re.split(r"[.\[]", caught.value.param)[0] in row.request
        return
    body, without = sent(parsed(row.request, upstream), upstream), bare(dialect, row.request)
    expected = row.expected(row.responses if dialect == "responses" else row.chat)
    assert {key: body.get(key) for key in expected} == expected
    assert {key for key in body if body[key] != without.get(key)} <= expected.keys()


@pytest.mark.parametrize("row", [row for row in ROWS if row.response != REFUSED], ids=lambda row: row.name)
def test_a_row_says_what_a_response_shows(row: Row) -> None:
    """The effective value."""
    request = parsed(row.request, UPSTREAMS["responses"])
    facts = replace(record("parameters"), request=requests.echo(request)).facts
    shown = responses.build_response(replace(facts, store=request.stored), [])
    expected = row.expected(row.response)
    assert {key: shown.get(key) for key in expected} == expected
    assert row.response != "–" or row.parameter not in shown


@pytest.mark.parametrize(
    ("given", "param", "limit"),
    [
        ({"max_output_tokens": 15}, "max_output_tokens", "at least 16"),
        ({"max_tool_calls": 0}, "max_tool_calls", "at least 1"),
        ({"max_tool_calls": 129}, "max_tool_calls", "limits.max_tool_calls"),
        ({"top_logprobs": 21}, "top_logprobs", "at most 20"),
        ({"top_logprobs": -1}, "top_logprobs", "at least 0"),
        ({"temperature": 2.1}, "temperature", "at most 2"),
        ({"top_p": 1.1}, "top_p", "at most 1"),
        ({"presence_penalty": 3}, "presence_penalty", "at most 2"),
        ({"frequency_penalty": -3}, "frequency_penalty", "at least -2"),
        ({"metadata": {str(n): "" for n in range(17)}}, "metadata", "at most 16"),
        ({"metadata": {"k" * 65: ""}}, "metadata", "at most 64 characters"),
        ({"metadata": {"k": "v" * 513}}, "metadata.k", "at most 512 characters"),
        ({"safety_identifier": "s" * 129}, "safety_identifier", "at most 128 characters"),
        ({"prompt_cache_key": "k" * 65}, "prompt_cache_key", "at most 64 characters"),
        ({"user": "u" * 65}, "user", "at most 64 characters"),
        ({"text": {"format": {"type": "json_schema", "name": "n" * 65, "schema": {}}}}, "text.format.name", "{1,64}"),
        ({"image": {"context_compression": "some"}}, "image.context_compression", "'disabled'"),
        (
            {"input": [{"type": "custom_tool_call", "call_id": "c" * 65, "name": "n", "input": ""}]},
            "input[0].call_id",
            "64",
        ),
    ],
)
def test_a_limit_is_named_by_its_error(given: JsonObject, param: str, limit: str) -> None:
    """Which parameter and how much."""
    with pytest.raises(InvalidRequest) as caught:
        parsed(given, UPSTREAMS["responses"])
    assert caught.value.param is not None
    assert caught.value.param.startswith(param)
    assert limit in caught.value.message
