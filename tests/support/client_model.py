"""A model in both dialects that does what the user's text says: what real clients are driven with.

    use tool NAME with {"a": 1}   calls the tool, whatever its kind; for a custom tool `{"input": "..."}` is the text.
                                  Several in one text are called one after the other, one a round
    answer with {"a": 1}          says that JSON
    tell N words                  says `word-1 word-2 ...`
    wait N s                      stops for so long after the first words
    fail with 429                 refuses over HTTP

After a tool's answer it says that answer. A model named `sealing...` thinks first, and is strict as OpenAI is about
what it sealed, thoughts and compactions: encrypted content is good only under the id it was made for.
"""

import asyncio
import itertools
import json
import re
import uuid
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from outlast.demo.serving import running
from outlast.loop import compaction
from tests.support.scripted_model import call, say

JsonObject = dict[str, Any]
GREETING = "Good day to you."
SUMMARY = "They greeted me."
MISMATCH = "Encrypted content item_id did not match the target item id."
_USE = re.compile(r"use tool (\S+) with (?=\{)")
_ANSWER = re.compile(r"answer with (?=\{)")
_TELL = re.compile(r"tell (\d+) words")
_WAIT = re.compile(r"wait ([\d.]+) s")
_FAIL = re.compile(r"fail with (\d{3})")
_OUTPUTS = frozenset({"function_call_output", "custom_tool_call_output", "tool_search_output"})


