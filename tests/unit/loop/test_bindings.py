"""Bindings: from a listing to the names the model sees, and back."""

import json
from dataclasses import replace

import pytest

from outlast.loop import bindings
from outlast.loop.bindings import Bindings, Hosted, ListedTool, ModelFunction, Shaping, ToolBinding, ToolPolicy
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


def test_the_operator_s_policy_of_a_tool_is_kept_with_it() -> None:
    """Its deadline and arguments; it may make a tool ask, never free it of that."""
    shaping = Shaping({"q": "query"}, {"limit": 5}, {"safe": True})
    policies = {"search": ToolPolicy(asks=True, timeout=5, shaping=shaping), "delete": ToolPolicy(timeout=9)}
    asks = {"search": False, "delete": True}
    tools = bindings.bind("docs", "u", None, [SEARCH, DELETE], asks=lambda spec: asks[spec.name], policies=policies)
    assert [(tool.name, tool.ask, tool.timeout) for tool in tools] == [("search", True, 5), ("delete", True, 9)]
    assert tools[0].sent({"q": "x", "limit": 1, "safe": False}) == {"limit": 1, "query": "x", "safe": True}
    assert tools[0].sent({}) == {"limit": 5, "safe": True}


def test_the_operator_s_hints_stand_in_the_place_of_the_server_s() -> None:
    """Both ways; what is not said is the server's."""
    assert ToolPolicy(read_only=False, idempotent=True).seen(SEARCH) == replace(
        SEARCH, read_only=False, idempotent=True
    )
    assert ToolPolicy().seen(SEARCH) == SEARCH


PLAIN = Shaping()
HOSTED = Hosted("image_generation", {"size": "1024x1024", "model": "big"}, "user-7")


def image_tool(schema: JsonObject, shaping: Shaping = PLAIN) -> ToolBinding:
    """The binding of a hosted type whose caller fixes two arguments."""
    spec = ListedTool("draw", None, schema)
    policy = ToolPolicy(shaping=shaping)
    return bindings.bind_hosted(HOSTED, "art", "https://art.test/mcp", spec, description="Draws.", policy=policy)


def test_a_hosted_type_is_a_function_of_its_own_name_that_never_asks() -> None:
    """The description is the type's where the server gives none."""
    tool = image_tool({"type": "object"})
    assert (tool.internal_name, tool.description, tool.ask, tool.label) == ("image_generation", "Draws.", False, "art")
    made = bindings.gather("bind_1", [tool])
    assert made.hosted == frozenset({"image_generation"})
    assert made.labels == ()


def test_arguments_of_a_hosted_call_are_merged_in_one_order() -> None:
    """Model, caller's tool over it, the operator's renames, defaults and overrides, the user where nobody is named."""
    tool = image_tool({"type": "object"}, Shaping({"size": "dimensions"}, {"quality": "low"}, {"model": "small"}))
    merged = tool.merged({"prompt": "a cat", "size": "1x1"})
    assert merged == {"prompt": "a cat", "size": "1024x1024", "model": "big"}
    assert tool.sent(merged) == {
        "quality": "low",
        "prompt": "a cat",
        "dimensions": "1024x1024",
        "model": "small",
        "user": "user-7",
    }
    assert tool.sent({**merged, "user": "me"})["user"] == "me"


def test_a_tool_that_takes_nothing_but_its_properties_is_sent_nothing_else() -> None:
    """What it knows by another name counts; the model's own arguments stay as they are."""
    schema = {"type": "object", "properties": {"prompt": {}, "dimensions": {}}, "additionalProperties": False}
    tool = image_tool(schema, Shaping({"size": "dimensions"}))
    assert tool.sent(tool.merged({"prompt": "x", "odd": 1})) == {"prompt": "x", "odd": 1, "dimensions": "1024x1024"}


def test_bindings_survive_their_row() -> None:
    """What is dumped to JSON loads equal."""
    tools = [*bound("docs", SEARCH, DELETE), image_tool({"type": "object"}, Shaping({"a": "b"}))]
    made = bindings.gather("bind_1", tools, client=["book"], labels=["docs", "dead"])
    assert bindings.load(json.loads(json.dumps(bindings.dump(made)))) == made
    assert made.labels == ("docs", "dead")


def test_a_row_of_before_there_were_hosted_tools_loads() -> None:
    """A run may have parked then."""
    made = bindings.gather("bind_1", bound("docs", SEARCH))
    row = bindings.dump(made)
    del row["tools"][0]["hosted"], row["tools"][0]["shaping"]
    assert bindings.load(row) == made


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
