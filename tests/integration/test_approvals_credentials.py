"""Claims about MCP credentials across an approval: kept sealed for the parked run, replaced by fresh ones, purged."""

import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from openai import BadRequestError
from openai.types.responses import Response

from tests.support.desk import REFUND, Case, World, asks, desk_tools, dumped, kinds, verdict
from tests.support.mcp_server import McpTestServer, mcp_server
from tests.support.scripted_model import say


@pytest.fixture
async def own() -> AsyncIterator[McpTestServer]:
    """A desk of one test, whose requests are all its own."""
    async with mcp_server(desk_tools()) as server:
        yield server


def refund(world: World, own: McpTestServer, *, rounds: int = 2) -> Case:
    """A conversation whose first round refunds, at a desk that wants credentials."""
    case = world.case()
    case.tool["server_url"] = own.url
    case.play([case.calls(REFUND)], *([say(f"text {number}")] for number in range(rounds)))
    return case


def bearing(case: Case, token: str) -> list[dict[str, Any]]:
    """The tool with a token."""
    return [{**case.tool, "authorization": token}]


def sent(own: McpTestServer, since: int = 0) -> set[str | None]:
    """Tokens the desk was shown."""
    return {headers.get("authorization") for headers in own.headers[since:]}


async def secret_of(world: World, ask: str) -> tuple[str, object]:
    """The id of an ask's secret and whether it is still there."""
    store = world.server.ports.store
    row = await store.approval("default", ask)
    assert row is not None
    assert row.secret_id is not None
    return row.secret_id, await store.secret("default", row.secret_id)


async def asked(case: Case, token: str = "t1") -> tuple[Response, str]:
    """The first turn, with a token, and its ask."""
    first = await case.ask(tools=bearing(case, token))
    (ask,) = asks(first)
    return first, ask


@pytest.mark.parametrize("approve", [True, False])
async def test_the_parked_runs_credentials_are_reused_and_then_purged(
    world: World, own: McpTestServer, approve: bool
) -> None:
    """The continuation brings none: call, listing and all go with the old token; afterwards it is gone."""
    case = refund(world, own)
    first, ask = await asked(case)
    secret, value = await secret_of(world, ask)
    assert value == {"Authorization": "Bearer t1"}
    second = await case.decided(first, verdict(ask, approve))
    assert kinds(second) == (["mcp_call", "message"] if approve else ["message"])
    assert dumped(second)[0].get("error") is None
    assert sent(own) == {"Bearer t1"}
    assert "mcp__desk__refund" in [tool["name"] for tool in case.script.requests[-1]["tools"]]
    assert await world.server.ports.store.secret("default", secret) is None


async def test_a_continuation_without_tools_runs_from_the_stored_binding(world: World, own: McpTestServer) -> None:
    """The call goes with the old token."""
    case = refund(world, own)
    first, ask = await asked(case)
    second = await case.decided(first, verdict(ask, True), tools=[])
    assert (kinds(second), case.script.requests[-1].get("tools") or []) == (["mcp_call", "message"], [])
    assert sent(own) == {"Bearer t1"}
    assert [each.tool for each in own.calls] == ["refund"]


async def test_fresh_credentials_replace_the_old_ones(world: World, own: McpTestServer) -> None:
    """Nothing of the continuation goes with the old token; both are gone afterwards."""
    case = refund(world, own)
    first, ask = await asked(case)
    secret, _ = await secret_of(world, ask)
    before = len(own.headers)
    second = await case.decided(first, verdict(ask, True), tools=bearing(case, "t2"))
    assert kinds(second) == ["mcp_call", "message"]
    assert sent(own, before) == {"Bearer t2"}
    record = await world.server.ports.store.get("default", second.id)
    assert record is not None
    for each in (secret, record.credentials["desk"]):
        assert await world.server.ports.store.secret("default", each) is None


async def test_fresh_credentials_serve_the_asks_that_are_listed_again(world: World, own: McpTestServer) -> None:
    """Brought with a partial decision, used by the last one, which brings none."""
    case = world.case()
    case.tool["server_url"] = own.url
    case.play([case.calls(REFUND), case.calls("mcp__desk__note")], [say("done")])
    first = await case.ask(tools=bearing(case, "t1"))
    one, two = asks(first)
    second = await case.decided(first, verdict(one, True), tools=bearing(case, "t2"))
    assert asks(second) == [two]
    secret, value = await secret_of(world, two)
    assert value == {"Authorization": "Bearer t2"}
    before = len(own.headers)
    third = await case.decided(second, verdict(two, True))
    assert (kinds(third), sent(own, before)) == (["mcp_call", "message"], {"Bearer t2"})
    assert [each.tool for each in own.calls] == ["refund", "note"]
    assert await world.server.ports.store.secret("default", secret) is None


async def test_expired_credentials_are_a_tool_error_that_says_so(world: World, own: McpTestServer) -> None:
    """They were purged by age: the call is not dispatched, the model and the client read why."""
    case = refund(world, own)
    first, ask = await asked(case)
    await world.server.ports.store.purge_transient(time.time() + 365 * 86_400)
    assert (await secret_of(world, ask))[1] is None
    second = await case.decided(first, verdict(ask, True))
    assert kinds(second) == ["mcp_call", "message"]
    call = dumped(second)[0]
    assert (call["status"], call["output"], own.calls) == ("failed", None, [])
    assert "credentials" in call["error"]["content"][0]["text"]
    assert "expired" in case.script.transcript()[-1]["output"]


async def test_another_keys_credentials_are_not_what_was_approved(world: World, own: McpTestServer) -> None:
    """The owner is the API key that sent them: refused, and the approval is kept for the right one."""
    case = refund(world, own)
    first, ask = await asked(case)
    with pytest.raises(BadRequestError) as refused:
        await case.decided(
            first, verdict(ask, True), tools=bearing(case, "t9"), extra_headers={"x-key": "somebody-else"}
        )
    assert refused.value.code == "approval_mismatch"
    second = await case.decided(first, verdict(ask, True))
    assert (kinds(second), sent(own)) == (["mcp_call", "message"], {"Bearer t1"})


async def test_waiting_keeps_the_credentials_and_cancelling_purges_them(world: World, own: McpTestServer) -> None:
    """Wait mode: sealed while the response is open."""
    case = refund(world, own)
    response = await case.start(tools=bearing(case, "t1"))
    (ask,) = await case.open_asks(response)
    secret, value = await secret_of(world, ask)
    assert value == {"Authorization": "Bearer t1"}
    await case.client.responses.cancel(response.id)
    assert await world.server.ports.store.secret("default", secret) is None
