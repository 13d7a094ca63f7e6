"""The port to the record: responses, items, events, steps, calls, approvals, secrets.

Rules every implementation keeps:

* Every row carries the tenant and every query filters by it; a foreign id is as unknown as no id.
* `append`, `commit` and `end` number events and allot output indexes, nobody else does: contiguous from 0 per response,
  in one order over all processes. An event becomes visible to readers after its commit, never before.
* A step's token is taken by `begin`; a write of an older token raises `StaleFence`, a write to an ended response raises
  `ResponseEnded`, and neither leaves a trace.
* `output_item.added` opens an `items` row at the allotted index, `output_item.done` closes it with the final item.
* A decision, an ending, a claim are single conditional updates: one of any number of racers wins.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Protocol

from outlast.protocol.events import WireEvent
from outlast.protocol.json import JsonObject
from outlast.store.base import (
    Approval,
    Begun,
    Blob,
    Commit,
    Committed,
    Created,
    Decided,
    DecisionRequest,
    Ending,
    Frames,
    Gone,
    IdempotencyKey,
    NewResponse,
    ResponseRecord,
    StepHandle,
    StoredItem,
)


class Store(Protocol):
    """The record, one process's view of it."""

    # -- creation and reading ------------------------------------------------------------------------------------
    async def create(self, new: NewResponse) -> Created:
        """One transaction. Raises: ApprovalAlreadyDecided, NotFound (an approval), InvalidRequest (a withdrawn one);
        PreviousResponseNotFound; what `by_key` raises."""
        ...

    async def by_key(self, tenant: str, key: IdempotencyKey) -> ResponseRecord | None:
        """The response a key has made; None for a key that is free: never used, a day old, or its response failed
        before a step began. Raises: IdempotencyKeyReused with another body; InvalidRequest when it is not kept."""
        ...

    async def by_origin(self, tenant: str, origin: bytes, since: float) -> ResponseRecord | None:
        """The newest response of this sender and body that was created since then and has not failed."""
        ...

    async def get(self, tenant: str, response_id: str) -> ResponseRecord | None:
        """The row; None when unknown, foreign or deleted."""
        ...

    async def output(self, tenant: str, response_id: str, *, sealed: bool = False) -> Sequence[JsonObject]:
        """Public output items that are done, in index order. `sealed`: with the encrypted content of reasoning."""
        ...

    async def input_items(self, tenant: str, response_id: str, *, sealed: bool = False) -> Sequence[JsonObject]:
        """Items of `GET /input_items`: inputs of the whole chain and outputs of its ancestors, oldest first; from after
        a deleted ancestor on. Raises: NotFound."""
        ...

    async def chain(self, tenant: str, response_id: str) -> Sequence[StoredItem]:
        """Ancestors and this response, oldest first. Raises: PreviousResponseNotFound naming a missing ancestor."""
        ...

    async def find_items(self, tenant: str, item_ids: Sequence[str]) -> Mapping[str, JsonObject]:
        """Items by id over all stored responses of the tenant, newest copy; unknown ids are missing."""
        ...

    async def keep_blobs(self, tenant: str, response_id: str, blobs: Sequence[Blob]) -> None:
        """Keep bytes for as long as this response, or a later one that names them, is kept; before the step that names
        them is committed. Raises: ResponseEnded when the response is gone."""
        ...

    async def blobs(self, tenant: str, hashes: Sequence[str]) -> Mapping[str, Blob]:
        """Blobs by hash; purged and foreign ones are missing."""
        ...

    async def bindings(self, tenant: str, bindings_id: str) -> JsonObject:
        """Tool bindings of a response. Raises: NotFound."""
        ...

    def seal(self, tenant: str, value: JsonObject) -> str:
        """A text for clients to carry that only this tenant can send back; it needs no row."""
        ...

    def unseal(self, tenant: str, text: str) -> JsonObject | None:
        """What `seal` was given; None for a text it did not make for this tenant."""
        ...

    async def secret(self, tenant: str, secret_id: str) -> JsonObject | None:
        """Unsealed; None when purged."""
        ...

    async def set_workflow(self, tenant: str, response_id: str, *, old: str, new: str) -> bool:
        """Move a response to another workflow; False when somebody else did."""
        ...

    async def delete(self, tenant: str, response_id: str) -> str | None:
        """Hide and purge items, events, secrets; withdraw open asks; stop a parked run. Items that a running response
        descends from are purged when none does any more. The workflow of the parked run: it is nobody's now, None when
        there was none or a continuation has claimed it."""
        ...

    # -- steps ---------------------------------------------------------------------------------------------------
    async def begin(
        self,
        tenant: str,
        response_id: str,
        step: str,
        *,
        workflow_id: str | None,
        chain: bool = False,
        calls: int | None = None,
    ) -> Begun | Committed | Gone:
        """Take the step's next token; read what the attempt needs in one transaction (`calls`: of this round)."""
        ...

    async def append(self, handle: StepHandle, events: Sequence[WireEvent], commit: Commit | None = None) -> int:
        """Durably append; the last sequence number. Raises: StaleFence, ResponseEnded."""
        ...

    async def finish(self, handle: StepHandle, events: Sequence[WireEvent], commit: Commit) -> ResponseRecord:
        """As `append` with `commit.ending` and the terminal event in one transaction; the ended row."""
        ...

    async def end(self, tenant: str, response_id: str, ending: Ending) -> tuple[ResponseRecord | None, bool]:
        """End without a step (cancel, failed start): open items are closed as incomplete first. (row, whether we won);
        who does not win writes nothing. Open asks are withdrawn."""
        ...

    # -- streaming -----------------------------------------------------------------------------------------------
    def follow(self, tenant: str, response_id: str, after: int) -> AsyncIterator[Frames]:
        """Frames with numbers > `after`, replay and tail in one, ending after the terminal one."""
        ...

    async def attend(self, tenant: str, response_id: str, until: float) -> None:
        """A reader of a `store:false` response lives until then (unix seconds). `create` grants `READER_LEASE` seconds;
        after a lapse steps find the response `Gone`, their writes raise `ResponseEnded`, and `stale` returns it. Ended,
        it is not purged by `purge_transient` before."""
        ...

    # -- approvals -----------------------------------------------------------------------------------------------
    async def approval(self, tenant: str, approval_id: str) -> Approval | None:
        """One ask."""
        ...

    async def approvals(
        self, tenant: str, *, status: str | None = None, response_id: str | None = None
    ) -> Sequence[Approval]:
        """Asks, oldest first; `response_id`: listed by it."""
        ...

    async def decide(self, tenant: str, wish: DecisionRequest) -> Decided:
        """One conditional update, the deadline in its WHERE. Raises: NotFound; ApprovalAlreadyDecided naming the winner
        for a contradicting wish or a taken ask."""
        ...

    async def expire(self, tenant: str, response_id: str, now: float) -> int:
        """Expire overdue asks of a response; how many."""
        ...

    # -- parked runs ---------------------------------------------------------------------------------------------
    async def parked_on(self, tenant: str, response_id: str) -> str | None:
        """The workflow parked on this response, None when none is."""
        ...

    async def leave_park(self, tenant: str, workflow_id: str, response_id: str) -> str | None:
        """Close the parked run, or, when a continuation has claimed it, that response's id."""
        ...

    # -- processes and repair ------------------------------------------------------------------------------------
    async def beat(self, worker_id: str, kind: str, now: float) -> None:
        """A live row in `workers`."""
        ...

    async def workers_alive(self, since: float) -> int:
        """How many beat after `since`."""
        ...

    async def stale(self, *, silent_since: float, limit: int, lease_until: float) -> Sequence[ResponseRecord]:
        """Non-terminal responses silent since then whose lease is free; leased until `lease_until`."""
        ...

    async def rest(self, tenant: str, response_id: str) -> None:
        """A silent response was looked after: lease it for as long as it has been silent, an hour at most, so that
        intervals double. Not before: a sweeper killed on the way would keep all others away."""
        ...

    async def parked(self, *, limit: int, lease_until: float) -> Sequence[tuple[str, str, str]]:
        """(tenant, workflow id, response id) of parked runs, leased alike."""
        ...

    async def stopping(self, *, limit: int, lease_until: float) -> Sequence[tuple[str, str]]:
        """(tenant, workflow id) of runs to be cancelled and not known to be closed, leased alike: of endings with
        `stop`, and those that were parked on a deleted response."""
        ...

    async def stopped(self, tenant: str, workflow_id: str) -> None:
        """Such a run is closed, or never was."""
        ...

    async def steps_begun(self, tenant: str, response_id: str) -> bool:
        """Whether any step of the response was begun."""
        ...

    async def purge(self, tenant: str, response_id: str) -> bool:
        """Purge an ended `store:false` response, when its reader has the terminal frame; False: nothing to purge."""
        ...

    async def purge_transient(self, now: float) -> int:
        """Purge `store:false` responses ended more than 60 s ago, what deleted ones left for runs that have ended,
        idempotency keys of a day ago and secrets kept a week for open asks; how many `store:false` responses."""
        ...

    async def purge_older(
        self, before: float, *, limit: int, after: tuple[int, str] | None = None
    ) -> tuple[int, tuple[int, str] | None]:
        """Delete one page of ended responses, all of whose time was before then (unix seconds), that no response kept
        continues. How many, and what to go on `after`: None at the end. A pass leaves no ancestor whose line is gone,
        but for those of the same second, which the next one takes."""
        ...

    async def aclose(self) -> None:
        """Stop the writer, close the connections."""
        ...
