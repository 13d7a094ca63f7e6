"""Approval policy, fingerprints and which approval responses are decisions."""

from typing import Any

import pytest
from pydantic import TypeAdapter

from outlast.loop.approvals import allowed, fingerprint, needs_approval, split_decisions
from outlast.protocol.errors import InvalidRequest
from outlast.protocol.items import Item, McpApprovalResponse, dump, parse_item
from outlast.protocol.json import JsonObject
from outlast.protocol.tools import AllowedTools, RequireApproval

_POLICY: TypeAdapter[RequireApproval | None] = TypeAdapter(RequireApproval | None)
_ALLOWED: TypeAdapter[AllowedTools | None] = TypeAdapter(AllowedTools | None)

# Who asks: read-only `look`, not read-only `pay`, and `mystery` without annotations.
TOOLS = (("look", True), ("pay", False), ("mystery", None))


@pytest.mark.parametrize(
    ("policy", "asks"),
    [
        (None, ["look", "pay", "mystery"]),
        ("always", ["look", "pay", "mystery"]),
        ("never", []),
        ({}, ["look", "pay", "mystery"]),
        ({"never": {}}, ["look", "pay", "mystery"]),
        ({"never": {"tool_names": []}}, ["look", "pay", "mystery"]),
        ({"never": {"tool_names": ["pay"]}}, ["look", "mystery"]),
        ({"never": {"read_only": True}}, ["pay", "mystery"]),
        ({"never": {"read_only": False}}, ["look"]),
        ({"never": {"read_only": True, "tool_names": ["pay", "look"]}}, ["pay", "mystery"]),
        ({"always": {"tool_names": ["pay"]}}, ["look", "pay", "mystery"]),
        ({"always": {"tool_names": ["pay"]}, "never": {"tool_names": ["pay", "look"]}}, ["pay", "mystery"]),
        ({"always": {"read_only": False}, "never": {"tool_names": ["look", "mystery"]}}, ["pay", "mystery"]),
        ({"always": None, "never": None}, ["look", "pay", "mystery"]),
    ],
)
def test_a_call_asks_unless_the_policy_surely_says_never(policy: Any, asks: list[str]) -> None:
    """Missing means always, unmatched asks, both lists mean ask, no annotation means not read-only."""
    parsed = _POLICY.validate_python(policy)
    assert [name for name, read_only in TOOLS if needs_approval(parsed, name, read_only)] == asks


@pytest.mark.parametrize(
    ("given", "offered"),
    [
        (None, ["look", "pay", "mystery"]),
        ([], []),
        (["pay"], ["pay"]),
        ({}, ["look", "pay", "mystery"]),
        ({"tool_names": ["pay", "gone"]}, ["pay"]),
        ({"tool_names": []}, []),
        ({"read_only": True}, ["look"]),
        ({"read_only": False}, ["pay", "mystery"]),
        ({"read_only": True, "tool_names": ["pay", "look"]}, ["look"]),
    ],
)
def test_allowed_tools_restrict_what_is_offered(given: Any, offered: list[str]) -> None:
    """A list of names or a filter whose criteria must all hold."""
    parsed = _ALLOWED.validate_python(given)
    assert [name for name, read_only in TOOLS if allowed(parsed, name, read_only)] == offered


BOUND = {"tenant": "t", "server": "https://d/", "tool": "pay", "arguments": '{"a": 1, "b": [1.5]}', "owner": "o"}


@pytest.mark.parametrize("arguments", ['{"b":[1.5],"a":1}', ' {"a": 1, "b": [1.50]} '])
def test_equal_arguments_have_one_fingerprint(arguments: str) -> None:
    """Key order and spaces are no difference."""
    assert fingerprint(**{**BOUND, "arguments": arguments}) == fingerprint(**BOUND)


