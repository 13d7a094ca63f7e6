"""Reasoning on its way back to a server that cannot unseal it: plain text or nothing, decided before anything is asked.

Each claim holds for a stored chain, a conversation and a client that sends everything back, streamed or not.
"""

import itertools
from collections.abc import AsyncIterator
from typing import Any

import pytest
from openai import BadRequestError

from outlast.devserver import DevServer
from tests.support.dialects import Dialects, dialects, items, message, play

JsonObject = dict[str, Any]
WAYS = list(itertools.product(["chain", "conversation", "stateless"], [False, True]))


def every_way(*cases: object) -> Any:
    """Each way once, each case in turn: a way does not change what a case means."""
    return [(way, stream, case) for (way, stream), case in zip(WAYS, itertools.cycle(cases), strict=False)]


FUNCTION = {"type": "function", "name": "f", "parameters": {"type": "object", "properties": {}}}
CALL: JsonObject = {
    "type": "function_call",
    "id": "fc_u",
    "status": "completed",
    "call_id": "call_1",
    "name": "f",
    "arguments": "{}",
}
OUTPUT: JsonObject = {"type": "function_call_output", "call_id": "call_1", "output": "42"}
ASKED: JsonObject = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "first"}]}
NEXT: JsonObject = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "second"}]}
SECRET = "opaque-canary"


def thought(*texts: str, item_id: str = "rs_u", kind: str = "reasoning_text", **more: Any) -> JsonObject:
    """A reasoning item with plain parts."""
    parts = [{"type": kind, "text": text} for text in texts]
    return {"type": "reasoning", "id": item_id, "summary": [], "content": parts, "status": "completed", **more}


@pytest.fixture(scope="module")
async def world(temporal: DevServer, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Dialects]:
    """One server for all tests of this file."""
    async with dialects(tmp_path_factory.mktemp("reasoning"), temporal.address) as opened:
        yield opened


class Talk:
    """Two turns with one model server, the first of which made `output`."""

    def __init__(self, world: Dialects, way: str, stream: bool) -> None:
        self._world = world
        self._way = way
        self._options: JsonObject = {"stream": stream, "tools": [FUNCTION]}
        self._beside: JsonObject = {}
        self.output: list[JsonObject] = []
        self.first = ""

    async def start(self, *output: JsonObject) -> None:
        """The first turn."""
        play(self._world.responses, items(*output), items(message("done")))
        if self._way == "conversation":
            conversation = await self._world.client.conversations.create()
            self._beside = {"conversation": conversation.id}
        first = await self._world.ask(self._world.responses, input=[ASKED], **self._options, **self._beside)
        self.first, self.output = first["id"], first["output"]
        if self._way == "chain":
            self._beside = {"previous_response_id": self.first}

    async def go_on(self, *given: JsonObject) -> Any:
        """The second turn."""
        before = [ASKED, *self.output] if self._way == "stateless" else []
        return await self._world.post(self._world.responses, input=[*before, *given], **self._options, **self._beside)

    @property
    def sent(self) -> list[JsonObject]:
        """What the model server got in the second turn."""
        assert len(self._world.responses.bodies) == 2
        found: list[JsonObject] = self._world.responses.bodies[1]["input"]
        return found

    async def stored(self) -> list[JsonObject]:
        """What is kept of the first turn, sealed parts included."""
        answer = await self._world.http.get(
            f"/v1/responses/{self.first}", params={"include[]": "reasoning.encrypted_content"}
        )
        found: list[JsonObject] = answer.raise_for_status().json()["output"]
        return found


@pytest.mark.parametrize(("way", "stream", "opaque"), every_way(SECRET, {"sealed": [SECRET]}, None))
async def test_plain_parts_go_back_as_one_text_in_their_place(
    world: Dialects, way: str, stream: bool, opaque: object
) -> None:
    """An empty first part leaves its newline; what is opaque stays behind, as text, as object, as null; the order of
    input, reasoning, message, call, output and input is kept."""
    talk = Talk(world, way, stream)
    more: JsonObject = {"summary": [{"type": "summary_text", "text": "in short"}], "encrypted_content": opaque}
    await talk.start(thought("", "plaintext continuation", kind="text", **more), message("hm"), CALL)
    kept = await talk.stored()
    (await talk.go_on(OUTPUT, NEXT)).raise_for_status()
    reasoning, said, call = talk.output
    assert talk.sent == [
        ASKED,
        {
            "type": "reasoning",
            "id": reasoning["id"],
            "status": "completed",
            "summary": [],
            "content": [{"type": "reasoning_text", "text": "\nplaintext continuation"}],
        },
        said,
        {key: call[key] for key in ("type", "call_id", "name", "arguments")},
        OUTPUT,
        NEXT,
    ]
    assert reasoning.get("encrypted_content") == opaque
    assert [part["text"] for part in reasoning["content"]] == ["", "plaintext continuation"]
    assert await talk.stored() == kept == talk.output
    assert "_kind" not in str(kept)


@pytest.mark.parametrize(("way", "stream", "parts"), every_way([], [""], ["", ""]))
async def test_a_summary_is_never_taken_for_reasoning(
    world: Dialects, way: str, stream: bool, parts: list[str]
) -> None:
    """The server gets nothing of an item without text; the store keeps all of it."""
    talk = Talk(world, way, stream)
    await talk.start(thought(*parts, summary=[{"type": "summary_text", "text": "in short"}]), message("hm"))
    kept = await talk.stored()
    (await talk.go_on(NEXT)).raise_for_status()
    assert talk.sent == [ASKED, talk.output[1], NEXT]
    assert kept[0]["summary"] == [{"type": "summary_text", "text": "in short"}]
    assert await talk.stored() == kept


@pytest.mark.parametrize(("way", "stream", "opaque"), every_way(SECRET, {"sealed": [SECRET]}))
async def test_what_only_its_maker_can_read_is_refused_before_anything_is_asked(
    world: Dialects, way: str, stream: bool, opaque: object
) -> None:
    """The second of two items: the whole input is looked at first. A 400 as JSON, also for a stream, names the item and
    not its content; nothing kept is changed."""
    talk = Talk(world, way, stream)
    await talk.start(
        thought("readable", encrypted_content=SECRET),
        thought(item_id="rs_v", encrypted_content=opaque),
        message("hm"),
    )
    kept = await talk.stored()
    refused = await talk.go_on(NEXT)
    assert refused.status_code == 400
    error = refused.json()["error"]
    assert (error["type"], error["code"]) == ("invalid_request_error", None)
    assert repr(talk.output[1]["id"]) in error["message"]
    assert "canary" not in refused.text
    assert len(world.responses.bodies) == 1
    assert await talk.stored() == kept


async def test_the_official_client_meets_the_refusal_as_a_bad_request(world: Dialects) -> None:
    """Not as a failed stream."""
    play(world.responses, items(message("never")))
    sealed: Any = {"type": "reasoning", "id": "rs_x", "summary": [], "encrypted_content": SECRET}
    with pytest.raises(BadRequestError, match="rs_x"):
        await world.client.responses.create(model=world.responses.model, input=[sealed, NEXT], stream=True)  # type: ignore[list-item]  # plain dicts
    assert world.responses.bodies == []
