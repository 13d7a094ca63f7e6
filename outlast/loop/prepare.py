"""The one normalisation: from stored and sent items to the transcript a model gets (behaviour §2, §2.1, §3).

Used in every round, on resume too; a stored chain and a client that sends the same items back give the same transcript.

1. Gateway calls become a call and its output. Their call id is the approval's id, else the item's own.
2. Every call has exactly one output, after it; the last output given for a call wins. What has none was interrupted.
3. Control items are consumed: list items leave their label, an ask leaves its call, run or denied, or nothing. The call
   stands where the model made it, at the ask, so that what the caller sent beside its decision comes after it.
4. Nothing is deduplicated by content. A second copy of a call (chain and replay) is the same call.
5. What comes out is a fixed point: preparing it again changes nothing.
6. Items only a Responses API knows go to a server that speaks it as they are. To another one, and if nobody knows their
   type, they are an answered call, a text, or nothing.

`prepare` never refuses; `validate` does, before anything happened.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, assert_never

from outlast.loop import pairing, reasoning
from outlast.loop.naming import internal_name, safe_name
from outlast.protocol import hosted, json, native
from outlast.protocol.items import (
    Compaction,
    CompactionTrigger,
    CustomToolCall,
    CustomToolCallOutput,
    FunctionCall,
    FunctionCallOutput,
    Item,
    ItemReference,
    McpApprovalRequest,
    McpApprovalResponse,
    McpCall,
    McpListTools,
    Message,
    NativeItem,
    PreparedItem,
    Reasoning,
    UnknownItem,
)
from outlast.protocol.json import JsonObject

_Marked = Message | FunctionCall | CustomToolCall
_SAID = frozenset(Message.model_fields)
# What a model server needs of them.
_BARE: Mapping[type, frozenset[str]] = {
    Message: frozenset({"type", "role", "content"}),
    FunctionCall: frozenset({"type", "call_id", "name", "arguments"}),
    CustomToolCall: frozenset({"type", "call_id", "name", "input"}),
}
_ORIGIN = ("namespace", "caller", "async")
_NO_IMAGES: Mapping[str, Sequence[str]] = {}
# (name, arguments, output) of a call as the model made it; output None: it was interrupted.
Ran = tuple[str, str, str | None]
_NO_CALLS: Mapping[str, Ran] = {}
NO_VISION = "[image left out: this model does not read images]"


class Reads(Protocol):
    """What the model server can read; the capabilities of an upstream are one."""

    @property
    def images(self) -> bool:
        """Image parts may stay."""
        ...

    @property
    def encrypted_reasoning(self) -> bool:
        """An OpenAI server: encrypted reasoning is its own."""
        ...

    @property
    def native(self) -> bool:
        """It speaks the Responses API itself: tools and items of its other types go to it as they came."""
        ...


@dataclass(frozen=True, slots=True)
class Prepared:
    """`labels`: of the list items, first-seen order, each once: these servers' lists were shown in the chain."""

    transcript: tuple[PreparedItem, ...]
    labels: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Facts:
    """What has to be known of the whole list before any item can be placed.

    `calls`: call ids of calls that stand in the list as such. `gateway`: call ids of calls that were ours, which no
    client output answers. `asks`: ids of the asks in the list. `decisions`: by approval id, the first. `ran`: by
    approval id, the call it became, the last.
    """

    calls: frozenset[str]
    gateway: frozenset[str]
    asks: frozenset[str]
    decisions: dict[str, McpApprovalResponse]
    ran: dict[str, McpCall]
    labels: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Kept:
    """What is known of calls besides their items, see `prepare`."""

    images: Mapping[str, Sequence[str]]
    ran: Mapping[str, Ran]


def prepare(
    items: Sequence[Item],
    *,
    upstream: Reads,
    images: Mapping[str, Sequence[str]] = _NO_IMAGES,
    ran: Mapping[str, Ran] = _NO_CALLS,
) -> Prepared:
    """The transcript of `items`, oldest first. Pure and idempotent. `images`: data URLs by id of the gateway call that
    returned them; `ran`: what hosted calls that ran here were to the model, by id.

    Raises: ValueError for an item that must not come this far (an unresolved reference, compaction).
    """
    facts = _gather(items)
    paired = pairing.pair(list(_placed(items, facts, _Kept(images, ran), upstream)))
    seen = paired if upstream.images else [_without_images(item) for item in paired]
    return Prepared(transcript=reasoning.replay(seen, encrypted=upstream.encrypted_reasoning), labels=facts.labels)


