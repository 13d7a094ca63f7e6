"""Requests that cannot be served: always an envelope, never a 5xx."""

from typing import Any

from outlast.conformance.base import Group, equal, expect
from outlast.conformance.shapes import refused
from outlast.conformance.target import Target

group = Group("Refusals")
_FUNCTION = {"type": "function", "name": "weather", "parameters": {}}

# Name, what is sent instead, the parameter the refusal names, where the rule is from.
_BAD: tuple[tuple[str, dict[str, Any], str | None, str], ...] = (
    ("no-input", {"input": None}, None, "OpenAI API reference: input"),
    ("input-number", {"input": 7}, "input", "openai.types.responses.ResponseCreateParams: input"),
    ("bad-role", {"input": [{"role": "robot", "content": "hi"}]}, None, "openai EasyInputMessage: role"),
    ("no-content", {"input": [{"role": "user"}]}, None, "openai EasyInputMessage: content"),
    ("temperature-range", {"temperature": 3}, "temperature", "OpenAI API reference: temperature 0 to 2"),
    ("temperature-text", {"temperature": "hot"}, "temperature", "OpenAI API reference: temperature"),
    ("top-p-range", {"top_p": 2}, "top_p", "OpenAI API reference: top_p"),
    ("token-limit-small", {"max_output_tokens": 1}, "max_output_tokens", "OpenAI schema: at least 16"),
    ("tool-calls-zero", {"max_tool_calls": 0}, "max_tool_calls", "OpenAI schema: at least 1"),
    ("logprobs-range", {"top_logprobs": 21}, "top_logprobs", "OpenAI schema: 0 to 20"),
    ("metadata-pairs", {"metadata": {str(n): "x" for n in range(17)}}, None, "OpenAI schema: 16 pairs"),
    ("metadata-key", {"metadata": {"k" * 65: "x"}}, None, "OpenAI schema: key of 64 characters"),
    ("metadata-value", {"metadata": {"k": "x" * 513}}, None, "OpenAI schema: value of 512 characters"),
    ("include-unknown", {"include": ["everything"]}, None, "openai.types.responses.ResponseIncludable"),
    ("truncation-unknown", {"truncation": "some"}, "truncation", "OpenAI API reference: truncation"),
    ("format-unknown", {"text": {"format": {"type": "xml"}}}, None, "openai ResponseFormatTextConfig"),
    ("effort-unknown", {"reasoning": {"effort": "huge"}}, None, "openai.types.shared.Reasoning"),
    ("tools-no-array", {"tools": "all"}, "tools", "OpenAI API reference: tools"),
    ("function-no-name", {"tools": [{"type": "function"}]}, None, "openai.types.responses.FunctionTool: name"),
    ("function-nested", {"tools": [{"type": "function", "function": {"name": "a"}}]}, None, "FunctionTool is flat"),
    ("function-bad-name", {"tools": [{**_FUNCTION, "name": "a b"}]}, None, "OpenAI schema: tool name pattern"),
    ("required-no-tools", {"tool_choice": "required"}, None, "OpenAI API reference: tool_choice"),
    (
        "mcp-no-address",
        {"tools": [{"type": "mcp", "server_label": "a"}]},
        None,
        "openai.types.responses.tool.Mcp: one of server_url, connector_id, tunnel_id",
    ),
    ("stream-text", {"stream": "yes"}, "stream", "openai.types.responses.ResponseCreateParams: stream"),
)


def _register(name: str, change: dict[str, Any], param: str | None, source: str) -> None:
    async def run(target: Target) -> None:
        body = {"model": target.model, "input": "Say hello.", **change}
        refused(await target.send("POST", "/responses", body), param=param)

    run.__doc__ = f"400 for {_shown(change)}" + (f", naming {param}." if param else ".")
    group.check(name, source)(run)


def _shown(change: dict[str, Any]) -> str:
    shown = ", ".join(f"{key}: {value!r}" for key, value in change.items())
    return shown if len(shown) <= 60 else shown[:57] + "..."


for _each in _BAD:
    _register(*_each)


@group.check("no-json", "OpenAI API reference: errors")
async def no_json(target: Target) -> None:
    """A body that is not JSON is a 400 with the envelope."""
    refused(await target.send("POST", "/responses", content=b"{", headers={"content-type": "application/json"}))


@group.check("unknown-model", "OpenAI API reference: model_not_found")
async def unknown_model(target: Target) -> None:
    """A model nobody serves is a 4xx, unless every name is passed on to the model server."""
    answer = await target.send("GET", "/models/no-such-model-9")
    if answer.status == 200:
        equal(answer.body.get("id"), "no-such-model-9", "the model that is served")
    else:
        refused(answer, status=(400, 404))


@group.check("unknown-path", "OpenAI API reference: errors")
async def unknown_path(target: Target) -> None:
    """A path that is not there is a 404 with the envelope."""
    refused(await target.get("/responses-of-another-kind"), status=(404,))


@group.check("wrong-method", "OpenAI API reference: errors")
async def wrong_method(target: Target) -> None:
    """A method that is not there is a 4xx with the envelope."""
    refused(await target.send("PUT", "/models"), status=(404, 405))


@group.check("no-retry", "openai 3.57 client: retries 408, 409, 429 and 5xx, POST included")
async def no_retry(target: Target) -> None:
    """A final refusal has no status that official clients send again."""
    answer = await target.create(temperature=3)
    final = 400 <= answer.status < 500 and answer.status not in (408, 409, 429)
    expect(final or answer.headers.get("x-should-retry") == "false", f"not refused for good: {answer}")
