"""Claims about approvals in respond mode: the response ends with its asks, the caller's next request continues the run.

The judge is the official client; the model plays a script, so that what it was told is known to the byte.
"""

import pytest
from openai import BadRequestError

from outlast import contracts
from tests.support.desk import LOOKUP, REFUND, World, answered, asks, dumped, kinds, user, verdict
from tests.support.scripted_model import call, say

POLICIES: list[tuple[object, list[str]]] = [
    (None, ["lookup", "note", "refund"]),
    ("always", ["lookup", "note", "refund"]),
    ("never", []),
    ({"never": {"tool_names": ["note", "lookup"]}}, ["refund"]),
    ({"never": {"read_only": True}}, ["note", "refund"]),
    ({"always": {"tool_names": ["refund"]}, "never": {"read_only": True}}, ["note", "refund"]),
    ({"always": {"read_only": True}, "never": {"read_only": False}}, ["lookup"]),
    ({"never": {"tool_names": ["refund"], "read_only": True}}, ["lookup", "note", "refund"]),
    ({"never": {}}, ["lookup", "note", "refund"]),
]


@pytest.mark.parametrize(("policy", "asking"), POLICIES)
async def test_every_form_of_require_approval_decides_who_asks(world: World, policy: object, asking: list[str]) -> None:
    """A tool matched by neither list asks; free ones run before, and nothing is shown of a call that waits."""
    case = world.case()
    case.play([case.calls(f"mcp__desk__{name}") for name in ("lookup", "note", "refund")], [say("done")])
    if policy is not None:
        case.tool["require_approval"] = policy
    response = await case.ask()
    free = [name for name in ("lookup", "note", "refund") if name not in asking]
    assert sorted(case.ran) == free
    output = dumped(response)
    assert [(item["type"], item.get("name")) for item in output[1:]] == (
        [("mcp_call", name) for name in free]
        + [("mcp_approval_request", name) for name in asking]
        + ([] if asking else [("message", None)])
    )
    assert response.status == "completed"


async def test_an_ask_shows_the_whole_call_after_the_models_own_text(world: World) -> None:
    """`mcp_approval_request` has exactly id, type, label, name and arguments as the model wrote them."""
    case = world.case()
    wild = '{"order": 0,  "why": "ä \\" big 12345678901234567890"}'
    case.play([say("let me refund that"), call(REFUND, wild), call(REFUND, {"order": case.order})])
    response = await case.ask()
    assert kinds(response) == ["mcp_list_tools", "message", "mcp_approval_request", "mcp_approval_request"]
    first, second = asks(response)
    assert dumped(response)[2] == {
        "id": first,
        "type": "mcp_approval_request",
        "server_label": "desk",
        "name": "refund",
        "arguments": wild,
    }
    assert first.startswith("mcpr_")
    assert first != second
    assert response.output_text == "let me refund that"
    assert case.script.asked == 1


async def test_an_approved_call_runs_in_the_parked_workflow_and_nothing_is_asked_twice(world: World) -> None:
    """One history holds the activities of both responses; the stored call is dispatched once, no list, no new call."""
    case = world.case()
    case.play([case.calls(REFUND)], [say("it is refunded")])
    first = await case.ask("refund it")
    (ask,) = asks(first)
    lists = world.desk.lists
    second = await case.decided(first, verdict(ask, True))
    output = dumped(second)
    assert output[0] == {
        "id": output[0]["id"],
        "type": "mcp_call",
        "status": "completed",
        "server_label": "desk",
        "name": "refund",
        "arguments": f'{{"order":{case.order}}}',
        "output": f"refunded {case.order}",
        "error": None,
        "approval_request_id": ask,
    }
    assert kinds(second) == ["mcp_call", "message"]
    assert second.output_text == "it is refunded"
    assert (second.status, second.previous_response_id) == ("completed", first.id)
    assert second.usage is not None
    assert second.usage.total_tokens == 15
    assert case.ran == ["refund"]
    assert world.desk.calls[-1].idempotency_key == ask
    assert (case.script.asked, world.desk.lists) == (2, lists)
    assert case.script.transcript() == [
        user("refund it"),
        *answered(ask, REFUND, f'{{"order":{case.order}}}', f"refunded {case.order}"),
    ]
    assert await world.activities(first.id, first.id) == ["CallLlm", "InterruptForApproval"]
    assert await world.activities(first.id, second.id) == ["ExecuteTools", "CallLlm"]
    handle = world.server.ports.client.get_workflow_handle(first.id)
    found = (await handle.describe()).typed_search_attributes
    assert found[contracts.RESPONSES_KEY] == [first.id, second.id]
    assert found[contracts.PENDING_KEY] == 0


