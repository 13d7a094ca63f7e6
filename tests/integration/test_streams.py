"""Claims about resumed streams: API and worker are processes of their own, the readers see the same bytes."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from openai import AsyncOpenAI

from outlast.devserver import DevServer
from tests.support.api_client import hanging_up
from tests.support.mcp_server import McpTestServer, Tool, mcp_server
from tests.support.raw_model import RawModels, call_events, completed, deltas, gated, raw_model, text_answer
from tests.support.stack import Process, settings
from tests.unit.upstream.server import sse, streaming

# More than the sockets between the server and a reader that does not read can hold.
PIECES, PIECE = 300, "x" * 20_000


@dataclass
class World:
    """A worker and two APIs over one record, each a process."""

    apis: tuple[httpx.AsyncClient, httpx.AsyncClient]
    client: AsyncOpenAI
    models: RawModels
    mcp: McpTestServer


@pytest.fixture(scope="module")
async def world(temporal: DevServer, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    """The processes of this file; the upstream and the tool server are here."""
    async with AsyncExitStack() as stack:
        models = await stack.enter_async_context(raw_model())
        mcp = await stack.enter_async_context(mcp_server({"add": Tool(lambda a: "3"), "sub": Tool(lambda a: "1")}))
        given = settings(tmp_path_factory.mktemp("streams"), temporal.address, upstream=models.url)
        processes = [await Process.start(command, given) for command in ("worker", "api", "api")]
        for process in processes:
            stack.push_async_callback(process.stop)
        await processes[0].line("Outlast worker polls")
        urls = [(await process.line(r"serves (\S+)/v1")).group(1) for process in processes[1:]]
        first, second = [await stack.enter_async_context(httpx.AsyncClient(base_url=url, timeout=60)) for url in urls]
        client = await stack.enter_async_context(AsyncOpenAI(base_url=f"{urls[0]}/v1", api_key="none", max_retries=0))
        yield World((first, second), client, models, mcp)


def logged(body: bytes) -> list[bytes]:
    """The frames of a body without keep-alives, which belong to the connection."""
    frames = [frame for frame in body.split(b"\n\n") if frame]
    return [frame for frame in frames if not frame.startswith((b":", b"event: keepalive"))]


def number(frame: bytes) -> int:
    """Its sequence number."""
    found = re.search(rb'"sequence_number":(\d+)', frame)
    assert found is not None, frame
    return int(found.group(1))


class Reader:
    """One open stream, read as far as a test says."""

    def __init__(self, answer: httpx.Response) -> None:
        self._chunks = answer.aiter_raw()
        self.body = b""

    async def until(self, text: bytes) -> None:
        """Read on until this was seen."""
        async with asyncio.timeout(60):
            while text not in self.body:
                self.body += await anext(self._chunks)

    async def rest(self) -> bytes:
        """All of it."""
        async with asyncio.timeout(60):
            async for chunk in self._chunks:
                self.body += chunk
        return self.body


async def test_readers_of_a_run_in_another_process_see_equal_bytes(world: World) -> None:
    """Three join at different cuts of a running response, one does not read until the others have ended.

    The response runs in the worker's process; two readers are at the other API than the one it was created at.
    """
    gate = asyncio.Event()
    opening = deltas("one ", "two ")
    pieces = deltas(*[PIECE] * PIECES)[2:]
    played = world.models.play(gated(sse(*opening), gate, [*(sse(piece) for piece in pieces), sse(completed())]))
    first, second = world.apis
    body = {"model": played.model, "input": "go", "stream": True, "background": True}
    async with AsyncExitStack() as stack:
        creator = Reader(await stack.enter_async_context(first.stream("POST", "/v1/responses", json=body)))
        await creator.until(b'"delta":"two "')
        response_id = re.search(rb'"id":"(resp_\w+)"', creator.body)
        assert response_id is not None
        path = f"/v1/responses/{response_id.group(1).decode()}?stream=true"

        async def join(api: httpx.AsyncClient, cut: int) -> Reader:
            answer = await stack.enter_async_context(api.stream("GET", f"{path}&starting_after={cut}"))
            assert answer.status_code == 200
            return Reader(answer)

        early, middle, slow = await join(second, 0), await join(first, 4), await join(second, 2)
        await early.until(b'"delta":"two "')
        gate.set()
        whole = logged(await creator.rest())
        assert [number(frame) for frame in whole[:-1]] == list(range(len(whole) - 1))
        assert whole[-1] == b"data: [DONE]"
        assert whole[-2].startswith(b"event: response.completed\n")
        assert len(whole) > PIECES
        assert logged(await early.rest()) == whole[1:]
        assert logged(await middle.rest()) == whole[5:]
        # Only now does the slow one take more than its socket's buffer.
        assert logged(await slow.rest()) == whole[3:]
    late = await second.get(path)
    assert logged(late.content) == whole


async def test_a_tool_run_is_resumed_from_every_cut_at_both_apis(world: World) -> None:
    """Suffixes of one body, byte by byte, whichever process is asked; after the last number only `[DONE]`."""
    tool = {"type": "mcp", "server_label": "calc", "server_url": world.mcp.url, "require_approval": "never"}
    calls = [*call_events("mcp__calc__add", '{"a":1}'), *call_events("mcp__calc__sub", "{}", 1)]
    played = world.models.play(
        streaming(sse(*calls, completed())), streaming(text_answer("responses", "The ", "sum ", "is 3."))
    )
    body: dict[str, Any] = {"model": played.model, "input": "sum", "tools": [tool], "stream": True}
    created = await world.apis[0].post("/v1/responses", json=body)
    whole = logged(created.content)
    kinds = [frame.split(b"\n")[0].removeprefix(b"event: ").decode() for frame in whole[:-1]]
    assert kinds.count("response.mcp_call.completed") == 2
    assert kinds[-1] == "response.completed"
    assert [number(frame) for frame in whole[:-1]] == list(range(len(kinds)))
    path = f"/v1/responses/{created.headers['x-outlast-response-id']}?stream=true"
    for api in world.apis:
        assert logged((await api.get(path)).content) == whole
        for cut in range(len(kinds)):
            assert logged((await api.get(f"{path}&starting_after={cut}")).content) == whole[cut + 1 :]
        assert (await api.get(f"{path}&starting_after={len(kinds) + 5}")).content == b"data: [DONE]\n\n"


async def test_the_official_client_resumes_where_it_was_cut(world: World) -> None:
    """A stream left in the middle goes on behind the last number, at the same API, while the model still speaks."""
    gate = asyncio.Event()
    rest = deltas("three")[2:]
    played = world.models.play(gated(sse(*deltas("one ", "two ")), gate, [sse(*rest, completed())]))
    seen: list[Any] = []
    async with hanging_up(await world.client.responses.create(model=played.model, input="go", stream=True)) as stream:
        async for event in stream:
            seen.append(event)
            if event.type == "response.output_text.delta":
                break
    resumed = await world.client.responses.retrieve(
        seen[0].response.id, stream=True, starting_after=seen[-1].sequence_number
    )
    gate.set()
    seen += [event async for event in resumed]
    assert [event.sequence_number for event in seen] == list(range(len(seen)))
    text = "".join(event.delta for event in seen if event.type == "response.output_text.delta")
    assert (text, seen[-1].response.output_text) == ("one two three", "one two three")
