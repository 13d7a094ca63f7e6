"""Preparation holds its promises for any list of items we can emit or be sent, in whatever order."""

import itertools
from dataclasses import dataclass
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from outlast.loop import pairing
from outlast.loop.prepare import prepare
from outlast.protocol import inputs, json
from outlast.protocol.items import Item, Message, NativeItem, Reasoning, dump, parse_item
from outlast.protocol.json import JsonObject


@dataclass(frozen=True)
class Server:
    """What a model server reads."""

    images: bool
    encrypted_reasoning: bool
    native: bool


SERVERS = st.builds(Server, st.booleans(), st.booleans(), st.booleans())
IDS = st.sampled_from(["a", "b", "c"])
TEXTS = st.sampled_from(["", "hi", "ä"])
# What a client or another gateway adds to items for itself.
MARKS = {"internal_metadata": st.just({"turn": 1}), "_kind": st.just("private")}
STATUS = st.sampled_from(["completed", "incomplete", "in_progress"])
LABELS = st.sampled_from(["desk", "docs"])
TEXT_PART = st.fixed_dictionaries({"type": st.just("input_text"), "text": TEXTS})
IMAGE_PART = st.just({"type": "input_image", "image_url": "http://x/y.png"})
PARTS = st.lists(TEXT_PART | IMAGE_PART, max_size=2)
SAID_PART = st.fixed_dictionaries({"type": st.just("output_text"), "text": TEXTS, "annotations": st.just([])})


def typed(kind: str, required: dict[str, Any], **optional: Any) -> st.SearchStrategy[JsonObject]:
    """Items of a type; optional keys may be missing."""
    return st.fixed_dictionaries({"type": st.just(kind), **required}, optional={**optional, **MARKS})


def model_id(prefix: str) -> st.SearchStrategy[str]:
    """Ids of ours, few enough to collide."""
    return IDS.map(lambda name: f"{prefix}_{name}")


CLIENT_MADE = st.one_of(
    typed("message", {"role": st.sampled_from(["user", "system", "developer"]), "content": PARTS}),
    typed("function_call_output", {"call_id": IDS, "output": TEXTS | PARTS}),
    typed("custom_tool_call_output", {"call_id": IDS, "output": TEXTS}),
    typed("mcp_approval_response", {"approval_request_id": model_id("mcpr"), "approve": st.booleans()}, reason=TEXTS),
    typed("commandExecution", {"id": IDS}, output=TEXTS, content=TEXTS, call_id=IDS),
    typed("additional_tools", {"role": st.just("developer"), "tools": st.just([{"type": "custom", "name": "f"}])}),
    typed("shell_call_output", {"call_id": IDS, "output": st.just([{"stdout": "x", "stderr": ""}])}),
    typed("local_shell_call_output", {"id": IDS, "output": TEXTS}),
    typed("tool_search_output", {"tools": st.just([]), "call_id": IDS | st.none()}),
)
MODEL_MADE = st.one_of(
    typed(
        "message",
        {
            "id": model_id("msg"),
            "role": st.just("assistant"),
            "content": st.lists(SAID_PART, max_size=2),
            "status": STATUS,
        },
    ),
    typed(
        "reasoning",
        {"id": model_id("rs"), "summary": st.just([]) | st.just([{"type": "summary_text", "text": "in short"}])},
        content=st.lists(st.fixed_dictionaries({"type": st.just("reasoning_text"), "text": TEXTS}), max_size=2),
        encrypted_content=st.none() | st.just("sealed") | st.just({"opaque": ["sealed"]}),
        status=STATUS,
    ),
    typed(
        "function_call",
        {"id": model_id("fc"), "call_id": IDS, "name": st.just("f"), "arguments": TEXTS, "status": STATUS},
        namespace=st.just("mcp__space"),
    ),
    typed("custom_tool_call", {"id": model_id("ctc"), "call_id": IDS, "name": st.just("f"), "input": TEXTS}),
    typed("shell_call", {"call_id": IDS, "action": st.just({"commands": ["ls"]})}, id=model_id("sh"), status=STATUS),
    typed("local_shell_call", {"id": model_id("ls"), "call_id": IDS, "action": st.just({})}, status=STATUS),
    typed("tool_search_call", {"arguments": st.just({}), "call_id": IDS | st.none()}, status=STATUS),
    typed("web_search_call", {"id": model_id("ws"), "status": STATUS, "action": st.just({"type": "search"})}),
    typed("mcp_list_tools", {"id": model_id("mcpl"), "server_label": LABELS, "tools": st.just([])}),
    typed(
        "mcp_call",
        {"id": model_id("mcp"), "server_label": LABELS, "name": st.just("t"), "arguments": TEXTS},
        output=st.none() | TEXTS,
        error=st.none() | st.just({"type": "http_error", "code": 502, "message": "bad gateway"}),
        approval_request_id=st.none() | model_id("mcpr"),
        status=STATUS,
    ),
    typed(
        "mcp_approval_request",
        {"id": model_id("mcpr"), "server_label": LABELS, "name": st.just("t"), "arguments": TEXTS},
    ),
)
CHAINS = st.lists(CLIENT_MADE | MODEL_MADE, max_size=12)


