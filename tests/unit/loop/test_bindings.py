"""Bindings: from a listing to the names the model sees, and back."""

import json

import pytest

from outlast.loop import bindings
from outlast.loop.bindings import Bindings, ListedTool, ModelFunction, ToolBinding
from outlast.protocol.errors import InvalidRequest
from outlast.protocol.json import JsonObject

SCHEMA = {"type": "object", "properties": {"q": {"type": "string"}}}
SEARCH = ListedTool("search", "Find pages", SCHEMA, read_only=True)
DELETE = ListedTool("delete", None, {})
RETRY = ListedTool("retry", None, {}, read_only=False, idempotent=True)


def bound(label: str, *specs: ListedTool) -> tuple[ToolBinding, ...]:
    """What does not say it only reads asks."""
    return bindings.bind(label, "https://docs.test/mcp", "sec_1", specs, asks=lambda spec: not spec.read_only)


def test_a_listing_becomes_bindings_in_its_order() -> None:
    """Policy flags come from our listing: safe from the hints, ask from the predicate."""
    url = "https://docs.test/mcp"
    assert bound("docs", SEARCH, DELETE, RETRY) == (
        ToolBinding("docs", "search", "mcp__docs__search", "Find pages", SCHEMA, url, "sec_1", safe=True, ask=False),
        ToolBinding("docs", "delete", "mcp__docs__delete", None, {}, url, "sec_1", safe=False, ask=True),
        ToolBinding("docs", "retry", "mcp__docs__retry", None, {}, url, "sec_1", safe=True, ask=True),
    )


def test_a_server_s_time_limit_is_its_tools_own() -> None:
    """Seconds, kept with each tool."""
    tools = bindings.bind("docs", "u", None, [SEARCH], asks=lambda _: False, timeout=5)
    assert [(tool.name, tool.timeout) for tool in tools] == [("search", 5)]


def test_bindings_survive_their_row() -> None:
    """What is dumped to JSON loads equal."""
    made = bindings.gather("bind_1", bound("docs", SEARCH, DELETE), client=["book"], labels=["docs", "dead"])
    assert bindings.load(json.loads(json.dumps(bindings.dump(made)))) == made
    assert made.labels == ("docs", "dead")


@pytest.mark.parametrize(
    ("tools", "client", "text"),
    [
        (
            (*bound("a", ListedTool("b__c", None, {})), *bound("a__b", ListedTool("c", None, {}))),
            [],
            "tool 'b__c' of server 'a' and tool 'c' of server 'a__b' both reach the model as 'mcp__a__b__c'",
        ),
        (
            bound("docs", SEARCH),
            ["mcp__docs__search"],
            "function 'mcp__docs__search' and tool 'search' of server 'docs' both reach the model as",
        ),
    ],
)
def test_a_clash_of_names_is_refused_naming_both(tools: tuple[ToolBinding, ...], client: list[str], text: str) -> None:
    """The model could not say which one it means."""
    with pytest.raises(InvalidRequest) as raised:
        bindings.gather("bind_1", tools, client=client)
    assert raised.value.message.startswith(text)
    assert raised.value.param == "tools"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("mcp__docs__gone", ("docs", "gone")),
        ("mcp__docs__v2__gone", ("docs__v2", "gone")),
        ("mcp__dead__any", ("dead", "any")),
        ("mcp__docs__search", None),
        ("mcp__other__search", None),
        ("mcp__docs__mine", None),
        ("search", None),
    ],
)
def test_a_name_with_a_bound_servers_prefix_is_that_servers(name: str, expected: tuple[str, str] | None) -> None:
    """Unless it is listed or the client's own; a server without a listing keeps its prefix."""
    made = bindings.gather("b", bound("docs", SEARCH), client=["mcp__docs__mine"], labels=["docs", "docs__v2", "dead"])
    assert made.vanished(name) == expected


def test_the_model_sees_functions_then_gateway_tools() -> None:
    """Under internal names, with the server's description and schema; other tool types are not functions."""
    made = bindings.gather("b", bound("docs", SEARCH), client=["book"])
    client: list[JsonObject] = [
        {"type": "function", "name": "book", "description": "Book", "parameters": {"type": "object"}, "strict": True},
        {"type": "mcp", "server_label": "docs"},
    ]
    assert bindings.model_tools(made, client) == (
        ModelFunction("book", "Book", {"type": "object"}, strict=True),
        ModelFunction("mcp__docs__search", "Find pages", SCHEMA),
    )


def test_the_way_back_is_the_table() -> None:
    """A hashed name finds its tool."""
    long = ListedTool("x" * 80, None, {})
    made = bindings.gather("b", bound("docs", long))
    [tool] = made.tools
    assert len(tool.internal_name) == 64
    assert made.by_internal(tool.internal_name) is tool
    assert Bindings("b").by_internal(tool.internal_name) is None


def test_a_function_keeps_what_only_the_responses_api_has() -> None:
    """Unknown fields of other gateways do not reach the model server."""
    declared = {"type": "function", "name": "f", "defer_loading": True, "async": None, "vendor": 1}
    (function,) = bindings.model_tools(Bindings("b"), [declared, {"type": "custom", "name": "c"}])
    assert (function.name, function.more) == ("f", {"defer_loading": True})
