"""Every error of the catalogue (docs/errors.md), met through the official client.

A case is what a client does to get it; status, type, code and the client's exception come from the class alone. A class
or a code of the tree without a case, and a limit without one, fails here.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import httpx
import openai
import pytest
from openai import APIStatusError

from outlast.devserver import DevServer
from outlast.protocol import errors
from outlast.protocol.errors import OutlastError
from outlast.sections import LimitSettings
from outlast.settings import Settings
from scripts import errors_page
from tests.support.error_world import LIMITS, World, ask_of, error_world, waiting
from tests.support.raw_model import call_events, completed, refusing
from tests.unit.upstream.server import replying, sse, streaming

JsonObject = dict[str, Any]
# What the official client raises for a status.
RAISED: dict[int, type[APIStatusError]] = {
    400: openai.BadRequestError,
    401: openai.AuthenticationError,
    403: openai.PermissionDeniedError,
    404: openai.NotFoundError,
    429: openai.RateLimitError,
    500: openai.InternalServerError,
}


@pytest.fixture(scope="module")
async def server_world(temporal: DevServer, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    """One server for all tests of this file."""
    async with error_world(temporal.address, tmp_path_factory.mktemp("errors")) as opened:
        yield opened


@pytest.fixture
def world(server_world: World, monkeypatch: pytest.MonkeyPatch) -> World:
    """With patches of the test's own."""
    return World(server_world.server, server_world.models, server_world.tools, monkeypatch)


Case = Callable[[World], Awaitable[Any]]
CASES: dict[tuple[str, str | None], Case] = {}


def answers(kind: type[OutlastError], code: str | None = None) -> Callable[[Case], Case]:
    """Marks what a client does to be answered with this class; `code`: other than the class's own."""

    def register(case: Case) -> Case:
        assert CASES.setdefault((kind.__name__, code or kind.default_code), case) is case
        return case

    return register


# -- requests ----------------------------------------------------------------------------------------------------------


@answers(errors.InvalidRequest)
async def _out_of_range(world: World) -> None:
    await world.ask(temperature=3)


@answers(errors.InvalidRequest, "invalid_json")
async def _no_json(world: World) -> None:
    await world.client.post("/responses", content=b"{", cast_to=httpx.Response)


@answers(errors.InvalidRequest, "invalid_value")
async def _bad_query(world: World) -> None:
    response = await world.ask()
    await world.client.responses.input_items.list(response.id, limit=1000)


@answers(errors.UnsupportedFeature)
async def _by_name(world: World) -> None:
    await world.ask(prompt={"id": "pmpt_1"})


@answers(errors.PayloadTooLarge)
async def _too_large(world: World) -> None:
    await world.ask("x" * 100_001)


@answers(errors.InvalidRequest, "method_not_allowed")
async def _wrong_method(world: World) -> None:
    await world.client.put("/models", cast_to=httpx.Response)


@answers(errors.NotFound, "unknown_url")
async def _unknown_url(world: World) -> None:
    await world.post("/chat/completions", {})


@answers(errors.NotFound, "model_not_found")
async def _unknown_model(world: World) -> None:
    world.patch.setattr(Settings, "route", lambda _, __: None)
    await world.client.models.retrieve("gone-9")


@answers(errors.NotFound)
async def _unknown_response(world: World) -> None:
    await world.client.responses.retrieve("resp_nobody")


@answers(errors.Unauthorized)
async def _wrong_key(world: World) -> None:
    await world.client.with_options(api_key="wrong").responses.retrieve("resp_1")


@answers(errors.Forbidden)
async def _no_approver(world: World) -> None:
    await world.post(
        f"/approvals/{ask_of(await world.asked())}", {"approve": True}, options={"headers": {"x-roles": "caller"}}
    )


# -- chains and approvals ----------------------------------------------------------------------------------------------


@answers(errors.PreviousResponseNotFound)
async def _unknown_previous(world: World) -> None:
    await world.ask(previous_response_id="resp_nobody")


