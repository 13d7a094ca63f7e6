"""Make room in a context: have the model sum it up, seal the summary, show the compaction item.

A compaction before a round is a step of its own (`compact:<round>`) with its own commit: the summary is paid for once
and the cut is not made again when the round behind it is lost. Nothing of the old context is touched; the item replaces
it from the moment it is committed, in one transaction.
"""

import logging
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import partial
from typing import assert_never

from activities import base, rounds
from activities.base import Deps
from outlast.contracts import CallLlmInput
from outlast.loop import compaction as loop
from outlast.loop import tokens
from outlast.loop.assembler import Assembler
from outlast.loop.bindings import Bindings
from outlast.loop.calls import Counters
from outlast.loop.compaction import Cut, Opener
from outlast.protocol import compaction as wire
from outlast.protocol import events, ids
from outlast.protocol.errors import ResponseEnded, UpstreamUnavailable
from outlast.protocol.items import parse_item
from outlast.protocol.json import JsonObject
from outlast.protocol.requests import PASSED_ON
from outlast.protocol.usage import Usage
from outlast.store.base import Begun, Blob, Commit, Committed, Gone, ResponseRecord, StoredItem
from outlast.upstream.base import Round, Timeouts, Upstream

_log = logging.getLogger("outlast.compaction")

# What of the request is about the account, not about the answer.
_SAME = frozenset(PASSED_ON) - {"truncation", "presence_penalty", "frequency_penalty"}


@dataclass(frozen=True, slots=True)
class Server:
    """A model server, and the name it knows the model by."""

    upstream: Upstream
    model: str

    @property
    def compacts(self) -> bool:
        """It makes compactions of its own: an OpenAI server."""
        return self.upstream.capabilities.encrypted_reasoning


@dataclass(frozen=True, slots=True)
class Made:
    """A compaction item that is not committed yet, and what its summary took."""

    item: JsonObject
    usage: Usage


class Compactor:
    """Compactions of one worker's runs."""

    def __init__(self, deps: Deps) -> None:
        self._store = deps.store

    def opener(self, tenant: str) -> Opener:
        """Opens what was sealed here for this tenant."""
        return loop.opener(partial(self._store.unseal, tenant))

    async def make(self, request: CallLlmInput, record: ResponseRecord, server: Server, cut: Cut) -> Made:
        """Have a cut summed up. Raises: what `Upstream.stream` raises; UpstreamUnavailable for an empty summary."""
        asked = Round(
            model=server.model,
            transcript=[loop.asked(cut)],
            instructions=loop.INSTRUCTIONS,
            extra={key: record.request[key] for key in _SAME if key in record.request},
        )
        limits = request.timeouts
        times = Timeouts(first=limits.llm_first_event, idle=limits.llm_idle, total=limits.llm_own)
        summary, usage = await _text(server.upstream, asked, times)
        sealed = self._store.seal(record.tenant, cut.memory(summary).dump())
        return Made(wire.item(ids.mint(ids.Prefix.COMPACTION), sealed), usage)

    def cut(self, request: CallLlmInput, chain: Sequence[StoredItem]) -> Cut:
        """A stored chain taken apart."""
        items = [parse_item(stored.whole) for stored in chain if stored.done]
        return loop.cut(items, self.opener(request.tenant))

    async def spent(self, request: CallLlmInput, begun: Begun) -> Usage:
        """What an earlier attempt of this round has spent on a compaction that is in the chain now."""
        record, number = begun.handle.record, begun.handle.round
        made = any(
            stored.response_id == record.id and stored.round == number and stored.item.get("type") == "compaction"
            for stored in begun.chain
            if stored.side == "output"
        )
        return await self._paid(request, record) if made else Usage()

    async def paid(self, request: CallLlmInput) -> Usage:
        """The same for a round that has failed for good."""
        record = await self._store.get(request.tenant, request.state.response_id)
        return Usage() if record is None else await self._paid(request, record)

    async def _paid(self, request: CallLlmInput, record: ResponseRecord) -> Usage:
        if wire.threshold(record.request) is None:
            return Usage()
        found = await self._begin(request, request.state.round + 1)
        return base.decode(Usage, found.outcome) if isinstance(found, Committed) else Usage()

    async def relieve(
        self, request: CallLlmInput, begun: Begun, server: Server, asked: Round, blobs: Mapping[str, Blob]
    ) -> tuple[Round, Usage]:
        """The round with a context that fits, and what that took: unchanged when it does already, or the request does
        not want it. Raises: as `make`; ResponseEnded, StaleFence."""
        record = begun.handle.record
        threshold = wire.threshold(record.request)
        if threshold is None or server.compacts:
            return asked, Usage()
        context = _context(asked)
        if context <= threshold:
            return asked, Usage()
        cut = self.cut(request, begun.chain)
        if not loop.due(context, threshold, tokens.of_items(cut.dropped)):
            return asked, Usage()
        found = await self._begin(request, begun.handle.round)
        match found:
            case Committed():
                # Made before this round and in the chain: what is left is above the threshold still.
                return asked, Usage()
            case Gone():
                raise ResponseEnded(f"response {record.id} has ended")
            case Begun():
                made = await self.make(request, record, server, cut)
                commit = Commit(outcome=base.encode(made.usage))
                await self._store.append(found.handle, wire.events(made.item), commit)
            case _:
                assert_never(found)
        chain = [*begun.chain, StoredItem(record.id, "output", 0, made.item, round=begun.handle.round)]
        prepared = rounds.prepared(chain, server.upstream.capabilities, blobs, self.opener(request.tenant))
        smaller = replace(asked, transcript=prepared.transcript)
        _log.info("context of %s compacted: %d tokens before, %d after", record.id, context, _context(smaller))
        return smaller, made.usage

    async def _begin(self, request: CallLlmInput, number: int) -> Begun | Committed | Gone:
        return await self._store.begin(
            request.tenant, request.state.response_id, f"compact:{number}", workflow_id=base.workflow_id()
        )


def _context(asked: Round) -> int:
    """Tokens of a round."""
    functions: list[JsonObject] = [
        {"name": tool.name, "description": tool.description, "parameters": tool.parameters} for tool in asked.tools
    ]
    return tokens.estimate(tokens.Context(asked.transcript, asked.instructions, [*functions, *asked.native]))


async def _text(upstream: Upstream, asked: Round, times: Timeouts) -> tuple[str, Usage]:
    """All a model says to a request without tools. It is shown to nobody, so a cut answer is none."""
    assembler = Assembler(Bindings(""), Counters(0, 0), ids.mint_item)
    shown = []
    async with aclosing(upstream.stream(upstream.build(asked), times)) as stream:
        async for batch in stream:
            shown += assembler.feed(batch).events
    end = assembler.end()
    items = [event.rest["item"] for event in [*shown, *end.events] if event.type == events.ITEM_DONE]
    said = [part.get("text") or "" for item in items if item["type"] == "message" for part in item["content"]]
    summary = "\n".join(filter(None, said)).strip()
    if not summary or end.incomplete is not None:
        raise UpstreamUnavailable(
            "The model server's summary for a compaction was "
            + ("empty." if end.incomplete is None else f"cut off ({end.incomplete}).")
        )
    return summary, end.usage
