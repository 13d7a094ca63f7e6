"""Reading ahead of the commits, and what may wait for company."""

import asyncio
from collections.abc import AsyncGenerator, Sequence

import pytest

from activities import rounds
from activities.pump import Pump
from outlast.loop.assembler import Fed
from outlast.protocol import events
from outlast.protocol.errors import UpstreamUnavailable
from outlast.protocol.events import WireEvent

ADDED, PART = WireEvent(events.ITEM_ADDED), WireEvent(events.PART_ADDED)
DELTA = WireEvent(events.TEXT_DELTA)


async def test_what_came_during_a_commit_is_taken_at_once() -> None:
    """Three reads, one batch; then the end."""
    read = asyncio.Event()

    async def source() -> AsyncGenerator[Sequence[WireEvent]]:
        yield [ADDED]
        yield [PART, DELTA]
        read.set()
        yield [DELTA]

    async with Pump(source()) as pump:
        await read.wait()
        await asyncio.sleep(0)
        assert await pump.take() == ([ADDED, PART, DELTA, DELTA], True)


async def test_a_bounded_wait_gives_nothing_and_loses_nothing() -> None:
    """The frames held back are shown then; what comes later is still taken."""
    go = asyncio.Event()

    async def source() -> AsyncGenerator[Sequence[WireEvent]]:
        await go.wait()
        yield [DELTA]

    async with Pump(source()) as pump:
        assert await pump.take(0) == ([], False)
        go.set()
        taken = await pump.take()
        assert taken[0] == [DELTA]


async def test_events_before_a_failure_are_given_before_it_is_raised() -> None:
    """A cut stream's last words count."""

    async def source() -> AsyncGenerator[Sequence[WireEvent]]:
        yield [DELTA]
        raise UpstreamUnavailable("cut")

    async with Pump(source()) as pump:
        assert (await pump.take())[0] == [DELTA]
        with pytest.raises(UpstreamUnavailable):
            await pump.take()


def test_only_frames_that_open_something_wait_for_company() -> None:
    """A delta, or a call that somebody may act on, does not."""
    opening = Fed([ADDED, PART], [])
    assert rounds.only_opens(rounds.NOTHING)
    assert rounds.only_opens(opening)
    assert not rounds.only_opens(rounds.joined(opening, Fed([DELTA], [])))
    assert rounds.joined(opening, Fed([DELTA], [])).events == [ADDED, PART, DELTA]
