"""Normalising what a server answered."""

import base64
from dataclasses import replace
from typing import Any

import mcp_types
import pytest
from mcp.shared.exceptions import MCPError

from outlast.mcp import results
from outlast.mcp.base import ImageBlock, ToolFailed, ToolOk, ToolUnknown
from outlast.mcp.wire import Exchange
from outlast.protocol.images import note

CAP = 1000
HI = note("image/png", b"hi")


def text(value: str) -> mcp_types.TextContent:
    return mcp_types.TextContent(text=value)


@pytest.mark.parametrize(
    ("content", "structured", "outcome"),
    [
        ([text("a"), text("b")], None, ToolOk("a\nb")),
        ([], None, ToolOk("")),
        ([], {"n": [1, None]}, ToolOk('{"n":[1,null]}')),
        ([text("said")], {"n": 1}, ToolOk("said")),
        (
            [mcp_types.ImageContent(data="aGk=", mime_type="image/png"), text("a picture")],
            None,
            ToolOk(f"{HI}\na picture", (ImageBlock(b"hi", "image/png"),)),
        ),
        (
            [text("before"), mcp_types.ImageContent(data="aG\nk=", mime_type="image/png"), text("after")],
            {"n": 1},
            ToolOk(f"before\n{HI}\nafter", (ImageBlock(b"hi", "image/png"),)),
        ),
        (
            [mcp_types.ImageContent(data="aGk=", mime_type="image/png")],
            {"n": 1},
            ToolOk(f'{{"n":1}}\n{HI}', (ImageBlock(b"hi", "image/png"),)),
        ),
        (
            [mcp_types.ImageContent(data="a?k=", mime_type="image/png")],
            None,
            ToolOk("[image left out: image/png, its data is not valid base64]"),
        ),
        (
            [mcp_types.ImageContent(data="aGk=", mime_type="text/html")],
            None,
            ToolOk("[image left out: it came as text/html]"),
        ),
        ([mcp_types.AudioContent(data="aGk=", mime_type="audio/wav")], None, ToolOk("[audio, audio/wav, not shown]")),
        (
            [mcp_types.ResourceLink(name="terms", uri="file:///terms.md")],
            None,
            ToolOk("[resource terms: file:///terms.md]"),
        ),
        (
            [
                mcp_types.EmbeddedResource(
                    resource=mcp_types.TextResourceContents(
                        uri="file:///a.md", text="inside", mime_type="text/markdown"
                    )
                ),
                mcp_types.EmbeddedResource(resource=mcp_types.BlobResourceContents(uri="file:///b.bin", blob="aGk=")),
            ],
            None,
            ToolOk("inside\n[resource file:///b.bin, binary, not shown]"),
        ),
    ],
)
def test_content_becomes_plain_text_and_images(
    content: list[mcp_types.ContentBlock], structured: dict[str, Any] | None, outcome: ToolOk
) -> None:
    """Never base64 in text, never a dump of blocks; structured content only where there is no text."""
    result = mcp_types.CallToolResult(content=content, structured_content=structured)
    assert results.from_result(result, max_output=CAP, max_images=CAP) == replace(outcome, structured=structured)


def test_an_error_without_text_still_says_something() -> None:
    """An empty isError is not an empty output."""
    outcome = results.from_result(mcp_types.CallToolResult(content=[], is_error=True), max_output=CAP, max_images=CAP)
    said = "The tool failed without saying why."
    assert outcome == ToolFailed(
        error={"type": "mcp_tool_execution_error", "content": [{"type": "text", "text": said}]}, text=said
    )