@answers(errors.ConversationLocked)
async def _two_at_once(world: World) -> None:
    conversation = await world.client.conversations.create()
    async with waiting(world, conversation=conversation.id):
        await world.ask(conversation=conversation.id)


@answers(errors.InvalidRequest, "item_already_in_conversation")
async def _posted_again(world: World) -> None:
    items: Any = [{"id": "msg_catalogue", "role": "user", "content": "hi"}]
    conversation = await world.client.conversations.create(items=items)
    await world.client.conversations.items.create(conversation.id, items=items)


KEY: Any = {"Idempotency-Key": "catalogue"}


@answers(errors.IdempotencyKeyReused)
async def _another_body(world: World) -> None:
    await world.ask("one", extra_headers=KEY)
    await world.ask("another", extra_headers=KEY)


@answers(errors.InvalidRequest, "idempotency_key_spent")
async def _deleted_since(world: World) -> None:
    key: Any = {"Idempotency-Key": "deleted"}
    await world.client.responses.delete((await world.ask("one", extra_headers=key)).id)
    await world.ask("one", extra_headers=key)


@answers(errors.InvalidRequest, "response_in_progress")
async def _unfinished_previous(world: World) -> None:
    async with waiting(world) as response_id:
        await world.ask(previous_response_id=response_id)


def decision(ask: str, *, approve: bool = True) -> Any:
    """An item that decides."""
    return {"type": "mcp_approval_response", "approval_request_id": ask, "approve": approve}


@answers(errors.InvalidRequest, "approval_not_found")
async def _unknown_ask(world: World) -> None:
    await world.ask([decision("mcpr_nobody")])


@answers(errors.ApprovalAlreadyDecided)
async def _other_verdict(world: World) -> None:
    ask = ask_of(await world.asked())
    await world.post(f"/approvals/{ask}", {"approve": True})
    await world.post(f"/approvals/{ask}", {"approve": False})


@answers(errors.ApprovalMismatch)
async def _re_pointed(world: World) -> None:
    asked = await world.asked()
    elsewhere = {**world.desk, "server_url": "http://127.0.0.1:9/mcp"}
    await world.ask([decision(ask_of(asked))], previous_response_id=asked.id, tools=[elsewhere])


@answers(errors.InvalidRequest, "approval_stale")
async def _listed_by_a_newer_response(world: World) -> None:
    calls = [*call_events("mcp__desk__refund", "{}"), *call_events("mcp__desk__refund", '{"again":1}', index=1)]
    played = world.models.play(streaming(sse(*calls, completed())))
    asked = await world.ask(model=played.model, tools=[world.desk])
    one, other = (item.id for item in asked.output if item.type == "mcp_approval_request")
    await world.ask([decision(one)], previous_response_id=asked.id)
    await world.ask([decision(other)], previous_response_id=asked.id)


@answers(errors.ToolServerUnavailable)
async def _required_server(world: World) -> None:
    gone = {"type": "mcp", "server_label": "gone", "server_url": "http://127.0.0.1:9/mcp", "required": True}
    await world.ask(tools=[gone])


# -- what is behind us -------------------------------------------------------------------------------------------------


async def _upstream_says(world: World, status: str, code: str | None = None) -> None:
    await world.ask(model=world.models.play(refusing(status, "says the upstream", code=code)).model)


@answers(errors.UpstreamRefused)
async def _refused(world: World) -> None:
    await _upstream_says(world, "400 X", code="upstream_error")


@answers(errors.UpstreamAuth)
async def _our_key(world: World) -> None:
    await _upstream_says(world, "401 X")


@answers(errors.UpstreamRateLimited)
async def _rate_limited(world: World) -> None:
    await world.ask(model=world.models.play(refusing("429 X", "slow down", "retry-after: 600")).model)


