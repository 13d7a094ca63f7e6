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
from dataclasses import dataclass, field
from typing import Literal, Protocol

from outlast.protocol.events import WireEvent
from outlast.protocol.json import JsonObject
from outlast.protocol.responses import ResponseFacts
from outlast.protocol.usage import Usage

ResponseStatus = Literal["queued", "in_progress", "completed", "failed", "incomplete", "cancelled"]
CallAction = Literal["run", "ask", "client", "refused"]
ApprovalStatus = Literal["pending", "approved", "denied", "expired", "withdrawn"]


@dataclass(frozen=True, slots=True)
class ResponseRecord:
    """One response row. `request`: the validated request as echoed, secrets removed; `run_state`: the loop's first
    state as JSON, so that a sweeper can start the run again."""

    tenant: str
    id: str
    workflow_id: str
    status: ResponseStatus
    model: str
    request: JsonObject
    run_state: JsonObject
    created_at: int
    background: bool
    store: bool
    mode: Literal["respond", "wait"]
    previous_response_id: str | None = None
    completed_at: int | None = None
    usage: Usage | None = None
    error: JsonObject | None = None
    incomplete_details: JsonObject | None = None
    next_sequence: int = 0
    next_index: int = 0
    # server label -> secret id of the sealed headers the request brought; who owns them ("credentials' owner").
    credentials: Mapping[str, str] = field(default_factory=dict)
    owner: str = "local"

    @property
    def ended(self) -> bool:
        """Terminal: nothing may be appended."""
        return self.status not in ("queued", "in_progress")

    @property
    def facts(self) -> ResponseFacts:
        """What the public object is built from. `http` in an error is how a POST is answered, never shown."""
        error = self.error
        return ResponseFacts(
            id=self.id,
            status=self.status,
            created_at=self.created_at,
            model=self.model,
            request=self.request,
            usage=self.usage,
            error=None if error is None else {key: value for key, value in error.items() if key != "http"},
            incomplete_details=self.incomplete_details,
            completed_at=self.completed_at,
            previous_response_id=self.previous_response_id,
            background=self.background,
            store=self.store,
        )


@dataclass(frozen=True, slots=True)
class StoredItem:
    """One item of a chain, in order. Hidden items are for the model only: no index, in no public list."""

    response_id: str
    side: Literal["input", "output"]
    ordinal: int
    item: JsonObject
    output_index: int | None = None
    done: bool = True
    hidden: bool = False
    round: int = 0


@dataclass(frozen=True, slots=True)
class CallRow:
    """One gateway or client call of a model round. `item_id`: of the `mcp_call` it is or will be, also the idempotency
    key unless `approval_id` is set. `secret_id`: the sealed headers it is dispatched with."""

    response_id: str
    round: int
    ordinal: int
    item_id: str
    action: CallAction
    call_id: str
    name: str
    arguments: str
    server_label: str | None = None
    server_url: str | None = None
    secret_id: str | None = None
    # Safe to dispatch again with the same key: readOnlyHint or idempotentHint of our listing, or config.
    safe: bool = False
    timeout: float | None = None
    approval_id: str | None = None
    # Filled by the store.
    started: bool = False
    done: bool = False

    @property
    def idempotency_key(self) -> str:
        """The same for every dispatch of the call."""
        return self.approval_id or self.item_id


@dataclass(frozen=True, slots=True)
class Approval:
    """One ask. Its row is the only authority: `status` leaves `pending` by one conditional update.

    `response_id`: the response whose round asked; `listed_by`: the newest response that shows it; `taken_by`: the
    response that used the decision. `fingerprint`: SHA-256 over tenant, server, tool, canonical arguments and owner.
    """

    tenant: str
    id: str
    response_id: str
    round: int
    ordinal: int
    mode: Literal["respond", "wait"]
    item_id: str
    call_id: str
    server_label: str
    server_url: str
    name: str
    arguments: str
    fingerprint: str
    safe: bool
    created_at: int
    listed_by: str
    status: ApprovalStatus = "pending"
    secret_id: str | None = None
    owner: str | None = None
    decided_by: str | None = None
    decided_how: str | None = None
    decided_at: int | None = None
    reason: str | None = None
    taken_by: str | None = None
    deadline: float | None = None
    on_deadline: Literal["none", "deny", "fail"] = "none"