@pytest.mark.parametrize(
    "change",
    [
        {"tenant": "t2"},
        {"server": "https://evil/"},
        {"tool": "look"},
        {"owner": "o2"},
        {"arguments": '{"a": 1, "b": ["1.5"]}'},
        {"arguments": '{"a": true, "b": [1.5]}'},
        {"arguments": "not json"},
        {"tenant": "t\0https", "server": "://d/"},
    ],
)
def test_whatever_was_approved_is_bound(change: dict[str, str]) -> None:
    """Each part counts, and parts do not run into each other."""
    assert fingerprint(**{**BOUND, **change}) != fingerprint(**BOUND)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("18446744073709551616", "18446744073709551617"),
        ('"not json"', "not json"),
        ("[" * 5000, "[" * 5001),
    ],
)
def test_different_arguments_never_share_a_fingerprint(one: str, other: str) -> None:
    """Big numbers keep every digit, text is not its quoted self, hopeless nesting is text."""
    assert fingerprint(**{**BOUND, "arguments": one}) != fingerprint(**{**BOUND, "arguments": other})


def items(*raw: JsonObject) -> list[Item]:
    """Parsed items."""
    return [parse_item(value) for value in raw]


USER: JsonObject = {"type": "message", "role": "user", "content": "hi"}
SAID: JsonObject = {"type": "message", "role": "assistant", "content": "hello"}
ASK: JsonObject = {
    "type": "mcp_approval_request",
    "id": "mcpr_1",
    "server_label": "d",
    "name": "pay",
    "arguments": "{}",
}
YES: JsonObject = {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": True}
NO: JsonObject = {**YES, "approve": False}
OTHER: JsonObject = {**YES, "approval_request_id": "mcpr_2"}
CALL: JsonObject = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
OUTPUT: JsonObject = {"type": "function_call_output", "call_id": "c", "output": "1"}
RAN: JsonObject = {"type": "mcp_call", "id": "mcp_1", "server_label": "d", "name": "pay", "arguments": "{}"}
SEARCH: JsonObject = {"type": "web_search_call", "id": "ws_1"}


@pytest.mark.parametrize(
    ("sent", "decisions", "rest"),
    [
        ([], [], []),
        ([YES], [YES], []),
        ([YES, USER], [YES], [USER]),
        ([OUTPUT, YES, OTHER], [YES, OTHER], [OUTPUT]),
        ([USER, ASK, YES], [YES], [USER, ASK]),
        ([USER, CALL, ASK, OUTPUT, NO], [NO], [USER, CALL, ASK, OUTPUT]),
        ([YES, YES], [YES], []),
        # Stateless third turn: answered long ago.
        ([USER, ASK, YES, RAN, SAID, USER], [], [USER, ASK, YES, RAN, SAID, USER]),
        ([USER, ASK, NO, SAID, USER], [], [USER, ASK, NO, SAID, USER]),
        ([ASK, YES, SEARCH, USER], [], [ASK, YES, SEARCH, USER]),
        # An old decision and a new one.
        ([ASK, NO, SAID, {**ASK, "id": "mcpr_2"}, OTHER], [OTHER], [ASK, NO, SAID, {**ASK, "id": "mcpr_2"}]),
    ],
)
def test_only_responses_after_the_last_model_made_item_decide(
    sent: list[JsonObject], decisions: list[JsonObject], rest: list[JsonObject]
) -> None:
    """Earlier ones are history, kept where they stand."""
    split = split_decisions(items(*sent))
    assert [dump(item) for item in split.decisions] == decisions
    assert [dump(item) for item in split.rest] == rest
    assert all(isinstance(item, McpApprovalResponse) for item in split.decisions)


def test_an_input_that_contradicts_itself_is_refused() -> None:
    """Neither decision is applied."""
    with pytest.raises(InvalidRequest) as caught:
        split_decisions(items(ASK, YES, NO))
    assert caught.value.param == "input[2].approve"
    assert caught.value.message == "'input' both approves and denies 'mcpr_1': send one decision per request."
