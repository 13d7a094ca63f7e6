"""The `outlast` command: composes processes from settings, and talks to a running server about approvals."""

import argparse
import asyncio
import contextlib
import errno
import logging
import os
import signal
import socket
import sys
import time
import uuid
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import uvloop
from starlette.types import ASGIApp

from activities.base import Deps
from api.app import ApprovalDefaults, Services, create_app
from outlast import approvals_client, banner
from outlast import settings as config
from outlast.demo.front import beside
from outlast.demo.model import model_app
from outlast.demo.serving import listen, running
from outlast.devserver import DevServer
from outlast.loop.state import ApprovalMode
from outlast.netaddr import is_loopback
from outlast.ports import Ports, open_ports
from outlast.protocol.errors import ConfigurationError, OutlastError
from outlast.protocol.requests import RequestLimits
from outlast.settings import Settings
from outlast.sweeper import Sweeper
from worker import create_worker

Compose = Callable[[Settings, AsyncExitStack], Awaitable[None]]

_BEAT_SECONDS = 10


def main(argv: Sequence[str] | None = None) -> None:
    """Run a command; leaves the process by `os._exit`, since Temporal's threads can abort the interpreter's end."""
    arguments = _parser().parse_args(argv)
    logging.basicConfig(
        level=os.environ.get("OUTLAST_LOG", "WARNING").upper(), format="%(asctime)s %(name)s %(message)s"
    )
    try:
        code = int(arguments.run(arguments) or 0)
    except OutlastError as error:
        print(f"outlast: {error.message}", file=sys.stderr)
        code = 1
    except KeyboardInterrupt:
        code = 130
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


# -- processes -----------------------------------------------------------------------------------------------------


async def _dev(settings: Settings, stack: AsyncExitStack) -> None:
    """API, worker and an embedded Temporal in one place, with the demo world."""
    print("Starting Temporal, the API and a worker ...", flush=True)
    server = await stack.enter_async_context(
        DevServer(
            settings.data_dir,
            port=settings.temporal_port,
            ui_port=settings.ui_port,
            namespace=settings.temporal.namespace,
        )
    )
    demo_url = await stack.enter_async_context(running(model_app()))
    opened = await open_ports(stack, settings, temporal=server.address, demo_url=f"{demo_url}/v1")
    await work(opened, stack)
    url = await serve(opened, stack, ui_url=server.ui_url, desk=True)
    served = "demo, and every other name through " + ", ".join(u.base_url for u in settings.upstreams.values())
    print(
        banner.started(
            api=url, ui=server.ui_url, data_dir=str(settings.data_dir), models=served if settings.upstreams else "demo"
        ),
        flush=True,
    )


async def _all_in_one(settings: Settings, stack: AsyncExitStack) -> None:
    """API and worker on one client, against an external Temporal."""
    opened = await _external(settings, stack)
    await work(opened, stack)
    print(f"Outlast serves {await serve(opened, stack)}/v1", flush=True)


async def _api(settings: Settings, stack: AsyncExitStack) -> None:
    """HTTP only."""
    print(f"Outlast API serves {await serve(await _external(settings, stack), stack)}/v1", flush=True)


async def _worker(settings: Settings, stack: AsyncExitStack) -> None:
    """Workflows and activities only."""
    await work(await _external(settings, stack), stack)
    print(f"Outlast worker polls {settings.temporal.task_queue} at {settings.temporal_address}", flush=True)


async def _external(settings: Settings, stack: AsyncExitStack) -> Ports:
    # The demo model is a part of every process that runs model rounds, so `demo` always exists.
    demo_url = await stack.enter_async_context(running(model_app()))
    return await open_ports(stack, settings, temporal=settings.temporal_address, demo_url=f"{demo_url}/v1")


async def work(opened: Ports, stack: AsyncExitStack) -> None:
    """Run a worker and a sweeper until the stack closes."""
    settings = opened.settings
    deps = Deps(
        store=opened.store,
        models=opened.catalog,
        mcp=opened.mcp,
        server_headers={server.url: server.headers() for server in settings.mcp.servers.values()},
        on_deadline=settings.approvals.on_deadline,
    )
    await stack.enter_async_context(create_worker(opened.client, settings.temporal.task_queue, deps))
    sweeper = Sweeper(opened.store, opened.runs, opened.timeouts)
    await _background(stack, sweeper.run_forever(), "sweeper")
    await _background(stack, _beat(opened), "beat")


async def serve(opened: Ports, stack: AsyncExitStack, *, ui_url: str | None = None, desk: bool = False) -> str:
    """Serve the API; its base URL. Raises: ConfigurationError when the port is taken."""
    settings = opened.settings
    # First: an error raised inside the desk's task group would arrive wrapped in an exception group.
    listener = _listen(settings)
    stack.callback(listener.close)
    app: ASGIApp = create_app(_services(opened, ui_url))
    if desk:
        app = await stack.enter_async_context(beside(app, settings.data_dir))
    if not is_loopback(settings.host):
        print(
            f"Warning: --host {settings.host} opens the API to the network, and there are no API keys yet: "
            "whoever reaches it can run tools and decide approvals.",
            file=sys.stderr,
        )
    return await stack.enter_async_context(running(app, listener))


