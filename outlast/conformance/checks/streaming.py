"""The events of one response."""

from outlast.conformance.base import Group, equal, expect
from outlast.conformance.shapes import RESPONSE_KEYS, added, completed, numbered, ok, order, streamed, text
from outlast.conformance.target import Target

group = Group("Streaming")
_MESSAGE = [
    "output_item.added",
    "content_part.added",
    "output_text.delta",
    "output_text.done",
    "content_part.done",
    "output_item.done",
]


@group.check("stream-numbers", "Open Responses 2026-04-24: streaming; openai.types.responses: sequence_number")
async def stream_numbers(target: Target) -> None:
    """Numbers from 0 without a gap, dense output indexes, one lifecycle, one terminal event at the end."""
    numbered(streamed(await target.stream()))


@group.check("stream-begins", "Open Responses 2026-04-24: state machine of a response")
async def stream_begins(target: Target) -> None:
    """`response.created`, then `response.in_progress`, both with an empty output."""
    stream = streamed(await target.stream())
    equal(stream.types[:2], ["response.created", "response.in_progress"], "the first events")
    for frame in stream.frames[:2]:
        response = frame.data["response"]
        equal((response["status"], response["output"]), ("in_progress", []), frame.type)


@group.check("stream-frames", "Open Responses 2026-04-24: event equals type")
async def stream_frames(target: Target) -> None:
    """The content type is text/event-stream and each `event:` line equals the data's `type`."""
    stream = streamed(await target.stream())
    kind = stream.headers.get("content-type", "")
    expect(kind.startswith("text/event-stream"), f"content-type {kind!r}")
    wrong = [(frame.name, frame.type) for frame in stream.frames if frame.name != frame.type]
    expect(not wrong, f"event and type differ: {wrong[:3]}")


@group.check("stream-done", "Open Responses 2026-04-24: terminal [DONE]")
async def stream_done(target: Target) -> None:
    """`data: [DONE]` comes last, once."""
    stream = streamed(await target.stream())
    equal((stream.done, stream.after_done), (1, 0), "[DONE] and events behind it")


@group.check("stream-lifecycle-whole", "Open Responses 2026-04-24: ResponseResource in lifecycle events")
async def stream_lifecycle_whole(target: Target) -> None:
    """Lifecycle events carry the whole Response, every required key."""
    stream = streamed(await target.stream())
    for frame in stream.frames:
        if "response" in frame.data:
            missing = [key for key in RESPONSE_KEYS if key not in frame.data["response"]]
            expect(not missing, f"{frame.type} lacks {missing}")


@group.check("stream-one-id", "openai 3.57 stream helper: the response id is the same in every event")
async def stream_one_id(target: Target) -> None:
    """The response's id and the ids of items never change on the way."""
    stream = streamed(await target.stream())
    ids = {frame.data["response"]["id"] for frame in stream.frames if "response" in frame.data}
    equal(len(ids), 1, f"ids of the response {ids}")
    for data in stream.of("response.output_item.done"):
        opened = stream.of("response.output_item.added")[data["output_index"]]
        equal(data["item"].get("id"), opened["item"].get("id"), "id of an item, added and done")


@group.check("message-events", "openai.types.responses: order of the events of a message")
async def message_events(target: Target) -> None:
    """A message opens, its part opens, deltas, then all closes from the inside out."""
    stream = streamed(await target.stream())
    message = added(stream, "message")[-1]
    equal(message.get("content"), [], "content of the announced message")
    equal(order(stream, message.get("id")), _MESSAGE, "its events")


@group.check("text-adds-up", "openai 3.57 stream helper: accumulated text")
async def text_adds_up(target: Target) -> None:
    """The deltas together are the done text, the part's text and the final text."""
    stream = streamed(await target.stream("Tell me a short story."))
    deltas = "".join(data["delta"] for data in stream.of("response.output_text.delta"))
    done = "".join(data["text"] for data in stream.of("response.output_text.done"))
    parts = "".join(data["part"].get("text", "") for data in stream.of("response.content_part.done"))
    equal((done, parts, text(stream.last)), (deltas, deltas, deltas), "done, part and final text")


@group.check("delta-logprobs", "openai.types.responses.ResponseTextDeltaEvent: logprobs is required")
async def delta_logprobs(target: Target) -> None:
    """Text deltas and the done event carry `logprobs`, empty when not asked for."""
    stream = streamed(await target.stream())
    for data in [*stream.of("response.output_text.delta"), *stream.of("response.output_text.done")]:
        expect(isinstance(data.get("logprobs"), list), f"no logprobs in {data}")


@group.check("final-object", "openai.types.responses.ResponseCompletedEvent")
async def final_object(target: Target) -> None:
    """The terminal event's Response is the one GET answers, usage included."""
    stream = streamed(await target.stream())
    final = completed(stream.last)
    found = ok(await target.get(f"/responses/{final['id']}"))
    equal(found["output"], final["output"], "output")
    equal(found["usage"], final["usage"], "usage")


@group.check("stream-incomplete", "openai.types.responses.ResponseIncompleteEvent")
async def stream_incomplete(target: Target) -> None:
    """A stream cut by the token limit ends with `response.incomplete` and its reason."""
    stream = streamed(await target.stream("Tell me a story of at least two hundred words.", max_output_tokens=16))
    equal(stream.types[-1], "response.incomplete", "the last event")
    equal((stream.last["incomplete_details"] or {}).get("reason"), "max_output_tokens", "reason")
    numbered(stream)


@group.check("stream-store-false", "Open Responses 2026-04-24: state")
async def stream_store_false(target: Target) -> None:
    """A stream of a response that is not stored is as whole as any."""
    stream = streamed(await target.stream(store=False))
    numbered(stream)
    expect(text(completed(stream.last)), "no text")
