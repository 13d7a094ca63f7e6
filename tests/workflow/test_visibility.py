"""Claims about what Temporal's UI shows of a run: attributes, details, the progress query."""

import asyncio
from datetime import timedelta

from temporalio.api.sdk.v1 import WorkflowMetadata
from temporalio.client import WorkflowExecutionDescription
from temporalio.common import TypedSearchAttributes

from outlast import contracts
from outlast.contracts import GateView, Mark, Resumed, ToolDone
from outlast.loop.decide import COMPLETED
from outlast.loop.state import AskOutcome, Budgets, LlmOutcome
from tests.support.fakes import Bench, Run, Script, asking, done, state, tools, waiting


async def attributes(run: Run) -> dict[str, object]:
    """Ours, by name."""
    described: WorkflowExecutionDescription = await run.handle.describe()
    found: TypedSearchAttributes = described.typed_search_attributes
    ours = (contracts.RESPONSES_KEY, contracts.TENANT_KEY, contracts.MODEL_KEY, contracts.PENDING_KEY)
    return {key.name: found.get(key) for key in ours}


async def metadata(run: Run) -> WorkflowMetadata:
    """What the workflow says of itself."""
    found: WorkflowMetadata = await run.handle.query(
        "__temporal_workflow_metadata", result_type=WorkflowMetadata, rpc_timeout=timedelta(seconds=10)
    )
    return found


async def details(run: Run) -> str:
    """What it says it is doing."""
    text: str = (await metadata(run)).current_details
    return text


async def test_a_waiting_run_is_found_by_its_pending_asks(bench: Bench) -> None:
    """Two asks, then one, then none; an operator's list shows who waits for a human."""
    script: Script = {contracts.READ_GATE: [GateView(pending=2), GateView(pending=1), GateView()]}
    async with bench.running(script, waiting(0, 1)) as run:
        await run.fakes.called(contracts.READ_GATE)
        await run.handle.signal(contracts.SIGNAL_DECIDED, "mcpr_1")
        await run.fakes.called(contracts.READ_GATE, 2)
        await run.handle.signal(contracts.SIGNAL_DECIDED, "mcpr_2")
        await run.ended()
        published = [
            event.upsert_workflow_search_attributes_event_attributes.search_attributes.indexed_fields[
                contracts.SEARCH_PENDING
            ].data
            for event in await run.events()
            if event.HasField("upsert_workflow_search_attributes_event_attributes")
        ]
        assert published == [b"2", b"1", b"0"]


async def test_a_run_carries_its_responses_tenant_and_model(bench: Bench) -> None:
    """From the start; a continuation adds its response and its model."""
    free = asyncio.Event()

    async def held(_: object) -> LlmOutcome:
        await free.wait()
        return done()

    script: Script = {contracts.CALL_LLM: [held], contracts.LEAVE_PARK: [Resumed()]}
    async with bench.running(script, asking()) as run:
        await run.parked()
        ours = {"OutlastResponses": ["resp_1"], "OutlastTenant": "default", "OutlastModel": "first"}
        assert await attributes(run) == {**ours, "OutlastPendingApprovals": 1}
        await run.handle.signal(contracts.SIGNAL_RESUME, "resp_stale")
        await run.handle.signal(contracts.SIGNAL_RESUME, "resp_2")
        await run.fakes.called(contracts.CALL_LLM)
        assert await attributes(run) == {
            "OutlastResponses": ["resp_1", "resp_2"],
            "OutlastTenant": "default",
            "OutlastModel": "second",
            "OutlastPendingApprovals": 0,
        }
        free.set()
        await run.ended()


async def test_a_run_is_summed_up_by_its_model_and_mode(bench: Bench) -> None:
    """What a list of runs shows of it."""
    async with bench.running() as run:
        await run.ended()
    assert (await run.events())[0].user_metadata.summary.data == "first · respond".encode().join([b'"', b'"'])