class Refused(Exception):
    """The request is answered with an error."""

    def __init__(self, status: int, message: str, code: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.code = code

    def answer(self) -> Response:
        """As OpenAI says it. Its wait is longer than Outlast waits itself, so that the client is told at once."""
        error = {"message": str(self), "type": "invalid_request_error", "param": None, "code": self.code}
        return JSONResponse({"error": error}, status_code=self.status, headers={"retry-after": "60"})


@dataclass
class ClientModel:
    """The server. `bodies`: what it was sent, in order; of a chat, its messages as `input`."""

    url: str = ""
    bodies: list[JsonObject] = field(default_factory=list)
    _seals: dict[str, str] = field(default_factory=dict)

    def asked(self, text: str) -> list[JsonObject]:
        """The requests that hold a text in their input."""
        return [body for body in self.bodies if text in json.dumps(body["input"], ensure_ascii=False)]

    async def answer(self, request: Request) -> Response:
        """POST /v1/responses."""
        body = json.loads(await request.body())
        try:
            item, wait = self._think(body)
        except Refused as refused:
            return refused.answer()
        items = [item] if item["type"] == "compaction" else [*self._thought(body), item]
        return StreamingResponse(_frames(body, items, wait), media_type="text/event-stream")

    async def chat(self, request: Request) -> Response:
        """POST /v1/chat/completions."""
        body = json.loads(await request.body())
        tools = [{"type": "function", **tool["function"]} for tool in body.get("tools") or ()]
        given = [
            {"type": "function_call_output", "output": message["content"]} if message["role"] == "tool" else message
            for message in body["messages"]
        ]
        told = next((_text(each["content"]) for each in body["messages"] if each["role"] == "system"), None)
        try:
            item, _ = self._think({**body, "input": given, "tools": tools, "instructions": told})
        except Refused as refused:
            return refused.answer()
        return StreamingResponse(_chunks(item), media_type="text/event-stream")

    def _think(self, body: JsonObject) -> tuple[JsonObject, float]:
        """The item to answer with, and the wait in it."""
        self.bodies.append(body)
        self._check_seals(body["input"])
        if body["input"][-1].get("type") == "compaction_trigger":
            return self._seal({"type": "compaction", "id": f"cmp_{uuid.uuid4().hex}"}), 0
        text, outputs = _conversation(body["input"])
        wait = _WAIT.search(text)
        return _reply(body, text, outputs), float(wait[1]) if wait and not outputs else 0

    def _thought(self, body: JsonObject) -> list[JsonObject]:
        if not body["model"].startswith("sealing"):
            return []
        return [self._seal({"type": "reasoning", "id": f"rs_{uuid.uuid4().hex}", "summary": []})]

    def _seal(self, item: JsonObject) -> JsonObject:
        sealed = f"sealed-{uuid.uuid4().hex}"
        self._seals[sealed] = item["id"]
        return {**item, "encrypted_content": sealed}

    def _check_seals(self, given: Sequence[JsonObject]) -> None:
        for item in given:
            sealed = item.get("encrypted_content")
            if sealed and self._seals.get(sealed) != item.get("id"):
                message = f"The encrypted content {sealed[:12]}... could not be verified. Reason: {MISMATCH}"
                raise Refused(400, message, "invalid_encrypted_content")


@asynccontextmanager
async def client_model() -> AsyncIterator[ClientModel]:
    """The server on a free port; `url` ends in `/v1`."""
    model = ClientModel()
    routes = [
        Route("/v1/responses", model.answer, methods=["POST"]),
        Route("/v1/chat/completions", model.chat, methods=["POST"]),
    ]
    async with running(Starlette(routes=routes)) as url:
        model.url = f"{url}/v1"
        yield model


# -- what to say -------------------------------------------------------------------------------------------------------


def _conversation(given: Sequence[JsonObject]) -> tuple[str, list[str]]:
    """What the user said last, and what tools answered since."""
    text = ""
    outputs: list[str] = []
    for item in given:
        if item.get("role") == "user":
            text, outputs = _text(item["content"]), []
        elif item.get("type") == "compaction":
            text, outputs = "", []  # what was said before is done
        elif item.get("type") in _OUTPUTS:
            outputs.append(_text(item.get("output")))
    return text, outputs


def _text(content: object) -> str:
    match content:
        case str():
            return content
        case list():
            return "\n".join(part["text"] for part in content if "text" in part)
        case _:
            return ""


def _reply(body: JsonObject, text: str, outputs: Sequence[str]) -> JsonObject:
    """The one item of a round."""
    if body.get("instructions") == compaction.INSTRUCTIONS:
        return say(SUMMARY)  # what is told there holds the texts of the conversation
    if failing := _FAIL.search(text):
        raise Refused(int(failing[1]), f"told to fail with {failing[1]}")
    uses = [(found[1], _json_at(text, found.end())) for found in _USE.finditer(text)]
    if len(outputs) < len(uses):
        return _call(body, *uses[len(outputs)])
    if outputs:
        return say(f"The tool says: {outputs[-1]}")
    if answering := _ANSWER.search(text):
        return say(json.dumps(_json_at(text, answering.end())))
    if telling := _TELL.search(text):
        return say(" ".join(f"word-{number}" for number in range(1, int(telling[1]) + 1)))
    return say(GREETING)


def _json_at(text: str, place: int) -> JsonObject:
    found: JsonObject = json.JSONDecoder(strict=False).raw_decode(text, place)[0]
    return found


def _call(body: JsonObject, name: str, arguments: JsonObject) -> JsonObject:
    """A call of the tool with this bare name, of the kind it was declared as."""
    for tool, namespace in _tools(body):
        own = str(tool.get("name") or tool["type"])
        if own != name and not own.endswith(f"__{name}"):
            continue
        made = call(own, arguments)
        match tool["type"]:
            case "function":
                return made | ({"namespace": namespace} if namespace else {})
            case "custom":
                custom = {"type": "custom_tool_call", "id": f"ctc_{uuid.uuid4().hex}", "input": arguments["input"]}
                return {**custom, "call_id": made["call_id"], "name": own, "status": "completed"}
            case "tool_search":
                search = {"type": "tool_search_call", "id": f"tsc_{uuid.uuid4().hex}", "execution": "client"}
                return {**search, "call_id": made["call_id"], "arguments": arguments, "status": "completed"}
    raise Refused(400, f"there is no tool {name}")


def _tools(body: JsonObject) -> Iterator[tuple[JsonObject, str | None]]:
    """Every tool with its namespace: of the request, and of items that bring some."""
    brought = (
        item["tools"] for item in body["input"] if item.get("type") in ("additional_tools", "tool_search_output")
    )
    for tool in itertools.chain(body.get("tools") or (), *brought):
        if tool["type"] == "namespace":
            yield from ((each, tool["name"]) for each in tool["tools"])
        else:
            yield tool, None


# -- how it is said ----------------------------------------------------------------------------------------------------


async def _frames(body: JsonObject, items: Sequence[JsonObject], wait: float) -> AsyncIterator[bytes]:
    numbers = itertools.count()
    for event in _events(body, items):
        data = json.dumps({**event, "sequence_number": next(numbers)})
        yield f"event: {event['type']}\ndata: {data}\n\n".encode()
        if event["type"] == "response.output_text.delta" and wait:
            await asyncio.sleep(wait)
            wait = 0


def _events(body: JsonObject, items: Sequence[JsonObject]) -> Iterator[JsonObject]:
    made = {"id": f"resp_{uuid.uuid4().hex}", "object": "response", "created_at": 1, "model": body["model"]}
    for kind in ("created", "in_progress"):
        yield {"type": f"response.{kind}", "response": {**made, "status": "in_progress", "output": []}}
    for index, item in enumerate(items):
        start, middle = _unfolded(item, {"item_id": item["id"], "output_index": index})
        yield {"type": "response.output_item.added", "output_index": index, "item": start}
        yield from middle
        yield {"type": "response.output_item.done", "output_index": index, "item": item}
    done = {**made, "status": "completed", "output": list(items), "usage": _usage(body, items)}
    yield {"type": "response.completed", "response": done}


def _unfolded(item: JsonObject, place: JsonObject) -> tuple[JsonObject, list[JsonObject]]:
    """How an item starts, and the events between its start and its end."""
    open_item = {**item, "status": "in_progress"}
    match item:
        case {"type": "message", "content": [{"text": str() as text} as part]}:
            here = {**place, "content_index": 0}
            said = [
                {"type": "response.output_text.delta", **here, "delta": word, "logprobs": []} for word in _words(text)
            ]
            return {**open_item, "content": []}, [
                {"type": "response.content_part.added", **here, "part": {**part, "text": ""}},
                *said,
                {"type": "response.output_text.done", **here, "text": text, "logprobs": []},
                {"type": "response.content_part.done", **here, "part": part},
            ]
        case {"type": "function_call", "arguments": text}:
            kind = "response.function_call_arguments"
            return {**open_item, "arguments": ""}, [
                {"type": f"{kind}.delta", **place, "delta": text},
                {"type": f"{kind}.done", **place, "name": item["name"], "arguments": text},
            ]
        case {"type": "custom_tool_call", "input": text}:
            kind = "response.custom_tool_call_input"
            return {**open_item, "input": ""}, [
                {"type": f"{kind}.delta", **place, "delta": text},
                {"type": f"{kind}.done", **place, "input": text},
            ]
        case _:
            return item, []


async def _chunks(item: JsonObject) -> AsyncIterator[bytes]:
    """The item as a chat completion."""
    if item["type"] == "message":
        deltas: list[JsonObject] = [{"content": word} for word in _words(item["content"][0]["text"])]
    else:
        function = {"name": item["name"], "arguments": item["arguments"]}
        deltas = [{"tool_calls": [{"index": 0, "id": item["call_id"], "type": "function", "function": function}]}]
    finish = "stop" if item["type"] == "message" else "tool_calls"
    choices: list[JsonObject] = [{"delta": delta, "finish_reason": None} for delta in deltas]
    for choice in [*choices, {"delta": {}, "finish_reason": finish}]:
        yield f"data: {json.dumps({'choices': [{'index': 0, **choice}]})}\n\n".encode()
    usage = {"prompt_tokens": 20, "completion_tokens": 10, "total_tokens": 30}
    yield f"data: {json.dumps({'choices': [], 'usage': usage})}\n\ndata: [DONE]\n\n".encode()


def _words(text: str) -> list[str]:
    return re.findall(r"\s*\S+", text)


def _usage(body: JsonObject, items: Sequence[JsonObject]) -> JsonObject:
    """Four characters a token: clients decide by it when to compact."""
    taken, given = len(json.dumps(body["input"])) // 4 + 1, len(json.dumps(items)) // 4 + 1
    return {
        "input_tokens": taken,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": given,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": taken + given,
    }
