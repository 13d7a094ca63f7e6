"""The client of the demo: JSON and server-sent events over HTTP, nothing an OpenAI client would not send."""

import contextlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Self

import httpx

from outlast.protocol import json
from outlast.protocol.json import JsonObject

_TIMEOUT_SECONDS = 60
_PATH = "/v1/responses"


@dataclass(frozen=True, slots=True)
class Frame:
    """One event as it came over the wire, and parsed."""

    raw: str
    data: JsonObject

    @property
    def type(self) -> str:
        """`response.output_text.delta` and the like."""
        return str(self.data["type"])

    @property
    def number(self) -> int:
        """Its `sequence_number`."""
        return int(self.data["sequence_number"])

    @property
    def response(self) -> JsonObject:
        """The Response object of a lifecycle event."""
        found: JsonObject = self.data["response"]
        return found


class Client:
    """Requests to one server; use `async with`."""

    def __init__(self, url: str) -> None:
        # A proxy of the environment has no business with our own loopback.
        self._http = httpx.AsyncClient(base_url=url, timeout=_TIMEOUT_SECONDS, trust_env=False)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.aclose()

    async def create(self, body: JsonObject) -> JsonObject:
        """POST /v1/responses, answered when the response ends. Raises: httpx.HTTPError."""
        return _object(await self._http.post(_PATH, json=body))

    async def response(self, response_id: str) -> JsonObject:
        """GET /v1/responses/{id}."""
        return _object(await self._http.get(f"{_PATH}/{response_id}"))

    async def pending(self) -> Sequence[JsonObject]:
        """GET /v1/approvals?status=pending."""
        found: list[JsonObject] = _object(await self._http.get("/v1/approvals?status=pending"))["data"]
        return found

    @contextlib.asynccontextmanager
    async def streamed(self, body: JsonObject) -> AsyncIterator[AsyncIterator[Frame]]:
        """POST /v1/responses with `stream: true`; leaving the block hangs up."""
        async with self._http.stream("POST", _PATH, json={**body, "stream": True}) as answer:
            answer.raise_for_status()
            yield _frames(answer)

    @contextlib.asynccontextmanager
    async def attached(self, response_id: str, *, after: int | None = None) -> AsyncIterator[AsyncIterator[Frame]]:
        """GET /v1/responses/{id}?stream=true, from the first event or from the one behind `after`."""
        query = "?stream=true" + ("" if after is None else f"&starting_after={after}")
        async with self._http.stream("GET", f"{_PATH}/{response_id}{query}") as answer:
            answer.raise_for_status()
            yield _frames(answer)

    async def replay(self, response_id: str) -> list[Frame]:
        """All events of a response that has ended."""
        async with self.attached(response_id) as frames:
            return [frame async for frame in frames]


def _object(answer: httpx.Response) -> JsonObject:
    answer.raise_for_status()
    found: JsonObject = answer.json()
    return found


async def _frames(answer: httpx.Response) -> AsyncIterator[Frame]:
    """Logged events only: a keepalive is not one, and `[DONE]` ends them."""
    async for line in answer.aiter_lines():
        raw = line.removeprefix("data: ")
        if raw == line or raw == "[DONE]":
            continue
        frame = Frame(raw, json.loads(raw))
        if frame.type != "keepalive":
            yield frame
