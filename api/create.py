"""`POST /v1/responses` up to the first byte: everything that can be refused is refused before one store transaction.

Order, and why: the body, then the names in it (model, previous response, references), then decisions, then the whole
history as a model would get it, then whether anybody would run it. Only then is something written, all of it or
nothing; the run is started afterwards, and a start that is lost is found by the sweeper.
"""

import dataclasses
import logging
from collections.abc import Sequence

from api import compaction, continuation, conversations, history, views
from api.attach import Turn
from api.continuation import Plan
from api.deps import Principal
from api.liveness import Liveness
from api.services import Services
from outlast.contracts import RunInput
from outlast.loop import decide
from outlast.loop.state import ApprovalMode, Batch, Budgets, RunState
from outlast.protocol import events, ids, native, requests, responses
from outlast.protocol.errors import InvalidRequest, Unavailable
from outlast.protocol.events import WireEvent
from outlast.protocol.json import JsonObject
from outlast.protocol.requests import CreateResponse
from outlast.protocol.tools import McpTool
from outlast.store.base import Created, Ending, IdempotencyKey, NewResponse, ResponseRecord, StoredItem
from outlast.store.conversations_port import History

_log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, slots=True)
class Sent:
    """How a POST can be known again: `origin`, a hash over who sent which body; its `Idempotency-Key`."""

    origin: bytes
    key: IdempotencyKey | None = None


async def create(
    raw: bytes,
    caller: Principal,
    ports: Services,
    alive: Liveness,
    *,
    held: ResponseRecord | None = None,
    sent: Sent | None = None,
    prepares: bool = False,
) -> Turn:
    """Check, write, and say how to launch. Raises: any InvalidRequest, NotFound, Forbidden, Unavailable.

    held: what the request continues, if it is not stored and the caller's connection holds it (WebSocket mode).
    sent: what to keep of the request for its repeats, which `api.repeats` looks for before this is called.
    prepares: it is not launched (`generate: false` in WebSocket mode), so it must not take what only a run can use.
    """
    caller.require("caller")
    request, compacts = compaction.parse(raw, ports.limits)
    if held is not None:
        kept = await ports.store.chain(held.tenant, held.id)
        request = requests.stitched(request, [stored.whole for stored in kept if stored.done], ports.limits)
    ports.catalog.resolve(request.model)
    reads = ports.catalog.capabilities(request.model)
    if not reads.native:
        native.admit(request.tools, request.tool_choice, bound=ports.servers.builtins, skip=ports.skip_tools)
    _refuse_unknown_servers(request, ports)
    previous = await history.previous(request, caller, ports.store) if held is None else None
    turn = await conversations.before(request, caller, ports)
    told = turn.items if turn is not None else ()
    chain = await ports.store.chain(caller.tenant, previous.id) if previous is not None else told
    request = await history.with_references(request, chain, caller, ports.store, ports.conversations)
    plan = await _plan(request, previous, told, caller, ports, compacts=compacts, prepares=prepares)
    await history.check(request, chain, caller, ports.store, reads, compacts=compacts)
    if not request.background:
        await alive.require()
    new, state = _new_response(request, previous or turn, plan, caller, ports, compacts=compacts)
    if sent is not None:
        new = dataclasses.replace(new, key=sent.key, origin=sent.origin)
    if held is not None:
        new = dataclasses.replace(new, held=held.id)
    try:
        created = await ports.store.create(new)
    except InvalidRequest as error:
        # The store knows rows, not the request: an ask it refuses to use came with the input.
        error.param = error.param or "input"
        raise
    if created.repeated:
        return Turn(created.record, bool(request.stream), None)

    async def launch() -> None:
        await _launch(ports, created, state)

    return Turn(created.record, bool(request.stream), launch)


async def _plan(
    request: CreateResponse,
    previous: ResponseRecord | None,
    told: Sequence[StoredItem],
    caller: Principal,
    ports: Services,
    *,
    compacts: bool,
    prepares: bool,
) -> Plan:
    """What it takes over from open asks. Raises: as the two makers of plans; InvalidRequest."""
    if compacts:
        plan = await compaction.plan(request, previous, caller, ports)
    else:
        plan = await continuation.plan(
            request, previous, caller, ports.store, ports.clock(), told=told, connectors=ports.servers.connectors
        )
    if prepares and (plan.takes or compacts):
        raise InvalidRequest(
            "'generate: false' runs nothing, and this request would run a call that was decided or make a compaction: "
            "send it without 'generate'.",
            param="generate",
        )
    return plan


# -- the transaction ---------------------------------------------------------------------------------------------------


def _new_response(
    request: CreateResponse,
    before: ResponseRecord | History | None,
    plan: Plan,
    caller: Principal,
    ports: Services,
    *,
    compacts: bool,
) -> tuple[NewResponse, RunState]:
    now = ports.clock()
    response_id = ids.mint(ids.Prefix.RESPONSE)
    state = dataclasses.replace(_first_state(request, response_id, plan, ports, now), compacts=compacts)
    background = bool(request.background)
    fresh, secrets = _sealed(request)
    credentials = {**plan.credentials, **fresh}
    record = ResponseRecord(
        tenant=caller.tenant,
        id=response_id,
        workflow_id=response_id,
        status="queued" if background else "in_progress",
        model=request.model,
        request=requests.echo(request),
        run_state=dataclasses.asdict(state),
        created_at=int(now),
        background=background,
        store=request.stored,
        mode=state.mode.value,
        previous_response_id=before.id if isinstance(before, ResponseRecord) else None,
        conversation_id=request.conversation,
        conversation_end=before.end if isinstance(before, History) else None,
        credentials=credentials,
        owner=caller.key_id,
    )
    new = NewResponse(
        record=record,
        inputs=requests.canonical_inputs(request, ids.mint_item),
        events=[*_opening(record), *plan.events],
        hidden_inputs=plan.hidden_inputs,
        recalled=history.ours(request.input, ports.catalog.capabilities(request.model)),
        calls=plan.calls(response_id, fresh),
        decisions=plan.decisions,
        takes=plan.takes,
        relist=plan.relist,
        continues=plan.continues,
        claim=plan.claim,
        secrets=secrets,
    )
    return new, state


