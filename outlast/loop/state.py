"""What a run knows between two steps, the steps there are, and what each step answers.

Only facts that fit into history live here: numbers, flags, ids and short codes, never content. A pending batch is a
round number and ordinals; call ids, names and arguments are rows (`tool_calls`, keyed response + round + ordinal).
Everything is a frozen dataclass with defaults, so a history written by an older build still decodes.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from outlast.protocol.usage import Usage

# Version of `next_step`/`absorb`. A change that alters a step for any state bumps it and keeps the old branch while
# runs that started under it are open.
RULES = 1

# The hard limit of a state on its way into history, checked where an activity is scheduled.
MAX_STATE_BYTES = 8_192
# Names of a batch that travel in the state for people, and as much of each; more would not fit into it.
_NAMED_CALLS = 32
_NAME_LENGTH = 80


class ApprovalMode(StrEnum):
    """How a run stops for a human."""

    RESPOND = "respond"
    WAIT = "wait"


class Status(StrEnum):
    """`status` of a response."""

    QUEUED = "queued"
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"
    FAILED = "failed"
    INCOMPLETE = "incomplete"
    CANCELLED = "cancelled"


class Phase(StrEnum):
    """What a run does next, coarse; `next_step` reads it together with the batch."""

    MODEL = "model"  # a model round is due
    TOOLS = "tools"  # the batch has calls to run
    ASK = "ask"  # the batch has open asks to write
    WAITING = "waiting"  # wait mode: the gate is open, decisions are due
    ENDING = "ending"  # nothing is left but to end
    ENDED = "ended"  # the terminal is committed


@dataclass(frozen=True, slots=True)
class Budgets:
    """Bounds of one response. `deadline`: unix seconds, compared with the time of the last outcome."""

    max_rounds: int = 64
    max_tool_calls: int = 128
    max_total_tokens: int | None = None
    deadline: float | None = None
    parallel: int = 8


@dataclass(frozen=True, slots=True)
class Batch:
    """Calls of one model round that still have something to come; ordinals in the model's order.

    Round 0 is what a continuation brings with it: approved calls to run, undecided asks to list again.
    """

    round: int = 0
    run: tuple[int, ...] = ()
    ask: tuple[int, ...] = ()
    client: bool = False
    # (ordinal, `label.tool`) for summaries in Temporal's UI; left empty when there are too many to carry.
    names: tuple[tuple[int, str], ...] = ()

    def name(self, ordinal: int) -> str:
        """`label.tool` of a call, for people."""
        return dict(self.names).get(ordinal, f"call {ordinal}")


def call_names(names: Sequence[tuple[int, str]]) -> tuple[tuple[int, str], ...]:
    """`Batch.names` of these calls: cut to a size that fits into the state, none when there are too many."""
    if len(names) > _NAMED_CALLS:
        return ()
    return tuple((ordinal, name[:_NAME_LENGTH]) for ordinal, name in names)


@dataclass(frozen=True, slots=True)
class Ended:
    """How a response ends or ended. `code`: of `response.error`, for failed ones."""

    status: Status
    reason: str | None = None
    code: str | None = None


@dataclass(frozen=True, slots=True)
class RunState:
    """One response in the loop. A resumed run gets a new state: numbers and budgets start at zero."""

    response_id: str
    mode: ApprovalMode = ApprovalMode.RESPOND
    rules: int = RULES
    phase: Phase = Phase.MODEL
    budgets: Budgets = field(default_factory=Budgets)
    round: int = 0
    tool_calls: int = 0
    usage: Usage = field(default_factory=Usage)
    batch: Batch = field(default_factory=Batch)
    bindings: str | None = None
    # Set when a call was refused for the cap: the next round is the last one and gets `tool_choice: none`.
    capped: bool = False
    now: float = 0.0
    ended: Ended | None = None
    # Seconds; None: an ask waits for ever.
    approval_deadline: float | None = None
    # The request asked for nothing but a compaction: its one round makes that.
    compacts: bool = False


class ToolChoice(StrEnum):
    """Which `tool_choice` a round gets."""

    GIVEN = "given"  # the request's, in round one
    AUTO = "auto"  # later rounds: a forced choice would never end
    NONE = "none"  # the round after the cap


@dataclass(frozen=True, slots=True)
class CallLlm:
    """One model round."""

    round: int
    tool_choice: ToolChoice


@dataclass(frozen=True, slots=True)
class ExecuteTools:
    """Run these calls, at most `parallel` at once."""

    round: int
    ordinals: tuple[int, ...]
    parallel: int


@dataclass(frozen=True, slots=True)
class InterruptForApproval:
    """Write and show these asks; respond mode ends the response with them, wait mode opens the gate."""

    round: int
    ordinals: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Finish:
    """End the response."""

    ended: Ended


Step = CallLlm | ExecuteTools | InterruptForApproval | Finish


@dataclass(frozen=True, slots=True)
class LlmOutcome:
    """What a model round brought, by ordinals of its calls.

    `refused`: calls that ended failed at once (cap, arguments that are no JSON, vanished tool). `hosted`: calls the
    model server ran itself. `produced`: the round has text for the user. `finished`: the round committed the response's
    end itself (finish in place).
    """

    usage: Usage = field(default_factory=Usage)
    run: tuple[int, ...] = ()
    ask: tuple[int, ...] = ()
    client: bool = False
    refused: int = 0
    over_cap: bool = False
    hosted: int = 0
    produced: bool = False
    incomplete: str | None = None
    bindings: str | None = None
    names: tuple[tuple[int, str], ...] = ()
    at: float = 0.0
    finished: Ended | None = None


@dataclass(frozen=True, slots=True)
class ToolsOutcome:
    """The batch ran; results are rows."""

    at: float = 0.0
    # Set when the response ended under the batch (cancelled, deleted).
    finished: Ended | None = None


@dataclass(frozen=True, slots=True)
class AskOutcome:
    """The asks are written. `finished`: the response ended, in respond mode with them."""

    at: float = 0.0
    finished: Ended | None = None
    parked: bool = False


@dataclass(frozen=True, slots=True)
class GateOutcome:
    """Wait mode: every ask of the batch is decided. `approved`: ordinals to run; `failed`: a deadline said so."""

    approved: tuple[int, ...] = ()
    failed: bool = False
    at: float = 0.0


@dataclass(frozen=True, slots=True)
class FinishOutcome:
    """The end is committed, by us or by whoever was first."""

    ended: Ended


Outcome = LlmOutcome | ToolsOutcome | AskOutcome | GateOutcome | FinishOutcome
