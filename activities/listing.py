"""Bind the tools of a response: list its MCP servers once, show what was not shown in the chain, keep the policy flags.

Names, schemas and hints used for routing, policy and retry come from a listing we made, never from what a client sent
back; a `mcp_list_tools` item in the chain only decides whether the item is shown again. Each label is a step of its
own, so a later attempt of the round finds what was listed.
"""

import asyncio
import hashlib
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from typing import assert_never

from activities import base
from activities.base import Deps
from outlast.loop import approvals, bindings
from outlast.loop.bindings import Bindings, ListedTool, ToolBinding
from outlast.mcp.base import ListFailed, ServerRef, ToolSpec
from outlast.protocol import building, ids, json
from outlast.protocol.errors import ResponseEnded, ToolServerUnavailable
from outlast.protocol.json import JsonObject
from outlast.protocol.tools import FunctionTool, McpTool, parse_tools
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
        client = [tool.name for tool in declared if isinstance(tool, FunctionTool)]
        listings = await asyncio.gather(*(self._list(record, tool) for tool in servers))
        bound: list[ToolBinding] = []
        for tool, listing in zip(servers, listings, strict=True):
            kept = await self._commit(record, tool, listing, show=tool.server_label not in shown)
            if kept.error is not None and tool.required:
                raise ToolServerUnavailable(
                    f"MCP server '{tool.server_label}' could not be listed: {kept.error}", param="tools"
                )
            bound.extend(_bind(tool, kept, record))
        labels = [tool.server_label for tool in servers]
        return bindings.gather(ids.mint(ids.Prefix.BINDINGS), bound, client=client, labels=labels)

    async def _list(self, record: ResponseRecord, tool: McpTool) -> Listing:
        label, url = tool.server_label, tool.server_url
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
        listing = Listing(tuple(_listed(spec) for spec in specs), tuple(_public(spec) for spec in specs))
        if len(self._cache) >= _CACHE_SIZE:
            self._cache.clear()
        self._cache[key] = (now + _CACHE_SECONDS, listing)
        return listing

    async def _commit(self, record: ResponseRecord, tool: McpTool, listing: Listing, *, show: bool) -> Listing:
        label = tool.server_label
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
        kept = _filtered(tool, listing)
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


def _bind(tool: McpTool, listing: Listing, record: ResponseRecord) -> tuple[ToolBinding, ...]:
    label = tool.server_label
    return bindings.bind(
        label,
        tool.server_url,
        record.credentials.get(label),
        listing.tools,
        asks=lambda spec: approvals.needs_approval(tool.require_approval, spec.name, spec.read_only),
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
