"""Start, resume, wake and cancel a run: the few Temporal calls there are outside the worker.

Every call has an `rpc_timeout`: it happens inside somebody's HTTP request. The row is written before any of them, so a
lost message is found and repeated by the sweeper; none of these decides anything.
"""

from datetime import timedelta

from temporalio.client import Client, WorkflowHandle
from temporalio.common import (
    SearchAttributePair,
    TypedSearchAttributes,
    WorkflowIDConflictPolicy,
    WorkflowIDReusePolicy,
)
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from outlast import contracts
from outlast.contracts import RunInput
from outlast.protocol.errors import Unavailable

RPC_TIMEOUT = timedelta(seconds=5)
# Visibility keyword columns hold 255 characters in SQL stores, summaries 400 bytes.
_ATTRIBUTE_LIMIT = 255
_SUMMARY_LIMIT = 200


def _gone(error: RPCError) -> bool:
    return error.status is RPCStatusCode.NOT_FOUND


class Runs:
    """Runs of one namespace and task queue."""

    def __init__(self, client: Client, task_queue: str) -> None:
        self._client = client
        self._task_queue = task_queue

    async def start(self, run: RunInput, workflow_id: str, *, again: bool = False) -> None:
        """Start the run of a written row; starting a running one is no error.

        `again`: the sweeper's start of a run whose workflow has closed. Raises: Unavailable.
        """
        model = run.model[:_ATTRIBUTE_LIMIT]
        reuse = WorkflowIDReusePolicy.ALLOW_DUPLICATE if again else WorkflowIDReusePolicy.REJECT_DUPLICATE
        try:
            await self._client.start_workflow(
                contracts.WORKFLOW,
                run,
                id=workflow_id,
                task_queue=self._task_queue,
                id_reuse_policy=reuse,
                id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
                request_eager_start=True,
                static_summary=f"{model} · {run.state.mode}"[:_SUMMARY_LIMIT],
                search_attributes=TypedSearchAttributes(
                    [
                        SearchAttributePair(contracts.RESPONSES_KEY, [run.state.response_id]),
                        SearchAttributePair(contracts.TENANT_KEY, run.tenant[:_ATTRIBUTE_LIMIT]),
                        SearchAttributePair(contracts.MODEL_KEY, model),
                        SearchAttributePair(contracts.PENDING_KEY, 0),
                    ]
                ),
                rpc_timeout=RPC_TIMEOUT,
            )
        except WorkflowAlreadyStartedError:
            # Closed under this id: it ran, and the row says how it ended.
            return
        except RPCError as error:
            raise Unavailable("Temporal did not take the run. Try again.", retry_after=1) from error

    async def resume(self, workflow_id: str, response_id: str) -> bool:
        """Wake a parked run for its next response; False: there is no such run any more. Raises: Unavailable."""
        return await self._signal(workflow_id, contracts.SIGNAL_RESUME, response_id)

    async def decided(self, workflow_id: str, approval_id: str) -> bool:
        """Wake a waiting run after a decision; False: no such run. Raises: Unavailable."""
        return await self._signal(workflow_id, contracts.SIGNAL_DECIDED, approval_id)

    async def cancel(self, workflow_id: str) -> None:
        """Ask a run whose row has ended to stop working; a run that is gone has stopped. Raises: Unavailable."""
        try:
            await self._handle(workflow_id).cancel(rpc_timeout=RPC_TIMEOUT)
        except RPCError as error:
            if not _gone(error):
                raise Unavailable("Temporal did not take the cancellation.", retry_after=1) from error

    async def is_running(self, workflow_id: str) -> bool | None:
        """True: open, False: closed, None: unknown to Temporal. Raises: Unavailable."""
        try:
            description = await self._handle(workflow_id).describe(rpc_timeout=RPC_TIMEOUT)
        except RPCError as error:
            if _gone(error):
                return None
            raise Unavailable("Temporal did not answer.", retry_after=1) from error
        return description.close_time is None

    async def healthy(self) -> bool:
        """Whether Temporal answers."""
        try:
            return await self._client.service_client.check_health(timeout=RPC_TIMEOUT)
        except RPCError:
            return False

    async def _signal(self, workflow_id: str, name: str, argument: str) -> bool:
        try:
            await self._handle(workflow_id).signal(name, argument, rpc_timeout=RPC_TIMEOUT)
        except RPCError as error:
            if _gone(error):
                return False
            raise Unavailable("Temporal did not take the message.", retry_after=1) from error
        return True

    def _handle(self, workflow_id: str) -> WorkflowHandle[object, object]:
        return self._client.get_workflow_handle(workflow_id)
