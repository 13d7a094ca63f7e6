"""`make bench`: what a request costs, beside what Temporal alone costs. Figures, judged by no exit code.

The bare workflow shares server, client and process with Outlast and is run in turn with it. The client and the model
server live in this process, so the CPU time of the other is that of worker and API alone.
"""

import argparse
import asyncio
import itertools
import os
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import uvloop

from benchmarks import transcripts
from benchmarks.client import Connection, connected
from benchmarks.report import Figure, table
from benchmarks.upstream import model, upstream
from outlast.devserver import DevServer
from outlast.protocol import json
from outlast.protocol.json import JsonObject

_WARM_UP = 10
_RUNS = 40
_BLOCKS, _BLOCK = 4, 15
# A run's last workflow task ends after its client has the answer.
_SETTLE_SECONDS = 0.5
_TOKENS, _STREAMS = 2000, 5
_FEW, _MANY = 200, 1000
_PATH = "/v1/responses"

Run = Callable[[], Awaitable[object]]


@dataclass(frozen=True, slots=True)
class Bench:
    """The measured process, a connection to it and one to the model server."""

    process: asyncio.subprocess.Process
    outlast: Connection
    direct: Connection

    async def ask(self, command: str) -> JsonObject:
        """Have the measured process do something."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{command}\n".encode())
        return await _line(self.process)

    async def plain(self) -> float:
        """A request without tools; seconds until the client has the answer."""
        return (await self.outlast.post(_PATH, {"model": model(1), "input": "hello"})).total

    async def bare(self) -> JsonObject:
        """The bare workflow: `activity`, `complete`, in seconds."""
        return await self.ask("bare")

    async def cpu(self) -> float:
        """CPU seconds the measured process has used."""
        used: float = (await self.ask("cpu"))["seconds"]
        return used

    async def memory(self) -> float:
        """MiB the measured process has in memory."""
        ps = await asyncio.create_subprocess_exec(
            "ps", "-o", "rss=", "-p", str(self.process.pid), stdout=asyncio.subprocess.PIPE
        )
        return int((await ps.communicate())[0]) / 1024


async def _line(process: asyncio.subprocess.Process) -> JsonObject:
    assert process.stdout is not None
    line = await process.stdout.readline()
    if not line:
        raise RuntimeError(f"the measured process ended with code {await process.wait()}")
    answer: JsonObject = json.loads(line)
    return answer


@asynccontextmanager
async def _bench(folder: Path) -> AsyncIterator[Bench]:
    async with DevServer(folder / "temporal", port=0, ui_port=0) as server, upstream() as url:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "benchmarks.subject", str(folder / "data"), server.address, url),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        try:
            ours = (await _line(process))["url"]
            async with connected(ours) as outlast, connected(url) as direct:
                yield Bench(process, outlast, direct)
        finally:
            if process.stdin is not None:
                process.stdin.close()
            await process.wait()


# -- measurements --------------------------------------------------------------------------------------------------


async def _speed(bench: Bench) -> list[Figure]:
    """One request at a time; plain, bare and streamed take turns at every place.

    A run's last steps are still under way at the server when the next one starts, so what follows a bare workflow and
    what follows a plain request do not start alike: no fixed order is fair to all three.
    """
    streamed: JsonObject = {"model": model(1), "input": "hello", "stream": True}
    totals: list[float] = []
    firsts: list[float] = []
    own: list[float] = []
    bare: list[JsonObject] = []

    async def plain() -> None:
        totals.append(await bench.plain())

    async def workflow() -> None:
        bare.append(await bench.bare())

    async def first_token() -> None:
        firsts.append((await bench.outlast.post(_PATH, streamed)).first_token or 0.0)

    for turns in itertools.islice(itertools.cycle(itertools.permutations((plain, workflow, first_token))), _RUNS):
        for turn in turns:
            await turn()
        own.append((await bench.direct.post(_PATH, streamed)).first_token or 0.0)
    complete = _ms(run["complete"] for run in bare)
    in_activity = _ms(run["activity"] for run in bare)
    total, first, upstream_first = _ms(totals), _ms(firsts), _ms(own)
    return [
        Figure("bare workflow, start to completion", complete, "ms"),
        Figure("bare workflow, start to activity", in_activity, "ms"),
        Figure(
            "plain request, to the client",
            total,
            "ms",
            0.6 * complete,
            f"{total / complete:.2f} x the bare run, goal 0.60",
        ),
        Figure("upstream's own first token", upstream_first, "ms"),
        Figure(
            "first token",
            first,
            "ms",
            upstream_first + 1.5 * in_activity,
            f"upstream's + {(first - upstream_first) / in_activity:.2f} x the bare start to activity, goal 1.50",
        ),
    ]


async def _cpu(bench: Bench) -> list[Figure]:
    """CPU of worker and API, in blocks that take turns; what the process uses when idle is taken off."""
    idle = await _spent(bench, lambda: asyncio.sleep(_BLOCK * 0.02), 1)
    idle_per_second = idle / (_BLOCK * 0.02 + _SETTLE_SECONDS)
    plain: list[float] = []
    bare: list[float] = []
    for _ in range(_BLOCKS):
        for run, spent in ((bench.plain, plain), (bench.bare, bare)):
            began = time.perf_counter()
            used = await _spent(bench, run, _BLOCK)
            spent.append((used - idle_per_second * (time.perf_counter() - began)) / _BLOCK)
    ours, theirs = _ms(plain), _ms(bare)
    how = f"{ours / theirs:.2f} x the bare run, goal 2.00"
    return [
        Figure("bare workflow, CPU of starter + worker", theirs, "ms"),
        Figure("plain request, CPU of API + worker", ours, "ms", 2 * theirs, how),
    ]


async def _stream(bench: Bench) -> list[Figure]:
    """The CPU of a long stream less that of a short one, per event."""

    async def streamed(tokens: int) -> int:
        answer = await bench.outlast.post(_PATH, {"model": model(tokens), "input": "hello", "stream": True})
        return answer.body.count(b"\nevent: ")

    spent, events = [], 0
    short_events = await streamed(1)
    for _ in range(_STREAMS):
        short = await _spent(bench, lambda: streamed(1), 1)
        events = await streamed(_TOKENS)
        long = await _spent(bench, lambda: streamed(_TOKENS), 1)
        spent.append((long - short) / (events - short_events))
    return [Figure("streamed event, CPU of API + worker", _ms(spent), "ms", 0.15, f"{events} events a response")]


async def _growth(bench: Bench) -> list[Figure]:
    """Memory of the measured process after many runs, less that after some."""
    sizes = []
    done = 0
    for runs in (_FEW, _MANY):
        while done < runs:
            await bench.plain()
            done += 1
        await asyncio.sleep(_SETTLE_SECONDS)
        sizes.append(await bench.memory())
    few, many = sizes
    how = f"{few:.0f} MiB after {_FEW} runs, {many:.0f} after {_MANY}"
    return [Figure("growth of memory", many - few, "MiB", 10, how)]


async def _spent(bench: Bench, run: Run, times: int) -> float:
    before = await bench.cpu()
    for _ in range(times):
        await run()
    await asyncio.sleep(_SETTLE_SECONDS)
    return await bench.cpu() - before


def _ms(seconds: Iterable[float]) -> float:
    return statistics.median(seconds) * 1000


async def _measure(*, quick: bool) -> None:
    with tempfile.TemporaryDirectory(prefix="outlast-bench-") as folder:
        async with _bench(Path(folder)) as bench:
            for _ in range(_WARM_UP):
                await bench.plain()
                await bench.bare()
            measurements = [_speed, _cpu, _stream] if quick else [_growth, _speed, _cpu, _stream]
            figures: list[Figure] = []
            for measurement in measurements:
                print(f"{(measurement.__doc__ or '').strip()}", flush=True)
                figures.extend(await measurement(bench))
        print((transcripts.__doc__ or "").strip(), flush=True)
        figures.extend([*transcripts.checks(), *await transcripts.storage(Path(folder) / "transcripts")])
    print(f"\nMedians on {os.cpu_count()} CPUs, Python {sys.version.split()[0]}:\n\n{table(figures)}", flush=True)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="without the growth of memory, which needs 1,000 runs")
    arguments = parser.parse_args()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_measure(quick=arguments.quick))


if __name__ == "__main__":
    main()
