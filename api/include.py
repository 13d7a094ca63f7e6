"""`include[]` of what is read: only sealed reasoning changes an answer, whatever else an item has is in it anyway."""

from typing import Annotated

from fastapi import Query

from outlast.protocol.requests import INCLUDE_SEALED

Include = Annotated[list[str] | None, Query(alias="include[]")]


def sealed(include: list[str] | None) -> bool:
    """Whether the caller asks for the encrypted content of reasoning."""
    return INCLUDE_SEALED in (include or ())
