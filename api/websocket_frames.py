"""What a client says over a WebSocket and how errors are said back: pure functions.

`response.create` carries the fields of a POST; what only an HTTP request can mean (`stream`, `stream_options`) is
ignored, since every answer is a stream. `response.steer` is known and refused in its own words.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass

from outlast.protocol import invalid, json
from outlast.protocol.errors import ErrorBody, InvalidRequest, UnsupportedFeature
from outlast.protocol.json import JsonObject

_CREATE, _STEER = "response.create", "response.steer"
_NOT_OF_THE_BODY = frozenset({"type", "stream_id", "generate", "stream", "stream_options", "background"})
_MAX_STREAM_ID = 64


@dataclass(frozen=True, slots=True)
class Create:
    """A request. `lane`: the client's `stream_id`; `generate` False: only prepare, no model is called."""

    body: JsonObject
    lane: str | None
    generate: bool

    @property
    def previous(self) -> object:
        """`previous_response_id` as sent."""
        return self.body.get("previous_response_id")


@dataclass(frozen=True, slots=True)
class Steer:
    """Input for a response that runs; both values as sent."""

    previous: object
    input: object


def lane(frame: JsonObject) -> str | None:
    """`stream_id` of a frame. Raises: InvalidRequest."""
    found = frame.get("stream_id")
    if found is not None and not (isinstance(found, str) and 1 <= len(found) <= _MAX_STREAM_ID):
        raise InvalidRequest(f"'stream_id' must be a string of 1 to {_MAX_STREAM_ID} characters.", param="stream_id")
    return found


def read(frame: JsonObject) -> Create | Steer:
    """What the client wants. Raises: InvalidRequest, UnsupportedFeature."""
    match frame.get("type"):
        case "response.create":
            return _create(frame)
        case "response.steer":
            return Steer(frame.get("previous_response_id"), frame.get("input"))
        case None:
            raise invalid.absent("type")
        case kind:
            raise invalid.wrong_value("type", str(kind), (_CREATE, _STEER))


def _create(frame: JsonObject) -> Create:
    generate = frame.get("generate")
    if not (generate is None or isinstance(generate, bool)):
        raise invalid.wrong_type("generate", "a boolean", generate)
    if frame.get("background"):
        raise UnsupportedFeature(
            "'background' is not for a WebSocket: leave it out here, or POST the request.", param="background"
        )
    body = {key: value for key, value in frame.items() if key not in _NOT_OF_THE_BODY}
    return Create({**body, "stream": True}, lane(frame), generate is not False)


def error_frame(status: int, error: ErrorBody, lane: str | None) -> str:
    """The one error shape of this transport: nested, with the HTTP status; `code` is always a string."""
    body: JsonObject = {"type": "error", "status": status, "error": {**asdict(error), "code": error.code or error.type}}
    return json.dumps_text(body if lane is None else {**body, "stream_id": lane})


def steer_refused(steer: Steer) -> str:
    """Steering does not exist here: a response takes no input while it runs. The input goes back to its sender."""
    return json.dumps_text(
        {
            "type": "response.steer.failed",
            "sequence_number": 0,
            "steer": {"previous_response_id": steer.previous, "input": steer.input},
            "error": {
                "type": "invalid_request_error",
                "code": "steering_not_supported",
                "message": "A running response takes no input here: send it with the next 'response.create'.",
            },
        }
    )


def in_lane(data: bytes, lane: str | None, headers: Mapping[str, str] | None = None) -> str:
    """An event of the log as a message; only its lane and `headers` are added, the bytes are the log's."""
    text = data.decode()
    if headers:
        text = f'{{"headers":{json.dumps_text(dict(headers))},{text[1:]}'
    return text if lane is None else f'{{"stream_id":{json.dumps_text(lane)},{text[1:]}'
