"""Calls of one model round, silent until they are whole, then announced in the model's order.

Clients run what they see (Codex a call at its `output_item.done`), so a call appears in one go: added, one delta, done.
A call never overtakes one the model made earlier; ordinals are that order.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from outlast.loop.bindings import Bindings
from outlast.loop.calls import CUT, CallAction, Counters, HostedCall, NewCall, Routed, classify
from outlast.protocol import building, events, hosted
from outlast.protocol.events import WireEvent
from outlast.protocol.json import JsonObject

# Calls of these native types belong to the client, wherever the model learnt them.
_CLIENT_TYPES = frozenset({"computer_call", "local_shell_call", "shell_call", "apply_patch_call", "tool_search_call"})


def is_client_call(item: JsonObject) -> bool:
    """Whether the client has to run a call of a native type; two types say so in a field."""
    if item.get("type") == "tool_search_call":
        return item.get("execution") == "client"
    if item.get("type") == "shell_call":
        return (item.get("environment") or {}).get("type") != "container_reference"
    return item.get("type") in _CLIENT_TYPES


class Call:
    """A function_call or custom_tool_call in the making. `finished`: the upstream has said all of it."""

    __slots__ = ("chunks", "finished", "given", "parked", "text", "type")

    def __init__(self, kind: str, given: JsonObject) -> None:
        self.type = kind
        self.given = given
        self.chunks: list[str] = []
        self.text: str | None = None
        self.parked: list[WireEvent] = []
        self.finished = False

    def content(self, field: str) -> str:
        """The whole text: the final item's, else the done event's, else the deltas."""
        return self.given.get(field) or self.text or "".join(self.chunks)


class Relayed:
    """An item whose events pass as they are but for ids. `parked`: a client's call waits there until it is whole."""

    __slots__ = ("finished", "id", "last", "parked", "type")

    def __init__(self, item_id: str, kind: str, parked: list[WireEvent] | None) -> None:
        self.id = item_id
        self.type = kind
        self.last: JsonObject = {}
        self.parked = parked
        self.finished = False

    def done(self) -> WireEvent:
        """The end of an item whose upstream did not end it."""
        return building.done({**self.last, "status": "incomplete"} if "status" in self.last else self.last)


def announced(call: NewCall) -> list[WireEvent]:
    """The events of a gateway call up to its run."""
    if call.hosted is not None:
        return hosted.announce(call.hosted.item)
    return building.announce_mcp_call(_mcp_item(call))


def unseen(call: NewCall) -> JsonObject:
    """The item of a hidden call, for the model alone: as it begins, or as it ends if nobody runs it."""
    if call.refusal is not None:
        item: JsonObject = refused(call)[-1].rest["item"]
        return item
    return _mcp_item(call) if call.hosted is None else call.hosted.item


def refused(call: NewCall) -> list[WireEvent]:
    """The events that end one nobody runs."""
    why = call.refusal or ""
    if call.hosted is not None:
        return hosted.fail(call.hosted.item, why)
    return building.finish_mcp_call(_mcp_item(call), error=building.tool_error(why))


def _mcp_item(call: NewCall) -> JsonObject:
    return building.mcp_call_item(call.item_id, call.label or "", call.name, call.arguments)


