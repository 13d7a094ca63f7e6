"""What an operator configures: flags over `OUTLAST_SECTION__KEY` in the environment over `outlast.toml` over defaults.

`load` is the only place where they meet; it also reads `OPENAI_BASE_URL` and `OPENAI_API_KEY`. A `Settings` built
directly reads nothing, so a test says all it wants in one expression. The sections are in `sections.py`.
"""

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from pydantic import Field, ValidationError, model_validator
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
from outlast.sections import (
    ApprovalSettings,
    Dialect,
    LimitSettings,
    McpSettings,
    ModelSettings,
    StoreSettings,
    TemporalSettings,
    ToolSettings,
    UpstreamSettings,
)

DEFAULT_CONFIG = Path("outlast.toml")
# The scripted model that needs no upstream; it exists in every configuration.
DEMO_MODEL = "demo"

_ENV_PREFIX = "OUTLAST_"
_OPENAI_URL = "https://api.openai.com/v1"


@dataclass(frozen=True, slots=True)
class ModelRoute:
    """Who serves a model name: the upstream's key in `Settings.upstreams` (`demo`: the built-in) and its name there.

    `images`: the model reads them.
    """

    upstream: str
    name: str
    images: bool = True


class Settings(BaseSettings):
    """All of it. `load` builds it from the outside; built directly it reads neither environment nor file."""

    model_config = SettingsConfigDict(extra="forbid", frozen=True)

    host: str = Field("127.0.0.1", description="The address the API listens on.")
    port: int = Field(8080, ge=0, le=65535, description="Its port; 0: a free one.")
    temporal_port: int = Field(7233, ge=0, le=65535, description="Of the Temporal server `outlast dev` starts.")
    ui_port: int = Field(8233, ge=0, le=65535, description="Of its UI.")
    data_dir: Path = Field(Path(".outlast"), description="The folder of everything that outlives the process.")
    upstreams: dict[str, UpstreamSettings] = Field(default_factory=dict, description="Model servers by name.")
    models: dict[str, ModelSettings] = Field(
        default_factory=dict, description="Models by name; a single upstream needs none and serves every name."
    )
    mcp: McpSettings = Field(default_factory=McpSettings, description="MCP servers.")
    temporal: TemporalSettings = Field(default_factory=TemporalSettings, description="Where runs execute.")
    store: StoreSettings = Field(default_factory=StoreSettings, description="The record.")
    approvals: ApprovalSettings = Field(default_factory=ApprovalSettings, description="Who waits for a human.")
    limits: LimitSettings = Field(default_factory=LimitSettings, description="Of one request and its parts.")
    tools: ToolSettings = Field(default_factory=ToolSettings, description="Tools nobody here knows how to run.")

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
            asks = any(tool.require_approval == "always" for tool in server.tools.values())
            if server.internal and asks and self.approvals.mode != "wait":
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
            return ModelRoute(upstream=chosen.upstream, name=chosen.name or model, images=chosen.images)
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
