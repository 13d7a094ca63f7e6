"""Chunks of Chat Completions as Responses events."""

import re
from typing import Any

import pytest

from outlast.protocol import errors
from outlast.protocol.json import JsonObject
from outlast.upstream.chat_stream import Translator
from outlast.upstream.failures import Identity


def translate(*chunks: JsonObject) -> list[JsonObject]:
    """Bodies of all events, ids replaced by their prefix and order: `msg_<1>`."""
    translator = Translator(Identity("main", "http://h/v1"))
    out: list[Any] = []
    for chunk in chunks:
        translator.feed(chunk, out)
    assert translator.finished
    seen: dict[str, str] = {}
    return [_plain(event.body(), seen) for event in [*out, *translator.close()]]


def _plain(value: Any, seen: dict[str, str]) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item, seen) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item, seen) for item in value]
    if isinstance(value, str) and (match := re.fullmatch(r"(resp|msg|rs|fc|call)_[0-9a-f]{32}", value)):
        return seen.setdefault(value, f"{match[1]}_<{len(seen)}>")
    return value


def chunk(delta: JsonObject | None = None, finish: str | None = None, **fields: Any) -> JsonObject:
    """One chunk with one choice."""
    choice = {"index": 0, "delta": delta or {}, "finish_reason": finish, "logprobs": fields.pop("logprobs", None)}
    return {"id": "chatcmpl-1", "created": 17, "model": "m", "choices": [choice], **fields}


def call(index: int, arguments: str = "", **function: Any) -> JsonObject:
    """A delta with a piece of one call."""
    call_id = {"id": function.pop("id")} if "id" in function else {}
    return {"tool_calls": [{"index": index, **call_id, "function": {"arguments": arguments, **function}}]}


STOP = chunk(finish="stop")
RESPONSE = {
    "id": "resp_<0>",
    "object": "response",
    "created_at": 17,
    "status": "in_progress",
    "model": "m",
    "error": None,
    "incomplete_details": None,
    "output": [],
    "usage": None,
}
USAGE = {
    "prompt_tokens": 7,
    "completion_tokens": 5,
    "total_tokens": 12,
    "prompt_tokens_details": {"cached_tokens": 3},
    "completion_tokens_details": {"reasoning_tokens": 2},
}


def outputs(*chunks: JsonObject) -> list[JsonObject]:
    """The items of the terminal event, which are those announced, index by index."""
    bodies = translate(*chunks)
    done = [body["item"] for body in bodies if body["type"] == "response.output_item.done"]
    assert bodies[-1]["response"]["output"] == done
    return done


def test_a_whole_round_is_strictly_nested() -> None:
    """Reasoning, message, call, usage: every event of it."""
    bodies = translate(
        chunk({"role": "assistant", "content": ""}),
        chunk({"reasoning_content": "h"}),
        chunk({"reasoning_content": "m"}),
        chunk({"content": "Hel"}),
        chunk({"content": "lo"}),
        chunk(call(0, '{"a"', id="call_x", name="f")),
        chunk(call(0, ":1}")),
        chunk(finish="tool_calls"),
        {"choices": [], "usage": USAGE},
    )
    thought: JsonObject = {"type": "reasoning_text", "text": "hm"}
    text: JsonObject = {"type": "output_text", "text": "Hello", "annotations": [], "logprobs": []}
    rs = {"type": "reasoning", "id": "rs_<1>", "summary": []}
    msg = {"type": "message", "id": "msg_<2>", "role": "assistant"}
    fc = {"type": "function_call", "id": "fc_<3>", "call_id": "call_x", "name": "f"}
    items = [
        {**rs, "content": [thought], "status": "completed"},
        {**msg, "content": [text], "status": "completed"},
        {**fc, "arguments": '{"a":1}', "status": "completed"},
    ]
    in_rs = {"output_index": 0, "item_id": "rs_<1>", "content_index": 0}
    in_msg = {"output_index": 1, "item_id": "msg_<2>", "content_index": 0}
    in_fc = {"output_index": 2, "item_id": "fc_<3>"}
    usage = {
        "input_tokens": 7,
        "input_tokens_details": {"cached_tokens": 3},
        "output_tokens": 5,
        "output_tokens_details": {"reasoning_tokens": 2},
        "total_tokens": 12,
    }
    expected: list[tuple[str, JsonObject]] = [
        ("response.created", {"response": RESPONSE}),
        ("response.in_progress", {"response": RESPONSE}),
        ("response.output_item.added", {"output_index": 0, "item": {**rs, "content": [], "status": "in_progress"}}),
        ("response.content_part.added", {**in_rs, "part": {**thought, "text": ""}}),
        ("response.reasoning_text.delta", {**in_rs, "delta": "h"}),
        ("response.reasoning_text.delta", {**in_rs, "delta": "m"}),
        ("response.reasoning_text.done", {**in_rs, "text": "hm"}),
        ("response.content_part.done", {**in_rs, "part": thought}),
        ("response.output_item.done", {"output_index": 0, "item": items[0]}),
        ("response.output_item.added", {"output_index": 1, "item": {**msg, "content": [], "status": "in_progress"}}),
        ("response.content_part.added", {**in_msg, "part": {**text, "text": ""}}),
        ("response.output_text.delta", {**in_msg, "delta": "Hel", "logprobs": []}),
        ("response.output_text.delta", {**in_msg, "delta": "lo", "logprobs": []}),
        ("response.output_text.done", {**in_msg, "text": "Hello", "logprobs": []}),
        ("response.content_part.done", {**in_msg, "part": text}),
        ("response.output_item.done", {"output_index": 1, "item": items[1]}),
        ("response.output_item.added", {"output_index": 2, "item": {**fc, "arguments": "", "status": "in_progress"}}),
        ("response.function_call_arguments.delta", {**in_fc, "delta": '{"a":1}'}),
        ("response.function_call_arguments.done", {**in_fc, "name": "f", "arguments": '{"a":1}'}),
        ("response.output_item.done", {"output_index": 2, "item": items[2]}),
        ("response.completed", {"response": {**RESPONSE, "status": "completed", "output": items, "usage": usage}}),
    ]
    assert bodies == [{"type": kind, **rest} for kind, rest in expected]