class CallQueue:
    """The calls of a round. `show`: where the events of an announcement go, at once and together."""

    def __init__(
        self,
        bindings: Bindings,
        counters: Counters,
        mint: Callable[[str], str],
        show: Callable[[Sequence[WireEvent]], None],
    ) -> None:
        self._bindings = bindings
        self._counters = counters
        self._mint = mint
        self._show = show
        self._pending: list[Call | Relayed] = []
        self._rows: list[NewCall] = []
        self._shown_runs: set[int] = set()
        self._new: dict[int, NewCall] = {}
        self.over_cap = False
        # Calls the model server ran itself in this round.
        self.hosted = 0

    @property
    def announced(self) -> bool:
        """Whether a client has seen a call of the round."""
        return any(row.action != "ask" for row in self._rows)

    def ordinals(self, action: CallAction) -> tuple[int, ...]:
        """Ordinals of the round's calls with this fate."""
        return tuple(row.ordinal for row in self._rows if row.action == action)

    def names(self) -> tuple[tuple[int, str], ...]:
        """(ordinal, `label.tool`) of the calls to run or to ask for."""
        return tuple((row.ordinal, f"{row.label}.{row.name}") for row in self._rows if row.action in ("run", "ask"))

    def push(self, call: Call | Relayed) -> None:
        """A call the model has begun."""
        self._pending.append(call)

    def announce_ready(self, *, all_whole: bool = False) -> None:
        """Announce whole calls from the front; `all_whole`: the round is, so every call is."""
        while self._pending and (all_whole or self._pending[0].finished):
            call = self._pending.pop(0)
            if isinstance(call, Relayed):
                self._announce_relayed(call)
            elif call.given.get("name"):  # a nameless call is no call
                self._announce(call)

    def refuse_shown(self) -> None:
        """The round was cut: nothing of it is executed, and what was shown as running ends failed."""
        for row in self._rows:
            if row.action in ("run", "ask"):
                cut = replace(row, action="refused", refusal=CUT)
                self._record(cut)
                if row.ordinal in self._shown_runs:
                    self._show(refused(cut))

    def drain(self) -> list[NewCall]:
        """Rows that are new or changed since the last time."""
        new, self._new = list(self._new.values()), {}
        return new

    def _announce(self, call: Call) -> None:
        if call.type == "custom_tool_call":
            self._announce_client(call, "input", call.content("input"))
            return
        # Some models say nothing for "no arguments"; nothing is no JSON.
        arguments = call.content("arguments") or "{}"
        if call.given.get("namespace"):  # only clients have namespaces, and one may name its tools like ours
            self._announce_client(call, "arguments", arguments)
            return
        used = self._counters.used + len(self.ordinals("run")) + len(self.ordinals("ask")) + self.hosted
        routed = classify(call.given["name"], arguments, self._bindings, replace(self._counters, used=used))
        if routed.label is None:
            self._announce_client(call, "arguments", arguments)
            return
        self.over_cap = self.over_cap or routed.over_cap
        row = self._gateway_row(call.given["name"], arguments, routed)
        self._record(row)
        if routed.action == "ask" or row.hidden:
            return
        self._show(announced(row))
        if routed.action == "run":
            self._shown_runs.add(row.ordinal)
        else:
            self._show(refused(row))

    def _gateway_row(self, name: str, arguments: str, routed: Routed) -> NewCall:
        """`name`, `arguments`: as the model gave them."""
        bound = routed.binding
        of = bound.hosted if bound is not None else None
        item_id = self._mint("mcp_call" if of is None else hosted.TYPES[of.kind].item)
        shaped = None
        if of is not None:
            item = hosted.item(of.kind, item_id, routed.merged, of.config)
            shaped = HostedCall(item, routed.merged, name, arguments)
        return NewCall(
            ordinal=len(self._rows),
            action=routed.action,
            item_id=item_id,
            call_id=item_id,
            name=routed.name,
            arguments=arguments if routed.arguments is None else routed.arguments,
            label=routed.label,
            binding=bound,
            refusal=routed.refusal,
            hosted=shaped,
            hidden=bound.hidden if bound is not None else routed.label in self._bindings.hidden,
        )

    def _announce_client(self, call: Call, field: str, text: str) -> None:
        item_id, name = self._mint(call.type), call.given["name"]
        call_id = call.given.get("call_id") or item_id
        own = {"id": item_id, "type": call.type, "status": "completed", "call_id": call_id, "name": name, field: text}
        extra = {key: value for key, value in call.given.items() if key not in own and value is not None}
        parked = [WireEvent(event.type, {**event.rest, "item_id": item_id}) for event in call.parked]
        self._record(NewCall(len(self._rows), "client", item_id, call_id, name, text))
        build = building.function_call_events if call.type == "function_call" else building.custom_call_events
        self._show(build({**own, **extra}, parked=parked))

    def _announce_relayed(self, call: Relayed) -> None:
        parked = call.parked or []
        if parked[-1].type != events.ITEM_DONE:
            parked.append(call.done())
        self._record(NewCall(len(self._rows), "client", call.id, call.last.get("call_id") or call.id, call.type, ""))
        self._show(parked)

    def _record(self, row: NewCall) -> None:
        """A new row, or the same ordinal again."""
        self._rows[row.ordinal : row.ordinal + 1] = [row]
        self._new[row.ordinal] = row
