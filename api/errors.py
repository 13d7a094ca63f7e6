"""The only place where the exception tree becomes HTTP: `{"error": {message, type, param, code}}` on every path.

Three sources, one envelope: errors raised by a route, what the framework refuses by itself (no such route, wrong
method, a query parameter of the wrong type), and a response that failed before anything of it was committed, whose
stored `error` is then the answer of the POST that made it.

`x-should-retry: false` goes on everything that was already retried here: the official SDKs would run the same model
calls again otherwise. An upstream's 429 keeps its Retry-After beside it.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from starlette.exceptions import HTTPException
from starlette.routing import compile_path

from outlast.protocol import json
from outlast.protocol.errors import (
    ErrorBody,
    InvalidRequest,
    NotFound,
    OutlastError,
    Unavailable,
    UpstreamError,
)
from outlast.protocol.json import JsonObject

RESPONSE_ID_HEADER = "x-outlast-response-id"

# Private part of a stored `error`: how the POST that made the response is answered. Never on the wire as such.
HTTP_KEY = "http"

_STATUS_OF_CODE = {"rate_limit_exceeded": 429, "invalid_prompt": 400}
_TYPE_OF_STATUS = {429: "rate_limit_error", 401: "authentication_error", 403: "permission_error"}


class Json(Response):
    """A JSON body by our one encoder."""

    media_type = "application/json"

    def render(self, content: object) -> bytes:
        return json.dumps(content)


class ResponseFailed(OutlastError):
    """A response that failed before anything of it was committed; it stays readable under its id."""

    def __init__(self, response_id: str, error: JsonObject) -> None:
        http = error.get(HTTP_KEY) or {}
        self._status = int(http.get("status") or _STATUS_OF_CODE.get(error.get("code") or "", 500))
        super().__init__(
            error.get("message") or "The response failed.",
            param=http.get("param"),
            code=http.get("code") or error.get("code"),
            retry_after=http.get("retry_after"),
        )
        self.response_id = response_id
        self._type = http.get("type") or error.get("type") or _default_type(self._status)

    @property
    def http_status(self) -> int:
        return self._status

    def body(self) -> ErrorBody:
        return ErrorBody(message=self.message, type=self._type, param=self.param, code=self.code)


def _default_type(status: int) -> str:
    return _TYPE_OF_STATUS.get(status, "invalid_request_error" if status < 500 else "server_error")


def envelope(status: int, body: ErrorBody, headers: Mapping[str, str] | None = None) -> Response:
    """The answer with all four keys."""
    return Json({"error": asdict(body)}, status_code=status, headers=headers)


def answer(error: OutlastError) -> Response:
    """The HTTP answer of one of ours."""
    return envelope(error.http_status, error.body(), _headers(error))


def _headers(error: OutlastError) -> dict[str, str]:
    headers: dict[str, str] = {}
    retry_after = error.retry_after
    if retry_after is None and isinstance(error, Unavailable):
        retry_after = 1.0
    if retry_after is not None:
        headers["retry-after"] = str(max(1, math.ceil(retry_after)))
    if isinstance(error, UpstreamError | ResponseFailed):
        headers["x-should-retry"] = "false"
    if isinstance(error, ResponseFailed):
        headers[RESPONSE_ID_HEADER] = error.response_id
    return headers


def internal_error(request_id: str) -> Response:
    """The answer to a bug of ours: the correlation id and nothing else."""
    body = ErrorBody(
        message=f"Internal error. Quote request id {request_id} when you report it.",
        type="server_error",
        param=None,
        code="internal_error",
    )
    return envelope(500, body)


def install(app: FastAPI) -> None:
    """Put the envelope on everything the application or the framework refuses."""
    app.add_exception_handler(OutlastError, _ours)
    app.add_exception_handler(HTTPException, _framework)
    app.add_exception_handler(RequestValidationError, _parameters)


async def _ours(_request: Request, error: Exception) -> Response:
    if not isinstance(error, OutlastError):
        raise error
    return answer(error)


async def _framework(request: Request, error: Exception) -> Response:
    if not isinstance(error, HTTPException):
        raise error
    where = f"{request.method} {request.url.path}"
    if error.status_code == 404:
        hint = "" if request.url.path.startswith("/v1/") else " The API is under /v1, its description at /docs."
        return answer(NotFound(f"Unknown URL: {where}.{hint}", code="unknown_url"))
    if error.status_code == 405:
        methods = ", ".join(_methods(request)) or (error.headers or {}).get("allow", "")
        body = InvalidRequest(f"{where} is not supported: the path has {methods}.", code="method_not_allowed").body()
        return envelope(405, body, {"allow": methods})
    body = ErrorBody(str(error.detail), _default_type(error.status_code), None, None)
    return envelope(error.status_code, body, error.headers)


def _methods(request: Request) -> list[str]:
    """The methods of a path; those the framework names are of the first route only. Empty: the path is in no document
    of the API."""
    paths: Mapping[str, JsonObject] = request.app.openapi()["paths"]
    matching = [each for template, each in paths.items() if compile_path(template)[0].match(request.url.path)]
    return sorted({method.upper() for operations in matching for method in operations})


async def _parameters(_request: Request, error: Exception) -> Response:
    if not isinstance(error, RequestValidationError):
        raise error
    first = error.errors()[0]
    name = str(first["loc"][-1])
    return answer(InvalidRequest(f"Invalid value for {name!r}: {first['msg']}.", param=name, code="invalid_value"))
