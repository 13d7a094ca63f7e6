"""Claims about every endpoint, made by the official client against a whole server whose model plays a script."""

from typing import Any

import pytest
from openai import BadRequestError, NotFoundError
from openai.types.responses import Response
from temporalio.client import WorkflowFailureError
from temporalio.exceptions import CancelledError

from outlast.devserver import DevServer
from outlast.settings import Settings
from tests.support.api_client import hanging_up
from tests.support.desk import MESSAGE, World, asks, dumped, kinds, user, verdict
from tests.support.scripted_model import USAGE, say
from tests.support.stack import outlast, settings

# -- create ------------------------------------------------------------------------------------------------------------


async def test_json_stream_get_and_replay_tell_one_story(world: World) -> None:
    """The same output, usage and object in the terminal event, in GET and in a replay; usage summed over rounds."""
    case = world.case()
    case.tool["require_approval"] = "never"
    case.play([say("let me look"), case.calls("mcp__desk__lookup"), case.calls("mcp__desk__note")], [say("found")])
    events = await case.stream(metadata={"k": "v"}, instructions="be brief")
    assert [event.sequence_number for event in events] == list(range(len(events)))
    final: Response = events[-1].response
    assert (final.status, kinds(final)) == (
        "completed",
        ["mcp_list_tools", "message", "mcp_call", "mcp_call", "message"],
    )
    assert final.usage is not None
    assert final.usage.to_dict() == {
        "input_tokens": 20,
        "input_tokens_details": {"cached_tokens": 8},
        "output_tokens": 10,
        "output_tokens_details": {"reasoning_tokens": 2},
        "total_tokens": 30,
    }
    added = {e.output_index: e.item.id for e in events if e.type == "response.output_item.added"}
    done = {e.output_index: e.item.to_dict() for e in events if e.type == "response.output_item.done"}
    assert list(added) == [0, 1, 2, 3, 4]
    assert [item["id"] for item in dumped(final)] == list(added.values())
    assert [done[index] for index in range(5)] == dumped(final)
    assert (await case.client.responses.retrieve(final.id)).to_dict() == final.to_dict()
    replay = [event async for event in await case.client.responses.retrieve(final.id, stream=True)]
    assert [event.to_dict() for event in replay] == [event.to_dict() for event in events]


async def test_json_is_the_terminal_object(world: World) -> None:
    """What JSON answers is what GET answers."""
    case = world.case([say("Hello.")])
    created = await case.ask("hi", tools=[], metadata={"a": "b"}, temperature=0.5, top_p=0.25, max_output_tokens=99)
    assert (created.status, created.output_text, created.metadata) == ("completed", "Hello.", {"a": "b"})
    assert (created.temperature, created.top_p, created.max_output_tokens) == (0.5, 0.25, 99)
    assert created.usage is not None
    assert created.usage.to_dict() == USAGE
    assert (await case.client.responses.retrieve(created.id)).to_dict() == created.to_dict()
    (sent,) = case.script.requests
    assert (sent["temperature"], sent["top_p"], sent["max_output_tokens"]) == (0.5, 0.25, 99)
    assert (sent["store"], sent["stream"]) == (False, True)


async def test_the_accumulator_of_the_client_reads_a_run_with_tools(world: World) -> None:
    """`client.responses.stream`: every event is accepted, the final response is the stored one."""
    case = world.case()
    case.tool["require_approval"] = "never"
    case.play([case.calls("mcp__desk__lookup")], [say("found it")])
    async with case.client.responses.stream(
        model=case.script.model,
        input="look",
        tools=[case.tool],  # type: ignore[list-item]  # a plain dict, as most callers write it
    ) as stream:
        seen = [event async for event in stream]
        final = await stream.get_final_response()
    assert seen[-1].type == "response.completed"
    assert final.output_text == "found it"
    shown = dumped(final)
    assert shown[-1]["content"][0].pop("parsed") is None  # the client's own
    assert shown == dumped(await case.client.responses.retrieve(final.id))


async def test_background_is_answered_queued_and_polled_to_its_end(world: World) -> None:
    """Answered while the model has not said a word; GET shows it until it has ended."""
    case = world.case([say("later")])
    case.script.gate.clear()
    created = await case.ask("hi", tools=[], background=True)
    assert (created.status, created.output, created.background, created.usage) == ("queued", [], True, None)
    waiting = await case.client.responses.retrieve(created.id)
    assert waiting.status in ("queued", "in_progress")
    case.script.gate.set()
    ended = await case.ended(created)
    assert (ended.status, ended.output_text, ended.background) == ("completed", "later", True)


