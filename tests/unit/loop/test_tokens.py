"""The estimate of a context's tokens."""

from typing import Any

import pytest

from outlast.loop import tokens
from outlast.loop.tokens import FRAME_TOKENS, IMAGE_TOKENS, Context
from outlast.protocol.items import parse_item

JsonObject = dict[str, Any]


def message(content: object) -> JsonObject:
    """A user message."""
    return {"type": "message", "role": "user", "content": content}


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        (message("x" * 400), FRAME_TOKENS + 101),  # the role counts
        (message([{"type": "input_text", "text": "x" * 400}]), FRAME_TOKENS + 101),
        ({**message("x" * 400), "id": "msg_" + "1" * 400, "status": "completed"}, FRAME_TOKENS + 101),
        (message("ä" * 400), FRAME_TOKENS + 201),
        (
            message([{"type": "input_image", "image_url": "data:image/png;base64," + "A" * 9000}]),
            FRAME_TOKENS + 1 + IMAGE_TOKENS,
        ),
        (
            {"type": "function_call", "call_id": "abcd", "name": "name", "arguments": "{}  "},
            FRAME_TOKENS + 3,
        ),
    ],
)
def test_an_item_counts_by_its_bytes_and_an_image_for_itself(item: JsonObject, expected: int) -> None:
    """Ids and states are nothing to a model."""
    assert tokens.of_items([parse_item(item)]) == expected


def test_a_context_counts_its_instructions_and_tools() -> None:
    """Each with what a template puts around it."""
    tool: JsonObject = {"name": "f", "parameters": {"type": "object"}}
    empty = Context(())
    assert tokens.estimate(empty) == 0
    assert tokens.estimate(Context((), "x" * 40)) == FRAME_TOKENS + 10
    assert tokens.estimate(Context((), None, [tool, tool])) == 2 * (FRAME_TOKENS + 11)
