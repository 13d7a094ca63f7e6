"""How a created response is answered: a stream, JSON once it has ended, or at once in the background.

All three are readers of one event log; the run is the same. The log is read while Temporal is asked to start the run,
so that its first events are not waited for twice.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from fastapi.responses import Response

from api import sse, views
from api.errors import RESPONSE_ID_HEADER, Json, ResponseFailed
from api.reader import Reader
from api.services import Services
from api.sse import EventStream, Tail
from outlast.protocol import json
from outlast.protocol.json import JsonObject
from outlast.store.base import ResponseRecord


@dataclass(frozen=True, slots=True)
class Turn:
    """A response whose row is written. `launch` starts or wakes its run; it raises what the client is answered."""

    record: ResponseRecord
    stream: bool
    launch: Callable[[], Awaitable[None]]


async def answer(turn: Turn, ports: Services) -> Response:
    """Launch the run and attach the client to it."""
    record = turn.record
    headers = {RESPONSE_ID_HEADER: record.id}
    if record.background and not turn.stream:
        await turn.launch()
        return Json(views.response_json(record, ()), headers=headers)
    # From the first event also for JSON: the log's tail in memory begins there, a later start would read rows.
    tail = Tail(ports.store.follow(record.tenant, record.id, -1))
    reader = Reader(ports, record)
    try:
        tail.reach()
        await turn.launch()
        if turn.stream:
            return await _stream(tail, reader, headers)
        result = await _result(tail, reader)
    except BaseException:
        await tail.aclose()
        await reader.leave()
        raise
    await tail.aclose()
    await reader.leave()
    return Json(result, headers=headers)


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
