"""Who owns a tool name: the gateway's tools with their policy flags, and the names of the client's functions.

Bindings are made once per response, from a listing we made ourselves, and stored as one row; the loop's state carries
their id. The model sees internal names (`mcp__label__tool`), the public never does: the way back is the table, not
parsing, since long or odd names carry a hash.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace

from outlast.loop import naming
from outlast.protocol.errors import InvalidRequest
from outlast.protocol.json import JsonObject


@dataclass(frozen=True, slots=True)
class ListedTool:
    """One tool of a listing as far as policy and model need it; a hint the server does not give is None."""

    name: str
    description: str | None
    schema: JsonObject
    read_only: bool | None = None
    idempotent: bool | None = None


@dataclass(frozen=True, slots=True)
class Shaping:
    """What the operator makes of a tool's arguments: `renames` (the model's name → the server's), then `defaults` for
    what is absent, then `overrides`."""

    renames: Mapping[str, str] = field(default_factory=dict)
    defaults: JsonObject = field(default_factory=dict)
    overrides: JsonObject = field(default_factory=dict)

    def apply(self, arguments: JsonObject) -> JsonObject:
        """The arguments as the server gets them."""
        renamed = {self.renames.get(name, name): value for name, value in arguments.items()}
        return {**self.defaults, **renamed, **self.overrides}


@dataclass(frozen=True, slots=True)
class ToolPolicy:
    """What the operator says of one tool: hints in the place of the server's own, its deadline in seconds, whether it
    always asks, its arguments. None: as the server or the caller has it."""

    read_only: bool | None = None
    idempotent: bool | None = None
    asks: bool = False
    timeout: float | None = None
    shaping: Shaping = Shaping()

    def seen(self, spec: ListedTool) -> ListedTool:
        """The tool with the operator's hints."""
        return replace(
            spec,
            read_only=spec.read_only if self.read_only is None else self.read_only,
            idempotent=spec.idempotent if self.idempotent is None else self.idempotent,
        )


NO_POLICIES: Mapping[str, ToolPolicy] = {}


@dataclass(frozen=True, slots=True)
class Hosted:
    """A tool that runs a hosted type (`protocol.hosted`). `config`: the caller's tool without its type and nulls, which
    wins over the model's arguments; `user`: the request's, sent along unless an argument says otherwise."""

    kind: str
    config: JsonObject = field(default_factory=dict)
    user: str | None = None


@dataclass(frozen=True, slots=True)
class ToolBinding:
    """One gateway tool of one response.

    `safe`: may be dispatched again with the same key. `ask`: a human decides first. `timeout`: seconds, None for the
    default. `secret_id`: the sealed headers of its server.
    """

    label: str
    name: str
    internal_name: str
    description: str | None
    parameters: JsonObject
    server_url: str
    secret_id: str | None
    safe: bool
    ask: bool
    timeout: float | None = None
    shaping: Shaping = Shaping()
    hosted: Hosted | None = None
    # Its server is the operator's own business: no client sees a call of it.
    hidden: bool = False

    def merged(self, arguments: JsonObject) -> JsonObject:
        """The model's arguments with what the caller's tool fixes, by the names the model knows."""
        return arguments if self.hosted is None else {**arguments, **self._taken(self.hosted.config)}

    def sent(self, merged: JsonObject) -> JsonObject:
        """What the server gets. `merged`: of `merged`."""
        shaped = self.shaping.apply(merged)
        if self.hosted is not None and self.hosted.user is not None and shaped.get("user") is None:
            return {**shaped, **self._taken({"user": self.hosted.user})}
        return shaped

    def _taken(self, extra: JsonObject) -> JsonObject:
        """What the tool does not refuse: a schema may say that it takes nothing but its properties."""
        if self.parameters.get("additionalProperties", True):
            return extra
        known = self.parameters.get("properties", {})
        return {name: value for name, value in extra.items() if self.shaping.renames.get(name, name) in known}


@dataclass(frozen=True, slots=True)
class ModelFunction:
    """A function as the model sees it."""

    name: str
    description: str | None
    parameters: JsonObject | None
    strict: bool | None = None
    # Fields of it that only the Responses API has.
    more: JsonObject | None = None


# Of a client's function, besides the four every API has.
_MORE = ("allowed_callers", "async", "defer_loading", "output_schema")


@dataclass(frozen=True, slots=True)
class Bindings:
    """All tools of a response. `client`: names of client functions; `labels`: every bound server, also an unlisted one;
    `hidden`: those of them no client sees a call of.

    `id` is the row's id.
    """

    id: str
    tools: tuple[ToolBinding, ...] = ()
    client: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()

    def by_internal(self, name: str) -> ToolBinding | None:
        """The gateway tool the model knows by this name."""
        return next((tool for tool in self.tools if tool.internal_name == name), None)

    @property
    def hosted(self) -> frozenset[str]:
        """Keys of the hosted types that a server of the operator's runs."""
        return frozenset(tool.hosted.kind for tool in self.tools if tool.hosted is not None)

    def vanished(self, name: str) -> tuple[str, str] | None:
        """(label, tool) of a name with a bound server's prefix that no listing has; None for any other name."""
        if name in self.client or self.by_internal(name) is not None:
            return None
        # The longest label wins: `a__b` before `a`.
        for label in sorted(self.labels, key=len, reverse=True):
            if naming.has_prefix_of(name, label):
                tool = name.removeprefix(f"{naming.PREFIX}{label}__")
                # A long label is cut in its tools' names: then nothing is left to call the tool by in public.
                return label, tool if tool and tool != name else "unknown"
        return None


