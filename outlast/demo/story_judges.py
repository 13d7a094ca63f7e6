"""What each chapter must have led to, read back from the outside: from the desk's files, the API and Temporal."""

from collections.abc import Sequence
from dataclasses import dataclass

from outlast.demo.desk import Order
from outlast.demo.story_client import Frame
from outlast.demo.story_report import Report
from outlast.protocol.json import JsonObject


@dataclass(frozen=True, slots=True)
class KilledRefund:
    """`pids`: the killed worker and its successor; `worked`: who completed steps of the run, says Temporal."""

    ledger: Sequence[JsonObject]
    response: JsonObject
    pids: tuple[int, int]
    worked: set[int]
    live: Sequence[Frame]
    replayed: Sequence[Frame]


@dataclass(frozen=True, slots=True)
class KilledLookup:
    """`lookups`: the desk's own lines, one a dispatch."""

    lookups: Sequence[JsonObject]
    order: Order
    response: JsonObject
    pids: tuple[int, int]
    live: Sequence[Frame]
    replayed: Sequence[Frame]


@dataclass(frozen=True, slots=True)
class Waited:
    """The ledger before and after the decision, the ask, what the deciding command said, the response."""

    before: Sequence[JsonObject]
    after: Sequence[JsonObject]
    approval: JsonObject
    said: str
    response: JsonObject


@dataclass(frozen=True, slots=True)
class Cut:
    """Both parts of a stream, the response's status between them, its events and itself afterwards."""

    before: Sequence[Frame]
    status: str
    after: Sequence[Frame]
    replayed: Sequence[Frame]
    response: JsonObject


def refund(report: Report, seen: KilledRefund) -> None:
    """At most once, and nobody claims more than is known."""
    call, said = _call(seen.response), output_text(seen.response)
    failure = " ".join(part["text"] for part in (call["error"] or {}).get("content", ()))
    report.check("the money moved once: ledger lines of the order", len(seen.ledger) == 1, len(seen.ledger))
    report.check(
        "the call is not claimed to have worked",
        call["status"] == "failed" and "outcome_unknown" in failure,
        f"{call['id']} {call['status']}, {failure}",
    )
    report.check("the model was told, and tells the user", "may or may not" in said, repr(said))
    _completed(report, seen.response)
    report.check(
        "one run, two workers (killed, successor)",
        seen.worked == set(seen.pids),
        f"{sorted(seen.worked)} in Temporal's history",
    )
    _whole(report, "the client's stream, open through the kill", seen.live, seen.replayed)


def lookup(report: Report, seen: KilledLookup) -> None:
    """A call that may be repeated is, under the same key."""
    keys = {str(line["idempotency_key"]) for line in seen.lookups}
    call, said = _call(seen.response), output_text(seen.response)
    report.check("it was dispatched again: look-ups at the desk", len(seen.lookups) == 2, len(seen.lookups))
    report.check("under one idempotency key", len(keys) == 1 and keys != {"None"}, ", ".join(sorted(keys)))
    report.check(
        "the result was used",
        call["status"] == "completed" and seen.order.item in str(call["output"]) and seen.order.item in said,
        repr(said),
    )
    _completed(report, seen.response)
    _whole(report, "the client's stream, open through the kill", seen.live, seen.replayed)


def approval(report: Report, seen: Waited) -> None:
    """Nothing runs before the decision; the open response goes on after it."""
    call = _call(seen.response)
    report.check("no money moved before the decision: ledger lines", not seen.before, len(seen.before))
    report.check("the operator's command decided it", ": approved " in seen.said, seen.said)
    report.check("then the refund ran, once: ledger lines", len(seen.after) == 1, len(seen.after))
    report.check(
        "the call names its approval",
        (call["status"], call["approval_request_id"]) == ("completed", seen.approval["id"]),
        f"{call['id']} {call['status']}, {call['approval_request_id']}",
    )
    _completed(report, seen.response)


def cut(report: Report, seen: Cut) -> None:
    """The two parts are the whole, byte for byte."""
    told = text([*seen.before, *seen.after])
    report.check("the cut was in the middle: status when re-attached", seen.status == "in_progress", seen.status)
    _whole(report, "both parts together", [*seen.before, *seen.after], seen.replayed)
    report.check("the words read are the final text", told == output_text(seen.response), f"{len(told.split())} words")
    _completed(report, seen.response)


def is_text(frame: Frame) -> bool:
    """Whether it brings words."""
    return frame.type == "response.output_text.delta"


def text(frames: Sequence[Frame]) -> str:
    """The words of some events."""
    return "".join(frame.data["delta"] for frame in frames if is_text(frame))


def output_text(response: JsonObject) -> str:
    """The text of a response's messages."""
    messages = [item for item in response["output"] if item["type"] == "message"]
    return "".join(part["text"] for message in messages for part in message["content"])


def _call(response: JsonObject) -> JsonObject:
    """Its last tool call."""
    calls: list[JsonObject] = [item for item in response["output"] if item["type"] == "mcp_call"]
    return calls[-1]


def _completed(report: Report, response: JsonObject) -> None:
    report.check("the response completed", response["status"] == "completed", f"{response['id']} {response['status']}")


def _whole(report: Report, name: str, read: Sequence[Frame], replayed: Sequence[Frame]) -> None:
    numbers = [frame.number for frame in read]
    same = [frame.raw for frame in read] == [frame.raw for frame in replayed]
    report.check(
        f"{name}: no gap, no repeat",
        bool(numbers) and numbers == list(range(len(numbers))) and same,
        f"events {_ranges(numbers)}, {'equal' if same else 'not equal'} to a replay of all {len(replayed)}",
    )


def _ranges(numbers: Sequence[int]) -> str:
    """`0-7, 9`: a gap or a repeat is easy to see."""
    found: list[list[int]] = []
    for number in numbers:
        if found and number == found[-1][-1] + 1:
            found[-1] = [found[-1][0], number]
        else:
            found.append([number])
    return ", ".join("-".join(map(str, each)) for each in found) or "none"
