"""Run checks, a few at a time, and print what they found."""

import asyncio
import time
import traceback
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

import httpx

from outlast.conformance.base import Check, Failed, Finding, NotOffered, Verdict
from outlast.conformance.target import Target
from outlast.conformance.tool_server import tool_server
from outlast.protocol.errors import ConfigurationError

# A check against a slow model may take this long, in seconds.
PATIENCE = 120.0
_AT_ONCE = 4


@asynccontextmanager
async def target(url: str, model: str, *, key: str | None, mcp_host: str) -> AsyncIterator[Target]:
    """The server under test. `url`: with or without `/v1`; `mcp_host`: where it reaches this machine. What the checks
    made is deleted at the end. Raises: ConfigurationError when nobody answers there."""
    base = url.rstrip("/")
    base = base if base.endswith("/v1") else f"{base}/v1"
    headers = {} if key is None else {"authorization": f"Bearer {key}"}
    async with AsyncExitStack() as stack:
        tools = await stack.enter_async_context(tool_server(mcp_host))
        http = await stack.enter_async_context(httpx.AsyncClient(headers=headers, timeout=PATIENCE))
        try:
            await http.get(f"{base}/models")
        except httpx.ConnectError as error:
            raise ConfigurationError(f"no server answers at {url}: start it, or give its base URL") from error
        against = Target(http, base, model, tools)
        stack.push_async_callback(against.forget)
        yield against


async def findings(checks: Sequence[Check], against: Target) -> AsyncIterator[Finding]:
    """What each found, in the order they end."""
    slots = asyncio.Semaphore(_AT_ONCE)

    async def one(check: Check) -> Finding:
        async with slots:
            return await _find(check, against)

    tasks = [asyncio.create_task(one(check)) for check in checks]
    try:
        for task in asyncio.as_completed(tasks):
            yield await task
    finally:
        for each in tasks:
            each.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _find(check: Check, against: Target) -> Finding:
    began = time.monotonic()
    verdict, said = await _judge(check, against)
    return Finding(check, verdict, said, time.monotonic() - began)


async def _judge(check: Check, against: Target) -> tuple[Verdict, str]:
    try:
        async with asyncio.timeout(PATIENCE):
            await check.run(against)
    except NotOffered as refusal:
        return "not offered", str(refusal)
    except Failed as failure:
        return "fail", str(failure)
    except TimeoutError:
        return "fail", f"no end within {PATIENCE:.0f} s"
    except httpx.HTTPError as error:
        return "fail", f"{type(error).__name__}: {error}"
    except Exception as error:  # noqa: BLE001  # an answer of a shape no check foresaw is a finding, not a crash
        where = traceback.extract_tb(error.__traceback__)[-1]
        return "fail", f"an answer could not be read ({type(error).__name__}: {error}, {where.name}:{where.lineno})"
    return "pass", ""
