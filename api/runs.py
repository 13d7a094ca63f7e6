"""What the HTTP side asks of Temporal, and nothing else: the shape of `outlast.runs.Runs`.

Everything here is a message about a row that is already written. A lost one is repeated by the sweeper.
"""

from typing import Protocol

from outlast.contracts import RunInput


class RunsPort(Protocol):
    """Start, wake and cancel runs. Each method raises `Unavailable` when Temporal does not answer."""

    async def start(self, run: RunInput, workflow_id: str) -> None:
        """Start the run of a written row; starting a running one is no error."""
        ...

    async def resume(self, workflow_id: str, response_id: str) -> bool:
        """Wake a parked run for its next response; False: there is no such run any more."""
        ...

    async def decided(self, workflow_id: str, approval_id: str) -> bool:
        """Wake a waiting run after a decision; False: no such run."""
        ...

    async def cancel(self, workflow_id: str) -> None:
        """Ask a run whose row has ended to stop working."""
        ...

    async def healthy(self) -> bool:
        """Whether Temporal answers."""
        ...
