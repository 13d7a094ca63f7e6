"""Tools: what is accepted, what is refused by name, what a response shows of them."""

from typing import Any

import pytest

from outlast.protocol import native, tools
from outlast.protocol.errors import InvalidRequest, UnsupportedFeature

MCP: dict[str, Any] = {"type": "mcp", "server_label": "desk", "server_url": "https://desk.example/mcp"}
FUNCTION: dict[str, Any] = {"type": "function", "name": "lookup"}


def test_an_mcp_tool_shows_everything_but_its_secrets() -> None:
    """`authorization` and `headers` leave with the request; unknown fields stay."""
    sent = {
        **MCP,
        "authorization": "secret",
        "headers": {"X-Key": "secret"},
        "allowed_tools": ["refund"],
        "require_approval": {"never": {"read_only": True}},
        "server_description": "the desk",
        "colour": "red",
    }
    (tool,) = tools.parse_tools([sent])
    assert isinstance(tool, tools.McpTool)
    assert tools.public(tool) == {key: sent[key] for key in sent if key not in ("authorization", "headers")}
    assert "secret" not in repr(tool)
    assert tool.secrets() == {"X-Key": "secret", "Authorization": "Bearer secret"}


def test_what_a_response_shows_of_a_tool_parses_again() -> None:
    """A later round reads the tools from the record."""
    (tool,) = tools.parse_tools([{**MCP, "require_approval": "never", "allowed_tools": {"tool_names": ["a"]}}])
    assert tools.parse_tools([tools.public(tool)]) == (tool,)


def test_a_function_always_shows_its_three_keys() -> None:
    """Strict readers want description, parameters and strict, null or not."""
    (tool,) = tools.parse_tools([FUNCTION])
    assert tools.public(tool) == {**FUNCTION, "description": None, "parameters": None, "strict": None}


@pytest.mark.parametrize(
    "kind",
    [
        "web_search",
        "web_search_preview",
        "web_search_preview_2025_03_11",
        "web_search_2025_08_26",
        "file_search",
        "code_interpreter",
        "image_generation",
        "computer",
        "computer_use_preview",
        "custom",
        "namespace",
        "tool_search",
        "shell",
        "local_shell",
        "apply_patch",
        "programmatic_tool_calling",
        "teleport",
    ],
)
def test_other_tool_types_are_kept_as_sent(kind: str) -> None:
    """Whether they are of use is the model server's to know."""
    sent = {"type": kind, "name": "x", "anything": {"else": [1]}}
    _, tool = tools.parse_tools([FUNCTION, sent])
    assert tools.public(tool) == sent


@pytest.mark.parametrize(("kind", "skip"), [("web_search_2025_08_26", False), ("custom", False), ("shell", False)])
def test_what_a_model_cannot_have_is_refused_by_name(kind: str, skip: bool) -> None:
    """The text names the type and the setting."""
    with pytest.raises(UnsupportedFeature) as caught:
        native.admit(tools.parse_tools([FUNCTION, {"type": kind}]), None, bound=["file_search"], skip=skip)
    assert caught.value.param == "tools[1].type"
    assert repr(kind) in caught.value.message
    assert '[tools] unsupported = "skip"' in caught.value.message


@pytest.mark.parametrize("kind", ["web_search", "web_search_preview", "web_search_preview_2025_03_11"])
def test_a_hosted_type_that_nothing_runs_is_refused_with_the_key_that_would_bind_it(kind: str) -> None:
    """Every spelling names the one key; bound, every spelling is fine, chosen too."""
    declared = tools.parse_tools([{"type": kind}])
    with pytest.raises(UnsupportedFeature) as caught:
        native.admit(declared, None, bound=["file_search"], skip=False)
    assert '[mcp.servers.NAME] builtin_type = "web_search", builtin_tool_name = "..."' in caught.value.message
    for choice in (None, "required", tools.parse_tool_choice({"type": "web_search"}, declared)):
        native.admit(declared, choice, bound=["web_search"], skip=False)


