"""`CallLlm`: one model round, streaming included.

An attempt that finds the step committed returns what was committed: a model call is never paid twice. An attempt that
finds calls of an earlier one ends the round with them (clients act on what they have seen); otherwise it closes the
items the earlier one left open and goes on at the following indexes.

Finish in place: after the round the same pure `next_step(absorb(state, outcome))` is evaluated here; if it ends the
response, the round, the terminal row and the terminal event are one transaction, and the client never waits for a
workflow task after the last token.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import assert_never

from temporalio import activity

from activities import base, rounds
from activities.base import Deps, Progress
from activities.compacting import Compactor, Server
from activities.listing import Listings
from activities.pump import Pump
from outlast import contracts, failpoints
from outlast.contracts import CallLlmInput
from outlast.loop import bindings
from outlast.loop.assembler import Assembler, Fed, RoundEnd
from outlast.loop.bindings import Bindings
from outlast.loop.calls import Counters
from outlast.loop.decide import absorb, ends_with, next_step
from outlast.loop.state import CallLlm, LlmOutcome
from outlast.protocol import compaction, events, ids
from outlast.protocol.errors import OutlastError, ResponseEnded, StaleFence, UpstreamUnavailable
from outlast.protocol.events import WireEvent
from outlast.protocol.responses import build_response, lifecycle
from outlast.store.base import Begun, Blob, Commit, Committed, Gone, ResponseRecord, StepHandle
from outlast.temporal import LONGEST_RETRY_AFTER, application_error
from outlast.upstream.base import Timeouts, Upstream, UpstreamRequest

log = logging.getLogger("outlast.llm")

# Seconds the frames that open an item wait for its first text: committed alone, they would hold that text up by a
# commit of their own.
_PATIENCE = 0.05


@dataclass(frozen=True, slots=True)
class _Attempt:
    """What one attempt works with."""

    request: CallLlmInput
    step: CallLlm
    begun: Begun
    bound: Bindings
    # The model server seals its reasoning and the client did not ask for that.
    seals: bool = False

    @property
    def handle(self) -> StepHandle:
        return self.begun.handle

    @property
    def record(self) -> ResponseRecord:
        return self.begun.handle.record


class CallLlmActivity:
    """The activity and its ports."""

    def __init__(self, deps: Deps) -> None:
        self._deps = deps
        self._store = deps.store
        self._listings = Listings(deps)
        self._compactor = Compactor(deps)

    @activity.defn(name=contracts.CALL_LLM)
    async def call_llm(self, request: CallLlmInput) -> LlmOutcome:
        """Perform the model round that is next in the state."""
        async with base.beating():
            try:
                outcome = await self._round(request)
            except (ResponseEnded, StaleFence):
                # Somebody ended the response, or a newer attempt owns the round; this one has written nothing since.
                return await self._gone(request)
            except OutlastError as error:
                return await self._failed(request, error)
        failpoints.hit(failpoints.AFTER_COMMIT_BEFORE_ACK)
        return outcome

    async def _round(self, request: CallLlmInput) -> LlmOutcome:
        step = next_step(request.state)
        if not isinstance(step, CallLlm):
            raise ValueError(f"no model round is due but {step}")
        begun = await self._store.begin(
            request.tenant,
            request.state.response_id,
            f"llm:{step.round}",
            workflow_id=base.workflow_id(),
            chain=True,
            calls=step.round,
        )
        match begun:
            case Committed(outcome):
                return base.decode(LlmOutcome, outcome)
            case Gone(record):
                return LlmOutcome(at=self._deps.clock(), finished=base.ended_as(record))
            case Begun():
                return await self._begun(request, step, begun)
            case _:
                assert_never(begun)

    async def _begun(self, request: CallLlmInput, step: CallLlm, begun: Begun) -> LlmOutcome:
        opening = [*_in_progress(begun.handle.record), *_abandoned(begun)]
        spent = await self._compactor.spent(request, begun)
        if begun.calls:
            end = replace(rounds.end_of(begun.calls), events=opening, usage=spent)
            return await self._commit(_Attempt(request, step, begun, Bindings("")), end)
        if opening:
            await self._store.append(begun.handle, opening)
        upstream, model = self._deps.models.resolve(begun.handle.record.model)
        server = Server(upstream, model)
        if request.state.compacts and not server.compacts:
            return await self._compact(_Attempt(request, step, begun, Bindings("")), server)
        blobs = await self._images(request, begun, upstream)
        opener = self._compactor.opener(request.tenant)
        prepared = rounds.prepared(begun.chain, upstream.capabilities, blobs, opener)
        bound = await self._bound(request, begun.handle.record, prepared.labels)
        attempt = _Attempt(request, step, begun, bound, seals=rounds.seals(begun.handle.record, upstream.capabilities))
        left = request.state.budgets.max_tool_calls - request.state.tool_calls
        asked = rounds.build(
            attempt.record,
            step,
            model,
            prepared.transcript,
            bound,
            upstream.capabilities,
            tool_calls_left=left,
            compacts=request.state.compacts,
        )
        asked, made = await self._compactor.relieve(request, begun, server, asked, blobs)
        end = await self._stream(attempt, upstream, upstream.build(asked))
        return await self._commit(attempt, replace(end, usage=spent + made + end.usage))

    async def _compact(self, attempt: _Attempt, server: Server) -> LlmOutcome:
        """The one round of a response that is a compaction."""
        cut = self._compactor.cut(attempt.request, attempt.begun.chain)
        made = await self._compactor.make(attempt.request, attempt.record, server, cut)
        shown = compaction.events(made.item)
        return await self._commit(attempt, replace(rounds.end_of(()), events=shown, usage=made.usage))

    async def _images(self, request: CallLlmInput, begun: Begun, upstream: Upstream) -> Mapping[str, Blob]:
        """What tools have returned for the model to see, if it sees."""
        hashes = [digest for stored in begun.chain for digest, _ in stored.images]
        if not hashes or not upstream.capabilities.images:
            return {}
        return await self._store.blobs(request.tenant, hashes)

    async def _bound(self, request: CallLlmInput, record: ResponseRecord, labels: Sequence[str]) -> Bindings:
        """The tools of the response: bound in its first round, a row afterwards."""
        if request.state.bindings is not None:
            return bindings.load(await self._store.bindings(request.tenant, request.state.bindings))
        return await self._listings.bind(record, labels)

    async def _stream(self, attempt: _Attempt, upstream: Upstream, asked: UpstreamRequest) -> RoundEnd:
        """Append what the upstream says as it comes; what comes with its end is left to the round's commit."""
        state, limits = attempt.request.state, attempt.request.timeouts
        assembler = Assembler(
            attempt.bound,
            Counters(state.tool_calls, state.budgets.max_tool_calls),
            ids.mint_item,
            keep_reasoning_ids=upstream.capabilities.encrypted_reasoning,
        )
        times = Timeouts(first=limits.llm_first_event, idle=limits.llm_idle, total=limits.llm_own)
        progress = Progress("model", attempt.step.round, state.usage.total_tokens, state.budgets.max_rounds)
        held = rounds.NOTHING
        try:
            async with Pump(upstream.stream(asked, times)) as pump:
                while True:
                    batch, ended = await pump.take(_PATIENCE if held.events else None)
                    held = rounds.joined(held, assembler.feed(batch))
                    if ended:
                        break
                    if batch and rounds.only_opens(held):
                        continue
                    await self._show(attempt, held, progress)
                    held = rounds.NOTHING
        except UpstreamUnavailable:
            # Clients act on a call they have seen: the round ends there instead of being asked again.
            if not assembler.announced:
                raise
            end = assembler.end(cut=True)
        else:
            end = assembler.end()
        return replace(end, events=[*held.events, *end.events], calls=[*held.calls, *end.calls])

    async def _show(self, attempt: _Attempt, fed: Fed, progress: Progress) -> None:
        shown, private = rounds.kept(attempt, fed)
        commit = Commit(calls=rounds.rows(attempt, fed), hidden=rounds.unseen(fed), private=private)
        await self._store.append(attempt.handle, shown, commit)
        failpoints.hit(failpoints.MID_STREAM)
        if any(event.type == events.ITEM_DONE for event in fed.events):
            await progress.item_done()

    async def _commit(self, attempt: _Attempt, end: RoundEnd) -> LlmOutcome:
        """The round's one transaction; the response's too if the loop says that this was its last step."""
        state, bound = attempt.request.state, attempt.bound
        outcome = rounds.outcome(end, self._deps.clock(), bound if bound.tools else None)
        after = absorb(state, outcome)
        ended = ends_with(after)
        shown, private = rounds.kept(attempt, end)
        commit = Commit(
            calls=rounds.rows(attempt, end),
            hidden=rounds.unseen(end),
            private=private,
            bindings=(bound.id, bindings.dump(bound)) if state.bindings is None and bound.tools else None,
        )
        if ended is None:
            await self._store.append(attempt.handle, shown, replace(commit, outcome=base.encode(outcome)))
            return outcome
        outcome = replace(outcome, finished=ended)
        commit = replace(
            commit,
            outcome=base.encode(outcome),
            ending=base.ending(ended, after.usage, outcome.at),
        )
        await self._store.finish(attempt.handle, shown, commit)
        return outcome

    async def _gone(self, request: CallLlmInput) -> LlmOutcome:
        record = await self._store.get(request.tenant, request.state.response_id)
        return LlmOutcome(at=self._deps.clock(), finished=base.ended_as(record))

    async def _failed(self, request: CallLlmInput, error: OutlastError) -> LlmOutcome:
        """Leave it to Temporal to try again, or end the response here: the text is a row, only a code is history."""
        last = activity.info().attempt >= request.timeouts.llm_attempts
        if error.retryable and not last and (error.retry_after or 0) <= LONGEST_RETRY_AFTER:
            log.warning("model round of %s will be tried again: %s", request.state.response_id, error.message)
            raise application_error(error, request.state.response_id) from error
        row = base.failure(error, request.state.usage + await self._compactor.paid(request))
        record, _ = await self._store.end(request.tenant, request.state.response_id, row)
        return LlmOutcome(at=self._deps.clock(), finished=base.ended_as(record))


def _in_progress(record: ResponseRecord) -> list[WireEvent]:
    """A background response is `queued` until its first step begins."""
    if record.status != "queued":
        return []
    facts = replace(record.facts, status="in_progress")
    return [lifecycle(events.IN_PROGRESS, build_response(facts, []))]


def _abandoned(begun: Begun) -> list[WireEvent]:
    """What closes the items an earlier attempt left open, but for its announced calls: those are still to run."""
    running = {call.item_id for call in begun.calls if call.action == "run"}
    return [event for event in begun.closing if event.item_id not in running]
