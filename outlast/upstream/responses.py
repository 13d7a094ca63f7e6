"""The Responses dialect: OpenAI, vLLM, SMG and other servers that speak it themselves.

The output is relayed losslessly, the request never: the model server keeps nothing (`store: false`), chains nothing
and sees only functions (behaviour §7). What only an OpenAI server understands goes to one alone.
"""

from collections.abc import AsyncGenerator, Sequence

from outlast.protocol import events, items, json
from outlast.protocol.errors import UpstreamError
from outlast.protocol.events import WireEvent
from outlast.protocol.items import PreparedItem
from outlast.protocol.json import JsonObject
from outlast.upstream.base import Capabilities, ModelTool, Round, Timeouts, UpstreamRequest
from outlast.upstream.failures import Identity
from outlast.upstream.http import Endpoint

ENCRYPTED_REASONING = "reasoning.encrypted_content"

# State on the model server, which a run of ours must not have, and what we set ourselves.
_OURS = frozenset({"previous_response_id", "conversation", "background", "stream", "store", "stream_options"})

_TRIGGER: JsonObject = {"type": "compaction_trigger"}
# What a count of tokens takes of a request.
_COUNTED = frozenset({"model", "input", "instructions", "tools", "tool_choice", "parallel_tool_calls", "text"})


class ResponsesUpstream:
    """A model server with `POST /responses`."""

    def __init__(
        self,
        name: str,
        base_url: str,
        *,
        api_key: str | None = None,
        api_key_env: str | None = None,
        openai: bool = False,
        images: bool = True,
        native: bool = True,
    ) -> None:
        """`openai`: it is an OpenAI server, which alone can read its encrypted reasoning. `native`: it knows more tools
        than functions."""
        self._endpoint = Endpoint(name, base_url, api_key=api_key, api_key_env=api_key_env)
        self._capabilities = Capabilities(images=images, encrypted_reasoning=openai, native=native)

    @property
    def capabilities(self) -> Capabilities:
        """What the server can read."""
        return self._capabilities

    def build(self, round: Round) -> UpstreamRequest:
        """The request of a round. Raises: TypeError for an unprepared item."""
        openai = self._capabilities.encrypted_reasoning
        include = list(round.include)
        if openai and ENCRYPTED_REASONING not in include:
            include.append(ENCRYPTED_REASONING)
        tools = [*(_tool(tool) for tool in round.tools), *round.native]
        # Without tools both are meaningless and some servers refuse them.
        choosing = bool(tools) or any(items.brings_tools(item) for item in round.transcript)
        settings: JsonObject = {
            "instructions": round.instructions,
            "tools": tools or None,
            "tool_choice": round.tool_choice if choosing else None,
            "parallel_tool_calls": round.parallel_tool_calls if choosing else None,
            "max_tool_calls": round.max_tool_calls,
            "max_output_tokens": round.max_output_tokens,
            "temperature": round.temperature,
            "top_p": round.top_p,
            "top_logprobs": round.top_logprobs,
            "reasoning": round.reasoning,
            "text": round.text,
            "include": include or None,
            "stream_options": {"include_obfuscation": False} if openai else None,
        }
        body: JsonObject = {
            **{key: value for key, value in (round.extra or {}).items() if key not in _OURS and value is not None},
            "model": round.model,
            "input": [
                *(_item(item, openai=openai) for item in round.transcript),
                *([_TRIGGER] if round.compacts else []),
            ],
            "stream": True,
            "store": False,
            **{key: value for key, value in settings.items() if value is not None},
        }
        return UpstreamRequest(path="/responses", body=json.dumps(body))

    async def stream(self, request: UpstreamRequest, timeouts: Timeouts) -> AsyncGenerator[Sequence[WireEvent]]:
        """The server's events as they are, keep-alives left out. Close it (`aclosing`) when you stop early.

        Raises: UpstreamRefused, UpstreamAuth, UpstreamRateLimited, UpstreamUnavailable.
        """
        async with self._endpoint.open(request, timeouts) as stream:
            while (payloads := await stream.read()) is not None:
                batch: list[WireEvent] = []
                ended = False
                failure: UpstreamError | None = None
                for payload in payloads:
                    failure = _failure(payload, stream.identity)
                    if failure is not None:
                        break
                    event = events.parse(payload)
                    if event.type != events.KEEPALIVE:
                        batch.append(event)
                    if event.type in events.TERMINAL:
                        ended = True
                        break
                if batch:  # what came before a failure was sent, and a complete call in it decides how the round ends
                    yield batch
                if failure is not None:
                    raise failure
                if ended:
                    await stream.drain()
                    return
            raise stream.identity.unavailable("ended the stream before its terminal event")

    async def count(self, round: Round) -> int | None:
        """Asked of an OpenAI server only, which may not have the endpoint. Raises: as `stream`."""
        if not self._capabilities.encrypted_reasoning:
            return None
        asked: JsonObject = json.loads(self.build(round).body)
        body = {key: value for key, value in asked.items() if key in _COUNTED}
        answer = await self._endpoint.ask("/responses/input_tokens", json.dumps(body))
        if answer is None:
            return None
        counted = answer.get("input_tokens")
        if not isinstance(counted, int):
            raise self._endpoint.identity.unavailable("answered /responses/input_tokens without a count")
        return counted

    async def models(self) -> list[str]:
        """Names of `GET /models`. Raises: as `stream`."""
        return await self._endpoint.models()

    async def aclose(self) -> None:
        """Close the connections."""
        await self._endpoint.aclose()


