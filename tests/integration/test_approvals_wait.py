"""Claims about approvals in wait mode: the response stays open until somebody decides, by whichever door."""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from openai import BadRequestError
from openai.types.responses import Response
from temporalio.client import Client, WorkflowUpdateFailedError

from outlast import contracts
from outlast.devserver import find_program
from tests.support.desk import (
    LOOKUP,
    REFUND,
    WAIT,
    Case,
    World,
    answered,
    asks,
    dumped,
    kinds,
    until,
    user,
    verdict,
)
from tests.support.scripted_model import call, say

MINE = {"type": "function", "name": "mine", "parameters": {"type": "object", "properties": {}}}


def refund(world: World) -> Case:
    """A conversation whose first round refunds."""
    case = world.case()
    case.play([case.calls(REFUND)], [say("it is done")])
    return case


async def test_waiting_needs_a_caller_who_can_wait(world: World) -> None:
    """Plain JSON is refused before anything runs."""
    case = refund(world)
    with pytest.raises(BadRequestError) as refused:
        await case.ask(extra_body=WAIT)
    assert "background" in refused.value.message
    assert refused.value.param == "outlast.approval_mode"
    assert case.script.asked == 0


async def test_the_ask_is_shown_beside_the_response_and_the_same_response_goes_on(world: World) -> None:
    """A stream: no ask item, no terminal while it waits; after the approval the call runs in place."""
    case = refund(world)
    stream = await case.streamed("refund", extra_body=WAIT)
    events = []
    async for event in stream:
        events.append(event)
        if event.type == "response.output_item.done" and event.item.type == "mcp_list_tools":
            break
    response: Response = events[0].response
    (ask,) = await case.open_asks(response)
    shown = json.loads((await case.client.responses.retrieve(response.id)).to_json())
    assert (shown["status"], [item["type"] for item in shown["output"]]) == ("in_progress", ["mcp_list_tools"])
    assert shown["outlast"]["pending_approvals"] == [await world.approval(ask)]
    assert (await world.approval(ask))["mode"] == "wait"
    decided = await world.decide(ask, True)
    assert (decided.status_code, decided.json()["status"]) == (200, "approved")
    assert "note" not in decided.json()
    events += [event async for event in stream]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    final = events[-1].response
    assert (events[-1].type, kinds(final)) == ("response.completed", ["mcp_list_tools", "mcp_call", "message"])
    assert dumped(final)[1]["approval_request_id"] == ask
    assert "outlast" not in final.to_dict() or not final.to_dict()["outlast"].get("pending_approvals")
    assert case.ran == ["refund"]
    assert case.script.transcript() == [
        user("refund"),
        *answered(ask, REFUND, f'{{"order":{case.order}}}', f"refunded {case.order}"),
    ]
    assert await world.activities(response.id, response.id) == [
        "CallLlm",
        "InterruptForApproval",
        "ExecuteTools",
        "CallLlm",
    ]


async def test_a_denial_lets_the_same_response_go_on_without_the_call(world: World) -> None:
    """No `mcp_call`; the model is told the reason, in this round and by a later turn of the chain."""
    case = refund(world)
    case.play([say("still not")])
    response = await case.start("refund")
    (ask,) = await case.open_asks(response)
    await world.decide(ask, False, "too much")
    final = await case.ended(response)
    assert (final.status, kinds(final)) == ("completed", ["mcp_list_tools", "message"])
    told = [user("refund"), *answered(ask, REFUND, f'{{"order":{case.order}}}', "denied: too much")]
    assert case.script.transcript() == told
    await case.ask("and now?", previous_response_id=final.id)
    assert case.script.transcript()[:3] == told
    assert case.ran == []


async def test_every_ask_of_the_round_is_waited_for(world: World) -> None:
    """Free siblings ran before; one approved and one denied end in the model's order, after the last decision."""
    case = world.case()
    case.tool["require_approval"] = {"never": {"read_only": True}}
    case.play([case.calls(REFUND), case.calls(LOOKUP), case.calls("mcp__desk__note")], [say("done")])
    response = await case.start()
    one, two = await case.open_asks(response, 2)
    assert case.ran == ["lookup"]
    await world.decide(two, True)
    waiting = await case.client.responses.retrieve(response.id)
    assert (waiting.status, case.ran) == ("in_progress", ["lookup"])
    await world.decide(one, False)
    final = await case.ended(response)
    assert kinds(final) == ["mcp_list_tools", "mcp_call", "mcp_call", "message"]
    assert case.ran == ["lookup", "note"]
    outputs = {item["call_id"]: item["output"] for item in case.script.transcript() if "output" in item}
    assert outputs == {
        dumped(final)[1]["id"]: f"found {case.order}",
        one: "denied",
        two: f"noted {case.order}",
    }


