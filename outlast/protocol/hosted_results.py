"""What an MCP server answered, as the fields of a hosted call's item and as text for the model.

Servers answer in shapes of their own: structured content, JSON in a text block, or plain text. Each function takes what
it knows of the payload and leaves the rest to the text. Bytes of an image never reach the model as text.
"""

import base64
import binascii
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from outlast.protocol import images, json
from outlast.protocol.json import JsonObject


@dataclass(frozen=True, slots=True)
class Image:
    """An image as bytes."""

    data: bytes
    mime_type: str


@dataclass(frozen=True, slots=True)
class Answer:
    """A tool's answer: its text parts joined, its structured content, its image blocks."""

    text: str
    structured: JsonObject | None = None
    images: tuple[Image, ...] = ()


@dataclass(frozen=True, slots=True)
class Finished:
    """What an answer comes to. `fields`: of the public item; `text`, `images`: for the model. `failed`: why the answer
    is of no use, then there is nothing else."""

    fields: JsonObject = field(default_factory=dict)
    text: str = ""
    images: tuple[Image, ...] = ()
    failed: str | None = None


def queries(arguments: JsonObject) -> list[str]:
    """What was searched for."""
    given = arguments.get("queries")
    if isinstance(given, list):
        return [each for each in given if isinstance(each, str)]
    one = text_of(arguments, "query", "q", "search_query", "input")
    return [one] if one else []


def text_of(given: JsonObject, *names: str) -> str:
    """The first of these fields that is text."""
    return next((given[name] for name in names if isinstance(given.get(name), str)), "")


def search_action(arguments: JsonObject) -> JsonObject:
    """The `action` of a search."""
    asked = queries(arguments)
    action: JsonObject = {"type": "search", "query": asked[0] if asked else ""}
    return {**action, "queries": asked} if asked else action


def web_search(arguments: JsonObject, answer: Answer) -> Finished:
    """`action` with its sources; a payload may bring queries of its own."""
    payload = _payload(answer)
    found = _rows(payload, "sources", "results", "data")
    urls = dict.fromkeys(each for each in (_url(row) for row in found) if each)
    own = payload if isinstance(payload, dict) and payload.get("queries") else arguments
    action = {**search_action(own), "sources": [{"type": "url", "url": url} for url in urls]}
    return Finished({"action": action}, answer.text)


def file_search(arguments: JsonObject, answer: Answer) -> Finished:
    """`queries` and `results`: the passages that name their file."""
    payload = _payload(answer)
    own = payload if isinstance(payload, dict) and payload.get("queries") else arguments
    rows = (_passage(row) for row in _rows(payload, "results", "data") if isinstance(row, dict))
    results = [row for row in rows if "file_id" in row or "filename" in row]
    return Finished({"queries": queries(own), "results": results}, answer.text)


def code_interpreter(arguments: JsonObject, answer: Answer) -> Finished:
    """`outputs`, and the container where the payload names it."""
    payload = _payload(answer)
    given = payload if isinstance(payload, dict) else {}
    outputs = [each for each in _rows(given, "outputs") if _is_output(each)]
    if not outputs:
        streams = [given[name] for name in ("logs", "stdout", "stderr") if isinstance(given.get(name), str)]
        logs = "\n".join(each for each in streams if each) or ("" if streams else answer.text)
        outputs = [{"type": "logs", "logs": logs}] if logs else []
    outputs += [{"type": "image", "url": _data_url(image)} for image in answer.images]
    container = given.get("container_id")
    named: JsonObject = {"container_id": container} if isinstance(container, str) else {}
    return Finished({"outputs": outputs, **named}, answer.text, answer.images)


_IMAGE_KEYS = ("result", "image_base64", "b64_json", "image", "data")
_IMAGE_FIELDS = ("action", "background", "output_format", "quality", "revised_prompt", "size")