async def test_free_siblings_run_first_and_are_not_run_again(world: World) -> None:
    """The lookup is done when the ask is shown, the continuation runs the refund only."""
    case = world.case()
    case.tool["require_approval"] = {"never": {"read_only": True}}
    case.play([case.calls(REFUND), case.calls(LOOKUP)], [say("done")])
    first = await case.ask()
    assert kinds(first) == ["mcp_list_tools", "mcp_call", "mcp_approval_request"]
    second = await case.decided(first, verdict(asks(first)[0], True))
    assert kinds(second) == ["mcp_call", "message"]
    assert case.ran == ["lookup", "refund"]


async def test_the_round_after_a_continuation_may_ask_again(world: World) -> None:
    """A chain of three: the same workflow serves all, `mcp_list_tools` is shown once, `input_items` tell the story."""
    case = world.case()
    case.play([case.calls(REFUND)], [case.calls("mcp__desk__note")], [say("both done")])
    first = await case.ask()
    second = await case.decided(first, verdict(asks(first)[0], True))
    assert kinds(second) == ["mcp_call", "mcp_approval_request"]
    third = await case.decided(second, verdict(asks(second)[0], True))
    assert (kinds(third), third.output_text) == (["mcp_call", "message"], "both done")
    assert case.ran == ["refund", "note"]
    assert await world.activities(first.id, third.id) == ["ExecuteTools", "CallLlm"]
    listed = [item.type async for item in case.client.responses.input_items.list(third.id, order="asc")]
    assert listed == [
        "message",
        "mcp_list_tools",
        "mcp_approval_request",
        "mcp_approval_response",
        "mcp_call",
        "mcp_approval_request",
        "mcp_approval_response",
    ]


async def test_what_is_sent_beside_a_decision_comes_after_it(world: World) -> None:
    """The model reads the call and its result, then the user's new text; in a stream the call comes first."""
    case = world.case()
    case.play([case.calls(REFUND)], [say("as you wish")])
    first = await case.ask("one")
    (ask,) = asks(first)
    events = await case.stream(
        [{"role": "user", "content": "and hurry"}, verdict(ask, True)], previous_response_id=first.id, tools=[]
    )
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert [event.type for event in events[:8]] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.mcp_call.in_progress",
        "response.mcp_call_arguments.delta",
        "response.mcp_call_arguments.done",
        "response.mcp_call.completed",
        "response.output_item.done",
    ]
    assert events[-1].type == "response.completed"
    assert kinds(events[-1].response) == ["mcp_call", "message"]
    assert case.script.transcript() == [
        user("one"),
        *answered(ask, REFUND, f'{{"order":{case.order}}}', f"refunded {case.order}"),
        user("and hurry"),
    ]


async def test_a_terminated_run_is_replaced_with_the_same_public_result(world: World) -> None:
    """The parked workflow is gone: the continuation runs in one of its own, under its own id."""
    case = world.case()
    case.play([case.calls(REFUND)], [say("done anyway")])
    first = await case.ask()
    await world.server.ports.client.get_workflow_handle(first.id).terminate()
    second = await case.decided(first, verdict(asks(first)[0], True))
    assert (kinds(second), second.output_text) == (["mcp_call", "message"], "done anyway")
    assert case.ran == ["refund"]
    assert await world.activities(second.id, second.id) == ["ExecuteTools", "CallLlm"]


