"""How a gateway call ends: its events, and what is kept beside its item. Pure functions of `ExecuteTools`."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import assert_never

from activities import base
from outlast.loop.calls import HostedCall
from outlast.mcp.base import ImageBlock, ToolFailed, ToolOk, ToolOutcome, ToolUnknown
from outlast.protocol import building, hosted
from outlast.protocol.events import WireEvent
from outlast.protocol.hosted_results import Answer, Image
from outlast.protocol.json import JsonObject
from outlast.store.base import CallRow

_UNKNOWN = (
    "outcome_unknown: the call was dispatched and its result was lost ({reason}). "
    "It may or may not have happened. Do not repeat it before checking."
)


@dataclass(frozen=True, slots=True)
class End:
    """`private`: beside the item; `images`: to be kept as blobs."""

    events: Sequence[WireEvent]
    private: JsonObject = field(default_factory=dict)
    images: Sequence[ImageBlock] = ()


def execution_error(text: str) -> ToolFailed:
    """A call that failed before or outside its server."""
    return ToolFailed(error=building.tool_error(text), text=text)


def unknown(reason: str) -> ToolFailed:
    """An unsafe call that was dispatched and never answered."""
    return execution_error(_UNKNOWN.format(reason=reason))


def end(row: CallRow, outcome: ToolOutcome, include: Collection[str]) -> End:
    """The end of a call. `include`: the request's."""
    if row.hosted is not None:
        return _hosted(HostedCall(**row.hosted), outcome, include)
    item = base.call_item(row)
    match outcome:
        case ToolOk(text, images):
            return End(building.finish_mcp_call(item, output=text), images=images)
        case ToolFailed(error, _):
            return End(building.finish_mcp_call(item, error=error))
        case ToolUnknown(reason):
            return End(building.finish_mcp_call(item, error=unknown(reason).error))
        case _:
            assert_never(outcome)


def _hosted(call: HostedCall, outcome: ToolOutcome, include: Collection[str]) -> End:
    match outcome:
        case ToolOk(text, images, structured):
            answer = Answer(text, structured, tuple(Image(each.data, each.mime_type) for each in images))
            found = hosted.finished(call.item, call.arguments, answer)
            if found.failed is not None:
                return End(hosted.fail(call.item, found.failed), call.told(found.failed))
            kept = [ImageBlock(image.data, image.mime_type) for image in found.images]
            return End(hosted.succeed(call.item, found.fields, include), call.told(found.text), kept)
        case ToolFailed(_, text):
            return End(hosted.fail(call.item, text), call.told(text))
        case ToolUnknown(reason):
            text = unknown(reason).text
            return End(hosted.fail(call.item, text), call.told(text))
        case _:
            assert_never(outcome)
