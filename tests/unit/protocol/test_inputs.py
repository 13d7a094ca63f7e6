"""Input items: one canonical form, unknown types tolerated, errors with paths."""

from typing import Any

import pytest

from outlast.protocol import inputs
from outlast.protocol.errors import InvalidRequest, UnsupportedFeature
from outlast.protocol.items import dump
from outlast.protocol.json import JsonObject


def canonical(*items: object) -> list[JsonObject]:
    """The items as parsed, as JSON."""
    return [dump(item) for item in inputs.parse_input(list(items), max_items=100)]


def text_of(role: str, part: JsonObject) -> JsonObject:
    """The canonical form of one part of a message."""
    (message,) = canonical({"role": role, "content": [part]})
    parts: list[JsonObject] = message["content"]
    return parts[0]


@pytest.mark.parametrize("role", ["user", "system", "developer"])
def test_string_content_becomes_a_text_part(role: str) -> None:
    """Easy form, `type` left out."""
    assert canonical({"role": role, "content": "hi"}) == [
        {"type": "message", "role": role, "content": [{"type": "input_text", "text": "hi"}]}
    ]


def test_an_assistants_string_becomes_output_text() -> None:
    """With annotations, as it would have been produced; `phase` stays."""
    assert canonical({"role": "assistant", "content": "hi", "phase": "commentary"}) == [
        {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "hi", "annotations": []}],
            "phase": "commentary",
        }
    ]


@pytest.mark.parametrize("kind", ["input_text", "output_text", "text", "summary_text", "reasoning_text"])
def test_text_parts_take_the_form_of_their_role(kind: str) -> None:
    """A wrong part type is accepted and stored canonically."""
    part: JsonObject = {"type": kind, "text": "hi", "annotations": [], "logprobs": None}
    assert text_of("user", part) == {"type": "input_text", "text": "hi"}
    assert text_of("assistant", part) == {"type": "output_text", "text": "hi", "annotations": []}


def test_a_refusal_stays_one_only_for_the_assistant() -> None:
    """Others cannot refuse."""
    part = {"type": "refusal", "refusal": "no"}
    assert text_of("assistant", part) == part
    assert text_of("user", part) == {"type": "input_text", "text": "no"}


def test_output_parts_are_canonical_too() -> None:
    """Content lists of outputs are input content."""
    (item,) = canonical(
        {
            "type": "function_call_output",
            "call_id": "c",
            "output": [
                {"type": "output_text", "text": "a"},
                {"type": "input_image", "image_url": "data:image/png;base64,AA"},
            ],
        }
    )
    assert item["output"] == [
        {"type": "input_text", "text": "a"},
        {"type": "input_image", "image_url": "data:image/png;base64,AA"},
    ]


@pytest.mark.parametrize(
    "item",
    [
        {"type": "additional_tools", "role": "developer", "tools": []},
        {"type": "commandExecution", "id": "x", "command": ["ls"], "output": None},
        {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "q"}},
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": None},
        {"type": "mcp_call", "id": "mcp_1", "server_label": "d", "name": "t", "arguments": "{}", "error": None},
        {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": False, "reason": "no"},
    ],
)
def test_other_items_are_carried_as_they_are(item: JsonObject) -> None:
    """Byte for byte, unknown types included."""
    assert canonical(item) == [item]


def test_an_object_with_only_an_id_is_a_reference() -> None:
    """`type` missing or null."""
    assert canonical({"id": "msg_1"}, {"id": "msg_2", "type": None}) == [
        {"type": "item_reference", "id": "msg_1"},
        {"type": "item_reference", "id": "msg_2"},
    ]


