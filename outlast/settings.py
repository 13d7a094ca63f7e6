"""What an operator configures: flags over `OUTLAST_SECTION__KEY` in the environment over `outlast.toml` over defaults.

`load` is the only place where they meet; it also reads `OPENAI_BASE_URL` and `OPENAI_API_KEY`. A `Settings` built
directly reads nothing, so a test says all it wants in one expression. Secrets are named here (`api_key_env`,
`headers_env`), never held: the environment variable is read when a client is built.
"""

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import ErrorDetails
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
)

from outlast import netaddr
from outlast.protocol.errors import ConfigurationError

Dialect = Literal["chat", "responses"]

DEFAULT_CONFIG = Path("outlast.toml")
# The scripted model that needs no upstream; it exists in every configuration.
DEMO_MODEL = "demo"

_ENV_PREFIX = "OUTLAST_"
_OPENAI_URL = "https://api.openai.com/v1"


def _http_url(value: str) -> str:
    parts = urlsplit(value)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"{value!r} is not an http:// or https:// URL")
    return value.rstrip("/")


HttpUrl = Annotated[str, AfterValidator(_http_url)]


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

    base_url: HttpUrl
    dialect: Dialect | None = None
    # Name of the environment variable that holds the key; none: requests carry no Authorization header.
    api_key_env: str | None = None

    @property
    def spoken_dialect(self) -> Dialect:
        """The dialect in force."""
        if self.dialect is not None:
            return self.dialect
        return "responses" if urlsplit(self.base_url).hostname == "api.openai.com" else "chat"

    def api_key(self) -> str | None:
        """The key, read now. Raises: ConfigurationError when the named variable is not set."""
        return None if self.api_key_env is None else _read_secret(self.api_key_env, "api_key_env")


class ModelSettings(_Section):
    """`[models."NAME"]`: the model name clients use, the upstream that serves it and the name it has there."""

    upstream: str
    # The upstream's name of it; none: the same as ours.
    name: str | None = None


class McpServerSettings(_Section):
    """`[mcp.servers.NAME]`: an MCP server the operator provides.

    `builtin_type` with `builtin_tool_name` binds a hosted tool type to one tool of it. They are parsed and checked;
    nothing uses them yet. `internal` hides list, calls and approvals from the public response.
    """

    url: HttpUrl
    # Header name -> name of the environment variable that holds its value.
    headers_env: dict[str, str] = Field(default_factory=dict)
    builtin_type: Literal["web_search", "file_search", "code_interpreter", "image_generation"] | None = None
    builtin_tool_name: str | None = None
    internal: bool = False

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

    servers: dict[str, McpServerSettings] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _one_server_per_type(self) -> Self:
        owners: dict[str, str] = {}
        for name, server in self.servers.items():
            if server.builtin_type is not None and owners.setdefault(server.builtin_type, name) != name:
                raise ValueError(f"{owners[server.builtin_type]} and {name} are both bound to {server.builtin_type}")
        return self


class TemporalSettings(_Section):
    """`[temporal]`: where runs execute. Without `address`, `outlast dev` starts a server of its own."""

    address: str | None = None
    namespace: str = "default"
    task_queue: str = "outlast"


class StoreSettings(_Section):
    """`[store]`: SQLAlchemy URL of the record; none: a SQLite file in the data folder."""

    url: str | None = None


class ApprovalSettings(_Section):
    """`[approvals]`: who waits for a human.

    `respond`: the response completes with the asks and the client continues; `wait`: it stays open until a decision.
    `deadline_seconds` after an ask, `on_deadline` says what happens: nothing, the call is denied, or the run fails.
    """

    mode: Literal["respond", "wait"] = "respond"
    deadline_seconds: Annotated[float, Field(gt=0)] | None = None
    on_deadline: Literal["none", "deny", "fail"] = "none"

    @model_validator(mode="after")
    def _deadline_is_given(self) -> Self:
        if self.on_deadline != "none" and self.deadline_seconds is None:
            raise ValueError(f"on_deadline = {self.on_deadline!r} needs deadline_seconds")
        return self