async def by_update(world: World, response: str, ask: str, approve: bool) -> None:
    """Temporal's update, as its UI sends it."""
    handle = world.server.ports.client.get_workflow_handle(response)
    given = {"approval_id": ask, "approve": approve}
    found = await handle.execute_update(contracts.UPDATE_DECIDE, given, result_type=contracts.Verdict)
    assert found == contracts.Verdict(ask, "approved" if approve else "denied", "temporal-update", True)


async def by_signal(world: World, response: str, ask: str, approve: bool) -> None:
    """The signal of the same name."""
    handle = world.server.ports.client.get_workflow_handle(response)
    await handle.signal(contracts.SIGNAL_DECIDE, {"approval_id": ask, "approve": approve})


async def by_command(world: World, response: str, ask: str, approve: bool) -> None:
    """`outlast approvals approve ID`, as a process."""
    program = Path(sys.executable).with_name("outlast")
    verb = "approve" if approve else "deny"
    text = await run(str(program), "approvals", verb, ask, "--url", world.server.url)
    assert f"{ask}: {'approved' if approve else 'denied'} by local" in text


async def by_temporals_command(world: World, response: str, ask: str, approve: bool) -> None:
    """`temporal workflow update execute`."""
    given = json.dumps({"approval_id": ask, "approve": approve})
    client: Client = world.server.ports.client
    address = world.server.ports.settings.temporal_address
    named = ("--workflow-id", response, "--address", address, "--namespace", client.namespace)
    await run(str(find_program()), "workflow", "update", "execute", "--name", "decide", "--input", given, *named)


async def run(*command: str) -> str:
    """A program's output; it must succeed."""
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    output, _ = await process.communicate()
    assert process.returncode == 0, output.decode()
    return output.decode()


Door = Callable[[World, str, str, bool], Awaitable[None]]
DOORS: list[tuple[Door, str, str]] = [
    (by_update, "temporal", "temporal-update"),
    (by_signal, "temporal", "temporal-signal"),
    (by_command, "local", "cli"),
    (by_temporals_command, "temporal", "temporal-update"),
]


@pytest.mark.parametrize(("door", "who", "how"), DOORS)
async def test_every_door_decides(world: World, door: Door, who: str, how: str) -> None:
    """The response goes on, and the row says who decided and how."""
    case = refund(world)
    response = await case.start()
    (ask,) = await case.open_asks(response)
    await door(world, response.id, ask, True)
    final = await case.ended(response)
    assert (final.status, kinds(final)) == ("completed", ["mcp_list_tools", "mcp_call", "message"])
    assert case.ran == ["refund"]
    row = await world.approval(ask)
    assert (row["status"], row["decided_by"], row["decided_how"]) == ("approved", who, how)


async def test_temporal_refuses_a_decision_when_nothing_is_open(world: World) -> None:
    """The update's validator says so; nothing enters the history."""
    case = refund(world)
    response = await case.start()
    (ask,) = await case.open_asks(response)
    await world.decide(ask, False)
    await case.ended(response)
    case = refund(world)
    parked = await case.ask()
    (asked,) = [item.id for item in parked.output if item.type == "mcp_approval_request"]
    handle = world.server.ports.client.get_workflow_handle(parked.id)
    found = await handle.execute_update(
        contracts.UPDATE_DECIDE, contracts.Decision("mcpr_nobody", True), result_type=contracts.Verdict
    )
    assert found == contracts.Verdict("mcpr_nobody")
    # A decision on a parked ask is stored; the run stays parked until the caller continues.
    await by_update(world, parked.id, asked, True)
    assert case.ran == []
    second = await case.ask([verdict(asked, True)], previous_response_id=parked.id)
    assert (kinds(second), case.ran) == (["mcp_call", "message"], ["refund"])


async def test_a_closed_gate_refuses_updates(world: World) -> None:
    """While the model is asked, no approval is open."""
    case = world.case([say("hello")])
    case.script.gate.clear()
    response = await case.start()

    async def asked() -> bool:
        return case.script.asked == 1

    await until(asked)
    handle = world.server.ports.client.get_workflow_handle(response.id)
    with pytest.raises(WorkflowUpdateFailedError):
        await handle.execute_update(contracts.UPDATE_DECIDE, contracts.Decision("mcpr_nobody", True))
    case.script.gate.set()
    assert (await case.ended(response)).status == "completed"


