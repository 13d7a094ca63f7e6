"""The ports the HTTP side is composed of. `outlast.processes` builds them and closes them; nothing here owns one."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from api.making import Making
from api.readers import Readers
from api.runs import RunsPort
from outlast.contracts import Timeouts
from outlast.loop.prepare import Reads
from outlast.loop.servers import Servers
from outlast.loop.state import ApprovalMode
from outlast.loop.tokens import Context
from outlast.protocol.requests import RequestLimits
from outlast.store.conversations_port import Conversations
from outlast.store.port import Store


class Catalog(Protocol):
    """Which models there are and what they can read."""

    def resolve(self, model: str) -> object:
        """Raises: NotFound, code model_not_found, param model, when nobody serves that name."""
        ...

    def capabilities(self, model: str) -> Reads:
        """What the server behind that name can read."""
        ...

    async def count(self, model: str, context: Context) -> int | None:
        """Tokens of a context as the model's server counts them; None when it has no way to. Raises: UpstreamError."""
        ...

    async def names(self) -> Sequence[str]:
        """Names a client may use: the upstreams' own lists plus `demo`; the configured ones if an upstream is away."""
        ...


@dataclass(frozen=True, slots=True)
class ApprovalDefaults:
    """How a run asks when the request does not say. `deadline_seconds`: from the ask on; None: for ever."""

    mode: ApprovalMode = ApprovalMode.RESPOND
    deadline_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Services:
    """All of them. `clock`: unix seconds; `ui_url`: of Temporal's UI, None when there is none to point at."""

    store: Store
    conversations: Conversations
    runs: RunsPort
    catalog: Catalog
    limits: RequestLimits
    approvals: ApprovalDefaults
    timeouts: Timeouts
    clock: Callable[[], float]
    # Gateway calls of one run at the same time.
    parallel_tool_calls: int = 8
    # What the operator says of MCP servers.
    servers: Servers = field(default_factory=Servers)
    # Tools a model's server does not know are left out with a warning, not refused.
    skip_tools: bool = False
    ui_url: str | None = None
    # Of this process, of responses that are not stored.
    readers: Readers = field(default_factory=Readers)
    making: Making = field(default_factory=Making)
