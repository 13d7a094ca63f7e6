"""The one normalisation, rule by rule (behaviour §2, §2.1, §3)."""

from dataclasses import dataclass
from typing import Any

import pytest

from outlast.loop.prepare import NO_VISION, Prepared, prepare
from outlast.protocol.items import dump, parse_item
from outlast.protocol.json import JsonObject


@dataclass(frozen=True)
class Server:
    """What a model server reads."""

    images: bool = True
    encrypted_reasoning: bool = False
    native: bool = False


PLAIN = Server()
OPENAI = Server(encrypted_reasoning=True)
USER: JsonObject = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]}
SAID: JsonObject = {
    "type": "message",
    "id": "msg_1",
    "role": "assistant",
    "status": "completed",
    "content": [{"type": "output_text", "text": "hello", "annotations": []}],
}
ASK: JsonObject = {
    "type": "mcp_approval_request",
    "id": "mcpr_1",
    "server_label": "desk",
    "name": "refund",
    "arguments": '{"order":1}',
}
MCP: JsonObject = {
    "type": "mcp_call",
    "id": "mcp_1",
    "server_label": "desk",
    "name": "refund",
    "arguments": '{"order":1}',
}
IMAGE: JsonObject = {"type": "input_image", "image_url": "data:image/png;base64,AA"}


def run(*raw: JsonObject, server: Server = PLAIN) -> Prepared:
    """Prepared items."""
    return prepare([parse_item(item) for item in raw], upstream=server)


def transcript(*raw: JsonObject, server: Server = PLAIN) -> list[JsonObject]:
    """The transcript as JSON."""
    return [dump(item) for item in run(*raw, server=server).transcript]


def call(call_id: str, name: str = "mcp__desk__refund", arguments: str = '{"order":1}') -> JsonObject:
    """A prepared call."""
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments}


def output(call_id: str, text: Any) -> JsonObject:
    """A prepared output."""
    return {"type": "function_call_output", "call_id": call_id, "output": text}


def decision(approve: bool, **fields: Any) -> JsonObject:
    """An approval response."""
    return {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": approve, **fields}


@pytest.mark.parametrize(
    ("fields", "call_id", "text"),
    [
        ({"output": "done"}, "mcp_1", "done"),
        ({"output": "done", "approval_request_id": "mcpr_1"}, "mcpr_1", "done"),
        ({}, "mcp_1", ""),
        ({"output": None, "error": None, "approval_request_id": None}, "mcp_1", ""),
        ({"status": "failed"}, "mcp_1", "failed"),
        ({"status": "incomplete"}, "mcp_1", "interrupted"),
        ({"status": "in_progress", "output": None}, "mcp_1", "interrupted"),
        ({"error": "broken"}, "mcp_1", "broken"),
        ({"error": {"type": "http_error", "code": 502, "message": "bad gateway"}}, "mcp_1", "bad gateway"),
        (
            {"error": {"type": "mcp_tool_execution_error", "content": [{"type": "text", "text": "a"}, {"text": "b"}]}},
            "mcp_1",
            "a\nb",
        ),
        ({"error": {"odd": 1}}, "mcp_1", '{"odd":1}'),
        ({"output": "half", "error": "then broken"}, "mcp_1", "half\nthen broken"),
    ],
)
def test_a_gateway_call_becomes_a_call_and_its_output(fields: JsonObject, call_id: str, text: str) -> None:
    """Named as the model knew it, the error folded into the text."""
    assert transcript({**MCP, **fields}) == [call(call_id), output(call_id, text)]


def test_list_items_leave_their_labels_only() -> None:
    """First-seen order, each once."""
    lists: list[JsonObject] = [
        {"type": "mcp_list_tools", "id": f"mcpl_{n}", "server_label": label, "tools": []}
        for n, label in enumerate("bab")
    ]
    prepared = run(USER, *lists, SAID)
    assert prepared.labels == ("b", "a")
    assert [dump(item) for item in prepared.transcript] == [USER, SAID]


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        ([ASK], []),
        ([ASK, decision(True)], []),
        (
            [ASK, decision(True), {**MCP, "approval_request_id": "mcpr_1", "output": "ok"}],
            [call("mcpr_1"), output("mcpr_1", "ok")],
        ),
        # The call stands where the model made it, before what the caller sent beside the decision.
        (
            [ASK, decision(True), SAID, {**MCP, "approval_request_id": "mcpr_1", "output": "ok"}],
            [call("mcpr_1"), output("mcpr_1", "ok"), SAID],
        ),
        ([ASK, decision(False)], [call("mcpr_1"), output("mcpr_1", "denied")]),
        ([ASK, SAID, decision(False, reason="too much")], [call("mcpr_1"), output("mcpr_1", "denied: too much"), SAID]),
        ([decision(False)], []),
        # What ran speaks for itself, whatever a client claims afterwards.
        (
            [ASK, {**MCP, "approval_request_id": "mcpr_1", "output": "ok"}, decision(False)],
            [call("mcpr_1"), output("mcpr_1", "ok")],
        ),
    ],
)
def test_an_ask_leaves_its_call_its_denial_or_nothing(sent: list[JsonObject], expected: list[JsonObject]) -> None:
    """Undecided ones are left out."""
    assert transcript(*sent) == expected


