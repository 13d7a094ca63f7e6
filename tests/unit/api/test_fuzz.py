"""Whatever is sent to the front door: an answer in time, never a 5xx, the envelope whenever it is refused.

The runs are played, so that thousands of requests cost no Temporal; the routes, checks and the store are the real ones.
"""

import asyncio
import json
from typing import Any

import httpx
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from api.openapi import BODIES
from outlast.protocol.requests import CreateResponse
from tests.unit.api.conftest import World

# Seconds a request may take on a busy machine: a hang is what it finds, not slowness.
_PATIENCE = 30
_QUIET = settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)

scalars = (
    st.none()
    | st.booleans()
    | st.integers(min_value=-(2**70), max_value=2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20)
)
anything = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=12,
)
TYPES = [
    "message",
    "function_call",
    "function_call_output",
    "custom_tool_call",
    "custom_tool_call_output",
    "reasoning",
    "mcp_call",
    "mcp_list_tools",
    "mcp_approval_request",
    "mcp_approval_response",
    "item_reference",
    "compaction",
    "compaction_trigger",
    "web_search_call",
    "local_shell_call_output",
    "tool_search_output",
    "additional_tools",
    "commandExecution",
    "type-of-tomorrow",
]
KEYS = [
    "id",
    "call_id",
    "role",
    "content",
    "output",
    "arguments",
    "name",
    "server_label",
    "summary",
    "encrypted_content",
    "approval_request_id",
    "approve",
    "status",
    "tools",
    "input",
    "error",
]
words = st.sampled_from(["user", "assistant", "call_1", "fc_1", "msg_1", "{}", "completed", "x", "mcpr_1", "auto"])
parts = st.fixed_dictionaries(
    {"type": st.sampled_from(["input_text", "output_text", "input_image", "input_file", "refusal", "summary_text"])},
    optional={"text": words | anything, "image_url": words | anything, "annotations": anything, "refusal": words},
)
values = words | st.lists(parts, max_size=3) | anything
items = st.builds(
    lambda kind, rest: {**rest, **({"type": kind} if kind else {})},
    st.sampled_from([*TYPES, None]),
    st.dictionaries(st.sampled_from(KEYS), values, max_size=6),
)
TOOL_TYPES = ["function", "mcp", "custom", "web_search", "namespace", "local_shell", "tool-of-tomorrow"]
TOOL_KEYS = [
    "name",
    "parameters",
    "strict",
    "server_label",
    "server_url",
    "headers",
    "require_approval",
    "allowed_tools",
]
QUERY_KEYS = ["limit", "after", "order", "include[]", "starting_after", "stream"]
tools = st.builds(
    lambda kind, rest: {**rest, "type": kind},
    st.sampled_from(TOOL_TYPES) | anything,
    st.dictionaries(st.sampled_from(TOOL_KEYS), words | st.just("http://127.0.0.1:9/mcp") | anything, max_size=5),
)
fields = st.fixed_dictionaries(
    {},
    optional={
        **dict.fromkeys(CreateResponse.model_fields, anything),
        "conversation": anything,
        "prompt": anything,
        "context_management": anything,
        "input": st.text(max_size=30) | st.lists(items, max_size=5) | anything,
        "tools": st.lists(tools, max_size=3) | anything,
        "tool_choice": words | anything,
    },
)


async def answered(request: "asyncio.Future[httpx.Response]") -> httpx.Response:
    """The answer. Raises: AssertionError for a 5xx, or a refusal without the envelope."""
    async with asyncio.timeout(_PATIENCE):
        answer = await request
    said = answer.content[:2000]
    assert answer.status_code < 500, said
    assert answer.status_code not in (409, 422), said
    if answer.status_code >= 400:
        assert answer.headers["content-type"] == "application/json", said
        assert set(answer.json()) == {"error"}, said
        assert set(answer.json()["error"]) == {"message", "type", "param", "code"}, said
        assert answer.json()["error"]["message"]
    return answer


@_QUIET
@given(body=fields)
async def test_any_fields_are_answered(open_world: World, body: dict[str, Any]) -> None:
    """Any value in any field; with a model and an input, so that the rest decides."""
    whole = {"model": "demo", "input": "hi", **body}
    answer = await answered(asyncio.ensure_future(open_world.http.post("/v1/responses", json=whole)))
    if answer.status_code == 200 and answer.headers["content-type"] == "application/json":
        assert answer.json()["object"] == "response"


@_QUIET
@given(given_items=st.lists(items, min_size=1, max_size=6), given_tools=st.lists(tools, max_size=2))
async def test_any_items_and_tools_are_answered(
    open_world: World, given_items: list[Any], given_tools: list[Any]
) -> None:
    """Items and tools nearly as they should be; what was accepted is listed again without an error."""
    body = {"model": "demo", "input": given_items, "tools": given_tools, "stream": False}
    answer = await answered(asyncio.ensure_future(open_world.http.post("/v1/responses", json=body)))
    if answer.status_code == 200:
        listed = open_world.http.get(f"/v1/responses/{answer.json()['id']}/input_items?limit=100")
        assert (await answered(asyncio.ensure_future(listed))).status_code == 200


@_QUIET
@given(raw=st.binary(max_size=200) | anything.map(lambda value: json.dumps(value).encode()), data=st.data())
async def test_any_bytes_are_answered_on_every_path_with_a_body(
    open_world: World, raw: bytes, data: st.DataObject
) -> None:
    """No JSON, other JSON, half JSON: 4xx with the envelope. A conversation needs nothing, not even a body."""
    path, method = data.draw(st.sampled_from(sorted(BODIES)))
    url = path.format_map({"approval_id": "mcpr_1", "conversation_id": "conv_1"})
    request = open_world.http.request(method.upper(), url, content=raw, headers={"content-type": "application/json"})
    refused = (await answered(asyncio.ensure_future(request))).status_code >= 400
    assert refused or path == "/v1/conversations"


@_QUIET
@given(
    query=st.dictionaries(
        st.sampled_from(["limit", "after", "order", "include[]", "starting_after", "stream"]), words | scalars.map(str)
    )
)
async def test_any_query_is_answered(open_world: World, query: dict[str, str]) -> None:
    """On every path that reads one."""
    created = await open_world.http.post("/v1/responses", json={"model": "demo", "input": "hi"})
    response_id = created.json()["id"]
    conversation = await open_world.http.post("/v1/conversations")
    items = f"/v1/conversations/{conversation.json()['id']}/items"
    for path in (f"/v1/responses/{response_id}", f"/v1/responses/{response_id}/input_items", items, "/v1/approvals"):
        await answered(asyncio.ensure_future(open_world.http.get(path, params=query)))


async def test_an_item_nobody_knows_may_have_anything_for_an_id(open_world: World) -> None:
    """Found by the fuzzer: a list there broke the look for open calls."""
    strange = [{"type": "type-of-tomorrow", "call_id": ["a"], "output": {"b": 1}}, {"role": "user", "content": "hi"}]
    created = await open_world.http.post("/v1/responses", json={"model": "demo", "input": strange})
    assert (created.status_code, created.json()["status"]) == (200, "completed")


def test_every_route_with_a_body_says_so_in_the_document(world: World) -> None:
    """A new one has to be added to `api.openapi.BODIES`, or the fuzzers do not know it."""
    bodiless = {"/v1/responses/{response_id}/cancel"}
    posts = {path for path, each in world.app.openapi()["paths"].items() if "post" in each}
    assert posts - bodiless == {path for path, method in BODIES if method == "post"}
