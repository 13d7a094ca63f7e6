"""What answers must look like, beyond one check: envelopes, Response objects, streams."""

from collections.abc import Sequence

from outlast.conformance.base import Failed, NotOffered, equal, expect
from outlast.conformance.target import TERMINAL, Answer, Stream
from outlast.protocol.json import JsonObject

# Keys a Response must have, whatever happened (Open Responses, `ResponseResource`).
RESPONSE_KEYS = (
    "id",
    "object",
    "created_at",
    "completed_at",
    "status",
    "incomplete_details",
    "model",
    "previous_response_id",
    "instructions",
    "output",
    "error",
    "tools",
    "tool_choice",
    "truncation",
    "parallel_tool_calls",
    "text",
    "top_p",
    "presence_penalty",
    "frequency_penalty",
    "top_logprobs",
    "temperature",
    "reasoning",
    "usage",
    "max_output_tokens",
    "max_tool_calls",
    "store",
    "background",
    "service_tier",
    "safety_identifier",
    "prompt_cache_key",
)
# Status codes with which a server says that it has no such thing.
_NO_SUCH_THING = (400, 404, 405, 422, 426, 501)


def ok(answer: Answer) -> JsonObject:
    """The JSON object of a 200."""
    expect(answer.status == 200, f"expected 200, saw {answer}")
    expect(isinstance(answer.body, dict), f"expected a JSON object, saw {answer}")
    found: JsonObject = answer.body
    return found


def offered(answer: Answer) -> JsonObject:
    """As `ok`, for an optional part of the API. Raises: NotOffered with the server's refusal."""
    if answer.status in _NO_SUCH_THING:
        raise NotOffered(f"{answer.status}: {answer.error.get('message') or answer.body}")
    return ok(answer)


def streamed(stream: Stream, *, optional: bool = False) -> Stream:
    """A stream that is one. Raises: Failed, NotOffered."""
    if not stream.frames:
        refusal = Answer(stream.status, stream.headers, stream.body)
        (offered if optional else ok)(refusal)
        raise Failed("the stream has no event")
    return stream


def completed(response: JsonObject) -> JsonObject:
    """A response that came to its end."""
    equal(response.get("status"), "completed", f"status (error: {response.get('error')})")
    return response


def refused(
    answer: Answer, *, status: Sequence[int] = (400,), param: str | None = None, code: str | None = None
) -> None:
    """A refusal with the whole envelope."""
    expect(answer.status in status, f"expected HTTP {' or '.join(map(str, status))}, saw {answer}")
    missing = {"message", "type", "param", "code"} - set(answer.error)
    expect(answer.error, f"expected an 'error' object, saw {answer}")
    expect(not missing, f"the error lacks {sorted(missing)}: {answer}")
    expect(isinstance(answer.error["message"], str) and answer.error["message"], f"the error says nothing: {answer}")
    if param is not None:
        equal(answer.error["param"], param, "error.param")
    if code is not None:
        equal(answer.error["code"], code, "error.code")


def items(response: JsonObject, kind: str) -> list[JsonObject]:
    """Output items of a type."""
    return [item for item in response.get("output", []) if item.get("type") == kind]


def text(response: JsonObject) -> str:
    """The text of all messages."""
    parts = [part for item in items(response, "message") for part in item.get("content", [])]
    return "".join(str(part.get("text", "")) for part in parts)


def order(stream: Stream, item_id: object) -> list[str]:
    """Types of the events of one item, deltas once, without `response.`."""
    kinds: list[str] = []
    for frame in stream.frames:
        belongs = frame.data.get("item_id") == item_id or (frame.data.get("item") or {}).get("id") == item_id
        kind = frame.type.removeprefix("response.")
        if belongs and not (kinds and kind == kinds[-1] and kind.endswith("delta")):
            kinds.append(kind)
    return kinds


def added(stream: Stream, kind: str) -> list[JsonObject]:
    """Items of a type as announced."""
    return [data["item"] for data in stream.of("response.output_item.added") if data["item"].get("type") == kind]


def numbered(stream: Stream) -> None:
    """Sequence numbers from 0, each once; output indexes dense; one lifecycle."""
    numbers = [frame.data.get("sequence_number") for frame in stream.frames]
    equal(numbers, list(range(len(numbers))), "sequence numbers")
    indexes = [data.get("output_index") for data in stream.of("response.output_item.added")]
    equal(indexes, list(range(len(indexes))), "output indexes as announced")
    equal(stream.types[0], "response.created", "the first event")
    equal(stream.types.count("response.created"), 1, "how many response.created")
    equal([kind for kind in stream.types if kind in TERMINAL], stream.types[-1:], "terminal events, the last one alone")
    announced = {data["output_index"]: data["item"].get("id") for data in stream.of("response.output_item.added")}
    final = {index: item.get("id") for index, item in enumerate(stream.last.get("output", []))}
    equal(final, announced, "ids of the final output, as announced")
