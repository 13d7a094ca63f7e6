"""`POST /v1/responses`: the body as a type, checked before anything happens.

Unknown fields are ignored, unknown values of known enums are 400, what this version does not serve is refused by name.
Every error names the path of the value and says what to change.

Two JSON forms leave here: `echo`, what the record keeps (as given, secrets removed: a later round must still know what
the client did *not* give), and `canonical_inputs`, the stored input. `responses.build_response` fills in the defaults.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, ValidationError

from outlast.protocol import ids, inputs, invalid, json, tools
from outlast.protocol.compaction import ContextManagement
from outlast.protocol.content import MAX_TEXT
from outlast.protocol.conversations import Metadata, conversation_id
from outlast.protocol.errors import InvalidRequest, PayloadTooLarge, PreviousResponseNotFound, UnsupportedFeature
from outlast.protocol.items import Item
from outlast.protocol.json import JsonObject
from outlast.protocol.tools import Tool, ToolChoice

Include = Literal[
    "file_search_call.results",
    "web_search_call.results",
    "web_search_call.action.sources",
    "message.input_image.image_url",
    "computer_call_output.output.image_url",
    "code_interpreter_call.outputs",
    "reasoning.encrypted_content",
    "message.output_text.logprobs",
]
# The sealed reasoning of the model server; without it an item has none, and the chain keeps it for the server.
INCLUDE_SEALED: Include = "reasoning.encrypted_content"
ServiceTier = Literal["auto", "default", "flex", "scale", "priority", "fast", "ultrafast"]
Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
Word = Annotated[str, Field(max_length=64)]


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """What one request may ask for; `max_tool_calls` and `max_rounds` are the server's caps."""

    max_body_bytes: int = 32 * 1024 * 1024
    max_items: int = 10_000
    max_tools: int = 128
    max_tool_calls: int = 128
    max_rounds: int = 64


class _Wire(BaseModel):
    """As sent: unknown fields are kept for the upstream and the echo."""

    model_config = ConfigDict(frozen=True, extra="allow", strict=True, serialize_by_alias=True)


class TextFormat(_Wire):
    """`text.format` without a schema."""

    type: Literal["text", "json_object"]


class JsonSchemaFormat(_Wire):
    """`text.format` with one; flat, not nested under `json_schema`."""

    type: Literal["json_schema"]
    name: str = Field(pattern=r"^[a-zA-Z0-9_-]{1,64}$")
    schema_: JsonObject = Field(alias="schema")
    description: str | None = None
    strict: bool | None = None


class TextOptions(_Wire):
    """`text`."""

    format: Annotated[TextFormat | JsonSchemaFormat, Discriminator("type")] | None = None
    verbosity: Literal["low", "medium", "high"] | None = None


class ReasoningOptions(_Wire):
    """`reasoning`; passed through and echoed."""

    effort: Effort | None = None
    summary: Literal["auto", "concise", "detailed"] | None = None
    generate_summary: Literal["auto", "concise", "detailed"] | None = None
    context: Literal["auto", "current_turn", "all_turns"] | None = None
    mode: Literal["standard", "pro"] | None = None


class StreamOptions(_Wire):
    """`stream_options`: accepted, we never obfuscate."""

    include_obfuscation: bool | None = None


class ImageOptions(_Wire):
    """`image`; passed through and echoed."""

    context_compression: Literal["auto", "enabled", "disabled"] | None = None


class Budget(BaseModel):
    """`outlast.budget`: tokens in and out, model rounds, seconds."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    max_total_tokens: int | None = Field(default=None, ge=1)
    max_rounds: int | None = Field(default=None, ge=1)
    max_seconds: float | None = Field(default=None, gt=0, allow_inf_nan=False)


class Extension(BaseModel):
    """`outlast`: our own part of the request; unknown keys in it are mistakes."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    approval_mode: Literal["respond", "wait"] | None = None
    budget: Budget | None = None


