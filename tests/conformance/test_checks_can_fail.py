"""A check that cannot fail is worth nothing: servers that are wrong in one way, and what finds it."""

import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from outlast.conformance import run
from outlast.conformance.base import Check
from outlast.conformance.suite import checks
from outlast.conformance.target import Target
from outlast.demo.serving import running
from outlast.devserver import DevServer
from tests.support.stack import outlast, settings

JsonObject = dict[str, Any]
BY_NAME: dict[str, Check] = {check.name: check for check in checks()}


def always(answer: Callable[[], Response]) -> Starlette:
    """A server with one answer."""

    async def say(_: Request) -> Response:
        return answer()

    methods = ["GET", "POST", "PUT", "DELETE"]
    return Starlette(routes=[Route("/{path:path}", say, methods=methods)])


@pytest.mark.parametrize(
    "answer",
    [
        lambda: JSONResponse({"error": {"message": "x", "type": "server_error", "param": None, "code": None}}, 500),
        lambda: JSONResponse({}, 200),
        lambda: JSONResponse([], 200),
        lambda: Response("<html>", 200, media_type="text/html"),
    ],
    ids=["500", "empty object", "empty array", "a web page"],
)
async def test_no_check_passes_where_there_is_no_responses_server(answer: Callable[[], Response]) -> None:
    """Whatever a server says to everything, no claim holds of it."""
    async with running(always(answer)) as url, run.target(url, "m", key=None, mcp_host="127.0.0.1") as against:
        passed = [finding.check.name async for finding in run.findings(checks(), against) if finding.verdict == "pass"]
    assert passed == []


@pytest.mark.parametrize("status", [400, 404])
async def test_what_a_server_refuses_by_name_is_not_held_against_it(status: int) -> None:
    """Nor is it a pass: a refusal of everything about MCP or background says nothing about their rules."""
    error = {"message": "not here", "type": "invalid_request_error", "param": None, "code": None}
    optional = [check for check in checks() if check.group in ("MCP", "Approvals", "Background and resume")]
    app = always(lambda: JSONResponse({"error": error}, status))
    async with running(app) as url, run.target(url, "m", key=None, mcp_host="127.0.0.1") as against:
        verdicts = {finding.check.name: finding.verdict async for finding in run.findings(optional, against)}
    assert verdicts == dict.fromkeys((check.name for check in optional), "not offered")


class Wrong(httpx.AsyncBaseTransport):
    """A connection to a real server that changes what it says."""

    def __init__(self) -> None:
        self._inner = httpx.AsyncHTTPTransport()
        self.change: Callable[[bytes], bytes] = lambda body: body

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        answer = await self._inner.handle_async_request(request)
        body = self.change(await answer.aread())
        headers = [(name, value) for name, value in answer.headers.raw if name.lower() not in (b"content-length",)]
        return httpx.Response(answer.status_code, headers=headers, content=body)

    async def aclose(self) -> None:
        await self._inner.aclose()


@pytest.fixture(scope="module")
async def wrong(temporal: DevServer, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[Wrong, Target]]:
    """This server behind such a connection."""
    async with (
        outlast(settings(tmp_path_factory.mktemp("wrong"), temporal.address), desk=False) as server,
        run.target(server.url, "demo", key=None, mcp_host="127.0.0.1") as against,
    ):
        transport = Wrong()
        async with httpx.AsyncClient(transport=transport, timeout=60) as http:
            yield transport, Target(http, against.base_url, "demo", against.tools)


def events(change: Callable[[JsonObject], JsonObject | None]) -> Callable[[bytes], bytes]:
    """Changes each event's data; None leaves the event out."""

    def apply(body: bytes) -> bytes:
        blocks = []
        for block in body.split(b"\n\n"):
            head, mark, data = block.partition(b"data: ")
            if not mark or data == b"[DONE]":
                blocks.append(block)
            elif (changed := change(json.loads(data))) is not None:
                blocks.append(head + mark + json.dumps(changed).encode())
        return b"\n\n".join(blocks)

    return apply


def objects(change: Callable[[JsonObject], JsonObject]) -> Callable[[bytes], bytes]:
    """Changes a JSON answer."""

    def apply(body: bytes) -> bytes:
        try:
            return json.dumps(change(json.loads(body))).encode()
        except ValueError:
            return body

    return apply


def without(key: str) -> Callable[[JsonObject], JsonObject]:
    """Leaves a key out."""
    return lambda body: {name: value for name, value in body.items() if name != key}


def shifted(data: JsonObject) -> JsonObject:
    """Numbers from 1."""
    return data | {"sequence_number": data["sequence_number"] + 1}


def renamed(data: JsonObject) -> JsonObject:
    """A final object whose items have other ids."""
    if data["type"] != "response.completed":
        return data
    output = [item | {"id": "msg_other"} for item in data["response"]["output"]]
    return data | {"response": data["response"] | {"output": output}}


def twice_created(body: bytes) -> bytes:
    """A second lifecycle in front of the first."""
    return body.split(b"\n\n", 1)[0] + b"\n\n" + body if body.startswith(b"event: response.created") else body


def louder(data: JsonObject) -> JsonObject:
    """Deltas that are not what is told at the end."""
    return data | {"delta": data["delta"].upper()} if data["type"] == "response.output_text.delta" else data


def unnested(data: JsonObject) -> JsonObject | None:
    """A part that is never closed."""
    return None if data["type"] == "response.content_part.done" else data


def without_error_keys(body: JsonObject) -> JsonObject:
    """An envelope with a message only."""
    return {"error": {"message": body["error"]["message"]}} if "error" in body and "output" not in body else body


