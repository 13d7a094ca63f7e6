"""The server under test, over plain HTTP: what is sent and seen is the wire, not a client's idea of it."""

import contextlib
import json as plain_json
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import httpx

from outlast.conformance.tool_server import ToolServer
from outlast.protocol.json import JsonObject

TERMINAL = ("response.completed", "response.failed", "response.incomplete")


@dataclass(frozen=True, slots=True)
class Answer:
    """An HTTP answer. `body`: its JSON, None when it is none."""

    status: int
    headers: Mapping[str, str]
    body: Any

    @property
    def error(self) -> JsonObject:
        """`error` of the envelope, empty when there is none."""
        found = self.body.get("error") if isinstance(self.body, dict) else None
        return found if isinstance(found, dict) else {}

    def __str__(self) -> str:
        return f"HTTP {self.status} {plain_json.dumps(self.body)[:300]}"


@dataclass(frozen=True, slots=True)
class Frame:
    """One server-sent event. `name`: of its `event:` line; `raw`: its bytes."""

    name: str | None
    data: JsonObject
    raw: bytes

    @property
    def type(self) -> str:
        """`type` of the data."""
        return str(self.data.get("type"))


@dataclass(frozen=True, slots=True)
class Stream:
    """A whole event stream. `done`: how many `[DONE]` there were; `after_done`: frames behind the first of them."""

    status: int
    headers: Mapping[str, str]
    frames: Sequence[Frame]
    done: int
    after_done: int
    body: Any = None

    @property
    def types(self) -> list[str]:
        """Types in order."""
        return [frame.type for frame in self.frames]

    @property
    def last(self) -> JsonObject:
        """The Response of the last event, empty when it has none."""
        found = self.frames[-1].data.get("response") if self.frames else None
        return found if isinstance(found, dict) else {}

    def of(self, kind: str) -> list[JsonObject]:
        """Data of all events of a type."""
        return [frame.data for frame in self.frames if frame.type == kind]


class Target:
    """One server: where it is, the model to ask, and tools that count. `base_url` ends in `/v1`."""

    def __init__(self, http: httpx.AsyncClient, base_url: str, model: str, tools: ToolServer) -> None:
        self.http = http
        self.base_url = base_url
        self.model = model
        self.tools = tools
        self._made: set[str] = set()

    async def forget(self) -> None:
        """Delete what the checks made: open questions would stay in the inbox of the server's operators."""
        for response_id in self._made:
            with contextlib.suppress(httpx.HTTPError):
                await self.http.delete(f"{self.base_url}/responses/{response_id}")

    async def send(self, method: str, path: str, body: object = None, **options: Any) -> Answer:
        """Any request; `content=` sends bytes as they are."""
        if body is not None:
            options["json"] = body
        answer = await self.http.request(method, f"{self.base_url}{path}", **options)
        found = _json(answer.content)
        if method == "POST" and isinstance(found, dict):
            self._note(found.get("id"))
        return Answer(answer.status_code, answer.headers, found)

    async def get(self, path: str, **query: Any) -> Answer:
        """GET with query parameters."""
        return await self.send("GET", path, params=query)

    async def create(self, given: object = "Say hello.", **fields: Any) -> Answer:
        """POST /responses as JSON."""
        return await self.send("POST", "/responses", {"model": self.model, "input": given, **fields})

    async def stream(self, given: object = "Say hello.", **fields: Any) -> Stream:
        """POST /responses as a stream, read to its end."""
        body = {"model": self.model, "input": given, "stream": True, **fields}
        return await self._read("POST", "/responses", json=body)

    async def replay(self, response_id: str, after: int | None = None) -> Stream:
        """GET /responses/{id}?stream=true, read to its end."""
        query = {"stream": "true", **({} if after is None else {"starting_after": str(after)})}
        return await self._read("GET", f"/responses/{response_id}", params=query)

    async def frames(self, given: object, **fields: Any) -> AsyncIterator[Frame]:
        """A stream as it comes; close it to hang up."""
        body = {"model": self.model, "input": given, "stream": True, **fields}
        async with self.http.stream("POST", f"{self.base_url}/responses", json=body) as answer:
            async for block in _blocks(answer.aiter_bytes()):
                if (frame := _frame(block)) is not None:
                    self._note((frame.data.get("response") or {}).get("id"))
                    yield frame

    def _note(self, response_id: object) -> None:
        if isinstance(response_id, str) and response_id.startswith("resp_"):
            self._made.add(response_id)

    async def _read(self, method: str, path: str, **options: Any) -> Stream:
        async with self.http.stream(method, f"{self.base_url}{path}", **options) as answer:
            if not answer.headers.get("content-type", "").startswith("text/event-stream"):
                return Stream(answer.status_code, answer.headers, [], 0, 0, _json(await answer.aread()))
            frames: list[Frame] = []
            done = after_done = 0
            async for block in _blocks(answer.aiter_bytes()):
                if block.strip() == b"data: [DONE]":
                    done += 1
                elif (frame := _frame(block)) is not None:
                    frames.append(frame)
                    self._note((frame.data.get("response") or {}).get("id"))
                    after_done += bool(done)
            return Stream(answer.status_code, answer.headers, frames, done, after_done)


def _json(raw: bytes) -> Any:
    try:
        return plain_json.loads(raw)
    except ValueError:
        return None


async def _blocks(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Events of a stream, without the blank line behind each."""
    held = b""
    async for chunk in chunks:
        held = (held + chunk).replace(b"\r\n", b"\n")
        *whole, held = held.split(b"\n\n")
        for block in whole:
            yield block


def _frame(block: bytes) -> Frame | None:
    """A frame; None for comments and keep-alives, which are the connection's, not the response's."""
    name: str | None = None
    data: list[str] = []
    for line in block.decode(errors="replace").split("\n"):
        field, _, value = line.partition(":")
        if field == "event":
            name = value.strip()
        elif field == "data":
            data.append(value.strip())
    found = _json("\n".join(data).encode()) if data else None
    if not isinstance(found, dict) or found.get("type") == "keepalive":
        return None
    return Frame(name, found, block)
