"""`Store` over scripts: what each method runs and where. What a driver is, only `sqlite.py` knows."""

import time
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Protocol

from outlast.protocol.errors import InternalError, OutlastError
from outlast.protocol.events import WireEvent
from outlast.protocol.json import JsonObject
from outlast.store import appending, asking, creating, ending, idempotency, private, purging, reading, repair
from outlast.store.base import (
    Approval,
    Begun,
    Blob,
    Commit,
    Committed,
    Created,
    Decided,
    DecisionRequest,
    Ending,
    Frames,
    Gone,
    IdempotencyKey,
    NewResponse,
    ResponseRecord,
    StepHandle,
    StoredItem,
)
from outlast.store.conversations import SqlConversations
from outlast.store.hub import Hub
from outlast.store.scripting import Script, T
from outlast.store.sealed import Sealer

_NOTHING = Commit()


class Database(Protocol):
    """A driver: runs scripts, as writes grouped into transactions or as reads."""

    async def write(self, key: str, script: Script[T]) -> T:
        """The result, after the commit. `key`: the response it belongs to. Raises: what the script raises;
        Unavailable when the transaction was lost."""
        ...

    async def read(self, script: Script[T]) -> T:
        """The result of a script that only reads."""
        ...

    async def aclose(self) -> None:
        """Finish what is pending and close."""
        ...


