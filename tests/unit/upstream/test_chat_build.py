"""Requests of the Chat Completions dialect, as whole bodies."""

from typing import Any

import pytest

from outlast.protocol import items, json
from outlast.protocol.errors import UnsupportedFeature
from outlast.protocol.json import JsonObject
from outlast.upstream.base import Capabilities, ModelTool, Round
from outlast.upstream.chat import ChatUpstream

F, G = ModelTool("f", "does f", {"type": "object"}, strict=True), ModelTool("g", None, None)
CHAT_F = {
    "type": "function",
    "function": {"name": "f", "description": "does f", "parameters": {"type": "object"}, "strict": True},
}
CHAT_G = {"type": "function", "function": {"name": "g"}}


def build(round: Round, **options: Any) -> JsonObject:
    """The body of a round."""
    request = ChatUpstream("main", "http://h/v1", **options).build(round)
    assert request.path == "/chat/completions"
    body: JsonObject = json.loads(request.body)
    return body


def messages(*raw: JsonObject, instructions: str | None = None, **options: Any) -> list[JsonObject]:
    """The messages of a transcript."""
    transcript: list[Any] = [items.parse_item(item) for item in raw]
    built: list[JsonObject] = build(Round("m", transcript, instructions=instructions), **options)["messages"]
    return built


def call(call_id: str, name: str = "f", arguments: str = '{"a":1}') -> JsonObject:
    return {"type": "function_call", "id": f"fc_{call_id}", "call_id": call_id, "name": name, "arguments": arguments}


def output(call_id: str, content: str | list[JsonObject] = "42") -> JsonObject:
    return {"type": "function_call_output", "call_id": call_id, "output": content}


def reasoning(text: str) -> JsonObject:
    return {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": text}]}


def said(text: str) -> JsonObject:
    return {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}


def user(text: str) -> JsonObject:
    return {"role": "user", "content": text}


def chat_call(call_id: str, name: str = "f", arguments: str = '{"a":1}') -> JsonObject:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def tool(call_id: str, content: str = "42") -> JsonObject:
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def test_a_bare_round_sends_nothing_the_client_did_not_give() -> None:
    """But it streams, and usage is asked for."""
    assert build(
        Round("m", [items.Message(role="user", content="hi")], tool_choice="auto", parallel_tool_calls=True)
    ) == {
        "model": "m",
        "messages": [{"role": "user", "content": "hi"}],
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def test_everything_given_is_translated() -> None:
    """What only the Responses API knows is left out."""
    schema = {"type": "json_schema", "name": "n", "schema": {"type": "object"}, "strict": True, "description": None}
    body = build(
        Round(
            "m",
            [],
            instructions="be kind",
            tools=[F, G],
            tool_choice={"type": "function", "name": "f"},
            parallel_tool_calls=False,
            max_output_tokens=64,
            temperature=0.0,
            top_p=0.5,
            top_logprobs=2,
            reasoning={"effort": "low", "summary": "auto"},
            text={"format": schema, "verbosity": "low"},
            include=["reasoning.encrypted_content"],
            extra={"user": "u", "truncation": "auto", "service_tier": "flex", "presence_penalty": 0.0, "metadata": {}},
        )
    )
    assert body == {
        "model": "m",
        "messages": [{"role": "system", "content": "be kind"}],
        "stream": True,
        "stream_options": {"include_usage": True},
        "tools": [CHAT_F, CHAT_G],
        "tool_choice": {"type": "function", "function": {"name": "f"}},
        "parallel_tool_calls": False,
        "max_completion_tokens": 64,
        "temperature": 0.0,
        "top_p": 0.5,
        "logprobs": True,
        "top_logprobs": 2,
        "reasoning_effort": "low",
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "n", "schema": {"type": "object"}, "strict": True},
        },
        "verbosity": "low",
        "service_tier": "flex",
        "user": "u",
        "presence_penalty": 0.0,
    }


