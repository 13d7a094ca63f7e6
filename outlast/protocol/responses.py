"""The public Response object."""

from dataclasses import dataclass

from outlast.protocol.json import JsonObject
from outlast.protocol.usage import Usage


@dataclass(frozen=True, slots=True)
class ResponseFacts:
    """What the public object is built from, besides its output. `request`: the echo of the validated request."""

    id: str
    status: str
    created_at: int
    model: str
    request: JsonObject
    usage: Usage | None = None
    error: JsonObject | None = None
    incomplete_details: JsonObject | None = None
    completed_at: int | None = None
    previous_response_id: str | None = None
    background: bool = False
    store: bool = True
