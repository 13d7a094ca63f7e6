"""The replay gate: runs that were recorded go on under today's code, whichever way it is loaded."""

import contextlib
import dataclasses
import importlib.machinery
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from temporalio import workflow
from temporalio.client import WorkflowHistory
from temporalio.worker import Replayer
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions

from outlast import temporal
from outlast.sandbox import workflow_runner
from tests.support.scenarios import SCENARIOS
from workflows import response
from workflows.response import ResponseWorkflow

HISTORIES = Path(__file__).parent / "histories"
RECORDED = sorted(path.stem for path in HISTORIES.glob("*.json"))


def recorded(name: str) -> WorkflowHistory:
    """One history, as `scripts/record_histories.py` wrote it."""
    return WorkflowHistory.from_json(f"run-{name}", (HISTORIES / f"{name}.json").read_text(encoding="utf-8"))


def replayer(kind: type = ResponseWorkflow, runner: SandboxedWorkflowRunner | None = None) -> Replayer:
    """With the converter and the sandbox of the product."""
    return Replayer(
        workflows=[kind],
        data_converter=temporal.DATA_CONVERTER,
        workflow_runner=runner or workflow_runner(),
        # Importing everything anew takes longer than the two seconds the deadlock detector grants.
        debug_mode=runner is not None,
    )


def test_every_shape_of_a_run_is_recorded() -> None:
    """A new scenario comes with its history."""
    assert sorted(SCENARIOS) == RECORDED


@pytest.mark.parametrize("name", RECORDED)
def test_recordings_are_small_and_name_no_machine(name: str) -> None:
    """Ids, numbers and codes: a run's history does not grow with what was said in it."""
    text = (HISTORIES / f"{name}.json").read_text(encoding="utf-8")
    assert len(text) < 25_000
    assert text.count('"identity":') == text.count('"identity":"recorder"')
    assert "stackTrace" not in text


@pytest.mark.parametrize("name", RECORDED)
async def test_a_recorded_run_replays(name: str) -> None:
    """Today's code issues the commands that were recorded."""
    await replayer().replay_workflow(recorded(name))


async def test_recorded_runs_replay_with_nothing_of_ours_passed_through(monkeypatch: pytest.MonkeyPatch) -> None:
    """What passes through escapes the sandbox's guards; here `loop`, `contracts` and `protocol` live under them too."""
    monkeypatch.setattr(workflow.unsafe, "imports_passed_through", contextlib.nullcontext)
    runner = SandboxedWorkflowRunner(
        restrictions=dataclasses.replace(
            SandboxRestrictions.default,
            passthrough_modules=SandboxRestrictions.passthrough_modules_default | {"orjson"},
        )
    )
    imported: set[str] = set()
    execute = importlib.machinery.SourceFileLoader.exec_module

    def noted(loader: importlib.machinery.SourceFileLoader, module: ModuleType) -> None:
        imported.add(module.__name__)
        execute(loader, module)

    monkeypatch.setattr(importlib.machinery.SourceFileLoader, "exec_module", noted)
    judge = replayer(runner=runner)
    for name in ("plain", "tool_round", "resumed", "gate_updated", "gate_failed_by_deadline", "cancelled_tools"):
        await judge.replay_workflow(recorded(name))
    assert {"outlast.contracts", "outlast.loop.decide", "outlast.protocol.json", "workflows.waiting"} <= imported


@pytest.fixture
def swapped(tmp_path: Path) -> Iterator[type]:
    """A copy of the workflow in which tools are run by the activity that asks for approval, and the other way round."""
    source = Path(response.__file__).read_text(encoding="utf-8")
    tools, asks = "contracts.EXECUTE_TOOLS", "contracts.INTERRUPT_FOR_APPROVAL"
    marks = {tools: asks, asks: tools}
    for mark in marks:
        assert mark in source
    for mark, other in marks.items():
        source = source.replace(mark, other.replace("contracts.", "swapped_"))
    source = source.replace("swapped_", "contracts.")
    path = tmp_path / "swapped_workflow.py"
    path.write_text(source, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    sys.path.insert(0, str(tmp_path))
    try:
        spec.loader.exec_module(module)
        yield module.ResponseWorkflow
    finally:
        sys.path.remove(str(tmp_path))
        del sys.modules[path.stem]


async def test_the_gate_refuses_a_workflow_with_two_activities_swapped(swapped: type) -> None:
    """It would be of no use if it let that pass."""
    with pytest.raises(workflow.NondeterminismError):
        await replayer(swapped).replay_workflow(recorded("tool_round"))
    # What never comes to either is the same run.
    await replayer(swapped).replay_workflow(recorded("plain"))
