"""The port to MCP servers: list and call, with every failure as a value.

A tool's failure never kills a run (behaviour.md §1): `call` returns an outcome for everything that happened after
dispatch and raises only when the call surely was not dispatched.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from outlast.protocol.json import JsonObject


@dataclass(frozen=True, slots=True)
class ServerRef:
    """Where a server is and as whom we speak to it. `headers` are secrets: never logged, never in a repr."""

    label: str
    url: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class Annotations:
    """Hints of a listing we made; what a server does not say is None."""

    read_only: bool | None = None
    idempotent: bool | None = None
    destructive: bool | None = None


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """One tool as listed; `raw_annotations` go into the public item as they came (None: the key is left out)."""

    name: str
    description: str | None
    input_schema: JsonObject
    annotations: Annotations
    raw_annotations: JsonObject | None = None


@dataclass(frozen=True, slots=True)
class ImageBlock:
    """An image a tool returned, never text for the model; in the text stands a note for it."""

    data: bytes
    mime_type: str


@dataclass(frozen=True, slots=True)
class ToolOk:
    """The call succeeded: text parts joined by newlines, a note in the place of each image, the images apart.
    `structured`: what the server sent besides the text, or in its place."""

    text: str
    images: tuple[ImageBlock, ...] = ()
    structured: JsonObject | None = None


@dataclass(frozen=True, slots=True)
class ToolFailed:
    """The call failed after dispatch; `error` is the typed object of a public `mcp_call`, `text` is for the model."""

    error: JsonObject
    text: str


@dataclass(frozen=True, slots=True)
class ToolUnknown:
    """Dispatched, then nothing certain: the connection dropped, the deadline passed or a proxy answered. It may or may
    not have run. `failed`: what a caller hears who has nothing to fear from that, of a tool that is safe to repeat."""

    reason: str
    failed: ToolFailed | None = None


ToolOutcome = ToolOk | ToolFailed | ToolUnknown


class ListFailed(Exception):
    """A server could not be listed; the text goes into the public `mcp_list_tools.error`."""


class NotDispatched(Exception):
    """The call surely did not reach the tool: it may be tried again."""


class McpPort(Protocol):
    """All MCP servers of a process."""

    async def list_tools(self, server: ServerRef, *, timeout: float) -> tuple[ToolSpec, ...]:
        """Every page of `tools/list`, capped at 128 tools and 1 MiB. Raises: ListFailed."""
        ...

    async def call(
        self,
        server: ServerRef,
        tool: str,
        arguments: JsonObject,
        *,
        idempotency_key: str,
        timeout: float,
        encoded_images: bool = False,
    ) -> ToolOutcome:
        """One `tools/call`; the key travels as `_meta["outlast/idempotency-key"]`.

        `timeout`: seconds, our own deadline around all of it. `encoded_images`: its text may hold an image in base64
        and be as long as that takes. Raises: NotDispatched.
        """
        ...

    async def aclose(self) -> None:
        """Close every session, bounded in time."""
        ...
