"""Translate between the record, the loop and an upstream's round: pure functions of `CallLlm`."""

import base64
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from typing import Protocol

from outlast.loop import bindings as binding
from outlast.loop import call_queue
from outlast.loop.assembler import Fed, RoundEnd
from outlast.loop.bindings import Bindings
from outlast.loop.calls import NewCall
from outlast.loop.choice import model_choice
from outlast.loop.compaction import Opener, expanded
from outlast.loop.prepare import Prepared, prepare
from outlast.loop.state import CallLlm, LlmOutcome, call_names
from outlast.protocol import events, hosted, native
from outlast.protocol.events import WireEvent
from outlast.protocol.items import PreparedItem, brings_tools, parse_item
from outlast.protocol.json import JsonObject
from outlast.protocol.requests import INCLUDE_SEALED, PASSED_ON
from outlast.protocol.usage import Usage
from outlast.store.base import Blob, CallRow, ResponseRecord, StoredItem
from outlast.upstream.base import Capabilities, ModelTool, Round

_OURS = ("run", "ask")
_SEALED = "encrypted_content"


class _Attempt(Protocol):
    """The attempt whose rows are made."""

    @property
    def record(self) -> ResponseRecord: ...

    @property
    def step(self) -> CallLlm: ...

    @property
    def seals(self) -> bool: ...


def prepared(
    chain: Sequence[StoredItem], capabilities: Capabilities, blobs: Mapping[str, Blob], opener: Opener
) -> Prepared:
    """The transcript of a stored chain; items still open are not in it yet. `blobs`: the images of it, by hash."""
    whole = expanded([parse_item(stored.whole) for stored in chain if stored.done], opener)
    images = {str(stored.item["id"]): _image_urls(stored, blobs) for stored in chain if stored.images}
    ran = {str(stored.item["id"]): stored.ran for stored in chain if stored.ran is not None}
    return prepare(whole, upstream=capabilities, images=images, ran=ran)


def _image_urls(stored: StoredItem, blobs: Mapping[str, Blob]) -> list[str]:
    """Those that are still kept, as data URLs."""
    return [
        f"data:{mime_type};base64,{base64.b64encode(blobs[digest].data).decode()}"
        for digest, mime_type in stored.images
        if digest in blobs
    ]


def seals(record: ResponseRecord, capabilities: Capabilities) -> bool:
    """Whether reasoning comes with encrypted content the client did not ask for: we did, to give it back."""
    return capabilities.encrypted_reasoning and INCLUDE_SEALED not in (record.request.get("include") or ())


def sealed_apart(shown: Sequence[WireEvent]) -> tuple[list[WireEvent], dict[str, JsonObject]]:
    """Events without the encrypted content of reasoning, and that content by item, as a step commits it beside them."""
    public: list[WireEvent] = []
    private: dict[str, JsonObject] = {}
    for event in shown:
        item = event.rest.get("item")
        if not isinstance(item, dict) or item.get("type") != "reasoning" or _SEALED not in item:
            public.append(event)
            continue
        public.append(event.with_rest(item={key: value for key, value in item.items() if key != _SEALED}))
        if event.type == events.ITEM_DONE:
            private[item["id"]] = {_SEALED: item[_SEALED]}
    return public, private


def build(
    record: ResponseRecord,
    step: CallLlm,
    model: str,
    transcript: Sequence[PreparedItem],
    bound: Bindings,
    capabilities: Capabilities,
    *,
    tool_calls_left: int,
    compacts: bool = False,
) -> Round:
    """The round as a dialect gets it; what the client did not give is not sent. `tool_calls_left`: of the cap;
    `compacts`: it is to be the server's own compaction."""
    request = record.request
    functions = binding.model_tools(bound, request.get("tools") or [])
    natives = _natives(request, tool_calls_left, bound.hosted) if capabilities.native else []
    choosing = bool(functions or natives) or any(brings_tools(item) for item in transcript)
    return Round(
        model=model,
        transcript=transcript,
        instructions=request.get("instructions"),
        tools=[ModelTool(each.name, each.description, each.parameters, each.strict, each.more) for each in functions],
        native=natives,
        tool_choice=model_choice(request.get("tool_choice"), step.tool_choice, bound) if choosing else None,
        parallel_tool_calls=request.get("parallel_tool_calls") if choosing else None,
        max_tool_calls=tool_calls_left if any(native.hosted(tool["type"]) for tool in natives) else None,
        max_output_tokens=request.get("max_output_tokens"),
        temperature=request.get("temperature"),
        top_p=request.get("top_p"),
        top_logprobs=request.get("top_logprobs"),
        reasoning=request.get("reasoning"),
        text=request.get("text"),
        include=request.get("include") or (),
        compacts=compacts,
        extra={key: request[key] for key in _passed_on(capabilities) if key in request},
    )


