"""What Temporal itself costs: a workflow of one activity that does nothing, started eagerly."""

from datetime import timedelta

from temporalio import workflow


@workflow.defn(name="Bare")
class BareWorkflow:
    """One activity."""

    @workflow.run
    async def run(self) -> float:
        """When the activity began."""
        began: float = await workflow.execute_activity(
            "Nothing", result_type=float, start_to_close_timeout=timedelta(seconds=10)
        )
        return began
