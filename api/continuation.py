"""Continuations: what a request decides, and the calls it thereby brings (behaviour §3).

A decision executes the stored call; nothing of the request but the verdict is used. Which asks are meant:

* chained: those the previous response lists. A decision on an ask that a newer response lists is stale.
* stateless, or in a conversation: those listed by the response whose asks are decided, or stand at the end of what was
  said. Only the ids count; what the client says about the call is not looked at.

Decisions made elsewhere meanwhile are used as well, and stored as hidden inputs, so that the chain shows them to the
model. A request that decides nothing, here or there, is a branch: no claim, the gate stays. Contradictions, used and
expired asks are refused by the store, inside the transaction that takes them: only there is it certain who was first.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

from api.asks import asks_now
from api.deps import Principal
from outlast.loop import approvals as policy
from outlast.loop.state import call_names
from outlast.protocol import building, ids
from outlast.protocol.errors import ApprovalAlreadyDecided, ApprovalMismatch, Forbidden, InvalidRequest
from outlast.protocol.events import WireEvent
from outlast.protocol.items import Item, McpApprovalRequest, McpApprovalResponse, parse_item
from outlast.protocol.json import JsonObject
from outlast.protocol.requests import CreateResponse
from outlast.protocol.tools import McpTool
from outlast.store.base import Approval, CallRow, DecisionRequest, ResponseRecord, StoredItem
from outlast.store.port import Store

_VERDICTS = {"approved": True, "denied": False}


@dataclass(frozen=True, slots=True)
class Approved:
    """An approved call and the id of the `mcp_call` it becomes."""

    approval: Approval
    item_id: str


@dataclass(frozen=True, slots=True)
class Plan:
    """What a request takes over from open asks. Ordinals of its round 0: approved calls first, then open asks."""

    approved: tuple[Approved, ...] = ()
    undecided: tuple[Approval, ...] = ()
    # Asks that stay as they are and are continued from this response from now on; they are not shown again.
    carried: tuple[Approval, ...] = ()
    decisions: tuple[DecisionRequest, ...] = ()
    takes: tuple[str, ...] = ()
    hidden_inputs: tuple[JsonObject, ...] = ()
    claim: tuple[str, str] | None = None
    continues: str | None = None
    # server label -> secret id of what the caller gave the parked run; used where the request brings nothing fresh.
    credentials: Mapping[str, str] = field(default_factory=dict)

    @property
    def run(self) -> tuple[int, ...]:
        """Ordinals to run."""
        return tuple(range(len(self.approved)))

    @property
    def ask(self) -> tuple[int, ...]:
        """Ordinals to list again."""
        return tuple(range(len(self.approved), len(self.approved) + len(self.undecided)))

    @property
    def names(self) -> tuple[tuple[int, str], ...]:
        """`label.tool` by ordinal, for Temporal's UI."""
        asks = [*(one.approval for one in self.approved), *self.undecided]
        return call_names([(i, f"{ask.server_label}.{ask.name}") for i, ask in enumerate(asks)])

    @property
    def relist(self) -> tuple[str, ...]:
        """Ids of the asks to list again."""
        return tuple(ask.id for ask in (*self.undecided, *self.carried))

    @property
    def events(self) -> list[WireEvent]:
        """The approved calls, announced: the first items of the response."""
        return [event for one in self.approved for event in building.announce_mcp_call(_item(one))]

    def calls(self, response_id: str, credentials: Mapping[str, str]) -> list[CallRow]:
        """The rows of round 0. `credentials`: fresh ones of the request, by label; else those of the parked run."""
        run = [
            _row(response_id, i, one.approval, credentials, item_id=one.item_id) for i, one in enumerate(self.approved)
        ]
        first = len(run)
        return run + [_row(response_id, first + i, ask, credentials) for i, ask in enumerate(self.undecided)]


def _item(one: Approved) -> JsonObject:
    ask = one.approval
    return building.mcp_call_item(one.item_id, ask.server_label, ask.name, ask.arguments, approval_request_id=ask.id)