def _gather(items: Sequence[Item]) -> _Facts:
    calls: set[str] = set()
    gateway: set[str] = set()
    decisions: dict[str, McpApprovalResponse] = {}
    ran: dict[str, McpCall] = {}
    asks: set[str] = set()
    labels: dict[str, None] = {}
    for item in items:
        match item:
            case Message() | Reasoning():  # first, because most items are: a failed class pattern costs half a µs
                pass
            case FunctionCall() | CustomToolCall():
                calls.add(item.call_id)
            case McpCall():
                gateway.update(filter(None, (item.approval_request_id, item.id)))
                if item.approval_request_id is not None:
                    ran[item.approval_request_id] = item
            case McpApprovalRequest():
                gateway.add(item.id)
                asks.add(item.id)
            case McpApprovalResponse():
                decisions.setdefault(item.approval_request_id, item)
            case McpListTools():
                labels.setdefault(item.server_label)
            case _:
                pass
    return _Facts(frozenset(calls), frozenset(gateway - calls), frozenset(asks), decisions, ran, tuple(labels))


def _placed(items: Sequence[Item], facts: _Facts, kept: _Kept, upstream: Reads) -> Iterator[PreparedItem]:
    """Each item as what the model gets of it, in order; outputs are not yet paired."""
    for position, item in enumerate(items):
        match item:
            case Message():
                if not abandoned(item):
                    yield _said(item) if item.role == "assistant" else _nameless(item)
            case FunctionCall() | CustomToolCall():
                yield _nameless(item)
            case Reasoning():
                yield item
            case FunctionCallOutput() | CustomToolCallOutput():
                if item.call_id not in facts.gateway:
                    yield item
            case McpCall():
                if item.approval_request_id not in facts.asks:
                    yield from _gateway_pair(item, position, kept.images)
            case McpApprovalRequest():
                yield from _asked_pair(item, facts, position, kept.images)
            case NativeItem(id=str(item_id)) if item_id in kept.ran:
                yield from _hosted_pair(item_id, kept.ran[item_id], kept.images)
            case NativeItem() if upstream.native:
                if not _cut_off(item):
                    yield item if item.type in native.WITH_ID or item.id is None else _idless(item)
            case NativeItem() if item.type in hosted.ITEMS:
                # Ran elsewhere, or here for a client that keeps the history itself: it is told what its item says.
                arguments, output = hosted.told(item.model_extra or {})
                name, call_id = hosted.ITEMS[item.type].key, item.id or f"{item.type}_{position}"
                yield from _pair_of(call_id, name, arguments, output)
            case NativeItem() | UnknownItem():
                yield from _foreign(item, facts)
            case McpListTools() | McpApprovalResponse():
                pass
            case Compaction() if upstream.encrypted_reasoning:
                yield item  # its own: ours are messages by now (`compaction.expanded`)
            case ItemReference() | Compaction() | CompactionTrigger():
                raise ValueError(f"{item.type} in a transcript: it must be resolved or refused before")
            case _:
                assert_never(item)


def abandoned(item: Message) -> bool:
    """Closed empty when its round was retried."""
    return item.status == "incomplete" and not item.content


def _cut_off(item: NativeItem) -> bool:
    """Its round was retried or its response ended before it did."""
    status = (item.model_extra or {}).get("status")
    return status == "incomplete" or (item.type in native.HOSTED_CALLS and status not in (None, "completed", "failed"))


def _idless(item: NativeItem) -> NativeItem:
    return NativeItem(type=item.type, **(item.model_extra or {}))


def _said(item: Message) -> Message:
    """A message of the model without what only its client understands."""
    if item.model_fields_set <= _SAID:
        return item
    kept = {key: getattr(item, key) for key in item.model_fields_set & _SAID}
    return Message(**{**kept, "type": "message"})


def _nameless(item: _Marked) -> _Marked:
    """The item without id and status, and without what only its client understands: they mean nothing to a model
    server, and clients that send a chain back leave them out or give them anew. Assistant messages and reasoning keep
    theirs, which strict servers want."""
    if item.model_fields_set <= _BARE[type(item)]:
        return item
    match item:
        case Message():
            return Message(type="message", role=item.role, content=item.content)
        case FunctionCall():
            bare: JsonObject = {"call_id": item.call_id, "name": item.name, "arguments": item.arguments}
            return FunctionCall(type="function_call", **bare, **_origin(item))
        case CustomToolCall():
            bare = {"call_id": item.call_id, "name": item.name, "input": item.input}
            return CustomToolCall(type="custom_tool_call", **bare, **_origin(item))
        case _:
            assert_never(item)


def _origin(item: FunctionCall | CustomToolCall) -> JsonObject:
    """Where a call's tool is from: a model server cannot place the call without it."""
    extra = item.model_extra
    namespace = item.namespace if isinstance(item, FunctionCall) else None
    if namespace is None and not extra:
        return {}
    given = {"namespace": namespace, **(extra or {})}
    return {key: given[key] for key in _ORIGIN if given.get(key) is not None}


