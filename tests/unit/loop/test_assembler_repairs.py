"""The assembler on upstreams that leave something out, say it twice or contradict themselves."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlast.protocol import events
from outlast.protocol.events import WireEvent
from tests.unit.loop.rounds import (
    Play,
    call,
    completed,
    message,
    shown_client,
    shown_gateway,
    shown_message,
    text_delta,
    up,
)

PARTLESS = [message(0, "Hel", "lo")[index] for index in (0, 2, 3)]
ITEM = {"id": "up_0", "type": "message", "role": "assistant", "status": "completed"}
FULL = {**ITEM, "content": [{"type": "output_text", "annotations": [], "text": "Hello"}]}


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(message(0, "Hel", "lo")[:-1], id="no item.done"),
        pytest.param(message(0, "Hel", "lo")[:4], id="nothing is done"),
        pytest.param(PARTLESS, id="no part.added"),
        pytest.param(message(0, "Hel", "lo")[2:], id="deltas before any added"),
        pytest.param([*message(0, "Hel", "lo"), message(0, "Hel", "lo")[-1]], id="item.done twice"),
        pytest.param([message(0, "x")[0], *message(0, "Hel", "lo")], id="item.added twice"),
        pytest.param([*message(0, "Hel", "lo"), text_delta(0, "Hello")], id="a delta after done"),
        pytest.param([*message(0, "Hel", "lo")[:5], text_delta(0, "Hello")], id="a delta after text.done"),
        pytest.param(
            [*message(0, "Hel", "")[:4], up("output_item.done", 0, item=FULL)], id="the rest only in item.done"
        ),
        pytest.param(
            [*message(0, "Hel")[:3], up("output_text.done", 0, item_id="up_0", content_index=0, text="Hello")],
            id="the rest only in text.done",
        ),
        pytest.param(
            [*message(0, "Hel", "lo")[:4], up("output_text.done", 0, item_id="up_0", content_index=0, text="Hullo!")],
            id="text.done contradicts the deltas",
        ),
        pytest.param(
            [
                up("output_text.delta", delta="Hel", content_index=0),
                up("output_text.delta", delta="lo", content_index=0),
            ],
            id="events that name no item",
        ),
        pytest.param(
            [WireEvent(each.type, {**each.rest, "item_id": f"other_{each.type}"}, 0) for each in PARTLESS],
            id="an id that changes",
        ),
        pytest.param([WireEvent(each.type, each.rest) for each in message(0, "Hel", "lo")], id="no index"),
    ],
)
def test_a_message_is_shown_whole_whatever_is_left_out(sent: list[WireEvent]) -> None:
    """Strict nesting, each frame once, deltas == done text == final text."""
    shown, end = Play().run(*sent, completed())
    assert shown == shown_message("msg_1", "Hel", "lo")
    assert end.produced


def test_a_message_without_any_delta_is_shown_in_one() -> None:
    """Only its end was sent, or only the final response."""
    once = shown_message("msg_1", "Hello")
    assert Play().run(up("output_item.done", 0, item=FULL), completed())[0] == once
    assert Play().run(up("completed", response={"output": [FULL]}))[0] == once


def test_an_empty_message_is_closed_too() -> None:
    """No part was shown, none is in the item."""
    shown, end = Play().run(message(0)[0], completed())
    opened = shown_message("msg_1")[0]
    assert shown == [opened, {"type": events.ITEM_DONE, "item": {**opened["item"], "status": "completed"}}]
    assert not end.produced


def test_annotations_and_log_probabilities_are_in_the_final_text() -> None:
    """Shown where they came, kept for the end."""
    note = {"type": "url_citation", "url": "u", "title": "t", "start_index": 0, "end_index": 1}
    logprob = {"token": "a", "logprob": -0.5, "bytes": [97], "top_logprobs": []}
    at = {"item_id": "up_0", "content_index": 0}
    shown, _ = Play().run(
        message(0)[0],
        up("output_text.delta", 0, **at, delta="a", logprobs=[logprob]),
        up("output_text.annotation.added", 0, **at, annotation_index=0, annotation=note),
        completed(),
    )
    ours = {"item_id": "msg_1", "content_index": 0}
    final = {"type": "output_text", "annotations": [note], "text": "a", "logprobs": [logprob]}
    assert shown[2:6] == [
        {"type": events.TEXT_DELTA, **ours, "delta": "a", "logprobs": [logprob]},
        {"type": events.ANNOTATION_ADDED, **ours, "annotation_index": 0, "annotation": note},
        {"type": events.TEXT_DONE, **ours, "text": "a", "logprobs": [logprob]},
        {"type": events.PART_DONE, **ours, "part": final},
    ]
    assert shown[6]["item"]["content"] == [final]


def test_a_refusal_is_a_part_of_its_own() -> None:
    """Its text field is `refusal`; it counts as text for the user."""
    at = {"item_id": "msg_1", "content_index": 0}
    shown, end = Play().run(
        message(0)[0], up("refusal.delta", 0, item_id="up_0", content_index=0, delta="No"), completed()
    )
    part = {"type": "refusal", "refusal": "No"}
    assert shown[1:5] == [
        {"type": events.PART_ADDED, **at, "part": {"type": "refusal", "refusal": ""}},
        {"type": events.REFUSAL_DELTA, **at, "delta": "No"},
        {"type": events.REFUSAL_DONE, **at, "refusal": "No"},
        {"type": events.PART_DONE, **at, "part": part},
    ]
    assert shown[5]["item"]["content"] == [part]
    assert end.produced


def test_a_part_is_closed_before_the_next_opens() -> None:
    """Two texts in one message, numbered densely though the upstream skips an index."""
    shown, _ = Play().run(
        message(0)[0],
        up("output_text.delta", 0, item_id="up_0", content_index=1, delta="a"),
        up("output_text.delta", 0, item_id="up_0", content_index=4, delta="b"),
        completed(),
    )
    assert [(each["type"].removeprefix("response."), each.get("content_index")) for each in shown] == [
        ("output_item.added", None),
        ("content_part.added", 0),
        ("output_text.delta", 0),
        ("output_text.done", 0),
        ("content_part.done", 0),
        ("content_part.added", 1),
        ("output_text.delta", 1),
        ("output_text.done", 1),
        ("content_part.done", 1),
        ("output_item.done", None),
    ]


def test_other_servers_spellings_of_reasoning_are_understood() -> None:
    """vLLM's part events and Open Responses' delta name become OpenAI's."""
    item = {"id": "up_0", "type": "reasoning", "summary": []}
    part = {"type": "reasoning_text", "text": ""}
    shown, _ = Play().run(
        up("output_item.added", 0, item=item),
        up("reasoning_part.added", 0, item_id="up_0", content_index=0, part=part),
        up("reasoning.delta", 0, item_id="up_0", content_index=0, delta="hm"),
        up("reasoning.done", 0, item_id="up_0", content_index=0, text="hm"),
        up("reasoning_part.done", 0, item_id="up_0", content_index=0, part={**part, "text": "hm"}),
        up("output_item.done", 0, item={**item, "content": [{**part, "text": "hm"}]}),
        completed(),
    )
    assert [each["type"] for each in shown] == [
        events.ITEM_ADDED,
        events.PART_ADDED,
        events.REASONING_TEXT_DELTA,
        events.REASONING_TEXT_DONE,
        events.PART_DONE,
        events.ITEM_DONE,
    ]


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(call(0, "book", '{"a":1}')[:-1], id="no item.done"),
        pytest.param(call(0, "book", '{"a":1}')[:3], id="no done at all"),
        pytest.param([call(0, "book", '{"a":1}')[index] for index in (0, 4)], id="no deltas"),
        pytest.param(call(0, "book", '{"a":1}')[1:], id="no added"),
        pytest.param(call(0, "book", '{"a":1}')[-1:], id="only item.done"),
        pytest.param([*call(0, "book", '{"a":1}'), call(0, "book", '{"a":1}')[-1]], id="item.done twice"),
        pytest.param([WireEvent(each.type, each.rest) for each in call(0, "book", '{"a":1}')], id="no index"),
    ],
)
def test_a_call_is_shown_whole_whatever_is_left_out(sent: list[WireEvent]) -> None:
    """One announcement, one row."""
    play = Play()
    shown, _ = play.run(*sent, completed())
    assert shown == shown_client("fc_1", "call_0", "book", '{"a":1}')
    assert list(play.rows) == [0]