def _row(
    response_id: str, ordinal: int, ask: Approval, credentials: Mapping[str, str], *, item_id: str | None = None
) -> CallRow:
    return CallRow(
        response_id=response_id,
        round=0,
        ordinal=ordinal,
        item_id=item_id or ask.item_id,
        action="ask" if item_id is None else "run",
        call_id=ask.call_id,
        name=ask.name,
        arguments=ask.arguments,
        server_label=ask.server_label,
        server_url=ask.server_url,
        secret_id=credentials.get(ask.server_label, ask.secret_id),
        safe=ask.safe,
        approval_id=ask.id,
    )


async def plan(
    request: CreateResponse,
    previous: ResponseRecord | None,
    caller: Principal,
    store: Store,
    now: float,
    *,
    told: Sequence[StoredItem] = (),
    connectors: Mapping[str, str],
) -> Plan:
    """`told`: the conversation before the input; `connectors`: URLs of configured servers.

    Raises: InvalidRequest (unknown, foreign, stale), ApprovalAlreadyDecided, ApprovalMismatch, Forbidden.
    """
    verdicts = {decision.approval_request_id: decision for decision in policy.split_decisions(request.input).decisions}
    listed_by = previous.id if previous is not None else await _listing(told, request.input, verdicts, caller, store)
    if listed_by is None:
        return Plan()
    # An ask of wait mode holds up its own response and was used there.
    found = await asks_now(store, caller.tenant, now, response_id=listed_by)
    asks = [ask for ask in found if ask.mode == "respond"]
    for approval_id in verdicts.keys() - {ask.id for ask in asks}:
        await _refuse_stranger(approval_id, listed_by, caller, store)
    settled = [
        _whole(ask, request.input)
        for ask in asks
        if ask.id in verdicts or (ask.status in _VERDICTS and ask.taken_by is None)
    ]
    if not settled:
        return Plan()
    undecided = [_whole(ask, request.input) for ask in asks if ask.status == "pending" and ask.id not in verdicts]
    for ask in settled:
        _check_decider(ask, verdicts.get(ask.id), caller)
    for ask in (*settled, *undecided):
        _check_target(ask, request, caller, connectors)
    workflow_id = await store.parked_on(caller.tenant, listed_by) if request.stored else None
    return Plan(
        approved=tuple(
            Approved(ask, ids.mint(ids.Prefix.MCP_CALL)) for ask in settled if _approves(ask, verdicts.get(ask.id))
        ),
        undecided=tuple(undecided),
        decisions=tuple(_wish(decision, caller, now) for decision in verdicts.values()),
        takes=tuple(ask.id for ask in settled),
        hidden_inputs=tuple(_hidden(ask) for ask in settled if ask.id not in verdicts),
        credentials={
            ask.server_label: ask.secret_id
            for ask in (*settled, *undecided)
            if ask.secret_id is not None and ask.owner == caller.key_id
        },
        continues=listed_by,
        claim=None if workflow_id is None else (workflow_id, listed_by),
    )


async def _listing(
    told: Sequence[StoredItem],
    items: Sequence[Item],
    verdicts: Mapping[str, McpApprovalResponse],
    caller: Principal,
    store: Store,
) -> str | None:
    """The response whose asks a stateless input or a conversation continues; None: it continues none."""
    for approval_id in verdicts:
        ask = await store.approval(caller.tenant, approval_id)
        if ask is None:
            raise _unknown(approval_id)
        return ask.listed_by
    for approval_id in _trailing_asks(told, items):
        ask = await store.approval(caller.tenant, approval_id)
        if ask is not None and ask.taken_by is None:
            return ask.listed_by
    return None


def _trailing_asks(told: Sequence[StoredItem], items: Sequence[Item]) -> list[str]:
    """Asks after which the model made nothing else: the end of the last response."""
    found: list[str] = []
    for item in chain(reversed(items), (parse_item(stored.item) for stored in reversed(told))):
        if isinstance(item, McpApprovalRequest):
            found.append(item.id)
        elif policy.model_made(item):
            break
    return found


