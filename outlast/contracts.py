"""Everything that enters Temporal history: names, inputs, outcomes, time-outs, retry policies.

Ids, numbers, flags and short codes only; never content, never upstream text, never a decision's reason. All types are
frozen dataclasses with defaults, so payloads of older builds still decode. Time-outs travel in the start input: tests
shorten them and a replay keeps them.
"""

from dataclasses import dataclass, field
from datetime import timedelta

from temporalio.common import RetryPolicy, SearchAttributeKey

from outlast.loop.state import RunState

WORKFLOW = "ResponseWorkflow"
CALL_LLM = "CallLlm"
EXECUTE_TOOLS = "ExecuteTools"
INTERRUPT_FOR_APPROVAL = "InterruptForApproval"
FINISH_RESPONSE = "FinishResponse"
FAIL_CALL = "FailCall"
DECIDE_APPROVAL = "DecideApproval"
READ_GATE = "ReadGate"
EXPIRE_ASKS = "ExpireAsks"
LEAVE_PARK = "LeavePark"

SIGNAL_RESUME = "resume"
SIGNAL_DECIDED = "decided"
SIGNAL_PROGRESS = "progress"
SIGNAL_DECIDE = "decide"
UPDATE_DECIDE = "decide"
QUERY_PROGRESS = "progress"

SEARCH_RESPONSES = "OutlastResponses"
SEARCH_TENANT = "OutlastTenant"
SEARCH_MODEL = "OutlastModel"
SEARCH_PENDING = "OutlastPendingApprovals"

RESPONSES_KEY = SearchAttributeKey.for_keyword_list(SEARCH_RESPONSES)
TENANT_KEY = SearchAttributeKey.for_keyword(SEARCH_TENANT)
MODEL_KEY = SearchAttributeKey.for_keyword(SEARCH_MODEL)
PENDING_KEY = SearchAttributeKey.for_int(SEARCH_PENDING)

# After this many responses a parked run closes; a continuation then starts a new one.
MAX_RESPONSES_PER_RUN = 16
MAX_PROGRESS_SIGNALS = 200


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Seconds, all of them."""

    llm: float = 900.0
    # Our own deadline inside CallLlm, a minute earlier, so that the activity reports and is not cut.
    llm_own: float = 840.0
    llm_first_event: float = 120.0
    llm_idle: float = 120.0
    heartbeat: float = 10.0
    tool: float = 60.0
    # The longest that a tool's own setting says; 0: none says more than `tool`.
    tool_own: float = 0.0
    # On top of the tool's own deadline: listing, commits.
    tool_margin: float = 30.0
    ask: float = 10.0
    local: float = 10.0
    park: float = 86_400.0
    llm_attempts: int = 4
    llm_backoff: float = 1.0
    llm_backoff_max: float = 30.0
    tool_attempts: int = 3

    @property
    def tool_longest(self) -> float:
        """What no call outlasts, whatever its row says."""
        return max(self.tool, self.tool_own)


@dataclass(frozen=True, slots=True)
class RunInput:
    """What `ResponseWorkflow` starts with. `model`: its name, for summaries and the search attribute."""

    tenant: str
    state: RunState
    model: str
    timeouts: Timeouts = field(default_factory=Timeouts)


@dataclass(frozen=True, slots=True)
class CallLlmInput:
    """One model round of `state`; the step's number and tool choice follow from `next_step(state)`."""

    tenant: str
    state: RunState
    timeouts: Timeouts


@dataclass(frozen=True, slots=True)
class ToolInput:
    """One call: response, round, ordinal. The rest is a row."""

    tenant: str
    response_id: str
    round: int
    ordinal: int
    timeouts: Timeouts


@dataclass(frozen=True, slots=True)
class ToolDone:
    """One call ended; its result is a row. `gone`: the response ended under it."""

    at: float = 0.0
    gone: bool = False


@dataclass(frozen=True, slots=True)
class AskInput:
    """The asks of a batch. `may_park`: respond mode, whether this run may serve another response."""

    tenant: str
    state: RunState
    may_park: bool = True


@dataclass(frozen=True, slots=True)
class FinishInput:
    """End the response like this, unless it has ended."""

    tenant: str
    state: RunState


@dataclass(frozen=True, slots=True)
class Decision:
    """A decision from Temporal's UI or CLI, read by `read_decision`."""

    approval_id: str
    approve: bool


def read_decision(given: object) -> Decision | None:
    """What a person typed as the input of `decide`: `{"approval_id": "mcpr_…", "approve": true}`.

    None for anything else. Nothing is coerced and nothing has a default: a slip must neither approve nor deny.
    """
    match given:
        case {"approval_id": str(approval_id), "approve": bool(approve)}:
            return Decision(approval_id, approve)
        case _:
            return None


@dataclass(frozen=True, slots=True)
class DecideInput:
    """The same, with where it came from: `temporal-update` or `temporal-signal`."""

    tenant: str
    decision: Decision
    how: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """The decision that stands. `status`: approved, denied, expired, withdrawn or unknown; `won`: by this call."""

    approval_id: str = ""
    status: str = "unknown"
    decided_how: str | None = None
    won: bool = False


@dataclass(frozen=True, slots=True)
class GateInput:
    """Which response's gate, and of which round."""

    tenant: str
    response_id: str
    round: int


@dataclass(frozen=True, slots=True)
class GateView:
    """Where a gate stands. `pending`: asks without a decision; the others are ordinals of the batch."""

    pending: int = 0
    approved: tuple[int, ...] = ()
    failed: bool = False
    at: float = 0.0
    # Seconds until the earliest deadline, or until the gate looks again on its own.
    deadline_in: float | None = None
    # The response ended meanwhile (cancelled, deleted).
    gone: bool = False


@dataclass(frozen=True, slots=True)
class ParkInput:
    """The run parked on `response_id`. `resumed_by`: who says it took it; None: the park time is over, close."""

    tenant: str
    response_id: str
    resumed_by: str | None = None


@dataclass(frozen=True, slots=True)
class Resumed:
    """Who took the run: the next response with its state. `closed`: nobody, and the park is left."""

    state: RunState | None = None
    model: str = ""
    closed: bool = False


@dataclass(frozen=True, slots=True)
class Mark:
    """A durable progress mark: where a long run is."""

    phase: str = ""
    round: int = 0
    items_done: int = 0
    tokens: int = 0


def llm_retry(timeouts: Timeouts) -> RetryPolicy:
    """Retries of a model round: 408, 429, 5xx, time-outs and cut streams; the activity marks the rest non-retryable."""
    return RetryPolicy(
        initial_interval=timedelta(seconds=timeouts.llm_backoff),
        backoff_coefficient=2.0,
        maximum_interval=timedelta(seconds=timeouts.llm_backoff_max),
        maximum_attempts=timeouts.llm_attempts,
        non_retryable_error_types=["PayloadsTooLarge"],
    )


def tool_retry(timeouts: Timeouts) -> RetryPolicy:
    """A lost worker or a connection that failed before dispatch; the marker row decides what a new attempt may do."""
    return RetryPolicy(
        initial_interval=timedelta(seconds=timeouts.llm_backoff),
        maximum_attempts=timeouts.tool_attempts,
        non_retryable_error_types=["PayloadsTooLarge"],
    )


# Store writes are tried until the store is back: nothing is lost, the run waits.
STORE_RETRY = RetryPolicy(initial_interval=timedelta(milliseconds=200), maximum_interval=timedelta(seconds=5))