class SqlStore:
    """The record over one database. Implements `outlast.store.base.Store`; its docstrings are there."""

    def __init__(self, database: Database, hub: Hub, sealer: Sealer) -> None:
        self._database = database
        self._hub = hub
        self._sealer = sealer
        self.conversations = SqlConversations(database)

    # -- creation and reading ------------------------------------------------------------------------------------
    async def create(self, new: NewResponse) -> Created:
        tenant = new.record.tenant
        sealed = [
            creating.SealedSecret(secret_id, self._sealer.seal(tenant, secret_id, value))
            for secret_id, value in new.secrets.items()
        ]
        return await self._database.write(new.record.id, creating.create(new, sealed, time.time()))

    async def by_key(self, tenant: str, key: IdempotencyKey) -> ResponseRecord | None:
        return await self._database.read(idempotency.by_key(tenant, key, time.time()))

    async def by_origin(self, tenant: str, origin: bytes, since: float) -> ResponseRecord | None:
        return await self._database.read(idempotency.by_origin(tenant, origin, since))

    async def get(self, tenant: str, response_id: str) -> ResponseRecord | None:
        return await self._database.read(reading.get(tenant, response_id))

    async def output(self, tenant: str, response_id: str, *, sealed: bool = False) -> Sequence[JsonObject]:
        return await self._database.read(reading.output(tenant, response_id, sealed=sealed))

    async def input_items(self, tenant: str, response_id: str, *, sealed: bool = False) -> Sequence[JsonObject]:
        return await self._database.read(reading.input_items(tenant, response_id, sealed=sealed))

    async def chain(self, tenant: str, response_id: str) -> Sequence[StoredItem]:
        return await self._database.read(reading.read_chain(tenant, response_id))

    async def find_items(self, tenant: str, item_ids: Sequence[str]) -> Mapping[str, JsonObject]:
        return await self._database.read(reading.find_items(tenant, item_ids))

    async def keep_blobs(self, tenant: str, response_id: str, blobs: Sequence[Blob]) -> None:
        await self._database.write(response_id, private.keep_blobs(tenant, response_id, blobs))

    async def blobs(self, tenant: str, hashes: Sequence[str]) -> Mapping[str, Blob]:
        return await self._database.read(private.read_blobs(tenant, hashes))

    async def bindings(self, tenant: str, bindings_id: str) -> JsonObject:
        return await self._database.read(reading.read_bindings(tenant, bindings_id))

    def seal(self, tenant: str, value: JsonObject) -> str:
        return self._sealer.seal_text(tenant, value)

    def unseal(self, tenant: str, text: str) -> JsonObject | None:
        return self._sealer.open_text(tenant, text)

    async def secret(self, tenant: str, secret_id: str) -> JsonObject | None:
        sealed = await self._database.read(reading.read_secret(tenant, secret_id))
        return None if sealed is None else self._sealer.open(tenant, secret_id, sealed)

    async def set_workflow(self, tenant: str, response_id: str, *, old: str, new: str) -> bool:
        return await self._database.write(response_id, repair.set_workflow(tenant, response_id, old=old, new=new))

    async def delete(self, tenant: str, response_id: str) -> str | None:
        return await self._database.write(response_id, purging.delete(tenant, response_id))

    # -- steps ---------------------------------------------------------------------------------------------------
    async def begin(
        self,
        tenant: str,
        response_id: str,
        step: str,
        *,
        workflow_id: str | None,
        chain: bool = False,
        calls: int | None = None,
    ) -> Begun | Committed | Gone:
        script = reading.begin(
            tenant, response_id, step, workflow_id=workflow_id, chain=chain, calls=calls, now=time.time()
        )
        return await self._database.write(response_id, script)

    async def append(self, handle: StepHandle, events: Sequence[WireEvent], commit: Commit | None = None) -> int:
        commit = commit or _NOTHING
        if commit.ending is not None:
            raise InternalError("an append that ends the response goes through finish")
        script = appending.append(handle, events, commit, time.time())
        appended = await self._database.write(handle.record.id, script)
        handle.indexes.update(appended.indexes)
        return appended.last

    async def finish(self, handle: StepHandle, events: Sequence[WireEvent], commit: Commit) -> ResponseRecord:
        if commit.ending is None:
            raise InternalError("finish needs an ending")
        script = appending.finish(handle, events, commit, commit.ending, time.time())
        appended = await self._database.write(handle.record.id, script)
        handle.indexes.update(appended.indexes)
        return appended.record

    async def end(self, tenant: str, response_id: str, how: Ending) -> tuple[ResponseRecord | None, bool]:
        return await self._database.write(response_id, ending.end(tenant, response_id, how, time.time()))

    # -- streaming -----------------------------------------------------------------------------------------------
    def follow(self, tenant: str, response_id: str, after: int) -> AsyncIterator[Frames]:
        return self._hub.follow(tenant, response_id, after)

    async def attend(self, tenant: str, response_id: str, until: float) -> None:
        await self._database.write(response_id, repair.attend(tenant, response_id, until))

    # -- approvals -----------------------------------------------------------------------------------------------
    async def approval(self, tenant: str, approval_id: str) -> Approval | None:
        return await self._database.read(asking.read(tenant, approval_id))

    async def approvals(
        self, tenant: str, *, status: str | None = None, response_id: str | None = None
    ) -> Sequence[Approval]:
        return await self._database.read(reading.read_approvals(tenant, status, response_id))

    async def decide(self, tenant: str, wish: DecisionRequest) -> Decided:
        decided = await self._database.write(wish.approval_id, asking.decide(tenant, wish, time.time()))
        if isinstance(decided, OutlastError):
            raise decided
        return decided

    async def expire(self, tenant: str, response_id: str, now: float) -> int:
        return await self._database.write(response_id, asking.expire(tenant, response_id, now))

    # -- parked runs ---------------------------------------------------------------------------------------------
    async def parked_on(self, tenant: str, response_id: str) -> str | None:
        return await self._database.read(reading.parked_on(tenant, response_id))

    async def leave_park(self, tenant: str, workflow_id: str, response_id: str) -> str | None:
        return await self._database.write(response_id, repair.leave_park(tenant, workflow_id, response_id))

    # -- processes and repair ------------------------------------------------------------------------------------
    async def beat(self, worker_id: str, kind: str, now: float) -> None:
        await self._database.write("", repair.beat(worker_id, kind, now))

    async def workers_alive(self, since: float) -> int:
        return await self._database.read(repair.workers_alive(since))

    async def stale(self, *, silent_since: float, limit: int, lease_until: float) -> Sequence[ResponseRecord]:
        script = repair.stale(silent_since=silent_since, limit=limit, lease_until=lease_until, now=time.time())
        return await self._database.write("", script)

    async def rest(self, tenant: str, response_id: str) -> None:
        await self._database.write(response_id, repair.rest(tenant, response_id, time.time()))

    async def parked(self, *, limit: int, lease_until: float) -> Sequence[tuple[str, str, str]]:
        return await self._database.write("", repair.parked(limit=limit, lease_until=lease_until, now=time.time()))

    async def stopping(self, *, limit: int, lease_until: float) -> Sequence[tuple[str, str]]:
        return await self._database.write("", repair.stopping(limit=limit, lease_until=lease_until, now=time.time()))

    async def stopped(self, tenant: str, workflow_id: str) -> None:
        await self._database.write("", repair.stopped(tenant, workflow_id))

    async def steps_begun(self, tenant: str, response_id: str) -> bool:
        return await self._database.read(reading.steps_begun(tenant, response_id))

    async def purge(self, tenant: str, response_id: str) -> bool:
        return await self._database.write(response_id, purging.purge(tenant, response_id))

    async def purge_transient(self, now: float) -> int:
        return await self._database.write("", purging.purge_transient(now))

    async def purge_older(
        self, before: float, *, limit: int, after: tuple[int, str] | None = None
    ) -> tuple[int, tuple[int, str] | None]:
        return await self._database.write("", purging.purge_older(before, after, limit))

    async def aclose(self) -> None:
        await self._database.aclose()
