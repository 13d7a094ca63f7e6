"""The judges of `make demo` on outcomes that must not pass: exactly the check that does not hold fails."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from outlast.demo import story_judges as judges
from outlast.demo.desk import ORDERS
from outlast.demo.story_client import Frame
from outlast.demo.story_report import Report
from outlast.protocol import json
from outlast.protocol.json import JsonObject

WHOLE = "the client's stream, open through the kill: no gap, no repeat"
PAN = ORDERS[1043].item


def failed(judge: Callable[[Report], None]) -> list[str]:
    """The checks that were printed as failed; the exit code says the same."""
    lines: list[str] = []
    report = Report(lines.append)
    judge(report)
    found = [line.removeprefix("   FAILED  ") for line in lines if "FAILED" in line]
    assert report.exit_code == (1 if found else 0)
    return found


def response(text: str, *, ended: str = "completed", **call: object) -> JsonObject:
    """With one call and what was said of it."""
    usual = {"id": "mcp_1", "type": "mcp_call", "status": "completed", "error": None, "output": None}
    message = {"type": "message", "content": [{"type": "output_text", "text": text}]}
    output = [{**usual, "approval_request_id": "mcpr_1", **call}, message]
    return {"id": "resp_1", "status": ended, "output": output}


def frames(*numbers: int, word: str = "word") -> list[Frame]:
    """Words of a stream."""
    return [
        Frame(json.dumps_text(data), data)
        for data in ({"type": "response.output_text.delta", "sequence_number": n, "delta": f"{word} "} for n in numbers)
    ]


def lost(*, text: str = "outcome_unknown: lost", status: str = "failed") -> JsonObject:
    """A call that ended so."""
    error = {"type": "mcp_tool_execution_error", "content": [{"type": "text", "text": text}]}
    return {"status": status, "error": error}


SAID = "It may or may not have gone through."
REFUNDED = judges.KilledRefund(
    ledger=[{"order_id": 1042}],
    response=response(SAID, **lost()),
    pids=(1, 2),
    worked={1, 2},
    live=frames(0, 1, 2),
    replayed=frames(0, 1, 2),
)


@pytest.mark.parametrize(
    ("seen", "fails"),
    [
        (REFUNDED, []),
        (
            replace(REFUNDED, ledger=[*REFUNDED.ledger, *REFUNDED.ledger]),
            ["the money moved once: ledger lines of the order: 2"],
        ),
        (replace(REFUNDED, ledger=[]), ["the money moved once: ledger lines of the order: 0"]),
        (
            replace(REFUNDED, response=response(SAID)),
            ["the call is not claimed to have worked: mcp_1 completed, "],
        ),
        (
            replace(REFUNDED, response=response(SAID, **lost(status="completed"))),
            ["the call is not claimed to have worked: mcp_1 completed, outcome_unknown: lost"],
        ),
        (
            replace(REFUNDED, response=response(SAID, **lost(text="no such order"))),
            ["the call is not claimed to have worked: mcp_1 failed, no such order"],
        ),
        (replace(REFUNDED, response=response("Done.", **lost())), ["the model was told, and tells the user: 'Done.'"]),
        (
            replace(REFUNDED, response=response(SAID, ended="incomplete", **lost())),
            ["the response completed: resp_1 incomplete"],
        ),
        (
            replace(REFUNDED, worked={2}),
            ["one run, two workers (killed, successor): [2] in Temporal's history"],
        ),
        (replace(REFUNDED, live=frames(0, 2)), [f"{WHOLE}: events 0, 2, not equal to a replay of all 3"]),
        (replace(REFUNDED, live=frames(0, 1, 1, 2)), [f"{WHOLE}: events 0-1, 1-2, not equal to a replay of all 3"]),
        (replace(REFUNDED, live=[]), [f"{WHOLE}: events none, not equal to a replay of all 3"]),
        (replace(REFUNDED, live=frames(0, 1)), [f"{WHOLE}: events 0-1, not equal to a replay of all 3"]),
        (
            replace(REFUNDED, live=frames(0, 1, 2, word="other")),
            [f"{WHOLE}: events 0-2, not equal to a replay of all 3"],
        ),
        (
            replace(REFUNDED, live=frames(0, 2), replayed=frames(0, 2)),
            [f"{WHOLE}: events 0, 2, equal to a replay of all 2"],
        ),
    ],
)
def test_a_refund_that_went_wrong_fails_the_demo(seen: judges.KilledRefund, fails: list[str]) -> None:
    """Money once, nothing claimed, the user told, two workers, a whole stream."""
    assert failed(lambda report: judges.refund(report, seen)) == fails


FOUND = judges.KilledLookup(
    lookups=[{"idempotency_key": "a"}, {"idempotency_key": "a"}],
    order=ORDERS[1043],
    response=response(f"Found: {PAN}", output=PAN),
    pids=(1, 2),
    live=frames(0),
    replayed=frames(0),
)


def keyed(*keys: str | None) -> judges.KilledLookup:
    """A look-up dispatched with these keys."""
    return replace(FOUND, lookups=[{"idempotency_key": key} for key in keys])


@pytest.mark.parametrize(
    ("seen", "fails"),
    [
        (FOUND, []),
        (keyed("a", "b"), ["under one idempotency key: a, b"]),
        (keyed("a"), ["it was dispatched again: look-ups at the desk: 1"]),
        (keyed("a", "a", "a"), ["it was dispatched again: look-ups at the desk: 3"]),
        (keyed(None, None), ["under one idempotency key: None"]),
        (
            replace(FOUND, response=response(f"Found: {PAN}", output=PAN, status="failed")),
            [f"the result was used: {f'Found: {PAN}'!r}"],
        ),
        (replace(FOUND, response=response(f"Found: {PAN}")), [f"the result was used: {f'Found: {PAN}'!r}"]),
        (replace(FOUND, response=response("Nothing.", output=PAN)), ["the result was used: 'Nothing.'"]),
        (
            replace(FOUND, response=response(PAN, output=PAN, ended="failed")),
            ["the response completed: resp_1 failed"],
        ),
        (replace(FOUND, live=frames(1)), [f"{WHOLE}: events 1, not equal to a replay of all 1"]),
    ],
)
def test_a_lookup_that_went_wrong_fails_the_demo(seen: judges.KilledLookup, fails: list[str]) -> None:
    """Dispatched exactly twice under one key, and what came back is what the user reads."""
    assert failed(lambda report: judges.lookup(report, seen)) == fails


WAITED = judges.Waited(
    before=[],
    after=[{"order_id": 1044}],
    approval={"id": "mcpr_1"},
    said="mcpr_1: approved by local",
    response=response("Done."),
)


@pytest.mark.parametrize(
    ("seen", "fails"),
    [
        (WAITED, []),
        (replace(WAITED, before=WAITED.after), ["no money moved before the decision: ledger lines: 1"]),
        (replace(WAITED, said="no answer"), ["the operator's command decided it: no answer"]),
        (replace(WAITED, after=[]), ["then the refund ran, once: ledger lines: 0"]),
        (replace(WAITED, after=[*WAITED.after, *WAITED.after]), ["then the refund ran, once: ledger lines: 2"]),
        (replace(WAITED, approval={"id": "mcpr_2"}), ["the call names its approval: mcp_1 completed, mcpr_1"]),
        (
            replace(WAITED, response=response("Done.", status="failed")),
            ["the call names its approval: mcp_1 failed, mcpr_1"],
        ),
        (replace(WAITED, response=response("", ended="cancelled")), ["the response completed: resp_1 cancelled"]),
    ],
)
def test_an_approval_that_went_wrong_fails_the_demo(seen: judges.Waited, fails: list[str]) -> None:
    """Nothing before the decision, once after it, under the ask that was decided."""
    assert failed(lambda report: judges.approval(report, seen)) == fails


CUT = judges.Cut(
    before=frames(0, 1),
    status="in_progress",
    after=frames(2),
    replayed=frames(0, 1, 2),
    response=response("word word word "),
)


@pytest.mark.parametrize(
    ("seen", "fails"),
    [
        (CUT, []),
        (replace(CUT, status="completed"), ["the cut was in the middle: status when re-attached: completed"]),
        (
            replace(CUT, after=frames(1, 2)),
            [
                "both parts together: no gap, no repeat: events 0-1, 1-2, not equal to a replay of all 3",
                "the words read are the final text: 4 words",
            ],
        ),
        (replace(CUT, response=response("word word ")), ["the words read are the final text: 3 words"]),
        (
            replace(CUT, response=response("word word word ", ended="in_progress")),
            ["the response completed: resp_1 in_progress"],
        ),
    ],
)
def test_a_cut_stream_that_went_wrong_fails_the_demo(seen: judges.Cut, fails: list[str]) -> None:
    """Cut while it ran, and both parts are the whole."""
    assert failed(lambda report: judges.cut(report, seen)) == fails


def test_a_broken_story_and_an_empty_one_fail_the_demo() -> None:
    """A failure outside of checks counts, with the logs' last lines; no check at all proves nothing."""
    lines: list[str] = []
    report = Report(lines.append)
    assert report.exit_code == 1
    report.broke("TimeoutError: ", ["worker-1.log: it said this"])
    assert lines == ["   FAILED  TimeoutError: ", "     | worker-1.log: it said this"]
    assert report.exit_code == 1
