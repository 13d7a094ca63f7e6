"""What every activity shares: its ports, the heartbeat, the way a response ends."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Literal, Protocol, TypeVar

from pydantic import TypeAdapter
from temporalio import activity
from temporalio.service import RPCError

from outlast import contracts
from outlast.contracts import Mark
from outlast.loop.servers import Servers
from outlast.loop.state import Ended, Status
from outlast.mcp.base import McpPort
from outlast.protocol import building
from outlast.protocol.errors import OutlastError
from outlast.protocol.json import JsonObject
from outlast.protocol.responses import error_of, response_error
from outlast.protocol.usage import Usage
from outlast.store.base import CallRow, Ending, ResponseRecord, ResponseStatus
from outlast.store.port import Store
from outlast.upstream.base import Upstream

T = TypeVar("T")


class Models(Protocol):
    """Which server answers for a model name."""

    def resolve(self, model: str) -> tuple[Upstream, str]:
        """The upstream and the name it knows the model by. Raises: NotFound."""
        ...


@dataclass(frozen=True, slots=True)
class Deps:
    """The ports of the activities, composed in `worker.py`. `server_headers`: of configured servers, by URL; `servers`:
    what else their operator says of them."""

    store: Store
    models: Models
    mcp: McpPort
    server_headers: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    servers: Servers = field(default_factory=Servers)
    on_deadline: Literal["none", "deny", "fail"] = "none"
    clock: Callable[[], float] = time.time


def workflow_id() -> str:
    """The workflow this attempt works for; the store checks that it still owns the response."""
    found = activity.info().workflow_id
    if found is None:
        raise RuntimeError("an Outlast activity runs inside a workflow")
    return found


def decode(kind: type[T], outcome: JsonObject) -> T:
    """A step's outcome as it was committed."""
    return TypeAdapter(kind).validate_python(outcome)


def encode(outcome: object) -> JsonObject:
    """A dataclass outcome as the JSON a step is committed with."""
    return asdict(outcome)  # type: ignore[call-overload, no-any-return]  # every outcome is a dataclass


def ended_as(record: ResponseRecord | None) -> Ended:
    """How a response that is gone for this attempt ended; deleted ones count as cancelled."""
    if record is None or not record.ended:
        return Ended(Status.CANCELLED)
    return Ended(Status(record.status))


def call_item(row: CallRow) -> JsonObject:
    """A gateway call as it is announced, without its result; not of a hosted type."""
    return building.mcp_call_item(
        row.item_id, row.server_label or "", row.name, row.arguments, approval_request_id=row.approval_id
    )


def ending(ended: Ended, usage: Usage, now: float, *, error: JsonObject | None = None, park: bool = False) -> Ending:
    """The row an end becomes. `error`: of a failed one; without it one is made from the code."""
    status: ResponseStatus = ended.status.value
    if ended.status is Status.FAILED and error is None:
        kind = "invalid_request_error" if ended.code == "approval_expired" else "server_error"
        error = response_error(ended.code, _FAILED_TEXT.get(ended.code or "", _FAILED_DEFAULT), kind)
    return Ending(
        status=status,
        usage=usage,
        error=error,
        incomplete_details={"reason": ended.reason} if ended.reason else None,
        completed_at=int(now) if ended.status is Status.COMPLETED else None,
        park=park,
    )


def failure(error: OutlastError, usage: Usage) -> Ending:
    """The row of a response one of our errors ended; `http` in it is for the API alone and never public."""
    row = {
        **error_of(error),
        "http": {
            "status": error.http_status,
            "type": error.type,
            "param": error.param,
            "code": error.code,
            "retry_after": error.retry_after,
        },
    }
    return Ending(status="failed", usage=usage, error=row)


_FAILED_DEFAULT = (
    "The run could not be completed: a step was lost more often than it is tried. See the run in Temporal."
)
_FAILED_TEXT = {
    "approval_expired": "An approval was not given before its deadline. Send the request again.",
    "state_too_large": "The run grew past what one run may carry. Continue it with previous_response_id.",
}


async def server_headers(deps: Deps, tenant: str, url: str, secret_id: str | None) -> Mapping[str, str] | None:
    """Headers to speak to a server with; None when they were purged (the call must say so)."""
    configured = deps.server_headers.get(url, {})
    if secret_id is None:
        return configured
    sealed = await deps.store.secret(tenant, secret_id)
    return None if sealed is None else {**configured, **sealed}


@contextlib.asynccontextmanager
async def beating() -> AsyncIterator[None]:
    """Heartbeat every second: it is how a cancellation arrives and how a lost worker is noticed.

    Not at once: a first beat could report nothing that the start of the attempt has not, and costs a short one 1 ms.
    """

    async def beat() -> None:
        while True:
            await asyncio.sleep(1)
            activity.heartbeat()

    task = asyncio.create_task(beat())
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


class Progress:
    """Durable progress marks of a step that has run longer than a second: on a finished item, at most one a second.

    `tokens`: spent in the rounds before. `rounds`: how many the response may have; each gets its share of the signals a
    run may take, since no attempt knows what earlier rounds have sent.
    """

    def __init__(self, phase: str, number: int, tokens: int, rounds: int) -> None:
        self._phase, self._round, self._tokens = phase, number, tokens
        self._last = time.monotonic()
        self._left = max(1, contracts.MAX_PROGRESS_SIGNALS // rounds)
        self._items = 0

    async def item_done(self) -> None:
        """An item of the run completed. A signal that fails is ignored: the row knows."""
        self._items += 1
        now = time.monotonic()
        if now - self._last < 1 or not self._left:
            return
        self._last = now
        self._left -= 1
        handle = activity.client().get_workflow_handle(workflow_id())
        mark = Mark(self._phase, self._round, self._items, self._tokens)
        with contextlib.suppress(RPCError):
            await handle.signal(contracts.SIGNAL_PROGRESS, mark)
