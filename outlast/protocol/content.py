"""Content parts of messages and tool outputs: checked once, in the form in which they are stored.

A wrong part type for a role is accepted and stored canonically (behaviour.md §2): text is `input_text` for everybody
but the assistant, whose text is `output_text` with `annotations`.
"""

from outlast.protocol import invalid
from outlast.protocol.errors import InvalidRequest, UnsupportedFeature
from outlast.protocol.json import JsonObject

MAX_TEXT = 10_485_760
MAX_IMAGE_URL = 20_971_520

_TEXTS = frozenset({"input_text", "output_text", "text", "summary_text", "reasoning_text"})
_UNSERVED = frozenset({"input_file", "input_video", "input_audio", "computer_screenshot"})
_KNOWN = ("input_text", "output_text", "refusal", "input_image")
_DETAILS = ("low", "high", "auto", "original")


def canonical_content(raw: object, param: str, *, assistant: bool) -> list[JsonObject]:
    """The parts of a message or output; a string becomes one text part. Raises: InvalidRequest with the part's path."""
    match raw:
        case str():
            return [_text_part({}, check_text(raw, param), assistant=assistant)]
        case list():
            return [_part(part, f"{param}[{index}]", assistant=assistant) for index, part in enumerate(raw)]
        case _:
            raise invalid.wrong_type(param, "a string or an array of content parts", raw)


def check_text(raw: object, param: str) -> str:
    """A text within the limit. Raises: InvalidRequest."""
    if not isinstance(raw, str):
        raise invalid.wrong_type(param, "a string", raw)
    if len(raw) > MAX_TEXT:
        raise InvalidRequest(f"'{param}' has {len(raw)} characters: at most {MAX_TEXT} are allowed.", param=param)
    return raw


def _part(raw: object, param: str, *, assistant: bool) -> JsonObject:
    if not isinstance(raw, dict):
        raise invalid.wrong_type(param, "an object", raw)
    kind = raw.get("type")
    if kind is None:
        raise invalid.absent(f"{param}.type")
    if not isinstance(kind, str):
        raise invalid.wrong_type(f"{param}.type", "a string", kind)
    if kind in _TEXTS:
        return _text_part(raw, _field(raw, "text", param), assistant=assistant)
    if kind == "refusal":
        text = _field(raw, "refusal", param)
        return raw if assistant else _text_part({}, text, assistant=False)
    if kind == "input_image":
        return _image(raw, param)
    if kind in _UNSERVED:
        raise UnsupportedFeature(
            f"Content parts of type '{kind}' are not supported by this version: send text or 'input_image'.",
            param=f"{param}.type",
        )
    raise invalid.wrong_value(f"{param}.type", kind, _KNOWN)


def _field(raw: JsonObject, key: str, param: str) -> str:
    if key not in raw:
        raise invalid.absent(f"{param}.{key}")
    return check_text(raw[key], f"{param}.{key}")


def _text_part(raw: JsonObject, text: str, *, assistant: bool) -> JsonObject:
    kept = {key: value for key, value in raw.items() if value is not None}
    if assistant:
        return {**kept, "type": "output_text", "text": text, "annotations": kept.get("annotations", [])}
    for key in ("annotations", "logprobs"):
        kept.pop(key, None)
    return {**kept, "type": "input_text", "text": text}


def _image(raw: JsonObject, param: str) -> JsonObject:
    url, file_id, detail = raw.get("image_url"), raw.get("file_id"), raw.get("detail")
    if file_id is not None:
        raise UnsupportedFeature(
            f"'{param}.file_id' is not supported by this version: give the image as 'image_url'.",
            param=f"{param}.file_id",
        )
    if url is None:
        raise invalid.absent(f"{param}.image_url")
    if not isinstance(url, str):
        raise invalid.wrong_type(f"{param}.image_url", "a string", url)
    if not url.lower().startswith(("https://", "http://", "data:image/")):
        raise InvalidRequest(
            f"'{param}.image_url' must be an http:// or https:// URL or a data:image/… URL.", param=f"{param}.image_url"
        )
    if len(url) > MAX_IMAGE_URL:
        raise InvalidRequest(
            f"'{param}.image_url' has {len(url)} characters: at most {MAX_IMAGE_URL} are allowed.",
            param=f"{param}.image_url",
        )
    if detail is not None and (not isinstance(detail, str) or detail not in _DETAILS):
        raise invalid.wrong_value(f"{param}.detail", str(detail), _DETAILS)
    return {key: value for key, value in raw.items() if value is not None}
