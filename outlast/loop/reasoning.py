"""Reasoning on its way back to a model server (behaviour §2.1). Storage keeps what it was, byte for byte."""

from collections.abc import Sequence

from outlast.protocol import native
from outlast.protocol.items import CustomToolCall, FunctionCall, Message, NativeItem, PreparedItem, Reasoning
from outlast.protocol.json import JsonObject


def replay(items: Sequence[PreparedItem], *, encrypted: bool) -> tuple[PreparedItem, ...]:
    """The items with their reasoning as the server reads it. `encrypted`: an OpenAI server, whose sealed reasoning goes
    back as it came; every other server gets plain text or nothing."""
    if encrypted:
        return _sealed_only(items)
    opened = (_plain(item) if isinstance(item, Reasoning) else item for item in items)
    return tuple(item for item in opened if item is not None)


def plaintext(item: Reasoning) -> str:
    """All parts joined by newlines, whatever their discriminator; an empty first part leaves its newline."""
    return "\n".join(part["text"] for part in item.content or () if isinstance(part.get("text"), str))


def unreadable(item: Reasoning) -> bool:
    """Sealed, and nothing in it that a server without the key can read."""
    return item.encrypted_content is not None and not _has_text(item)


def _has_text(item: Reasoning) -> bool:
    return any(isinstance(part.get("text"), str) and part["text"] for part in item.content or ())


def _plain(item: Reasoning) -> Reasoning | None:
    if not _has_text(item):
        return None
    content = [{"type": "reasoning_text", "text": plaintext(item)}]
    return Reasoning(type="reasoning", summary=[], content=content, **_head(item))


def _sealed(item: Reasoning) -> Reasoning:
    # OpenAI takes no plain content on input, and wants `summary` even when empty.
    return Reasoning(
        type="reasoning", summary=item.summary or [], encrypted_content=item.encrypted_content, **_head(item)
    )


def _head(item: Reasoning) -> JsonObject:
    return {key: value for key, value in (("id", item.id), ("status", item.status)) if value is not None}


def _sealed_only(items: Sequence[PreparedItem]) -> tuple[PreparedItem, ...]:
    """Unsealed reasoning is unknown to the server; sealed one must be followed by what it led to, which is gone when
    the round was cut there or its call was never decided: then it goes too."""
    kept: list[PreparedItem] = []
    leads_somewhere = False
    for item in reversed(items):
        if isinstance(item, Reasoning):
            if leads_somewhere and item.encrypted_content is not None:
                kept.append(_sealed(item))
            continue
        kept.append(item)
        leads_somewhere = _model_made(item)
    return tuple(reversed(kept))


def _model_made(item: PreparedItem) -> bool:
    match item:
        case Message():
            return item.role == "assistant"
        case FunctionCall() | CustomToolCall():
            return True
        case NativeItem():
            return item.type in native.HOSTED_CALLS or item.type in native.CALLS
        case _:
            return False
