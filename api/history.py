"""What a request continues: the response before it, the items it names, the history they make together."""

from collections.abc import Mapping, Sequence
from functools import partial

from api.deps import Principal
from outlast.loop import compaction, validate
from outlast.loop.prepare import Reads
from outlast.protocol import hosted
from outlast.protocol.errors import InvalidRequest, PreviousResponseNotFound
from outlast.protocol.items import Item, McpCall, NativeItem, Reasoning, parse_item
from outlast.protocol.json import JsonObject
from outlast.protocol.requests import CreateResponse
from outlast.store.base import ResponseRecord, StoredItem
from outlast.store.conversations_port import Conversations
from outlast.store.port import Store


async def with_references(
    request: CreateResponse,
    chain: Sequence[StoredItem],
    caller: Principal,
    store: Store,
    conversations: Conversations,
) -> CreateResponse:
    """The request with references replaced by what they name. Raises: NotFound naming an unknown id."""
    wanted = validate.references(request.input)
    if not wanted:
        return request
    found = await items_named(wanted, caller, store, conversations)
    present = {str(stored.item.get("id")) for stored in chain}
    return request.model_copy(update={"input": validate.resolve(request.input, found, present=present)})


async def items_named(
    item_ids: Sequence[str], caller: Principal, store: Store, conversations: Conversations
) -> Mapping[str, JsonObject]:
    """Stored items by id, wherever they are; unknown ids are missing."""
    found = await store.find_items(caller.tenant, item_ids)
    missing = [item_id for item_id in item_ids if item_id not in found]
    return {**found, **(await conversations.find_items(caller.tenant, missing))} if missing else found


async def check(
    request: CreateResponse,
    chain: Sequence[StoredItem],
    caller: Principal,
    store: Store,
    reads: Reads,
    *,
    compacts: bool = False,
) -> None:
    """Everything a model would be shown, stored and sent, checked as one. `compacts`: it is asked for a compaction.

    Raises: InvalidRequest."""
    history = [parse_item(stored.whole) for stored in chain if stored.done]
    interrupted = await _interrupted(chain, request.input, caller, store)
    before = "previous_response_id" if request.conversation is None else "conversation"
    validate.validate(
        history,
        request.input,
        upstream=reads,
        interrupted=interrupted,
        before=before,
        opener=compaction.opener(partial(store.unseal, caller.tenant)),
        compacts=compacts,
    )


def ours(inputs: Sequence[Item], reads: Reads) -> list[str]:
    """Ids of sent items that may be copies of ours and have more to them than clients are shown: reasoning an OpenAI
    server sealed, gateway calls whose tool returned images, hosted calls that ran here."""
    found: list[str] = []
    for item in inputs:
        match item:
            case McpCall(id=str(item_id)):
                found.append(item_id)
            case NativeItem(id=str(item_id), type=kind) if kind in hosted.ITEMS:
                found.append(item_id)
            case Reasoning(id=str(item_id), encrypted_content=None) if reads.encrypted_reasoning:
                found.append(item_id)
            case _:
                pass
    return found


async def _interrupted(
    chain: Sequence[StoredItem], inputs: Sequence[Item], caller: Principal, store: Store
) -> set[str]:
    """Calls nobody has to answer: those of responses that did not complete or are left in a conversation only."""
    # An item of a type nobody knows may have anything there.
    ids = [getattr(item, "call_id", None) for item in inputs]
    ids += [stored.item.get("call_id") for stored in chain if str(stored.item.get("type")).endswith("_output")]
    answered = {each for each in ids if isinstance(each, str)}
    open_calls: dict[str, set[str]] = {}
    for stored in chain:
        call_id = stored.item.get("call_id")
        if stored.side == "output" and isinstance(call_id, str) and call_id not in answered:
            open_calls.setdefault(stored.response_id, set()).add(call_id)
    found: set[str] = set()
    for response_id, call_ids in open_calls.items():
        record = await store.get(caller.tenant, response_id)
        if record is None or record.status != "completed":
            found |= call_ids
    return found


async def previous(request: CreateResponse, caller: Principal, store: Store) -> ResponseRecord | None:
    """The response a request continues, None for a new chain. Raises: PreviousResponseNotFound; InvalidRequest for one
    that has not ended, naming what it waits for."""
    previous_id = request.previous_response_id
    if previous_id is None:
        return None
    found = await store.get(caller.tenant, previous_id)
    if found is None or not found.store:
        raise PreviousResponseNotFound(
            f"Previous response with id '{previous_id}' not found.", param="previous_response_id"
        )
    if found.ended:
        return found
    asks = await store.approvals(caller.tenant, status="pending", response_id=previous_id)
    if asks:
        names = ", ".join(ask.id for ask in asks)
        raise InvalidRequest(
            f"Response '{previous_id}' waits for a decision on {names}: decide with POST /v1/approvals/{asks[0].id}, "
            "the same response then goes on.",
            param="previous_response_id",
            code="response_in_progress",
        )
    raise InvalidRequest(
        f"Response '{previous_id}' is still {found.status}: continue from it once it has ended.",
        param="previous_response_id",
        code="response_in_progress",
    )
