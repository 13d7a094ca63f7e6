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
    images: bool = True,
    native: bool = True,
) -> Upstream:
    """The upstream of a configuration entry; `openai`: OpenAI itself answers there; `images`: its model reads them;
    `native`: it knows the tools of the Responses API, if it speaks that."""
    match dialect:
        case "responses":
            return ResponsesUpstream(
                name, base_url, api_key=api_key, api_key_env=api_key_env, openai=openai, images=images, native=native
            )
        case "chat":
            return ChatUpstream(
                name, base_url, api_key=api_key, api_key_env=api_key_env, developer_role=openai, images=images
            )
