"""Claims about where content may not be: Temporal's history, the files of what is not stored; credentials nowhere.

Every text of a run carries the canary. It is searched in raw and in decoded form: payloads, base64 inside them,
failure messages, summaries, search attributes and memo are all in the bytes that are looked at.
"""

import base64
import json
import logging
import re
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from google.protobuf.message import Message
from openai import APIStatusError, AsyncOpenAI
from openai.types.responses import Response
from temporalio.client import Client

from outlast.contracts import Timeouts
from outlast.devserver import DevServer
from outlast.settings import Settings
from tests.support.desk import asks, dumped, verdict
from tests.support.mcp_server import McpTestServer, Tool, ToolError, mcp_server
from tests.support.raw_model import Played, RawModels, call_answer, raw_model, refusing, text_answer
from tests.support.stack import outlast, settings
from tests.unit.upstream.server import streaming

JsonObject = dict[str, Any]
CONTENT = "canary-content-7d1"
UNSTORED = "canary-unstored-4e9"
SECRET = "canary-secret-2b8"
_BASE64 = re.compile(rb"[A-Za-z0-9+/_-]{16,}={0,2}")


@dataclass
class World:
    """One Outlast over one raw model server and one tool server."""

    client: AsyncOpenAI
    http: httpx.AsyncClient
    temporal: Client
    models: RawModels
    mcp: McpTestServer
    folder: Path

    def tool(self, **more: object) -> JsonObject:
        """The tool server with credentials."""
        server = {"type": "mcp", "server_label": "desk", "server_url": self.mcp.url}
        return {**server, "headers": {"x-key": SECRET}, "authorization": SECRET, **more}

    async def ask(self, played: Played, given: object, **more: Any) -> Response:
        """One turn."""
        answer: Response = await self.client.responses.create(model=played.model, input=given, **more)  # type: ignore[call-overload]  # plain dicts
        return answer


def _fail(arguments: JsonObject) -> str:
    raise ToolError(f"failed on {arguments['text']}")


def _draw(arguments: JsonObject) -> list[JsonObject]:
    data = base64.b64encode(_picture(arguments["text"])).decode()
    return [{"type": "image", "data": data, "mimeType": "image/png"}]


def _picture(text: str) -> bytes:
    return b"\x89PNG " + text.encode()


