"""What a server answered, as a `ToolOutcome`: pure functions.

Public `output` is plain text, never a dump of content blocks; images travel apart and leave a note in their place; an
error is one of the three typed objects of a public `mcp_call`. Every refusal for size names the cap.
"""

import base64
import binascii

import mcp_types
from mcp.shared.exceptions import MCPError

from outlast.mcp.base import ImageBlock, ToolFailed, ToolOk, ToolOutcome, ToolUnknown
from outlast.mcp.wire import Exchange
from outlast.protocol import images, json

# An answer that came but could not be read: the tool may well have run.
UNREADABLE = "the server's answer could not be read, the tool may have run"
# What a proxy answers for a server that it lost, or lost patience with, once the call was on its way.
_PROXY_STATUSES = frozenset({502, 503, 504})


def from_result(result: mcp_types.CallToolResult, *, max_output: int, max_images: int) -> ToolOutcome:
    """A finished call. `max_output`: bytes of text; `max_images`: bytes of all images."""
    gallery = _Gallery(max_images)
    text = _text(result, gallery)
    if len(text.encode()) > max_output:
        return over_cap(max_output)
    if result.is_error:
        return execution_error(text or "The tool failed without saying why.")
    return ToolOk(text=text, images=tuple(gallery.images), structured=result.structured_content)


def execution_error(text: str) -> ToolFailed:
    """The tool itself says that it failed."""
    error = {"type": "mcp_tool_execution_error", "content": [{"type": "text", "text": text}]}
    return ToolFailed(error=error, text=text)


def over_cap(cap: int) -> ToolFailed:
    """An answer longer than we take; `cap` in bytes."""
    return execution_error(f"The tool's output is over the limit of {cap} bytes and was dropped; the tool has run.")


def protocol_error(code: int, message: str) -> ToolFailed:
    """A JSON-RPC error, or an answer that is no JSON-RPC (code -32700)."""
    return ToolFailed(
        error={"type": "mcp_protocol_error", "code": code, "message": message}, text=f"MCP error {code}: {message}"
    )


def http_error(status: int, message: str) -> ToolFailed:
    """An HTTP status instead of a JSON-RPC answer."""
    doubt = "; whether the tool ran is not known" if status >= 500 else ""
    return ToolFailed(
        error={"type": "http_error", "code": status, "message": message}, text=f"HTTP {status}: {message}{doubt}"
    )


def from_error(error: MCPError, exchange: Exchange, *, max_body: int) -> ToolOutcome:
    """A call that reached the server and ended in the client's error; the exchange says what is true.

    The order matters: the client's own code and text are stand-ins for whatever the wire noted.
    """
    if exchange.over_cap:
        return over_cap(max_body)
    if exchange.failure is not None:
        return ToolUnknown(reason=exchange.failure)
    if exchange.rpc_error:
        return protocol_error(error.code, error.message)
    if exchange.status is None or error.code == mcp_types.CONNECTION_CLOSED:
        return ToolUnknown(reason=error.message)
    if exchange.status >= 300:
        redirected = exchange.status < 400
        failed = http_error(exchange.status, error.message if redirected else exchange.reason or "no reason given")
        if exchange.status in _PROXY_STATUSES:
            return ToolUnknown(reason=describe(failed), failed=failed)
        return failed
    if error.code == mcp_types.PARSE_ERROR:
        return protocol_error(error.code, UNREADABLE)
    return protocol_error(error.code, error.message)


def describe(outcome: ToolOutcome) -> str:
    """An error in one line, for a listing's `error`."""
    match outcome:
        case ToolUnknown(reason=reason):
            return reason
        case ToolFailed(error={"type": "http_error", "code": code, "message": message}):
            return f"HTTP {code}: {message}"
        case ToolFailed(text=text) | ToolOk(text=text):
            return text


class _Gallery:
    """Takes the images of one result as they come, up to the cap, and gives the note that stands in their place."""

    def __init__(self, cap: int) -> None:
        self.images: list[ImageBlock] = []
        self._cap = cap
        self._left = cap

    def take(self, block: mcp_types.ImageContent) -> str:
        kind = block.mime_type
        if not kind.startswith("image/"):
            return f"[image left out: it came as {kind}]"
        try:
            # Some encoders break lines.
            data = base64.b64decode("".join(block.data.split()), validate=True)
        except (binascii.Error, ValueError):
            return f"[image left out: {kind}, its data is not valid base64]"
        if len(data) > self._left:
            return (
                f"[image left out: {kind}, {len(data)} bytes, would be over the limit of {self._cap} bytes a call "
                "(limits.max_tool_image_bytes)]"
            )
        self._left -= len(data)
        self.images.append(ImageBlock(data=data, mime_type=kind))
        return images.note(kind, data)


def _text(result: mcp_types.CallToolResult, gallery: _Gallery) -> str:
    parts = [_block_text(block, gallery) for block in result.content]
    said = any(not isinstance(block, mcp_types.ImageContent) for block in result.content)
    if said or result.structured_content is None:
        return "\n".join(parts)
    return "\n".join([json.dumps_text(result.structured_content), *parts])


def _block_text(block: mcp_types.ContentBlock, gallery: _Gallery) -> str:
    """A block's text, or a note of what is not text."""
    match block:
        case mcp_types.TextContent(text=text):
            return text
        case mcp_types.ImageContent():
            return gallery.take(block)
        case mcp_types.AudioContent(mime_type=mime):
            return f"[audio, {mime}, not shown]"
        case mcp_types.ResourceLink(name=name, uri=uri):
            return f"[resource {name}: {uri}]"
        case mcp_types.EmbeddedResource(resource=mcp_types.TextResourceContents(text=text)):
            return text
        case mcp_types.EmbeddedResource(resource=resource):
            return f"[resource {resource.uri}, {resource.mime_type or 'binary'}, not shown]"
