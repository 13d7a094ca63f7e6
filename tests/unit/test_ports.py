"""Every limit an operator sets arrives where it is kept."""

from dataclasses import fields

from outlast import ports, processes
from outlast.contracts import Timeouts
from outlast.mcp.session import Limits
from outlast.protocol.requests import RequestLimits
from outlast.settings import Settings

# Each another number.
GIVEN = Settings.model_validate(
    {
        "limits": {
            "max_body_bytes": 1,
            "max_items": 2,
            "max_tools": 3,
            "max_tool_calls": 4,
            "max_rounds": 5,
            "tool_timeout_seconds": 6,
            "max_tool_output_bytes": 7_000_000,
            "max_tool_image_bytes": 8_000_000,
            "first_token_seconds": 9,
            "idle_seconds": 10,
            "round_seconds": 11,
            "park_seconds": 12,
        }
    }
)


def test_the_times_of_a_run_are_the_settings() -> None:
    """The activity has a minute more than the round in it, to report and not to be cut."""
    assert ports._timeouts(GIVEN) == Timeouts(llm=71, llm_own=11, llm_first_event=9, llm_idle=10, tool=6, park=12)


def test_a_tool_may_have_more_time_than_the_others() -> None:
    """Its activity is not cut before the call's own deadline."""
    tools = {"quick": {"timeout_seconds": 2}, "slow": {"timeout_seconds": 600}, "plain": {}}
    patient = Settings.model_validate({"mcp": {"servers": {"own": {"url": "http://own.test", "tools": tools}}}})
    assert (ports._timeouts(patient).tool, ports._timeouts(patient).tool_longest) == (60, 600)
    assert ports._timeouts(GIVEN).tool_longest == 6


def test_the_limits_of_a_request_are_the_settings() -> None:
    """Every one of them, under its name."""
    limits = processes._request_limits(GIVEN)
    names = [each.name for each in fields(RequestLimits)]
    assert [getattr(limits, name) for name in names] == [getattr(GIVEN.limits, name) for name in names]


def test_the_limits_of_a_tools_answer_are_the_settings() -> None:
    """The whole answer may be longer than what is in it."""
    assert ports._tool_limits(GIVEN) == Limits(output=7_000_000, images=8_000_000, body=30_000_000)
    assert ports._tool_limits(Settings()) == Limits(output=1 << 20, images=8 << 20, body=18 << 20)
