"""How workflow code is run: in the SDK's sandbox, with ours passed through and what it does not need left out."""

import pkgutil
from typing import Final

from temporalio.bridge.proto.workflow_activation import WorkflowActivation
from temporalio.bridge.proto.workflow_completion import WorkflowActivationCompletion
from temporalio.converter import StorageDriverStoreContext
from temporalio.worker import WorkflowInstance, WorkflowInstanceDetails
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxMatcher, SandboxRestrictions
from temporalio.workflow import Info

import outlast

# What workflow code may import of ours. It is not imported anew per run, which cost 359 ms for 150 models (now 2.6 ms),
# and neither is the workflow itself, which cost as much as everything else its sandbox needs.
PASSED_THROUGH: Final = ("contracts", "loop", "protocol")

_NO_STORE: Final = StorageDriverStoreContext(target=None)


class WorkflowRunner(SandboxedWorkflowRunner):
    """The SDK's, for converters that ask no one which command a payload belongs to. Made by `workflow_runner`."""

    def create_instance(self, det: WorkflowInstanceDetails) -> WorkflowInstance:
        """See the SDK's base class."""
        return _WithoutContext(super().create_instance(det))


class _WithoutContext(WorkflowInstance):
    """An instance that answers for its payloads outside the sandbox.

    The SDK asks four times a payload and enters the sandbox for each answer: 2 ms of the first workflow task, for
    contexts that only context-aware converters and external storage look at, of which we have none.
    """

    def __init__(self, sandboxed: WorkflowInstance) -> None:
        self._sandboxed = sandboxed

    def activate(self, act: WorkflowActivation) -> WorkflowActivationCompletion:
        return self._sandboxed.activate(act)

    def get_serialization_context(self, command_info: object) -> None:
        return None

    def get_external_store_context(self, command_info: object) -> StorageDriverStoreContext:
        return _NO_STORE

    def get_info(self) -> Info:
        return self._sandboxed.get_info()

    def get_thread_id(self) -> int | None:
        return self._sandboxed.get_thread_id()


def workflow_runner() -> WorkflowRunner:
    """The sandbox of workflow code: `workflows`, `contracts`, `loop` and `protocol` pass through.

    Passed-through code escapes most of the sandbox's guards: there the import contracts, the linter's banned names and
    the replay tests stand in. A workflow elsewhere imports as `from outlast import contracts`: after
    `import outlast.contracts` the sandbox's copy of the package lacks the attribute.
    """
    passed = (f"{outlast.__name__}.{name}" for name in PASSED_THROUGH)
    refused = {module.name for module in pkgutil.iter_modules(outlast.__path__)} - set(PASSED_THROUGH)
    ours = SandboxMatcher(
        access={"activities", "api", "worker"}, children={outlast.__name__: SandboxMatcher(access=refused)}
    )
    default = SandboxRestrictions.default
    restrictions = SandboxRestrictions(
        # Not `outlast` itself: the SDK looks for refused modules only where nothing above them passes through.
        passthrough_modules=default.passthrough_modules | {*passed, "workflows"},
        invalid_modules=default.invalid_modules | ours,
        invalid_module_members=default.invalid_module_members,
    )
    return WorkflowRunner(restrictions=restrictions)
