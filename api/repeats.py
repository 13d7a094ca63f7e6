"""Whether a `POST /v1/responses` repeats one that has made a response: then that is the answer and nothing runs again.

* `Idempotency-Key`: the client's own name for a request, per tenant, kept for a day.
* Nobody sends that; SDKs send a POST again after a lost connection, a 408, 429 or 5xx, and the official ones mark it
  with `x-stainless-retry-count`. Such a retry of the same key, with the same bytes, is taken for what it repeats if
  that is younger than a quarter of an hour and has not failed. One that overtakes its first, which is still being
  checked in this process, waits for it.

A response of `store: false` can be joined while its first reader is still attached; afterwards there is nothing to
join. In another process than the first one's only by its key, and the first one's leaving ends it then.
"""

import hashlib
from dataclasses import dataclass

from api import create
from api.attach import Turn
from api.create import Sent
from api.deps import Principal
from api.liveness import Liveness
from api.services import Services
from outlast.protocol import requests
from outlast.protocol.errors import InvalidRequest
from outlast.store import idempotency
from outlast.store.base import IdempotencyKey, ResponseRecord

KEY_HEADER = idempotency.HEADER
RETRY_HEADER = "x-stainless-retry-count"
RETRY_SECONDS = 900.0
_MAX_KEY = 255


@dataclass(frozen=True, slots=True)
class Marks:
    """The two headers, as they came."""

    key: str | None = None
    retry_count: str | None = None

    @property
    def retried(self) -> bool:
        """Whether a client library says that it has sent this before."""
        count = self.retry_count or ""
        return count.isdecimal() and int(count) > 0


async def create_once(raw: bytes, marks: Marks, caller: Principal, ports: Services, alive: Liveness) -> Turn:
    """`create`, or the response that this request repeats the making of, looked for before every other check.

    Raises: as `create` and `Store.by_key`; InvalidRequest for a key that is none.
    """
    caller.require("caller")
    sent = _sent(raw, marks.key, caller)
    place = (caller.tenant, sent.origin)
    if marks.retried:
        await ports.making.settled(place)
    found = await _made(sent, marks.retried, caller, ports)
    if found is not None:
        return _join(found, raw, ports)
    try:
        with ports.making.one(place):
            turn = await create.create(raw, caller, ports, alive, sent=sent)
    except InvalidRequest:
        # What refuses it may be the first request of this key, written meanwhile: it holds the conversation, has used
        # the decision.
        found = await _made(sent, False, caller, ports)
        if found is None:
            raise
        return _join(found, raw, ports)
    if turn.launch is None:
        _check_kept(turn.record, ports)
    return turn


def _sent(raw: bytes, key: str | None, caller: Principal) -> Sent:
    body_hash = hashlib.sha256(raw).digest()
    origin = hashlib.sha256(body_hash + caller.key_id.encode()).digest()
    if key is None:
        return Sent(origin)
    if not 1 <= len(key) <= _MAX_KEY or not key.isascii() or not key.isprintable():
        raise InvalidRequest(
            f"The {KEY_HEADER} must be 1 to {_MAX_KEY} printable ASCII characters; this one has {len(key)}.",
            param=KEY_HEADER,
        )
    return Sent(origin, IdempotencyKey(key, body_hash))


async def _made(sent: Sent, retried: bool, caller: Principal, ports: Services) -> ResponseRecord | None:
    if sent.key is not None:
        found = await ports.store.by_key(caller.tenant, sent.key)
        if found is not None:
            _check_kept(found, ports)
        return found
    if retried:
        found = await ports.store.by_origin(caller.tenant, sent.origin, ports.clock() - RETRY_SECONDS)
        return found if found is not None and _readable(found, ports) else None
    return None


def _check_kept(record: ResponseRecord, ports: Services) -> None:
    """Raises: InvalidRequest for a response that is about to be forgotten."""
    if record.ended and not _readable(record, ports):
        raise idempotency.spent(record.id)


def _readable(record: ResponseRecord, ports: Services) -> bool:
    return record.store or ports.readers.attached(record)


def _join(record: ResponseRecord, raw: bytes, ports: Services) -> Turn:
    # The same bytes have been checked when they made it.
    return Turn(record, bool(requests.load(raw, ports.limits).get("stream")), None)
