"""Claims about what reaches Temporal history."""

from datetime import timedelta

import pytest
from temporalio.api.failure.v1 import Failure
from temporalio.exceptions import ApplicationError

from outlast import temporal
from outlast.contracts import RunInput
from outlast.loop.state import RunState
from outlast.protocol.errors import (
    OutlastError,
    ResponseEnded,
    UpstreamRateLimited,
    UpstreamRefused,
    UpstreamUnavailable,
)

CANARY = "the-prompt-of-a-user"


def encoded(error: BaseException) -> Failure:
    """The failure as it would be stored."""
    failure = Failure()
    converter = temporal.DATA_CONVERTER
    converter.failure_converter.to_failure(error, converter.payload_converter, failure)
    return failure


def raised(error: BaseException) -> BaseException:
    """The same with a traceback, a cause and a context."""
    try:
        try:
            raise ValueError(CANARY)
        except ValueError as cause:
            raise error from cause
    except type(error) as caught:
        return caught


@pytest.mark.parametrize(
    ("error", "kind", "code", "final"),
    [
        (UpstreamUnavailable(CANARY), "UpstreamUnavailable", "upstream_unavailable", False),
        (UpstreamRefused(CANARY, upstream_status=400, code=CANARY), "UpstreamRefused", "upstream_error", True),
        (ResponseEnded(CANARY), "ResponseEnded", "server_error", True),
        (KeyError(CANARY), "KeyError", "internal_error", False),
        (ApplicationError("a_code", "resp_1", type="Ours"), "Ours", "a_code", False),
    ],
)
def test_a_failure_is_a_class_and_a_code(error: Exception, kind: str, code: str, final: bool) -> None:
    """No message, cause, context or stack trace: any of them may quote a prompt."""
    failure = encoded(raised(error))
    assert CANARY not in str(failure)
    assert (failure.message, failure.application_failure_info.type) == (code, kind)
    assert failure.application_failure_info.non_retryable is final
    assert not failure.HasField("cause")
    assert not failure.stack_trace


@pytest.mark.parametrize(
    ("error", "delay", "final"),
    [
        (UpstreamRateLimited("x", retry_after=7), timedelta(seconds=7), False),
        (UpstreamRateLimited("x", retry_after=30), timedelta(seconds=30), False),
        (UpstreamRateLimited("x", retry_after=31), None, True),
        (UpstreamRateLimited("x"), None, False),
        (ResponseEnded("x", retry_after=1), None, True),
    ],
)
def test_a_short_retry_after_is_waited_for_and_a_long_one_is_final(
    error: OutlastError, delay: timedelta | None, final: bool
) -> None:
    """Thirty seconds is the border; ids become details."""
    made = temporal.application_error(error, "resp_1")
    assert (made.next_retry_delay, made.non_retryable, list(made.details)) == (delay, final, ["resp_1"])


def test_a_run_input_survives_the_round_trip_whatever_an_older_build_left_out() -> None:
    """Frozen dataclasses with defaults, nested, through JSON; unknown keys of a newer build are ignored."""
    converter = temporal.DATA_CONVERTER.payload_converter
    whole = RunInput(tenant="default", state=RunState(response_id="resp_1"), model="demo")
    (payload,) = converter.to_payloads([whole])
    assert converter.from_payloads([payload], [RunInput]) == [whole]
    payload.data = b'{"tenant": "default", "state": {"response_id": "resp_1", "new": 1}, "model": "demo", "newer": {}}'
    assert converter.from_payloads([payload], [RunInput]) == [whole]
