"""Ends that a client asks for: cancel and delete. The row's update decides; Temporal is told afterwards."""

import logging

from api.services import Services
from outlast.protocol.errors import InvalidRequest, NotFound, Unavailable
from outlast.store.base import Ending, ResponseRecord

_log = logging.getLogger(__name__)


async def cancel(ports: Services, record: ResponseRecord) -> ResponseRecord:
    """The row afterwards. Raises: InvalidRequest for a foreground response."""
    if not record.background:
        raise InvalidRequest(
            f"Response '{record.id}' was created without background=true; only background responses can be cancelled.",
            param="response_id",
        )
    return record if record.ended else await _stop(ports, record)


async def delete(ports: Services, record: ResponseRecord) -> None:
    """Cancel what runs, then purge; the run parked on it has nobody left to wait for."""
    if not record.ended:
        await _stop(ports, record)
    parked = await ports.store.delete(record.tenant, record.id)
    if parked is not None:
        await _tell(ports, parked)


async def _stop(ports: Services, record: ResponseRecord) -> ResponseRecord:
    ended, won = await ports.store.end(record.tenant, record.id, Ending("cancelled", stop=True))
    if ended is None:
        raise NotFound(f"Response with id '{record.id}' not found.", param="response_id")
    if won:
        await _tell(ports, ended.workflow_id)
    return ended


async def _tell(ports: Services, workflow_id: str) -> None:
    try:
        await ports.runs.cancel(workflow_id)
    except Unavailable:
        # The row has ended: whatever the run still does is refused by the store. The sweeper says it again.
        _log.warning("could not tell run %s that it was cancelled", workflow_id)