@pytest.mark.parametrize(
    ("choice", "tools", "sent"),
    [
        (None, [CHAT_F, CHAT_G], None),
        ("none", [CHAT_F, CHAT_G], "none"),
        ("required", [CHAT_F, CHAT_G], "required"),
        (
            {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "g"}]},
            [CHAT_G],
            "required",
        ),
        ({"type": "allowed_tools", "mode": "auto", "tools": []}, None, None),
    ],
)
def test_tool_choices(choice: Any, tools: object, sent: object) -> None:
    """allowed_tools filters the tools and leaves its mode."""
    body = build(Round("m", [], tools=[F, G], tool_choice=choice))
    assert (body.get("tools"), body.get("tool_choice")) == (tools, sent)


@pytest.mark.parametrize(
    ("wanted", "sent"),
    [({"type": "text"}, None), ({"type": "json_object"}, {"type": "json_object"}), (None, None)],
)
def test_plain_formats(wanted: JsonObject | None, sent: JsonObject | None) -> None:
    """Text is the default and not said."""
    assert build(Round("m", [], text={"format": wanted})).get("response_format") == sent


@pytest.mark.parametrize(
    ("top", "include", "sent"),
    [
        (0, [], (None, None)),
        (0, ["message.output_text.logprobs"], (True, 0)),
        (None, ["message.output_text.logprobs"], (True, None)),
        (3, [], (True, 3)),
    ],
)
def test_logprobs_only_if_asked_for(top: int | None, include: list[str], sent: object) -> None:
    """`top_logprobs: 0` alone, an echoed default, asks for nothing."""
    body = build(Round("m", [], top_logprobs=top, include=include))
    assert (body.get("logprobs"), body.get("top_logprobs")) == sent


def test_a_server_may_know_only_max_tokens() -> None:
    """By configuration."""
    body = build(Round("m", [], max_output_tokens=9), max_tokens=True)
    assert (body["max_tokens"], "max_completion_tokens" in body) == (9, False)


@pytest.mark.parametrize(("known", "role"), [(False, "system"), (True, "developer")])
def test_the_developer_role_is_kept_or_becomes_system(known: bool, role: str) -> None:
    """Every role reaches the model in order; instructions come first."""
    raw: list[JsonObject] = [
        user("a"),
        {"role": "developer", "content": "d"},
        {"role": "system", "content": "s"},
        said("b"),
    ]
    assert messages(*raw, instructions="i", developer_role=known) == [
        {"role": "system", "content": "i"},
        {"role": "user", "content": "a"},
        {"role": role, "content": "d"},
        {"role": "system", "content": "s"},
        {"role": "assistant", "content": "b"},
    ]


def test_a_round_of_the_model_is_one_assistant_message() -> None:
    """Reasoning, text and sibling calls; outputs after it, in the order of the calls."""
    raw = [
        user("q"),
        reasoning("hm"),
        said("let me look"),
        call("1"),
        call("2", "g", ""),
        output("2", "two"),
        output("1", "one"),
    ]
    assert messages(*raw, reasoning("ah"), said("done")) == [
        {"role": "user", "content": "q"},
        {
            "role": "assistant",
            "content": "let me look",
            "reasoning_content": "hm",
            "tool_calls": [chat_call("1"), chat_call("2", "g", "{}")],
        },
        tool("1", "one"),
        tool("2", "two"),
        {"role": "assistant", "content": "done", "reasoning_content": "ah"},
    ]


def test_calls_of_two_rounds_stay_apart() -> None:
    """Also when a server counts its call ids anew in each round."""
    assert messages(call("1"), output("1", "first"), call("1"), output("1", "second")) == [
        {"role": "assistant", "content": None, "tool_calls": [chat_call("1")]},
        tool("1", "first"),
        {"role": "assistant", "content": None, "tool_calls": [chat_call("1")]},
        tool("1", "second"),
    ]


def test_outputs_follow_their_calls_whatever_stood_between() -> None:
    """Chat Completions pairs by position."""
    assert messages(call("1"), user("hurry"), output("1")) == [
        {"role": "assistant", "content": None, "tool_calls": [chat_call("1")]},
        tool("1"),
        {"role": "user", "content": "hurry"},
    ]


def test_siblings_made_after_the_first_call_stay_in_its_message() -> None:
    """Reasoning or text between calls must not stand between a call and its output."""
    assert messages(call("1"), reasoning("and"), said("also"), call("2"), output("1"), output("2")) == [
        {
            "role": "assistant",
            "content": "also",
            "reasoning_content": "and",
            "tool_calls": [chat_call("1"), chat_call("2")],
        },
        tool("1"),
        tool("2"),
    ]


