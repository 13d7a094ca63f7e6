"""All checks, in the order they are printed."""

from collections.abc import Sequence

from outlast.conformance.base import Check, Group
from outlast.conformance.checks import (
    approvals,
    background,
    chains,
    compaction,
    conversations,
    create,
    functions,
    inputs,
    mcp,
    reading,
    refusals,
    sockets,
    streaming,
)

GROUPS: Sequence[Group] = (
    create.group,
    inputs.group,
    streaming.group,
    functions.group,
    chains.group,
    reading.group,
    background.group,
    mcp.group,
    approvals.group,
    conversations.group,
    compaction.group,
    sockets.group,
    refusals.group,
)


def checks() -> list[Check]:
    """Every check."""
    return [check for group in GROUPS for check in group.checks]