def _gateway_pair(
    item: McpCall, position: int, images: Mapping[str, Sequence[str]]
) -> tuple[FunctionCall, FunctionCallOutput]:
    call_id = item.approval_request_id or item.id or f"mcp_{position}"
    output = _with_images(call_text(item), images.get(item.id or ""))
    return _pair_of(call_id, internal_name(item.server_label, item.name), item.arguments, output)


def _hosted_pair(
    item_id: str, ran: Ran, images: Mapping[str, Sequence[str]]
) -> tuple[FunctionCall, FunctionCallOutput]:
    name, arguments, output = ran
    said = pairing.INTERRUPTED if output is None else output
    return _pair_of(item_id, name, arguments, _with_images(said, images.get(item_id)))


def _with_images(text: str, urls: Sequence[str] | None) -> str | list[JsonObject]:
    if not urls:
        return text
    return [{"type": "input_text", "text": text}, *({"type": "input_image", "image_url": url} for url in urls)]


def _asked_pair(
    item: McpApprovalRequest, facts: _Facts, position: int, images: Mapping[str, Sequence[str]]
) -> tuple[PreparedItem, ...]:
    """An answered ask: its call when it ran, else a denial; an open one leaves nothing."""
    ran = facts.ran.get(item.id)
    if ran is not None:
        return _gateway_pair(ran, position, images)
    decision = facts.decisions.get(item.id)
    if decision is None or decision.approve:
        return ()
    text = f"denied: {decision.reason}" if decision.reason else "denied"
    return _pair_of(item.id, internal_name(item.server_label, item.name), item.arguments, text)


def _pair_of(
    call_id: str, name: str, arguments: str, output: str | list[JsonObject]
) -> tuple[FunctionCall, FunctionCallOutput]:
    return (
        FunctionCall(type="function_call", call_id=call_id, name=name, arguments=arguments),
        FunctionCallOutput(type="function_call_output", call_id=call_id, output=output),
    )


def call_text(item: McpCall) -> str:
    """What the model reads of a gateway call: its output, the error's text folded in."""
    texts = [text for text in (item.output, _error_text(item.error)) if text]
    if texts:
        return "\n".join(texts)
    if item.status in ("in_progress", "calling", "incomplete"):
        return pairing.INTERRUPTED
    return "failed" if item.status == "failed" else ""


def _error_text(error: object) -> str | None:
    match error:
        case None | str():
            return error
        case {"content": str(text)} | {"message": str(text)}:
            return text
        case {"content": [*parts]}:
            return _text(parts)
        case _:
            return json.dumps_text(error)


def _foreign(item: NativeItem | UnknownItem, facts: _Facts) -> tuple[PreparedItem, ...]:
    """An item of a type we do not know, or the server does not: an answered call, a text, or nothing for the model."""
    answer = foreign_answer(item)
    fields = item.model_extra or {}
    if answer is not None:
        call_id, output = answer
        if call_id in facts.gateway:
            return ()
        given = fields.get("arguments")
        arguments = given if isinstance(given, str) else json.dumps_text(given or {})
        pair = _pair_of(call_id, safe_name(item.type), arguments, output)
        return pair[1:] if call_id in facts.calls else pair
    text = _text(fields.get("content"))
    if not text:
        return ()
    return (Message(type="message", role="user", content=[{"type": "input_text", "text": text}]),)


def foreign_answer(item: NativeItem | UnknownItem) -> tuple[str, str] | None:
    """Call id and output text of an item of unknown type that has both."""
    fields = item.model_extra or {}
    call_id, output = fields.get("call_id") or item.id, fields.get("output")
    if not isinstance(call_id, str) or output is None:
        return None
    return call_id, output if isinstance(output, str) else json.dumps_text(output)


def _text(content: object) -> str:
    match content:
        case str():
            return content
        case [*parts]:
            return "\n".join(
                part["text"] for part in parts if isinstance(part, dict) and isinstance(part.get("text"), str)
            )
        case _:
            return ""


def _without_images(item: PreparedItem) -> PreparedItem:
    """A note in the place of each image: in a later round a tool's picture must not fail the run."""
    match item:
        case Message(content=[*parts]) if _has_image(parts):
            return item.model_copy(update={"content": [_note(part, item.role) for part in parts]})
        case FunctionCallOutput(output=[*parts]) | CustomToolCallOutput(output=[*parts]) if _has_image(parts):
            return item.model_copy(update={"output": [_note(part, "user") for part in parts]})
        case _:
            return item


def _has_image(parts: Sequence[JsonObject]) -> bool:
    return any(part.get("type") == "input_image" for part in parts)


def _note(part: JsonObject, role: str) -> JsonObject:
    if part.get("type") != "input_image":
        return part
    if role == "assistant":
        return {"type": "output_text", "text": NO_VISION, "annotations": []}
    return {"type": "input_text", "text": NO_VISION}
