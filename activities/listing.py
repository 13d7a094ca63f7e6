"""Bind the tools of a response: list its MCP servers once, show what was not shown in the chain, keep the policy flags.

Names, schemas and hints used for routing, policy and retry come from a listing we made, never from what a client sent
back; a `mcp_list_tools` item in the chain only decides whether the item is shown again. Each label is a step of its
own, so a later attempt of the round finds what was listed.
"""

import asyncio
import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import assert_never

from activities import base
from activities.base import Deps
from outlast.loop import approvals, bindings
from outlast.loop.bindings import Bindings, ListedTool, ToolBinding, ToolPolicy
from outlast.loop.servers import Builtin, Servers
from outlast.mcp.base import ListFailed, ServerRef, ToolSpec
from outlast.protocol import building, hosted, ids, json
from outlast.protocol.errors import ResponseEnded, ToolServerUnavailable
from outlast.protocol.json import JsonObject
from outlast.protocol.native import NativeTool
from outlast.protocol.tools import FunctionTool, McpTool, Tool, parse_tools
from outlast.store.base import Begun, Commit, Committed, Gone, ResponseRecord

LIST_TIMEOUT = 30.0
_CACHE_SECONDS = 60.0
_CACHE_SIZE = 256


@dataclass(frozen=True, slots=True)
class Listing:
    """What one server offered, or why it could not be asked."""

    tools: tuple[ListedTool, ...] = ()
    public: tuple[JsonObject, ...] = ()
    error: str | None = None


@dataclass(frozen=True, slots=True)
class _HostedTool:
    """A hosted tool as declared, and what runs it."""

    kind: str
    given: NativeTool
    builtin: Builtin


class Listings:
    """Listings of a process, cached per tenant, server and credentials."""

    def __init__(self, deps: Deps) -> None:
        self._deps = deps
        self._cache: dict[bytes, tuple[float, Listing]] = {}

    async def bind(self, record: ResponseRecord, shown: Collection[str]) -> Bindings:
        """The bindings of a response's tools. `shown`: labels whose list the chain has.

        Raises: ToolServerUnavailable for a `required` server, InvalidRequest for a clash of names, ResponseEnded.
        """
        declared = parse_tools(record.request.get("tools") or [])
        servers = [tool for tool in declared if isinstance(tool, McpTool)]
        urls = [tool.address(self._deps.servers.connectors) for tool in servers]
        hidden = [
            tool.server_label for tool, url in zip(servers, urls, strict=True) if url in self._deps.servers.hidden
        ]
        client = [tool.name for tool in declared if isinstance(tool, FunctionTool)]
        bound_types = self._hosted(declared)
        found = await asyncio.gather(
            *(self._list(record, tool.server_label, url) for tool, url in zip(servers, urls, strict=True)),
            *(self._list(record, each.builtin.server, each.builtin.url) for each in bound_types),
        )
        listings, builtin = found[: len(servers)], found[len(servers) :]
        bound: list[ToolBinding] = []
        for tool, url, listing in zip(servers, urls, listings, strict=True):
            label = tool.server_label
            show = label not in shown and label not in hidden
            kept = await self._commit(record, label, _filtered(tool, listing), show=show)
            # Of a hidden server no list item could say that it is missing.
            if kept.error is not None and (tool.required or label in hidden):
                raise ToolServerUnavailable(
                    f"MCP server '{tool.server_label}' could not be listed: {kept.error}", param="tools"
                )
            bound.extend(_bind(tool, url, kept, record, self._deps.servers))
        for each, listing in zip(bound_types, builtin, strict=True):
            bound.append(await self._bind_hosted(record, each, listing))
        labels = [tool.server_label for tool in servers]
        return bindings.gather(ids.mint(ids.Prefix.BINDINGS), bound, client=client, labels=labels, hidden=hidden)

    def _hosted(self, declared: Sequence[Tool]) -> list[_HostedTool]:
        """The declared hosted tools that a server of the operator's runs; of two of one type the first counts."""
        found: dict[str, _HostedTool] = {}
        for tool in declared:
            kind = hosted.key_of(tool.type)
            if kind is not None and isinstance(tool, NativeTool) and kind in self._deps.servers.builtins:
                found.setdefault(kind, _HostedTool(kind, tool, self._deps.servers.builtins[kind]))
        return list(found.values())

    async def _bind_hosted(self, record: ResponseRecord, tool: _HostedTool, listing: Listing) -> ToolBinding:
        """Raises: ToolServerUnavailable: no list item could say that the tool is missing."""
        wanted = tool.builtin.tool
        only = replace(listing, tools=tuple(spec for spec in listing.tools if spec.name == wanted), public=())
        kept = await self._commit(record, f"hosted {tool.kind}", only, show=False)
        if not kept.tools:
            why = kept.error or f"it has no tool '{wanted}'"
            raise ToolServerUnavailable(
                f"The tool '{tool.given.type}' runs on MCP server '{tool.builtin.server}', which could not be used: "
                f"{why}",
                param="tools",
            )
        config = {key: value for key, value in (tool.given.model_extra or {}).items() if value is not None}
        return bindings.bind_hosted(
            bindings.Hosted(tool.kind, config, record.request.get("user")),
            tool.builtin.server,
            tool.builtin.url,
            kept.tools[0],
            description=hosted.TYPES[tool.kind].description,
            policy=self._deps.servers.policies_of(tool.builtin.url).get(wanted, bindings.ToolPolicy()),
            hidden=tool.builtin.url in self._deps.servers.hidden,
        )

    async def _list(self, record: ResponseRecord, label: str, url: str) -> Listing:
        headers = await base.server_headers(self._deps, record.tenant, url, record.credentials.get(label))
        if headers is None:
            return Listing(error="its credentials have expired: send them again")
        key = _key(record.tenant, url, headers)
        now = self._deps.clock()
        cached = self._cache.get(key)
        if cached is not None and cached[0] > now:
            return cached[1]
        try:
            specs = await self._deps.mcp.list_tools(ServerRef(label, url, headers), timeout=LIST_TIMEOUT)
        except ListFailed as error:
            return Listing(error=str(error))
        policies = self._deps.servers.policies_of(url)
        listed = (policies.get(spec.name, ToolPolicy()).seen(_listed(spec)) for spec in specs)
        listing = Listing(tuple(listed), tuple(_public(spec) for spec in specs))
        if len(self._cache) >= _CACHE_SIZE:
            self._cache.clear()
        self._cache[key] = (now + _CACHE_SECONDS, listing)
        return listing

    async def _commit(self, record: ResponseRecord, label: str, kept: Listing, *, show: bool) -> Listing:
        begun = await self._deps.store.begin(record.tenant, record.id, f"list:{label}", workflow_id=base.workflow_id())
        match begun:
            case Committed(outcome):
                return base.decode(Listing, outcome)
            case Gone():
                raise ResponseEnded("the response ended while its tools were listed")
            case Begun():
                pass
            case _:
                assert_never(begun)
        events = []
        if show:
            item_id = ids.mint(ids.Prefix.MCP_LIST)
            events = building.list_tools_events(item_id, label, kept.public, error=kept.error)
        await self._deps.store.append(begun.handle, events, Commit(outcome=asdict(kept)))
        return kept