@pytest.fixture(scope="module")
async def world(temporal: DevServer, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    """One server for all tests of this file; its upstream key is a secret too."""
    async with AsyncExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        patch.setenv("OUTLAST_TEST_CANARY_KEY", SECRET)
        models = await stack.enter_async_context(raw_model())
        tools = {"echo": Tool(lambda a: f"echo {a['text']}"), "fail": Tool(_fail), "draw": Tool(_draw)}
        mcp = await stack.enter_async_context(mcp_server(tools))
        folder = tmp_path_factory.mktemp("canary") / "data"
        plain = settings(folder, temporal.address)
        upstream = {"base_url": models.url, "dialect": "responses", "api_key_env": "OUTLAST_TEST_CANARY_KEY"}
        given = Settings.model_validate({**plain.model_dump(), "upstreams": {"test": upstream}})
        server = await stack.enter_async_context(outlast(given, desk=False, timeouts=Timeouts(llm_backoff=0.05)))
        http = await stack.enter_async_context(httpx.AsyncClient(base_url=server.url, timeout=60))
        yield World(server.client, http, server.ports.client, models, mcp, folder)


def answer(text: str) -> Any:
    """A message of the model."""
    return streaming(text_answer("responses", text))


def calls(name: str, text: str) -> Any:
    """A round with one gateway call."""
    return streaming(call_answer("responses", f"mcp__desk__{name}", json.dumps({"text": text})))


async def everything(world: World, canary: str) -> list[Response]:
    """Runs whose every text is the canary: input, instructions, metadata, arguments, outputs, errors, a reason."""
    free, asking = world.tool(require_approval="never"), world.tool()
    common: JsonObject = {"instructions": f"obey {canary}", "metadata": {"note": canary}}
    played = world.models.play(calls("echo", canary), calls("fail", canary), calls("draw", canary), answer(canary))
    ran = await world.ask(played, f"say {canary}", tools=[free], **common)
    assert [item["type"] for item in dumped(ran)] == ["mcp_list_tools", *["mcp_call"] * 3, "message"]
    retried = world.models.play(refusing("500 X", f"broken by {canary}"), answer(canary))
    again = await world.ask(retried, canary, **common)
    assert len(retried.bodies) == 2
    played = world.models.play(calls("echo", canary), answer(canary))
    first = await world.ask(played, canary, tools=[asking], **common)
    second = await world.ask(
        played, [verdict(asks(first)[0], False, f"because {canary}")], tools=[asking], previous_response_id=first.id
    )
    return [ran, again, first, second]


async def refused(world: World, canary: str, **more: Any) -> str:
    """A response the upstream refuses with the canary in its text; its id."""
    played = world.models.play(refusing("400 X", f"no {canary}"))
    with pytest.raises(APIStatusError, match=canary) as error:
        await world.ask(played, canary, **more)
    return error.value.response.headers["x-outlast-response-id"]


def forms(raw: bytes) -> bytes:
    """The bytes and what base64 in them says, twice over."""
    found = [raw]
    layer = raw
    for _ in range(2):
        layer = b"\n".join(_decoded(each) for each in _BASE64.findall(layer))
        found.append(layer)
    return b"\n".join(found)


def _decoded(text: bytes) -> bytes:
    plain = text.rstrip(b"=").replace(b"-", b"+").replace(b"_", b"/")
    return base64.b64decode(plain[: len(plain) // 4 * 4])


async def known_to_temporal(world: World, workflow_ids: Iterable[str]) -> bytes:
    """All bytes Temporal holds of these runs."""
    parts: list[Message] = []
    for workflow_id in workflow_ids:
        handle = world.temporal.get_workflow_handle(workflow_id)
        parts.append((await handle.describe()).raw_description)
        parts += [event async for event in handle.fetch_history_events()]
    return b"\n".join(part.SerializeToString() for part in parts)


def in_files(folder: Path, text: str) -> list[str]:
    """Files of the record that hold it."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert any(path.suffix == ".db" for path in files)
    return [path.name for path in files if text.encode() in path.read_bytes()]


async def test_no_content_and_no_credential_is_in_temporal(world: World) -> None:
    """Neither of finished, retried, refused, parked nor denied runs, in whatever form."""
    done = await everything(world, CONTENT)
    failed = await refused(world, CONTENT)
    # The last one was served by the parked run of the one before.
    found = await known_to_temporal(world, [*(response.id for response in done[:-1]), failed])
    assert done[-1].id.encode() in found
    # What is there and what is looked for where it may be are found, so the searches work.
    assert b"UpstreamUnavailable" in found
    assert b"desk.echo" in found
    assert in_files(world.folder, CONTENT) != []
    assert CONTENT.encode() in forms(base64.b64encode(json.dumps({"a": CONTENT}).encode()))
    for canary in (CONTENT, SECRET):
        assert canary.encode() not in forms(found)


async def test_nothing_of_what_is_not_stored_is_left_in_a_file(world: World) -> None:
    """After the answer: no file of the record has a byte of it, no table a row; nor of a deleted conversation."""
    free = world.tool(require_approval="never")
    played = world.models.play(
        calls("echo", UNSTORED), calls("fail", UNSTORED), calls("draw", UNSTORED), answer(UNSTORED)
    )
    common: JsonObject = {"instructions": UNSTORED, "metadata": {"note": UNSTORED}, "store": False}
    plain = await world.ask(played, UNSTORED, tools=[free], **common)
    assert plain.output_text == UNSTORED
    image = base64.b64encode(_picture(UNSTORED)).decode()
    assert image in json.dumps(played.bodies[-1])
    failed = await refused(world, UNSTORED, store=False)
    played = world.models.play(calls("echo", UNSTORED), answer(UNSTORED))
    first = await world.ask(played, UNSTORED, tools=[world.tool()], **common)
    (ask,) = asks(first)
    given = [{"role": "user", "content": UNSTORED}, *dumped(first), verdict(ask, True)]
    second = await world.ask(played, given, tools=[world.tool()], **common)
    assert dumped(second)[0]["output"] == f"echo {UNSTORED}"
    conversation = await world.client.conversations.create()
    played = world.models.play(calls("echo", UNSTORED), answer(UNSTORED))
    await world.ask(played, UNSTORED, tools=[free], conversation=conversation.id, **common)
    posted: Any = [{"role": "user", "content": UNSTORED}]
    deleted = await world.client.conversations.create(items=posted, metadata={"note": UNSTORED})
    await world.client.conversations.delete(deleted.id)
    assert [in_files(world.folder, each) for each in (UNSTORED, image)] == [[], []]
    found = await known_to_temporal(world, (plain.id, failed, first.id, second.id))
    assert UNSTORED.encode() not in forms(found)


async def test_credentials_are_shown_stored_and_logged_nowhere(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """GET, streams, input_items, lists of approvals, errors that repeat them, logs, files: sealed or absent."""
    caplog.set_level(logging.DEBUG)
    shown: list[str] = []
    for response in await everything(world, "plain"):
        for path in ("", "?stream=true", "/input_items"):
            answered = await world.http.get(f"/v1/responses/{response.id}{path}")
            shown.append(answered.raise_for_status().text)
    shown.append((await world.http.get("/v1/approvals")).text)
    for status in ("400 X", "401 X", "500 X"):
        played = world.models.play(refusing(status, f"bad key {SECRET}"))
        with pytest.raises(APIStatusError) as error:
            await world.ask(played, "hi")
        shown.append(error.value.response.text)
        failed = await world.http.get(f"/v1/responses/{error.value.response.headers['x-outlast-response-id']}")
        shown.append(failed.text)
    dead = {**world.tool(require_approval="never", required=True), "server_url": "http://127.0.0.1:9/mcp"}
    with pytest.raises(APIStatusError) as error:
        await world.ask(world.models.play(answer("never")), "hi", tools=[dead])
    shown.append(error.value.response.text)
    assert {(seen.get("x-key"), seen.get("authorization")) for seen in world.mcp.headers} == {
        (SECRET, f"Bearer {SECRET}")
    }
    assert SECRET not in "\n".join(shown)
    assert [record for record in caplog.records if SECRET in record.getMessage()] == []
    assert SECRET not in caplog.text
    assert in_files(world.folder, SECRET) == []