async def test_every_message_says_what_it_is_for(bench: Bench) -> None:
    """Beside the buttons of the UI; who decides there reads the shape of a decision."""
    async with bench.running() as run:
        await run.ended()
        definition = (await metadata(run)).definition
    decide = 'Decide an open approval{}: {{"approval_id": "mcpr_…", "approve": true}}.{}'
    ours = {
        kind: {each.name: each.description for each in found if not each.name.startswith("__")}
        for kind, found in (
            ("signal", definition.signal_definitions),
            ("query", definition.query_definitions),
            ("update", definition.update_definitions),
        )
    }
    assert ours == {
        "signal": {
            "decide": decide.format(" without an answer", ""),
            "decided": "Outlast: an approval was decided; read the row.",
            "progress": "Outlast: a durable progress mark of a long step.",
            "resume": "Outlast: a continuation has taken this parked run.",
        },
        "query": {"progress": "Where this run is: phase, round, items, tokens."},
        "update": {"decide": decide.format("", " Reasons: through the API.")},
    }


async def test_the_details_say_what_a_run_is_doing(bench: Bench) -> None:
    """Model round, tools, a question: each names what it is about."""
    seen: list[str] = []

    async def model(_: object) -> LlmOutcome:
        seen.append(await details(run))
        return tools(0, ask=(1,))

    async def tool(_: object) -> ToolDone:
        seen.append(await details(run))
        return ToolDone()

    async def ask(_: object) -> AskOutcome:
        seen.append(await details(run))
        return AskOutcome(finished=COMPLETED)

    script: Script = {
        contracts.CALL_LLM: [model],
        contracts.EXECUTE_TOOLS: [tool],
        contracts.INTERRUPT_FOR_APPROVAL: [ask],
    }
    async with bench.running(script) as run:
        await run.ended()
    assert seen == [
        "**resp_1**\n\nCalling first, round 1",
        "**resp_1**\n\nRunning docs.search",
        "**resp_1**\n\nAsking for approval: docs.search",
    ]


async def test_the_details_of_a_run_that_ended_without_a_step_say_how(bench: Bench) -> None:
    """They stay when it is closed."""
    async with bench.running({}, state(budgets=Budgets(max_rounds=0))) as run:
        await run.ended()
        assert await details(run) == "**resp_1**\n\nEnding: incomplete"


async def test_the_details_name_what_waits_for_whom(bench: Bench) -> None:
    """At a gate the asks, in a park the caller."""
    async with bench.running({contracts.READ_GATE: [GateView(pending=1, deadline_in=600)]}, waiting()) as run:
        await run.parked()
        assert await details(run) == "**resp_1**\n\nWaiting for 1 approval(s): docs.delete"
        await run.handle.signal(contracts.SIGNAL_DECIDED, "mcpr_1")
        await run.ended()
    async with bench.running({}, asking()) as run:
        await run.parked()
        assert "Parked" in await details(run)
        await run.handle.signal(contracts.SIGNAL_RESUME, "resp_2")
        await run.ended()


async def test_progress_is_the_last_mark_of_the_step_at_work(bench: Bench) -> None:
    """Before one, the loop's own phase and round; the next step starts without the marks of the last."""
    seen: list[Mark] = []

    async def look() -> None:
        seen.append(await run.handle.query(contracts.QUERY_PROGRESS, result_type=Mark))

    async def model(_: object) -> LlmOutcome:
        await look()
        await run.handle.signal(contracts.SIGNAL_PROGRESS, Mark("model", 1, 2, 30))
        await look()
        assert await details(run) == "**resp_1**\n\nmodel · round 1 · 2 items · 30 tokens"
        return tools(0)

    async def tool(_: object) -> ToolDone:
        await look()
        return ToolDone()

    async with bench.running({contracts.CALL_LLM: [model], contracts.EXECUTE_TOOLS: [tool]}) as run:
        await run.ended()
    assert seen == [Mark("model", 0), Mark("model", 1, 2, 30), Mark("tools", 1)]
