"""What a person at the terminal sees of failures."""

import asyncio
import logging
import sys

import pytest
from temporalio.exceptions import ApplicationError

from outlast.logs import WithoutExpectedStacks


def record_of(error: BaseException) -> logging.LogRecord:
    """A log record made while handling this exception."""
    try:
        raise error
    except (Exception, asyncio.CancelledError):  # noqa: BLE001  # to make a record of it
        return logging.LogRecord("temporalio.activity", logging.WARNING, "f", 1, "failed", None, sys.exc_info())


@pytest.mark.parametrize("error", [ApplicationError("rate_limited"), asyncio.CancelledError()])
def test_an_expected_failure_is_one_line(error: BaseException) -> None:
    """Kept, without its stack."""
    record = record_of(error)
    assert WithoutExpectedStacks().filter(record)
    assert "Traceback" not in logging.Formatter().format(record)


def test_a_bug_keeps_its_stack() -> None:
    """It is what the log is for."""
    record = record_of(KeyError("x"))
    assert WithoutExpectedStacks().filter(record)
    assert "Traceback" in logging.Formatter().format(record)