def test_interleaved_call_deltas_are_routed_by_index() -> None:
    """A call without an id gets one, one without a name becomes no item, no arguments are an empty object."""
    assert outputs(
        chunk(call(1, '{"b"', id="call_b", name="g")),
        chunk(call(0, '{"a"', name="f")),
        chunk(call(1, ":2}", name="g")),
        chunk(call(2, "{}", id="call_c")),
        chunk(call(0, ":1}")),
        chunk(call(3, id="call_d", name="h")),
        chunk(finish="tool_calls"),
    ) == [
        {
            "type": "function_call",
            "id": "fc_<1>",
            "call_id": "call_b",
            "name": "g",
            "arguments": '{"b":2}',
            "status": "completed",
        },
        {
            "type": "function_call",
            "id": "fc_<2>",
            "call_id": "call_<3>",
            "name": "f",
            "arguments": '{"a":1}',
            "status": "completed",
        },
        {
            "type": "function_call",
            "id": "fc_<4>",
            "call_id": "call_d",
            "name": "h",
            "arguments": "{}",
            "status": "completed",
        },
    ]


def test_whole_calls_under_one_index_stay_apart() -> None:
    """Some servers number every call 0 or not at all."""
    first: JsonObject = {"id": "a", "function": {"name": "f", "arguments": "{}"}}
    second: JsonObject = {"id": "b", "function": {"name": "f", "arguments": {"x": 1}}}
    items = outputs(chunk({"tool_calls": [first, second]}), chunk(finish="tool_calls"))
    assert [(item["call_id"], item["arguments"]) for item in items] == [("a", "{}"), ("b", '{"x":1}')]


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_reasoning_in_either_field(field: str) -> None:
    """Before the message, as an item of its own."""
    items = outputs(chunk({field: "hm"}), chunk({"content": "a"}), STOP)
    assert [(item["type"], item["content"][0]["text"]) for item in items] == [("reasoning", "hm"), ("message", "a")]


def test_think_tags_split_over_chunks_become_a_reasoning_item() -> None:
    """As if the server had a field for it."""
    items = outputs(*[chunk({"content": piece}) for piece in ("<th", "ink>h", "m</", "think>\n", "\nSo", " b")], STOP)
    assert [(item["type"], item["content"][0]["text"]) for item in items] == [("reasoning", "hm"), ("message", "So b")]


def test_reasoning_after_text_is_an_item_of_its_own() -> None:
    """Nothing is interleaved within an item."""
    items = outputs(chunk({"content": "a"}), chunk({"reasoning": "r"}), chunk({"content": "b"}), STOP)
    assert [(item["id"], item["content"][0]["text"]) for item in items] == [
        ("msg_<1>", "a"),
        ("rs_<2>", "r"),
        ("msg_<3>", "b"),
    ]


