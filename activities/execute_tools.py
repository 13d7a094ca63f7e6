"""`ExecuteTools`: one gateway call, at most once unless it is safe.

What an attempt finds decides what it does:

    step committed            the recorded end is returned, nothing runs
    no started marker         the marker is committed, then the call is dispatched
    marker, safe tool         dispatched again with the same idempotency key
    marker, unsafe tool       not dispatched: the call ends failed, `outcome_unknown`, and the model is told

The marker is durable before the request leaves, so no crash can hide a dispatch. A tool's error or deadline is an
outcome of the call, never an exception of the activity.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import assert_never

from temporalio import activity

from activities import base, results
from activities.base import Deps
from outlast import contracts, failpoints
from outlast.contracts import ToolDone, ToolInput
from outlast.mcp.base import ImageBlock, NotDispatched, ServerRef, ToolOutcome, ToolUnknown
from outlast.protocol import hosted, json
from outlast.protocol.errors import ResponseEnded, StaleFence
from outlast.protocol.images import digest
from outlast.protocol.json import JsonObject
from outlast.store.base import Begun, Blob, CallRow, Commit, Committed, Gone

# A connection that failed before dispatch: nothing ran, so trying again is free of risk.
_CONNECT_DELAYS = (0.2, 1.0)

_WORKER_LOST = "the worker that ran it was lost"
_EXPIRED = "the credentials of this MCP server have expired: send them again and repeat"

Run = Callable[[Begun, CallRow, ToolInput], Awaitable[ToolOutcome]]


class ExecuteToolsActivity:
    """The activity and its ports."""

    def __init__(self, deps: Deps) -> None:
        self._deps = deps
        self._store = deps.store

    @activity.defn(name=contracts.EXECUTE_TOOLS)
    async def execute_tools(self, request: ToolInput) -> ToolDone:
        """Run one call and record its end."""
        async with base.beating():
            return await self._settle(request, self._run)

    @activity.defn(name=contracts.FAIL_CALL)
    async def fail_call(self, request: ToolInput) -> ToolDone:
        """Every attempt was lost: record the call as failed, so that the run goes on."""
        return await self._settle(request, self._lost)

    async def _settle(self, request: ToolInput, run: Run) -> ToolDone:
        begun = await self._store.begin(
            request.tenant,
            request.response_id,
            f"tool:{request.round}.{request.ordinal}",
            workflow_id=base.workflow_id(),
            calls=request.round,
        )
        match begun:
            case Gone():
                return self._done(gone=True)
            case Committed(outcome):
                return base.decode(ToolDone, outcome)
            case Begun():
                row = next(call for call in begun.calls if call.ordinal == request.ordinal)
            case _:
                assert_never(begun)
        try:
            return await self._record(begun, row, await run(begun, row, request))
        except (StaleFence, ResponseEnded):
            # A newer attempt owns the call, or the response ended: whatever came back is dropped.
            return self._done(gone=True)

    async def _lost(self, begun: Begun, row: CallRow, request: ToolInput) -> ToolOutcome:
        return results.unknown(_WORKER_LOST) if row.started and not row.safe else results.execution_error(_WORKER_LOST)

    async def _run(self, begun: Begun, row: CallRow, request: ToolInput) -> ToolOutcome:
        if row.started and not row.safe:
            return results.unknown(_WORKER_LOST)
        if not row.started:
            await self._store.append(begun.handle, [], Commit(started=[(row.round, row.ordinal)]))
        failpoints.hit(failpoints.AFTER_MARKER)
        outcome = await self._dispatch(row, request)
        failpoints.hit(failpoints.AFTER_TOOL_BEFORE_COMMIT)
        return outcome

    async def _dispatch(self, row: CallRow, request: ToolInput) -> ToolOutcome:
        label, url = row.server_label or "", row.server_url or ""
        headers = await base.server_headers(self._deps, request.tenant, url, row.secret_id)
        if headers is None:
            return results.execution_error(_EXPIRED)
        server = ServerRef(label=label, url=url, headers=headers)
        clock = asyncio.get_running_loop().time
        # One deadline for all tries: past it the activity is cut, and a call that never left would count as unknown.
        deadline = clock() + min(row.timeout or request.timeouts.tool, request.timeouts.tool_longest)
        arguments = json.loads(row.arguments or "{}")
        for delay in (*_CONNECT_DELAYS, None):
            try:
                outcome = await self._deps.mcp.call(
                    server,
                    row.name,
                    arguments,
                    idempotency_key=row.idempotency_key,
                    timeout=deadline - clock(),
                    encoded_images=row.hosted is not None and hosted.makes_images(row.hosted["item"]),
                )
            except NotDispatched as error:
                if delay is None or clock() + delay >= deadline:
                    return results.execution_error(f"the MCP server could not be reached: {error}")
                await asyncio.sleep(delay)
                continue
            if isinstance(outcome, ToolUnknown):
                safe = outcome.failed or results.execution_error(outcome.reason)
                return safe if row.safe else results.unknown(outcome.reason)
            return outcome
        raise AssertionError("the last try returns")

    async def _record(self, begun: Begun, row: CallRow, outcome: ToolOutcome) -> ToolDone:
        end = results.end(row, outcome, begun.handle.record.request.get("include") or ())
        private = end.private
        if end.images:
            private = {**private, "images": await self._keep(begun, end.images)}
        done = self._done()
        commit = Commit(
            done=[(row.round, row.ordinal)],
            # As it ends, for the model alone.
            hidden=[end.events[-1].rest["item"]] if row.hidden else [],
            private={row.item_id: private} if private else {},
            outcome=base.encode(done),
        )
        await self._store.append(begun.handle, [] if row.hidden else end.events, commit)
        failpoints.hit(failpoints.AFTER_COMMIT_BEFORE_ACK)
        return done

    async def _keep(self, begun: Begun, images: Sequence[ImageBlock]) -> list[JsonObject]:
        """The images as blobs, before the step is committed and apart; what the item says of them in private."""
        blobs = [Blob(digest(image.data), image.mime_type, image.data) for image in images]
        record = begun.handle.record
        await self._store.keep_blobs(record.tenant, record.id, blobs)
        return [{"hash": blob.hash, "mime_type": blob.mime_type} for blob in blobs]

    def _done(self, *, gone: bool = False) -> ToolDone:
        return ToolDone(at=self._deps.clock(), gone=gone)