def one_call_id(each: JsonObject) -> JsonObject:
    """Calls that cannot be told apart."""
    return each | {"call_id": "call_1"} if each.get("type") == "function_call" else each


def completed_at_once(each: JsonObject) -> JsonObject:
    """Messages that claim to be whole."""
    return each | {"status": "completed"} if each.get("type") == "message" else each


def with_another_usage(body: JsonObject) -> JsonObject:
    """Tokens that do not add up."""
    usage = body.get("usage")
    return body | {"usage": usage | {"total_tokens": 1}} if usage else body


def answered(change: Callable[[JsonObject], JsonObject]) -> Callable[[bytes], bytes]:
    """Changes every object of an answer, of JSON and of events alike."""

    def walk(value: Any) -> Any:
        if isinstance(value, dict):
            return change({key: walk(inner) for key, inner in value.items()})
        return [walk(inner) for inner in value] if isinstance(value, list) else value

    return lambda body: (events if body.startswith(b"event:") else objects)(walk)(body)


def of(kind: str, **changed: object) -> Callable[[bytes], bytes]:
    """Objects of a `type` or an `object` with other values."""
    return answered(lambda each: each | changed if kind in (each.get("type"), each.get("object")) else each)


def relisted(each: JsonObject) -> JsonObject:
    """A response that begins with a list of tools, whatever was listed before."""
    listed = {"id": "mcpl_1", "type": "mcp_list_tools", "server_label": "tools", "tools": []}
    return each | {"output": [listed, *each["output"]]} if each.get("object") == "response" else each


def compacted_twice(each: JsonObject) -> JsonObject:
    """A response whose compaction items come in pairs."""
    output = each.get("output")
    if not isinstance(output, list):
        return each
    return each | {"output": [same for item in output for same in [item] * (1 + (item["type"] == "compaction"))]}


WRONG: list[tuple[str, Callable[[bytes], bytes], tuple[str, ...]]] = [
    ("no [DONE]", lambda body: body.replace(b"data: [DONE]\n\n", b""), ("stream-done",)),
    ("numbers from 1", events(shifted), ("stream-numbers", "stream-incomplete")),
    ("two lifecycles", twice_created, ("stream-numbers",)),
    ("ids change at the end", events(renamed), ("stream-numbers",)),
    ("deltas differ from the end", events(louder), ("text-adds-up",)),
    ("a part stays open", events(unnested), ("message-events", "text-adds-up")),
    ("deltas without logprobs", events(without("logprobs")), ("delta-logprobs",)),
    ("event is not type", lambda body: body.replace(b"event: response.created", b"event: created"), ("stream-frames",)),
    ("a key is missing", objects(without("incomplete_details")), ("response-keys",)),
    ("usage does not add up", objects(with_another_usage), ("usage",)),
    ("a short envelope", objects(without_error_keys), ("temperature-range", "retrieve-unknown", "previous-unknown")),
    ("instructions leak", objects(lambda body: body | {"instructions": "x"}), ("instructions-not-inherited", "echo")),
    ("list with a null error", of("mcp_list_tools", error=None), ("mcp-list-item",)),
    ("calls forget their asks", of("mcp_call", approval_request_id=None), ("approve", "approval-stateless")),
    ("asks shown as calls", lambda body: body.replace(b"_approval_request", b"_call"), ("approval-default", "approve")),
    ("lists again", answered(relisted), ("no-relist", "stateless-stitched", "approved-history", "mixed-approval")),
    ("calls share an id", answered(one_call_id), ("parallel-calls",)),
    ("a cut message looks whole", answered(completed_at_once), ("token-limit",)),
    (
        "deltas of no item",
        events(lambda data: data | {"item_id": "fc_1"} if "delta" in data else data),
        ("parallel-calls-events",),
    ),
    ("two compaction items", answered(compacted_twice), ("compact", "compaction-trigger", "context-management")),
    ("pages never end", of("list", has_more=True), ("conversation-empty", "conversation-items-pages")),
    ("a page that ends too soon", objects(lambda body: body | {"has_more": False}), ("input-items-paging",)),
]


@pytest.mark.parametrize(("change", "found_by"), [pytest.param(c, f, id=name) for name, c, f in WRONG])
async def test_a_server_that_is_wrong_in_one_way_is_found_out(
    wrong: tuple[Wrong, Target], change: Callable[[bytes], bytes], found_by: tuple[str, ...]
) -> None:
    """The same checks pass through the same connection while it changes nothing."""
    transport, target = wrong
    verdicts = {}
    for name, applied in (("right", lambda body: body), ("wrong", change)):
        transport.change = applied
        chosen = [BY_NAME[each] for each in found_by]
        verdicts[name] = {f.check.name: f.verdict async for f in run.findings(chosen, target)}
    assert verdicts == {"right": dict.fromkeys(found_by, "pass"), "wrong": dict.fromkeys(found_by, "fail")}


async def test_a_tool_that_runs_twice_is_found_out(
    wrong: tuple[Wrong, Target], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The suite counts at its own tool server, whatever the server under test says."""
    transport, target = wrong
    transport.change = lambda body: body
    note = target.tools.note
    monkeypatch.setattr(target.tools, "note", lambda tag, raw: (note(tag, raw), note(tag, raw)))
    names = ("mcp-never", "no-relist", "approve", "approved-twice", "mixed-approval")
    found = {f.check.name: f.verdict async for f in run.findings([BY_NAME[name] for name in names], target)}
    assert found == dict.fromkeys(names, "fail")
