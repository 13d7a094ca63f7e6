"""The MCP port against a server that counts and misbehaves."""

import asyncio
import time
from collections.abc import AsyncIterator

import pytest

from outlast.mcp.base import (
    Annotations,
    ImageBlock,
    ListFailed,
    NotDispatched,
    ServerRef,
    ToolFailed,
    ToolOk,
    ToolSpec,
    ToolUnknown,
)
from outlast.mcp.client import McpClients
from outlast.mcp.session import Limits
from outlast.protocol.images import note
from tests.support.mcp_server import Call, McpTestServer, Mode, Tool, ToolError, mcp_server

HI = note("image/png", b"hi")
ADD_SCHEMA = {"type": "object", "properties": {"a": {"type": "number"}, "b": {"type": "number"}}}


def _fail(_: object) -> object:
    raise ToolError("the till is empty")


TOOLS = {
    "add": Tool(
        lambda a: str(a["a"] + a["b"]),
        description="Add two numbers.",
        schema=ADD_SCHEMA,
        annotations={"readOnlyHint": True, "idempotentHint": True},
    ),
    "echo": Tool(lambda a: a["text"]),
    "fail": Tool(_fail),
    "draw": Tool(
        lambda _: [
            {"type": "text", "text": "one"},
            {"type": "image", "data": "aGk=", "mimeType": "image/png"},
            {"type": "text", "text": "two"},
        ]
    ),
    "count": Tool(lambda _: {"content": [], "structuredContent": {"n": 3}}),
}
ADDED = ToolOk(text="3")


@pytest.fixture
async def clients() -> AsyncIterator[McpClients]:
    """Clients with short patience."""
    clients = McpClients(Limits(open=2, close=1))
    yield clients
    await clients.aclose()


def ref(server: McpTestServer, **headers: str) -> ServerRef:
    return ServerRef(label="shop", url=server.url, headers=headers)


async def add(clients: McpClients, server: ServerRef, *, key: str = "k1", timeout: float = 5) -> object:
    return await clients.call(server, "add", {"a": 1, "b": 2}, idempotency_key=key, timeout=timeout)


@pytest.mark.parametrize("sse", [False, True], ids=["json", "sse"])
@pytest.mark.parametrize("sessions", [False, True], ids=["sessionless", "sessions"])
async def test_it_lists_and_calls_whatever_the_server_speaks(clients: McpClients, sessions: bool, sse: bool) -> None:
    """With and without sessions, JSON and event streams."""
    async with mcp_server(TOOLS, sessions=sessions, sse=sse) as server:
        listed = await clients.list_tools(ref(server), timeout=5)
        outcome = await add(clients, ref(server))
    assert listed[:2] == (
        ToolSpec(
            name="add",
            description="Add two numbers.",
            input_schema=ADD_SCHEMA,
            annotations=Annotations(read_only=True, idempotent=True),
            raw_annotations={"readOnlyHint": True, "idempotentHint": True},
        ),
        ToolSpec("echo", "A tool.", {"type": "object", "properties": {}}, Annotations()),
    )
    assert outcome == ADDED
    session = "session-1" if sessions else None
    assert server.calls == [Call("add", {"a": 1, "b": 2}, "k1", session)]


async def test_arguments_arrive_as_they_are(clients: McpClients) -> None:
    """Nulls inside arguments are not dropped, and the key is the only thing added."""
    async with mcp_server(TOOLS) as server:
        arguments = {"text": "hi", "none": None, "deep": {"none": None, "list": [None, 1.5]}}
        await clients.call(ref(server), "echo", arguments, idempotency_key="k9", timeout=5)
    assert server.calls == [Call("echo", arguments, "k9", "session-1")]


async def test_the_caller_headers_reach_every_request(clients: McpClients) -> None:
    """Credentials go along, listing and calling alike."""
    async with mcp_server(TOOLS) as server:
        await clients.list_tools(ref(server, authorization="Bearer s3cret"), timeout=5)
        await add(clients, ref(server, authorization="Bearer s3cret"))
    assert {headers.get("authorization") for headers in server.headers} == {"Bearer s3cret"}
    assert "s3cret" not in repr(ref(server, authorization="Bearer s3cret"))


