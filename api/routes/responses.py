"""`/v1/responses`: routes parse, call, return."""

from typing import Annotated, Literal

from fastapi import APIRouter, Header, Query, Request
from fastapi.responses import Response

from api import attach, body, compaction, ending, paging, repeats
from api.deps import Alive, Caller, Ports
from api.errors import Json
from api.include import Include, sealed
from api.services import Services
from api.sse import EventStream, Tail, nothing_left
from api.views import response_json
from outlast.protocol.errors import NotFound
from outlast.store.base import ResponseRecord

router = APIRouter(prefix="/v1/responses", tags=["responses"])

Key = Annotated[str | None, Header(alias=repeats.KEY_HEADER)]
RetryCount = Annotated[str | None, Header(alias=repeats.RETRY_HEADER)]


@router.post("")
async def create_response(
    request: Request, caller: Caller, ports: Ports, alive: Alive, key: Key = None, retry_count: RetryCount = None
) -> Response:
    """Create a response: JSON, an event stream (`stream`), or at once (`background`). A repeat is answered with it."""
    raw = await body.read(request, ports.limits.max_body_bytes)
    turn = await repeats.create_once(raw, repeats.Marks(key, retry_count), caller, ports, alive)
    return await attach.answer(turn, ports, request.receive)


@router.post("/compact")
async def compact(
    request: Request, caller: Caller, ports: Ports, alive: Alive, key: Key = None, retry_count: RetryCount = None
) -> Response:
    """Compact a context: the user's messages and one compaction item, to be sent back in the place of all of it."""
    raw = await body.read(request, ports.limits.max_body_bytes)
    asked = compaction.with_trigger(raw, ports.limits)
    turn = await repeats.create_once(asked, repeats.Marks(key, retry_count), caller, ports, alive)
    return await attach.answer(
        turn, ports, request.receive, shape=lambda response: compaction.window(response, caller, ports)
    )


@router.post("/input_tokens")
async def count_input_tokens(request: Request, caller: Caller, ports: Ports) -> Response:
    """How many tokens a request would give its model; nothing is run or kept."""
    raw = await body.read(request, ports.limits.max_body_bytes)
    counted = await compaction.count(raw, caller, ports)
    return Json({"object": "response.input_tokens", "input_tokens": counted})


@router.get("/{response_id}")
async def get_response(
    response_id: str,
    caller: Caller,
    ports: Ports,
    include: Include = None,
    stream: bool = False,
    starting_after: Annotated[int | None, Query(ge=0)] = None,
) -> Response:
    """The response as it stands, or its events after a number: replay first, then live."""
    record = await _known(ports, caller.tenant, response_id)
    if stream:
        after = -1 if starting_after is None else starting_after
        if record.ended and after >= record.next_sequence - 1:
            return nothing_left()
        return EventStream(Tail(ports.store.follow(caller.tenant, response_id, after)), after=after)
    output = await ports.store.output(caller.tenant, response_id, sealed=sealed(include))
    waiting = record.mode == "wait" and not record.ended
    asks = await ports.store.approvals(caller.tenant, status="pending", response_id=response_id) if waiting else ()
    return Json(response_json(record, output, [ask for ask in asks if ask.server_url not in ports.servers.hidden]))


@router.delete("/{response_id}")
async def delete_response(response_id: str, caller: Caller, ports: Ports) -> Response:
    """Forget it: what runs is cancelled first, open asks are withdrawn."""
    record = await _known(ports, caller.tenant, response_id)
    await ending.delete(ports, record)
    return Json({"id": response_id, "object": "response.deleted", "deleted": True})


@router.post("/{response_id}/cancel")
async def cancel_response(response_id: str, caller: Caller, ports: Ports) -> Response:
    """Cancel a background response; a finished one is answered as it is."""
    record = await ending.cancel(ports, await _known(ports, caller.tenant, response_id))
    return Json(response_json(record, await ports.store.output(caller.tenant, response_id)))


@router.get("/{response_id}/input_items")
async def list_input_items(
    response_id: str,
    caller: Caller,
    ports: Ports,
    include: Include = None,
    after: str | None = None,
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
    order: Literal["asc", "desc"] = "desc",
) -> Response:
    """What the response was made from, the chain before it included."""
    await _known(ports, caller.tenant, response_id)
    items = list(await ports.store.input_items(caller.tenant, response_id, sealed=sealed(include)))
    if order == "desc":
        items.reverse()
    shown, more = paging.after(items, after, limit, key=lambda item: str(item.get("id")))
    return Json(paging.page(shown, has_more=more))


async def _known(ports: Services, tenant: str, response_id: str) -> ResponseRecord:
    """The row a client may see: nothing of `store: false` is readable by id."""
    record = await ports.store.get(tenant, response_id)
    if record is None or not record.store:
        raise NotFound(f"Response with id '{response_id}' not found.", param="response_id")
    return record