@pytest.mark.parametrize(
    ("item", "param"),
    [
        (3, "input[0]"),
        ({}, "input[0].type"),
        ({"type": 3}, "input[0].type"),
        ({"type": "message"}, "input[0].role"),
        ({"role": "tool", "content": "x"}, "input[0].role"),
        ({"role": "user"}, "input[0].content"),
        ({"role": "user", "content": None}, "input[0].content"),
        ({"role": "user", "content": ["x"]}, "input[0].content[0]"),
        ({"role": "user", "content": [{}]}, "input[0].content[0].type"),
        ({"role": "user", "content": [{"type": "hologram"}]}, "input[0].content[0].type"),
        ({"role": "user", "content": [{"type": "input_text"}]}, "input[0].content[0].text"),
        ({"role": "user", "content": [{"type": "input_text", "text": 3}]}, "input[0].content[0].text"),
        ({"role": "user", "content": [{"type": "input_image"}]}, "input[0].content[0].image_url"),
        (
            {"role": "user", "content": [{"type": "input_image", "image_url": "file:///x"}]},
            "input[0].content[0].image_url",
        ),
        (
            {"role": "user", "content": [{"type": "input_image", "image_url": "http://x", "detail": "max"}]},
            "input[0].content[0].detail",
        ),
        ({"role": "user", "content": "x", "id": "a\0b"}, "input[0].id"),
        ({"role": "user", "content": "x", "id": "a" * 201}, "input[0].id"),
        ({"role": "user", "content": "x", "id": 3}, "input[0].id"),
        ({"type": "function_call", "name": "f", "arguments": "{}"}, "input[0].call_id"),
        ({"type": "function_call", "call_id": "c" * 65, "name": "f", "arguments": "{}"}, "input[0].call_id"),
        ({"type": "function_call", "call_id": "c", "name": "f"}, "input[0].arguments"),
        ({"type": "function_call", "call_id": "c", "name": "f", "arguments": {}}, "input[0].arguments"),
        ({"type": "function_call_output", "call_id": "c"}, "input[0].output"),
        ({"type": "function_call_output", "call_id": "c", "output": None}, "input[0].output"),
        ({"type": "reasoning", "content": "x"}, "input[0].content"),
        ({"type": "mcp_call", "id": "m", "name": "t", "arguments": "{}"}, "input[0].server_label"),
        ({"type": "mcp_approval_response", "approval_request_id": "m"}, "input[0].approve"),
        ({"type": "mcp_approval_response", "approval_request_id": "m", "approve": "yes"}, "input[0].approve"),
        ({"type": "mcp_approval_response", "approval_request_id": "m", "approve": 1}, "input[0].approve"),
    ],
)
def test_a_wrong_item_is_refused_with_its_path(item: object, param: str) -> None:
    """A consent is never guessed from something like true."""
    with pytest.raises(InvalidRequest) as caught:
        canonical(item)
    assert caught.value.param == param
    assert f"'{param}'" in caught.value.message


@pytest.mark.parametrize("item_id", ["a b", "ä/ö?=&#", "msg_" + "x" * 196, "🙂", "'\"\\"])
def test_ids_of_other_makers_are_kept(item_id: str) -> None:
    """Whatever their characters."""
    (item,) = canonical({"role": "user", "content": "x", "id": item_id})
    assert item["id"] == item_id


@pytest.mark.parametrize("item_id", [None, ""])
def test_an_empty_id_is_none(item_id: str | None) -> None:
    """So some clients say that they have none."""
    (item,) = canonical({"type": "function_call_output", "call_id": "c", "output": "x", "id": item_id})
    assert "id" not in item


@pytest.mark.parametrize(
    ("part", "param"),
    [
        ({"type": "input_file", "file_data": "x"}, "input[0].content[0].type"),
        ({"type": "input_video", "video_url": "x"}, "input[0].content[0].type"),
        ({"type": "input_image", "file_id": "file_1"}, "input[0].content[0].file_id"),
    ],
)
def test_unserved_parts_are_refused_by_name(part: JsonObject, param: str) -> None:
    """Files, videos, uploaded images."""
    with pytest.raises(UnsupportedFeature) as caught:
        canonical({"role": "user", "content": [part]})
    assert caught.value.param == param


def test_stored_items_have_an_id_and_a_status_where_their_type_has_one() -> None:
    """The client's id is kept, a missing one is minted; reasoning and asks have no status to invent."""
    given: list[Any] = [
        {"role": "user", "content": "hi"},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}", "id": "fc_1", "status": "incomplete"},
        {"type": "function_call_output", "call_id": "c", "output": "1", "id": None},
        {"type": "reasoning", "summary": []},
        {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": True},
    ]
    items = inputs.parse_input(given, max_items=10)
    assert inputs.stored(items, lambda kind: f"new_{kind}") == [
        {
            "type": "message",
            "role": "user",
            "content": [{"type": "input_text", "text": "hi"}],
            "id": "new_message",
            "status": "completed",
        },
        given[1],
        {
            "type": "function_call_output",
            "call_id": "c",
            "output": "1",
            "id": "new_function_call_output",
            "status": "completed",
        },
        {"type": "reasoning", "summary": [], "id": "new_reasoning"},
        {**given[4], "id": "new_mcp_approval_response"},
    ]


def test_storing_twice_changes_nothing() -> None:
    """What is stored is canonical."""
    once = inputs.stored(inputs.parse_input("hi", max_items=1), lambda kind: "msg_1")
    assert inputs.stored(inputs.parse_input(once, max_items=1), lambda kind: "msg_2") == once
