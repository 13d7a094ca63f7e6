"""What the operator says of MCP servers: which tool runs a hosted type, and the policy of each tool."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from outlast.loop.bindings import NO_POLICIES, ToolPolicy


@dataclass(frozen=True, slots=True)
class Builtin:
    """The tool that runs a hosted type. `server`: its server's name in config."""

    server: str
    url: str
    tool: str


@dataclass(frozen=True, slots=True)
class Servers:
    """All configured servers. `builtins`: by the hosted type's key; `policies`: by the server's URL, then by tool;
    `hidden`: URLs of those no client sees a call of; `connectors`: URLs by name."""

    builtins: Mapping[str, Builtin] = field(default_factory=dict)
    policies: Mapping[str, Mapping[str, ToolPolicy]] = field(default_factory=dict)
    hidden: frozenset[str] = frozenset()
    connectors: Mapping[str, str] = field(default_factory=dict)

    def policies_of(self, url: str) -> Mapping[str, ToolPolicy]:
        """Of a server's tools, by name."""
        return self.policies.get(url, NO_POLICIES)