def test_a_call_without_call_id_gets_its_own_id() -> None:
    """A client must be able to answer it."""
    head, *rest = call(0, "book", "{}")
    nameless = [each.with_rest(item={**each.rest["item"], "call_id": None}) for each in (head, rest[-1])]
    assert Play().run(*nameless, completed())[0] == shown_client("fc_1", "fc_1", "book", "{}")


def test_a_nameless_call_never_becomes_an_item() -> None:
    """Not even at the end of the round."""
    play = Play()
    shown, end = play.run(up("function_call_arguments.delta", 0, item_id="up_0", delta="{}"), completed())
    assert (shown, play.rows, end.client) == ([], {}, False)


def test_an_open_message_is_closed_before_calls_are_shown_at_the_end() -> None:
    """An upstream that ends nothing still gives a tidy stream."""
    shown, _ = Play().run(*message(0, "hi")[:3], *call(1, "mcp__docs__search", "{}")[:3], completed())
    assert shown == [*shown_message("msg_1", "hi"), *shown_gateway("mcp_2", "{}")]


def test_an_index_used_again_opens_a_new_item() -> None:
    """Some servers number every item 0."""
    second = [WireEvent(each.type, each.rest, 0) for each in message(1, "b")]
    shown, _ = Play().run(*message(0, "a"), *second, completed())
    assert shown == [*shown_message("msg_1", "a"), *shown_message("msg_2", "b")]


def test_a_native_item_that_is_never_done_is_closed() -> None:
    """The client must not be left with an open item."""
    item = {"id": "ws_up", "type": "web_search_call", "status": "in_progress"}
    play = Play()
    play.feed([up("output_item.added", 0, item=item), completed()])
    assert play.end()[0] == [{"type": events.ITEM_DONE, "item": {**item, "id": "ws_1", "status": "incomplete"}}]


@given(st.lists(st.sampled_from(range(22)), max_size=40), st.booleans())
def test_any_scramble_of_events_gives_a_stream_the_official_client_accepts(order: list[int], cut: bool) -> None:
    """Events of four items left out, repeated and out of order: strict nesting and equal texts all the same."""
    pool = [*message(0, "a", "b"), *message(1, "c"), *call(2, "book", '{"a":1}'), *call(3, "mcp__docs__search", "{}")]
    play = Play()
    for position in order:
        play.feed([pool[position]])
    play.end(cut=cut)
    play.judge()
    texts: dict[str, str] = {}
    for event in play.events:
        if event.type == events.TEXT_DELTA:
            texts[event.rest["item_id"]] = texts.get(event.rest["item_id"], "") + event.rest["delta"]
        if event.type == events.ITEM_DONE and event.rest["item"]["type"] == "message":
            final = "".join(part["text"] for part in event.rest["item"]["content"])
            assert final == texts.get(event.rest["item"]["id"], "")
