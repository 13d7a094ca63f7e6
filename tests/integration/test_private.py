"""Claims about what a run keeps beside its public items: sealed reasoning of an OpenAI server, images of a tool.

The client is not shown either, the model server gets both back: in later rounds, from a stored chain, and from a client
that sends our own items again.
"""

import base64
import hashlib
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from openai import APIStatusError, AsyncOpenAI
from openai.types.responses import Response

from outlast.contracts import Timeouts
from outlast.devserver import DevServer
from outlast.settings import Settings
from tests.support.desk import dumped, kinds
from tests.support.mcp_server import McpTestServer, Tool, mcp_server
from tests.support.raw_model import (
    Played,
    RawModels,
    call_answer,
    call_events,
    completed,
    deltas,
    raw_model,
    text_answer,
)
from tests.support.stack import Outlast, outlast, settings
from tests.unit.upstream.server import Answer, sse, streaming

JsonObject = dict[str, Any]
SEALED = "gAAAA-sealed-canary=="
INCLUDE = "reasoning.encrypted_content"
PICTURE = b"\x89PNG a picture"
URL = f"data:image/png;base64,{base64.b64encode(PICTURE).decode()}"
BLOB = f"/v1/blobs/{hashlib.sha256(PICTURE).hexdigest()}"
NOTED = f"Here it is:\n[image: image/png, {BLOB}]\nas asked"
CAP = 1000


@dataclass
class World:
    """One Outlast over models of each kind. `seeing`, `blind`: by dialect."""

    server: Outlast
    http: httpx.AsyncClient
    mcp: McpTestServer
    openai: Played
    seeing: dict[str, Played]
    blind: dict[str, Played]

    @property
    def client(self) -> AsyncOpenAI:
        """The official client."""
        return self.server.client

    @property
    def tool(self) -> JsonObject:
        """The tool server, which asks nobody."""
        return {"type": "mcp", "server_label": "own", "server_url": self.mcp.url, "require_approval": "never"}

    async def ask(self, played: Played, given: object, **more: Any) -> Response:
        """One turn."""
        answer: Response = await self.client.responses.create(model=played.model, input=given, **more)  # type: ignore[call-overload]  # plain dicts
        return answer

    async def text(self, path: str) -> str:
        """What a GET answers."""
        return (await self.http.get(f"/v1/responses/{path}")).raise_for_status().text


def _draw(arguments: JsonObject) -> list[JsonObject]:
    data = arguments.get("data") or base64.b64encode(PICTURE).decode()
    image = {"type": "image", "data": data, "mimeType": "image/png"}
    return [{"type": "text", "text": "Here it is:"}, image, {"type": "text", "text": "as asked"}]