@dataclass(frozen=True, slots=True)
class NewResponse:
    """Everything a create transaction writes, all or nothing.

    `events`: created/queued/in_progress and, for a continuation, the announcements of its approved calls. `decisions`:
    in-band ones, applied as `decide` does; `takes`: approvals this response uses (else `ApprovalAlreadyDecided` naming
    the response that took them). `relist`: still open asks it lists again. `claim`: (workflow id, response parked on).
    """

    record: ResponseRecord
    inputs: Sequence[JsonObject]
    events: Sequence[WireEvent]
    hidden_inputs: Sequence[JsonObject] = ()
    calls: Sequence[CallRow] = ()
    decisions: Sequence["DecisionRequest"] = ()
    takes: Sequence[str] = ()
    relist: Sequence[str] = ()
    claim: tuple[str, str] | None = None
    # secret id -> plaintext JSON (headers); sealed by the store.
    secrets: Mapping[str, JsonObject] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Created:
    """The row as written. `claimed`: it belongs to the parked run's workflow; else it starts its own."""

    record: ResponseRecord
    claimed: bool


@dataclass(frozen=True, slots=True)
class DecisionRequest:
    """A wish to decide. `how`: api, continuation, cli, temporal-update, temporal-signal, deadline."""

    approval_id: str
    approve: bool
    who: str
    how: str
    reason: str | None = None
    at: int = 0


@dataclass(frozen=True, slots=True)
class Decided:
    """The decision that stands; `won` if it was this request's (a repeat with the same verdict does not win)."""

    approval: Approval
    won: bool


@dataclass(slots=True)
class StepHandle:
    """An attempt's right to write a step. `indexes`: item id -> output index, filled by the store as it allots.

    Events and their handle travel as one value: an event of an item in `indexes` gets that item's index. `round`: of
    the items it opens, from the step's name (`llm:3`) or the round whose calls it asked for.
    """

    record: ResponseRecord
    step: str
    token: int
    workflow_id: str | None
    indexes: dict[str, int] = field(default_factory=dict)
    round: int = 0


@dataclass(frozen=True, slots=True)
class Begun:
    """The step is ours. `chain`: ancestors and this response, oldest first, own output last; `calls`: rows of the round
    asked for; `closing`: the events that close what this step's earlier attempts added and did not finish, in index
    order (`event.item_id` says of which item, should the caller want to go on with one instead)."""

    handle: StepHandle
    chain: Sequence[StoredItem] = ()
    calls: Sequence[CallRow] = ()
    closing: Sequence[WireEvent] = ()


@dataclass(frozen=True, slots=True)
class Committed:
    """The step was committed before: its outcome, as it was."""

    outcome: JsonObject


@dataclass(frozen=True, slots=True)
class Gone:
    """The response is terminal, deleted, or owned by another workflow: return at once. None: deleted or unknown."""

    record: ResponseRecord | None


@dataclass(frozen=True, slots=True)
class Ending:
    """How a commit ends the response. `park`: the run waits for a continuation instead of closing.

    The terminal event is made by the store's caller through `terminal`, which gets the whole public output.
    """

    status: ResponseStatus
    usage: Usage | None = None
    error: JsonObject | None = None
    incomplete_details: JsonObject | None = None
    completed_at: int | None = None
    park: bool = False


class TerminalBuilder(Protocol):
    """Makes the terminal event from the ended row and its public output, in index order. Pure; runs in the commit."""

    def __call__(self, record: ResponseRecord, output: Sequence[JsonObject]) -> WireEvent: ...


@dataclass(frozen=True, slots=True)
class Commit:
    """What one transaction of a step writes besides its events."""

    calls: Sequence[CallRow] = ()
    approvals: Sequence[Approval] = ()
    # For the model only; kept in the chain (denied calls of wait mode).
    hidden: Sequence[JsonObject] = ()
    # (id, bindings as JSON)
    bindings: tuple[str, JsonObject] | None = None
    # Calls (round, ordinal) whose started marker / whose end this commit records.
    started: Sequence[tuple[int, int]] = ()
    done: Sequence[tuple[int, int]] = ()
    # Given: the step is committed with this outcome; later attempts get it back.
    outcome: JsonObject | None = None
    ending: Ending | None = None


