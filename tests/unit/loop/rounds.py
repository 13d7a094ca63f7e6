"""Feeding the assembler and judging what it shows: short spellings of upstream events, the official client as judge.

`Play` runs one round; `public()` is the stream a client gets: its calls run, numbered and indexed as the log does it.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from openai._types import omit
from openai.lib.streaming.responses._responses import ResponseStreamState
from openai.types.responses import ResponseStreamEvent
from pydantic import TypeAdapter

from outlast.loop import bindings
from outlast.loop.assembler import Assembler, RoundEnd
from outlast.loop.bindings import ListedTool
from outlast.loop.calls import Counters, NewCall
from outlast.protocol import building, events, ids
from outlast.protocol.events import WireEvent
from outlast.protocol.json import JsonObject

_JUDGE: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)

BOUND = bindings.gather(
    "bind_1",
    bindings.bind(
        "docs",
        "https://docs.test/mcp",
        None,
        [ListedTool("search", None, {}), ListedTool("delete", None, {})],
        asks=lambda spec: spec.name == "delete",
    ),
    client=["book"],
    labels=["docs"],
)
SEARCH, DELETE = BOUND.tools


def up(kind: str, index: int | None = None, **rest: Any) -> WireEvent:
    """An upstream event; `response.` is put before `kind`."""
    return WireEvent(f"response.{kind}", rest, output_index=index, sequence_number=99)


def completed(**usage: int) -> WireEvent:
    """The upstream's regular end."""
    return up("completed", response={"id": "up", "status": "completed", "output": [], "usage": usage})


def cut_by(reason: str) -> WireEvent:
    """The upstream's end of a truncated answer."""
    return up("incomplete", response={"status": "incomplete", "incomplete_details": {"reason": reason}})


def message(index: int, *deltas: str, **extra: Any) -> list[WireEvent]:
    """A whole message as OpenAI sends it."""
    key, text = f"up_{index}", "".join(deltas)
    part = {"type": "output_text", "annotations": [], "logprobs": [], "text": ""}
    item = {"id": key, "type": "message", "role": "assistant", **extra}
    return [
        up("output_item.added", index, item={**item, "status": "in_progress", "content": []}),
        up("content_part.added", index, item_id=key, content_index=0, part=part),
        *(text_delta(index, delta) for delta in deltas),
        up("output_text.done", index, item_id=key, content_index=0, text=text, logprobs=[]),
        up("content_part.done", index, item_id=key, content_index=0, part={**part, "text": text}),
        up("output_item.done", index, item={**item, "status": "completed", "content": [{**part, "text": text}]}),
    ]


def text_delta(index: int, delta: str) -> WireEvent:
    """One text delta as OpenAI sends it."""
    return up(
        "output_text.delta", index, item_id=f"up_{index}", content_index=0, delta=delta, logprobs=[], obfuscation="x9"
    )


def call(index: int, name: str, arguments: str, **extra: Any) -> list[WireEvent]:
    """A whole function call, its arguments in two deltas."""
    key, half = f"up_{index}", len(arguments) // 2
    item = {"id": key, "type": "function_call", "name": name, "call_id": f"call_{index}", **extra}
    return [
        up("output_item.added", index, item={**item, "status": "in_progress", "arguments": ""}),
        up("function_call_arguments.delta", index, item_id=key, delta=arguments[:half], obfuscation="x"),
        up("function_call_arguments.delta", index, item_id=key, delta=arguments[half:], obfuscation="x"),
        up("function_call_arguments.done", index, item_id=key, arguments=arguments),
        up("output_item.done", index, item={**item, "status": "completed", "arguments": arguments}),
    ]