def _listen(settings: Settings) -> socket.socket:
    try:
        return listen(settings.host, settings.port)
    except OSError as error:
        where = f"port {settings.port} on {settings.host}"
        if error.errno == errno.EADDRINUSE:
            said = f"{where} is taken by another program: stop it or choose another with --port"
        else:
            said = f"cannot listen on {where} ({error.strerror}): choose others with --host and --port"
        raise ConfigurationError(said) from error


def _services(opened: Ports, ui_url: str | None) -> Services:
    settings, limits = opened.settings, opened.settings.limits
    return Services(
        store=opened.store,
        runs=opened.runs,
        catalog=opened.catalog,
        limits=RequestLimits(
            max_body_bytes=limits.max_body_bytes,
            max_items=limits.max_items,
            max_tools=limits.max_tools,
            max_tool_calls=limits.max_tool_calls,
            max_rounds=limits.max_rounds,
        ),
        parallel_tool_calls=limits.parallel_tool_calls,
        approvals=ApprovalDefaults(ApprovalMode(settings.approvals.mode), settings.approvals.deadline_seconds),
        timeouts=opened.timeouts,
        clock=time.time,
        ui_url=ui_url,
    )


async def _beat(opened: Ports) -> None:
    """Say that this worker lives; `readyz` and foreground requests look for it."""
    worker_id = uuid.uuid4().hex
    while True:
        with contextlib.suppress(OutlastError):
            await opened.store.beat(worker_id, "worker", time.time())
        await asyncio.sleep(_BEAT_SECONDS)


async def _background(stack: AsyncExitStack, work: Coroutine[object, object, None], name: str) -> None:
    task = asyncio.create_task(work, name=name)

    async def stop() -> None:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    stack.push_async_callback(stop)


def _process(arguments: argparse.Namespace) -> int:
    settings = _settings(arguments)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_until_stopped(arguments.compose, settings))
    return 0


async def _until_stopped(compose: Compose, settings: Settings) -> None:
    """Compose, wait for SIGINT or SIGTERM, also while composing, and close everything in reverse."""
    # One task opens and closes: a task group must be left by the task that entered it.
    task = asyncio.current_task()
    assert task is not None
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, _cancel_once, task)
    async with AsyncExitStack() as stack:
        try:
            await compose(settings, stack)
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            print("Stopping ...", flush=True)


def _cancel_once(task: asyncio.Task[None]) -> None:
    # Not uncancelled by the task, so a second Ctrl-C does not cut its clean-up short.
    if not task.cancelling():
        task.cancel()


# -- arguments -----------------------------------------------------------------------------------------------------


def _settings(arguments: argparse.Namespace) -> Settings:
    given = ("host", "port", "temporal_port", "ui_port", "data_dir")
    return config.load(
        arguments.config,
        upstream=arguments.upstream,
        dialect=arguments.dialect,
        overrides={name: getattr(arguments, name) for name in given},
    )


def _approvals(arguments: argparse.Namespace) -> int:
    if arguments.action == "list":
        print(approvals_client.list_open(arguments.url, status=arguments.status))
    else:
        approve = arguments.action == "approve"
        print(approvals_client.decide(arguments.url, arguments.id, approve=approve, reason=arguments.reason))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="outlast", description=(__doc__ or "").splitlines()[0])
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for name, compose in (("dev", _dev), ("serve", _all_in_one), ("api", _api), ("worker", _worker)):
        _add_process(commands.add_parser(name, help=compose.__doc__, description=compose.__doc__), compose)
    asks = commands.add_parser("approvals", help="List and decide what waits for a human.")
    actions = asks.add_subparsers(required=True, dest="action", metavar="ACTION")
    for action in ("list", "approve", "deny"):
        each = actions.add_parser(action)
        each.add_argument("--url", help=f"server, default OUTLAST_URL or {approvals_client.DEFAULT_URL}")
        if action == "list":
            each.add_argument("--status", default="pending")
        else:
            each.add_argument("id", help="mcpr_…")
            each.add_argument("--reason", help="told to the model when denied")
        each.set_defaults(run=_approvals)
    return parser


def _add_process(parser: argparse.ArgumentParser, compose: Compose) -> None:
    parser.add_argument("--host", help="address to listen on (127.0.0.1)")
    parser.add_argument("--port", type=int, help="port of the API (8080)")
    parser.add_argument("--temporal-port", type=int, help="port of the embedded Temporal (7233)")
    parser.add_argument("--ui-port", type=int, help="port of Temporal's UI (8233)")
    parser.add_argument("--data-dir", type=Path, help="folder of the store, the key and the logs (.outlast)")
    parser.add_argument("--config", type=Path, metavar="FILE", help="settings file (outlast.toml if it is there)")
    parser.add_argument("--upstream", metavar="URL", help="model server behind every name but demo")
    parser.add_argument("--dialect", choices=("chat", "responses"), help="what the upstream speaks")
    parser.set_defaults(run=_process, compose=compose)
