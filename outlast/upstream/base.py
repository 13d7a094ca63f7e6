"""The port to a model server: what a dialect is given and what it gives back.

A dialect translates, nothing more: it meets only prepared items (another type raises), decides nothing about tools,
and yields Responses-shaped `WireEvent`s, so the assembler knows one currency.
"""

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Protocol

from outlast.protocol.events import WireEvent
from outlast.protocol.items import PreparedItem
from outlast.protocol.json import JsonObject


@dataclass(frozen=True, slots=True)
class ModelTool:
    """A function as the model sees it; gateway tools arrive here under their internal name."""

    name: str
    description: str | None
    parameters: JsonObject | None
    strict: bool | None = None
    # Fields of it that only the Responses API has (`defer_loading`, …).
    more: JsonObject | None = None


@dataclass(frozen=True, slots=True)
class Round:
    """One model round, dialect-free. Values the client did not give are None and are not sent."""

    model: str
    transcript: Sequence[PreparedItem]
    instructions: str | None = None
    tools: Sequence[ModelTool] = ()
    # Tools of other types as the client sent them, for servers whose capabilities say `native`.
    native: Sequence[JsonObject] = ()
    # "none" | "auto" | "required" | {"type": "function", "name": …} | {"type": "allowed_tools", "mode", "tools"}, and
    # with native tools a choice of one of them.
    tool_choice: str | JsonObject | None = None
    parallel_tool_calls: bool | None = None
    max_output_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_logprobs: int | None = None
    reasoning: JsonObject | None = None
    text: JsonObject | None = None
    include: Sequence[str] = ()
    # What is left of it; given only with native tools that the server runs itself.
    max_tool_calls: int | None = None
    # The round is to be nothing but the server's own compaction; only for one that makes them.
    compacts: bool = False
    # What is passed on as it came: service_tier, prompt_cache_key, safety_identifier, user, truncation, penalties …
    extra: JsonObject | None = None


@dataclass(frozen=True, slots=True)
class UpstreamRequest:
    """An HTTP request ready to be sent: path below the base URL and JSON body."""

    path: str
    body: bytes


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Seconds: to the first event, between two, and for the whole round."""

    first: float
    idle: float
    total: float


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What the server behind a dialect can read."""

    images: bool = True
    # An OpenAI server: encrypted reasoning is its own and goes back byte for byte (behaviour.md §2.1).
    encrypted_reasoning: bool = False
    # It speaks the Responses API itself: tools and items of its other types go to it as they came.
    native: bool = False


class Upstream(Protocol):
    """One configured model server."""

    @property
    def capabilities(self) -> Capabilities:
        """What `prepare_transcript` may leave in."""
        ...

    def build(self, round: Round) -> UpstreamRequest:
        """The request of a round. Raises: TypeError for an unprepared item."""
        ...

    def stream(self, request: UpstreamRequest, timeouts: Timeouts) -> AsyncGenerator[Sequence[WireEvent]]:
        """Batches of events as they arrive (all that one read brought), ending after the terminal event.

        Lifecycle events of the upstream are included (`response.completed` carries `usage`); the assembler drops them.
        Raises: UpstreamRefused, UpstreamAuth, UpstreamRateLimited, UpstreamUnavailable (also for a cut stream).
        """
        ...

    async def count(self, round: Round) -> int | None:
        """Input tokens of a round as the server counts them; None when it has no way to. Raises: as `stream`."""
        ...

    async def models(self) -> list[str]:
        """Names of `GET /models`. Raises: as `stream`."""
        ...

    async def aclose(self) -> None:
        """Close the connections."""
        ...
