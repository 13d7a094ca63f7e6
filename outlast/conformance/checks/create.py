"""One request, one answer."""

import json

from outlast.conformance.base import Group, equal, expect, types
from outlast.conformance.shapes import RESPONSE_KEYS, completed, items, offered, ok, refused, text
from outlast.conformance.target import Target

group = Group("Create")
_SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}


@group.check("plain", "Open Responses 2026-04-24, compliance suite: basic text response")
async def plain(target: Target) -> None:
    """A text in gives a completed response with one message that has a text."""
    response = completed(ok(await target.create()))
    equal(response.get("object"), "response", "object")
    equal(types(response["output"])[-1:], ["message"], "the last item")
    message = response["output"][-1]
    equal((message.get("role"), message.get("status")), ("assistant", "completed"), "role and status")
    equal(types(message["content"]), ["output_text"], "parts")
    expect(text(response), "the message has no text")


@group.check("response-keys", "Open Responses 2026-04-24: ResponseResource, required keys")
async def response_keys(target: Target) -> None:
    """Every required key of a Response is there, null or not."""
    response = ok(await target.create())
    missing = [key for key in RESPONSE_KEYS if key not in response]
    expect(not missing, f"missing keys: {missing}")


@group.check("never-null", "Open Responses 2026-04-24: ResponseResource, numbers and enums that are not nullable")
async def never_null(target: Target) -> None:
    """Numbers and enums with defaults are filled in, not null."""
    response = ok(await target.create())
    keys = ("temperature", "top_p", "presence_penalty", "frequency_penalty", "top_logprobs", "truncation", "text")
    nulls = [key for key in (*keys, "tool_choice", "parallel_tool_calls", "store") if response.get(key) is None]
    expect(not nulls, f"null: {nulls}")


@group.check("text-part-keys", "Open Responses 2026-04-24: OutputTextContent")
async def text_part_keys(target: Target) -> None:
    """A text part carries `annotations` as an array; `logprobs` is an array or left out, never null."""
    response = ok(await target.create())
    for part in items(response, "message")[-1]["content"]:
        expect(isinstance(part.get("annotations"), list), f"annotations: {part}")
        expect(isinstance(part.get("logprobs", []), list), f"logprobs: {part}")


@group.check("left-out-not-null", "Open Responses 2026-04-24, measured on its schemas: null fails, leave the key out")
async def left_out_not_null(target: Target) -> None:
    """`phase` of a message and `text.verbosity` are left out when there is none, not null."""
    response = ok(await target.create())
    nulls = [item for item in items(response, "message") if item.get("phase", "") is None]
    expect(not nulls, f"phase is null: {nulls}")
    expect(response["text"].get("verbosity", "") is not None, f"text: {response['text']}")


@group.check("ids", "openai.types.responses.Response: id; recordings of the API: prefixes")
async def ids(target: Target) -> None:
    """The response and its items have ids, each once."""
    response = ok(await target.create())
    expect(str(response["id"]).startswith("resp_"), f"id {response['id']!r} does not begin with resp_")
    found = [item.get("id") for item in response["output"]]
    expect(all(found) and len(set(found)) == len(found), f"item ids: {found}")


@group.check("times", "openai.types.responses.Response: created_at; Open Responses 2026-04-24: completed_at")
async def times(target: Target) -> None:
    """`created_at` and `completed_at` are unix seconds, in this order."""
    response = ok(await target.create())
    created, ended = response["created_at"], response["completed_at"]
    expect(isinstance(created, int | float) and created > 1_600_000_000, f"created_at {created!r}")
    expect(isinstance(ended, int | float) and ended >= created, f"completed_at {ended!r}, created_at {created!r}")


@group.check("usage", "openai.types.responses.ResponseUsage")
async def usage(target: Target) -> None:
    """Tokens are counted, their details are there, the total is the sum."""
    found = ok(await target.create())["usage"]
    keys = {"input_tokens", "input_tokens_details", "output_tokens", "output_tokens_details", "total_tokens"}
    expect(keys <= set(found or {}), f"usage: {found}")
    expect(found["input_tokens"] > 0, f"usage: {found}")
    expect(found["output_tokens"] > 0, f"usage: {found}")
    equal(found["total_tokens"], found["input_tokens"] + found["output_tokens"], "total_tokens")


@group.check("echo", "Open Responses 2026-04-24: ResponseResource; openai.types.responses.Response")
async def echo(target: Target) -> None:
    """Parameters come back as they were given."""
    given = {
        "instructions": "Be brief.",
        "temperature": 0.5,
        "top_p": 0.9,
        "max_output_tokens": 500,
        "metadata": {"ticket": "T-1"},
        "parallel_tool_calls": False,
        "truncation": "auto",
        "store": True,
    }
    response = ok(await target.create(**given))
    equal({key: response.get(key) for key in given}, given, "echoed")


@group.check("nulls-accepted", "openai.types.responses.ResponseCreateParams: Optional fields")
async def nulls_accepted(target: Target) -> None:
    """Explicit nulls mean 'not given'."""
    nulls = dict.fromkeys(("instructions", "metadata", "previous_response_id", "max_output_tokens", "reasoning"))
    completed(ok(await target.create(**nulls)))


@group.check("token-limit", "openai.types.responses.Response: incomplete_details; reason max_output_tokens")
async def token_limit(target: Target) -> None:
    """Cut at the limit: `incomplete` with the reason; a message begun is `incomplete` too and keeps its text."""
    response = ok(await target.create("Tell me a story of at least two hundred words.", max_output_tokens=16))
    equal(response["status"], "incomplete", "status")
    equal((response["incomplete_details"] or {}).get("reason"), "max_output_tokens", "reason")
    for message in items(response, "message"):
        equal(message.get("status"), "incomplete", "status of the message")
        expect(text(response), f"the message has no text: {message}")


@group.check("structured-output", "openai.types.responses.ResponseFormatTextJSONSchemaConfig")
async def structured_output(target: Target) -> None:
    """`text.format` json_schema: the text is JSON of that shape."""
    schema = {"type": "json_schema", "name": "person", "schema": _SCHEMA, "strict": True}
    answer = await target.create("Ada is 36 years old. Who is it?", text={"format": schema})
    response = completed(offered(answer))
    try:
        person = json.loads(text(response))
    except ValueError:
        person = None
    expect(isinstance(person, dict), f"no JSON object: {text(response)[:200]!r}")
    equal({key: type(value).__name__ for key, value in person.items()}, {"name": "str", "age": "int"}, "the shape")
    equal(response["text"]["format"].get("name"), "person", "the echoed format")


@group.check("store-false", "OpenAI API reference: store; Open Responses 2026-04-24: state")
async def store_false(target: Target) -> None:
    """With `store: false` the answer is whole and nothing can be read afterwards."""
    response = completed(ok(await target.create(store=False)))
    equal(response["store"], False, "store")
    expect(text(response), "the message has no text")
    refused(await target.get(f"/responses/{response['id']}"), status=(404,))


@group.check("models", "openai.types.Model")
async def models(target: Target) -> None:
    """`GET /models` lists the model that is asked here."""
    body = ok(await target.get("/models"))
    equal(body.get("object"), "list", "object")
    names = [entry.get("id") for entry in body["data"]]
    expect(target.model in names, f"{target.model!r} is not among {names[:20]}")