async def test_a_background_stream_begins_queued(world: World) -> None:
    """created (queued), queued, in_progress, then the items; the reader may leave and the run goes on."""
    case = world.case([say("later")])
    case.script.gate.clear()
    async with hanging_up(await case.streamed("hi", tools=[], background=True)) as stream:
        first = [await anext(stream) for _ in range(3)]
    assert [event.type for event in first] == ["response.created", "response.queued", "response.in_progress"]
    assert [event.response.status for event in first] == ["queued", "queued", "in_progress"]
    case.script.gate.set()
    ended = await case.ended(first[0].response)
    assert ended.output_text == "later"
    rest = [event async for event in await case.client.responses.retrieve(ended.id, stream=True, starting_after=2)]
    assert [event.type for event in rest] == [*MESSAGE, "response.completed"]
    assert [event.sequence_number for event in rest] == list(range(3, 10))


async def test_nothing_is_readable_of_a_response_that_is_not_stored(world: World) -> None:
    """JSON and stream are whole; afterwards GET, input_items, DELETE and a chain find nothing."""
    case = world.case([say("one")], [say("two")])
    created = await case.ask("hi", tools=[], store=False)
    assert (created.output_text, created.to_dict()["store"]) == ("one", False)
    streamed = (await case.stream("hi", tools=[], store=False))[-1].response
    assert streamed.output_text == "two"
    for response in (created, streamed):
        with pytest.raises(NotFoundError):
            await case.client.responses.retrieve(response.id)
        with pytest.raises(NotFoundError):
            await case.client.responses.delete(response.id)
        with pytest.raises(NotFoundError):
            await case.client.responses.input_items.list(response.id)
        with pytest.raises(BadRequestError) as refused:
            await case.ask("go on", tools=[], previous_response_id=response.id)
        assert (refused.value.code, refused.value.param) == ("previous_response_not_found", "previous_response_id")
    assert case.script.asked == 2


# -- reads, deletes, cancels -------------------------------------------------------------------------------------------


async def test_a_deleted_response_is_gone_for_every_door(world: World) -> None:
    """DELETE answers once; then retrieve, stream, input_items, cancel and a chain know nothing."""
    case = world.case([say("bye")])
    created = await case.ask("hi", tools=[])
    answer = await world.http.delete(f"/v1/responses/{created.id}")
    assert answer.json() == {"id": created.id, "object": "response.deleted", "deleted": True}
    responses = case.client.responses
    for door in (
        responses.retrieve(created.id),
        responses.retrieve(created.id, stream=True),
        responses.input_items.list(created.id),
        responses.cancel(created.id),
        responses.delete(created.id),
    ):
        with pytest.raises(NotFoundError):
            await door
    with pytest.raises(BadRequestError) as refused:
        await case.ask("go on", tools=[], previous_response_id=created.id)
    assert refused.value.code == "previous_response_not_found"


async def test_cancel_ends_a_running_response_and_its_stream(world: World) -> None:
    """The stream ends with `response.incomplete` whose response is cancelled; a late answer changes nothing."""
    case = world.case([say("too late")])
    case.script.gate.clear()
    stream = await case.streamed("hi", tools=[], background=True)
    created = (await anext(stream)).response
    cancelled = await case.client.responses.cancel(created.id)
    assert (cancelled.status, cancelled.output) == ("cancelled", [])
    events = [event async for event in stream]
    assert events[-1].type == "response.incomplete"
    assert (events[-1].response.status, events[-1].response.id) == ("cancelled", created.id)
    case.script.gate.set()
    assert (await case.client.responses.cancel(created.id)).to_dict() == cancelled.to_dict()
    handle = world.server.ports.client.get_workflow_handle(created.id)
    with pytest.raises(WorkflowFailureError) as stopped:
        await handle.result()
    assert isinstance(stopped.value.cause, CancelledError)
    assert (await case.client.responses.retrieve(created.id)).to_dict() == cancelled.to_dict()


async def test_cancel_of_a_finished_response_changes_nothing_and_of_a_foreground_one_is_refused(world: World) -> None:
    """Finished: the object as it is; foreground: 400."""
    case = world.case([say("done")], [say("done")])
    background = await case.ended(await case.ask("hi", tools=[], background=True))
    assert (await case.client.responses.cancel(background.id)).to_dict() == background.to_dict()
    foreground = await case.ask("hi", tools=[])
    with pytest.raises(BadRequestError, match="background") as refused:
        await case.client.responses.cancel(foreground.id)
    assert refused.value.param == "response_id"