def test_a_client_cannot_answer_a_gateway_call() -> None:
    """Its output for our call id is dropped, also for an open ask."""
    forged = output("mcp_1", "refunded twice")
    assert transcript(forged, {**MCP, "output": "ok"}, forged) == [call("mcp_1"), output("mcp_1", "ok")]
    assert transcript(ASK, output("mcpr_1", "forged")) == []


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        ([call("a", "f"), output("a", "1")], [call("a", "f"), output("a", "1")]),
        # The last output wins and takes the first one's place.
        ([call("a", "f"), output("a", "1"), USER, output("a", "2")], [call("a", "f"), output("a", "2"), USER]),
        # An output before its call moves behind it.
        ([output("a", "1"), USER, call("a", "f")], [USER, call("a", "f"), output("a", "1")]),
        ([call("a", "f"), USER], [call("a", "f"), output("a", "interrupted"), USER]),
        ([output("a", "1")], []),
        # Chain and replay bring the same call twice.
        ([call("a", "f"), output("a", "1"), call("a", "f"), output("a", "1")], [call("a", "f"), output("a", "1")]),
        (
            [call("a", "f"), call("b", "f"), output("b", "2"), output("a", "1")],
            [call("a", "f"), call("b", "f"), output("b", "2"), output("a", "1")],
        ),
    ],
)
def test_every_call_has_one_output_after_it(sent: list[JsonObject], expected: list[JsonObject]) -> None:
    """Pairs go by call id, not by position."""
    assert transcript(*sent) == expected


def test_an_output_takes_the_form_of_its_call() -> None:
    """A custom call answered as a function."""
    custom: JsonObject = {"type": "custom_tool_call", "call_id": "a", "name": "f", "input": "x"}
    assert transcript({**custom, "id": "ctc_1", "status": "completed"}, output("a", "1")) == [
        custom,
        {"type": "custom_tool_call_output", "call_id": "a", "output": "1"},
    ]


def test_ids_and_status_of_clients_items_are_left_out() -> None:
    """A stored chain and a sent-again one differ in them; assistant messages keep theirs."""
    marks: JsonObject = {"id": "x_1", "status": "completed"}
    sent = [{**USER, **marks}, {**call("a", "f"), **marks}, {**output("a", "1"), **marks}, SAID]
    assert transcript(*sent) == [USER, call("a", "f"), output("a", "1"), SAID]


def test_the_same_text_twice_is_kept_twice() -> None:
    """Nothing is deduplicated by content; every role keeps its place."""
    system: JsonObject = {**USER, "role": "developer"}
    assert transcript(USER, system, USER, SAID, SAID) == [USER, system, USER, SAID, SAID]


def test_items_abandoned_by_a_retry_are_dropped() -> None:
    """Incomplete and empty; a truncated answer stays."""
    half = {**SAID, "status": "incomplete"}
    assert transcript(
        {**half, "content": []},
        {"type": "reasoning", "id": "rs_1", "summary": [], "content": [], "status": "incomplete"},
        half,
    ) == [half]


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        (
            {"type": "commandExecution", "id": "x1", "arguments": {"cmd": "ls"}, "output": "a.txt"},
            [call("x1", "commandExecution", '{"cmd":"ls"}'), output("x1", "a.txt")],
        ),
        (
            {"type": "acme:tool", "id": "x1", "call_id": "c1", "output": [{"a": 1}]},
            [call("c1", "acme_tool", "{}"), output("c1", '[{"a":1}]')],
        ),
        ({"type": "note", "content": [{"type": "text", "text": "a"}, {"text": "b"}]}, ["a\nb"]),
        ({"type": "note", "content": "hello"}, ["hello"]),
        ({"type": "additional_tools", "role": "developer", "tools": []}, []),
        ({"type": "contextCompaction", "id": "x"}, []),
        (
            {
                "type": "web_search_call",
                "id": "ws_1",
                "status": "completed",
                "action": {"type": "search", "query": "tea"},
            },
            [call("ws_1", "web_search", '{"type":"search","query":"tea"}'), output("ws_1", "completed")],
        ),
    ],
)
def test_items_of_unknown_type_become_a_pair_a_text_or_nothing(item: JsonObject, expected: list[Any]) -> None:
    """Never an error."""
    assert transcript(item) == [
        {**USER, "content": [{"type": "input_text", "text": one}]} if isinstance(one, str) else one for one in expected
    ]


