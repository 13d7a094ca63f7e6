"""Claims about compaction over other kinds of model servers: Chat Completions, and OpenAI, which makes its own."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import pytest
from openai import APIStatusError, AsyncOpenAI, BadRequestError
from openai.types.responses import Response

from outlast.devserver import DevServer
from outlast.settings import Settings
from tests.support.desk import dumped, kinds
from tests.support.raw_model import Played, completed, raw_model, text_answer
from tests.support.stack import outlast, settings
from tests.unit.upstream.server import replying, sse, streaming

JsonObject = dict[str, Any]
TRIGGER: JsonObject = {"type": "compaction_trigger"}
MANAGE: list[JsonObject] = [{"type": "compaction", "compact_threshold": 1000}]
THEIRS: JsonObject = {"type": "compaction", "id": "cmp_openai", "encrypted_content": "gAAAA-openai"}


@dataclass
class World:
    """One Outlast over both."""

    client: AsyncOpenAI
    chat: Played
    openai: Played

    async def ask(self, played: Played, given: object, **more: Any) -> Response:
        """One turn."""
        answer: Response = await self.client.responses.create(model=played.model, input=given, **more)  # type: ignore[call-overload]  # plain dicts
        return answer


@pytest.fixture(scope="module")
async def world(temporal: DevServer, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    """One server for all tests of this file."""
    async with AsyncExitStack() as stack:
        models = await stack.enter_async_context(raw_model())
        chat, openai = models.play(), models.play()
        plain = settings(tmp_path_factory.mktemp("compaction"), temporal.address)
        served: JsonObject = {
            "upstreams": {
                "openai": {"base_url": models.url, "openai": True},
                "chat": {"base_url": models.url, "dialect": "chat"},
            },
            "models": {chat.model: {"upstream": "chat"}, openai.model: {"upstream": "openai"}},
        }
        given = Settings.model_validate({**plain.model_dump(), **served})
        server = await stack.enter_async_context(outlast(given, desk=False))
        yield World(server.client, chat, openai)


def play(played: Played, *answers: bytes) -> Played:
    """The model says this from here on."""
    played.answers = [streaming(answer) for answer in answers]
    played.bodies.clear()
    return played


def compacted() -> bytes:
    """OpenAI's own compaction, as a stream."""
    events = [{"type": f"response.output_item.{what}", "output_index": 0, "item": THEIRS} for what in ("added", "done")]
    return sse(*events, completed())


async def test_chat_completions_are_compacted_inside_a_response(world: World) -> None:
    """The same item and the same transcript as over the Responses dialect, streamed too."""
    chat = play(world.chat, *(text_answer("chat", text) for text in ("notes", "fine", "more notes", "still fine")))
    past = [{"role": "user", "content": "one"}, {"role": "assistant", "content": "x" * 8000}]
    response = await world.ask(chat, [*past, {"role": "user", "content": "two"}], context_management=MANAGE)
    assert kinds(response) == ["compaction", "message"]
    assert response.usage is not None
    assert response.usage.total_tokens == 10
    roles = [(message["role"], message["content"][:12]) for message in chat.bodies[1]["messages"]]
    assert [role for role, _ in roles] == ["user", "user", "user"]
    assert [text for _, text in roles] == ["one", "The conversa", "two"]
    grown = [*dumped(response), {"role": "assistant", "content": "y" * 8000}, {"role": "user", "content": "three"}]
    streamed: Any = {"input": grown, "context_management": MANAGE, "stream": True}
    stream: Any = await world.client.responses.create(model=chat.model, **streamed)
    events = [event async for event in stream]
    assert kinds(events[-1].response) == ["compaction", "message"]
    told = chat.bodies[2]["messages"][-1]["content"]
    assert "[notes on what was before]\nnotes\n" in told
    read = [message["content"][:12] for message in chat.bodies[3]["messages"]]
    assert read == ["one", "two", "The conversa", "three"]