class LimitSettings(_Section):
    """`[limits]`: what one request may ask for and how long its parts may take. Bytes, counts and seconds."""

    max_body_bytes: Annotated[int, Field(ge=1)] = 32 * 1024 * 1024
    max_items: Annotated[int, Field(ge=1)] = 10_000
    max_tools: Annotated[int, Field(ge=1)] = 128
    # Gateway calls over the whole response; a caller's larger `max_tool_calls` is refused.
    max_tool_calls: Annotated[int, Field(ge=1)] = 128
    max_rounds: Annotated[int, Field(ge=1)] = 64
    # Gateway calls of one round that run at the same time.
    parallel_tool_calls: Annotated[int, Field(ge=1)] = 8
    tool_timeout_seconds: Annotated[float, Field(gt=0)] = 60
    max_tool_output_bytes: Annotated[int, Field(ge=1)] = 1024 * 1024
    # One model round: to its first event, between two events, and as a whole (the activity has a minute more).
    first_token_seconds: Annotated[float, Field(gt=0)] = 120
    idle_seconds: Annotated[float, Field(gt=0)] = 120
    round_seconds: Annotated[float, Field(gt=0, le=14 * 60)] = 14 * 60
    # How long a parked run keeps its workflow; the asks stay decidable after that.
    park_seconds: Annotated[float, Field(gt=0)] = 24 * 3600


@dataclass(frozen=True, slots=True)
class ModelRoute:
    """Who serves a model name: the upstream's key in `Settings.upstreams` (`demo`: the built-in) and its name there."""

    upstream: str
    name: str


class Settings(BaseSettings):
    """All of it. `load` builds it from the outside; built directly it reads neither environment nor file."""

    model_config = SettingsConfigDict(extra="forbid", frozen=True)

    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65535)] = 8080
    temporal_port: Annotated[int, Field(ge=0, le=65535)] = 7233
    ui_port: Annotated[int, Field(ge=0, le=65535)] = 8233
    data_dir: Path = Path(".outlast")
    upstreams: dict[str, UpstreamSettings] = Field(default_factory=dict)
    models: dict[str, ModelSettings] = Field(default_factory=dict)
    mcp: McpSettings = Field(default_factory=McpSettings)
    temporal: TemporalSettings = Field(default_factory=TemporalSettings)
    store: StoreSettings = Field(default_factory=StoreSettings)
    approvals: ApprovalSettings = Field(default_factory=ApprovalSettings)
    limits: LimitSettings = Field(default_factory=LimitSettings)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Only what the constructor is given: `load` merges the sources, to name a wrong value's origin."""
        return (init_settings,)

    @model_validator(mode="after")
    def _models_are_routable(self) -> Self:
        if DEMO_MODEL in self.upstreams or DEMO_MODEL in self.models:
            raise ValueError(f"the name {DEMO_MODEL!r} belongs to the built-in demo model: choose another one")
        for name, model in self.models.items():
            if model.upstream not in self.upstreams:
                known = ", ".join(sorted(self.upstreams)) or "none"
                raise ValueError(f'[models."{name}"] upstream = {model.upstream!r} is not in [upstreams] ({known})')
        if len(self.upstreams) > 1 and not self.models:
            names = ", ".join(sorted(self.upstreams))
            raise ValueError(f'several upstreams ({names}) need [models."NAME"] sections that say who serves what')
        return self

    @model_validator(mode="after")
    def _hidden_servers_do_not_ask(self) -> Self:
        # A `respond` ask is an output item, which an internal server must not have (behaviour §3).
        for name, server in self.mcp.servers.items():
            if server.internal and self.approvals.mode != "wait":
                raise ValueError(
                    f"[mcp.servers.{name}] internal = true hides its approval requests, so nobody could answer them: "
                    'set [approvals] mode = "wait"'
                )
        return self

    @property
    def store_url(self) -> str:
        """SQLAlchemy URL of the store."""
        return self.store.url or f"sqlite+aiosqlite:///{self.data_dir.absolute() / 'outlast.db'}"

    @property
    def temporal_address(self) -> str:
        """`host:port` of an external Temporal."""
        return self.temporal.address or f"127.0.0.1:{self.temporal_port}"

    def route(self, model: str) -> ModelRoute | None:
        """Who serves `model`; None: nobody. A single upstream without `[models]` serves every name but `demo`."""
        if model == DEMO_MODEL:
            return ModelRoute(upstream=DEMO_MODEL, name=DEMO_MODEL)
        if model in self.models:
            chosen = self.models[model]
            return ModelRoute(upstream=chosen.upstream, name=chosen.name or model)
        if self.models or not self.upstreams:
            return None
        (only,) = self.upstreams
        return ModelRoute(upstream=only, name=model)


