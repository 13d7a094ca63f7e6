"""Names of gateway tools as the model sees them: `mcp__label__tool`.

A name is made of label and tool alone: the same in every round, process and replay. One that is too long or has
characters models do not take is shortened and gets a hash of the original; the way back is a row of the tool bindings,
never parsing. Internal names appear in no public object.
"""

import hashlib
import re

PREFIX = "mcp__"
MAX_NAME = 64

_OTHER = re.compile(r"[^a-zA-Z0-9_-]")
_DIGITS = 10


def internal_name(label: str, tool: str) -> str:
    """At most 64 of `[a-zA-Z0-9_-]`; two tools share one only if a hash or an unlucky `__` says so, which the listing
    refuses naming both."""
    plain = f"{PREFIX}{label}__{tool}"
    safe = _OTHER.sub("_", plain)
    if safe == plain and len(plain) <= MAX_NAME:
        return plain
    digest = hashlib.sha256(f"{label}\0{tool}".encode()).hexdigest()[:_DIGITS]
    return f"{safe[: MAX_NAME - _DIGITS - 1]}_{digest}"


def has_prefix_of(name: str, label: str) -> bool:
    """Whether a name the model used claims to be a tool of this server: unlisted, it is a failed gateway call, never a
    client call."""
    prefix = _OTHER.sub("_", f"{PREFIX}{label}__")
    return name.startswith(prefix[: MAX_NAME - _DIGITS - 1])


def safe_name(text: str) -> str:
    """`text` as a function name models take; for calls of items whose type we do not know."""
    return _OTHER.sub("_", text)[:MAX_NAME] or "item"
