"""Every call of a transcript gets exactly one output, after it.

The pair goes by call id, not by position: an output that stands before its call moves behind it, of several outputs the
last one counts and takes the first one's place, an output without a call is left out, a call without an output was
interrupted. A second copy of a call is the same call.

Calls of native kinds (a shell call, a computer call) are paired alike within their kind; one without an output is left
out, since its output has a form that nobody but the client can fill.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import assert_never

from outlast.protocol import native
from outlast.protocol.items import (
    Compaction,
    CustomToolCall,
    CustomToolCallOutput,
    FunctionCall,
    FunctionCallOutput,
    Message,
    NativeItem,
    PreparedItem,
    Reasoning,
)

INTERRUPTED = "interrupted"

Call = FunctionCall | CustomToolCall
Output = FunctionCallOutput | CustomToolCallOutput
# The call id; with the kind of call where kinds have ids of their own.
_NativeKey = tuple[str, str]
_Key = str | _NativeKey


def native_call(item: NativeItem) -> _NativeKey | None:
    """What an output of this call must name; None for an item that needs none."""
    call_id = (item.model_extra or {}).get("call_id")
    return (item.type, call_id) if item.type in native.CALLS and isinstance(call_id, str) else None


def native_answer(item: NativeItem) -> _NativeKey | None:
    """The call this output answers; None for an item that answers none."""
    kind = native.ANSWERS.get(item.type)
    # The oldest shell tool's output has its call's id for its own.
    call_id = item.id if item.type == "local_shell_call_output" else (item.model_extra or {}).get("call_id")
    return (kind, call_id) if kind is not None and isinstance(call_id, str) else None


def pair(items: Sequence[PreparedItem]) -> list[PreparedItem]:
    """The items with calls and outputs paired; the rest stays where it is. Idempotent."""
    calls: dict[_Key, Call | NativeItem] = {}
    outputs: dict[_Key, Output | NativeItem] = {}
    for item in items:
        match item:
            case Message() | Reasoning() | Compaction():
                pass
            case FunctionCall() | CustomToolCall():
                calls.setdefault(item.call_id, item)
            case FunctionCallOutput() | CustomToolCallOutput():
                outputs[item.call_id] = item
            case NativeItem():
                if (call := native_call(item)) is not None:
                    calls.setdefault(call, item)
                elif (answer := native_answer(item)) is not None:
                    outputs[answer] = item
            case _:
                assert_never(item)
    return list(_ordered(items, calls, outputs))


def _ordered(
    items: Sequence[PreparedItem],
    calls: Mapping[_Key, Call | NativeItem],
    outputs: Mapping[_Key, Output | NativeItem],
) -> Iterator[PreparedItem]:
    called: set[_Key] = set()
    answered: set[_Key] = set()
    early: set[_Key] = set()
    for item in items:
        if isinstance(item, Message):  # most are
            yield item
            continue
        call, answer = _keys(item)
        if call is not None:
            if call in called or (isinstance(item, NativeItem) and call not in outputs):
                continue
            called.add(call)
            yield item
            if call in early or call not in outputs:
                answered.add(call)
                yield _fit(item, outputs.get(call))
        elif answer is not None:
            if answer not in called:
                early.add(answer)
            elif answer not in answered:
                answered.add(answer)
                yield _fit(calls[answer], outputs[answer])
        else:
            yield item


def _keys(item: PreparedItem) -> tuple[_Key | None, _Key | None]:
    """Which call an item is, which it answers."""
    match item:
        case Message() | Reasoning() | Compaction():
            return None, None
        case FunctionCall() | CustomToolCall():
            return item.call_id, None
        case FunctionCallOutput() | CustomToolCallOutput():
            return None, item.call_id
        case NativeItem():
            return native_call(item), native_answer(item)
        case _:
            assert_never(item)


def _fit(call: PreparedItem, given: Output | NativeItem | None) -> PreparedItem:
    """The output in the form its call asks for, without the id and status of the client's copy. None: interrupted."""
    if isinstance(given, NativeItem):
        return given
    assert isinstance(call, FunctionCall | CustomToolCall)  # a native call has a native output
    caller: dict[str, object] = {} if given is None else _caller(given)
    said = INTERRUPTED if given is None else given.output
    if isinstance(call, CustomToolCall):
        return CustomToolCallOutput(type="custom_tool_call_output", call_id=call.call_id, output=said, **caller)
    if isinstance(given, FunctionCallOutput) and given.model_fields_set <= _BARE:
        return given
    return FunctionCallOutput(type="function_call_output", call_id=call.call_id, output=said, **caller)


_BARE = frozenset({"type", "call_id", "output"})


def _caller(given: Output) -> dict[str, object]:
    """Which program made the call, where one did: a server that runs programs wants it back."""
    caller = (given.model_extra or {}).get("caller")
    return {} if caller is None else {"caller": caller}