def load(
    config: Path | None = None,
    *,
    upstream: str | None = None,
    dialect: Dialect | None = None,
    overrides: Mapping[str, object] | None = None,
) -> Settings:
    """The settings of this process.

    config: a file that must exist; None: `outlast.toml` if it is there. upstream: the only upstream, whatever the file
    says. overrides: top-level fields by name; None values are skipped, so flags are passed as parsed.
    Raises: ConfigurationError, whose text names each wrong key and where it was given.
    """
    path = config if config is not None else DEFAULT_CONFIG
    file = _read_file(path, required=config is not None)
    env = _read_environment()
    flags = {key: value for key, value in (overrides or {}).items() if value is not None}
    values = _merge(_merge(file, env), flags)
    chosen = _upstream_from_outside(upstream, dialect, configured=bool(values.get("upstreams")))
    if chosen is not None:
        flags["upstreams"] = {"default": chosen}
        values = {**values, **flags, "models": {}}
    try:
        settings = Settings.model_validate(values)
    except ValidationError as error:
        origins = _Origins(path, file, env, flags)
        raise ConfigurationError("\n".join(map(origins.explain, error.errors(include_url=False)))) from error
    refuse_own_address(settings, settings.port)
    return settings


def refuse_own_address(settings: Settings, port: int) -> None:
    """Raises: ConfigurationError for an upstream that is this server, listening on `port`: an endless loop."""
    for name, upstream in settings.upstreams.items():
        if netaddr.is_own(upstream.base_url, host=settings.host, port=port):
            raise ConfigurationError(
                f"upstream {name!r} ({upstream.base_url}) is the address of this server ({settings.host}:{port}): "
                "point it at a model server, or move this one with --port"
            )


def _upstream_from_outside(
    url: str | None, dialect: Dialect | None, *, configured: bool
) -> dict[str, str | None] | None:
    """The upstream of `--upstream` or `OPENAI_*`. A configured one keeps `OPENAI_*` out, not the flag."""
    base_url = os.environ.get("OPENAI_BASE_URL") or None
    key_env = "OPENAI_API_KEY" if os.environ.get("OPENAI_API_KEY") else None
    if url is None and not configured:
        url = base_url or (_OPENAI_URL if key_env else None)
    elif url is None and dialect is not None:
        raise ConfigurationError(
            "--dialect belongs to --upstream; for configured upstreams set dialect in [upstreams.NAME]"
        )
    if url is None:
        if dialect is not None:
            raise ConfigurationError("--dialect needs an upstream: give --upstream URL or set OPENAI_BASE_URL")
        return None
    return {"base_url": url, "dialect": dialect, "api_key_env": key_env}


def _read_file(path: Path, *, required: bool) -> dict[str, object]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        if required:
            raise ConfigurationError(f"{path}: no such file") from error
        return {}
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigurationError(f"{path}: {error}") from error


def _read_environment() -> dict[str, object]:
    source = EnvSettingsSource(Settings, env_prefix=_ENV_PREFIX, env_nested_delimiter="__", env_ignore_empty=True)
    try:
        return source()
    except SettingsError as error:
        # A whole section given as one variable that is not JSON; the text names the field.
        raise ConfigurationError(f"environment: {error}") from error


def _merge(below: Mapping[str, object], above: Mapping[str, object]) -> dict[str, object]:
    merged = dict(below)
    for key, value in above.items():
        old = merged.get(key)
        merged[key] = _merge(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return merged


@dataclass(frozen=True, slots=True)
class _Origins:
    """Where values were given, to say so in an error."""

    path: Path
    file: Mapping[str, object]
    env: Mapping[str, object]
    flags: Mapping[str, object]

    def explain(self, detail: ErrorDetails) -> str:
        """One line: where the value was given, its key, what is wrong with it."""
        loc = [str(part) for part in detail["loc"]]
        unknown = detail["type"] == "extra_forbidden"
        message = "unknown key" if unknown else detail["msg"].removeprefix("Value error, ")
        return f"{self._where(loc)}: {message}" if loc else message

    def _where(self, loc: list[str]) -> str:
        if loc[0] == "upstreams" and "upstreams" in self.flags:
            return "--upstream or OPENAI_BASE_URL"
        if loc[0] in self.flags:
            return "--" + loc[0].replace("_", "-")
        if _holds(self.env, loc):
            return "environment, " + _ENV_PREFIX + "__".join(loc).upper()
        return f"{self.path}, {'.'.join(loc)}"


def _holds(values: Mapping[str, object], loc: list[str]) -> bool:
    found: object = values
    for part in loc:
        if not isinstance(found, Mapping) or part not in found:
            return False
        found = found[part]
    return True
