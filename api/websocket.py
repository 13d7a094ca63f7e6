"""WebSocket mode of `/v1/responses`: the same runs and the same event log, events as text messages.

* One response at a time per lane (`stream_id`; without one: the connection's own lane), in the order asked; lanes run
  side by side.
* The newest response of a lane stays with the connection, so that `store: false` chains work on it: its rows are purged
  when the next one takes its place, or with the connection. Another connection, or another replica, answers
  `previous_response_not_found`. A continuation that fails forgets what it continued.
* A connection that is lost leaves stored responses running and ends the others, as over HTTP.
* After an hour the connection ends with `websocket_connection_limit_reached`, as the API documents.
"""

import asyncio
import contextlib
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field

from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from api import attach, create, websocket_frames
from api.attach import Turn
from api.deps import Principal
from api.liveness import Liveness
from api.reader import Reader
from api.services import Services
from api.sse import KEEPALIVE_SECONDS, Tail
from api.websocket_frames import Create, Steer
from outlast.protocol import events, json, requests
from outlast.protocol.errors import ErrorBody, InternalError, InvalidRequest, OutlastError
from outlast.store.base import Ending, ResponseRecord

LIFETIME_SECONDS = 3600.0
# Requests that wait for their turn, over all lanes, and lanes; of one connection.
_MAX_WAITING = 64
_MAX_LANES = 32
_GOING_AWAY = 1001

_LIMIT = ErrorBody(
    message="This connection has lived for 60 minutes: open a new one and go on there.",
    type="invalid_request_error",
    param=None,
    code="websocket_connection_limit_reached",
)

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Lane:
    name: str | None
    asked: asyncio.Queue[Create] = field(default_factory=asyncio.Queue)
    # Its newest response, if nobody stores it: attached, so that it is kept.
    newest: Reader | None = None
    # The last number sent: a keep-alive repeats it.
    last: int = 0
    task: "asyncio.Task[None] | None" = None