async def test_an_openai_server_compacts_by_itself(world: World) -> None:
    """The trigger goes along; its item comes back with its id and goes back as it came."""
    openai = play(world.openai, compacted(), text_answer("responses", "fine"), compacted())
    first = await world.ask(openai, [{"role": "user", "content": "one"}, TRIGGER])
    assert openai.bodies[0]["input"][-1] == TRIGGER
    assert len(openai.bodies) == 1
    assert dumped(first) == [THEIRS]
    await world.ask(openai, "two", previous_response_id=first.id)
    assert [item for item in openai.bodies[1]["input"] if item["type"] == "compaction"] == [THEIRS]
    window = await world.client.responses.compact(model=openai.model, input="one")
    assert window.object == "response.compaction"


async def test_what_openai_sealed_is_only_for_openai(world: World) -> None:
    """Another server cannot read it: 400 that names it."""
    with pytest.raises(BadRequestError, match="cmp_openai"):
        await world.ask(world.chat, [THEIRS, {"role": "user", "content": "two"}])


async def test_context_management_is_left_to_an_openai_server(world: World) -> None:
    """Passed along as it came; to no other server."""
    openai = play(world.openai, text_answer("responses", "fine"))
    past = [{"role": "user", "content": "one"}, {"role": "assistant", "content": "x" * 8000}]
    await world.ask(openai, [*past, {"role": "user", "content": "two"}], context_management=MANAGE)
    assert [body["context_management"] for body in openai.bodies] == [MANAGE]
    chat = play(world.chat, text_answer("chat", "fine"))
    await world.ask(chat, "one", context_management=MANAGE)
    assert "context_management" not in chat.bodies[0]


async def test_an_openai_server_counts_its_tokens_itself(world: World) -> None:
    """Asked with the request as it would be sent."""
    world.openai.answers = [replying("200 OK", b'{"object": "response.input_tokens", "input_tokens": 42}')]
    world.openai.bodies.clear()
    counted = await world.client.responses.input_tokens.count(model=world.openai.model, input="one", instructions="be")
    assert counted.input_tokens == 42
    assert world.openai.bodies[0] == {
        "model": world.openai.model,
        "instructions": "be",
        "input": [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "one"}]}],
    }


@pytest.mark.parametrize("status", ["404 Not Found", "405 Method Not Allowed"])
async def test_a_server_without_the_endpoint_is_counted_for(world: World, status: str) -> None:
    """A proxy in front of OpenAI has some paths only: it is our estimate then."""
    world.openai.answers = [replying(status, b"<h1>no such page</h1>", "content-type: text/html")]
    count = world.client.responses.input_tokens.count
    short = await count(model=world.openai.model, input="one")
    long = await count(model=world.openai.model, input="one " * 400)
    assert 0 < short.input_tokens < long.input_tokens - 300


@pytest.mark.parametrize(
    ("status", "body", "answered", "code"),
    [
        ("404 Not Found", b'{"error": {"message": "no model", "code": "model_not_found"}}', 404, "model_not_found"),
        ("400 Bad Request", b'{"error": {"message": "too long", "code": "context"}}', 400, "context"),
        ("401 Unauthorized", b"{}", 502, "upstream_auth"),
        ("500 Oops", b"{}", 502, "upstream_unavailable"),
        ("200 OK", b"<h1>hello</h1>", 502, "upstream_unavailable"),
        ("200 OK", b'{"object": "something else"}', 502, "upstream_unavailable"),
    ],
)
async def test_a_server_that_cannot_count_is_an_error_not_a_guess(
    world: World, status: str, body: bytes, answered: int, code: str
) -> None:
    """As for a model round: the client's own mistakes are its own, everything else is the server's."""
    world.openai.answers = [replying(status, body)]
    with pytest.raises(APIStatusError) as caught:
        await world.client.responses.input_tokens.count(model=world.openai.model, input="one")
    assert (caught.value.status_code, caught.value.code) == (answered, code)
