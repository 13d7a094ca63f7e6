"""The chunks of one Chat Completions stream as the events a Responses server would have sent.

Rules:
1. Items open and close strictly one after the other: reasoning, then message, then calls. Reasoning that arrives
   after text closes the message and is an item of its own.
2. Calls are collected by their index, whose deltas may interleave, and become items when the model has finished: only
   then is it known which are complete. A call that never got a name becomes none.
3. `<think>` counts at the beginning of the text only, and a tag may be split over chunks: what could still become one
   is held.
4. Nothing ends the response but `close`; what was open after `length` or `content_filter` is `incomplete`.
"""

import time
from dataclasses import dataclass, field

from outlast.protocol import events, ids, json
from outlast.protocol.events import WireEvent
from outlast.protocol.ids import Prefix
from outlast.protocol.json import JsonObject
from outlast.protocol.usage import Usage
from outlast.upstream.failures import Identity
from outlast.upstream.think import ThinkSplitter

_INCOMPLETE = {"length": "max_output_tokens", "content_filter": "content_filter"}
# Finish reasons by which servers say that they gave up (SGLang, vLLM, OpenRouter).
_BROKEN = frozenset({"abort", "error"})


@dataclass(frozen=True, slots=True)
class _PartKind:
    """How a content part is spelled: its type, its text field and its events."""

    type: str
    field: str
    delta: str
    done: str
    has_logprobs: bool = False

    def part(self, text: str, logprobs: list[JsonObject]) -> JsonObject:
        part: JsonObject = {"type": self.type, self.field: text}
        return {**part, "annotations": [], "logprobs": logprobs} if self.has_logprobs else part


_TEXT = _PartKind("output_text", "text", events.TEXT_DELTA, events.TEXT_DONE, has_logprobs=True)
_REFUSAL = _PartKind("refusal", "refusal", events.REFUSAL_DELTA, events.REFUSAL_DONE)
_REASONING = _PartKind("reasoning_text", "text", events.REASONING_TEXT_DELTA, events.REASONING_TEXT_DONE)


@dataclass(slots=True)
class _Call:
    """A call as far as its deltas have come."""

    id: str = ""
    name: str = ""
    arguments: list[str] = field(default_factory=list)