async def test_a_waiting_response_cannot_be_continued(world: World) -> None:
    """400 naming the approval, by chain and by a decision in a request."""
    case = refund(world)
    response = await case.start()
    (ask,) = await case.open_asks(response)
    with pytest.raises(BadRequestError) as chained:
        await case.ask("and?", previous_response_id=response.id)
    assert ask in chained.value.message
    assert chained.value.param == "previous_response_id"
    with pytest.raises(BadRequestError) as stateless:
        await case.ask([{"role": "user", "content": "x"}, verdict(ask, True)])
    assert f"POST /v1/approvals/{ask}" in stateless.value.message
    await world.decide(ask, True)
    assert (await case.ended(response)).status == "completed"


async def test_cancelling_withdraws_the_ask(world: World) -> None:
    """A later decision is refused, the tool does not run, the workflow ends."""
    case = refund(world)
    response = await case.start()
    (ask,) = await case.open_asks(response)
    cancelled = await case.client.responses.cancel(response.id)
    assert cancelled.status == "cancelled"
    assert (await world.approval(ask))["status"] == "withdrawn"
    refused = await world.decide(ask, True)
    assert refused.status_code == 400
    assert "withdrawn" in refused.json()["error"]["message"]

    async def closed() -> bool:
        handle = world.server.ports.client.get_workflow_handle(response.id)
        return (await handle.describe()).close_time is not None

    await until(closed)
    assert case.ran == []


async def test_the_callers_own_calls_are_handed_back_after_the_decisions(world: World) -> None:
    """A mixed round: the gateway's call runs, then the response ends with the function call for the caller."""
    case = world.case()
    case.play([case.calls(REFUND), call("mine")], [say("both")])
    response = await case.start(tools=[case.tool, MINE])
    (ask,) = await case.open_asks(response)
    await world.decide(ask, True)
    final = await case.ended(response)
    assert (final.status, sorted(kinds(final))) == ("completed", ["function_call", "mcp_call", "mcp_list_tools"])
    assert (case.ran, case.script.asked) == (["refund"], 1)
    (mine,) = [item.call_id for item in final.output if item.type == "function_call"]
    output = {"type": "function_call_output", "call_id": mine, "output": "3"}
    second = await case.ask([output], previous_response_id=final.id)
    assert (kinds(second), case.ran) == (["message"], ["refund"])
    outputs = {item["call_id"]: item["output"] for item in case.script.transcript() if "output" in item}
    assert outputs == {mine: "3", ask: f"refunded {case.order}"}


async def test_a_waiting_continuation_runs_what_was_approved_and_waits_for_the_next_ask(world: World) -> None:
    """The parked workflow serves it; its own new ask holds it up and is no output item."""
    case = world.case()
    case.play([case.calls(REFUND)], [case.calls("mcp__desk__note")], [say("both")])
    first = await case.ask()
    (ask,) = asks(first)
    second = await case.start([verdict(ask, True)], previous_response_id=first.id)
    (waiting,) = await case.open_asks(second)
    assert case.ran == ["refund"]
    await world.decide(waiting, True)
    final = await case.ended(second)
    assert (final.status, kinds(final), case.ran) == (
        "completed",
        ["mcp_call", "mcp_call", "message"],
        ["refund", "note"],
    )
    assert [item.get("approval_request_id") for item in dumped(final)[:2]] == [ask, waiting]
    assert len(await world.activities(first.id, second.id)) == 5


async def test_a_waiting_continuation_that_leaves_asks_open_lists_them_again(world: World) -> None:
    """They stay what the caller was shown: items to answer, under the same ids; no model round before that."""
    case = world.case()
    case.play([case.calls(REFUND), case.calls("mcp__desk__note")], [say("done")])
    first = await case.ask()
    one, two = asks(first)
    second = await case.ended(await case.start([verdict(one, True)], previous_response_id=first.id))
    assert (second.status, kinds(second), asks(second)) == ("completed", ["mcp_call", "mcp_approval_request"], [two])
    assert (case.ran, case.script.asked) == (["refund"], 1)
    third = await case.ended(await case.start([verdict(two, False)], previous_response_id=second.id))
    assert (kinds(third), case.ran) == (["message"], ["refund"])