@pytest.mark.parametrize(("kind", "skip"), [("teleport", False), ("teleport", True), ("web_search", True)])
def test_other_tools_are_left_out(kind: str, skip: bool) -> None:
    """A type nobody knows always, a known one when the operator says so; but not a chosen one."""
    declared = tools.parse_tools([{"type": kind}])
    native.admit(declared, "auto", bound=(), skip=skip)
    for choice in ("required", tools.parse_tool_choice({"type": kind}, declared)):
        with pytest.raises(UnsupportedFeature) as caught:
            native.admit(declared, choice, bound=(), skip=skip)
        assert caught.value.param == "tool_choice"


@pytest.mark.parametrize("place", ["container", "environment"])
def test_secrets_inside_a_tool_are_refused(place: str) -> None:
    """They would be echoed and stored."""
    policy = {"type": "allowlist", "allowed_domains": ["x"], "domain_secrets": [{"name": "K", "value": "secret"}]}
    with pytest.raises(UnsupportedFeature) as caught:
        tools.parse_tools([{"type": "shell", place: {"network_policy": policy}}])
    assert caught.value.param == f"tools[0].{place}.network_policy.domain_secrets"
    assert "secret'" not in caught.value.message


SPACE: dict[str, Any] = {
    "type": "namespace",
    "name": "n",
    "description": "",
    "tools": [{"type": "function", "name": "inside"}, {"type": "custom", "name": "patch"}],
}


@pytest.mark.parametrize(
    ("declared", "raw"),
    [
        ({"type": "custom", "name": "patch"}, {"type": "custom", "name": "patch"}),
        ({"type": "web_search"}, {"type": "web_search_preview"}),
        ({"type": "computer_use_preview"}, {"type": "computer_use"}),
        ({"type": "shell"}, {"type": "shell"}),
        ({"type": "teleport"}, {"type": "teleport"}),
        (SPACE, {"type": "function", "name": "inside"}),
        (SPACE, {"type": "custom", "name": "patch"}),
        ({"type": "shell"}, {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "shell"}]}),
    ],
)
def test_any_declared_tool_can_be_chosen(declared: dict[str, Any], raw: dict[str, Any]) -> None:
    """In the spelling of the request, inside namespaces too."""
    choice = tools.parse_tool_choice(raw, tools.parse_tools([declared]))
    assert isinstance(choice, tools.FunctionChoice | native.NativeTool | tools.AllowedToolsChoice)
    assert choice.model_dump(exclude_unset=True) == raw


@pytest.mark.parametrize(
    ("raw", "param"),
    [
        ("lookup", "tools[0]"),
        ({}, "tools[0].type"),
        ({"type": 3}, "tools[0].type"),
        ({"type": "function"}, "tools[0].name"),
        ({"type": "function", "function": {"name": "x"}}, "tools[0].name"),
        ({"type": "function", "name": "a b"}, "tools[0].name"),
        ({"type": "function", "name": "a" * 65}, "tools[0].name"),
        ({"type": "function", "name": "a\n"}, "tools[0].name"),
        ({"type": "function", "name": "a", "parameters": "{}"}, "tools[0].parameters"),
        ({"type": "function", "name": "a", "strict": "yes"}, "tools[0].strict"),
        ({**MCP, "server_label": "my desk"}, "tools[0].server_label"),
        ({"type": "mcp", "server_label": "desk"}, "tools[0].server_url"),
        ({**MCP, "server_url": "desk.example"}, "tools[0].server_url"),
        ({**MCP, "server_url": "file:///etc/passwd"}, "tools[0].server_url"),
        ({**MCP, "server_url": "http://[::1"}, "tools[0].server_url"),
        ({**MCP, "server_url": "https://me:pw@desk.example/"}, "tools[0].server_url"),
        ({**MCP, "connector_id": "connector_gmail"}, "tools[0].connector_id"),
        ({**MCP, "tunnel_id": "t"}, "tools[0].tunnel_id"),
        ({**MCP, "headers": {"a": 1}}, "tools[0].headers.a"),
        ({**MCP, "headers": {"a": "b\r\nc: d"}}, "tools[0].headers"),
        ({**MCP, "headers": {"a b": "c"}}, "tools[0].headers"),
        ({**MCP, "authorization": "a\nb"}, "tools[0].authorization"),
        ({**MCP, "authorization": "a", "headers": {"authorization": "b"}}, "tools[0].authorization"),
        ({**MCP, "allowed_tools": "all"}, "tools[0].allowed_tools"),
        ({**MCP, "allowed_tools": {"tool_names": "a"}}, "tools[0].allowed_tools.tool_names"),
        ({**MCP, "require_approval": "maybe"}, "tools[0].require_approval"),
        ({**MCP, "require_approval": True}, "tools[0].require_approval"),
        ({**MCP, "require_approval": {"nevr": {}}}, "tools[0].require_approval.nevr"),
        ({**MCP, "require_approval": {"never": {"read_only": "yes"}}}, "tools[0].require_approval.never.read_only"),
        ({**MCP, "required": "yes"}, "tools[0].required"),
    ],
)
def test_a_wrong_tool_is_refused_with_its_path(raw: object, param: str) -> None:
    """`param` is the path of the value to change, and the text shows it."""
    with pytest.raises(InvalidRequest) as caught:
        tools.parse_tools([raw])
    assert caught.value.param == param
    assert f"'{param}'" in caught.value.message


