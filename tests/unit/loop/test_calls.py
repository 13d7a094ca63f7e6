"""What becomes of a call: one case per rule and per order of rules."""

import pytest

from outlast.loop import bindings, calls
from outlast.loop.bindings import ListedTool
from outlast.loop.calls import Counters, Routed

TOOLS = bindings.bind(
    "docs",
    "https://docs.test/mcp",
    None,
    [ListedTool("search", None, {}), ListedTool("delete", None, {})],
    asks=lambda spec: spec.name == "delete",
)
BOUND = bindings.gather("b", TOOLS, client=["book"], labels=["docs", "dead"])
SEARCH, DELETE = BOUND.tools
CAP = "the limit of 2 tool calls (max_tool_calls) is reached; the call was not executed"


def error(text: str) -> dict[str, object]:
    """The public error of a refused call."""
    return {"type": "mcp_tool_execution_error", "content": [{"type": "text", "text": text}]}


def refused(name: str, label: str, text: str, *, over_cap: bool = False) -> Routed:
    """A refusal of a tool, bound when it is ours."""
    tool = next((each for each in BOUND.tools if each.name == name), None)
    return Routed("refused", name, label, tool, text, over_cap)


@pytest.mark.parametrize(
    ("name", "arguments", "used", "expected"),
    [
        pytest.param("mcp__docs__search", '{"q":"x"}', 1, Routed("run", "search", "docs", SEARCH), id="free"),
        pytest.param("mcp__docs__delete", "{}", 0, Routed("ask", "delete", "docs", DELETE), id="asks"),
        pytest.param("book", "not json", 9, Routed("client", "book"), id="a client call is not looked into"),
        pytest.param("invented", "{}", 9, Routed("client", "invented"), id="an unknown name is the client's"),
        pytest.param(
            "mcp__docs__gone",
            "nope",
            9,
            refused("gone", "docs", "server 'docs' has no tool 'gone'"),
            id="vanished first",
        ),
        pytest.param(
            "mcp__dead__x", "{}", 0, refused("x", "dead", "server 'dead' has no tool 'x'"), id="unlisted server"
        ),
        pytest.param(
            "mcp__docs__search", "[1]", 9, refused("search", "docs", calls.NOT_AN_OBJECT), id="arguments before the cap"
        ),
        pytest.param("mcp__docs__delete", '{"q":', 0, refused("delete", "docs", calls.NOT_AN_OBJECT), id="cut JSON"),
        pytest.param("mcp__docs__search", "{}", 2, refused("search", "docs", CAP, over_cap=True), id="the cap"),
        pytest.param("mcp__docs__delete", "{}", 2, refused("delete", "docs", CAP, over_cap=True), id="cap before ask"),
    ],
)
def test_a_call_is_routed(name: str, arguments: str, used: int, expected: Routed) -> None:
    """By its name, its arguments and what the response has used."""
    assert calls.classify(name, arguments, BOUND, Counters(used, 2)) == expected
