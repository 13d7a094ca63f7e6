"""Images a tool returned, on their way to the model."""

from typing import Any

from outlast.loop.prepare import NO_VISION, prepare
from outlast.protocol.items import Item, parse_item
from outlast.protocol.json import JsonObject
from outlast.upstream.base import Capabilities

URL = "data:image/png;base64,aGk="
SEES = Capabilities()
BLIND = Capabilities(images=False)


def drawn(item_id: str, **more: object) -> Item:
    """A gateway call whose tool returned an image."""
    call = {"id": item_id, "type": "mcp_call", "server_label": "own", "name": "draw", "arguments": "{}"}
    return parse_item({**call, "output": "[image: image/png]", "status": "completed", **more})


def shape(items: Any) -> list[JsonObject]:
    """As JSON."""
    return [item.model_dump(exclude_unset=True) for item in items]


def pair(call_id: str, output: object) -> list[JsonObject]:
    """What the model gets of the call."""
    call = {"type": "function_call", "call_id": call_id, "name": "mcp__own__draw", "arguments": "{}"}
    return [call, {"type": "function_call_output", "call_id": call_id, "output": output}]


TEXT: JsonObject = {"type": "input_text", "text": "[image: image/png]"}
IMAGE: JsonObject = {"type": "input_image", "image_url": URL}


def test_a_calls_images_are_parts_of_its_output() -> None:
    """Of this call only; a second copy is the same call; preparing again changes nothing."""
    items = [drawn("mcp_1"), drawn("mcp_2"), drawn("mcp_1")]
    first = prepare(items, upstream=SEES, images={"mcp_1": [URL]}).transcript
    assert shape(first) == [*pair("mcp_1", [TEXT, IMAGE]), *pair("mcp_2", "[image: image/png]")]
    assert prepare(first, upstream=SEES).transcript == first


def test_an_approved_calls_images_stand_at_the_ask() -> None:
    """They go by the call's own id, the pair by the approval's."""
    ask: JsonObject = {
        "id": "mcpr_1", "type": "mcp_approval_request", "server_label": "own", "name": "draw", "arguments": "{}"
    }  # fmt: skip
    items = [parse_item(ask), drawn("mcp_1", approval_request_id="mcpr_1")]
    assert shape(prepare(items, upstream=SEES, images={"mcp_1": [URL]}).transcript) == pair("mcpr_1", [TEXT, IMAGE])


def test_a_model_that_reads_no_images_gets_notes() -> None:
    """Whoever hands them in."""
    (_, output) = shape(prepare([drawn("mcp_1")], upstream=BLIND, images={"mcp_1": [URL]}).transcript)
    assert output["output"] == [TEXT, {"type": "input_text", "text": NO_VISION}]