class Connection:
    """One client. `serve` returns when it is gone."""

    def __init__(self, socket: WebSocket, caller: Principal, ports: Services, alive: Liveness) -> None:
        self._socket = socket
        self._caller = caller
        self._ports = ports
        self._alive = alive
        self._lanes: dict[str | None, _Lane] = {}

    async def serve(self) -> None:
        """Take requests until the client leaves or the connection has lived its hour."""
        await self._socket.accept()
        try:
            async with asyncio.timeout(LIFETIME_SECONDS):
                await self._read()
        except TimeoutError:
            await self._send(websocket_frames.error_frame(400, _LIMIT, None))
        finally:
            tasks = [lane.task for lane in self._lanes.values() if lane.task is not None]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for lane in self._lanes.values():
                await self._drop(lane)
        if self._socket.client_state is WebSocketState.CONNECTED:
            await self._socket.close(_GOING_AWAY)

    async def _read(self) -> None:
        while (message := await self._socket.receive())["type"] != "websocket.disconnect":
            text = message.get("text")
            await self._take(text.encode() if text is not None else message["bytes"])

    async def _take(self, raw: bytes) -> None:
        name: str | None = None
        try:
            frame = requests.load(raw, self._ports.limits)
            name = websocket_frames.lane(frame)
            match websocket_frames.read(frame):
                case Create() as wanted:
                    self._queue(wanted)
                case Steer() as steer:
                    await self._send(websocket_frames.steer_refused(steer))
        except OutlastError as error:
            await self._refuse(error, name)

    def _queue(self, wanted: Create) -> None:
        lane = self._lanes.get(wanted.lane)
        if lane is None:
            if len(self._lanes) >= _MAX_LANES:
                raise InvalidRequest(f"At most {_MAX_LANES} lanes ('stream_id') are allowed.", param="stream_id")
            lane = self._lanes[wanted.lane] = _Lane(wanted.lane)
            lane.task = asyncio.create_task(self._work(lane))
        if sum(each.asked.qsize() for each in self._lanes.values()) >= _MAX_WAITING:
            raise InvalidRequest(f"At most {_MAX_WAITING} requests of a connection may wait for those that run.")
        lane.asked.put_nowait(wanted)

    async def _work(self, lane: _Lane) -> None:
        while True:
            wanted = await lane.asked.get()
            try:
                await self._turn(lane, wanted)
            except OutlastError as error:
                await self._forget(wanted.previous)
                await self._refuse(error, lane.name)
            except Exception:  # noqa: BLE001  # a bug must not end the lane without a word
                _log.exception("a WebSocket request of %s failed", self._caller.key_id)
                await self._forget(wanted.previous)
                await self._refuse(InternalError("Internal error; the server's log says more."), lane.name)

    # -- one response ------------------------------------------------------------------------------------------------

    async def _turn(self, lane: _Lane, wanted: Create) -> None:
        held = self._held(wanted)
        turn = await create.create(
            json.dumps(wanted.body),
            self._caller,
            self._ports,
            self._alive,
            held=held,
            prepares=not wanted.generate,
        )
        record = turn.record
        tail = Tail(self._ports.store.follow(record.tenant, record.id, -1))
        reader = Reader(self._ports, record, made=True)
        try:
            tail.reach()
            await (turn.begin() if wanted.generate else self._prepare_only(turn))
            if await self._deliver(tail, lane, attach.warning(record, self._ports)) == events.FAILED:
                await self._forget(wanted.previous)
            else:
                await self._drop(lane)
                lane.newest = None if record.store else reader
        finally:
            await tail.aclose()
            if lane.newest is not reader:
                await reader.leave()

    async def _prepare_only(self, turn: Turn) -> None:
        record = turn.record
        ending = Ending("completed", completed_at=int(self._ports.clock()))
        await self._ports.store.end(record.tenant, record.id, ending)

    async def _deliver(self, tail: Tail, lane: _Lane, headers: Mapping[str, str]) -> str:
        """Send the log as it grows; the type of the terminal event. `headers`: of the answer, were it one of HTTP."""
        while True:
            frames = await tail.take(KEEPALIVE_SECONDS)
            if frames is None:
                alive = {"type": events.KEEPALIVE, "sequence_number": lane.last}
                await self._send(websocket_frames.in_lane(json.dumps(alive), lane.name))
                continue
            for number, kind, data in frames.data:
                lane.last = number
                said = headers if kind == events.CREATED else {}
                await self._send(websocket_frames.in_lane(data, lane.name, said))
            if frames.ended:
                return frames.data[-1][1]

    # -- what the connection knows -----------------------------------------------------------------------------------

    def _held(self, wanted: Create) -> ResponseRecord | None:
        """What the request continues, if only this connection has it. Raises: InvalidRequest."""
        known = [lane.newest.record for lane in self._lanes.values() if lane.newest is not None]
        held = next((record for record in known if record.id == wanted.previous), None)
        if held is not None and wanted.body.get("store") is not False:
            raise InvalidRequest(
                f"Response '{held.id}' is not stored: continue it with 'store: false', or send its items.",
                param="store",
            )
        return held

    async def _forget(self, response_id: object) -> None:
        for lane in self._lanes.values():
            if lane.newest is not None and lane.newest.record.id == response_id:
                await self._drop(lane)

    async def _drop(self, lane: _Lane) -> None:
        newest, lane.newest = lane.newest, None
        if newest is not None:
            await newest.leave()

    # -- the wire ----------------------------------------------------------------------------------------------------

    async def _refuse(self, error: OutlastError, lane: str | None) -> None:
        await self._send(websocket_frames.error_frame(error.http_status, error.body(), lane))

    async def _send(self, text: str) -> None:
        """Nothing, when the client is gone: `_read` hears of it and ends the lanes."""
        if self._socket.application_state is WebSocketState.CONNECTED:
            with contextlib.suppress(WebSocketDisconnect):
                await self._socket.send_text(text)
