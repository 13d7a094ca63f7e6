"""Claims about WebSocket mode, most through the official client's `responses.connect`."""

import contextlib
from typing import Any

import pytest
from openai import AsyncOpenAI
from websockets.exceptions import ConnectionClosed

import api.websocket
from outlast.protocol.requests import RequestLimits
from tests.support.desk import LOOKUP, MESSAGE, REFUND, Case, JsonObject, World
from tests.support.scripted_model import say
from tests.support.wire_socket import socket

PLAIN = ["response.created", "response.in_progress", *MESSAGE, "response.completed"]


def texts(case: Case) -> list[str]:
    """What the model was shown last, messages only."""
    return [item["content"][0]["text"] for item in case.script.transcript() if item.get("type", "message") == "message"]


async def test_the_official_client_reads_a_response_as_over_http(world: World) -> None:
    """The same events in the same order, numbered from 0, equal to a replay of the log over HTTP."""
    case = world.case([say("hello there")])
    client: AsyncOpenAI = case.client
    async with client.responses.connect() as connection:
        await connection.response.create(model=case.script.model, input="hi")
        heard: list[Any] = []
        async for event in connection:
            heard.append(event)
            if event.type == "response.completed":
                break
    assert [event.type for event in heard] == PLAIN
    assert [event.sequence_number for event in heard] == list(range(9))
    response = heard[-1].response
    assert response.output_text == "hello there"
    replayed = [event async for event in await client.responses.retrieve(response.id, stream=True)]
    assert [event.to_dict() for event in replayed] == [event.to_dict() for event in heard]


async def test_a_stored_chain_goes_on_by_id(world: World) -> None:
    """And is readable over HTTP afterwards."""
    case = world.case([say("one")], [say("two")])
    async with socket(world.http.base_url) as wire:
        first = (await wire.turn(case.script.model, "first"))[-1]["response"]
        second = (await wire.turn(case.script.model, "second", previous_response_id=first["id"]))[-1]["response"]
    assert texts(case) == ["first", "one", "second"]
    assert (await case.client.responses.retrieve(second["id"])).previous_response_id == first["id"]


async def test_a_chain_that_is_not_stored_lives_in_its_connection(world: World) -> None:
    """Three turns with `store: false`; nothing is readable over HTTP; another connection does not know them."""
    case = world.case([say("one")], [say("two")], [say("three")])
    model = case.script.model
    async with socket(world.http.base_url) as wire:
        first = (await wire.turn(model, "first", store=False))[-1]["response"]
        second = (await wire.turn(model, "second", store=False, previous_response_id=first["id"]))[-1]["response"]
        third = (await wire.turn(model, "third", store=False, previous_response_id=second["id"]))[-1]["response"]
        async with socket(world.http.base_url) as other:
            [stranger] = await other.turn(model, "?", store=False, previous_response_id=third["id"])
        [older] = await wire.turn(model, "?", store=False, previous_response_id=first["id"])
    assert texts(case) == ["first", "one", "second", "two", "third"]
    assert (third["previous_response_id"], third["store"]) == (second["id"], False)
    assert (await world.http.get(f"/v1/responses/{third['id']}")).status_code == 404
    assert stranger == older | {"error": stranger["error"]}
    assert (stranger["status"], stranger["error"]["code"]) == (400, "previous_response_not_found")
    assert older["error"]["param"] == "previous_response_id"


async def test_what_is_not_stored_is_not_stored_by_its_continuation(world: World) -> None:
    """A stored continuation of a chain nobody stores is refused by name; the chain goes on."""
    case = world.case([say("one")], [say("two")])
    async with socket(world.http.base_url) as wire:
        first = (await wire.turn(case.script.model, "first", store=False))[-1]["response"]
        [refused] = await wire.turn(case.script.model, "?", previous_response_id=first["id"])
    assert (refused["status"], refused["error"]["param"]) == (400, "store")
    assert "store: false" in refused["error"]["message"]


async def test_a_prepared_response_costs_no_model_call_and_can_be_continued(world: World) -> None:
    """`generate: false`: an id, an empty output; the next turn shows what was prepared (Codex begins so)."""
    case = world.case([say("one")])
    model = case.script.model
    async with socket(world.http.base_url) as wire:
        opening = [{"role": "developer", "content": "Be brief."}]
        prepared = await wire.turn(model, opening, generate=False, store=False)
        assert [event["type"] for event in prepared] == [PLAIN[0], PLAIN[1], PLAIN[-1]]
        assert (prepared[-1]["response"]["output"], case.script.requests) == ([], [])
        first = await wire.turn(model, "hi", store=False, previous_response_id=prepared[-1]["response"]["id"])
    assert first[-1]["response"]["status"] == "completed"
    assert texts(case) == ["Be brief.", "hi"]


async def test_a_gated_call_is_decided_on_the_connection(world: World) -> None:
    """The ask, then the decision as the next request's input: the tool runs once, stored or not."""
    for store in (True, False):
        case = world.case()
        case.play([case.calls(LOOKUP), case.calls(REFUND)], [say("done")])
        model = case.script.model
        async with socket(world.http.base_url) as wire:
            tools = [case.tool | {"require_approval": {"never": {"tool_names": ["lookup"]}}}]
            asked = (await wire.turn(model, "refund", tools=tools, store=store))[-1]["response"]
            [ask] = [item for item in asked["output"] if item["type"] == "mcp_approval_request"]
            decision = {"type": "mcp_approval_response", "approval_request_id": ask["id"], "approve": True}
            ended = await wire.turn(
                case.script.model, [decision], tools=tools, store=store, previous_response_id=asked["id"]
            )
        assert [item["type"] for item in ended[-1]["response"]["output"]] == ["mcp_call", "message"]
        assert case.ran == ["lookup", "refund"]


