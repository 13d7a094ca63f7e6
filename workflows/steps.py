"""The local activities: one conditional update each, tried until the store is back."""

from datetime import timedelta
from typing import TypeVar

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from outlast import contracts
    from outlast.contracts import Timeouts

T = TypeVar("T")


async def local(name: str, argument: object, result: type[T], timeouts: Timeouts) -> T:
    """The answer of a local activity."""
    answer: T = await workflow.execute_local_activity(
        name,
        argument,
        result_type=result,
        start_to_close_timeout=timedelta(seconds=timeouts.local),
        retry_policy=contracts.STORE_RETRY,
    )
    return answer
