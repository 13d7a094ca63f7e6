"""Conversations through the official client."""

from typing import Any

from openai import AsyncOpenAI
from openai.types.conversations import Conversation


async def opened(client: AsyncOpenAI, *texts: str) -> Conversation:
    """One with these user messages."""
    items: Any = [{"role": "user", "content": text} for text in texts]
    return await client.conversations.create(items=items)


async def texts(client: AsyncOpenAI, conversation_id: str) -> list[str]:
    """The first text of every message in it, oldest first, through the client's own paging."""
    found = client.conversations.items.list(conversation_id, order="asc", limit=2)
    return told([item async for item in found])


async def kinds(client: AsyncOpenAI, conversation_id: str) -> list[str]:
    """The types of all its items, oldest first."""
    return [item.type async for item in client.conversations.items.list(conversation_id, order="asc")]


def told(items: Any) -> list[str]:
    """The first text of each message."""
    return [item.content[0].text for item in items if item.type == "message"]
