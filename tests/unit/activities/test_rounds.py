"""What is split off the events of a round, and what a chain's private parts become for the model."""

from typing import Any

import pytest

from activities import rounds
from outlast.loop.compaction import nothing_sealed
from outlast.protocol import events as wire
from outlast.protocol.events import WireEvent
from outlast.protocol.items import FunctionCallOutput
from outlast.protocol.json import JsonObject
from outlast.store.base import Blob, StoredItem
from outlast.upstream.base import Capabilities
from tests.support.store_world import record

OPENAI = Capabilities(encrypted_reasoning=True)
BLIND = Capabilities(images=False)


def thought(item_id: str, **more: object) -> JsonObject:
    """A reasoning item."""
    return {"id": item_id, "type": "reasoning", "summary": [], **more}


def test_sealed_reasoning_is_split_off_every_frame_and_kept_from_the_last() -> None:
    """What is not whole yet is not kept; other items and other fields pass as they are."""
    text = WireEvent(wire.SUMMARY_TEXT_DELTA, {"item_id": "rs_1", "delta": "hm", "summary_index": 0})
    compaction: JsonObject = {"id": "cmp_1", "type": "compaction", "encrypted_content": "whole"}
    shown = [
        WireEvent(wire.ITEM_ADDED, {"item": thought("rs_1", encrypted_content="start")}),
        text,
        WireEvent(wire.ITEM_DONE, {"item": thought("rs_1", encrypted_content="end", extra=1), "more": 2}),
        WireEvent(wire.ITEM_DONE, {"item": thought("rs_2", encrypted_content={"an": "object"})}),
        WireEvent(wire.ITEM_DONE, {"item": thought("rs_3")}),
        WireEvent(wire.ITEM_DONE, {"item": compaction}),
    ]
    public, private = rounds.sealed_apart(shown)
    assert public == [
        WireEvent(wire.ITEM_ADDED, {"item": thought("rs_1")}),
        text,
        WireEvent(wire.ITEM_DONE, {"item": thought("rs_1", extra=1), "more": 2}),
        WireEvent(wire.ITEM_DONE, {"item": thought("rs_2")}),
        *shown[4:],
    ]
    assert private == {"rs_1": {"encrypted_content": "end"}, "rs_2": {"encrypted_content": {"an": "object"}}}
    assert shown[0].rest["item"]["encrypted_content"] == "start"


@pytest.mark.parametrize(
    ("capabilities", "request_", "splits"),
    [
        (OPENAI, {}, True),
        (OPENAI, {"include": ["message.output_text.logprobs"]}, True),
        (OPENAI, {"include": ["reasoning.encrypted_content"]}, False),
        (Capabilities(), {}, False),
    ],
)
def test_only_what_we_asked_for_and_the_client_did_not_is_split(
    capabilities: Capabilities, request_: JsonObject, splits: bool
) -> None:
    """Another server's answer is relayed as it is."""
    assert rounds.seals(record("a", request=request_), capabilities) is splits


def stored(item: JsonObject, private: JsonObject | None = None, **more: Any) -> StoredItem:
    """An item of a chain."""
    return StoredItem("resp_a", "output", 0, item, private=private, **more)


def drawn(output: str) -> JsonObject:
    """A gateway call whose tool returned an image."""
    call = {"id": "mcp_1", "type": "mcp_call", "server_label": "own", "name": "draw", "arguments": "{}"}
    return {**call, "output": output, "status": "completed"}


TWO = {"images": [{"hash": "h1", "mime_type": "image/png"}, {"hash": "h2", "mime_type": "image/gif"}]}
BLOBS = {"h1": Blob("h1", "image/png", b"hi"), "h2": Blob("h2", "image/gif", b"ho")}
PNG: JsonObject = {"type": "input_image", "image_url": "data:image/png;base64,aGk="}
GIF: JsonObject = {"type": "input_image", "image_url": "data:image/gif;base64,aG8="}
TEXT: JsonObject = {"type": "input_text", "text": "noted"}


@pytest.mark.parametrize(
    ("blobs", "output"),
    [(BLOBS, [TEXT, PNG, GIF]), ({"h2": BLOBS["h2"]}, [TEXT, GIF]), ({}, "noted")],
)
def test_images_follow_the_text_of_their_call(blobs: dict[str, Blob], output: object) -> None:
    """As many as are still kept; without any the note in the text stands for them."""
    prepared = rounds.prepared([stored(drawn("noted"), TWO)], Capabilities(), blobs, nothing_sealed)
    assert prepared.transcript[1] == FunctionCallOutput(type="function_call_output", call_id="mcp_1", output=output)


def test_sealed_reasoning_goes_back_with_what_it_led_to() -> None:
    """From the private part, under its own id; open items are not in the transcript yet."""
    said: JsonObject = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": "hi", "annotations": []}],
    }
    chain = [stored(thought("rs_1"), {"encrypted_content": "end"}), stored(said), stored(thought("rs_2"), done=False)]
    transcript = rounds.prepared(chain, OPENAI, {}, nothing_sealed).transcript
    assert [item.model_dump(exclude_unset=True) for item in transcript] == [
        thought("rs_1", encrypted_content="end"),
        said,
    ]
    assert [item.id for item in rounds.prepared(chain, BLIND, {}, nothing_sealed).transcript] == ["msg_1"]
