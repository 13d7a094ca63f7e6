"""The sections of `outlast.toml`, each as a frozen type. Where the values come from is `settings.py`'s business.

Secrets are named here (`api_key_env`, `headers_env`), never held: the environment variable is read when a client is
built.
"""

import os
from itertools import combinations
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from outlast.protocol import hosted
from outlast.protocol.errors import ConfigurationError
from outlast.protocol.json import JsonObject

Dialect = Literal["chat", "responses"]


def _http_url(value: str) -> str:
    parts = urlsplit(value)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"{value!r} is not an http:// or https:// URL")
    return value.rstrip("/")


HttpUrl = Annotated[str, AfterValidator(_http_url)]


_OPENAI_HOST = "api.openai.com"


def _read_secret(variable: str, asked_by: str) -> str:
    value = os.environ.get(variable)
    if not value:
        raise ConfigurationError(f"{asked_by} names the environment variable {variable}, which is not set")
    return value


class _Section(BaseModel):
    """Base of all sections: frozen, and a key we do not know is an error, not a silent default."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class UpstreamSettings(_Section):
    """`[upstreams.NAME]`: a model server. Without `dialect`: `responses` for api.openai.com, `chat` elsewhere."""

    base_url: HttpUrl = Field(description="Its address up to `/v1`.")
    dialect: Dialect | None = Field(None, description="What it speaks; none: by its address.")
    api_key_env: str | None = Field(
        None, description="The environment variable that holds its key; none: no Authorization header."
    )
    openai: bool | None = Field(
        None,
        description="It is OpenAI's at an address of its own (Azure, a proxy): it gets its sealed reasoning back and "
        "its options; none: whether the address is api.openai.com.",
    )

    @property
    def is_openai(self) -> bool:
        """Whether OpenAI itself answers there."""
        return self.openai if self.openai is not None else urlsplit(self.base_url).hostname == _OPENAI_HOST

    @property
    def spoken_dialect(self) -> Dialect:
        """The dialect in force."""
        if self.dialect is not None:
            return self.dialect
        return "responses" if self.is_openai else "chat"

    def api_key(self) -> str | None:
        """The key, read now. Raises: ConfigurationError when the named variable is not set."""
        return None if self.api_key_env is None else _read_secret(self.api_key_env, "api_key_env")


class ModelSettings(_Section):
    """`[models."NAME"]`: the model name clients use, the upstream that serves it and the name it has there."""

    upstream: str = Field(description="The key of its `[upstreams.NAME]`.")
    name: str | None = Field(None, description="The upstream's name of it; none: the same as ours.")
    images: bool = Field(
        True, description="It reads images; if not, one in a request is 400, and one that a tool returns is a note."
    )


class McpToolSettings(_Section):
    """`[mcp.servers.NAME.tools.TOOL]`: what the operator says of one tool, whoever declares its server.

    `read_only`, `idempotent`: in the place of the server's own hints. A tool that is neither runs at most once.
    Its arguments: `renames` (the model's name → the tool's), then `defaults` for what is absent, then `overrides`.
    """

    read_only: bool | None = Field(None, description="In the place of its `readOnlyHint`.")
    idempotent: bool | None = Field(None, description="In the place of its `idempotentHint`.")
    require_approval: Literal["always"] | None = Field(
        None, description="It asks whatever the request says; a request may ask more often than this, never less."
    )
    timeout_seconds: float | None = Field(
        None, gt=0, description="Seconds of one call, in the place of `limits.tool_timeout_seconds`."
    )
    renames: dict[str, str] = Field(default_factory=dict, description="Arguments: the model's name to the tool's.")
    defaults: JsonObject = Field(default_factory=dict, description="Arguments for those that are absent.")
    overrides: JsonObject = Field(default_factory=dict, description="Arguments, whatever the model says.")


def _builtin_key(value: object) -> object:
    """Older and dated spellings of a type are one type."""
    return (hosted.key_of(value) or value) if isinstance(value, str) else value


BuiltinType = Annotated[
    Literal["web_search", "file_search", "code_interpreter", "image_generation"], BeforeValidator(_builtin_key)
]


class McpServerSettings(_Section):
    """`[mcp.servers.NAME]`: an MCP server the operator provides.

    `builtin_type` with `builtin_tool_name` binds a hosted tool type to one tool of it.
    """

    url: HttpUrl = Field(description="Of its streamable HTTP endpoint.")
    headers_env: dict[str, str] = Field(
        default_factory=dict, description="Header to the environment variable that holds its value."
    )
    builtin_type: BuiltinType | None = Field(None, description="The hosted tool type it serves.")
    builtin_tool_name: str | None = Field(None, description="The one tool of it that serves the type.")
    internal: bool = Field(
        False, description="Its list, calls and approvals are in no response, stream or list of items."
    )
    tools: dict[str, McpToolSettings] = Field(default_factory=dict, description="By tool, see below.")

    @model_validator(mode="after")
    def _bound_together(self) -> Self:
        if (self.builtin_type is None) != (self.builtin_tool_name is None):
            raise ValueError("builtin_type and builtin_tool_name are given together or not at all")
        return self

    def headers(self) -> dict[str, str]:
        """The headers, read now. Raises: ConfigurationError when a named variable is not set."""
        return {name: _read_secret(variable, f"headers_env.{name}") for name, variable in self.headers_env.items()}


class McpSettings(_Section):
    """`[mcp]`: servers by name."""

    servers: dict[str, McpServerSettings] = Field(default_factory=dict, description="By name, see below.")

    @model_validator(mode="after")
    def _one_server_per_type(self) -> Self:
        owners: dict[str, str] = {}
        for name, server in self.servers.items():
            if server.builtin_type is not None and owners.setdefault(server.builtin_type, name) != name:
                raise ValueError(f"{owners[server.builtin_type]} and {name} are both bound to {server.builtin_type}")
        return self

    @model_validator(mode="after")
    def _one_word_per_address(self) -> Self:
        # Headers and tools are looked up by the address, since that is all a client's declaration has. Two names of one
        # address are two hosted types.
        for (name, server), (other, twin) in combinations(self.servers.items(), 2):
            if server.url != twin.url:
                continue
            for key in ("headers_env", "internal"):
                if getattr(server, key) != getattr(twin, key):
                    raise ValueError(f"{name} and {other} have one url and different {key}: give both the same")
            if both := sorted(server.tools.keys() & twin.tools.keys()):
                raise ValueError(f"{name} and {other} have one url, and both say something of {both[0]}: say it once")
        return self


class TemporalSettings(_Section):
    """`[temporal]`: where runs execute. Without `address`, `outlast dev` starts a server of its own."""

    address: str | None = Field(None, description="`host:port`; none: 127.0.0.1 and `temporal_port`.")
    namespace: str = Field("default", description="Where the workflows are.")
    task_queue: str = Field("outlast", description="What the workers listen to.")


class StoreSettings(_Section):
    """`[store]`: SQLAlchemy URL of the record; none: a SQLite file in the data folder."""

    url: str | None = Field(None, description="SQLAlchemy URL; none: `outlast.db` in the data folder.")


class ApprovalSettings(_Section):
    """`[approvals]`: who waits for a human.

    `respond`: the response completes with the asks and the client continues; `wait`: it stays open until a decision.
    `deadline_seconds` after an ask, `on_deadline` says what happens: nothing, the call is denied, or the run fails.
    """

    mode: Literal["respond", "wait"] = Field("respond", description="Of requests that do not say it themselves.")
    deadline_seconds: float | None = Field(None, gt=0, description="Seconds an ask may stay undecided; none: for ever.")
    on_deadline: Literal["none", "deny", "fail"] = Field("none", description="What happens then.")

    @model_validator(mode="after")
    def _deadline_is_given(self) -> Self:
        if self.on_deadline != "none" and self.deadline_seconds is None:
            raise ValueError(f"on_deadline = {self.on_deadline!r} needs deadline_seconds")
        return self


class ToolSettings(_Section):
    """`[tools]`: tools that neither the model's server nor this one knows how to run.

    `refuse`: a request with one is 400; `skip`: the model does not see it, the answer's `x-outlast-warning` names it.
    """

    unsupported: Literal["refuse", "skip"] = Field("refuse", description="What becomes of such tools.")


class LimitSettings(_Section):
    """`[limits]`: what one request may ask for and how long its parts may take. Bytes, counts and seconds."""

    max_body_bytes: int = Field(32 * 1024 * 1024, ge=1, description="Bytes of a request body: 413.")
    max_items: int = Field(10_000, ge=1, description="Items of `input`: 400.")
    max_tools: int = Field(128, ge=1, description="Entries of `tools`: 400.")
    max_tool_calls: int = Field(
        128, ge=1, description="Gateway calls over the whole response; a caller's larger `max_tool_calls` is 400."
    )
    max_rounds: int = Field(64, ge=1, description="Model rounds of a response; a larger `budget.max_rounds` is 400.")
    parallel_tool_calls: int = Field(8, ge=1, description="Gateway calls of one round that run at the same time.")
    tool_timeout_seconds: float = Field(
        60, gt=0, description="A tool call, unless the tool has its own; over it the call fails, the run goes on."
    )
    max_tool_output_bytes: int = Field(
        1024 * 1024, ge=1, description="Text of a tool's answer; over it the call fails, the run goes on."
    )
    max_tool_image_bytes: int = Field(
        8 * 1024 * 1024,
        ge=0,
        description="Images of a tool's answer; one over it is replaced by a note, the rest stays.",
    )
    first_token_seconds: float = Field(120, gt=0, description="A model round up to its first event.")
    idle_seconds: float = Field(120, gt=0, description="Between two events of a model round.")
    # The activity has a minute more.
    round_seconds: float = Field(14 * 60, gt=0, le=14 * 60, description="A model round as a whole.")
    park_seconds: float = Field(
        24 * 3600, gt=0, description="How long a parked run keeps its workflow; its asks stay decidable."
    )