class Translator:
    """The state of one stream."""

    def __init__(self, identity: Identity) -> None:
        self._identity = identity
        self._response: JsonObject | None = None
        self._think = ThinkSplitter()
        self._calls: list[_Call] = []
        self._by_index: dict[int, _Call] = {}
        self._finish_reason: str | None = None
        self._usage: JsonObject | None = None
        self._usage_is_final = False
        self._items: list[JsonObject] = []
        # The open item, its closed parts, and the open part with what it holds.
        self._item: JsonObject | None = None
        self._item_id = ""
        self._parts: list[JsonObject] = []
        self._kind: _PartKind | None = None
        self._pieces: list[str] = []
        self._logprobs: list[JsonObject] = []

    @property
    def finished(self) -> bool:
        """Whether the model has said why it stopped."""
        return self._finish_reason is not None

    @property
    def ended(self) -> bool:
        """Whether nothing more can come: finished, and the usage that is sent last was seen."""
        return self._finish_reason is not None and self._usage_is_final

    def feed(self, chunk: JsonObject, out: list[WireEvent]) -> None:
        """Append the events of a chunk to `out`. Raises: an UpstreamError, if the chunk is or ends in one."""
        if chunk.get("error") or chunk.get("object") == "error":
            raise self._identity.from_error(chunk.get("error") or chunk)
        if self._response is None:
            self._begin(chunk, out)
        choices = chunk.get("choices")
        if choices:
            choice = choices[0]
            delta = choice.get("delta")
            if delta:
                self._delta(delta, choice.get("logprobs"), out)
            reason = choice.get("finish_reason")
            if reason in _BROKEN:
                raise self._identity.unavailable(f"gave up with finish_reason {reason!r}")
            if reason:
                self._finish_reason = reason
        usage = chunk.get("usage")
        if usage:
            self._usage = _usage(usage)
            self._usage_is_final = self._finish_reason is not None

    def close(self) -> list[WireEvent]:
        """The events that end the response: what is open, the calls, the terminal."""
        out: list[WireEvent] = []
        if self._response is None:
            self._begin({}, out)
        reason = _INCOMPLETE.get(self._finish_reason or "")
        status = "incomplete" if reason else "completed"
        for thinking, text in self._think.flush():
            self._text(_REASONING if thinking else _TEXT, text, None, out)
        self._close_item(status, out)
        for call in self._calls:
            if call.name:
                self._emit_call(call, status, out)
        response = {
            **(self._response or {}),
            "status": status,
            "incomplete_details": {"reason": reason} if reason else None,
            "output": self._items,
            "usage": self._usage,
        }
        out.append(WireEvent(events.INCOMPLETE if reason else events.COMPLETED, {"response": response}))
        return out

    def _begin(self, chunk: JsonObject, out: list[WireEvent]) -> None:
        self._response = {
            "id": ids.mint(Prefix.RESPONSE),
            "object": "response",
            "created_at": chunk.get("created") or int(time.time()),
            "status": "in_progress",
            "model": chunk.get("model"),
            "error": None,
            "incomplete_details": None,
            "output": [],
            "usage": None,
        }
        out += [WireEvent(kind, {"response": self._response}) for kind in (events.CREATED, events.IN_PROGRESS)]

    def _delta(self, delta: JsonObject, logprobs: JsonObject | None, out: list[WireEvent]) -> None:
        reasoning = delta.get("reasoning_content") or delta.get("reasoning")
        if isinstance(reasoning, str):
            self._text(_REASONING, reasoning, None, out)
        content = delta.get("content")
        if content and not isinstance(content, str):
            raise self._identity.unavailable("sent a delta whose content is not text")
        if content:
            tokens = [_logprob(token) for token in logprobs.get("content") or ()] if logprobs else None
            if self._think.passing:
                self._text(_TEXT, content, tokens, out)
            else:
                for thinking, text in self._think.feed(content):
                    self._text(_REASONING if thinking else _TEXT, text, None if thinking else tokens, out)
        refusal = delta.get("refusal")
        if refusal:
            self._text(_REFUSAL, refusal, None, out)
        for call in delta.get("tool_calls") or ():
            self._call_delta(call)

    def _text(self, kind: _PartKind, text: str, tokens: list[JsonObject] | None, out: list[WireEvent]) -> None:
        """A piece of a part, which is opened when it is not the open one."""
        if self._kind is not kind:
            self._open_part(kind, out)
        self._pieces.append(text)
        rest: JsonObject = {"item_id": self._item_id, "content_index": len(self._parts), "delta": text}
        if kind.has_logprobs:
            rest["logprobs"] = tokens or []
            if tokens:
                self._logprobs += tokens
        out.append(WireEvent(kind.delta, rest, len(self._items)))

    def _open_part(self, kind: _PartKind, out: list[WireEvent]) -> None:
        item_type = "reasoning" if kind is _REASONING else "message"
        if self._item is not None and self._item["type"] != item_type:
            self._close_item("completed", out)
        self._close_part(out)
        if self._item is None:
            self._item_id = ids.mint_item(item_type)
            own: JsonObject = {"summary": []} if item_type == "reasoning" else {"role": "assistant"}
            self._item = {"type": item_type, "id": self._item_id, **own}
            started = {**self._item, "content": [], "status": "in_progress"}
            out.append(WireEvent(events.ITEM_ADDED, {"item": started}, len(self._items)))
        self._kind = kind
        self._part_event(events.PART_ADDED, {"part": kind.part("", [])}, out)

    def _close_part(self, out: list[WireEvent]) -> None:
        kind = self._kind
        if kind is None:
            return
        text, logprobs = "".join(self._pieces), self._logprobs
        done: JsonObject = {kind.field: text}
        if kind.has_logprobs:
            done["logprobs"] = logprobs
        part = kind.part(text, logprobs)
        self._part_event(kind.done, done, out)
        self._part_event(events.PART_DONE, {"part": part}, out)
        self._parts.append(part)
        self._kind, self._pieces, self._logprobs = None, [], []

    def _part_event(self, event_type: str, fields: JsonObject, out: list[WireEvent]) -> None:
        rest = {"item_id": self._item_id, "content_index": len(self._parts), **fields}
        out.append(WireEvent(event_type, rest, len(self._items)))

    def _close_item(self, status: str, out: list[WireEvent]) -> None:
        if self._item is None:
            return
        self._close_part(out)
        self._item_done({**self._item, "content": self._parts, "status": status}, out)
        self._item, self._parts = None, []

    def _item_done(self, item: JsonObject, out: list[WireEvent]) -> None:
        out.append(WireEvent(events.ITEM_DONE, {"item": item}, len(self._items)))
        self._items.append(item)

    def _call_delta(self, delta: JsonObject) -> None:
        """Route a piece to its call. Some servers send every call whole under index 0, told apart by id and name."""
        index, call_id = delta.get("index"), delta.get("id") or ""
        function = delta.get("function") or {}
        name, arguments = function.get("name") or "", function.get("arguments")
        key = index if isinstance(index, int) else 0
        call = self._by_index.get(key)
        if call is None or (call_id and name and call.id and call_id != call.id):
            call = self._by_index[key] = _Call()
            self._calls.append(call)
        call.id = call.id or call_id
        call.name = call.name or name
        if arguments:
            call.arguments.append(arguments if isinstance(arguments, str) else json.dumps_text(arguments))

    def _emit_call(self, call: _Call, status: str, out: list[WireEvent]) -> None:
        index, item_id = len(self._items), ids.mint(Prefix.FUNCTION_CALL)
        arguments = "".join(call.arguments) or ("{}" if status == "completed" else "")
        item: JsonObject = {
            "type": "function_call",
            "id": item_id,
            "call_id": call.id or ids.mint(Prefix.CALL),
            "name": call.name,
        }
        started = {**item, "arguments": "", "status": "in_progress"}
        out.append(WireEvent(events.ITEM_ADDED, {"item": started}, index))
        if arguments:
            out.append(WireEvent(events.ARGUMENTS_DELTA, {"item_id": item_id, "delta": arguments}, index))
        done = {"item_id": item_id, "name": call.name, "arguments": arguments}
        out.append(WireEvent(events.ARGUMENTS_DONE, done, index))
        self._item_done({**item, "arguments": arguments, "status": status}, out)


def _logprob(token: JsonObject) -> JsonObject:
    """A token with all keys the Responses API has, few of which every server gives."""
    text = token.get("token") or ""
    return {
        "token": text,
        "logprob": token.get("logprob"),
        "bytes": token.get("bytes") or list(text.encode()),
        "top_logprobs": [
            {
                "token": each["token"],
                "logprob": each["logprob"],
                "bytes": each.get("bytes") or list(each["token"].encode()),
            }
            for each in token.get("top_logprobs") or ()
        ],
    }


def _usage(usage: JsonObject) -> JsonObject:
    """Counts in the spelling of the Responses API; servers may leave out details and the sum."""
    prompt, completion = usage.get("prompt_tokens") or 0, usage.get("completion_tokens") or 0
    cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
    reasoning = (usage.get("completion_tokens_details") or {}).get("reasoning_tokens") or 0
    return Usage(
        input_tokens=prompt,
        cached_tokens=cached,
        output_tokens=completion,
        reasoning_tokens=reasoning,
        total_tokens=usage.get("total_tokens") or prompt + completion,
    ).wire()