def test_two_messages_of_the_model_stay_two() -> None:
    """And reasoning belongs to the one that follows; without one it stands alone."""
    assert messages(said("a"), reasoning("r"), said("b"), said("c"), reasoning("left"), user("u")) == [
        {"role": "assistant", "content": "a"},
        {"role": "assistant", "content": "b", "reasoning_content": "r"},
        {"role": "assistant", "content": "c"},
        {"role": "assistant", "content": "", "reasoning_content": "left"},
        {"role": "user", "content": "u"},
    ]


def test_custom_calls_become_functions_of_one_argument() -> None:
    """A client may bring such a history to any model."""
    raw: list[JsonObject] = [
        {"type": "custom_tool_call", "call_id": "1", "name": "c", "input": "free"},
        {"type": "custom_tool_call_output", "call_id": "1", "output": "ok"},
    ]
    assert messages(*raw) == [
        {"role": "assistant", "content": None, "tool_calls": [chat_call("1", "c", '{"input":"free"}')]},
        tool("1", "ok"),
    ]


def test_an_output_without_its_call_is_left_to_the_server() -> None:
    """Never dropped silently."""
    assert messages(output("9")) == [tool("9")]


IMAGE = {"type": "input_image", "image_url": "data:image/png;base64,AA", "detail": "low"}
CHAT_IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA", "detail": "low"}}


def test_images_and_files_are_kept_as_parts() -> None:
    """Text alone is one string."""
    parts = [
        {"type": "input_text", "text": "look"},
        IMAGE,
        {"type": "input_file", "file_data": "x", "filename": "a.pdf"},
    ]
    texts = [{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}]
    assert messages({"role": "user", "content": parts}, {"role": "user", "content": texts}) == [
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "look"},
                CHAT_IMAGE,
                {"type": "file", "file": {"file_data": "x", "filename": "a.pdf"}},
            ],
        },
        {"role": "user", "content": "a\nb"},
    ]


@pytest.mark.parametrize(
    "part",
    [
        {"type": "input_image", "file_id": "file_1"},
        {"type": "input_file", "file_url": "http://f"},
        {"type": "input_video"},
    ],
)
def test_a_part_this_api_cannot_say_is_refused(part: JsonObject) -> None:
    """A 400 of ours, not a part left out."""
    with pytest.raises(UnsupportedFeature) as caught:
        messages({"role": "user", "content": [part]})
    assert caught.value.param == "input"


def test_images_of_outputs_follow_all_tool_messages() -> None:
    """In one user message: a tool message carries text only."""
    raw = [call("1"), call("2"), output("1", [{"type": "input_text", "text": "here"}, IMAGE]), output("2")]
    assert messages(*raw)[1:] == [
        tool("1", "here\n[image: shown in the next user message]"),
        tool("2"),
        {"role": "user", "content": [{"type": "text", "text": "Images returned by tool call 1:"}, CHAT_IMAGE]},
    ]


def test_images_of_outputs_leave_a_note_without_vision() -> None:
    """Never base64 text."""
    assert messages(call("1"), output("1", [IMAGE, {"type": "input_file", "file_id": "f"}]), images=False)[1:] == [
        tool("1", "[input_image not shown: the model cannot read it]\n[input_file not shown: the model cannot read it]")
    ]


def test_capabilities_of_a_chat_server() -> None:
    """It cannot read encrypted reasoning."""
    assert ChatUpstream("a", "http://h", images=False).capabilities == Capabilities(images=False)


@pytest.mark.parametrize(
    "raw",
    [{"type": "compaction"}, {"type": "item_reference", "id": "msg_1"}, {"type": "web_search_call", "id": "ws_1"}],
)
def test_an_unprepared_item_raises(raw: JsonObject) -> None:
    """Never skipped silently."""
    with pytest.raises(TypeError, match="unprepared item"):
        messages(raw)


def test_an_unprepared_tool_choice_raises() -> None:
    """The loop resolves hosted and MCP choices."""
    with pytest.raises(TypeError, match="unprepared tool_choice"):
        build(Round("m", [], tools=[F], tool_choice={"type": "mcp", "server_label": "s"}))