async def test_input_items_are_paged_in_both_orders(world: World) -> None:
    """The whole chain's input, each with an id; `after` goes on behind an id."""
    case = world.case([say("one")], [say("two")])
    first = await case.ask("first", tools=[])
    second = await case.ask(
        [user("second"), {"role": "developer", "content": "be quick"}], tools=[], previous_response_id=first.id
    )

    async def listed(**options: Any) -> list[str]:
        found = case.client.responses.input_items.list(second.id, **options)
        return [item.to_dict()["content"][0]["text"] async for item in found]  # type: ignore[index]  # messages only

    assert await listed(order="asc") == ["first", "one", "second", "be quick"]
    assert await listed() == ["be quick", "second", "one", "first"]
    assert await listed(order="asc", limit=3) == ["first", "one", "second", "be quick"]
    page = (await case.client.responses.input_items.list(second.id, order="asc", limit=2)).to_dict()
    shown: list[Any] = page["data"]  # type: ignore[assignment]  # a page's dump is typed as plain objects
    assert (len(shown), page["has_more"]) == (2, True)
    assert (page["first_id"], page["last_id"]) == (shown[0]["id"], shown[-1]["id"])
    assert await listed(order="asc", after=page["last_id"]) == ["second", "be quick"]


# -- the rest ----------------------------------------------------------------------------------------------------------


async def test_approvals_are_listed_and_looked_at(world: World) -> None:
    """The inbox shows the whole call; a decision is shown with who, how and when; unknown ids are 404."""
    case = world.case()
    case.play([case.calls("mcp__desk__refund")], [say("done")])
    first = await case.ask()
    (ask,) = asks(first)
    (listed,) = [each for each in await world.approvals() if each["id"] == ask]
    assert listed == await world.approval(ask)
    assert {key: listed[key] for key in ("object", "response_id", "status", "mode", "server_label", "name")} == {
        "object": "approval",
        "response_id": first.id,
        "status": "pending",
        "mode": "respond",
        "server_label": "desk",
        "name": "refund",
    }
    assert listed["arguments"] == f'{{"order":{case.order}}}'
    await case.decided(first, verdict(ask, True))
    decided = await world.approval(ask)
    assert (decided["status"], decided["decided_by"], decided["decided_how"]) == ("approved", "local", "continuation")
    assert ask not in [each["id"] for each in await world.approvals()]
    assert (await world.http.get("/v1/approvals/mcpr_unknown")).status_code == 404


async def test_models_are_the_upstreams_and_demo_and_without_it_the_configured(
    temporal: DevServer, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Every name the upstream lists beside `demo`; once it is away, what is configured here."""

    def given(**more: object) -> Settings:
        plain = settings(tmp_path_factory.mktemp("models"), temporal.address)
        return Settings.model_validate({**plain.model_dump(), **more})

    away = {"test": {"base_url": "http://127.0.0.1:9/v1"}}
    names = {"fast": {"upstream": "test"}, "slow": {"upstream": "test"}}
    async with outlast(given(upstreams=away, models=names), work=False, desk=False) as upstream:
        relaying = given(upstreams={"test": {"base_url": f"{upstream.url}/v1"}})
        async with outlast(relaying, work=False, desk=False) as server:
            assert [model.id async for model in server.client.models.list()] == ["demo", "fast", "slow"]
            assert (await server.client.models.retrieve("slow")).id == "slow"
    mapped = given(upstreams={"test": {"base_url": f"{upstream.url}/v1"}}, models={"smart": {"upstream": "test"}})
    async with outlast(mapped, work=False, desk=False) as server:
        assert [model.id async for model in server.client.models.list()] == ["demo", "smart"]
        with pytest.raises(NotFoundError) as unknown:
            await server.client.models.retrieve("other")
        assert (unknown.value.code, unknown.value.param) == ("model_not_found", "model")


async def test_the_demo_model_answers_beside_a_configured_upstream(world: World) -> None:
    """`demo` always exists."""
    answered = await world.server.client.responses.create(model="demo", input="hello")
    assert answered.status == "completed"
    assert answered.output_text.startswith("Hello! I am the demo clerk")


async def test_health_and_readiness(world: World) -> None:
    """Live, and ready with its parts named."""
    assert (await world.http.get("/healthz")).json() == {"status": "ok"}
    ready = await world.http.get("/readyz")
    assert (ready.status_code, ready.json()) == (
        200,
        {"status": "ok", "checks": {"temporal": True, "workers": True, "store": True}},
    )