def parsed(raw: list[JsonObject]) -> tuple[Item, ...]:
    """Items as a client sends them."""
    return inputs.parse_input(raw, max_items=1000)


def dumped(raw: tuple[Any, ...]) -> list[JsonObject]:
    """Items as JSON."""
    return [dump(item) for item in raw]


@given(CHAINS, SERVERS)
def test_preparing_what_is_prepared_changes_nothing(raw: list[JsonObject], server: Server) -> None:
    """The transcript is a fixed point."""
    once = prepare(parsed(raw), upstream=server).transcript
    assert dumped(prepare(once, upstream=server).transcript) == dumped(once)


@given(CHAINS, SERVERS)
def test_every_call_is_paired_once_and_in_order(raw: list[JsonObject], server: Server) -> None:
    """One output per call, after it, of its form; no output alone."""
    calls: dict[str, str] = {}
    answered: set[str] = set()
    for item in dumped(prepare(parsed(raw), upstream=server).transcript):
        if item["type"] in ("function_call", "custom_tool_call"):
            assert item["call_id"] not in calls
            calls[item["call_id"]] = item["type"]
        elif item["type"] in ("function_call_output", "custom_tool_call_output"):
            assert item["type"] == f"{calls[item['call_id']]}_output"
            assert item["call_id"] not in answered
            answered.add(item["call_id"])
    assert answered == calls.keys()


@given(CHAINS, SERVERS)
def test_a_stored_chain_and_the_same_items_sent_back_give_one_transcript(raw: list[JsonObject], server: Server) -> None:
    """The store mints ids for client-made items and has been through JSON; the model must not see a difference."""
    numbers = iter(range(1000))
    rows = inputs.stored(parsed(raw), lambda kind: f"new_{next(numbers)}")
    chain = [parse_item(json.loads(json.dumps(row))) for row in rows]
    sent = prepare(parsed(raw), upstream=server)
    kept = prepare(chain, upstream=server)
    assert (dumped(kept.transcript), kept.labels) == (dumped(sent.transcript), sent.labels)


@given(CHAINS)
def test_what_a_server_cannot_read_never_reaches_it(raw: list[JsonObject]) -> None:
    """No image, no seal."""
    text = json.dumps(dumped(prepare(parsed(raw), upstream=Server(False, False, False)).transcript))
    assert b"input_image" not in text
    assert b"encrypted_content" not in text


@given(CHAINS, SERVERS)
def test_native_calls_are_paired_once_and_in_order(raw: list[JsonObject], server: Server) -> None:
    """Shell calls and their like: none without its output, none twice, no output first; nothing of them elsewhere."""
    open_calls: set[tuple[str, str]] = set()
    seen: set[tuple[str, str]] = set()
    for item in prepare(parsed(raw), upstream=server).transcript:
        if not isinstance(item, NativeItem):
            continue
        assert server.native
        if (call := pairing.native_call(item)) is not None:
            assert call not in seen
            seen.add(call)
            open_calls.add(call)
        elif (answer := pairing.native_answer(item)) is not None:
            open_calls.remove(answer)
    assert not open_calls


@given(CHAINS, SERVERS)
def test_marks_of_others_stay_behind(raw: list[JsonObject], server: Server) -> None:
    """What clients and gateways note on items for themselves is no model server's business."""
    for item in prepare(parsed(raw), upstream=server).transcript:
        if not isinstance(item, NativeItem):
            assert not dump(item).keys() & MARKS


@given(CHAINS)
def test_sealed_reasoning_is_followed_by_what_it_led_to(raw: list[JsonObject]) -> None:
    """Its server refuses it otherwise."""
    transcript = prepare(parsed(raw), upstream=Server(True, True, True)).transcript
    assert not transcript or not isinstance(transcript[-1], Reasoning)
    for item, after in itertools.pairwise(transcript):
        if isinstance(item, Reasoning) and not isinstance(after, Reasoning):
            made = after.role == "assistant" if isinstance(after, Message) else after.type.endswith("_call")
            assert made
