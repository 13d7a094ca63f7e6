"""An API in this process, workers in processes of their own, a counting model and a counting MCP server."""

import asyncio
import contextlib
import functools
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
from openai import AsyncStream
from openai.types.responses import ResponseStreamEvent
from temporalio.api.enums.v1 import EventType

from outlast import processes
from outlast.contracts import Timeouts
from outlast.demo.serving import running
from outlast.protocol.json import JsonObject
from outlast.settings import Settings
from tests.chaos.lost import until
from tests.chaos.model import CountingModel
from tests.support import stack
from tests.support.api_client import hanging_up
from tests.support.mcp_server import McpTestServer, Tool, mcp_server
from tests.support.stack import Process

# A lost worker is noticed after `heartbeat`, a lost `InterruptForApproval` after `ask`.
TIMEOUTS = Timeouts(heartbeat=3, ask=2, llm_backoff=0.1)
PAID = "Paid bill 17."
METER = "The meter shows 4211."
TOOLS = {
    "pay_bill": Tool(lambda _: PAID, "Pay a bill. Money moves."),
    "read_meter": Tool(lambda _: METER, "Read the meter.", annotations={"readOnlyHint": True}),
}
TERMINAL = ("response.completed", "response.failed", "response.incomplete")


@dataclass
class World:
    """One Outlast. `worker()` starts a worker process of it; they are killed at the end."""

    given: Settings
    served: stack.Outlast
    model: CountingModel
    mcp: McpTestServer
    # Starts a worker in this process.
    work: Callable[[], Awaitable[None]]
    _workers: list[Process] = field(default_factory=list)

    async def worker(self, fail_point: str | None = None) -> Process:
        """A worker process; returns at once."""
        process = await Process.start("worker", self.given, fail_point=fail_point)
        self._workers.append(process)
        return process

    def office(self, *tools: str, approval: str = "never") -> JsonObject:
        """The declaration of the MCP server with some of its tools."""
        return {
            "type": "mcp",
            "server_label": "office",
            "server_url": self.mcp.url,
            "allowed_tools": list(tools),
            "require_approval": approval,
        }

    async def start(
        self, text: str, *tools: JsonObject, until: str = "response.created", **more: object
    ) -> list[JsonObject]:
        """Stream a background response up to the first event of this type, then hang up; what was read."""
        return await self._created({"input": text, "tools": list(tools), **more}, (until,))

    async def rest(self, begun: list[JsonObject]) -> list[JsonObject]:
        """Attach again where the client hung up; everything it has read in the end."""
        response_id, last = begun[0]["response"]["id"], begun[-1]["sequence_number"]
        streamed = await self.served.client.responses.retrieve(response_id, stream=True, starting_after=last)
        return begun + await _read(streamed, TERMINAL)

    async def continued(self, asked: JsonObject, *, until: str | None = None) -> list[JsonObject]:
        """Approve the one ask of a response; the stream of the continuation, whole or up to the first of this type."""
        answer = {"type": "mcp_approval_response", "approval_request_id": ask_of(asked)["id"], "approve": True}
        body = {"input": [answer], "previous_response_id": asked["id"]}
        return await self._created(body, TERMINAL if until is None else (until,))

    async def approvals(self) -> list[JsonObject]:
        """Every ask there is, oldest first."""
        async with httpx.AsyncClient() as http:
            answer = await http.get(f"{self.served.url}/v1/approvals")
        found: list[JsonObject] = answer.raise_for_status().json()["data"]
        return found

    async def decide(self, approval_id: str, *, approve: bool) -> None:
        """Decide an ask out of band."""
        async with httpx.AsyncClient() as http:
            answer = await http.post(f"{self.served.url}/v1/approvals/{approval_id}", json={"approve": approve})
        answer.raise_for_status()

    async def until_asked(self) -> list[JsonObject]:
        """Wait for the first ask."""

        async def asked() -> bool:
            return bool(await self.approvals())

        await until(asked)
        return await self.approvals()

    async def until_parked(self, workflow_id: str) -> None:
        """Wait until Temporal knows that the run has parked."""

        async def known() -> bool:
            history = await self.served.ports.client.get_workflow_handle(workflow_id).fetch_history()
            ended = [e.event_id for e in history.events if e.HasField("activity_task_completed_event_attributes")]
            worked = [e.event_id for e in history.events if e.HasField("workflow_task_completed_event_attributes")]
            return len(ended) == 2 and worked[-1] > ended[-1]

        await until(known)

    async def _created(self, body: JsonObject, until: Sequence[str]) -> list[JsonObject]:
        create = self.served.client.responses.create
        return await _read(await create(model="clerk", background=True, stream=True, extra_body=body), until)

    async def workers_of(self, workflow_id: str) -> set[int]:
        """Pids of the workers that completed a part of this run, as Temporal's history names them.

        A client sees the end before Temporal does (finish in place), so the second one is waited for.
        """
        handle = self.served.ports.client.get_workflow_handle(workflow_id)
        pids: set[int] = set()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(20):
                while len(pids) < 2:  # Temporal tells nobody
                    history = await handle.fetch_history()
                    pids = {int(pid) for pid in re.findall(r"outlast-(\d+)@", str(history.events))}
                    await asyncio.sleep(0.1)
        return pids

    async def activities_of(self, workflow_id: str) -> list[str]:
        """Types of the run's activities, in the order they were scheduled."""
        history = await self.served.ports.client.get_workflow_handle(workflow_id).fetch_history()
        names = [event.activity_task_scheduled_event_attributes.activity_type.name for event in history.events]
        return [name for name in names if name]

    async def failures_of(self, workflow_id: str) -> list[str]:
        """Activities of the run that Temporal has given up on."""
        history = await self.served.ports.client.get_workflow_handle(workflow_id).fetch_history()
        given_up = (EventType.EVENT_TYPE_ACTIVITY_TASK_FAILED, EventType.EVENT_TYPE_ACTIVITY_TASK_TIMED_OUT)
        return [str(event) for event in history.events if event.event_type in given_up]

    async def close(self) -> None:
        """Kill the workers; let no server wait for them."""
        self.model.release()
        self.mcp.released.set()
        for process in self._workers:
            await process.kill()