@pytest.fixture(scope="module")
async def world(temporal: DevServer, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    """One server for all tests of this file."""
    async with AsyncExitStack() as stack:
        models = await stack.enter_async_context(raw_model())
        mcp = await stack.enter_async_context(mcp_server({"draw": Tool(_draw)}))
        openai = models.play()
        seeing, blind = ({dialect: models.play() for dialect in ("responses", "chat")} for _ in range(2))
        plain = settings(tmp_path_factory.mktemp("private"), temporal.address)
        given = Settings.model_validate({**plain.model_dump(), **_served(models, openai, seeing, blind)})
        server = await stack.enter_async_context(outlast(given, desk=False, timeouts=Timeouts(llm_backoff=0.05)))
        http = await stack.enter_async_context(httpx.AsyncClient(base_url=server.url, timeout=60))
        yield World(server, http, mcp, openai, seeing, blind)


def _served(models: RawModels, openai: Played, seeing: dict[str, Played], blind: dict[str, Played]) -> JsonObject:
    upstreams: JsonObject = {
        "openai": {"base_url": models.url, "openai": True},
        "responses": {"base_url": models.url, "dialect": "responses"},
        "chat": {"base_url": models.url, "dialect": "chat"},
    }
    routes: JsonObject = {openai.model: {"upstream": "openai"}}
    for dialect in ("responses", "chat"):
        routes[seeing[dialect].model] = {"upstream": dialect}
        routes[blind[dialect].model] = {"upstream": dialect, "images": False}
    return {"upstreams": upstreams, "models": routes, "limits": {"max_tool_image_bytes": CAP}}


def play(played: Played, *answers: Answer) -> Played:
    """The model says this from here on."""
    played.answers = answers
    played.bodies.clear()
    return played


# -- sealed reasoning --------------------------------------------------------------------------------------------------


def thought(item_id: str) -> list[JsonObject]:
    """Reasoning as OpenAI streams it: sealed content in both frames of the item."""
    item: JsonObject = {"id": item_id, "type": "reasoning"}
    part = {"type": "summary_text", "text": "thinking"}
    place = {"item_id": item_id, "output_index": 0, "summary_index": 0}
    return [
        _item("added", {**item, "summary": [], "encrypted_content": "gAAAA-canary-start"}),
        {"type": "response.reasoning_summary_part.added", **place, "part": {**part, "text": ""}},
        {"type": "response.reasoning_summary_text.delta", **place, "delta": "thinking"},
        {"type": "response.reasoning_summary_text.done", **place, "text": "thinking"},
        {"type": "response.reasoning_summary_part.done", **place, "part": part},
        _item("done", {**item, "summary": [part], "encrypted_content": SEALED}),
    ]


def _item(what: str, item: JsonObject) -> JsonObject:
    return {"type": f"response.output_item.{what}", "output_index": 0, "item": item}


def at(index: int, events: list[JsonObject]) -> list[JsonObject]:
    """The same at another place of the output."""
    return [{**event, "output_index": index} if "output_index" in event else event for event in events]


def thoughtful(item_id: str, events: list[JsonObject]) -> Answer:
    """A round that thinks first."""
    return streaming(sse(*thought(item_id), *at(1, events), completed()))


def sent(item_id: str, sealed: str | None = SEALED) -> JsonObject:
    """The reasoning as the server gets it back, and with None as the client has it."""
    summary = [{"type": "summary_text", "text": "thinking"}]
    item = {"type": "reasoning", "id": item_id, "summary": summary}
    return item if sealed is None else {**item, "encrypted_content": sealed}


async def test_sealed_reasoning_is_between_us_and_its_server(world: World) -> None:
    """Over two rounds and two turns: no event, answer or list has it; the server gets it under its own id; a client
    that sends the items back, or names them, gives the server the same transcript."""
    played = play(
        world.openai,
        thoughtful("rs_up1", call_events("mcp__own__draw", "{}")),
        thoughtful("rs_up2", deltas("done")),
        streaming(text_answer("responses", "more")),
    )
    asked: JsonObject = {"input": "hi", "tools": [world.tool]}
    stream: Any = await world.client.responses.create(model=played.model, stream=True, **asked)
    events = [event async for event in stream]
    first = events[-1].response
    assert kinds(first) == ["mcp_list_tools", "reasoning", "mcp_call", "reasoning", "message"]
    chained = await world.ask(played, "go on", previous_response_id=first.id)
    for body in played.bodies:
        assert body["include"] == [INCLUDE]
    assert [item for item in played.bodies[1]["input"] if item["type"] == "reasoning"] == [sent("rs_up1")]
    whole = played.bodies[2]["input"]
    assert [item for item in whole if item["type"] == "reasoning"] == [sent("rs_up1"), sent("rs_up2")]

    items = dumped(first)
    assert [item for item in items if item["type"] == "reasoning"] == [sent("rs_up1", None), sent("rs_up2", None)]
    await world.ask(played, [{"role": "user", "content": "hi"}, *items, {"role": "user", "content": "go on"}])
    named = [{"type": "item_reference", "id": item["id"]} for item in items]
    await world.ask(played, [{"role": "user", "content": "hi"}, *named, {"role": "user", "content": "go on"}])
    assert [body["input"] for body in played.bodies[3:]] == [whole, whole]

    shown = [
        *(event.to_json() for event in events),
        *[await world.text(f"{first.id}{path}") for path in ("", "?stream=true", "/input_items")],
        *[await world.text(f"{chained.id}{path}") for path in ("", "?stream=true", "/input_items")],
    ]
    assert "canary" not in "\n".join(shown)
    asking = {"include[]": INCLUDE}
    found = await world.http.get(f"/v1/responses/{first.id}", params=asking)
    listed = await world.http.get(f"/v1/responses/{chained.id}/input_items", params=asking)
    for given in (found.json()["output"], listed.json()["data"]):
        assert {item["encrypted_content"] for item in given if item["type"] == "reasoning"} == {SEALED}


async def test_who_includes_sealed_reasoning_is_shown_it(world: World) -> None:
    """In the stream, the answer and the record alike; the chain is the same."""
    played = play(world.openai, thoughtful("rs_up3", deltas("hi")), streaming(text_answer("responses", "more")))
    first = await world.ask(played, "hi", include=[INCLUDE], store=True)
    assert dumped(first)[0] == sent("rs_up3")
    assert json.loads(await world.text(first.id))["output"][0]["encrypted_content"] == SEALED
    again = [{"role": "user", "content": "hi"}, *dumped(first), {"role": "user", "content": "go on"}]
    await world.ask(played, "go on", previous_response_id=first.id)
    await world.ask(played, again, store=False)
    assert played.bodies[1]["input"] == played.bodies[2]["input"]
    assert played.bodies[1]["input"][1] == sent("rs_up3")


async def test_a_sealed_chain_stays_on_the_server_that_made_it(world: World) -> None:
    """Another one could not read it: refused before any call, by the item's name."""
    played = play(world.openai, thoughtful("rs_up4", deltas("hi")))
    first = await world.ask(played, "hi")
    for dialect in ("responses", "chat"):
        other = play(world.seeing[dialect], streaming(text_answer(dialect, "never")))
        with pytest.raises(APIStatusError, match="rs_up4") as refused:
            await world.ask(other, "go on", previous_response_id=first.id)
        assert (refused.value.status_code, other.bodies) == (400, [])
        assert "canary" not in refused.value.response.text


# -- images ------------------------------------------------------------------------------------------------------------


def draws(dialect: str, **arguments: str) -> Answer:
    """A round that calls the tool."""
    return streaming(call_answer(dialect, "mcp__own__draw", json.dumps(arguments)))


def told(dialect: str, body: JsonObject) -> Any:
    """What the model was shown of the call: output, or tool message and what came after it."""
    if dialect == "responses":
        return next(item["output"] for item in body["input"] if item["type"] == "function_call_output")
    place = next(index for index, message in enumerate(body["messages"]) if message["role"] == "tool")
    return [message["content"] for message in body["messages"][place : place + 2]]


SEEN: JsonObject = {
    "responses": [{"type": "input_text", "text": NOTED}, {"type": "input_image", "image_url": URL}],
    "chat": [
        f"{NOTED}\n[image: shown in the next user message]",
        [
            {"type": "text", "text": "Images returned by tool call CALL:"},
            {"type": "image_url", "image_url": {"url": URL}},
        ],
    ],
}


async def test_the_note_of_an_image_says_where_it_is_kept(world: World) -> None:
    """The bytes and their type as the tool gave them, which no browser may run."""
    played = play(world.seeing["chat"], draws("chat"), streaming(text_answer("chat", "nice")))
    first = await world.ask(played, "draw", tools=[world.tool])
    assert BLOB in dumped(first)[1]["output"]
    found = await world.http.get(BLOB)
    assert (found.status_code, found.content, found.headers["content-type"]) == (200, PICTURE, "image/png")
    assert "sandbox" in found.headers["content-security-policy"]
    assert found.headers["x-content-type-options"] == "nosniff"
    for unknown in ("/v1/blobs/" + "0" * 64, "/v1/blobs/x", "/v1/blobs/..%2fkey"):
        assert (await world.http.get(unknown)).status_code == 404


@pytest.mark.parametrize("dialect", ["responses", "chat"])
async def test_a_tools_image_reaches_a_model_that_sees(world: World, dialect: str) -> None:
    """As an image, in this turn and later ones, stored or sent back; the public output has a note in its place."""
    answer = streaming(text_answer(dialect, "nice"))
    played = play(world.seeing[dialect], draws(dialect), answer)
    first = await world.ask(played, "draw", tools=[world.tool])
    item = dumped(first)[1]
    assert (item["status"], item["output"], item["error"]) == ("completed", NOTED, None)
    seen = json.loads(json.dumps(SEEN[dialect]).replace("CALL", item["id"]))
    assert told(dialect, played.bodies[1]) == seen
    await world.ask(played, "go on", previous_response_id=first.id)
    await world.ask(played, [{"role": "user", "content": "draw"}, *dumped(first), {"role": "user", "content": "go on"}])
    for body in played.bodies[2:]:
        assert told(dialect, body) == seen
    key = "input" if dialect == "responses" else "messages"
    assert played.bodies[2][key] == played.bodies[3][key]
    # Base64 is nowhere but in the image.
    data = URL.rpartition(",")[2]
    shown = [await world.text(f"{first.id}{path}") for path in ("", "?stream=true", "/input_items")]
    assert data not in "\n".join(shown)
    assert json.dumps(played.bodies[2]).count(data) == 1


@pytest.mark.parametrize("dialect", ["responses", "chat"])
async def test_a_model_that_reads_no_images_gets_the_note(world: World, dialect: str) -> None:
    """And is refused one that the client sends, naming the part; the same chain shows a seeing model the picture."""
    played = play(world.blind[dialect], draws(dialect), streaming(text_answer(dialect, "I cannot see")))
    first = await world.ask(played, "draw", tools=[world.tool])
    shown = told(dialect, played.bodies[1])
    assert shown == NOTED if dialect == "responses" else shown == [NOTED]
    with pytest.raises(APIStatusError) as refused:
        await world.ask(played, [{"role": "user", "content": [{"type": "input_image", "image_url": URL}]}])
    assert (refused.value.status_code, refused.value.param) == (400, "input[0].content[0]")
    other = play(world.seeing[dialect], streaming(text_answer(dialect, "I see")))
    await world.ask(other, "and you?", previous_response_id=first.id)
    assert URL in json.dumps(told(dialect, other.bodies[0]))


async def test_an_image_over_the_limit_is_a_note_that_names_it(world: World) -> None:
    """The call goes on without it."""
    played = play(
        world.seeing["responses"],
        draws("responses", data=base64.b64encode(b"x" * (CAP + 1)).decode()),
        streaming(text_answer("responses", "a pity")),
    )
    item = dumped(await world.ask(played, "draw", tools=[world.tool]))[1]
    assert item["status"] == "completed"
    assert f"over the limit of {CAP} bytes a call (limits.max_tool_image_bytes)" in item["output"]
    assert told("responses", played.bodies[1]) == item["output"]