async def test_lanes_run_side_by_side_and_each_keeps_its_order(world: World) -> None:
    """A lane whose model is silent does not hold up another; two requests of one lane come one after the other."""
    slow, quick = world.case([say("late")]), world.case([say("a")], [say("b")])
    slow.script.gate.clear()
    async with socket(world.http.base_url) as wire:
        for case, lane in ((slow, "slow"), (quick, "quick"), (quick, "quick")):
            await wire.say({"type": "response.create", "model": case.script.model, "input": "hi", "stream_id": lane})
        heard: list[JsonObject] = []
        while [event["type"] for event in heard if event["stream_id"] == "quick"] != PLAIN * 2:
            heard.append(await wire.hear())
        slow.script.gate.set()
        while heard[-1]["type"] != "response.completed" or heard[-1]["stream_id"] != "slow":
            heard.append(await wire.hear())
    assert [event["type"] for event in heard if event["stream_id"] == "slow"] == PLAIN


async def test_bad_frames_are_answered_and_the_connection_goes_on(world: World) -> None:
    """One error shape: nested, with the status; `code` is a string even where HTTP says null."""
    case = world.case([say("still here")])
    bad: list[tuple[Any, int, str, str | None]] = [
        ("{", 400, "invalid_json", None),
        ([1], 400, "invalid_json", None),
        (b"\xff\xfe", 400, "invalid_json", None),
        ({"input": "hi"}, 400, "invalid_request_error", "type"),
        ({"type": "response.cancel"}, 400, "invalid_request_error", "type"),
        ({"type": "response.create", "stream_id": 7}, 400, "invalid_request_error", "stream_id"),
        ({"type": "response.create", "generate": "no"}, 400, "invalid_request_error", "generate"),
        ({"type": "response.create", "background": True, "input": "hi"}, 400, "unsupported_feature", "background"),
        ({"type": "response.create", "input": "hi"}, 400, "invalid_request_error", "model"),
        ({"type": "response.create", "model": "demo"}, 400, "invalid_request_error", "input"),
    ]
    async with socket(world.http.base_url) as wire:
        for frame, status, code, param in bad:
            await wire.say(frame)
            said = await wire.hear()
            assert set(said) == {"type", "status", "error"}, frame
            assert set(said["error"]) == {"message", "type", "param", "code"}
            assert (said["type"], said["status"], said["error"]["code"], said["error"]["param"]) == (
                "error",
                status,
                code,
                param,
            ), frame
        assert (await wire.turn(case.script.model))[-1]["type"] == "response.completed"


async def test_steering_is_refused_in_its_own_words_and_gives_the_input_back(world: World) -> None:
    """`response.steer.failed`, as its type describes it."""
    async with socket(world.http.base_url) as wire:
        await wire.say({"type": "response.steer", "previous_response_id": "resp_x", "input": "stop"})
        said = await wire.hear()
    assert (said["type"], said["error"]["code"]) == ("response.steer.failed", "steering_not_supported")
    assert said["steer"] == {"previous_response_id": "resp_x", "input": "stop"}


async def test_a_failed_continuation_forgets_what_it_continued(world: World) -> None:
    """As documented: the same id is not found the next time, so the client sends its items again."""
    case = world.case([say("one")])
    async with socket(world.http.base_url) as wire:
        first = (await wire.turn(case.script.model, "first", store=False))[-1]["response"]
        bad = {"type": "function_call_output", "call_id": "call_nobody", "output": "x"}
        again = {"store": False, "previous_response_id": first["id"]}
        [refused] = await wire.turn(case.script.model, [bad], **again)
        [gone] = await wire.turn(case.script.model, "second", **again)
    assert (refused["status"], gone["error"]["code"]) == (400, "previous_response_not_found")


async def test_a_lost_connection_leaves_a_stored_response_running_and_ends_another(world: World) -> None:
    """The disconnect is a cancel only where nobody else could read the rest."""
    stored, private = world.case([say("finished")]), world.case([say("never read")])
    ids = []
    for case, store in ((stored, True), (private, False)):
        case.script.gate.clear()
        async with socket(world.http.base_url) as wire:
            await wire.say({"type": "response.create", "model": case.script.model, "input": "hi", "store": store})
            ids.append((await wire.hear())["response"]["id"])
            await wire.hear()
    stored.script.gate.set()
    ended = await stored.ended(await stored.client.responses.retrieve(ids[0]))
    assert ended.output_text == "finished"
    assert (await world.http.get(f"/v1/responses/{ids[1]}")).status_code == 404
    private.script.gate.set()


async def test_a_connection_lives_for_its_time(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then it is told so and closed."""
    monkeypatch.setattr(api.websocket, "LIFETIME_SECONDS", 0.05)
    async with socket(world.http.base_url) as wire:
        said = await wire.hear()
        await wire.connection.wait_closed()
    assert (said["error"]["code"], wire.connection.close_code) == ("websocket_connection_limit_reached", 1001)


async def test_a_message_far_over_the_limit_ends_the_connection(world: World) -> None:
    """Twice `limits.max_body_bytes` is never in memory: 1009, as the protocol has it."""
    async with socket(world.http.base_url) as wire:
        with contextlib.suppress(ConnectionClosed):
            await wire.say(b"x" * (2 * RequestLimits().max_body_bytes + 1))
        await wire.connection.wait_closed()
    assert wire.connection.close_code == 1009
