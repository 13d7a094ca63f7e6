"""What is refused before anything happened, and references."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from outlast.loop.validate import references, resolve, validate
from outlast.protocol.errors import InvalidRequest, NotFound
from outlast.protocol.items import dump, parse_item
from outlast.protocol.json import JsonObject


@dataclass(frozen=True)
class Server:
    """What a model server reads."""

    images: bool = True
    encrypted_reasoning: bool = False
    native: bool = False


USER: JsonObject = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]}
CALL: JsonObject = {"type": "function_call", "call_id": "call_1", "name": "f", "arguments": "{}"}
OUTPUT: JsonObject = {"type": "function_call_output", "call_id": "call_1", "output": "1"}
CUSTOM: JsonObject = {"type": "custom_tool_call", "call_id": "call_1", "name": "f", "input": "x"}
SEALED: JsonObject = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "secret"}
MCP: JsonObject = {"type": "mcp_call", "id": "mcp_1", "server_label": "d", "name": "t", "arguments": "{}"}
IMAGE: JsonObject = {"type": "input_image", "image_url": "data:image/png;base64,AA"}


def check(
    history: Sequence[JsonObject],
    inputs: Sequence[JsonObject],
    server: Server | None = None,
    interrupted: Sequence[str] = (),
) -> None:
    """`validate` of JSON items."""
    validate(
        [parse_item(item) for item in history],
        [parse_item(item) for item in inputs],
        upstream=server or Server(),
        interrupted=interrupted,
    )


def refused(*args: Any, **kwargs: Any) -> tuple[str | None, str]:
    """(param, text) of the refusal."""
    with pytest.raises(InvalidRequest) as caught:
        check(*args, **kwargs)
    return caught.value.param, caught.value.message


@pytest.mark.parametrize(
    ("history", "inputs", "text"),
    [
        ([], [OUTPUT], "No tool call found for function call output with call_id call_1."),
        ([MCP], [{**OUTPUT, "call_id": "mcp_1"}], "No tool call found for function call output with call_id mcp_1."),
        ([USER, CALL], [USER], "No tool output found for function call call_1."),
        ([], [USER, CALL, USER], "No tool output found for function call call_1."),
        ([CUSTOM], [USER], "No tool output found for custom tool call call_1."),
    ],
)
def test_calls_and_outputs_without_each_other_are_refused(
    history: list[JsonObject], inputs: list[JsonObject], text: str
) -> None:
    """With the texts of the real API, param `input`."""
    assert refused(history, inputs) == ("input", text)


def test_an_output_without_a_call_is_looked_for_where_it_is() -> None:
    """One in the history cannot be mended by another input."""
    text = "No tool call found for function call output with call_id call_1."
    assert refused([USER, OUTPUT], [USER]) == ("previous_response_id", text)


@pytest.mark.parametrize(
    ("history", "inputs"),
    [
        ([CALL], [OUTPUT]),
        ([CALL], [OUTPUT, OUTPUT]),
        ([], [OUTPUT, CALL]),
        ([CUSTOM], [OUTPUT]),
        ([{**CALL, "status": "incomplete"}], [USER]),
        ([CALL], [{"type": "mcpToolCall", "call_id": "call_1", "output": "1"}]),
        ([MCP], [USER]),
        ([], [{"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": True}]),
    ],
)
def test_whatever_can_be_paired_passes(history: list[JsonObject], inputs: list[JsonObject]) -> None:
    """By call id, over chain and input; a call cut in its round needs no answer."""
    check(history, inputs)


def test_calls_of_a_response_that_ended_badly_need_no_output() -> None:
    """It stays continuable."""
    check([CALL], [USER], interrupted=["call_1"])


def test_sealed_reasoning_is_refused_by_a_server_that_cannot_read_it() -> None:
    """The text names the item, never its content; in a chain the chain is what must change."""
    text = (
        "Reasoning item 'rs_1' carries 'encrypted_content' that this model's server cannot read: "
        "leave the item out, or use a model of the server that made it."
    )
    assert refused([], [USER, SEALED]) == ("input[1]", text)
    assert refused([SEALED], [USER]) == ("previous_response_id", text)


@pytest.mark.parametrize(
    ("item", "server"),
    [
        (SEALED, Server(encrypted_reasoning=True)),
        ({**SEALED, "content": [{"type": "reasoning_text", "text": "plain"}]}, Server()),
        ({**SEALED, "encrypted_content": None}, Server()),
    ],
)
def test_readable_reasoning_passes(item: JsonObject, server: Server) -> None:
    """By its maker, or because plain text is there."""
    check([], [item, USER], server)


def test_an_image_for_a_model_without_vision_is_refused_naming_the_part() -> None:
    """In messages, in outputs, in the chain."""
    message = {**USER, "content": [*USER["content"], IMAGE]}
    blind = Server(images=False)
    check([message], [message])
    assert refused([], [USER, message], blind) == (
        "input[1].content[1]",
        "This model does not read images: remove the image part at 'input[1].content[1]'.",
    )
    assert refused([CALL], [{**OUTPUT, "output": [IMAGE]}], blind)[0] == "input[0].output[0]"
    assert refused([message], [USER], blind)[0] == "previous_response_id"


def test_references_become_the_items_they_name() -> None:
    """In place, each once; what the input or the chain has already is not put in again."""
    stored = {"msg_1": {**USER, "id": "msg_1"}, "fc_1": {**CALL, "id": "fc_1"}}
    sent: list[JsonObject] = [
        {"type": "item_reference", "id": "msg_1"},
        {"type": "item_reference", "id": "fc_1"},
        {"type": "item_reference", "id": "msg_1"},
        {"type": "item_reference", "id": "msg_9"},
        OUTPUT,
    ]
    items = [parse_item(item) for item in sent]
    assert references(items) == ("msg_1", "fc_1", "msg_9")
    assert [dump(item) for item in resolve(items, stored, present=["msg_9"])] == [*stored.values(), OUTPUT]


def test_a_reference_beside_a_full_copy_is_left_out() -> None:
    """Whichever comes first."""
    full: JsonObject = {**USER, "id": "msg_1"}
    items = [parse_item(item) for item in ({"type": "item_reference", "id": "msg_1"}, full)]
    assert [dump(item) for item in resolve(items, {})] == [full]


def test_an_unknown_reference_is_not_found() -> None:
    """404 naming it."""
    items = [parse_item(USER), parse_item({"id": "msg_404"})]
    with pytest.raises(NotFound) as caught:
        resolve(items, {})
    assert (caught.value.message, caught.value.param) == ("Item with id 'msg_404' not found.", "input[1].id")
