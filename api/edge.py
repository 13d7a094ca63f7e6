"""The outermost layer, plain ASGI: a request id on every answer, a last resort for bugs, WebSockets on one path, and
nothing but reading for a page of another site.

`BaseHTTPMiddleware` would put a task and a queue between each streamed frame and the socket; this wraps one function.
"""

import logging
import secrets
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api import errors
from outlast.protocol.errors import Forbidden, NotFound, OutlastError

REQUEST_ID_HEADER = b"x-request-id"

_log = logging.getLogger(__name__)

_WEBSOCKET_PATH = "/v1/responses"
_READING = frozenset({"GET", "HEAD", "OPTIONS"})


class Edge:
    """Wraps the application."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        request_id = f"req_{secrets.token_hex(16)}"
        answering = _Answering(send, request_id)
        if scope["type"] == "websocket":
            await self._connect(scope, receive, answering)
        else:
            await self._serve(scope, receive, answering)

    async def _connect(self, scope: Scope, receive: Receive, answering: "_Answering") -> None:
        path = scope["path"]
        if path != _WEBSOCKET_PATH:
            error: OutlastError = NotFound(
                f"There is no WebSocket at {path}: use {_WEBSOCKET_PATH}.", code="unknown_url"
            )
        elif _from_elsewhere(scope):
            error = Forbidden("A page of another origin may not open a WebSocket here.")
        else:
            await self._app(scope, receive, answering)
            return
        await _refuse_websocket(error, receive, answering)

    async def _serve(self, scope: Scope, receive: Receive, answering: "_Answering") -> None:
        if scope["method"] not in _READING and _from_elsewhere(scope):
            error = Forbidden("A page of another origin may not change anything here.")
            await errors.answer(error)(scope, receive, answering)
            return
        try:
            await self._app(scope, receive, answering)
        except Exception:
            _log.exception("request %s failed: %s %s", answering.request_id, scope["method"], scope["path"])
            if answering.started:
                # The body has begun: only a dropped connection tells the reader that the rest is missing.
                raise
            await errors.internal_error(answering.request_id)(scope, receive, answering)


class _Answering:
    """`send` with the request id on the first message."""

    def __init__(self, send: Send, request_id: str) -> None:
        self._send = send
        self.request_id = request_id
        self.started = False

    async def __call__(self, message: Message) -> None:
        if message["type"].endswith(("response.start", "websocket.accept")):
            self.started = True
            message["headers"] = [*message.get("headers", ()), (REQUEST_ID_HEADER, self.request_id.encode())]
        await self._send(message)


def _from_elsewhere(scope: Scope) -> bool:
    """Whether a page of another site asks. Browsers let any page open a WebSocket and read it, and post a form or plain
    text without asking first; they say which page it is, and nobody else sends an origin."""
    headers = Headers(scope=scope)
    origin = headers.get("origin")
    return origin is not None and urlsplit(origin).netloc != headers.get("host")


async def _refuse_websocket(error: OutlastError, receive: Receive, send: Send) -> None:
    """Answer the handshake over HTTP."""
    await receive()
    denial = errors.answer(error)
    await send(
        {"type": "websocket.http.response.start", "status": denial.status_code, "headers": [*denial.raw_headers]}
    )
    await send({"type": "websocket.http.response.body", "body": denial.body})
