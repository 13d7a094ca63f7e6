"""The Chat Completions dialect: every other server with `POST /chat/completions`.

`chat_messages` writes the transcript, `chat_stream` reads the answer; this file says the rest of the request.
"""

from collections.abc import AsyncGenerator, Sequence

from outlast.protocol import json
from outlast.protocol.errors import UpstreamError
from outlast.protocol.events import WireEvent
from outlast.protocol.json import JsonObject
from outlast.upstream import chat_messages
from outlast.upstream.base import Capabilities, ModelTool, Round, Timeouts, UpstreamRequest
from outlast.upstream.chat_stream import Translator
from outlast.upstream.http import Endpoint

# What of a Responses request means the same in Chat Completions and is passed on.
_SHARED = (
    "service_tier",
    "prompt_cache_key",
    "prompt_cache_retention",
    "safety_identifier",
    "user",
    "frequency_penalty",
    "presence_penalty",
)
_LOGPROBS = "message.output_text.logprobs"


class ChatUpstream:
    """A model server with `POST /chat/completions`."""

    def __init__(
        self,
        name: str,
        base_url: str,
        *,
        api_key: str | None = None,
        api_key_env: str | None = None,
        developer_role: bool = False,
        max_tokens: bool = False,
        images: bool = True,
    ) -> None:
        """`developer_role`: the server knows it; `max_tokens`: its name of `max_completion_tokens` is the old one."""
        self._endpoint = Endpoint(name, base_url, api_key=api_key, api_key_env=api_key_env)
        self._capabilities = Capabilities(images=images)
        self._developer_role = developer_role
        self._limit_field = "max_tokens" if max_tokens else "max_completion_tokens"

    @property
    def capabilities(self) -> Capabilities:
        """What the server can read."""
        return self._capabilities

    def build(self, round: Round) -> UpstreamRequest:
        """The request of a round.

        Raises: TypeError for an unprepared item or tool choice, UnsupportedFeature for a content part this API lacks.
        """
        tools, choice = _tools(round)
        asked = bool(round.top_logprobs) or _LOGPROBS in round.include
        text = round.text or {}
        settings: JsonObject = {
            "tools": [_tool(tool) for tool in tools] or None,
            "tool_choice": choice,
            "parallel_tool_calls": round.parallel_tool_calls if tools else None,
            self._limit_field: round.max_output_tokens,
            "temperature": round.temperature,
            "top_p": round.top_p,
            "logprobs": asked or None,
            "top_logprobs": round.top_logprobs if asked else None,
            "reasoning_effort": (round.reasoning or {}).get("effort"),
            "response_format": _response_format(text.get("format")),
            "verbosity": text.get("verbosity"),
        }
        extra = round.extra or {}
        body: JsonObject = {
            "model": round.model,
            "messages": chat_messages.convert(
                round.transcript,
                round.instructions,
                developer_role=self._developer_role,
                images=self._capabilities.images,
            ),
            "stream": True,
            "stream_options": {"include_usage": True},
            **{key: value for key, value in settings.items() if value is not None},
            **{key: extra[key] for key in _SHARED if extra.get(key) is not None},
        }
        return UpstreamRequest(path="/chat/completions", body=json.dumps(body))

    async def stream(self, request: UpstreamRequest, timeouts: Timeouts) -> AsyncGenerator[Sequence[WireEvent]]:
        """The answer as Responses events. Close it (`aclosing`) when you stop early.

        Raises: UpstreamRefused, UpstreamAuth, UpstreamRateLimited, UpstreamUnavailable.
        """
        async with self._endpoint.open(request, timeouts) as stream:
            translator = Translator(stream.identity)
            while not translator.ended and (chunks := await stream.read()) is not None:
                batch: list[WireEvent] = []
                failure: UpstreamError | None = None
                try:
                    for chunk in chunks:
                        translator.feed(chunk, batch)
                except UpstreamError as error:
                    failure = error
                if batch:  # what came before the failure was sent
                    yield batch
                if failure is not None:
                    raise failure
            if not (translator.finished or stream.done):
                raise stream.identity.unavailable("ended the stream before its last chunk")
            yield translator.close()
            await stream.drain()

    async def count(self, round: Round) -> int | None:
        """Nothing in this dialect counts."""
        return None

    async def models(self) -> list[str]:
        """Names of `GET /models`. Raises: as `stream`."""
        return await self._endpoint.models()

    async def aclose(self) -> None:
        """Close the connections."""
        await self._endpoint.aclose()


def _tools(round: Round) -> tuple[Sequence[ModelTool], str | JsonObject | None]:
    """The tools to offer and the choice among them; allowed_tools, which this API lacks, filters here."""
    tools = round.tools
    choice: str | JsonObject | None
    match round.tool_choice:
        case None | str():
            choice = round.tool_choice
        case {"type": "function", "name": str(name)}:
            choice = {"type": "function", "function": {"name": name}}
        case {"type": "allowed_tools", "mode": str(mode), "tools": list(allowed)}:
            names = {tool.get("name") for tool in allowed if tool.get("type") == "function"}
            tools, choice = [tool for tool in round.tools if tool.name in names], mode
        case other:
            raise TypeError(f"unprepared tool_choice: {other}")
    # A choice without tools is refused by OpenAI and vLLM.
    return tools, choice if tools else None


def _tool(tool: ModelTool) -> JsonObject:
    """A nested function; what the tool's maker did not say is not said."""
    fields = {"description": tool.description, "parameters": tool.parameters, "strict": tool.strict}
    function = {"name": tool.name, **{key: value for key, value in fields.items() if value is not None}}
    return {"type": "function", "function": function}


def _response_format(wanted: JsonObject | None) -> JsonObject | None:
    if wanted is None or wanted.get("type") == "text":
        return None
    if wanted.get("type") != "json_schema":
        return wanted
    schema = {key: value for key, value in wanted.items() if key != "type" and value is not None}
    return {"type": "json_schema", "json_schema": schema}
