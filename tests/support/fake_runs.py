"""A `RunsPort` without Temporal: it notes what it was told, and plays a part for a started or resumed response.

A part is a coroutine function of the response id; it writes to the store what activities would write. Parts are queued
with `play` and used in order, one per start or resume; without one `usual` is played, or nothing.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from api import views
from outlast.contracts import RunInput
from outlast.loop.approvals import fingerprint
from outlast.protocol import building, events, ids
from outlast.protocol.errors import OutlastError, Unavailable
from outlast.protocol.events import WireEvent
from outlast.protocol.json import JsonObject
from outlast.protocol.responses import error_of
from outlast.protocol.usage import Usage
from outlast.store.base import Approval, Begun, Commit, Ending, StepHandle
from outlast.store.port import Store

Part = Callable[[str], Awaitable[None]]
USAGE = Usage(input_tokens=3, output_tokens=2, total_tokens=5)


@dataclass
class FakeRuns:
    """What Temporal was asked. `up` False: it does not answer. `gone`: parked runs that no longer exist."""

    up: bool = True
    gone: bool = False
    started: list[tuple[str, RunInput]] = field(default_factory=list)
    resumed: list[tuple[str, str]] = field(default_factory=list)
    woken: list[tuple[str, str]] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)
    parts: list[Part] = field(default_factory=list)
    usual: Part | None = None
    tasks: list["asyncio.Task[None]"] = field(default_factory=list)

    def play(self, *parts: Part) -> None:
        """Queue parts for the next starts and resumes."""
        self.parts.extend(parts)

    async def start(self, run: RunInput, workflow_id: str) -> None:
        self._answer()
        self.started.append((workflow_id, run))
        self._perform(run.state.response_id)

    async def resume(self, workflow_id: str, response_id: str) -> bool:
        self._answer()
        if self.gone:
            return False
        self.resumed.append((workflow_id, response_id))
        self._perform(response_id)
        return True

    async def decided(self, workflow_id: str, approval_id: str) -> bool:
        self._answer()
        self.woken.append((workflow_id, approval_id))
        return True

    async def cancel(self, workflow_id: str) -> None:
        self._answer()
        self.cancelled.append(workflow_id)

    async def healthy(self) -> bool:
        return self.up

    async def settle(self) -> None:
        """Wait for the parts that run; a part's failure is the test's."""
        tasks, self.tasks = self.tasks, []
        await asyncio.gather(*tasks)

    def _answer(self) -> None:
        if not self.up:
            raise Unavailable("Temporal did not take the run. Try again.", retry_after=1)

    def _perform(self, response_id: str) -> None:
        part = self.parts.pop(0) if self.parts else self.usual
        if part is not None:
            self.tasks.append(asyncio.ensure_future(part(response_id)))


@dataclass(frozen=True)
class Activities:
    """What the activities would write, by hand."""

    store: Store
    tenant: str = "default"

    async def begin(self, response_id: str, step: str) -> StepHandle:
        """The step's handle."""
        begun = await self.store.begin(self.tenant, response_id, step, workflow_id=None)
        assert isinstance(begun, Begun)
        return begun.handle

    async def opening(self, handle: StepHandle) -> list[WireEvent]:
        """`in_progress` of a background response."""
        if handle.record.status != "queued":
            return []
        return [WireEvent(events.IN_PROGRESS, {"response": views.response_json(handle.record, ())})]

    async def say(self, response_id: str, text: str) -> None:
        """One model round with a message, finished in place."""
        handle = await self.begin(response_id, "llm:1")
        shown = [*await self.opening(handle), *message(text)]
        await self.finish(handle, shown, Ending("completed", usage=USAGE, completed_at=2))

    async def fail(self, response_id: str, error: OutlastError, shown: Sequence[WireEvent] = ()) -> None:
        """A run that ends with one of our errors."""
        handle = await self.begin(response_id, "llm:1")
        http = {"status": error.http_status, "param": error.param, "code": error.code, "type": error.type}
        row = {**error_of(error), "http": {**http, "retry_after": error.retry_after}}
        await self.finish(handle, shown, Ending("failed", error=row))

    async def ask(self, response_id: str, *asks: Approval) -> None:
        """The asks of a round: respond mode ends the response with them and parks, wait mode only writes them."""
        handle = await self.begin(response_id, "ask:1")
        if handle.record.mode == "wait":
            await self.store.append(handle, await self.opening(handle), Commit(approvals=asks, outcome={}))
            return
        shown = [event for ask in asks for event in building.approval_request_events(ask_item(ask))]
        ending = Ending("completed", usage=USAGE, completed_at=2, park=handle.record.store)
        await self.finish(handle, shown, ending, Commit(approvals=asks, outcome={}, ending=ending))

    async def finish(
        self, handle: StepHandle, shown: Sequence[WireEvent], ending: Ending, commit: Commit | None = None
    ) -> None:
        """The last commit of a response."""
        await self.store.finish(handle, shown, commit or Commit(outcome={}, ending=ending))


def approval(
    response_id: str, approval_id: str, ordinal: int = 0, *, url: str = "http://desk.test/mcp", mode: str = "respond"
) -> Approval:
    """An ask of a refund, as `InterruptForApproval` writes it."""
    arguments = '{"order_id":"1042"}'
    return Approval(
        tenant="default",
        id=approval_id,
        response_id=response_id,
        round=1,
        ordinal=ordinal,
        mode="wait" if mode == "wait" else "respond",
        item_id=ids.mint(ids.Prefix.MCP_CALL),
        call_id=f"call_{ordinal}",
        server_label="desk",
        server_url=url,
        name="refund_order",
        arguments=arguments,
        fingerprint=fingerprint(tenant="default", server=url, tool="refund_order", arguments=arguments, owner="local"),
        safe=False,
        created_at=1,
        listed_by=response_id,
        owner="local",
    )


def ask_item(ask: Approval) -> JsonObject:
    """Its public item."""
    return building.approval_request_item(ask.id, ask.server_label, ask.name, ask.arguments)


def message(text: str, item_id: str | None = None) -> list[WireEvent]:
    """A message, strictly nested."""
    item_id = item_id or ids.mint(ids.Prefix.MESSAGE)
    item: JsonObject = {"id": item_id, "type": "message", "role": "assistant", "status": "in_progress", "content": []}
    empty: JsonObject = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
    place: JsonObject = {"item_id": item_id, "content_index": 0}
    return [
        building.added(item),
        WireEvent(events.PART_ADDED, {**place, "part": empty}),
        WireEvent(events.TEXT_DELTA, {**place, "delta": text, "logprobs": []}),
        WireEvent(events.TEXT_DONE, {**place, "text": text, "logprobs": []}),
        WireEvent(events.PART_DONE, {**place, "part": {**empty, "text": text}}),
        building.done({**item, "status": "completed", "content": [{**empty, "text": text}]}),
    ]