@answers(errors.UpstreamUnavailable)
async def _broken(world: World) -> None:
    await world.ask(model=world.models.play(replying("500 X", b"{}")).model)


@answers(errors.Unavailable)
async def _store_away(world: World) -> None:
    async def away(*_: object) -> None:
        raise errors.Unavailable("The store is away: try again.")

    world.patch.setattr(world.server.ports.store, "get", away)
    await world.client.responses.retrieve("resp_1")


@answers(errors.InternalError)
async def _bug(world: World) -> None:
    async def bug(*_: object) -> None:
        raise RuntimeError("a secret of the inside")

    world.patch.setattr(world.server.ports.store, "get", bug)
    await world.client.responses.retrieve("resp_1")


# -- the claims --------------------------------------------------------------------------------------------------------

CLASSES = {kind.__name__: kind for kind in errors_page.descendants(OutlastError)}


@pytest.mark.parametrize("name", sorted(CASES, key=str), ids=lambda key: f"{key[0]}-{key[1]}")
async def test_the_official_client_raises_what_the_catalogue_says(world: World, name: tuple[str, str | None]) -> None:
    """Status, type, code and exception; the envelope has its four keys; a request id; no word of the inside."""
    kind = CLASSES[name[0]]
    with pytest.raises(APIStatusError) as raised:
        await CASES[name](world)
    error = raised.value
    status = 400 if kind is errors.UpstreamRefused else 405 if name[1] == "method_not_allowed" else kind.status
    assert (error.status_code, error.type, error.code) == (status, kind.type, name[1])
    expected = RAISED.get(status, openai.InternalServerError if status >= 500 else APIStatusError)
    assert type(error) is expected
    assert set(error.response.json()["error"]) == {"message", "type", "param", "code"}
    assert error.request_id
    assert error.message
    assert "secret" not in error.message
    if isinstance(error, openai.InternalServerError) or status == 429:
        retry = error.response.headers.get("x-should-retry"), error.response.headers.get("retry-after")
        assert retry != (None, None) or kind is errors.InternalError


def test_every_error_of_the_catalogue_has_a_case() -> None:
    """Each class that is answered, and each code given at a place of its own."""
    classes = {
        (kind.__name__, kind.default_code)
        for kind in CLASSES.values()
        if kind not in errors_page.NEVER_ANSWERED and kind is not errors.UpstreamError
    }
    codes = {(kind, code) for code, kind, _ in errors_page.raised_codes()}
    assert set(CASES) == classes | codes


FUNCTION = {"type": "function", "name": "mine", "parameters": {}}
LIMITED: dict[str, JsonObject] = {
    "max_body_bytes": {"given": "x" * 100_001},
    "max_items": {"given": [{"role": "user", "content": "hi"}] * 6},
    "max_tools": {"tools": [{**FUNCTION, "name": f"f{n}"} for n in range(3)]},
    "max_tool_calls": {"max_tool_calls": 5},
    "max_rounds": {"extra_body": {"outlast": {"budget": {"max_rounds": 4}}}},
}
# Limits that refuse no request: what they cut is a step of a run.
OF_RUNS = {
    "parallel_tool_calls",
    "tool_timeout_seconds",
    "max_tool_output_bytes",
    "max_tool_image_bytes",
    "first_token_seconds",
    "idle_seconds",
    "round_seconds",
    "park_seconds",
}


@pytest.mark.parametrize("limit", sorted(LIMITED))
async def test_a_limit_is_named_by_its_error(world: World, limit: str) -> None:
    """The setting to change, and its value."""
    with pytest.raises(APIStatusError) as raised:
        await world.ask(**LIMITED[limit])
    assert raised.value.status_code in (400, 413)
    assert f"limits.{limit}" in raised.value.message
    assert str(LIMITS[limit]) in raised.value.message


def test_every_limit_has_a_case() -> None:
    """A new one has to be put in one of the two lists."""
    assert set(LIMITED) | OF_RUNS == set(LimitSettings.model_fields)