async def test_one_session_serves_many_calls_and_never_lists_for_itself(clients: McpClients) -> None:
    """Twenty calls at once and one after: one initialise, no tools/list."""
    async with mcp_server(TOOLS) as server:
        outcomes = await asyncio.gather(*(add(clients, ref(server), key=str(n)) for n in range(20)))
        outcomes.append(await add(clients, ref(server), key="20"))
    assert outcomes == [ADDED] * 21
    assert (server.initializes, server.lists) == (1, 0)


async def test_credentials_do_not_share_a_session(clients: McpClients) -> None:
    """Same address, other headers: another session."""
    async with mcp_server(TOOLS) as server:
        await add(clients, ref(server, authorization="Bearer a"))
        await add(clients, ref(server, authorization="Bearer b"))
    assert [call.session for call in server.calls] == ["session-1", "session-2"]


@pytest.mark.parametrize(
    ("tool", "outcome"),
    [
        ("draw", ToolOk(text=f"one\n{HI}\ntwo", images=(ImageBlock(data=b"hi", mime_type="image/png"),))),
        ("count", ToolOk(text='{"n":3}', structured={"n": 3})),
        (
            "fail",
            ToolFailed(
                error={
                    "type": "mcp_tool_execution_error",
                    "content": [{"type": "text", "text": "the till is empty"}],
                },
                text="the till is empty",
            ),
        ),
    ],
)
async def test_a_result_is_text_and_images_and_a_typed_error(clients: McpClients, tool: str, outcome: object) -> None:
    """Text parts joined, images apart, structured content only without text, isError typed."""
    async with mcp_server(TOOLS) as server:
        assert await clients.call(ref(server), tool, {}, idempotency_key="k", timeout=5) == outcome


@pytest.mark.parametrize(
    ("mode", "outcome"),
    [
        (
            Mode.RPC_ERROR,
            ToolFailed(
                error={"type": "mcp_protocol_error", "code": -32602, "message": "no such tool"},
                text="MCP error -32602: no such tool",
            ),
        ),
        (
            Mode.HTTP_503,
            ToolUnknown(
                reason="HTTP 503: X",
                failed=ToolFailed(
                    error={"type": "http_error", "code": 503, "message": "X"},
                    text="HTTP 503: X; whether the tool ran is not known",
                ),
            ),
        ),
        (
            Mode.MALFORMED,
            ToolFailed(
                error={
                    "type": "mcp_protocol_error",
                    "code": -32700,
                    "message": "the server's answer could not be read, the tool may have run",
                },
                text="MCP error -32700: the server's answer could not be read, the tool may have run",
            ),
        ),
        (
            Mode.WRONG_TYPE,
            ToolFailed(
                error={
                    "type": "mcp_protocol_error",
                    "code": -32600,
                    "message": "Unexpected content type: text/html",
                },
                text="MCP error -32600: Unexpected content type: text/html",
            ),
        ),
    ],
)
async def test_a_broken_answer_is_a_typed_failure(clients: McpClients, mode: Mode, outcome: object) -> None:
    """The call is not repeated, and the session still works afterwards."""
    async with mcp_server(TOOLS) as server:
        server.mode = mode
        assert await add(clients, ref(server)) == outcome
        server.mode = Mode.NORMAL
        assert await add(clients, ref(server), key="k2") == ADDED
    assert [call.idempotency_key for call in server.calls] == ["k1", "k2"]


async def test_an_error_about_some_other_session_is_not_taken_for_a_lost_one(clients: McpClients) -> None:
    """The tool may have run before it said so: the call is not sent again."""
    async with mcp_server(TOOLS) as server:
        server.mode = Mode.RAN_400
        outcome = await add(clients, ref(server))
        assert isinstance(outcome, ToolFailed)
        assert outcome.error["message"] == "the customer's checkout session has expired"
        assert len(server.calls) == 1


async def test_a_redirect_to_another_origin_is_not_followed(clients: McpClients) -> None:
    """It would carry the credentials there."""
    async with mcp_server(TOOLS) as server:
        server.mode = Mode.REDIRECT
        outcome = await add(clients, ref(server, authorization="Bearer a"))
    assert isinstance(outcome, ToolFailed)
    assert (outcome.error["type"], outcome.error["code"]) == ("http_error", 307)
    assert "http://other.invalid/mcp not followed" in outcome.text