def image_generation(arguments: JsonObject, answer: Answer) -> Finished:
    """`result`, the image as base64, and what is known of it; the model gets a note, and the image if it sees."""
    payload = _payload(answer)
    image = answer.images[0] if answer.images else _image_in(payload if payload is not None else answer.text)
    if image is None:
        return Finished(failed="the tool returned no image")
    known = {**arguments, **(payload if isinstance(payload, dict) else {})}
    fields = {name: known[name] for name in _IMAGE_FIELDS if isinstance(known.get(name), str)}
    format_of = image.mime_type.removeprefix("image/")
    fields = {"output_format": format_of, **fields, "result": base64.b64encode(image.data).decode()}
    said = answer.text if payload is None and answer.images else _said(payload)
    note = images.note(image.mime_type, image.data)
    return Finished(fields, said if note in said else f"{said}\n{note}".strip(), answer.images or (image,))


def _payload(answer: Answer) -> Any:
    """Structured content, else JSON in the text, else None. Some servers wrap what is no object in `result`."""
    found: Any = answer.structured
    if found is None:
        try:
            found = json.loads(answer.text)
        except ValueError:
            return None
    if isinstance(found, dict) and list(found) == ["result"] and isinstance(found["result"], dict | list):
        found = found["result"]
    return found if isinstance(found, dict | list) else None


def _rows(payload: Any, *names: str) -> list[Any]:
    """The list that a payload is or has under one of these names."""
    if isinstance(payload, list):
        return payload
    if not isinstance(payload, dict):
        return []
    return next((payload[name] for name in names if isinstance(payload.get(name), list)), [])


def _url(row: Any) -> str | None:
    match row:
        case str() if row.startswith(("http://", "https://")):
            return row
        case {"url": str(url)} | {"link": str(url)}:
            return url
        case _:
            return None


def _passage(row: JsonObject) -> JsonObject:
    """One result as the API has it; what the server does not say is left out."""
    content = row.get("text", row.get("content"))
    if isinstance(content, list):
        content = "\n".join(str(part["text"]) for part in content if isinstance(part, dict) and "text" in part)
    given: JsonObject = {
        "file_id": row.get("file_id", row.get("id")),
        "filename": row.get("filename", row.get("name")),
        "score": row.get("score"),
        "text": content,
        "attributes": row.get("attributes", row.get("metadata")),
    }
    kinds: dict[str, type | tuple[type, ...]] = {
        "file_id": str,
        "filename": str,
        "score": (int, float),
        "text": str,
        "attributes": dict,
    }
    return {key: value for key, value in given.items() if isinstance(value, kinds[key]) and value is not True}


def _is_output(each: Any) -> bool:
    match each:
        case {"type": "logs", "logs": str()} | {"type": "image", "url": str()}:
            return True
        case _:
            return False


def _data_url(image: Image) -> str:
    return f"data:{image.mime_type};base64,{base64.b64encode(image.data).decode()}"


_MAGIC = {b"\x89PNG": "image/png", b"\xff\xd8\xff": "image/jpeg", b"GIF8": "image/gif", b"RIFF": "image/webp"}


def _image_in(value: Any) -> Image | None:
    """The first image in a payload: base64 under one of the usual names, or the text itself."""
    match value:
        case str():
            return _decoded(value)
        case dict():
            return _first(value[name] for name in _IMAGE_KEYS if name in value)
        case list():
            return _first(value)
        case _:
            return None


def _first(values: Iterable[Any]) -> Image | None:
    return next((found for found in map(_image_in, values) if found is not None), None)


def _decoded(text: str) -> Image | None:
    try:
        data = base64.b64decode("".join(text.rpartition("base64,")[2].split()), validate=True)
    except (binascii.Error, ValueError):
        return None
    return next((Image(data, kind) for magic, kind in _MAGIC.items() if data.startswith(magic)), None)


_BYTES = re.compile(r"(data:[^,]*,)?[A-Za-z0-9+/=_\r\n-]{200,}")


def _said(payload: Any) -> str:
    """A payload without what is bytes."""
    left = _without_bytes(payload)
    return json.dumps_text(left) if left else ""


def _without_bytes(value: Any) -> Any:
    match value:
        case dict():
            kept = {key: _without_bytes(each) for key, each in value.items()}
            return {key: each for key, each in kept.items() if each not in (None, {}, [])}
        case list():
            return [each for each in map(_without_bytes, value) if each not in (None, {}, [])]
        case str() if _BYTES.fullmatch(value) or _decoded(value) is not None:
            return None
        case _:
            return value
