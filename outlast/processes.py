"""Compose processes from settings: what `outlast dev`, `serve`, `api` and `worker` run.

Apart from the command line, because importing all of this takes seconds that `outlast approvals` need not wait.
"""

import asyncio
import contextlib
import errno
import logging
import signal
import socket
import sys
import time
import uuid
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack

import uvloop
from starlette.types import ASGIApp

from activities.base import Deps
from api.app import ApprovalDefaults, Services, create_app
from outlast import banner
from outlast.demo.front import beside
from outlast.demo.model import model_app
from outlast.demo.serving import listen, running
from outlast.devserver import DevServer
from outlast.loop.state import ApprovalMode
from outlast.netaddr import is_loopback
from outlast.ports import Ports, open_ports
from outlast.protocol.errors import ConfigurationError, OutlastError
from outlast.protocol.requests import RequestLimits
from outlast.settings import DEMO_MODEL, Settings
from outlast.sweeper import Sweeper
from worker import create_worker

Compose = Callable[[Settings, AsyncExitStack], Awaitable[None]]

_BEAT_SECONDS = 10

_log = logging.getLogger(__name__)


def run(compose: Compose, settings: Settings) -> None:
    """Run a process until SIGINT or SIGTERM."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_until_stopped(compose, settings))


async def dev(settings: Settings, stack: AsyncExitStack) -> None:
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
    opened = await _open(settings, stack, server.address, demo_url)
    await work(opened, stack)
    url = await serve(opened, stack, ui_url=server.ui_url, desk=True)
    print(
        banner.started(api=url, ui=server.ui_url, data_dir=str(settings.data_dir), models=", ".join(_served(settings))),
        flush=True,
    )


def _served(settings: Settings) -> list[str]:
    """The names a client may use: those of `[models]`, or every name through the only upstream."""
    if settings.models or not settings.upstreams:
        return [DEMO_MODEL, *settings.models]
    (only,) = settings.upstreams.values()
    return [DEMO_MODEL, f"and every other name through {only.base_url}"]


async def all_in_one(settings: Settings, stack: AsyncExitStack) -> None:
    """API and worker on one client, against an external Temporal."""
    opened = await _external(settings, stack)
    await work(opened, stack)
    print(f"Outlast serves {await serve(opened, stack)}/v1", flush=True)


async def api(settings: Settings, stack: AsyncExitStack) -> None:
    """HTTP only."""
    print(f"Outlast API serves {await serve(await _external(settings, stack), stack)}/v1", flush=True)


async def worker(settings: Settings, stack: AsyncExitStack) -> None:
    """Workflows and activities only."""
    await work(await _external(settings, stack), stack)
    print(f"Outlast worker polls {settings.temporal.task_queue} at {settings.temporal_address}", flush=True)


async def _external(settings: Settings, stack: AsyncExitStack) -> Ports:
    # The demo model is a part of every process that runs model rounds, so `demo` always exists.
    demo_url = await stack.enter_async_context(running(model_app()))
    return await _open(settings, stack, settings.temporal_address, demo_url)


async def _open(settings: Settings, stack: AsyncExitStack, temporal: str, demo_url: str) -> Ports:
    """The ports, and a sweeper: runs are mended by whatever process lives."""
    opened = await open_ports(stack, settings, temporal=temporal, demo_url=f"{demo_url}/v1")
    sweeper = Sweeper(opened.store, opened.runs, opened.timeouts)
    _background(stack, sweeper.run_forever(), "sweeper")
    return opened


async def work(opened: Ports, stack: AsyncExitStack) -> None:
    """Run a worker until the stack closes."""
    settings = opened.settings
    deps = Deps(
        store=opened.store,
        models=opened.catalog,
        mcp=opened.mcp,
        server_headers={server.url: server.headers() for server in settings.mcp.servers.values()},
        servers=opened.servers,
        on_deadline=settings.approvals.on_deadline,
    )
    await stack.enter_async_context(create_worker(opened.client, settings.temporal.task_queue, deps))
    _background(stack, _beat(opened), "beat")


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
    # Twice: what is a little too large is refused with the limit's name, and the connection goes on.
    max_message = 2 * settings.limits.max_body_bytes
    return await stack.enter_async_context(running(app, listener, max_message=max_message))


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
    settings = opened.settings
    return Services(
        store=opened.store,
        conversations=opened.store.conversations,
        runs=opened.runs,
        catalog=opened.catalog,
        limits=_request_limits(settings),
        parallel_tool_calls=settings.limits.parallel_tool_calls,
        servers=opened.servers,
        skip_tools=settings.tools.unsupported == "skip",
        approvals=ApprovalDefaults(ApprovalMode(settings.approvals.mode), settings.approvals.deadline_seconds),
        timeouts=opened.timeouts,
        clock=time.time,
        ui_url=ui_url,
    )


def _request_limits(settings: Settings) -> RequestLimits:
    limits = settings.limits
    return RequestLimits(
        max_body_bytes=limits.max_body_bytes,
        max_items=limits.max_items,
        max_tools=limits.max_tools,
        max_tool_calls=limits.max_tool_calls,
        max_rounds=limits.max_rounds,
    )


async def _beat(opened: Ports) -> None:
    """Say that this worker lives; `readyz` and foreground requests look for it."""
    worker_id = uuid.uuid4().hex
    while True:
        with contextlib.suppress(OutlastError):
            await opened.store.beat(worker_id, "worker", time.time())
        await asyncio.sleep(_BEAT_SECONDS)


def _background(stack: AsyncExitStack, work: Coroutine[object, object, None], name: str) -> None:
    task = asyncio.create_task(work, name=name)
    task.add_done_callback(_tell_of_death)

    async def stop() -> None:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    stack.push_async_callback(stop)


def _tell_of_death(task: "asyncio.Task[None]") -> None:
    """Nobody awaits it before the process stops: a bug that ended it would be noticed then only."""
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.critical("the %s of this process has died; restart it", task.get_name(), exc_info=error)


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