class CreateResponse(BaseModel):
    """A valid request. None: not given. `input` is canonical (`inputs.parse_input`)."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True, arbitrary_types_allowed=True)

    model: str = Field(min_length=1, max_length=200)
    input: tuple[Item, ...] = ()
    tools: tuple[Tool, ...] = ()
    tool_choice: ToolChoice | None = None
    instructions: str | None = Field(default=None, max_length=MAX_TEXT)
    previous_response_id: str | None = None
    parallel_tool_calls: bool | None = None
    max_tool_calls: int | None = Field(default=None, ge=1)
    max_output_tokens: int | None = Field(default=None, ge=16)
    text: TextOptions | None = None
    reasoning: ReasoningOptions | None = None
    temperature: float | None = Field(default=None, ge=0, le=2)
    top_p: float | None = Field(default=None, ge=0, le=1)
    top_logprobs: int | None = Field(default=None, ge=0, le=20)
    presence_penalty: float | None = Field(default=None, ge=-2, le=2)
    frequency_penalty: float | None = Field(default=None, ge=-2, le=2)
    truncation: Literal["auto", "disabled"] | None = None
    context_management: Annotated[list[ContextManagement] | None, Field(max_length=1)] = None
    include: list[Include] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    store: bool | None = None
    background: bool | None = None
    conversation: str | None = None
    metadata: Metadata | None = None
    service_tier: ServiceTier | None = None
    safety_identifier: str | None = Field(default=None, max_length=128)
    prompt_cache_key: Word | None = None
    prompt_cache_options: JsonObject | None = None
    prompt_cache_retention: Literal["in_memory", "in-memory", "24h"] | None = None
    user: Word | None = None
    image: ImageOptions | None = None
    access_programs: JsonObject | None = None
    outlast: Extension | None = None

    @property
    def stored(self) -> bool:
        """`store`, whose default is true."""
        return self.store is not False

    @property
    def budget(self) -> Budget:
        """`outlast.budget`, all None when not given."""
        return (self.outlast and self.outlast.budget) or Budget()


# Fields of the record's request that go to the upstream as they came, besides those `Round` has names for.
PASSED_ON = (
    "truncation",
    "service_tier",
    "safety_identifier",
    "prompt_cache_key",
    "prompt_cache_options",
    "prompt_cache_retention",
    "user",
    "presence_penalty",
    "frequency_penalty",
    "image",
    "access_programs",
)

_REFUSED = {
    "prompt": "Stored prompts are not supported: send 'instructions' and 'input'.",
    "moderation": "Moderation is not supported: remove 'moderation'.",
}
# Deeper JSON cannot be written again by our encoder (254 levels), once it stands inside items, events and responses.
_MAX_DEPTH_MARGIN = 32


def parse_create(raw: bytes, limits: RequestLimits) -> CreateResponse:
    """The request of a body. Raises: PayloadTooLarge, InvalidRequest, UnsupportedFeature, PreviousResponseNotFound."""
    body = load(raw, limits)
    _refuse_by_name(body)
    declared = _tools(body.get("tools"), limits)
    parts: JsonObject = {
        "tools": declared,
        "tool_choice": tools.parse_tool_choice(body.get("tool_choice"), declared),
        "input": inputs.parse_input(body.get("input"), max_items=limits.max_items),
        "conversation": conversation_id(body.get("conversation")),
    }
    try:
        request = CreateResponse.model_validate({**body, **parts})
    except ValidationError as error:
        raise invalid.explain(error, body) from error
    _check_together(request, limits)
    return request


def load(raw: bytes, limits: RequestLimits) -> JsonObject:
    """The object of a body that we can write again. Raises: PayloadTooLarge, InvalidRequest."""
    if len(raw) > limits.max_body_bytes:
        raise PayloadTooLarge(
            f"The body has {len(raw)} bytes: at most {limits.max_body_bytes} are allowed (limits.max_body_bytes)."
        )
    try:
        body = json.loads(raw)
    except ValueError as error:
        raise InvalidRequest(f"The request body is not valid JSON: {error}.", code="invalid_json") from error
    if not isinstance(body, dict):
        raise InvalidRequest(
            f"The request body must be a JSON object, got {invalid.kind_of(body)}.", code="invalid_json"
        )
    nested: object = body
    for _ in range(_MAX_DEPTH_MARGIN):
        nested = [nested]
    try:
        json.dumps(nested)
    except TypeError as error:
        raise InvalidRequest("The request body is nested too deeply: at most 200 levels are allowed.") from error
    return body


def _refuse_by_name(body: JsonObject) -> None:
    if body.get("conversation") is not None and body.get("previous_response_id") is not None:
        raise InvalidRequest(
            "'previous_response_id' and 'conversation' cannot be used together: give one of them.",
            param="previous_response_id",
        )
    for key, text in _REFUSED.items():
        if body.get(key) is not None:
            raise UnsupportedFeature(text, param=key)
    options = body.get("background_options")
    if options is None:
        return
    if not isinstance(options, dict):
        raise invalid.wrong_type("background_options", "an object", options)
    window = options.get("completion_window")
    if window not in (None, "soonest"):
        raise UnsupportedFeature(
            "Long completion windows are not supported: use 'soonest' or leave it out.",
            param="background_options.completion_window",
        )


def _tools(raw: Any, limits: RequestLimits) -> tuple[Tool, ...]:
    if raw is None:
        return ()
    if not isinstance(raw, list):
        raise invalid.wrong_type("tools", "an array", raw)
    if len(raw) > limits.max_tools:
        raise InvalidRequest(
            f"'tools' has {len(raw)} entries: at most {limits.max_tools} are allowed (limits.max_tools).", param="tools"
        )
    return tools.parse_tools(raw)


def _check_together(request: CreateResponse, limits: RequestLimits) -> None:
    """What no field can tell alone."""
    previous = request.previous_response_id
    if previous is not None and not ids.is_id(previous):
        raise PreviousResponseNotFound(
            f"Previous response with id {previous[:80]!r} not found.", param="previous_response_id"
        )
    if not request.input and previous is None and request.conversation is None:
        raise invalid.absent("input")
    _check_cap("max_tool_calls", request.max_tool_calls, limits.max_tool_calls, "limits.max_tool_calls")
    _check_cap("outlast.budget.max_rounds", request.budget.max_rounds, limits.max_rounds, "limits.max_rounds")
    if request.background and not request.stored:
        raise InvalidRequest(
            "'background' needs the response to be stored: leave out 'store: false'.", param="background"
        )
    if request.stream_options is not None and not request.stream:
        raise InvalidRequest("'stream_options' is only allowed with 'stream: true'.", param="stream_options")
    waits = request.outlast is not None and request.outlast.approval_mode == "wait"
    if waits and not (request.background or request.stream):
        raise InvalidRequest(
            "Approval mode 'wait' keeps the response open: it needs 'stream: true' or 'background: true'.",
            param="outlast.approval_mode",
        )


def _check_cap(param: str, value: int | None, cap: int, setting: str) -> None:
    if value is not None and value > cap:
        raise InvalidRequest(f"'{param}' is {value}: this server allows at most {cap} ({setting}).", param=param)


def stitched(request: CreateResponse, carried: Sequence[JsonObject], limits: RequestLimits) -> CreateResponse:
    """A request whose history is held by its connection, as one that brings it along. Raises: InvalidRequest."""
    history = inputs.parse_input(list(carried), max_items=limits.max_items - len(request.input))
    return request.model_copy(update={"input": (*history, *request.input)})


def echo(request: CreateResponse) -> JsonObject:
    """What the record keeps of the request: what was given, without input and without the secrets of MCP tools."""
    body = request.model_dump(
        exclude_unset=True,
        exclude={"input", "tools", "stream", "stream_options", "conversation"},
        by_alias=True,
        warnings="error",
    )
    given = {key: value for key, value in body.items() if value is not None}
    if request.tools:
        given["tools"] = [tools.public(tool) for tool in request.tools]
    return given


def canonical_inputs(request: CreateResponse, mint: Callable[[str], str]) -> list[JsonObject]:
    """The stored form of `request.input`: `inputs.stored`. References must be resolved before
    (`request.model_copy(update={"input": …})`)."""
    return inputs.stored(request.input, mint)
