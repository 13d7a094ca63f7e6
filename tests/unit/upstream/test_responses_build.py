"""Requests of the Responses dialect, as whole bodies."""

from typing import Any

import pytest

from outlast.protocol import items, json
from outlast.protocol.json import JsonObject
from outlast.upstream.base import Capabilities, ModelTool, Round
from outlast.upstream.responses import ResponsesUpstream

TRANSCRIPT: list[JsonObject] = [
    {"role": "user", "content": "hi"},
    {"type": "reasoning", "id": "rs_1", "encrypted_content": "sealed", "summary": [], "content": None},
    {
        "type": "message",
        "id": "msg_1",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "yo"}],
        "phase": None,
    },
    {
        "type": "function_call",
        "id": "fc_1",
        "call_id": "call_1",
        "name": "f",
        "arguments": "{}",
        "status": "completed",
        "x": 1,
    },
    {"type": "function_call_output", "id": "fco_1", "call_id": "call_1", "output": "42"},
    {"type": "custom_tool_call", "id": "ctc_1", "call_id": "call_2", "name": "c", "input": "free"},
    {"type": "custom_tool_call_output", "call_id": "call_2", "output": "ok"},
    {"type": "reasoning", "id": "rs_2", "content": [{"type": "reasoning_text", "text": "hm"}]},
]


def prepared(*raw: JsonObject) -> list[Any]:
    """Items as `prepare_transcript` hands them over."""
    return [items.parse_item(item) for item in raw]


def build(round: Round, *, openai: bool = False) -> JsonObject:
    """The body of a round."""
    request = ResponsesUpstream("main", "http://h/v1", openai=openai).build(round)
    assert request.path == "/responses"
    body: JsonObject = json.loads(request.body)
    return body


def test_a_bare_round_sends_nothing_the_client_did_not_give() -> None:
    """Easy messages get their type; the server keeps nothing and streams."""
    assert build(Round("m", prepared({"role": "user", "content": "hi"}))) == {
        "model": "m",
        "input": [{"type": "message", "role": "user", "content": "hi"}],
        "stream": True,
        "store": False,
    }


def test_everything_given_is_passed_on() -> None:
    """Tools are flat functions; state on the server is never asked for, whatever `extra` says."""
    body = build(
        Round(
            "m",
            [],
            instructions="be kind",
            tools=[ModelTool("f", "does f", {"type": "object"}, strict=True), ModelTool("g", None, None)],
            tool_choice={"type": "function", "name": "f"},
            parallel_tool_calls=False,
            max_output_tokens=64,
            temperature=0.0,
            top_p=0.5,
            top_logprobs=2,
            reasoning={"effort": "low"},
            text={"format": {"type": "text"}},
            include=["message.output_text.logprobs"],
            extra={
                "user": "u",
                "safety_identifier": None,
                "previous_response_id": "resp_1",
                "conversation": "conv_1",
                "background": True,
                "store": True,
                "stream": False,
                "stream_options": {"include_obfuscation": True},
                "model": "other",
            },
        )
    )
    assert body == {
        "user": "u",
        "model": "m",
        "input": [],
        "stream": True,
        "store": False,
        "instructions": "be kind",
        "tools": [
            {
                "type": "function",
                "name": "f",
                "description": "does f",
                "parameters": {"type": "object"},
                "strict": True,
            },
            {"type": "function", "name": "g"},
        ],
        "tool_choice": {"type": "function", "name": "f"},
        "parallel_tool_calls": False,
        "max_output_tokens": 64,
        "temperature": 0.0,
        "top_p": 0.5,
        "top_logprobs": 2,
        "reasoning": {"effort": "low"},
        "text": {"format": {"type": "text"}},
        "include": ["message.output_text.logprobs"],
    }


def test_a_choice_without_tools_is_not_sent() -> None:
    """Servers refuse it."""
    assert build(Round("m", [], tool_choice="auto", parallel_tool_calls=True)) == {
        "model": "m",
        "input": [],
        "stream": True,
        "store": False,
    }


def test_items_go_as_they_are_without_nulls() -> None:
    """Ids of ours and unknown fields stay; a reasoning item has a summary, if an empty one."""
    assert build(Round("m", prepared(*TRANSCRIPT)))["input"] == [
        {"type": "message", "role": "user", "content": "hi"},
        {"type": "reasoning", "id": "rs_1", "encrypted_content": "sealed", "summary": []},
        {"type": "message", "id": "msg_1", "role": "assistant", "content": [{"type": "output_text", "text": "yo"}]},
        TRANSCRIPT[3],
        TRANSCRIPT[4],
        TRANSCRIPT[5],
        TRANSCRIPT[6],
        {**TRANSCRIPT[7], "summary": []},
    ]


def test_openai_gets_no_ids_but_those_of_encrypted_reasoning() -> None:
    """It looks ids up; encrypted reasoning is asked for, once, and obfuscation is off."""
    body = build(Round("m", prepared(*TRANSCRIPT), include=["reasoning.encrypted_content"]), openai=True)
    assert [item.get("id") for item in body["input"]] == [None, "rs_1", None, None, None, None, None, None]
    assert body["include"] == ["reasoning.encrypted_content"]
    assert body["stream_options"] == {"include_obfuscation": False}
    assert build(Round("m", []), openai=True)["include"] == ["reasoning.encrypted_content"]


def test_capabilities_say_who_can_read_encrypted_reasoning() -> None:
    """Preparation asks."""
    assert ResponsesUpstream("a", "http://h", openai=True).capabilities == Capabilities(
        encrypted_reasoning=True, native=True
    )
    assert ResponsesUpstream("a", "http://h", images=False).capabilities == Capabilities(images=False, native=True)


def test_an_unprepared_item_raises() -> None:
    """Never skipped silently."""
    call = {"type": "mcp_call", "id": "mcp_1", "server_label": "s", "name": "t", "arguments": "{}"}
    with pytest.raises(TypeError, match="mcp_call"):
        build(Round("m", prepared(call)))


def test_native_tools_and_items_go_as_they_are() -> None:
    """With what is left of the cap; an OpenAI server, which keeps nothing, gets ids where their type needs one."""
    shell = {"type": "shell_call", "call_id": "k", "action": {"commands": ["ls"]}}
    search = {"type": "web_search_call", "id": "ws_1", "status": "completed"}
    picture = {"type": "image_generation_call", "id": "ig_1", "status": "completed", "result": "AA"}
    tools = [{"type": "web_search"}, {"type": "custom", "name": "c"}]
    round = Round(
        "m", prepared(shell, search, picture), native=tools, tool_choice={"type": "web_search"}, max_tool_calls=2
    )
    body = build(round)
    assert (body["tools"], body["tool_choice"], body["max_tool_calls"]) == (tools, {"type": "web_search"}, 2)
    assert body["input"] == [shell, search, picture]
    assert build(round, openai=True)["input"] == [shell, {"type": "web_search_call", "status": "completed"}, picture]
