"""Fan-out of committed frames to the readers of this process.

A channel is one response: a bounded tail of frames in memory and the followers attached. It is opened by the first
follower or by the append that starts at number 0, so whoever creates a response and follows it at once needs no row.
A reader the tail no longer serves (it was slow, it came late, another process wrote) reads rows and comes back.
Everything here runs on the event loop.
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from itertools import islice

from outlast.protocol import events as wire
from outlast.store.base import Frames
from outlast.store.scripting import Emit, Frame

# Bounds of one tail.
_TAIL_FRAMES = 1_024
_TAIL_BYTES = 512 * 1024
# Channels nobody is attached to; of a short run whose follower is a moment late.
_IDLE_CHANNELS = 64
PAGE = 512

Key = tuple[str, str]
# (status or None for an unknown response, frames after the number)
ReadPage = Callable[[str, str, int, int], Awaitable[tuple[str | None, Sequence[Frame]]]]


@dataclass(eq=False, slots=True)
class _Follower:
    """One reader. `look`: the rows must be read, whatever the tail says."""

    wakeup: asyncio.Event = field(default_factory=asyncio.Event)
    look: bool = False


class _Channel:
    """The tail of one response and who follows it."""

    __slots__ = ("_bytes", "ended", "followers", "frames", "outrun")

    def __init__(self) -> None:
        self.frames: deque[Frame] = deque()
        self.followers: set[_Follower] = set()
        self.ended = False
        # Another process has committed since: whoever attaches now was not told, and rows may go on behind the tail.
        self.outrun = False
        self._bytes = 0

    def push(self, frames: Sequence[Frame]) -> None:
        """Add committed frames. A hole before them (another process wrote those) empties the tail first."""
        if self.frames and frames[0][0] != self.frames[-1][0] + 1:
            self.frames.clear()
            self._bytes = 0
        self.frames.extend(frames)
        self._bytes += sum(len(data) for _, _, data in frames)
        while len(self.frames) > _TAIL_FRAMES or (self._bytes > _TAIL_BYTES and len(self.frames) > 1):
            self._bytes -= len(self.frames.popleft()[2])
        self.ended = self.ended or frames[-1][1] in wire.TERMINAL

    def holds(self, number: int) -> bool:
        """Whether the tail goes on at this number."""
        return bool(self.frames) and self.frames[0][0] <= number <= self.frames[-1][0]

    def after(self, number: int) -> list[Frame]:
        """Frames of the tail from `number + 1`, which it holds."""
        return list(islice(self.frames, number + 1 - self.frames[0][0], None))

    def beyond(self, number: int) -> bool:
        """Whether something newer than `number` is known that the tail does not continue from there."""
        return bool(self.frames) and self.frames[-1][0] > number and not self.holds(number + 1)

    def wake(self, *, look: bool = False) -> None:
        """Tell the followers; `look`: that rows may have changed."""
        for follower in self.followers:
            follower.look = follower.look or look
            follower.wakeup.set()


class Hub:
    """All channels of a store. `watch(±1)`: called as followers attach and leave."""

    def __init__(self, read_page: ReadPage, watch: Callable[[int], None]) -> None:
        self._read_page = read_page
        self._watch = watch
        self._attached: dict[Key, _Channel] = {}
        self._idle: OrderedDict[Key, _Channel] = OrderedDict()

    def publish(self, emits: Sequence[Emit]) -> None:
        """Committed frames, in the order of their commits."""
        for emit in emits:
            key = (emit.tenant, emit.response_id)
            channel = self._attached.get(key) or self._idle.get(key)
            if channel is not None and emit.gone:
                channel.frames.clear()  # content of a purged response stays nowhere
                self._idle.pop(key, None)
            if channel is None and emit.frames and emit.frames[0][0] == 0:
                channel = _Channel()
                self._keep_idle(key, channel)
            if channel is not None:
                if emit.frames:
                    channel.push(emit.frames)
                channel.wake(look=emit.gone)

    def foreign(self) -> None:
        """Another process has committed something."""
        for channel in (*self._attached.values(), *self._idle.values()):
            channel.outrun = not channel.ended
            channel.wake(look=True)

    async def follow(self, tenant: str, response_id: str, after: int) -> AsyncIterator[Frames]:
        """See `Store.follow`."""
        key = (tenant, response_id)
        channel, follower = self._attach(key, after)
        try:
            while True:
                follower.wakeup.clear()
                if channel.holds(after + 1) and not follower.look:
                    batch: Sequence[Frame] = channel.after(after)
                elif follower.look or channel.beyond(after):
                    follower.look = False
                    status, batch = await self._read_page(tenant, response_id, after, PAGE)
                    ended = status not in ("queued", "in_progress")
                    if not batch and ended:
                        return
                    # Full page, or an end not seen yet: look again before waiting.
                    follower.look = follower.look or ended or len(batch) == PAGE
                elif channel.ended and channel.frames[-1][0] <= after:
                    return
                else:
                    await follower.wakeup.wait()
                    continue
                if batch:
                    after, last_type, _ = batch[-1]
                    yield Frames(batch, ended=last_type in wire.TERMINAL)
                    if last_type in wire.TERMINAL:
                        return
        finally:
            self._detach(key, channel, follower)

    def _attach(self, key: Key, after: int) -> tuple[_Channel, _Follower]:
        """A follower that looks at the rows first, unless the tail holds all it wants."""
        channel = self._attached.get(key) or self._idle.pop(key, None) or _Channel()
        self._attached[key] = channel
        follower = _Follower(look=channel.outrun or not channel.holds(after + 1))
        channel.followers.add(follower)
        self._watch(1)
        return channel, follower

    def _detach(self, key: Key, channel: _Channel, follower: _Follower) -> None:
        channel.followers.discard(follower)
        self._watch(-1)
        if not channel.followers and self._attached.get(key) is channel:
            del self._attached[key]
            if channel.frames:
                self._keep_idle(key, channel)

    def _keep_idle(self, key: Key, channel: _Channel) -> None:
        """The most recent ones; an evicted channel only costs its next follower a read."""
        self._idle[key] = channel
        self._idle.move_to_end(key)
        while len(self._idle) > _IDLE_CHANNELS:
            self._idle.popitem(last=False)