def _tool(tool: ModelTool) -> JsonObject:
    """A flat function; what the tool's maker did not say is not said."""
    fields = {
        "description": tool.description,
        "parameters": tool.parameters,
        "strict": tool.strict,
        **(tool.more or {}),
    }
    return {"type": "function", "name": tool.name, **{key: value for key, value in fields.items() if value is not None}}


def _item(item: PreparedItem, *, openai: bool) -> JsonObject:
    """A prepared item as the server's input; nulls are left out, since strict servers refuse them."""
    match item:
        case items.Compaction():
            body = _given(item)
            keeps_id = True
        case items.Reasoning():
            # `summary` is required even when empty.
            body = {**_given(item), "summary": item.summary or []}
            keeps_id = item.encrypted_content is not None
        case items.NativeItem():
            body = _given(item)
            keeps_id = item.type not in _TAKEN_WITHOUT_ID
        case (
            items.Message()
            | items.FunctionCall()
            | items.FunctionCallOutput()
            | items.CustomToolCall()
            | items.CustomToolCallOutput()
        ):
            body = _given(item)
            keeps_id = False
        case _:
            raise TypeError(f"unprepared item in a transcript: {getattr(item, 'type', type(item).__name__)}")
    if openai and not keeps_id:
        # OpenAI looks ids up and, with `store: false`, knows none but those inside encrypted content.
        body.pop("id", None)
    return body


# An OpenAI server takes these without their id, though its types require it.
_TAKEN_WITHOUT_ID = frozenset({"web_search_call", "local_shell_call"})


def _given(item: PreparedItem) -> JsonObject:
    return {key: value for key, value in items.dump(item).items() if value is not None}


def _failure(payload: JsonObject, identity: Identity) -> UpstreamError | None:
    """The error of an `error` event (flat, nested, or without a type) or of a failed response."""
    kind = payload.get("type")
    if kind == events.FAILED:
        response = payload.get("response")
        return identity.from_error(response.get("error") if isinstance(response, dict) else None)
    if kind == events.ERROR or (kind is None and "error" in payload):
        return identity.from_error(payload.get("error") or payload)
    if not isinstance(kind, str):
        return identity.unavailable("sent an event without a type")
    return None
