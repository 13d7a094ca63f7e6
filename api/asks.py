"""Asks as they stand now."""

from collections.abc import Sequence

from outlast.store.base import Approval
from outlast.store.port import Store


async def asks_now(
    store: Store, tenant: str, now: float, *, status: str | None = None, response_id: str | None = None
) -> Sequence[Approval]:
    """`Store.approvals` after the overdue ones have expired: nobody watches the deadlines of a parked run, so whoever
    looks at its asks lets them pass."""
    found = await store.approvals(tenant, status=status, response_id=response_id)
    overdue = {ask.listed_by for ask in found if _overdue(ask, now)}
    for listed_by in overdue:
        await store.expire(tenant, listed_by, now)
    return await store.approvals(tenant, status=status, response_id=response_id) if overdue else found


async def ask_now(store: Store, tenant: str, approval_id: str, now: float) -> Approval | None:
    """One ask, likewise."""
    ask = await store.approval(tenant, approval_id)
    if ask is None or not _overdue(ask, now):
        return ask
    await store.expire(tenant, ask.listed_by, now)
    return await store.approval(tenant, approval_id)


def _overdue(ask: Approval, now: float) -> bool:
    return ask.status == "pending" and ask.deadline is not None and ask.deadline <= now
