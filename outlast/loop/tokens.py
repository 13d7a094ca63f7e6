"""How many tokens a context has, about: an estimate from its bytes, the same for every model.

No tokenizer: it would have to be the model's, and most servers do not say which that is. Four bytes a token fit English
and code; text in other scripts has more bytes per character and more tokens too. An image counts for itself whatever
its bytes are. The estimate decides when to compact and answers `/v1/responses/input_tokens`; usage is never made of it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from outlast.protocol import json
from outlast.protocol.items import PreparedItem, WireItem, dump
from outlast.protocol.json import JsonObject

BYTES_PER_TOKEN = 4
IMAGE_TOKENS = 1024
# What a template wraps around an item or a tool.
FRAME_TOKENS = 4

_IMAGES = frozenset({"input_image", "input_file"})
# Of no meaning to a model.
_UNSEEN = frozenset({"id", "status", "type", "annotations", "logprobs"})


@dataclass(frozen=True, slots=True)
class Context:
    """What a model is given: prepared items, instructions, tools as JSON."""

    transcript: Sequence[PreparedItem]
    instructions: str | None = None
    tools: Sequence[JsonObject] = ()


def estimate(context: Context) -> int:
    """Tokens of a whole context."""
    instructions = FRAME_TOKENS + _of_bytes(len(context.instructions.encode())) if context.instructions else 0
    tools = sum(FRAME_TOKENS + _of_bytes(len(json.dumps(tool))) for tool in context.tools)
    return of_items(context.transcript) + instructions + tools


def of_items(items: Iterable[WireItem]) -> int:
    """Tokens of items."""
    return sum(FRAME_TOKENS + _of_bytes(_size(dump(item))) for item in items)


def _of_bytes(count: int) -> int:
    return -(-count // BYTES_PER_TOKEN)


def _size(value: object) -> int:
    """Bytes of what a model reads of a value."""
    match value:
        case str():
            return len(value.encode(errors="replace"))
        case dict():
            if value.get("type") in _IMAGES:
                return IMAGE_TOKENS * BYTES_PER_TOKEN
            return sum(_size(part) for key, part in value.items() if key not in _UNSEEN)
        case list():
            return sum(map(_size, value))
        case bool() | None:
            return 0
        case _:
            return BYTES_PER_TOKEN