@pytest.mark.parametrize("mode", [Mode.DIE, Mode.CUT_BODY])
@pytest.mark.parametrize("sse", [False, True], ids=["json", "sse"])
async def test_a_connection_cut_after_dispatch_leaves_the_outcome_unknown(
    clients: McpClients, mode: Mode, sse: bool
) -> None:
    """Noticed at once, never sent again."""
    async with mcp_server(TOOLS, sse=sse) as server:
        await add(clients, ref(server), key="warm")
        server.mode = mode
        started = time.monotonic()
        outcome = await add(clients, ref(server), timeout=30)
    assert isinstance(outcome, ToolUnknown)
    assert time.monotonic() - started < 5
    assert [call.idempotency_key for call in server.calls] == ["warm", "k1"]


async def test_a_tool_that_never_answers_ends_at_our_deadline(clients: McpClients) -> None:
    """Unknown, on time, and the server is told that nobody waits."""
    async with mcp_server(TOOLS) as server:
        server.mode = Mode.HANG
        started = time.monotonic()
        outcome = await add(clients, ref(server), timeout=0.5)
        assert outcome == ToolUnknown(reason="the tool did not answer before its deadline")
        assert time.monotonic() - started < 2
        await server.until(lambda s: len(s.cancelled) == 1)
        server.mode = Mode.NORMAL
        assert await add(clients, ref(server), key="k2") == ADDED


async def test_one_calls_trouble_does_not_touch_the_others(clients: McpClients) -> None:
    """A cut connection and a hanging call beside healthy ones in the same session."""
    gate = asyncio.Event()

    async def slow(_: object) -> str:
        await gate.wait()
        return "slow but fine"

    async with mcp_server({**TOOLS, "slow": Tool(slow)}) as server:
        await add(clients, ref(server), key="warm")
        healthy = asyncio.create_task(clients.call(ref(server), "slow", {}, idempotency_key="slow", timeout=20))
        await server.until(lambda s: len(s.calls) == 2)
        server.mode = Mode.DIE
        cut = await add(clients, ref(server), key="cut")
        server.mode = Mode.HANG
        hung = await add(clients, ref(server), key="hung", timeout=0.3)
        server.mode = Mode.NORMAL
        after = await add(clients, ref(server), key="after")
        gate.set()
        assert await healthy == ToolOk(text="slow but fine")
    assert isinstance(cut, ToolUnknown)
    assert isinstance(hung, ToolUnknown)
    assert after == ADDED


async def test_a_cancelled_call_is_cancelled_and_the_next_one_works(clients: McpClients) -> None:
    """Cancellation is re-raised at once."""
    async with mcp_server(TOOLS) as server:
        server.mode = Mode.HANG
        call = asyncio.create_task(add(clients, ref(server), timeout=30))
        await server.until(lambda s: len(s.calls) == 1)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        server.mode = Mode.NORMAL
        assert await add(clients, ref(server), key="k2") == ADDED


async def test_a_forgotten_session_is_opened_again_once(clients: McpClients) -> None:
    """404 means that the call was not looked at: initialise and send it, one tool run."""
    async with mcp_server(TOOLS) as server:
        await add(clients, ref(server), key="warm")
        server.mode = Mode.SESSION_LOST_ONCE
        assert await add(clients, ref(server)) == ADDED
        assert server.calls[1:] == [Call("add", {"a": 1, "b": 2}, "k1", "session-2")]
        server.mode = Mode.SESSION_LOST_ONCE
        assert len(await clients.list_tools(ref(server), timeout=5)) == len(TOOLS)
    assert server.initializes == 3


async def test_a_refused_connection_was_not_dispatched(clients: McpClients) -> None:
    """Nobody listens: NotDispatched for a call, ListFailed for a listing, both say why."""
    async with mcp_server(TOOLS) as server:
        gone = ref(server)
    with pytest.raises(NotDispatched, match=r"^shop: could not connect: ConnectError: "):
        await add(clients, gone)
    with pytest.raises(ListFailed, match=r"^shop: could not connect: ConnectError: "):
        await clients.list_tools(gone, timeout=5)