def _passed_on(capabilities: Capabilities) -> tuple[str, ...]:
    """An OpenAI server compacts by itself; for every other one it is done here."""
    return (*PASSED_ON, "context_management") if capabilities.encrypted_reasoning else PASSED_ON


def _natives(request: JsonObject, tool_calls_left: int, bound: Collection[str]) -> list[JsonObject]:
    """Tools that only the model server knows; those it runs itself only while calls are left. `bound`: hosted types
    that run here."""
    others = (tool for tool in request.get("tools") or () if tool["type"] not in ("function", "mcp"))
    return [
        tool
        for tool in others
        if hosted.key_of(tool["type"]) not in bound and (tool_calls_left > 0 or not native.hosted(tool["type"]))
    ]


NOTHING = Fed([], [])
_OPENING = frozenset({events.ITEM_ADDED, events.PART_ADDED, events.SUMMARY_PART_ADDED})


def joined(before: Fed, after: Fed) -> Fed:
    """Two batches as one."""
    return Fed([*before.events, *after.events], [*before.calls, *after.calls])


def only_opens(fed: Fed) -> bool:
    """Whether nobody misses anything yet: at most frames that open an item or a part."""
    return not fed.calls and all(event.type in _OPENING for event in fed.events)


def rows(attempt: _Attempt, brought: Fed | RoundEnd) -> list[CallRow]:
    """The rows of the calls a batch or a round's end brought."""
    return [_row(attempt.record.id, attempt.step.round, call) for call in brought.calls]


def _row(response_id: str, number: int, call: NewCall) -> CallRow:
    bound = call.binding
    return CallRow(
        response_id=response_id,
        round=number,
        ordinal=call.ordinal,
        item_id=call.item_id,
        action=call.action,
        call_id=call.call_id,
        name=call.name,
        arguments=call.arguments,
        server_label=call.label,
        server_url=bound.server_url if bound else None,
        secret_id=bound.secret_id if bound else None,
        safe=bound.safe if bound else False,
        timeout=bound.timeout if bound else None,
        hosted=None if call.hosted is None else asdict(call.hosted),
        hidden=call.hidden,
    )


def unseen(brought: Fed | RoundEnd) -> list[JsonObject]:
    """Items of the calls no client sees; one still to be asked for has none yet."""
    return [call_queue.unseen(call) for call in brought.calls if call.hidden and call.action != "ask"]


def kept(attempt: _Attempt, brought: Fed | RoundEnd) -> tuple[list[WireEvent], dict[str, JsonObject]]:
    """The public events of a batch or a round's end, and what is kept beside its items, by their ids."""
    shown, private = sealed_apart(brought.events) if attempt.seals else (brought.events, {})
    told = {call.item_id: call.hosted.told(call.refusal) for call in brought.calls if call.hosted is not None}
    return shown, {**private, **told}


def outcome(end: RoundEnd, at: float, bound: Bindings | None) -> LlmOutcome:
    """What the loop is told of a round."""
    return LlmOutcome(
        usage=end.usage,
        run=end.run,
        ask=end.ask,
        client=end.client,
        refused=end.refused,
        over_cap=end.over_cap,
        hosted=end.hosted,
        produced=end.produced,
        incomplete=end.incomplete,
        bindings=bound.id if bound else None,
        names=call_names(end.names),
        at=at,
    )


def end_of(calls: Sequence[CallRow]) -> RoundEnd:
    """The end of a round whose attempt was lost after these calls were shown: the round is what it showed."""

    def ordinals(action: str) -> tuple[int, ...]:
        return tuple(call.ordinal for call in calls if call.action == action)

    return RoundEnd(
        events=[],
        calls=[],
        usage=Usage(),
        run=ordinals("run"),
        ask=ordinals("ask"),
        client=bool(ordinals("client")),
        refused=len(ordinals("refused")),
        over_cap=False,
        hosted=0,
        incomplete=None,
        produced=False,
        response_error=None,
        names=tuple((call.ordinal, f"{call.server_label}.{call.name}") for call in calls if call.action in _OURS),
    )
