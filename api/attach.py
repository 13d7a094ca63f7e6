"""How a created response is answered: a stream, JSON once it has ended, or at once in the background.

All three are readers of one event log; the run is the same. The log is read while Temporal is asked to start the run,
so that its first events are not waited for twice.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass

from fastapi.responses import Response
from starlette.types import Receive

from api import sse, views
from api.errors import RESPONSE_ID_HEADER, Json, ResponseFailed
from api.include import sealed
from api.reader import Reader
from api.services import Services
from api.sse import EventStream, Tail
from outlast.protocol import hosted, json
from outlast.protocol.json import JsonObject
from outlast.store.base import ResponseRecord

WARNING_HEADER = "x-outlast-warning"
# Types of tools that it names.
_NAMED = 16

# For the access log: nobody reads the answer.
_CLIENT_GONE = 499


# An ended response as the client of this endpoint gets it.
Shape = Callable[[JsonObject], Awaitable[JsonObject]]


@dataclass(frozen=True, slots=True)
class Turn:
    """A response whose row is written. `launch` starts or wakes its run; it raises what the client is answered. None:
    another request has made it, and this client joins it from its first event."""

    record: ResponseRecord
    stream: bool
    launch: Callable[[], Awaitable[None]] | None

    async def begin(self) -> None:
        """Launch what is not running."""
        if self.launch is not None:
            await self.launch()


async def answer(turn: Turn, ports: Services, receive: Receive, *, shape: Shape | None = None) -> Response:
    """Launch the run and attach the client to it. `receive`: of the request, its body read; `shape`: makes the plain
    JSON answer of the ended response, while a response that is not stored is still there."""
    record = turn.record
    headers = {RESPONSE_ID_HEADER: record.id, **warning(record, ports)}
    if record.background and not turn.stream:
        await turn.begin()
        output = await _output(record, ports) if turn.launch is None else ()
        return Json(views.response_json(record, output), headers=headers)
    # From the first event also for JSON: the log's tail in memory begins there, a later start would read rows.
    tail = Tail(ports.store.follow(record.tenant, record.id, -1))
    reader = Reader(ports, record, made=turn.launch is not None)
    try:
        tail.reach()
        await turn.begin()
        if turn.stream:
            return await _stream(tail, reader, headers)
        result = await _unless_gone(_result(tail, reader), record, receive)
        if shape is not None and result is not None:
            result = await shape(result)
    except BaseException:
        await tail.aclose()
        await reader.leave()
        raise
    await tail.aclose()
    await reader.leave()
    return Response(status_code=_CLIENT_GONE) if result is None else Json(result, headers=headers)


def warning(record: ResponseRecord, ports: Services) -> dict[str, str]:
    """The header that says what of the request the model does not get to see."""
    kinds = dict.fromkeys(tool["type"] for tool in record.request.get("tools") or ())
    others = [
        kind for kind in kinds if kind not in ("function", "mcp") and hosted.key_of(kind) not in ports.servers.builtins
    ]
    if not others or ports.catalog.capabilities(record.model).native:
        return {}
    # Types are the client's words: a header takes printable ASCII only.
    named = ", ".join(ascii(kind)[1:-1][:64] for kind in others[:_NAMED])
    more = f" and {len(others) - _NAMED} more" if len(others) > _NAMED else ""
    return {WARNING_HEADER: f"tools left out: {named}{more}"}


async def _output(record: ResponseRecord, ports: Services) -> Sequence[JsonObject]:
    """What a response has come to, as its request wants to see it."""
    return await ports.store.output(record.tenant, record.id, sealed=sealed(record.request.get("include")))


async def _unless_gone(
    result: Coroutine[None, None, JsonObject], record: ResponseRecord, receive: Receive
) -> JsonObject | None:
    """The result; None when the client of a response that nobody stores leaves first. A stored one is finished."""
    if record.store:
        return await result
    work, gone = asyncio.create_task(result), asyncio.create_task(sse.disconnected(receive))
    try:
        await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
        return work.result() if work.done() else None
    finally:
        work.cancel()
        gone.cancel()
        await asyncio.wait({work, gone})


async def _stream(tail: Tail, reader: Reader, headers: dict[str, str]) -> Response:
    held = await sse.hold(tail)
    if sse.refused(held):
        await _raise_failed(reader)
    return EventStream(tail, held, left=reader.leave, headers=headers)


async def _result(tail: Tail, reader: Reader) -> JsonObject:
    """The terminal object. Raises: ResponseFailed when nothing was committed before the failure."""
    ended = None
    while ended is None:
        frames = await tail.take()
        ended = frames.data[-1] if frames is not None and frames.ended else None
    response: JsonObject = json.loads(ended[2])["response"]
    if response["status"] == "failed" and _untouched(response["output"]):
        await _raise_failed(reader)
    return response


def _untouched(output: Sequence[JsonObject]) -> bool:
    """No round and no tool call is committed; lists of tools and abandoned pieces are none, a retry repeats them."""
    return all(item["type"] == "mcp_list_tools" or item.get("status") == "incomplete" for item in output)


async def _raise_failed(reader: Reader) -> None:
    record = reader.record
    failed = await reader.ports.store.get(record.tenant, record.id)
    if failed is not None and failed.error is not None:
        raise ResponseFailed(record.id, failed.error)
