"""Where a context is cut, what stays of it, and when."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlast.loop import compaction
from outlast.loop.compaction import Memory, Opener
from outlast.protocol import native
from outlast.protocol.items import Compaction, Item, dump, parse_item
from tests.unit.loop.test_prepare_properties import CHAINS, parsed

JsonObject = dict[str, Any]


def said(text: str, role: str = "user") -> JsonObject:
    """A message."""
    kind = "output_text" if role == "assistant" else "input_text"
    return {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}


def called(call_id: str, kind: str = "function_call") -> JsonObject:
    """A call of any kind."""
    if kind == "mcp_approval_request":
        return {"type": kind, "id": call_id, "server_label": "desk", "name": "refund", "arguments": "{}"}
    fields: JsonObject = {"function_call": {"arguments": "{}"}, "custom_tool_call": {"input": "x"}}.get(kind, {})
    return {"type": kind, "call_id": call_id, "name": "f", **fields}


def output(call_id: str, kind: str = "function_call") -> JsonObject:
    """Its output."""
    if kind == "mcp_approval_request":
        return {"type": "mcp_approval_response", "approval_request_id": call_id, "approve": True}
    answer = next((each for each, call in native.ANSWERS.items() if call == kind), f"{kind}_output")
    # The oldest shell tool's output has its call's id for its own.
    key = "id" if answer == "local_shell_call_output" else "call_id"
    return {"type": answer, key: call_id, "output": "ok"}


def sealed(name: str = "m") -> JsonObject:
    """A compaction item."""
    return {"type": "compaction", "id": f"cmp_{name}", "encrypted_content": name}


def items(*raw: JsonObject) -> list[Item]:
    """As types."""
    return [parse_item(each) for each in raw]


def opener(**memories: Memory) -> Opener:
    """Opens what is sealed under these names."""
    return lambda item: memories.get(str(item.encrypted_content))


def read(raw: list[JsonObject], **memories: Memory) -> list[str]:
    """What a model reads: texts; for other items their types."""
    found = []
    for item in compaction.expanded(items(*raw), opener(**memories)):
        body = dump(item)
        text = body["content"][0]["text"] if body["type"] == "message" else body["type"]
        found.append(text.split("\n")[2] if text.startswith("The conversation so far") else text)
    return found


KINDS = ["function_call", "custom_tool_call", "commandExecution", "mcp_approval_request", *sorted(native.CALLS)]
REASONING: JsonObject = {"type": "reasoning", "id": "rs_1", "content": [{"type": "reasoning_text", "text": "hm"}]}


def test_a_list_without_compaction_is_left_alone() -> None:
    """Nothing is moved, nothing is lost."""
    raw = [said("u"), REASONING, called("a"), output("a"), said("a", "assistant")]
    assert compaction.expanded(items(*raw), opener()) == items(*raw)


def test_what_the_model_made_goes_and_what_was_said_stays() -> None:
    """The summary stands where the model's part was."""
    raw = [
        said("rules", "developer"),
        said("u1"),
        called("a"),
        output("a"),
        said("a1", "assistant"),
        sealed(),
        said("u2"),
    ]
    assert read(raw, m=Memory("notes")) == ["rules", "u1", "notes", "u2"]


def test_a_summary_stands_before_what_had_no_answer() -> None:
    """A model reads the open question last."""
    raw = [said("u1"), said("a1", "assistant"), said("u2"), sealed(), said("a2", "assistant")]
    cut = compaction.cut(items(*raw[:3]), opener())
    assert cut.unanswered == 1
    assert read(raw, m=cut.memory("notes")) == ["u1", "notes", "u2", "a2"]


@pytest.mark.parametrize(
    ("kept", "expected"),
    [
        ([], ["rules", "u1", "notes", "u2"]),
        ([said("rules", "developer"), said("u1")], ["rules", "u1", "notes", "u2"]),
        ([said("new rules", "developer")], ["new rules", "u1", "notes", "u2"]),
        ([said("u1")], ["rules", "u1", "notes", "u2"]),
    ],
)
def test_what_a_client_dropped_comes_out_of_the_item(kept: list[JsonObject], expected: list[str]) -> None:
    """Clients may leave out what stands before the newest item; what they renewed is used as it is."""
    cut = compaction.cut(items(said("rules", "developer"), said("u1"), said("a1", "assistant")), opener())
    assert read([*kept, sealed(), said("u2")], m=cut.memory("notes")) == expected


@pytest.mark.parametrize("kind", KINDS)
def test_an_answered_call_is_summed_up_whole(kind: str) -> None:
    """Neither half is left behind, and its reasoning goes with it."""
    cut = compaction.cut(items(said("u"), REASONING, called("a", kind), output("a", kind)), opener())
    assert (cut.kept, [item.type for item in cut.dropped]) == ((), ["reasoning", *kinds(kind)])


def kinds(kind: str) -> list[str]:
    """A call and its output."""
    return [called("a", kind)["type"], output("a", kind)["type"]]