async def test_a_denied_call_is_not_dispatched_and_the_model_is_told_why(world: World) -> None:
    """No `mcp_call`; the model reads `denied: <reason>` as the call's output, stored and chained alike."""
    case = world.case()
    case.play([case.calls(REFUND)], [say("then not")], [say("as I said")])
    first = await case.ask("refund")
    (ask,) = asks(first)
    second = await case.decided(first, verdict(ask, False, "too expensive"))
    assert (kinds(second), second.output_text) == (["message"], "then not")
    told = [user("refund"), *answered(ask, REFUND, f'{{"order":{case.order}}}', "denied: too expensive")]
    assert case.script.transcript() == told
    third = await case.ask("sure?", previous_response_id=second.id)
    assert third.output_text == "as I said"
    assert [item for item in case.script.transcript() if item.get("role") != "assistant"] == [*told, user("sure?")]
    assert case.ran == []


async def test_some_of_several_decided_run_and_the_rest_is_listed_again(world: World) -> None:
    """The model is not called until all are decided; ids stay; the newest response that lists an ask decides it."""
    case = world.case()
    case.play([case.calls(REFUND), case.calls("mcp__desk__note"), case.calls(LOOKUP)], [say("all done")])
    first = await case.ask()
    one, two, three = asks(first)
    second = await case.decided(first, verdict(two, True))
    assert (kinds(second), asks(second)) == (
        ["mcp_call", "mcp_approval_request", "mcp_approval_request"],
        [one, three],
    )
    assert second.usage is not None
    assert (case.ran, case.script.asked, second.usage.total_tokens) == (["note"], 1, 0)
    with pytest.raises(BadRequestError) as stale:
        await case.decided(first, verdict(one, True))
    assert (stale.value.code, stale.value.param) == ("approval_stale", "input")
    assert second.id in stale.value.message
    third = await case.decided(second, verdict(three, False))
    assert (kinds(third), asks(third), case.script.asked) == (["mcp_approval_request"], [one], 1)
    last = await case.decided(third, verdict(one, True))
    assert (kinds(last), last.output_text) == (["mcp_call", "message"], "all done")
    assert case.ran == ["note", "refund"]
    text = f'{{"order":{case.order}}}'
    assert sorted(map(str, case.script.transcript()[1:])) == sorted(
        map(
            str,
            [
                *answered(one, REFUND, text, f"refunded {case.order}"),
                *answered(two, "mcp__desk__note", text, f"noted {case.order}"),
                *answered(three, LOOKUP, text, "denied"),
            ],
        )
    )


async def test_the_callers_own_call_of_the_round_must_be_answered(world: World) -> None:
    """A mixed round: decisions without the function's output are refused, nothing is decided by that."""
    case = world.case()
    mine = {"type": "function", "name": "mine", "parameters": {"type": "object", "properties": {}}}
    case.play([case.calls(REFUND), call("mine")], [say("both")])
    first = await case.ask(tools=[case.tool, mine])
    assert kinds(first) == ["mcp_list_tools", "function_call", "mcp_approval_request"]
    (ask,) = asks(first)
    with pytest.raises(BadRequestError, match="No tool output found for function call") as refused:
        await case.decided(first, verdict(ask, True))
    assert refused.value.param == "input"
    assert (await world.approval(ask))["status"] == "pending"
    call_id = dumped(first)[1]["call_id"]
    output = {"type": "function_call_output", "call_id": call_id, "output": "mine is 3"}
    second = await case.decided(first, verdict(ask, True), output)
    assert (kinds(second), second.output_text) == (["mcp_call", "message"], "both")
    assert case.ran == ["refund"]
    outputs = {item["call_id"]: item["output"] for item in case.script.transcript() if "output" in item}
    assert outputs == {call_id: "mine is 3", ask: f"refunded {case.order}"}