def bind(
    label: str,
    server_url: str,
    secret_id: str | None,
    specs: Iterable[ListedTool],
    *,
    asks: Callable[[ListedTool], bool],
    policies: Mapping[str, ToolPolicy] = NO_POLICIES,
    hidden: bool = False,
) -> tuple[ToolBinding, ...]:
    """The bindings of one server's allowed tools, in listing order, each with whether it `asks`. `policies`: the
    operator's, by tool; they make a tool ask, never free it of that."""
    bound = (_bind_one(label, server_url, secret_id, spec, asks, policies) for spec in specs)
    return tuple(replace(tool, hidden=True) for tool in bound) if hidden else tuple(bound)


def _bind_one(
    label: str,
    server_url: str,
    secret_id: str | None,
    spec: ListedTool,
    asks: Callable[[ListedTool], bool],
    policies: Mapping[str, ToolPolicy],
) -> ToolBinding:
    policy = policies.get(spec.name, ToolPolicy())
    return ToolBinding(
        label=label,
        name=spec.name,
        internal_name=naming.internal_name(label, spec.name),
        description=spec.description,
        parameters=spec.schema,
        server_url=server_url,
        secret_id=secret_id,
        safe=bool(spec.read_only or spec.idempotent),
        ask=policy.asks or asks(spec),
        timeout=policy.timeout,
        shaping=policy.shaping,
    )


def bind_hosted(
    hosted: Hosted,
    server: str,
    server_url: str,
    spec: ListedTool,
    *,
    description: str,
    policy: ToolPolicy,
    hidden: bool = False,
) -> ToolBinding:
    """The binding of a hosted type. `server`: the operator's name of it; `description`: for a tool that has none."""
    return ToolBinding(
        label=server,
        name=spec.name,
        internal_name=hosted.kind,
        description=spec.description or description,
        parameters=spec.schema,
        server_url=server_url,
        secret_id=None,
        safe=bool(spec.read_only or spec.idempotent),
        ask=False,
        timeout=policy.timeout,
        shaping=policy.shaping,
        hosted=hosted,
        hidden=hidden,
    )


def gather(
    bindings_id: str,
    tools: Iterable[ToolBinding],
    *,
    client: Sequence[str] = (),
    labels: Collection[str] = (),
    hidden: Sequence[str] = (),
) -> Bindings:
    """All of a response. Raises: InvalidRequest naming both owners when two tools share the model's name."""
    bound = tuple(tools)
    owners = {name: f"function '{name}'" for name in client}
    for tool in bound:
        owner = f"tool '{tool.name}' of server '{tool.label}'"
        if tool.internal_name in owners:
            raise InvalidRequest(
                f"{owners[tool.internal_name]} and {owner} both reach the model as '{tool.internal_name}'; "
                "rename the function or the server_label",
                param="tools",
            )
        owners[tool.internal_name] = owner
    every_label = dict.fromkeys([*labels, *(tool.label for tool in bound if tool.hosted is None)])
    return Bindings(bindings_id, bound, tuple(client), tuple(every_label), tuple(hidden))


def model_tools(bindings: Bindings, client_tools: Iterable[JsonObject]) -> tuple[ModelFunction, ...]:
    """What the model sees: the request's functions in their order, then the gateway's tools."""
    functions = [
        ModelFunction(
            tool["name"],
            tool.get("description"),
            tool.get("parameters"),
            tool.get("strict"),
            {key: tool[key] for key in _MORE if tool.get(key) is not None} or None,
        )
        for tool in client_tools
        if tool.get("type") == "function"
    ]
    gateway = [ModelFunction(tool.internal_name, tool.description, tool.parameters) for tool in bindings.tools]
    return (*functions, *gateway)


def dump(bindings: Bindings) -> JsonObject:
    """The row's JSON."""
    return asdict(bindings)


def load(raw: JsonObject) -> Bindings:
    """The bindings of a row. Raises: KeyError, TypeError for JSON that `dump` did not write."""
    return Bindings(
        id=raw["id"],
        tools=tuple(_load_tool(tool) for tool in raw["tools"]),
        client=tuple(raw["client"]),
        labels=tuple(raw["labels"]),
        hidden=tuple(raw.get("hidden", ())),
    )


def _load_tool(raw: JsonObject) -> ToolBinding:
    # Rows of runs that parked before there were hosted tools have neither.
    hosted = raw.get("hosted")
    parts = {"shaping": Shaping(**raw.get("shaping", {})), "hosted": None if hosted is None else Hosted(**hosted)}
    return ToolBinding(**{**raw, **parts})