async def _refuse_stranger(approval_id: str, listed_by: str, caller: Principal, store: Store) -> None:
    """A decision on an ask that is not among those continued from: say what it is instead."""
    ask = await store.approval(caller.tenant, approval_id)
    if ask is None:
        raise _unknown(approval_id)
    if ask.mode == "wait":
        raise InvalidRequest(
            f"Approval '{ask.id}' holds up response '{ask.response_id}' itself: decide it with "
            f"POST /v1/approvals/{ask.id}.",
            param="input",
        )
    if ask.taken_by is not None:
        raise ApprovalAlreadyDecided(
            f"Approval '{approval_id}' was {ask.status} by {ask.decided_by} and used by response '{ask.taken_by}'.",
            param="input",
        )
    raise InvalidRequest(
        f"Approval '{approval_id}' is not listed by response '{listed_by}': continue from '{ask.listed_by}', "
        "the newest response that lists it.",
        param="input",
        code="approval_stale",
    )


def _unknown(approval_id: str) -> InvalidRequest:
    return InvalidRequest(
        f"Approval '{approval_id}' not found: it is none that this server asked for and still holds.",
        param="input",
        code="approval_not_found",
    )


def _whole(ask: Approval, items: Sequence[Item]) -> Approval:
    """The ask with its arguments. Those of a `store: false` response were not kept: the client sends the request back,
    and the fingerprint says whether it is the one that was shown."""
    if ask.arguments:
        return ask
    sent = next((item for item in items if isinstance(item, McpApprovalRequest) and item.id == ask.id), None)
    if sent is None:
        raise InvalidRequest(
            f"Approval '{ask.id}' is of a response that was not stored: send its mcp_approval_request item back, "
            "before the decision.",
            param="input",
        )
    whole = replace(ask, arguments=sent.arguments)
    if _fingerprint(whole, ask.server_url, ask.owner) != ask.fingerprint:
        raise ApprovalMismatch(
            f"The mcp_approval_request '{ask.id}' in the input is not the one that was shown: send it back unchanged.",
            param="input",
        )
    return whole


def _fingerprint(ask: Approval, server_url: str, owner: str | None) -> str:
    return policy.fingerprint(
        tenant=ask.tenant, server=server_url, tool=ask.name, arguments=ask.arguments, owner=owner or ""
    )


def _check_decider(ask: Approval, decision: McpApprovalResponse | None, caller: Principal) -> None:
    if decision is None:
        return
    if not caller.has("approver") and _VERDICTS.get(ask.status) is not decision.approve:
        raise Forbidden(
            f"Deciding approval '{ask.id}' needs the role 'approver', which your API key does not have. "
            "Continue once somebody has decided it."
        )


def _check_target(ask: Approval, request: CreateResponse, caller: Principal, connectors: Mapping[str, str]) -> None:
    """The approval is for what was shown: this server, this call, these credentials' owner."""
    tool = next(
        (tool for tool in request.tools if isinstance(tool, McpTool) and tool.server_label == ask.server_label), None
    )
    if tool is None:
        return
    owner = caller.key_id if tool.secrets() else ask.owner
    if _fingerprint(ask, tool.address(connectors), owner) != ask.fingerprint:
        raise ApprovalMismatch(
            f"Approval '{ask.id}' is for tool '{ask.name}' of server '{ask.server_label}' as it was declared then "
            f"({ask.server_url}); this request declares the label differently. The approval is kept.",
            param="tools",
        )


def _approves(ask: Approval, decision: McpApprovalResponse | None) -> bool:
    return ask.status == "approved" if decision is None else decision.approve


def _wish(decision: McpApprovalResponse, caller: Principal, now: float) -> DecisionRequest:
    return DecisionRequest(
        approval_id=decision.approval_request_id,
        approve=decision.approve,
        who=caller.key_id,
        how="continuation",
        reason=decision.reason,
        at=int(now),
    )


def _hidden(ask: Approval) -> JsonObject:
    """A decision made elsewhere, as the chain shows it to the model."""
    item_id = ids.mint(ids.Prefix.MCP_APPROVAL_RESPONSE)
    reason = policy.told_reason(ask.decided_how, ask.reason)
    return building.approval_response_item(item_id, ask.id, approve=ask.status == "approved", reason=reason)