def _filtered(tool: McpTool, listing: Listing) -> Listing:
    """What the caller allowed: `allowed_tools` also filters what the list item shows."""
    wanted = [approvals.allowed(tool.allowed_tools, spec.name, spec.read_only) for spec in listing.tools]
    return Listing(
        tuple(spec for spec, wants in zip(listing.tools, wanted, strict=True) if wants),
        tuple(item for item, wants in zip(listing.public, wanted, strict=True) if wants),
        listing.error,
    )


def _bind(
    tool: McpTool, url: str, listing: Listing, record: ResponseRecord, servers: Servers
) -> tuple[ToolBinding, ...]:
    label = tool.server_label
    return bindings.bind(
        label,
        url,
        record.credentials.get(label),
        listing.tools,
        asks=lambda spec: approvals.needs_approval(tool.require_approval, spec.name, spec.read_only),
        policies=servers.policies_of(url),
        hidden=url in servers.hidden,
    )


def _listed(spec: ToolSpec) -> ListedTool:
    hints = spec.annotations
    return ListedTool(spec.name, spec.description, spec.input_schema, hints.read_only, hints.idempotent)


def _public(spec: ToolSpec) -> JsonObject:
    """The tool as `mcp_list_tools` shows it; what the server did not say is left out, not null."""
    item: JsonObject = {"name": spec.name, "input_schema": spec.input_schema}
    if spec.description is not None:
        item["description"] = spec.description
    if spec.raw_annotations is not None:
        item["annotations"] = spec.raw_annotations
    return item


def _key(tenant: str, url: str, headers: Mapping[str, str]) -> bytes:
    return hashlib.sha256(json.canonical([tenant, url, dict(headers)])).digest()
