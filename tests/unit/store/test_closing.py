"""How abandoned items are closed."""

import pytest

from outlast.protocol import events as wire
from outlast.protocol.closing import closing_events
from outlast.protocol.events import WireEvent
from outlast.protocol.json import JsonObject

ADDED: JsonObject = {"id": "x_1", "type": "message", "role": "assistant", "status": "in_progress", "content": []}


def _added(**changes: object) -> WireEvent:
    return WireEvent(wire.ITEM_ADDED, {"item": {**ADDED, **changes}})


def _in_part(kind: str, number: str = "content_index", index: int = 0, **rest: object) -> WireEvent:
    return WireEvent(kind, {"item_id": "x_1", number: index, **rest})


def _part(kind: str, **rest: object) -> WireEvent:
    return _in_part(wire.PART_ADDED, part={"type": kind, **rest})


CASES: list[tuple[str, list[WireEvent], list[WireEvent]]] = [
    ("unknown", [], []),
    ("already done", [_added(), WireEvent(wire.ITEM_DONE, {"item": ADDED})], []),
    ("nothing shown", [_added()], [WireEvent(wire.ITEM_DONE, {"item": {**ADDED, "status": "incomplete"}})]),
    (
        "a part without text",
        [_added(), _part("output_text", text="", annotations=[])],
        [
            _in_part(wire.TEXT_DONE, text="", logprobs=[]),
            _in_part(wire.PART_DONE, part={"type": "output_text", "text": "", "annotations": []}),
            WireEvent(wire.ITEM_DONE, {"item": {**ADDED, "status": "incomplete"}}),
        ],
    ),
    (
        "text done, part open",
        [
            _added(),
            _part("output_text", text="", annotations=[]),
            _in_part(wire.TEXT_DELTA, delta="a"),
            _in_part(wire.ANNOTATION_ADDED, annotation={"type": "url_citation"}),
            _in_part(wire.TEXT_DONE, text="a"),
        ],
        [
            _in_part(
                wire.PART_DONE, part={"type": "output_text", "text": "a", "annotations": [{"type": "url_citation"}]}
            ),
            WireEvent(wire.ITEM_DONE, {"item": {**ADDED, "status": "incomplete"}}),
        ],
    ),
    (
        "one part done, a refusal open",
        [
            _added(),
            _part("output_text", text="", annotations=[]),
            _in_part(wire.PART_DONE, part={}),
            _in_part(wire.PART_ADDED, index=1, part={"type": "refusal", "refusal": ""}),
            _in_part(wire.REFUSAL_DELTA, index=1, delta="No"),
        ],
        [
            _in_part(wire.REFUSAL_DONE, index=1, refusal="No"),
            _in_part(wire.PART_DONE, index=1, part={"type": "refusal", "refusal": "No"}),
            WireEvent(wire.ITEM_DONE, {"item": {**ADDED, "status": "incomplete"}}),
        ],
    ),
    (
        "reasoning summary",
        [
            WireEvent(wire.ITEM_ADDED, {"item": {"id": "x_1", "type": "reasoning", "summary": []}}),
            _in_part(wire.SUMMARY_PART_ADDED, "summary_index", part={"type": "summary_text", "text": ""}),
            _in_part(wire.SUMMARY_TEXT_DELTA, "summary_index", delta="Th"),
            _in_part(wire.SUMMARY_TEXT_DELTA, "summary_index", delta="ink"),
        ],
        [
            _in_part(wire.SUMMARY_TEXT_DONE, "summary_index", text="Think"),
            _in_part(wire.SUMMARY_PART_DONE, "summary_index", part={"type": "summary_text", "text": "Think"}),
            WireEvent(
                wire.ITEM_DONE,
                {"item": {"id": "x_1", "type": "reasoning", "summary": [], "status": "incomplete"}},
            ),
        ],
    ),
    (
        "a gateway call whose arguments were shown",
        [
            WireEvent(
                wire.ITEM_ADDED,
                {"item": {"id": "x_1", "type": "mcp_call", "arguments": "", "output": None, "error": None}},
            ),
            WireEvent(wire.MCP_ARGUMENTS_DONE, {"item_id": "x_1", "arguments": "{}"}),
        ],
        [
            WireEvent(
                wire.ITEM_DONE,
                {
                    "item": {
                        "id": "x_1",
                        "type": "mcp_call",
                        "arguments": "{}",
                        "output": None,
                        "error": None,
                        "status": "incomplete",
                    }
                },
            )
        ],
    ),
]


@pytest.mark.parametrize(("shown", "closing"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_an_abandoned_item_is_closed_with_what_was_shown(shown: list[WireEvent], closing: list[WireEvent]) -> None:
    """Strict nesting, the text as shown, the item incomplete and empty."""
    assert closing_events(shown) == closing
