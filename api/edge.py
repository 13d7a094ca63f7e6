"""The outermost layer, plain ASGI: a request id on every answer, a last resort for bugs, WebSockets on one path only.

`BaseHTTPMiddleware` would put a task and a queue between each streamed frame and the socket; this wraps one function.
"""

import logging
import secrets

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api import errors
from outlast.protocol.errors import NotFound

REQUEST_ID_HEADER = b"x-request-id"

_log = logging.getLogger(__name__)

_WEBSOCKET_PATH = "/v1/responses"


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
            await (self._app if scope["path"] == _WEBSOCKET_PATH else _refuse_websocket)(scope, receive, answering)
        else:
            await self._serve(scope, receive, answering)

    async def _serve(self, scope: Scope, receive: Receive, answering: "_Answering") -> None:
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


async def _refuse_websocket(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer the handshake over HTTP, as any other unknown URL."""
    await receive()
    error = NotFound(f"There is no WebSocket at {scope['path']}: use {_WEBSOCKET_PATH}.", code="unknown_url")
    denial = errors.answer(error)
    headers = [*denial.raw_headers]
    await send({"type": "websocket.http.response.start", "status": denial.status_code, "headers": headers})
    await send({"type": "websocket.http.response.body", "body": denial.body})