def _first_state(request: CreateResponse, response_id: str, plan: Plan, ports: Services, now: float) -> RunState:
    budget, limits = request.budget, ports.limits
    budgets = Budgets(
        max_rounds=budget.max_rounds or limits.max_rounds,
        max_tool_calls=request.max_tool_calls or limits.max_tool_calls,
        max_total_tokens=budget.max_total_tokens,
        deadline=None if budget.max_seconds is None else now + budget.max_seconds,
        parallel=1 if request.parallel_tool_calls is False else ports.parallel_tool_calls,
    )
    mode = _mode(request, ports)
    _refuse_unseen_asks(request, mode, ports)
    state = RunState(
        response_id=response_id,
        # Asks that are listed again end this response before any model round: they stay what the caller was shown.
        mode=ApprovalMode.RESPOND if plan.undecided else mode,
        budgets=budgets,
        tool_calls=len(plan.run),
        batch=Batch(round=0, run=plan.run, ask=plan.ask, names=plan.names),
        now=now,
        approval_deadline=ports.approvals.deadline_seconds,
    )
    return decide.initial(state)


def _mode(request: CreateResponse, ports: Services) -> ApprovalMode:
    asked = request.outlast.approval_mode if request.outlast is not None else None
    if asked is not None:
        return ApprovalMode(asked)
    # A configured `wait` needs somebody who can wait: plain JSON falls back.
    return ports.approvals.mode if request.background or request.stream else ApprovalMode.RESPOND


def _refuse_unknown_servers(request: CreateResponse, ports: Services) -> None:
    """Raises: InvalidRequest for a `connector_id` the operator has not configured."""
    for index, tool in enumerate(request.tools):
        if isinstance(tool, McpTool):
            try:
                tool.address(ports.servers.connectors)
            except InvalidRequest as error:
                error.param = f"tools[{index}].connector_id"
                raise


def _refuse_unseen_asks(request: CreateResponse, mode: ApprovalMode, ports: Services) -> None:
    """An ask of `respond` mode is an output item, which a hidden server must not have. Raises: InvalidRequest."""
    if mode is ApprovalMode.WAIT:
        return
    for index, tool in enumerate(request.tools):
        if not isinstance(tool, McpTool) or tool.require_approval == "never":
            continue
        if tool.address(ports.servers.connectors) in ports.servers.hidden:
            raise InvalidRequest(
                f"'tools[{index}]' is an internal server of this deployment: nobody would see its approval requests. "
                "Set 'require_approval' to 'never', or 'outlast.approval_mode' to 'wait' with 'stream' or "
                "'background'.",
                param=f"tools[{index}].require_approval",
            )


def _sealed(request: CreateResponse) -> tuple[dict[str, str], dict[str, JsonObject]]:
    """(server label -> secret id, secret id -> headers) of what the request brings."""
    credentials: dict[str, str] = {}
    secrets: dict[str, JsonObject] = {}
    for tool in request.tools:
        if isinstance(tool, McpTool) and (headers := tool.secrets()):
            secret_id = ids.mint(ids.Prefix.SECRET)
            credentials[tool.server_label] = secret_id
            secrets[secret_id] = dict(headers)
    return credentials, secrets


def _opening(record: ResponseRecord) -> Sequence[WireEvent]:
    """`created` and what follows it; in the background `in_progress` is for the first step to say."""
    second = events.QUEUED if record.background else events.IN_PROGRESS
    response = views.response_json(record, ())
    return [responses.lifecycle(kind, response) for kind in (events.CREATED, second)]


# -- the run -----------------------------------------------------------------------------------------------------------


async def _launch(ports: Services, created: Created, state: RunState) -> None:
    """Wake the claimed run or start one. Raises: Unavailable for a foreground response, which is then ended."""
    record = created.record
    try:
        if created.claimed and await ports.runs.resume(record.workflow_id, record.id):
            return
        if created.claimed and not await _take_over(ports, record):
            return
        await ports.runs.start(RunInput(record.tenant, state, record.model, ports.timeouts), record.id)
    except Unavailable as error:
        if record.background:
            # Its row is queued: the sweeper starts it when Temporal is back.
            _log.warning("could not start %s, left to the sweeper: %s", record.id, error.message)
            return
        await _give_up(ports, record, error)
        raise


async def _take_over(ports: Services, record: ResponseRecord) -> bool:
    """The parked run is gone: the response gets a run of its own, unless the sweeper gave it one."""
    return await ports.store.set_workflow(record.tenant, record.id, old=record.workflow_id, new=record.id)


async def _give_up(ports: Services, record: ResponseRecord, error: Unavailable) -> None:
    """End it, so that a start that did arrive finds nothing to do and the client may simply try again."""
    ending = Ending("failed", error=responses.error_of(error))
    await ports.store.end(record.tenant, record.id, ending)