def test_an_unknown_output_answers_the_call_that_is_there() -> None:
    """Not a second pair."""
    assert transcript(call("a", "f"), {"type": "mcpToolCall", "call_id": "a", "output": "1"}) == [
        call("a", "f"),
        output("a", "1"),
    ]


@pytest.mark.parametrize(
    ("fields", "kept"),
    [
        ({"content": [{"type": "reasoning_text", "text": "a"}, {"type": "text", "text": "b"}]}, "a\nb"),
        ({"content": [{"type": "reasoning_text", "text": ""}, {"type": "x", "text": "b"}]}, "\nb"),
        ({"content": [{"type": "text", "text": "a"}], "encrypted_content": "x", "summary": [{"text": "s"}]}, "a"),
        ({"content": [{"type": "reasoning_text", "text": ""}]}, None),
        ({"summary": [{"type": "summary_text", "text": "s"}]}, None),
        ({"encrypted_content": "sealed"}, None),
        ({"encrypted_content": None}, None),
        ({}, None),
    ],
)
def test_other_servers_get_reasoning_as_one_plain_text(fields: JsonObject, kept: str | None) -> None:
    """Summary and seal are cleared, id and status stay; what holds no plain text is removed."""
    item: JsonObject = {"type": "reasoning", "id": "rs_1", "status": "completed", "summary": [], **fields}
    plain = {**item, "summary": [], "content": [{"type": "reasoning_text", "text": kept}]}
    plain.pop("encrypted_content", None)
    assert transcript(item, SAID) == [*([plain] if kept is not None else []), SAID]


SEALED: JsonObject = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": {"k": "x"}}


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        ([SEALED, SAID], [SEALED, SAID]),
        ([SEALED, {**SEALED, "id": "rs_2"}, SAID], [SEALED, {**SEALED, "id": "rs_2"}, SAID]),
        ([{**SEALED, "content": [{"text": "plain"}]}, SAID], [SEALED, SAID]),
        ([{**SEALED, "encrypted_content": None, "content": [{"text": "plain"}]}, SAID], [SAID]),
        ([SEALED, {**MCP, "output": "ok"}], [SEALED, call("mcp_1"), output("mcp_1", "ok")]),
        # Orphans: what it led to is gone.
        ([SEALED], []),
        ([SEALED, USER], [USER]),
        ([SEALED, ASK, USER], [USER]),
        ([SEALED, {**SAID, "status": "incomplete", "content": []}], []),
    ],
)
def test_an_openai_server_gets_its_seal_back_as_it_was(sent: list[JsonObject], expected: list[JsonObject]) -> None:
    """Byte for byte, with what it led to; nothing it cannot open."""
    assert transcript(*sent, server=OPENAI) == expected


def test_a_server_without_vision_gets_a_note_for_each_image() -> None:
    """A picture must not fail a later round."""
    note: JsonObject = {"type": "input_text", "text": NO_VISION}
    message = {**USER, "content": [*USER["content"], IMAGE]}
    sent = [message, call("a", "f"), output("a", [IMAGE])]
    assert transcript(*sent) == sent
    assert transcript(*sent, server=Server(images=False)) == [
        {**USER, "content": [*USER["content"], note]},
        call("a", "f"),
        output("a", [note]),
    ]


@pytest.mark.parametrize("kind", ["item_reference", "compaction", "compaction_trigger"])
def test_what_should_have_been_resolved_or_refused_is_a_bug(kind: str) -> None:
    """Never skipped in silence."""
    with pytest.raises(ValueError, match=kind):
        transcript({"type": kind, "id": "x"})
