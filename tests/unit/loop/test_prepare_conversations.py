"""Any conversation of several turns is one transcript, whoever remembers it: our store, or a client that resends it."""

from itertools import count

from hypothesis import given, settings
from hypothesis import strategies as st

from outlast.loop.prepare import Prepared, prepare
from outlast.protocol import inputs, json
from outlast.protocol.items import dump, parse_item
from outlast.protocol.json import JsonObject
from tests.unit.loop.test_prepare_properties import SERVERS, Server
from tests.unit.loop.turns import Told, conversations

_CALLS = ("function_call", "custom_tool_call")


def stateless(told: Told, server: Server) -> Prepared:
    """The client sends everything back."""
    return prepare(inputs.parse_input(told.items, max_items=1000), upstream=server)


def chained(told: Told, server: Server) -> Prepared:
    """The store has rows: inputs as it keeps them, outputs as they were streamed."""
    numbers = count()
    rows: list[JsonObject] = []
    for turn in told.turns:
        rows += inputs.stored(inputs.parse_input(turn.sent, max_items=1000), lambda kind: f"new_{next(numbers)}")
        rows += turn.output
    return prepare([parse_item(json.loads(json.dumps(row))) for row in rows], upstream=server)


def transcript(prepared: Prepared) -> list[JsonObject]:
    """As JSON."""
    return [dump(item) for item in prepared.transcript]


@settings(max_examples=40)
@given(conversations(), SERVERS)
def test_a_chain_and_a_stateless_replay_are_one_transcript(told: Told, server: Server) -> None:
    """The model cannot tell who remembered, nor which lists were shown."""
    assert transcript(chained(told, server)) == transcript(stateless(told, server))
    assert chained(told, server).labels == tuple(dict.fromkeys(told.labels))


@settings(max_examples=40)
@given(conversations(), SERVERS)
def test_every_call_has_its_own_output_in_the_models_order(told: Told, server: Server) -> None:
    """Executed, failed, denied, answered by the client: each once, none for an ask left open."""
    found = transcript(stateless(told, server))
    outputs = {item["call_id"]: item["output"] for item in found if item["type"].endswith("_output")}
    assert [(item["call_id"], outputs[item["call_id"]]) for item in found if item["type"] in _CALLS] == told.calls


@settings(max_examples=40)
@given(conversations(), SERVERS)
def test_every_text_is_there_in_order_and_as_often_as_it_was_said(told: Told, server: Server) -> None:
    """Nothing is deduplicated by its content."""
    found = transcript(stateless(told, server))
    assert [
        "".join(part["text"] for part in item["content"]) for item in found if item["type"] == "message"
    ] == told.texts


@settings(max_examples=40)
@given(conversations(), SERVERS)
def test_the_rest_of_a_conversation_keeps_its_place(told: Told, server: Server) -> None:
    """What is left of an item stands where it stood: between the same neighbours."""
    kept = [item["id"] for item in transcript(stateless(told, server)) if "id" in item]
    places = {item.get("id"): index for index, item in enumerate(told.items)}
    assert [places[item_id] for item_id in kept] == sorted(places[item_id] for item_id in kept)


@settings(max_examples=40)
@given(conversations(), SERVERS, st.data())
def test_what_a_client_sends_twice_is_there_once(told: Told, server: Server, data: st.DataObject) -> None:
    """A call or output that a client repeats, as those do that send a chain and its items, is the same one."""
    calls = [item for item in told.items if item["type"] in (*_CALLS, "function_call_output")]
    again = data.draw(st.lists(st.sampled_from(calls), max_size=3)) if calls else []
    sent = inputs.parse_input([*told.items, *again], max_items=1000)
    assert transcript(prepare(sent, upstream=server)) == transcript(stateless(told, server))
