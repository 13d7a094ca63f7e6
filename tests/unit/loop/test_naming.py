"""Internal names of gateway tools."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlast.loop.naming import has_prefix_of, internal_name, safe_name

LABELS = st.from_regex(r"[A-Za-z0-9_-]{1,64}", fullmatch=True)


@pytest.mark.parametrize(
    ("label", "tool", "name"),
    [
        ("desk", "refund_order", "mcp__desk__refund_order"),
        ("d", "t" * 56, "mcp__d__" + "t" * 56),
        ("d", "t" * 57, "mcp__d__" + "t" * 45 + "_92ab469f71"),
        ("desk", "refund.order", "mcp__desk__refund_order_c39f8f1b3c"),
    ],
)
def test_a_name_is_plain_when_it_can_be(label: str, tool: str, name: str) -> None:
    """Else shortened or replaced, with a hash of the original; fixed for ever, since histories are replayed."""
    assert internal_name(label, tool) == name


@given(label=LABELS, tool=st.text(min_size=1, max_size=100))
def test_any_name_is_one_models_take_and_belongs_to_its_server(label: str, tool: str) -> None:
    """Charset, length and prefix hold for every label and tool."""
    name = internal_name(label, tool)
    assert re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", name)
    assert has_prefix_of(name, label)


def test_tools_that_differ_only_in_replaced_characters_keep_apart() -> None:
    """The hash is of the original."""
    assert len({internal_name("desk", tool) for tool in ("a.b", "a/b", "a_b", "a b")}) == 4


def test_another_servers_prefix_is_not_claimed() -> None:
    """A client function may be called nearly alike."""
    assert [has_prefix_of(name, "desk") for name in ("mcp__desk__x", "mcp__desktop__x", "desk__x", "mcp__desk")] == [
        True,
        False,
        False,
        False,
    ]


@pytest.mark.parametrize(("text", "name"), [("shell_call", "shell_call"), ("acme:tool", "acme_tool"), ("", "item")])
def test_any_text_can_be_made_a_name(text: str, name: str) -> None:
    """For items of unknown type."""
    assert safe_name(text) == name