def test_the_cap_counts_bytes_and_is_named() -> None:
    """Exactly the cap passes, one byte more does not."""
    fits = mcp_types.CallToolResult(content=[text("ä" * (CAP // 2))])
    assert isinstance(results.from_result(fits, max_output=CAP, max_images=CAP), ToolOk)
    over = mcp_types.CallToolResult(content=[text("ä" * (CAP // 2) + "x")])
    outcome = results.from_result(over, max_output=CAP, max_images=CAP)
    assert isinstance(outcome, ToolFailed)
    assert "1000 bytes" in outcome.text


def picture(size: int) -> mcp_types.ImageContent:
    return mcp_types.ImageContent(data=base64.b64encode(b"x" * size).decode(), mime_type="image/png")


def test_images_have_a_cap_of_their_own_that_a_note_names() -> None:
    """Over all images of a call, in order; what does not fit is left out, what fits stays."""
    result = mcp_types.CallToolResult(content=[picture(60), picture(50), text("and"), picture(40)])
    outcome = results.from_result(result, max_output=CAP, max_images=100)
    left_out = (
        "[image left out: image/png, 50 bytes, would be over the limit of 100 bytes a call "
        "(limits.max_tool_image_bytes)]"
    )
    assert outcome == ToolOk(
        f"{note('image/png', b'x' * 60)}\n{left_out}\nand\n{note('image/png', b'x' * 40)}",
        (ImageBlock(b"x" * 60, "image/png"), ImageBlock(b"x" * 40, "image/png")),
    )


def protocol(code: int, message: str) -> ToolFailed:
    error = {"type": "mcp_protocol_error", "code": code, "message": message}
    return ToolFailed(error, f"MCP error {code}: {message}")


def proxied(status: int, reason: str) -> ToolUnknown:
    """What a proxy says for its server is no answer of the tool."""
    error = {"type": "http_error", "code": status, "message": reason}
    said = f"HTTP {status}: {reason}"
    return ToolUnknown(said, ToolFailed(error, f"{said}; whether the tool ran is not known"))


@pytest.mark.parametrize(
    ("code", "exchange", "outcome"),
    [
        (-1, Exchange(failure="ReadError: reset"), ToolUnknown("ReadError: reset")),
        (-32000, Exchange(status=None), ToolUnknown("said")),
        (-32000, Exchange(status=200), ToolUnknown("said")),
        (-32602, Exchange(status=400, rpc_error=True), protocol(-32602, "said")),
        (
            -32603,
            Exchange(status=401, reason="Unauthorized"),
            ToolFailed({"type": "http_error", "code": 401, "message": "Unauthorized"}, "HTTP 401: Unauthorized"),
        ),
        *((-32603, Exchange(status=status, reason="Away"), proxied(status, "Away")) for status in (502, 503, 504)),
        (-32602, Exchange(status=503, rpc_error=True), protocol(-32602, "said")),
        (
            -32603,
            Exchange(status=500, reason="Oops"),
            ToolFailed(
                {"type": "http_error", "code": 500, "message": "Oops"},
                "HTTP 500: Oops; whether the tool ran is not known",
            ),
        ),
        (-32603, Exchange(status=200), protocol(-32603, "said")),
        (-32700, Exchange(status=200), protocol(-32700, results.UNREADABLE)),
    ],
)
def test_an_error_is_classified_by_what_the_wire_saw(code: int, exchange: Exchange, outcome: object) -> None:
    """The client's own codes are stand-ins; the exchange decides."""
    assert results.from_error(MCPError(code=code, message="said"), exchange, max_body=CAP) == outcome


@pytest.mark.parametrize(
    ("exchange", "arrived"),
    [
        (Exchange(), False),
        (Exchange(handed_over=True), True),
        (Exchange(handed_over=True, phase="connection.connect_tcp.started"), False),
        (Exchange(handed_over=True, phase="connection.start_tls.complete"), False),
        (Exchange(handed_over=True, phase="http11.send_request_headers.started"), True),
        (Exchange(handed_over=True, phase="something.new"), True),
    ],
)
def test_doubt_counts_as_arrived(exchange: Exchange, arrived: bool) -> None:
    """Only a request that is still connecting, or was never handed over, surely did not arrive."""
    assert exchange.may_have_arrived is arrived
