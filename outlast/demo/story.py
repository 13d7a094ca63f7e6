"""The demo's story: four chapters that each happen, are read back from the outside, and are judged."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass

from outlast.demo import story_judges as judges
from outlast.demo.desk import ORDERS
from outlast.demo.model import MODEL
from outlast.demo.story_client import Client, Frame
from outlast.demo.story_judges import Cut, KilledLookup, KilledRefund, Waited
from outlast.demo.story_processes import World, open_world
from outlast.demo.story_report import Report
from outlast.protocol.json import JsonObject

_CHAPTER_SECONDS = 60
_DAMAGED, _ON_ITS_WAY, _RETURNED = 1042, 1043, 1044
_WORDS_BEFORE_THE_CUT = 5
_AWAY_SECONDS = 1
_LOOK_SECONDS = 0.1
_SILENCE = (
    "Temporal waits for the dead worker's heartbeat (due every second, given up after 10 s), then hands the step on"
)


@dataclass(frozen=True, slots=True)
class Death:
    """When a worker dies: the desk has done `tool` for the order and written it to `file`, and has not answered."""

    tool: str
    file: str
    order_id: int


async def tell(report: Report) -> None:
    """The whole story. What breaks it is reported as a failure; only a cancellation ends it early."""
    report.chapter("The world: a support desk, a scripted model, no key, nothing leaves this machine")
    with _reported(report, list):
        async with open_world(report) as world:
            with _reported(report, world.last_words):
                await _chapters(world, report)
    report.chapter("Where to look yourself")
    report.say(
        "`make run` keeps such a world up. In Temporal's UI (http://127.0.0.1:8233) every run is a workflow named"
    )
    report.say("after its first response; its steps are CallLlm, ExecuteTools and InterruptForApproval, a step whose")
    report.say("worker died shows attempt 2, and the query OutlastPendingApprovals > 0 finds who waits for a human.")


async def _chapters(world: World, report: Report) -> None:
    async with world.client() as client:
        for chapter in (refund, lookup, approval, cut):
            async with asyncio.timeout(_CHAPTER_SECONDS):
                await chapter(world, client, report)


async def refund(world: World, client: Client, report: Report) -> None:
    """An approved refund, its worker killed between the ledger and the answer."""
    report.chapter("1. Money moves, the worker dies before it can say so")
    first = await client.create(_ask(world, f"Refund order {_DAMAGED}", ask=True))
    request = next(item for item in first["output"] if item["type"] == "mcp_approval_request")
    report.say(f"user      Refund order {_DAMAGED}")
    report.say(f"model     wants {request['name']} {request['arguments']}; outlast asks and parks the run")
    report.say(f"run       {world.ui_url}/namespaces/default/workflows/{first['id']}")
    report.say("user      approves, in the next request of the conversation, and reads the stream")
    answer = {"type": "mcp_approval_response", "approval_request_id": request["id"], "approve": True}
    body = {"model": MODEL, "previous_response_id": first["id"], "input": [answer]}
    death = Death("refund_order", "ledger", _DAMAGED)
    pids, frames = await _killed(world, client, report, body, death)
    ended = await client.response(frames[0].response["id"])
    judges.refund(
        report,
        KilledRefund(
            ledger=world.written("ledger", _DAMAGED),
            response=ended,
            pids=pids,
            worked=await world.worker_pids(first["id"]),
            live=frames,
            replayed=await client.replay(ended["id"]),
        ),
    )


async def lookup(world: World, client: Client, report: Report) -> None:
    """A read-only call, its worker killed the same way."""
    report.chapter("2. The same death during a look-up, which may safely be repeated")
    report.say(f"user      Where is order {_ON_ITS_WAY}?")
    body = _ask(world, f"Where is order {_ON_ITS_WAY}?", ask=False)
    death = Death("lookup_order", "lookups", _ON_ITS_WAY)
    pids, frames = await _killed(world, client, report, body, death)
    ended = await client.response(frames[0].response["id"])
    judges.lookup(
        report,
        KilledLookup(
            lookups=world.written("lookups", _ON_ITS_WAY),
            order=ORDERS[_ON_ITS_WAY],
            response=ended,
            pids=pids,
            live=frames,
            replayed=await client.replay(ended["id"]),
        ),
    )


async def approval(world: World, client: Client, report: Report) -> None:
    """A run that waits for an operator in another shell."""
    report.chapter("3. A run that waits, and an operator with another shell")
    report.say(f"user      Refund order {_RETURNED}   (approval_mode: wait; the stream stays open)")
    body = _ask(world, f"Refund order {_RETURNED}", ask=True) | {"outlast": {"approval_mode": "wait"}}
    async with client.streamed(body) as events, asyncio.TaskGroup() as group:
        reading = group.create_task(_all(events))
        pending = await _pending(client)
        before = world.written("ledger", _RETURNED)
        await world.command("approvals", "list", "--url", world.api_url)
        said = await world.command("approvals", "approve", pending["id"], "--url", world.api_url)
        frames = await reading
    ended = await client.response(frames[0].response["id"])
    judges.approval(
        report,
        Waited(before=before, after=world.written("ledger", _RETURNED), approval=pending, said=said, response=ended),
    )


async def cut(world: World, client: Client, report: Report) -> None:
    """A stream cut in the middle of a text and picked up again."""
    report.chapter("4. A client that loses its connection in the middle of a sentence")
    report.say("user      Tell me a story, slowly   (the connection breaks after a few words)")
    body: JsonObject = {"model": MODEL, "input": "Tell me a story, slowly", "background": True}
    async with client.streamed(body) as events:
        before = await _some_words(events)
    report.say(
        f"read      {judges.text(before)!r} up to event {before[-1].number}; nobody listens for {_AWAY_SECONDS} s"
    )
    await asyncio.sleep(_AWAY_SECONDS)
    response_id = before[0].response["id"]
    status = (await client.response(response_id))["status"]
    report.say(f"GET       /v1/responses/{response_id}?stream=true&starting_after={before[-1].number}")
    async with client.attached(response_id, after=before[-1].number) as events:
        after = await _all(events)
    report.say(f"read      {judges.text(after)!r}")
    ended = await client.response(response_id)
    judges.cut(report, Cut(before, status, after, await client.replay(response_id), ended))


def _ask(world: World, text: str, *, ask: bool) -> JsonObject:
    never = {"tool_names": ["lookup_order"] if ask else ["lookup_order", "refund_order"]}
    desk = {"type": "mcp", "server_label": "desk", "server_url": world.desk_url, "require_approval": {"never": never}}
    return {"model": MODEL, "input": text, "tools": [desk]}


async def _killed(
    world: World, client: Client, report: Report, body: JsonObject, death: Death
) -> tuple[tuple[int, int], list[Frame]]:
    """Stream a request and kill its worker once the desk has written: (pid of the dead, of its successor), events."""
    with contextlib.ExitStack() as hold:
        # Before the request leaves: on a busy machine the tool has answered by the time the stream's headers are here.
        hold.enter_context(world.held(death.tool))
        async with client.streamed(body) as events, asyncio.TaskGroup() as group:
            reading = group.create_task(_all(events))
            await world.until_written(death.file, death.order_id)
            report.say(f"desk      {death.tool} is done and in {death.file}.jsonl; its answer is on the way")
            killed = await world.kill_worker()
            hold.close()
            async with report.waiting(_SILENCE):
                replaced = await world.start_worker()
                frames = await reading
    return (killed, replaced), frames


async def _all(events: AsyncIterator[Frame]) -> list[Frame]:
    return [event async for event in events]


async def _some_words(events: AsyncIterator[Frame]) -> list[Frame]:
    read: list[Frame] = []
    async for event in events:
        read.append(event)
        if sum(map(judges.is_text, read)) == _WORDS_BEFORE_THE_CUT:
            break
    return read


async def _pending(client: Client) -> JsonObject:
    """The ask, as soon as there is one."""
    while not (found := await client.pending()):  # noqa: ASYNC110  # another process asks
        await asyncio.sleep(_LOOK_SECONDS)
    return found[0]


@contextlib.contextmanager
def _reported(report: Report, logs: Callable[[], Sequence[str]]) -> Iterator[None]:
    """Whatever breaks the story inside is a failure of the demo, printed as one."""
    try:
        yield
    except* Exception as errors:  # noqa: BLE001  # the demo's outermost border, it reports
        report.broke("; ".join(f"{type(each).__name__}: {each}" for each in _leaves(errors)), logs())


def _leaves(group: BaseExceptionGroup[Exception]) -> Iterator[Exception]:
    for each in group.exceptions:
        if isinstance(each, BaseExceptionGroup):
            yield from _leaves(each)
        else:
            yield each
