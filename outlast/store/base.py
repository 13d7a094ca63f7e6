"""What the record is made of: rows, what a transaction writes, what it answers. The port is in `port.py`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from outlast.protocol.events import WireEvent
from outlast.protocol.json import JsonObject
from outlast.protocol.responses import ResponseFacts
from outlast.protocol.usage import Usage

# Seconds a `store:false` response outlives the last word of its reader; the API renews three times within it.
READER_LEASE = 15.0

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
    # The conversation this is a turn of; items before position `conversation_end` of it are its history.
    conversation_id: str | None = None
    conversation_end: int | None = None

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
            conversation_id=self.conversation_id,
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
    # What belongs to the item and is in no public copy of it: `encrypted_content` of an OpenAI server's reasoning the
    # client did not ask for; `images` a tool returned, as [{"hash", "mime_type"}]; of a hosted tool's call that ran
    # here, `call` as the model made it, {"name", "arguments"}, and the `output` it was told.
    private: JsonObject | None = None

    @property
    def whole(self) -> JsonObject:
        """The item as its model server gave it: it wants its sealed reasoning back."""
        return whole(self.item, self.private)

    @property
    def ran(self) -> tuple[str, str, str | None] | None:
        """(name, arguments, output) of a hosted tool's call that ran here; output None: it was interrupted."""
        private = self.private or {}
        call = private.get("call")
        return None if call is None else (call["name"], call["arguments"], private.get("output"))

    @property
    def images(self) -> Sequence[tuple[str, str]]:
        """(hash, mime type) of the images a tool returned with it; the bytes are blobs."""
        return [(image["hash"], image["mime_type"]) for image in (self.private or {}).get("images", ())]


def whole(item: JsonObject, private: JsonObject | None) -> JsonObject:
    """An item with its sealed reasoning."""
    sealed = (private or {}).get("encrypted_content")
    return item if sealed is None else {**item, "encrypted_content": sealed}


@dataclass(frozen=True, slots=True)
class Blob:
    """Bytes kept under the SHA-256 (hex) of them."""

    hash: str
    mime_type: str
    data: bytes


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
    # A `HostedCall` as JSON: the call of a hosted type, whose item is not an `mcp_call`.
    hosted: JsonObject | None = None
    # No client sees it: its item is one of `Commit.hidden`.
    hidden: bool = False
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
class IdempotencyKey:
    """What a client calls one request by. `body_hash`: SHA-256 of its raw body."""

    key: str
    body_hash: bytes


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
    # Ids of inputs that may be copies of items of ours: what those have in private comes with them.
    recalled: Sequence[str] = ()
    # A response nobody stores whose items are copied too: the caller's connection goes on from it.
    held: str | None = None
    calls: Sequence[CallRow] = ()
    decisions: Sequence["DecisionRequest"] = ()
    takes: Sequence[str] = ()
    relist: Sequence[str] = ()
    # The response that lists `takes` and `relist`; if a newer one lists any of them by now, nothing is written.
    continues: str | None = None
    claim: tuple[str, str] | None = None
    # secret id -> plaintext JSON (headers); sealed by the store.
    secrets: Mapping[str, JsonObject] = field(default_factory=dict)
    # A key that has made a response already writes nothing: that response is the answer.
    key: IdempotencyKey | None = None
    # SHA-256 over who sent which body, for `by_origin`; None: it can not be sent again as it was.
    origin: bytes | None = None


@dataclass(frozen=True, slots=True)
class Created:
    """The row as written. `claimed`: it belongs to the parked run's workflow; else it starts its own. `repeated`: it
    is another request's of the same key, and nothing was written."""

    record: ResponseRecord
    claimed: bool
    repeated: bool = False


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
    """How a commit ends the response. `park`: the run waits for a continuation instead of closing; `stop`: it is to be
    cancelled, which the store remembers until the run is known to be closed."""

    status: ResponseStatus
    usage: Usage | None = None
    error: JsonObject | None = None
    incomplete_details: JsonObject | None = None
    completed_at: int | None = None
    park: bool = False
    stop: bool = False


@dataclass(frozen=True, slots=True)
class Commit:
    """What one transaction of a step writes besides its events."""

    calls: Sequence[CallRow] = ()
    approvals: Sequence[Approval] = ()
    # For the model only, kept in the chain (denied calls of wait mode, calls of internal servers); one whose id is
    # there already takes its place.
    hidden: Sequence[JsonObject] = ()
    # Item id -> what it has beside its public JSON, of items this commit finishes.
    private: Mapping[str, JsonObject] = field(default_factory=dict)
    # (id, bindings as JSON)
    bindings: tuple[str, JsonObject] | None = None
    # Calls (round, ordinal) whose started marker / whose end this commit records.
    started: Sequence[tuple[int, int]] = ()
    done: Sequence[tuple[int, int]] = ()
    # Given: the step is committed with this outcome; later attempts get it back.
    outcome: JsonObject | None = None
    ending: Ending | None = None


@dataclass(frozen=True, slots=True)
class Frames:
    """Consecutive frames. `data`: (sequence number, event type, `data:` bytes); `ended`: the last one is terminal."""

    data: Sequence[tuple[int, str, bytes]]
    ended: bool
