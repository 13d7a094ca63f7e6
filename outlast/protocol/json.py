"""JSON at our borders: one encoder, one decoder, one type.

Values of this type are what a relayed event or item carries. Nothing here mutates them.
"""

from typing import Any

import orjson

# A recursive alias buys nothing at the borders where this is used: items and events are opened by typed models.
JsonObject = dict[str, Any]


def dumps(value: object) -> bytes:
    """Compact UTF-8 JSON, keys in insertion order (what clients see must not be re-sorted)."""
    return orjson.dumps(value)


def dumps_text(value: object) -> str:
    """As `dumps`, as text."""
    return orjson.dumps(value).decode()


def canonical(value: object) -> bytes:
    """Keys sorted: equal values give equal bytes, which is what fingerprints hash."""
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)


def loads(raw: bytes | str) -> Any:
    """Any JSON value.

    Raises: orjson.JSONDecodeError (a ValueError).
    """
    return orjson.loads(raw)
