"""The ports a process is composed of, built from settings and closed in reverse."""

import functools
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import make_url
from temporalio.client import Client

from outlast import failpoints
from outlast.catalog import Catalog
from outlast.contracts import Timeouts
from outlast.loop.bindings import Shaping, ToolPolicy
from outlast.loop.servers import Builtin, Servers
from outlast.mcp.client import McpClients
from outlast.mcp.session import Limits
from outlast.protocol.errors import ConfigurationError
from outlast.runs import Runs
from outlast.sections import McpSettings, McpToolSettings
from outlast.settings import Settings
from outlast.store.sqlite import SqliteStore, open_store
from outlast.temporal import connect, ensure_search_attributes

KEY_FILE = "secrets.key"


@dataclass(frozen=True, slots=True)
class Ports:
    """Everything that is opened once a process. `timeouts`: they travel in a run's start input."""

    settings: Settings
    client: Client
    store: SqliteStore
    catalog: Catalog
    mcp: McpClients
    runs: Runs
    timeouts: Timeouts
    servers: Servers


async def open_ports(stack: AsyncExitStack, settings: Settings, *, temporal: str, demo_url: str | None) -> Ports:
    """Open them all. `temporal`: address. Raises: ConfigurationError, Unavailable."""
    client = await connect(temporal, settings.temporal.namespace)
    await ensure_search_attributes(client)
    store = await open_store(_database(settings), settings.data_dir / KEY_FILE)
    stack.push_async_callback(store.aclose)
    catalog = Catalog(settings, demo_url)
    stack.push_async_callback(catalog.aclose)
    mcp = McpClients(
        _tool_limits(settings),
        on_dispatched=functools.partial(failpoints.hit, failpoints.AFTER_DISPATCH),
    )
    stack.push_async_callback(mcp.aclose)
    runs = Runs(client, settings.temporal.task_queue)
    return Ports(settings, client, store, catalog, mcp, runs, _timeouts(settings), _servers(settings.mcp))


def _timeouts(settings: Settings) -> Timeouts:
    limits = settings.limits
    own = [said.timeout_seconds or 0.0 for server in settings.mcp.servers.values() for said in server.tools.values()]
    return Timeouts(
        llm=limits.round_seconds + 60,
        llm_own=limits.round_seconds,
        llm_first_event=limits.first_token_seconds,
        llm_idle=limits.idle_seconds,
        tool=limits.tool_timeout_seconds,
        tool_own=max(own, default=0.0),
        park=limits.park_seconds,
    )


def _servers(settings: McpSettings) -> Servers:
    builtins: dict[str, Builtin] = {}
    for name, server in settings.servers.items():
        if server.builtin_type is not None and server.builtin_tool_name is not None:
            builtins[server.builtin_type] = Builtin(name, server.url, server.builtin_tool_name)
    policies: dict[str, dict[str, ToolPolicy]] = {}
    for server in settings.servers.values():
        policies.setdefault(server.url, {}).update({tool: _policy(said) for tool, said in server.tools.items()})
    return Servers(
        builtins,
        policies,
        hidden=frozenset(each.url for each in settings.servers.values() if each.internal),
        connectors={name: each.url for name, each in settings.servers.items()},
    )


def _policy(said: McpToolSettings) -> ToolPolicy:
    return ToolPolicy(
        read_only=said.read_only,
        idempotent=said.idempotent,
        asks=said.require_approval == "always",
        timeout=said.timeout_seconds,
        shaping=Shaping(said.renames, said.defaults, said.overrides),
    )


def _tool_limits(settings: Settings) -> Limits:
    text, images = settings.limits.max_tool_output_bytes, settings.limits.max_tool_image_bytes
    # Base64 and JSON around them make an answer longer than what is in it.
    return Limits(output=text, images=images, body=max(Limits().body, 2 * (text + images)))


def _database(settings: Settings) -> Path:
    settings.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    url = make_url(settings.store_url)
    if url.get_backend_name() != "sqlite" or not url.database:
        raise ConfigurationError(
            f"[store] url = {settings.store_url!r}: this version stores in SQLite, e.g. sqlite+aiosqlite:////data/outlast.db"
        )
    return Path(url.database)