@asynccontextmanager
async def world(folder: Path, temporal: str, *, word_delay: float = 0.0) -> AsyncIterator[World]:
    """Everything on free ports and a queue of its own; no worker yet."""
    async with AsyncExitStack() as open_now:
        model = CountingModel(word_delay)
        upstream = await open_now.enter_async_context(running(model))
        server = await open_now.enter_async_context(mcp_server(TOOLS))
        plain = stack.settings(folder, temporal, upstream=f"{upstream}/v1")
        given = Settings.model_validate({**plain.model_dump(), "mcp": {"servers": _bound(server.url)}})
        served = await open_now.enter_async_context(stack.outlast(given, work=False, desk=False, timeouts=TIMEOUTS))
        made = World(given, served, model, server, functools.partial(processes.work, served.ports, open_now))
        open_now.push_async_callback(made.close)
        yield made


def _bound(url: str) -> JsonObject:
    """Hosted types that run on the unsafe and on the safe tool."""
    tools = {"code_interpreter": "pay_bill", "web_search": "read_meter"}
    return {kind: {"url": url, "builtin_type": kind, "builtin_tool_name": tool} for kind, tool in tools.items()}


async def _read(streamed: AsyncStream[ResponseStreamEvent], until: Sequence[str]) -> list[JsonObject]:
    """Events up to the first of these types."""
    frames: list[JsonObject] = []
    async with hanging_up(streamed):
        async for event in streamed:
            if event.type == "keepalive":  # type: ignore[comparison-overlap]  # ours, the SDK does not know it
                continue
            frames.append(event.to_dict())
            if event.type in until:
                return frames
    raise AssertionError(f"the stream ended before {until}: {[frame['type'] for frame in frames]}")


def whole(frames: list[JsonObject]) -> JsonObject:
    """The terminal response of a stream without gap, repeat or lie: what was announced is what it holds."""
    assert [frame["sequence_number"] for frame in frames] == list(range(len(frames)))
    kinds = [frame["type"] for frame in frames]
    assert kinds.count("response.created") == 1
    assert [kind for kind in kinds if kind in TERMINAL] == [kinds[-1]]
    response: JsonObject = frames[-1]["response"]
    announced = {f["output_index"]: f["item"]["id"] for f in frames if f["type"] == "response.output_item.added"}
    assert announced == {index: item["id"] for index, item in enumerate(response["output"])}
    done = {f["output_index"]: f["item"] for f in frames if f["type"] == "response.output_item.done"}
    assert done == dict(enumerate(response["output"]))
    return response


def deltas(frames: list[JsonObject], item_id: str) -> str:
    """The text a client has put together for an item."""
    return "".join(f["delta"] for f in frames if f["type"] == "response.output_text.delta" and f["item_id"] == item_id)


def text_of(response: JsonObject) -> str:
    """`output_text` of a response."""
    return "".join(part["text"] for item in response["output"] if item["type"] == "message" for part in item["content"])


def items(response: JsonObject, kind: str) -> list[JsonObject]:
    """Output items of a type."""
    return [item for item in response["output"] if item["type"] == kind]


def ask_of(response: JsonObject) -> JsonObject:
    """The one approval request of a response."""
    (asked,) = items(response, "mcp_approval_request")
    return asked


def told(model: CountingModel) -> list[str]:
    """Outputs of calls the newest model request brought."""
    return [item["output"] for item in model.requests[-1]["input"] if item.get("type") == "function_call_output"]
