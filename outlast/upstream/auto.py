"""The one chooser of a dialect."""

from typing import Literal

from outlast.upstream.base import Upstream
from outlast.upstream.chat import ChatUpstream
from outlast.upstream.responses import ResponsesUpstream


def create(
    name: str,
    base_url: str,
    dialect: Literal["responses", "chat"],
    api_key: str | None,
    api_key_env: str | None,
    *,
    openai: bool,
) -> Upstream:
    """The upstream of a configuration entry; `openai` says that OpenAI itself answers there."""
    match dialect:
        case "responses":
            return ResponsesUpstream(name, base_url, api_key=api_key, api_key_env=api_key_env, openai=openai)
        case "chat":
            return ChatUpstream(name, base_url, api_key=api_key, api_key_env=api_key_env, developer_role=openai)
