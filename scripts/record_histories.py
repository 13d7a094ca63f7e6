"""Record a history of every shape a run can take, for the replay gate: tests/replay/histories/NAME.json.

Usage: python -m scripts.record_histories [NAME...]

Record a shape when it is new, or when its commands changed on purpose and no run of the old kind may be open any more;
otherwise a recording that no longer replays means that a deploy would stop every parked run.
"""

import asyncio
import json
import sys
import tempfile
from pathlib import Path

from temporalio.client import WorkflowHistory

from outlast import temporal
from outlast.devserver import DevServer
from tests.support.fakes import Bench
from tests.support.scenarios import SCENARIOS

HISTORIES = Path(__file__).parent.parent / "tests" / "replay" / "histories"


def scrubbed(history: WorkflowHistory) -> str:
    """The history as JSON, without the names of the machine it was recorded on."""

    def clean(value: object) -> object:
        match value:
            case {"kind": "TASK_QUEUE_KIND_STICKY" as kind}:
                return {"kind": kind, "name": "sticky"}
            case dict():
                return {key: "recorder" if key == "identity" else clean(inner) for key, inner in value.items()}
            case list():
                return [clean(inner) for inner in value]
            case _:
                return value

    return json.dumps(clean(json.loads(history.to_json())), separators=(",", ":")) + "\n"


async def record(names: list[str]) -> None:
    """Play each scenario once and keep its history."""
    with tempfile.TemporaryDirectory() as folder:
        async with DevServer(Path(folder), port=0, ui_port=0) as server:
            client = await temporal.connect(server.address)
            for name in names or sorted(SCENARIOS):
                run = await SCENARIOS[name](Bench(client))
                path = HISTORIES / f"{name}.json"
                path.write_text(scrubbed(await run.handle.fetch_history()), encoding="utf-8")
                sys.stdout.write(f"{path.name}: {path.stat().st_size} bytes\n")


if __name__ == "__main__":
    asyncio.run(record(sys.argv[1:]))
