"""Compaction and token counts as the API has them: what of a request is for them, and the window that comes of it."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from api import conversations, history
from api.asks import asks_now
from api.continuation import Plan
from api.deps import Principal
from api.services import Services
from outlast.loop import approvals, tokens
from outlast.loop import compaction as loop
from outlast.loop.prepare import prepare
from outlast.protocol import compaction as wire
from outlast.protocol import json, requests
from outlast.protocol.errors import InvalidRequest, UpstreamUnavailable
from outlast.protocol.items import Item, Message, dump, parse_item
from outlast.protocol.json import JsonObject
from outlast.protocol.requests import CreateResponse, RequestLimits
from outlast.store.base import ResponseRecord

# What a count needs no model for is counted as for one that reads everything.
_ANY_MODEL = "any"
_USABLE = ("pending", "approved", "denied")


def parse(raw: bytes, limits: RequestLimits) -> tuple[CreateResponse, bool]:
    """A request without its compaction trigger, and whether it had one. Raises: as `requests.parse_create`."""
    request = requests.parse_create(raw, limits)
    kept, compacts = wire.without_trigger(request.input)
    return (request.model_copy(update={"input": kept}) if compacts else request), compacts


async def plan(request: CreateResponse, previous: ResponseRecord | None, caller: Principal, ports: Services) -> Plan:
    """A compaction decides and runs nothing: what is asked and not yet used is kept, and continued from it.

    Raises: InvalidRequest for a decision beside it."""
    if approvals.split_decisions(request.input).decisions:
        raise InvalidRequest(
            "An mcp_approval_response cannot be sent with a compaction_trigger: continue with the decision first, then "
            "ask for the compaction.",
            param="input",
        )
    if previous is None:
        return Plan()
    asks = await asks_now(ports.store, caller.tenant, ports.clock(), response_id=previous.id)
    return Plan(
        carried=tuple(ask for ask in asks if ask.mode == "respond" and ask.taken_by is None and ask.status in _USABLE),
        continues=previous.id,
    )


def with_trigger(raw: bytes, limits: RequestLimits) -> bytes:
    """The body of `POST /v1/responses/compact` as that of the response that does it. Raises: as `requests.load`."""
    body = requests.load(raw, limits)
    given = body.get("input")
    if isinstance(given, str):
        given = [{"type": "message", "role": "user", "content": given}]
    trigger: JsonObject = {"type": "compaction_trigger"}
    if given is None or isinstance(given, list):
        given = [*(given or ()), trigger]
    others = {key: value for key, value in body.items() if key not in ("stream", "stream_options", "background")}
    return json.dumps({**others, "input": given})


async def window(response: JsonObject, caller: Principal, ports: Services) -> JsonObject:
    """What `POST /v1/responses/compact` answers of an ended response. Raises: UpstreamUnavailable when it came to
    nothing."""
    if not any(item.get("type") == "compaction" for item in response["output"]):
        raise UpstreamUnavailable("The model server ended its answer without a compaction: try again.")
    chain = await ports.store.chain(caller.tenant, response["id"])
    items = [parse_item(stored.whole) for stored in chain if stored.done]
    live = loop.surviving(items, loop.opener(partial(ports.store.unseal, caller.tenant)))
    said = [dump(placed.item) for placed in live if isinstance(placed.item, Message) and placed.item.role == "user"]
    return wire.window(response, said)


async def count(raw: bytes, caller: Principal, ports: Services) -> int:
    """Tokens a request would give its model, about; exact where the model server counts itself.

    Raises: as `POST /v1/responses` for what it refuses before anything is written.
    """
    caller.require("caller")
    body = requests.load(raw, ports.limits)
    named = body.get("model") is not None
    request, _ = parse(raw if named else json.dumps({**body, "model": _ANY_MODEL}), ports.limits)
    if named:
        ports.catalog.resolve(request.model)
    context = await _context(request, caller, ports, named=named)
    counted = await ports.catalog.count(request.model, context) if named else None
    return tokens.estimate(context) if counted is None else counted


async def _context(request: CreateResponse, caller: Principal, ports: Services, *, named: bool) -> tokens.Context:
    previous = await history.previous(request, caller, ports.store)
    turn = await conversations.before(request, caller, ports)
    told = turn.items if turn is not None else ()
    chain = await ports.store.chain(caller.tenant, previous.id) if previous is not None else told
    request = await history.with_references(request, chain, caller, ports.store, ports.conversations)
    items: Sequence[Item] = [*(parse_item(stored.whole) for stored in chain if stored.done), *request.input]
    reads = ports.catalog.capabilities(request.model) if named else _EVERYTHING
    await history.check(request, chain, caller, ports.store, reads, compacts=True)
    live = loop.expanded(items, loop.opener(partial(ports.store.unseal, caller.tenant)))
    return tokens.Context(
        transcript=prepare(live, upstream=reads).transcript,
        instructions=request.instructions,
        tools=requests.echo(request).get("tools", ()),
    )


@dataclass(frozen=True, slots=True)
class _Everything:
    """Reads what there is."""

    images: bool = True
    encrypted_reasoning: bool = True
    native: bool = True


_EVERYTHING = _Everything()