@pytest.mark.parametrize("kind", KINDS)
def test_a_pending_call_is_kept_with_its_reasoning(kind: str) -> None:
    """Its output is still to come."""
    raw = [said("u"), REASONING, called("b", kind), output("b", kind), {**REASONING, "id": "rs_2"}, called("a", kind)]
    cut = compaction.cut(items(*raw), opener())
    assert list(cut.kept) == items(*raw[4:])
    later = [sealed(), output("a", kind)]
    expected = ["u", "notes", "reasoning", kind, output("a", kind)["type"]]
    assert read([*raw, *later], m=cut.memory("notes")) == expected
    assert read(later, m=cut.memory("notes")) == expected


def test_the_newest_item_supersedes_older_ones() -> None:
    """Also one that nobody could open."""
    first = compaction.cut(items(said("u1"), said("a1", "assistant")), opener()).memory("one")
    raw = [sealed("first"), said("u2"), said("a2", "assistant")]
    second = compaction.cut(items(*raw), opener(first=first))
    assert [placed.memory and placed.memory.summary for placed in second.told] == [None, "one", None, None]
    chained = [*raw, sealed("second"), said("u3")]
    assert read(chained, first=first, second=second.memory("two")) == ["u1", "u2", "two", "u3"]
    assert read(chained[3:], second=second.memory("two")) == ["u1", "u2", "two", "u3"]
    assert read([sealed("strange"), said("u2"), sealed("second")], second=Memory("two")) == ["u2", "two"]


def test_tools_that_came_as_items_stay() -> None:
    """They are what can be done, not what was done."""
    tools: JsonObject = {"type": "additional_tools", "role": "developer", "tools": []}
    listed: JsonObject = {"type": "mcp_list_tools", "id": "mcpl_1", "server_label": "desk", "tools": []}
    raw = [tools, listed, said("u"), said("a", "assistant"), sealed()]
    assert read(raw, m=Memory("notes")) == ["additional_tools", "mcp_list_tools", "u", "notes"]


def test_a_memory_survives_its_seal_without_attachments() -> None:
    """Pictures would be carried about with every turn."""
    picture = {"type": "input_image", "image_url": "data:image/png;base64,AAAA"}
    message = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "see"}, picture]}
    memory = compaction.cut(items(message, called("a")), opener()).memory("notes")
    assert compaction.load(memory.dump()) == memory
    assert "base64" not in str(memory.dump())
    assert memory.kept == tuple(items(called("a")))


@pytest.mark.parametrize(
    ("context", "gain", "expected"),
    [(1000, 900, False), (1001, 125, True), (1001, 124, False), (50_000, 0, False)],
)
def test_a_context_is_compacted_above_its_threshold_and_if_it_helps(context: int, gain: int, expected: bool) -> None:
    """A context that no summary makes small is not summed up in every round."""
    assert compaction.due(context, 1000, gain) is expected


def test_the_request_for_a_summary_tells_the_conversation_in_words() -> None:
    """Calls, results, earlier notes; long ones by their ends; no reasoning."""
    first = Memory("earlier notes")
    raw = [
        sealed(),
        said("u1"),
        REASONING,
        called("a"),
        {**output("a"), "output": "x" * 30_000},
        {
            "type": "mcp_call",
            "id": "mcp_1",
            "server_label": "desk",
            "name": "refund",
            "arguments": "{}",
            "output": "refunded",
        },
        said("a1", "assistant"),
    ]
    asked = dump(compaction.asked(compaction.cut(items(*raw), opener(m=first))))["content"][0]["text"]
    told = asked.split("<conversation>\n")[1].split("\n</conversation>")[0].split("\n\n")
    half = "x" * 12_000
    assert told == [
        "[notes on what was before]\nearlier notes",
        "[user]\nu1",
        "[calls f]\n{}",
        f"[result]\n{half}\n[6000 characters left out]\n{half}",
        "[calls desk.refund]\n{}\n[result]\nrefunded",
        "[assistant]\na1",
    ]


@given(CHAINS, st.integers(min_value=0, max_value=12))
def test_any_list_is_cut_whole(raw: list[JsonObject], place: int) -> None:
    """No call is divided from its output, messages keep their words and order, cutting again drops only the notes."""
    before = list(parsed(raw))[:place]
    once = compaction.cut(before, opener())
    memory = once.memory("notes")
    window = compaction.expanded([*before, *items(sealed())], opener(m=memory))
    assert [dump(item) for item in window if _said(item) and not _notes(item)] == [
        dump(item) for item in before if _said(item)
    ]
    assert not _keys(window, 1) & _keys(before, 1)
    assert _keys(once.kept, 0) == _keys(before, 0) - _keys(before, 1)
    again = compaction.cut([*before, *items(sealed())], opener(m=memory))
    assert (again.messages, again.kept) == (once.messages, once.kept)
    assert all(isinstance(item, Compaction) for item in again.dropped)


def _said(item: Item) -> bool:
    body = dump(item)
    return bool(body["type"] == "message" and body["role"] != "assistant")


def _notes(item: Item) -> bool:
    content = dump(item)["content"]
    return bool(content) and content[0].get("text", "").startswith("The conversation so far was compacted")


def _keys(found: Any, side: int) -> set[Any]:
    """Keys of calls (0) or of their outputs (1) in a list."""
    return {key for item in found if (key := compaction.unit(item)[side]) is not None}
