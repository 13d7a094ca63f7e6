"""Work nobody waits for: poll, cancel, join again."""

import asyncio

from outlast.conformance.base import Group, equal, expect
from outlast.conformance.shapes import completed, numbered, offered, ok, refused, streamed
from outlast.conformance.target import Target
from outlast.protocol.json import JsonObject

group = Group("Background and resume")
_SLOW = "Tell me a long story, slowly."
_POLL_SECONDS = 0.1
_RUNNING = ("queued", "in_progress")


async def _ended(target: Target, response_id: str) -> JsonObject:
    """The response, once it has ended; the check's own deadline bounds it."""
    while (found := ok(await target.get(f"/responses/{response_id}")))["status"] in _RUNNING:  # noqa: ASYNC110  # over HTTP
        await asyncio.sleep(_POLL_SECONDS)
    return found


async def _offered(target: Target) -> None:
    """Raises: NotOffered when the server has no background: what it refuses then says nothing about the rules of it."""
    offered(await target.create(background=True))


@group.check("background", "OpenAI guide: background mode")
async def background(target: Target) -> None:
    """Answered at once, queued or in progress; polled to its end."""
    response = offered(await target.create(background=True))
    expect(response["status"] in ("queued", "in_progress"), f"status {response['status']!r}")
    equal(response["background"], True, "background")
    completed(await _ended(target, response["id"]))


@group.check("background-store", "OpenAI guide: background mode needs store")
async def background_store(target: Target) -> None:
    """`background` with `store: false` is a 400."""
    await _offered(target)
    refused(await target.create(background=True, store=False))


@group.check("background-stream", "OpenAI guide: streaming a background response")
async def background_stream(target: Target) -> None:
    """A background stream begins queued and is numbered like any."""
    stream = streamed(await target.stream(background=True), optional=True)
    numbered(stream)
    equal(stream.types[:3], ["response.created", "response.queued", "response.in_progress"], "the first events")
    completed(stream.last)


@group.check("cancel", "OpenAI API reference: cancel a response")
async def cancel(target: Target) -> None:
    """A cancelled response is `cancelled`, stays so, and can be cancelled again."""
    response = offered(await target.create(_SLOW, background=True))
    for _ in range(2):
        equal(ok(await target.send("POST", f"/responses/{response['id']}/cancel"))["status"], "cancelled", "status")
    equal(ok(await target.get(f"/responses/{response['id']}"))["status"], "cancelled", "status afterwards")


@group.check("cancel-ended", "OpenAI guide: background mode, cancelling is idempotent")
async def cancel_ended(target: Target) -> None:
    """Cancelling what has ended answers it as it is."""
    response = offered(await target.create(background=True))
    ended = completed(await _ended(target, response["id"]))
    answer = ok(await target.send("POST", f"/responses/{response['id']}/cancel"))
    equal((answer["status"], answer["output"]), (ended["status"], ended["output"]), "the response")


@group.check("cancel-foreground", "OpenAI API reference: only background responses can be cancelled")
async def cancel_foreground(target: Target) -> None:
    """A response that was not made in the background cannot be cancelled."""
    await _offered(target)
    response = completed(ok(await target.create()))
    refused(await target.send("POST", f"/responses/{response['id']}/cancel"))


@group.check("cancel-unknown", "OpenAI API reference: errors")
async def cancel_unknown(target: Target) -> None:
    """An unknown id is a 404."""
    await _offered(target)
    refused(await target.send("POST", "/responses/resp_0123456789abcdef0123456789abcdef/cancel"), status=(404,))


@group.check("replay", "OpenAI API reference: retrieve with stream=true")
async def replay(target: Target) -> None:
    """The stream of an ended background response can be read again, the same bytes."""
    live = streamed(await target.stream(background=True), optional=True)
    again = streamed(await target.replay(live.last["id"]), optional=True)
    equal([frame.raw for frame in again.frames], [frame.raw for frame in live.frames], "the frames")
    equal(again.done, 1, "[DONE]")


@group.check("resume-every-cut", "OpenAI API reference: starting_after")
async def resume_every_cut(target: Target) -> None:
    """`starting_after=N` gives exactly what comes behind event N, for every N."""
    live = streamed(await target.stream(background=True), optional=True)
    for number in range(len(live.frames)):
        rest = await target.replay(live.last["id"], after=number)
        if number == len(live.frames) - 1:
            equal((rest.status, len(rest.frames)), (200, 0), "behind the last event")
            continue
        seen = [frame.raw for frame in streamed(rest, optional=True).frames]
        equal(seen, [frame.raw for frame in live.frames[number + 1 :]], f"frames behind {number}")


@group.check("resume-running", "OpenAI guide: background streams go on when the client is gone")
async def resume_running(target: Target) -> None:
    """A stream that was left in the middle is joined again while it runs: no gap, no repeat."""
    await _offered(target)
    first: list[int] = []
    response_id = ""
    frames = target.frames(_SLOW, background=True)
    async for frame in frames:
        response_id = response_id or str((frame.data.get("response") or {}).get("id", ""))
        first.append(frame.data["sequence_number"])
        if len(first) == 6:
            break
    await frames.aclose()  # type: ignore[attr-defined]  # it is a generator: hang up now
    rest = streamed(await target.replay(response_id, after=first[-1]), optional=True)
    numbers = [*first, *(frame.data["sequence_number"] for frame in rest.frames)]
    equal(numbers, list(range(len(numbers))), "numbers of both parts")
    completed(rest.last)


@group.check("leave-stored", "OpenAI guide: store; a durable server finishes what it keeps")
async def leave_stored(target: Target) -> None:
    """A background response whose client hangs up goes on to its end."""
    await _offered(target)
    frames = target.frames("Tell me a short story.", background=True)
    response_id = ""
    async for frame in frames:
        response_id = str((frame.data.get("response") or {}).get("id", ""))
        break
    await frames.aclose()  # type: ignore[attr-defined]  # it is a generator: hang up now
    completed(await _ended(target, response_id))