def test_a_refusal_is_a_part_beside_the_text() -> None:
    """Its index follows the text's."""
    bodies = translate(chunk({"content": "Well"}), chunk({"refusal": "No"}), chunk({"refusal": "."}), STOP)
    at = {"output_index": 0, "item_id": "msg_<1>", "content_index": 1}
    part = {"type": "refusal", "refusal": "No."}
    assert bodies[7:-2] == [
        {"type": "response.content_part.added", **at, "part": {"type": "refusal", "refusal": ""}},
        {"type": "response.refusal.delta", **at, "delta": "No"},
        {"type": "response.refusal.delta", **at, "delta": "."},
        {"type": "response.refusal.done", **at, "refusal": "No."},
        {"type": "response.content_part.done", **at, "part": part},
    ]
    assert bodies[-2]["item"]["content"][1] == part


def test_logprobs_get_the_keys_a_server_left_out() -> None:
    """Strict readers want every one of them, in the delta and in the part."""
    given: JsonObject = {"token": "ä", "logprob": -1.0, "top_logprobs": [{"token": "a", "logprob": -2.0}], "id": 7}
    whole: JsonObject = {
        "token": "ä",
        "logprob": -1.0,
        "bytes": [195, 164],
        "top_logprobs": [{"token": "a", "logprob": -2.0, "bytes": [97]}],
    }
    bodies = translate(chunk({"content": "ä"}, logprobs={"content": [given]}), STOP)
    assert [body["logprobs"] for body in bodies if "logprobs" in body] == [[whole], [whole]]


def test_logprobs_are_relayed_and_summed() -> None:
    """In deltas, in the text's end and in its part."""
    token: JsonObject = {"token": "a", "logprob": -0.1, "bytes": [97], "top_logprobs": []}
    bodies = translate(chunk({"content": "a"}, logprobs={"content": [token]}), chunk({"content": "b"}), STOP)
    assert [body["logprobs"] for body in bodies if "logprobs" in body] == [[token], [], [token]]
    assert bodies[-1]["response"]["output"][0]["content"][0]["logprobs"] == [token]


@pytest.mark.parametrize(("finish", "reason"), [("length", "max_output_tokens"), ("content_filter", "content_filter")])
def test_a_cut_answer_is_incomplete(finish: str, reason: str) -> None:
    """And so are its open message and its calls, whose arguments stay as they are."""
    bodies = translate(chunk({"content": "a"}), chunk(call(0, '{"a', id="c", name="f")), chunk(finish=finish))
    assert bodies[-1]["type"] == "response.incomplete"
    response = bodies[-1]["response"]
    assert (response["status"], response["incomplete_details"]) == ("incomplete", {"reason": reason})
    assert [(item["status"], item.get("arguments")) for item in response["output"]] == [
        ("incomplete", None),
        ("incomplete", '{"a'),
    ]


def test_usage_without_details_or_sum_is_filled_in() -> None:
    """Cumulative figures: the last ones count."""
    bodies = translate(
        chunk({"content": "a"}, usage={"prompt_tokens": 7, "completion_tokens": 1}),
        chunk(finish="stop", usage={"prompt_tokens": 7, "completion_tokens": 2, "prompt_tokens_details": None}),
    )
    assert bodies[-1]["response"]["usage"] == {
        "input_tokens": 7,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": 2,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 9,
    }


def test_an_empty_answer_completes_without_items() -> None:
    """White space a template leaves before calls is no message."""
    assert [body["type"] for body in translate(chunk({"content": "\n\n"}), STOP)] == [
        "response.created",
        "response.in_progress",
        "response.completed",
    ]


@pytest.mark.parametrize(
    ("bad", "kind"),
    [
        ({"error": {"message": "m", "code": 400}}, errors.UpstreamRefused),
        ({"error": "m"}, errors.UpstreamUnavailable),
        ({"object": "error", "message": "m", "type": "BadRequestError", "code": 429}, errors.UpstreamRateLimited),
        (chunk(finish="abort"), errors.UpstreamUnavailable),
        (chunk({"content": [{"type": "text"}]}), errors.UpstreamUnavailable),
    ],
)
def test_a_broken_answer_raises(bad: JsonObject, kind: type[errors.UpstreamError]) -> None:
    """Never an empty success."""
    with pytest.raises(errors.UpstreamError) as caught:
        translate(bad)
    assert type(caught.value) is kind


def test_the_end_is_known_once_usage_was_seen() -> None:
    """No need to wait for [DONE]; usage sent earlier is not final."""
    translator = Translator(Identity("main", "http://h/v1"))
    translator.feed(chunk({"content": "a"}, usage=USAGE), [])
    translator.feed(STOP, [])
    assert (translator.finished, translator.ended) == (True, False)
    translator.feed({"choices": [], "usage": USAGE}, [])
    assert translator.ended
