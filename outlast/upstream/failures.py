"""What a model server's refusal becomes in our error tree.

    401, 403            UpstreamAuth         names the config key, never the key
    408, 5xx, 3xx       UpstreamUnavailable  retried, with `retry-after`
    429                 UpstreamRateLimited  retried, with `retry-after`
    other 4xx           UpstreamRefused      text, `code` and `param` passed on (`context_length_exceeded` …)

`x-should-retry: false` of a 5xx changes nothing: it keeps a client from repeating at once, the step's retries are few
and wait.

The same goes for an error inside a 200 (an `error` event, `response.failed`, a JSON body where a stream was due): a
numeric code counts as the status, `rate_limit_exceeded` as 429, `server_error` or nothing at all as 500, any other
code as 400.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from outlast.protocol import errors, json
from outlast.protocol.json import JsonObject

# Characters of an upstream's text that are passed on.
TEXT_LIMIT = 2000

_RATE_CODES = frozenset({"rate_limit_exceeded", "rate_limit_error", "rate_limit"})
_SERVER_CODES = frozenset(
    {"server_error", "internal_error", "internal_server_error", "InternalServerError", "overloaded_error", "timeout"}
)


@dataclass(frozen=True, slots=True)
class Identity:
    """Who answered: the configured upstream, and what of ours its texts must not show."""

    name: str
    base_url: str
    api_key: str | None = field(default=None, repr=False)
    api_key_env: str | None = None

    def from_http(self, status: int, headers: Mapping[str, str], body: bytes) -> errors.UpstreamError:
        """The error of an answer that is not 2xx; `headers` with lower-case lookup."""
        return self._by_status(status, error_of(body), retry_after(headers))

    def from_error(self, error: object) -> errors.UpstreamError:
        """The error of an `error` object (or text) inside a stream or a 200."""
        fields: JsonObject = error if isinstance(error, dict) else {"message": error}
        code, kind = fields.get("code"), fields.get("type")
        if kind == "error":  # the flat `error` event's own type says nothing
            kind = None
        if isinstance(code, int) and not isinstance(code, bool):
            status = code if 400 <= code < 600 else 500
        elif code in _RATE_CODES or kind in _RATE_CODES:
            status = 429
        elif code in _SERVER_CODES or kind in _SERVER_CODES or (code is None and kind is None):
            status = 500
        else:
            status = 400
        return self._by_status(status, fields, None)

    def unavailable(self, what: str) -> errors.UpstreamUnavailable:
        """The error of an upstream that `what`: 'refused the connection', …"""
        return errors.UpstreamUnavailable(f"Upstream '{self.name}' {what}.")

    def _by_status(self, status: int, fields: JsonObject, wait: float | None) -> errors.UpstreamError:
        text = self._text(fields) or f"Upstream '{self.name}' failed without a reason (status {status})."
        code, param = _string(fields.get("code")), _string(fields.get("param"))
        if status in (401, 403):
            key = f"the key in {self.api_key_env}" if self.api_key_env else "the key (none is configured)"
            return errors.UpstreamAuth(
                f"Upstream '{self.name}' refused our credentials (HTTP {status}): "
                f"check {key}, configured as upstreams.{self.name}.api_key_env."
            )
        if status == 429:
            return errors.UpstreamRateLimited(text, param=param, code=code, retry_after=wait)
        if status < 400 or status == 408 or status >= 500:
            return errors.UpstreamUnavailable(text, param=param, retry_after=wait)
        return errors.UpstreamRefused(text, upstream_status=status, param=param, code=code)

    def _text(self, fields: JsonObject) -> str:
        """The upstream's own words, without our key and address."""
        text = _string(fields.get("message")) or ""
        for ours in (self.api_key, self.base_url):
            if ours:
                text = text.replace(ours, "[…]")
        return text[:TEXT_LIMIT]


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds to wait, from `retry-after-ms` or `retry-after` (seconds or HTTP date); None if unsaid or unreadable."""
    milliseconds = _number(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000
    raw = headers.get("retry-after")
    seconds = _number(raw)
    if seconds is not None or raw is None:
        return seconds
    try:
        at = parsedate_to_datetime(raw)
    except ValueError:
        return None
    at = at if at.tzinfo else at.replace(tzinfo=UTC)
    return max(0.0, (at - datetime.now(UTC)).total_seconds())


def _number(raw: str | None) -> float | None:
    try:
        value = float(raw) if raw is not None else math.nan
    except ValueError:
        return None
    return max(0.0, value) if math.isfinite(value) else None


def error_of(body: bytes) -> JsonObject:
    """The error object of an HTTP body: `error` as object or text, a bare object, FastAPI's `detail`, plain text."""
    try:
        value = json.loads(body)
    except ValueError:
        text = body.decode(errors="replace").strip()
        return {} if text.startswith("<") else {"message": text}  # a proxy's HTML page helps nobody
    if not isinstance(value, dict):
        return {}
    error = value.get("error", value)
    if not isinstance(error, dict):
        return {"message": error}
    detail = error.get("detail")
    if "message" not in error and detail:
        return {**error, "message": detail if isinstance(detail, str) else json.dumps_text(detail)}
    return error


def _string(value: object) -> str | None:
    return value if isinstance(value, str) and value else None
