"""The OpenAPI document, made true where the framework guesses: bodies that routes read themselves, one error envelope.

A route that reads its body itself (`api/body.py`: the limit is checked while it arrives) tells the framework nothing
about it, so the models are put in here; the framework's 422 is never answered.
"""

from collections.abc import Callable, Mapping

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel, Field

from outlast.protocol.conversations import MAX_ITEMS, Metadata
from outlast.protocol.json import JsonObject
from outlast.protocol.requests import CreateResponse

_REF = "#/components/schemas/{model}"
_ERROR: JsonObject = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"]},
                "code": {"type": ["string", "null"]},
            },
        }
    },
}
_REFUSED: JsonObject = {
    "description": "Refused: the error envelope.",
    "content": {"application/json": {"schema": {"$ref": _REF.format(model="Error")}}},
}


class Verdict(BaseModel):
    """`POST /v1/approvals/{id}`."""

    approve: bool
    reason: str | None = None


class Conversation(BaseModel):
    """`POST /v1/conversations`."""

    items: list[JsonObject] | None = Field(default=None, max_length=MAX_ITEMS)
    metadata: Metadata | None = None


class ConversationChange(BaseModel):
    """`POST /v1/conversations/{id}`."""

    metadata: Metadata | None


class ConversationItems(BaseModel):
    """`POST /v1/conversations/{id}/items`."""

    items: list[JsonObject] = Field(max_length=MAX_ITEMS)


class TokenCount(BaseModel):
    """`POST /v1/responses/input_tokens`: a request, `model` optional."""

    model: str | None = None
    input: list[JsonObject] | None = None
    instructions: str | None = None
    previous_response_id: str | None = None
    conversation: str | None = None
    tools: list[JsonObject] | None = None


class Compact(BaseModel):
    """`POST /v1/responses/compact`: what of a request a compaction has a use for."""

    model: str
    input: list[JsonObject] | None = None
    instructions: str | None = None
    previous_response_id: str | None = None
    prompt_cache_key: str | None = None
    service_tier: str | None = None
    store: bool | None = None


BODIES: Mapping[tuple[str, str], type[BaseModel]] = {
    ("/v1/responses", "post"): CreateResponse,
    ("/v1/responses/compact", "post"): Compact,
    ("/v1/responses/input_tokens", "post"): TokenCount,
    ("/v1/approvals/{approval_id}", "post"): Verdict,
    ("/v1/conversations", "post"): Conversation,
    ("/v1/conversations/{conversation_id}", "post"): ConversationChange,
    ("/v1/conversations/{conversation_id}/items", "post"): ConversationItems,
}


def document(app: FastAPI) -> Callable[[], JsonObject]:
    """What `app.openapi` is to be."""

    def openapi() -> JsonObject:
        if app.openapi_schema is None:
            app.openapi_schema = _completed(
                get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
            )
        return app.openapi_schema

    return openapi


def _completed(found: JsonObject) -> JsonObject:
    schemas: JsonObject = {"Error": _ERROR}
    for (path, method), model in BODIES.items():
        schema = model.model_json_schema(ref_template=_REF, by_alias=True)
        schemas |= schema.pop("$defs", {})
        schemas[model.__name__] = _as_sent(schema)
        reference = {"$ref": _REF.format(model=model.__name__)}
        body = {"required": True, "content": {"application/json": {"schema": reference}}}
        found["paths"][path][method]["requestBody"] = body
    for operations in found["paths"].values():
        for operation in operations.values():
            operation["responses"] = {"200": operation["responses"]["200"], "4XX": _REFUSED, "5XX": _REFUSED}
    found["components"] = {"schemas": schemas}
    return found


def _as_sent(schema: JsonObject) -> JsonObject:
    """The type holds what was made of it; a client may send a string for items, an object for an id."""
    if "input" in schema["properties"]:
        items = {"type": "array", "items": {"type": "object"}}
        named = {"type": "object", "required": ["id"], "properties": {"id": {"type": "string"}}}
        schema["properties"]["input"] = {"anyOf": [{"type": "string"}, items, {"type": "null"}]}
        schema["properties"]["conversation"] = {"anyOf": [{"type": "string"}, named, {"type": "null"}]}
    return schema