class Play:
    """One round. Ids are minted as `msg_1`, `mcp_2`, …: prefix and a running number."""

    def __init__(self, *, used: int = 0, limit: int = 10, keep_reasoning_ids: bool = False) -> None:
        self._minted = 0
        self.assembler = Assembler(BOUND, Counters(used, limit), self._mint, keep_reasoning_ids=keep_reasoning_ids)
        self.events: list[WireEvent] = []
        self.rows: dict[int, NewCall] = {}

    def feed(self, batch: Iterable[WireEvent]) -> list[JsonObject]:
        """The bodies this batch brought."""
        fed = self.assembler.feed(list(batch))
        return self._take(fed.events, fed.calls)

    def end(self, *, cut: bool = False) -> tuple[list[JsonObject], RoundEnd]:
        """The bodies of the end, and what the round came to."""
        end = self.assembler.end(cut=cut)
        return self._take(end.events, end.calls), end

    def run(self, *batch: WireEvent) -> tuple[list[JsonObject], RoundEnd]:
        """All at once, regularly ended; judged by the official client."""
        self.feed(batch)
        _, end = self.end()
        self.judge()
        return [event.body() for event in self.events], end

    def judge(self) -> None:
        """The official client's types and accumulator take the stream as it stands."""
        state: ResponseStreamState[object] = ResponseStreamState(input_tools=omit, text_format=omit)
        for body in self.public():
            state.handle_event(_JUDGE.validate_python(body))

    def public(self) -> list[JsonObject]:
        """Between `created` and `completed`, with the running calls completed; output is what was done."""
        indexes: dict[str, int] = {}
        output: dict[int, JsonObject] = {}
        bodies = [{"type": events.CREATED, "response": _response("in_progress", [])}]
        runs = [row for row in self.rows.values() if row.action == "run"]
        ran = [building.finish_mcp_call(gateway_item(row.item_id, row.arguments), output="ok") for row in runs]
        for event in [*self.events, *(event for pair in ran for event in pair)]:
            body, key = event.body(), event.item_id
            if key is not None:
                if event.type == events.ITEM_ADDED:
                    assert key not in indexes, "an item is added once"
                    indexes[key] = len(indexes)
                body["output_index"] = indexes[key]
                assert indexes[key] not in output, "nothing follows an item's done"
                if event.type == events.ITEM_DONE:
                    output[indexes[key]] = event.rest["item"]
            bodies.append(body)
        done = [output[index] for index in sorted(output)]
        bodies.append({"type": events.COMPLETED, "response": _response("completed", done)})
        return [{**body, "sequence_number": number} for number, body in enumerate(bodies)]

    def _mint(self, kind: str) -> str:
        self._minted += 1
        return f"{ids.ITEM_PREFIX.get(kind, ids.Prefix.ITEM)}_{self._minted}"

    def _take(self, new: Sequence[WireEvent], rows: Sequence[NewCall]) -> list[JsonObject]:
        self.events += new
        self.rows |= {row.ordinal: row for row in rows}
        return [event.body() for event in new]


def _response(status: str, output: list[JsonObject]) -> JsonObject:
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "model": "m",
        "status": status,
        "output": output,
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
    }


def shown_message(item_id: str, *deltas: str, **extra: Any) -> list[JsonObject]:
    """The public events of a whole message."""
    at = {"item_id": item_id, "content_index": 0}
    text = "".join(deltas)
    empty: JsonObject = {"type": "output_text", "annotations": [], "text": ""}
    item = {"id": item_id, "type": "message", "status": "in_progress", "role": "assistant", "content": []}
    final = {**item, "status": "completed", "content": [{**empty, "text": text}], **extra}
    return [
        {"type": events.ITEM_ADDED, "item": {**item, **extra}},
        {"type": events.PART_ADDED, **at, "part": empty},
        *({"type": events.TEXT_DELTA, **at, "delta": delta, "logprobs": []} for delta in deltas),
        {"type": events.TEXT_DONE, **at, "text": text, "logprobs": []},
        {"type": events.PART_DONE, **at, "part": {**empty, "text": text}},
        {"type": events.ITEM_DONE, "item": final},
    ]


def gateway_item(item_id: str, arguments: str, **changed: Any) -> JsonObject:
    """The public `mcp_call` of `search`."""
    return {
        "id": item_id,
        "type": "mcp_call",
        "approval_request_id": None,
        "arguments": arguments,
        "error": None,
        "name": "search",
        "output": None,
        "server_label": "docs",
        "status": "in_progress",
        **changed,
    }


def shown_gateway(item_id: str, arguments: str, **changed: Any) -> list[JsonObject]:
    """The announcement of a gateway call."""
    return [
        {"type": events.ITEM_ADDED, "item": gateway_item(item_id, "", **changed)},
        {"type": events.MCP_IN_PROGRESS, "item_id": item_id},
        {"type": events.MCP_ARGUMENTS_DELTA, "item_id": item_id, "delta": arguments},
        {"type": events.MCP_ARGUMENTS_DONE, "item_id": item_id, "arguments": arguments},
    ]


def failed_gateway(item_id: str, arguments: str, text: str, **changed: Any) -> list[JsonObject]:
    """Its end when it is refused."""
    error = {"type": "mcp_tool_execution_error", "content": [{"type": "text", "text": text}]}
    final = gateway_item(item_id, arguments, error=error, status="failed", **changed)
    return [{"type": events.MCP_FAILED, "item_id": item_id}, {"type": events.ITEM_DONE, "item": final}]


def shown_client(item_id: str, call_id: str, name: str, arguments: str, **extra: Any) -> list[JsonObject]:
    """The public events of a client call."""
    item = {"id": item_id, "type": "function_call", "status": "completed", "call_id": call_id, "name": name}
    final = {**item, "arguments": arguments, **extra}
    return [
        {"type": events.ITEM_ADDED, "item": {**final, "arguments": "", "status": "in_progress"}},
        {"type": events.ARGUMENTS_DELTA, "item_id": item_id, "delta": arguments},
        {"type": events.ARGUMENTS_DONE, "item_id": item_id, "name": name, "arguments": arguments},
        {"type": events.ITEM_DONE, "item": final},
    ]
