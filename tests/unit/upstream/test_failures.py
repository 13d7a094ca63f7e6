"""Refusals of a model server as errors of ours."""

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from outlast.protocol import errors
from outlast.upstream.failures import TEXT_LIMIT, Identity, retry_after

IDENTITY = Identity("main", "http://models.internal:8000/v1", "sk-secret", "MAIN_KEY")


def facts(error: errors.UpstreamError) -> tuple[type[errors.UpstreamError], int, str, str | None, str | None]:
    """All a client sees of an error."""
    return type(error), error.http_status, error.message, error.code, error.param


AUTH = (
    "Upstream 'main' refused our credentials (HTTP {}): "
    "check the key in MAIN_KEY, configured as upstreams.main.api_key_env."
)
SILENT = "Upstream 'main' failed without a reason (status {})."


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        (
            400,
            b'{"error":{"message":"too long","type":"x","param":"input","code":"context_length_exceeded"}}',
            (errors.UpstreamRefused, 400, "too long", "context_length_exceeded", "input"),
        ),
        (
            404,
            b'{"error":{"message":"no such model","code":404}}',
            (errors.UpstreamRefused, 404, "no such model", "upstream_error", None),
        ),
        (
            422,
            b'{"detail":[{"loc":["body"]}]}',
            (errors.UpstreamRefused, 400, '[{"loc":["body"]}]', "upstream_error", None),
        ),
        (400, b'{"object":"error","message":"flat"}', (errors.UpstreamRefused, 400, "flat", "upstream_error", None)),
        (400, b'{"error":"only text"}', (errors.UpstreamRefused, 400, "only text", "upstream_error", None)),
        (400, b"plain", (errors.UpstreamRefused, 400, "plain", "upstream_error", None)),
        (400, b"[1]", (errors.UpstreamRefused, 400, SILENT.format(400), "upstream_error", None)),
        (
            401,
            b'{"error":{"message":"bad key sk-secret"}}',
            (errors.UpstreamAuth, 502, AUTH.format(401), "upstream_auth", None),
        ),
        (403, b"", (errors.UpstreamAuth, 502, AUTH.format(403), "upstream_auth", None)),
        (408, b"", (errors.UpstreamUnavailable, 502, SILENT.format(408), "upstream_unavailable", None)),
        (
            429,
            b'{"error":{"message":"slow down","code":"rate_limit_exceeded"}}',
            (errors.UpstreamRateLimited, 429, "slow down", "rate_limit_exceeded", None),
        ),
        (429, b"", (errors.UpstreamRateLimited, 429, SILENT.format(429), "rate_limit_exceeded", None)),
        (
            500,
            b'{"error":{"message":"oops","code":"x"}}',
            (errors.UpstreamUnavailable, 502, "oops", "upstream_unavailable", None),
        ),
        (
            502,
            b"<html>bad gateway</html>",
            (errors.UpstreamUnavailable, 502, SILENT.format(502), "upstream_unavailable", None),
        ),
        (307, b"", (errors.UpstreamUnavailable, 502, SILENT.format(307), "upstream_unavailable", None)),
        (
            400,
            b'{"error":{"message":"http://models.internal:8000/v1 got sk-secret"}}',
            (
                errors.UpstreamRefused,
                400,
                "[\xe2\x80\xa6] got [\xe2\x80\xa6]".encode("latin1").decode(),
                "upstream_error",
                None,
            ),
        ),
    ],
)
def test_http_answers_map_by_status(status: int, body: bytes, expected: object) -> None:
    """Text, code and param are passed on; our key and address never."""
    assert facts(IDENTITY.from_http(status, {}, body)) == expected


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (
            {"code": "rate_limit_exceeded", "message": "m"},
            (errors.UpstreamRateLimited, 429, "m", "rate_limit_exceeded", None),
        ),
        (
            {"code": "server_error", "message": "m"},
            (errors.UpstreamUnavailable, 502, "m", "upstream_unavailable", None),
        ),
        ({"code": "invalid_prompt", "message": "m"}, (errors.UpstreamRefused, 400, "m", "invalid_prompt", None)),
        (
            {"type": "error", "code": "invalid_image", "message": "m", "param": "p"},
            (errors.UpstreamRefused, 400, "m", "invalid_image", "p"),
        ),
        (
            {"type": "BadRequestError", "code": 400, "message": "m"},
            (errors.UpstreamRefused, 400, "m", "upstream_error", None),
        ),
        (
            {"type": "InternalServerError", "code": 500, "message": "m"},
            (errors.UpstreamUnavailable, 502, "m", "upstream_unavailable", None),
        ),
        ({"code": 429, "message": "m"}, (errors.UpstreamRateLimited, 429, "m", "rate_limit_exceeded", None)),
        ({"message": "m"}, (errors.UpstreamUnavailable, 502, "m", "upstream_unavailable", None)),
        ("m", (errors.UpstreamUnavailable, 502, "m", "upstream_unavailable", None)),
        (None, (errors.UpstreamUnavailable, 502, SILENT.format(500), "upstream_unavailable", None)),
    ],
)
def test_errors_inside_a_stream_map_by_code(error: object, expected: object) -> None:
    """A numeric code counts as the status; nothing at all is the server's fault."""
    assert facts(IDENTITY.from_error(error)) == expected


def test_a_long_text_is_cut() -> None:
    """What an upstream says is passed on, up to a limit."""
    assert IDENTITY.from_http(400, {}, b"x" * 5000).message == "x" * TEXT_LIMIT


def test_a_missing_key_is_named_as_missing() -> None:
    """Nobody shall look for an environment variable that is not configured."""
    message = Identity("main", "http://h/v1").from_http(401, {}, b"").message
    assert message == (
        "Upstream 'main' refused our credentials (HTTP 401): "
        "check the key (none is configured), configured as upstreams.main.api_key_env."
    )


def test_the_key_is_not_in_the_repr() -> None:
    """An identity may end up in a log line."""
    assert "sk-secret" not in repr(IDENTITY)


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({}, None),
        ({"retry-after": "12"}, 12.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after-ms": "1500", "retry-after": "9"}, 1.5),
        ({"retry-after-ms": "soon", "retry-after": "9"}, 9.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "-3"}, 0.0),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0.0),
    ],
)
def test_retry_after_is_read_in_every_form(headers: dict[str, str], expected: float | None) -> None:
    """Milliseconds win; what cannot be read is unsaid."""
    assert retry_after(headers) == expected


def test_retry_after_as_a_date_is_the_time_until_then() -> None:
    """An HTTP date a minute ahead."""
    seconds = retry_after({"retry-after": format_datetime(datetime.now(UTC) + timedelta(seconds=60), usegmt=True)})
    assert seconds is not None
    assert 50 < seconds <= 60


@pytest.mark.parametrize("status", [429, 503])
def test_retry_after_reaches_the_error(status: int) -> None:
    """The step's retry policy waits for it; `x-should-retry: false` does not change the class."""
    error = IDENTITY.from_http(status, {"retry-after": "7", "x-should-retry": "false"}, b"")
    assert (error.retry_after, error.retryable) == (7.0, True)