async def test_a_server_that_went_away_between_calls_was_not_dispatched(clients: McpClients) -> None:
    """A kept session whose server died does not make an outcome unknown."""
    async with mcp_server(TOOLS) as server:
        await add(clients, ref(server))
    with pytest.raises(NotDispatched, match=r"^shop: could not connect: "):
        await add(clients, ref(server))


async def test_a_server_that_does_not_initialise_was_not_dispatched() -> None:
    """Bounded by the time for opening and by the call's own deadline, whichever is first."""
    clients = McpClients(Limits(open=0.3, close=1))
    async with mcp_server(TOOLS) as server:
        server.started.clear()
        with pytest.raises(NotDispatched, match="did not initialise within"):
            await add(clients, ref(server))
        with pytest.raises(NotDispatched, match="before the deadline"):
            await add(clients, ref(server), timeout=0.1)
        with pytest.raises(ListFailed, match="did not initialise within"):
            await clients.list_tools(ref(server), timeout=5)
        server.started.set()
        assert await add(clients, ref(server)) == ADDED
        await clients.aclose()
    assert [call.idempotency_key for call in server.calls] == ["k1"]


async def test_every_page_is_listed(clients: McpClients) -> None:
    """Two per page, five tools."""
    async with mcp_server(TOOLS, page=2) as server:
        listed = await clients.list_tools(ref(server), timeout=5)
    assert [spec.name for spec in listed] == list(TOOLS)
    assert server.lists == 3


async def test_a_listing_over_a_cap_fails_and_names_the_cap(clients: McpClients) -> None:
    """128 tools, 1 MiB of definitions, pages without end."""
    many = {f"tool_{n}": Tool(str) for n in range(129)}
    async with mcp_server(dict(list(many.items())[:128])) as server:
        assert len(await clients.list_tools(ref(server), timeout=5)) == 128
    async with mcp_server(many) as server:
        with pytest.raises(ListFailed, match="more than 128 tools, the cap per server"):
            await clients.list_tools(ref(server), timeout=5)
        server.mode = Mode.HUGE_LIST
        with pytest.raises(ListFailed, match="over 1048576 bytes, the cap per server"):
            await clients.list_tools(ref(server), timeout=5)
        server.mode = Mode.ENDLESS_LIST
        with pytest.raises(ListFailed, match="does not end within 128 pages"):
            await clients.list_tools(ref(server), timeout=5)


@pytest.mark.parametrize("sse", [False, True], ids=["json", "sse"])
async def test_an_output_over_the_cap_is_a_failure_that_names_it(sse: bool) -> None:
    """Over the text cap, and over what we read of one answer at all."""
    clients = McpClients(Limits(output=1000, body=100_000))
    async with mcp_server(TOOLS, sse=sse) as server:
        server.mode = Mode.HUGE
        for size, cap in ((2000, 1000), (200_000, 100_000)):
            server.huge_bytes = size
            text = f"The tool's output is over the limit of {cap} bytes and was dropped; the tool has run."
            assert await add(clients, ref(server)) == ToolFailed(
                error={"type": "mcp_tool_execution_error", "content": [{"type": "text", "text": text}]}, text=text
            )
        await clients.aclose()


async def test_an_idle_session_is_closed_and_ended_at_the_server() -> None:
    """After the idle time the connection and the server's session are gone; the next call opens another."""
    clients = McpClients(Limits(idle=0.05))
    async with mcp_server(TOOLS) as server:
        await add(clients, ref(server))
        await server.until(lambda s: s.deleted == ["session-1"] and s.open_connections == 0)
        assert await add(clients, ref(server)) == ADDED
        assert server.initializes == 2
        await clients.aclose()


async def test_closing_ends_everything_it_started() -> None:
    """A hanging call ends with the close; no task and no connection is left."""
    before = asyncio.all_tasks()
    clients = McpClients(Limits(close=0.5))
    async with mcp_server(TOOLS) as server:
        server.mode = Mode.HANG
        call = asyncio.create_task(add(clients, ref(server), timeout=30))
        await server.until(lambda s: len(s.calls) == 1)
        await clients.aclose()
        assert isinstance(await call, ToolUnknown)
        server.released.set()
        await server.until(lambda s: s.open_connections == 0)
    # No task of ours is left, so nothing of anyio's keeps cancelling one: the loop has nothing to spin on.
    assert asyncio.all_tasks() == before
