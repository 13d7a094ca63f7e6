"""Claims about what workflow code may import, and about what its sandbox may leave out."""

import importlib
import uuid
from pathlib import Path

import pytest
from temporalio import workflow
from temporalio.converter import WithSerializationContext, WorkflowSerializationContext
from temporalio.worker.workflow_sandbox import RestrictedWorkflowAccessError

from outlast.sandbox import workflow_runner
from outlast.temporal import DATA_CONVERTER

WORKFLOW = """
from temporalio import workflow
{imports}

@workflow.defn
class Probe:
    @workflow.run
    async def run(self) -> None:
        pass
"""


def validate_in_sandbox(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, imports: str) -> None:
    """What a worker does with a workflow class when it starts; needs a running event loop."""
    name = f"probe_{uuid.uuid4().hex}"
    (tmp_path / f"{name}.py").write_text(WORKFLOW.format(imports=imports), encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module(name)
    definition = workflow._Definition.must_from_class(module.Probe)
    workflow_runner().prepare_workflow(definition)


@pytest.mark.parametrize(
    "imports",
    [
        "import outlast.settings",
        "from outlast.store import base",
        "import outlast.temporal",
        "import api",
        "import activities",
        "import worker",
    ],
)
async def test_workflow_code_cannot_import_the_rest_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, imports: str
) -> None:
    """Only contracts, loop and protocol are made for it."""
    with pytest.raises(RestrictedWorkflowAccessError):
        validate_in_sandbox(tmp_path, monkeypatch, imports)


async def test_workflow_code_shares_its_modules_and_the_types_it_uses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Passed through, not imported again: the assertions run inside the sandbox."""
    checks = ""
    passed = (
        ("outlast", "contracts"),
        ("outlast.loop", "decide"),
        ("outlast.protocol", "ids"),
        ("workflows", "response"),
    )
    for package, name in passed:
        host = importlib.import_module(f"{package}.{name}")
        checks += f"from {package} import {name}\nassert id({name}) == {id(host)}\n"
    validate_in_sandbox(tmp_path, monkeypatch, checks)


def test_no_converter_of_ours_looks_at_the_context_of_a_payload() -> None:
    """The runner answers that there is none."""
    context = WorkflowSerializationContext(namespace="default", workflow_id="resp_1")
    assert DATA_CONVERTER.with_context(context) is DATA_CONVERTER
    assert not isinstance(DATA_CONVERTER.payload_codec, WithSerializationContext)
    assert DATA_CONVERTER.external_storage is None
