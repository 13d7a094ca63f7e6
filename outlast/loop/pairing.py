"""Every call of a transcript gets exactly one output, after it.

The pair goes by call id, not by position: an output that stands before its call moves behind it, of several outputs the
last one counts and takes the first one's place, an output without a call is left out, a call without an output was
interrupted. A second copy of a call is the same call.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import assert_never

from outlast.protocol.items import (
    CustomToolCall,
    CustomToolCallOutput,
    FunctionCall,
    FunctionCallOutput,
    Message,
    PreparedItem,
    Reasoning,
)

INTERRUPTED = "interrupted"

Call = FunctionCall | CustomToolCall
Output = FunctionCallOutput | CustomToolCallOutput


def pair(items: Sequence[PreparedItem]) -> list[PreparedItem]:
    """The items with calls and outputs paired; the rest stays where it is. Idempotent."""
    calls: dict[str, Call] = {}
    outputs: dict[str, Output] = {}
    for item in items:
        match item:
            case Message() | Reasoning():
                pass
            case FunctionCall() | CustomToolCall():
                calls.setdefault(item.call_id, item)
            case FunctionCallOutput() | CustomToolCallOutput():
                outputs[item.call_id] = item
            case _:
                assert_never(item)
    return list(_ordered(items, calls, outputs))


def _ordered(
    items: Sequence[PreparedItem], calls: Mapping[str, Call], outputs: Mapping[str, Output]
) -> Iterator[PreparedItem]:
    called: set[str] = set()
    answered: set[str] = set()
    early: set[str] = set()
    for item in items:
        match item:
            case Message() | Reasoning():
                yield item
            case FunctionCall() | CustomToolCall():
                if item.call_id in called:
                    continue
                called.add(item.call_id)
                yield item
                if item.call_id in early or item.call_id not in outputs:
                    answered.add(item.call_id)
                    yield _fit(item, outputs.get(item.call_id) or _interrupted(item))
            case FunctionCallOutput() | CustomToolCallOutput():
                if item.call_id not in called:
                    early.add(item.call_id)
                elif item.call_id not in answered:
                    answered.add(item.call_id)
                    yield _fit(calls[item.call_id], outputs[item.call_id])
            case _:
                assert_never(item)


def _fit(call: Call, given: Output) -> Output:
    """The output in the form its call asks for, without the id and status of the client's copy."""
    if isinstance(call, CustomToolCall):
        return CustomToolCallOutput(type="custom_tool_call_output", call_id=call.call_id, output=given.output)
    if isinstance(given, FunctionCallOutput) and given.id is None and given.status is None:
        return given
    return FunctionCallOutput(type="function_call_output", call_id=call.call_id, output=given.output)


def _interrupted(call: Call) -> FunctionCallOutput:
    return FunctionCallOutput(type="function_call_output", call_id=call.call_id, output=INTERRUPTED)