class Store(Protocol):
    """The record, one process's view of it."""

    # -- creation and reading ------------------------------------------------------------------------------------
    async def create(self, new: NewResponse) -> Created:
        """One transaction. Raises: ApprovalAlreadyDecided, NotFound (an approval), InvalidRequest (a withdrawn one)."""
        ...

    async def get(self, tenant: str, response_id: str) -> ResponseRecord | None:
        """The row; None when unknown, foreign or deleted."""
        ...

    async def output(self, tenant: str, response_id: str) -> Sequence[JsonObject]:
        """Public output items that are done, in index order."""
        ...

    async def input_items(self, tenant: str, response_id: str) -> Sequence[JsonObject]:
        """Items of `GET /input_items`: inputs of the whole chain and outputs of its ancestors, oldest first."""
        ...

    async def chain(self, tenant: str, response_id: str) -> Sequence[StoredItem]:
        """Ancestors and this response, oldest first. Raises: PreviousResponseNotFound naming a missing ancestor."""
        ...

    async def find_items(self, tenant: str, item_ids: Sequence[str]) -> Mapping[str, JsonObject]:
        """Items by id over all stored responses of the tenant, newest copy; unknown ids are missing."""
        ...

    async def bindings(self, tenant: str, bindings_id: str) -> JsonObject:
        """Tool bindings of a response. Raises: NotFound."""
        ...

    async def secret(self, tenant: str, secret_id: str) -> JsonObject | None:
        """Unsealed; None when purged."""
        ...

    async def set_workflow(self, tenant: str, response_id: str, *, old: str, new: str) -> bool:
        """Move a response to another workflow; False when somebody else did."""
        ...

    async def delete(self, tenant: str, response_id: str) -> ResponseRecord | None:
        """Hide and purge items, events, secrets; withdraw open asks; close a parked run. The row before, or None."""
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

    async def finish(
        self, handle: StepHandle, events: Sequence[WireEvent], commit: Commit, terminal: TerminalBuilder
    ) -> ResponseRecord:
        """As `append` with `commit.ending` and the terminal event in one transaction; the ended row."""
        ...

    async def end(
        self, tenant: str, response_id: str, ending: Ending, terminal: TerminalBuilder, *, closing: bool = True
    ) -> tuple[ResponseRecord | None, bool]:
        """End without a step (cancel, failed start): open items are closed as incomplete first. (row, whether we won);
        who does not win writes nothing. Open asks are withdrawn."""
        ...

    # -- streaming -----------------------------------------------------------------------------------------------
    def follow(self, tenant: str, response_id: str, after: int) -> AsyncIterator["Frames"]:
        """Frames with numbers > `after`, replay and tail in one, ending after the terminal one."""
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
        """Non-terminal responses silent since then whose lease is free; leased to the caller until `lease_until`."""
        ...

    async def parked(self, *, limit: int, lease_until: float) -> Sequence[tuple[str, str, str]]:
        """(tenant, workflow id, response id) of parked runs, leased alike."""
        ...

    async def steps_begun(self, tenant: str, response_id: str) -> bool:
        """Whether any step of the response was begun."""
        ...

    async def purge(self, tenant: str, response_id: str) -> bool:
        """Purge an ended `store:false` response, when its reader has the terminal frame; False: nothing to purge."""
        ...

    async def purge_transient(self, now: float) -> int:
        """Purge `store:false` responses ended more than 60 s ago, and secrets kept a week for open asks; how many
        responses."""
        ...

    async def aclose(self) -> None:
        """Stop the writer, close the connections."""
        ...


@dataclass(frozen=True, slots=True)
class Frames:
    """Consecutive frames. `data`: (sequence number, event type, `data:` bytes); `ended`: the last one is terminal."""

    data: Sequence[tuple[int, str, bytes]]
    ended: bool