@pytest.mark.parametrize(
    ("first", "second", "text"),
    [
        (FUNCTION, FUNCTION, "'tools[0].name' and 'tools[1].name' are both 'lookup': give each tool its own."),
        (MCP, MCP, "'tools[0].server_label' and 'tools[1].server_label' are both 'desk': give each tool its own."),
    ],
)
def test_two_tools_of_one_name_are_refused_naming_both(first: object, second: object, text: str) -> None:
    """A call could not be told apart."""
    with pytest.raises(InvalidRequest) as caught:
        tools.parse_tools([first, second])
    assert caught.value.message == text


def test_a_function_may_be_named_like_a_server() -> None:
    """Their names for the model differ."""
    assert len(tools.parse_tools([{**FUNCTION, "name": "desk"}, MCP])) == 2


@pytest.mark.parametrize(
    "raw",
    [
        None,
        "none",
        "auto",
        "required",
        {"type": "function", "name": "lookup"},
        {"type": "mcp", "server_label": "desk"},
        {"type": "mcp", "server_label": "desk", "name": "refund"},
        {
            "type": "allowed_tools",
            "mode": "required",
            "tools": [{"type": "function", "name": "lookup"}, {"type": "mcp", "server_label": "desk"}],
        },
    ],
)
def test_a_tool_choice_keeps_what_was_sent(raw: Any) -> None:
    """Every form that is served."""
    choice = tools.parse_tool_choice(raw, tools.parse_tools([FUNCTION, MCP]))
    assert (choice if choice is None or isinstance(choice, str) else choice.model_dump(exclude_unset=True)) == raw


@pytest.mark.parametrize(
    ("raw", "param"),
    [
        ("any", "tool_choice"),
        (3, "tool_choice"),
        ({}, "tool_choice.type"),
        ({"type": "function"}, "tool_choice.name"),
        ({"type": "function", "name": "other"}, "tool_choice.name"),
        ({"type": "mcp", "server_label": "other"}, "tool_choice.server_label"),
        ({"type": "web_search_preview"}, "tool_choice.type"),
        ({"type": "custom", "name": "x"}, "tool_choice.type"),
        ({"type": "teleport"}, "tool_choice.type"),
        ({"type": "allowed_tools", "mode": "auto", "tools": []}, "tool_choice.tools"),
        ({"type": "allowed_tools", "mode": "any", "tools": [FUNCTION]}, "tool_choice.mode"),
        ({"type": "allowed_tools", "mode": "auto", "tools": [{"type": "shell"}]}, "tool_choice.tools[0].type"),
        (
            {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "b"}]},
            "tool_choice.tools[0].name",
        ),
    ],
)
def test_a_wrong_tool_choice_is_refused_with_its_path(raw: object, param: str) -> None:
    """Unknown values, unserved types and undeclared tools."""
    with pytest.raises(InvalidRequest) as caught:
        tools.parse_tool_choice(raw, tools.parse_tools([FUNCTION, MCP]))
    assert caught.value.param == param


def test_required_without_tools_is_refused() -> None:
    """It could never be met."""
    with pytest.raises(InvalidRequest, match="'tools' is empty"):
        tools.parse_tool_choice("required", ())
