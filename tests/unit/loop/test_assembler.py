"""The assembler on well-behaved upstreams: whole public sequences, judged by the official client as well."""

from outlast.loop.calls import CUT, NOT_AN_OBJECT, NewCall
from outlast.protocol import events
from outlast.protocol.usage import Usage
from tests.unit.loop.rounds import (
    DELETE,
    SEARCH,
    Play,
    call,
    completed,
    cut_by,
    failed_gateway,
    message,
    shown_client,
    shown_gateway,
    shown_message,
    text_delta,
    up,
)


def test_a_message_is_relayed_under_our_id() -> None:
    """Lifecycle events are dropped, obfuscation and null fields removed, unknown fields kept, usage taken."""
    shown, end = Play().run(
        up("created", response={"id": "up"}),
        up("in_progress", response={"id": "up"}),
        *message(0, "Hel", "lo", phase="final_answer", extra=None),
        completed(input_tokens=3, output_tokens=4),
    )
    assert shown == shown_message("msg_1", "Hel", "lo", phase="final_answer")
    assert (end.usage, end.produced, end.incomplete) == (Usage(3, 0, 4, 0, 7), True, None)
    assert (end.run, end.ask, end.client, end.refused, end.over_cap) == ((), (), False, 0, False)


def test_unknown_fields_of_every_frame_go_on_with_it() -> None:
    """Lossless: also on the frames that open and close an item or a part, which are made anew under our id."""
    marked = [event.with_rest(x_frame=f"{number} {event.type}") for number, event in enumerate(message(0, "Hi"))]
    shown, _ = Play().run(*marked, completed())
    assert [body["x_frame"] for body in shown] == [event.rest["x_frame"] for event in marked]
    assert [{**body, "x_frame": None} for body in shown] == [
        {**body, "x_frame": None} for body in shown_message("msg_1", "Hi")
    ]


def test_a_delta_is_shown_with_the_batch_that_brought_it() -> None:
    """Nothing of a text waits."""
    play = Play()
    play.feed(message(0, "a")[:3])
    assert play.feed([text_delta(0, "b")]) == [
        {"type": events.TEXT_DELTA, "item_id": "msg_1", "content_index": 0, "delta": "b", "logprobs": []}
    ]


def test_the_end_of_a_message_waits_for_the_next_item() -> None:
    """A cut right after a finished message leaves it open, so that no finished copy stays beside a new one."""
    play = Play()
    whole = shown_message("msg_1", "hi")
    assert play.feed(message(0, "hi")) == whole[:3]
    assert play.feed([up("output_item.added", 1, item={"type": "message", "id": "up_1", "content": []})]) == [
        *whole[3:],
        shown_message("msg_2")[0],
    ]
    assert not play.assembler.announced


def test_a_gateway_call_is_announced_whole_and_left_running() -> None:
    """Under its public name; its row carries what execution needs; the model's call id is ours."""
    play = Play()
    shown, end = play.run(*message(0, "hi"), *call(1, "mcp__docs__search", '{"q":"x"}'), completed())
    assert shown == [*shown_message("msg_1", "hi"), *shown_gateway("mcp_2", '{"q":"x"}')]
    assert play.rows == {0: NewCall(0, "run", "mcp_2", "mcp_2", "search", '{"q":"x"}', "docs", SEARCH)}
    assert (end.run, end.client, end.produced) == ((0,), False, True)


def test_a_call_is_silent_until_it_is_whole() -> None:
    """Neither its item nor a part of its arguments is shown before; then all comes together."""
    play = Play()
    *beginning, done = call(0, "book", '{"day":1}')
    assert play.feed(beginning) == []
    assert play.feed([done]) == shown_client("fc_1", "call_0", "book", '{"day":1}')
    assert play.assembler.announced
    assert play.rows == {0: NewCall(0, "client", "fc_1", "call_0", "book", '{"day":1}')}


def test_a_client_call_keeps_what_the_upstream_said_of_it() -> None:
    """Call id and unknown fields are the upstream's; an unknown name is a client's too."""
    shown, end = Play().run(*call(0, "invented", '{"a":1}', namespace="crm"), completed())
    assert shown == shown_client("fc_1", "call_0", "invented", '{"a":1}', namespace="crm")
    assert (end.client, end.run) == (True, ())


def test_no_arguments_are_an_empty_object() -> None:
    """Some models say nothing at all."""
    shown, _ = Play().run(*call(0, "mcp__docs__search", ""), *call(1, "book", ""), completed())
    assert shown == [*shown_gateway("mcp_1", "{}"), *shown_client("fc_2", "call_1", "book", "{}")]


def test_a_call_that_asks_shows_nothing() -> None:
    """The item it becomes when approved has its id already."""
    play = Play()
    shown, end = play.run(*call(0, "mcp__docs__delete", '{"id":7}'), completed())
    assert shown == []
    assert play.rows == {0: NewCall(0, "ask", "mcp_1", "mcp_1", "delete", '{"id":7}', "docs", DELETE)}
    assert (end.ask, play.assembler.announced) == ((0,), False)


def test_refused_calls_fail_at_once_and_the_round_goes_on() -> None:
    """No JSON object, no such tool: the item says why, the sibling runs."""
    play = Play()
    shown, end = play.run(
        *call(0, "mcp__docs__search", "[1]"),
        *call(1, "mcp__docs__gone", "{}"),
        *call(2, "mcp__docs__search", "{}"),
        completed(),
    )
    missing = "server 'docs' has no tool 'gone'"
    assert shown == [
        *shown_gateway("mcp_1", "[1]"),
        *failed_gateway("mcp_1", "[1]", NOT_AN_OBJECT),
        *shown_gateway("mcp_2", "{}", name="gone"),
        *failed_gateway("mcp_2", "{}", missing, name="gone"),
        *shown_gateway("mcp_3", "{}"),
    ]
    assert [(row.action, row.refusal) for row in play.rows.values()] == [
        ("refused", NOT_AN_OBJECT),
        ("refused", missing),
        ("run", None),
    ]
    assert (end.run, end.refused, end.over_cap) == ((2,), 2, False)


def test_calls_over_the_cap_fail_and_asks_count() -> None:
    """Two are left: one asks, one runs, the third is over; client calls are not counted."""
    play = Play(used=1, limit=3)
    _, end = play.run(
        *call(0, "book", "{}"),
        *call(1, "mcp__docs__delete", "{}"),
        *call(2, "mcp__docs__search", "{}"),
        *call(3, "mcp__docs__search", "{}"),
        completed(),
    )
    assert (end.run, end.ask, end.client, end.refused, end.over_cap) == ((2,), (1,), True, 1, True)
    assert play.rows[3].refusal == "the limit of 3 tool calls (max_tool_calls) is reached; the call was not executed"


def test_parallel_calls_keep_the_models_order() -> None:
    """A call that is whole early waits for the one the model made before it."""
    play = Play()
    first, second = call(0, "book", '{"a":1}'), call(1, "mcp__docs__search", '{"b":2}')
    assert play.feed([*first[:3], *second]) == []
    assert play.feed(first[3:]) == [
        *shown_client("fc_1", "call_0", "book", '{"a":1}'),
        *shown_gateway("mcp_2", '{"b":2}'),
    ]


def test_text_that_begins_while_a_call_is_silent_comes_first() -> None:
    """Public order is the order of announcement."""
    tool = call(0, "book", '{"a":1}')
    shown, _ = Play().run(*tool[:3], *message(1, "well"), *tool[3:], completed())
    assert shown == [*shown_message("msg_1", "well"), *shown_client("fc_2", "call_0", "book", '{"a":1}')]


def test_a_truncated_round_executes_nothing() -> None:
    """What was shown as running ends failed, an ask becomes a refusal, a half call is dropped, text is incomplete."""
    play = Play()
    play.feed([*call(0, "mcp__docs__search", '{"q":1}'), *call(1, "mcp__docs__delete", "{}")])
    play.feed([*message(2, "and th")[:3], *call(3, "mcp__docs__search", '{"q":')[:3], cut_by("max_output_tokens")])
    shown, end = play.end()
    play.judge()
    message_end = shown_message("msg_3", "and th")[3:]
    message_end[-1]["item"]["status"] = "incomplete"
    assert shown == [*message_end, *failed_gateway("mcp_1", '{"q":1}', CUT)]
    assert [(row.action, row.refusal) for row in play.rows.values()] == [("refused", CUT), ("refused", CUT)]
    assert (end.run, end.ask, end.refused, end.incomplete) == ((), (), 2, "max_output_tokens")


def test_a_call_cut_by_the_token_limit_is_dropped_though_it_says_done() -> None:
    """OpenAI ends it with status incomplete."""
    *head, done = call(0, "book", '{"a":1}')
    cut = done.with_rest(item={**done.rest["item"], "status": "incomplete", "arguments": '{"a"'})
    shown, end = Play().run(*head, cut, cut_by("max_output_tokens"))
    assert (shown, end.client, end.incomplete) == ([], False, "max_output_tokens")


def test_a_stream_that_breaks_after_a_shown_call_ends_the_round_there() -> None:
    """The call stays to be executed; open text is closed as far as it was shown; the half call is dropped."""
    play = Play()
    play.feed([*call(0, "mcp__docs__search", "{}"), *message(1, "so")[:3], *call(2, "book", "{}")[:2]])
    assert play.assembler.announced
    shown, end = play.end(cut=True)
    play.judge()
    message_end = shown_message("msg_2", "so")[3:]
    message_end[-1]["item"]["status"] = "incomplete"
    assert shown == message_end
    assert (end.run, end.client, end.incomplete, end.usage) == ((0,), False, None, Usage())


def test_plain_reasoning_is_relayed_with_its_text() -> None:
    """content_part{reasoning_text}, deltas, and their ends in strict nesting."""
    item = {"id": "up_0", "type": "reasoning", "summary": []}
    at = {"item_id": "rs_1", "content_index": 0}
    shown, end = Play().run(
        up("output_item.added", 0, item={**item, "content": None, "encrypted_content": None}),
        up("reasoning_text.delta", 0, item_id="up_0", content_index=0, delta="hm"),
        up("reasoning_text.done", 0, item_id="up_0", content_index=0, text="hm"),
        up("output_item.done", 0, item={**item, "content": [{"type": "reasoning_text", "text": "hm"}]}),
        completed(),
    )
    assert shown == [
        {"type": events.ITEM_ADDED, "item": {"id": "rs_1", "type": "reasoning", "summary": []}},
        {"type": events.PART_ADDED, **at, "part": {"type": "reasoning_text", "text": ""}},
        {"type": events.REASONING_TEXT_DELTA, **at, "delta": "hm"},
        {"type": events.REASONING_TEXT_DONE, **at, "text": "hm"},
        {"type": events.PART_DONE, **at, "part": {"type": "reasoning_text", "text": "hm"}},
        {
            "type": events.ITEM_DONE,
            "item": {
                "id": "rs_1",
                "type": "reasoning",
                "summary": [],
                "content": [{"type": "reasoning_text", "text": "hm"}],
            },
        },
    ]
    assert not end.produced


def test_encrypted_reasoning_keeps_the_upstreams_id() -> None:
    """OpenAI verifies id and content together; everything else is still ours."""
    item = {"id": "rs_openai", "type": "reasoning", "summary": []}
    at = {"item_id": "rs_openai", "summary_index": 0}
    part = {"type": "summary_text", "text": "Thought"}
    shown, _ = Play(keep_reasoning_ids=True).run(
        up("output_item.added", 0, item=item),
        up("reasoning_summary_part.added", 0, **at, part={"type": "summary_text", "text": ""}),
        up("reasoning_summary_text.delta", 0, **at, delta="Thought", obfuscation="x"),
        up("reasoning_summary_text.done", 0, **at, text="Thought"),
        up("reasoning_summary_part.done", 0, **at, part=part),
        up("output_item.done", 0, item={**item, "encrypted_content": "sealed", "summary": [part]}),
        *message(1, "hi"),
        completed(),
    )
    assert shown == [
        {"type": events.ITEM_ADDED, "item": item},
        {"type": events.SUMMARY_PART_ADDED, **at, "part": {"type": "summary_text", "text": ""}},
        {"type": events.SUMMARY_TEXT_DELTA, **at, "delta": "Thought"},
        {"type": events.SUMMARY_TEXT_DONE, **at, "text": "Thought"},
        {"type": events.SUMMARY_PART_DONE, **at, "part": part},
        {"type": events.ITEM_DONE, "item": {**item, "summary": [part], "encrypted_content": "sealed"}},
        *shown_message("msg_1", "hi"),
    ]


def test_a_native_hosted_call_is_relayed_with_its_id_mapped() -> None:
    """Also its events of types we do not know; what names no item passes."""
    item = {
        "id": "ws_up",
        "type": "web_search_call",
        "status": "in_progress",
        "action": {"type": "search", "query": "x"},
    }
    play = Play()
    shown = play.feed(
        [
            up("output_item.added", 0, item=item),
            up("web_search_call.searching", 0, item_id="ws_up"),
            up("web_search_call.ranking", 0, item_id="ws_up", score=3),
            up("weather", text="fine"),
            up("output_item.done", 0, item={**item, "status": "completed"}),
            completed(),
        ]
    )
    assert shown == [
        {"type": events.ITEM_ADDED, "item": {**item, "id": "ws_1"}},
        {"type": "response.web_search_call.searching", "item_id": "ws_1"},
        {"type": "response.web_search_call.ranking", "item_id": "ws_1", "score": 3},
        {"type": "response.weather", "text": "fine"},
        {"type": events.ITEM_DONE, "item": {**item, "id": "ws_1", "status": "completed"}},
    ]
    assert play.end()[0] == []


def test_a_native_call_of_the_client_waits_until_it_is_whole() -> None:
    """A local shell call is the client's: silent until done, then all its frames, and the round has a client call."""
    play = Play()
    item = {
        "id": "up_0",
        "type": "shell_call",
        "call_id": "call_s",
        "status": "in_progress",
        "action": {"commands": ["ls"]},
        "environment": {"type": "local"},
    }
    assert play.feed([up("output_item.added", 0, item=item), up("shell_call_command.added", 0, command_index=0)]) == []
    shown = play.feed([up("output_item.done", 0, item={**item, "status": "completed"})])
    assert shown == [
        {"type": events.ITEM_ADDED, "item": {**item, "id": "item_1"}},
        {"type": "response.shell_call_command.added", "command_index": 0, "item_id": "item_1"},
        {"type": events.ITEM_DONE, "item": {**item, "id": "item_1", "status": "completed"}},
    ]
    _, end = play.end()
    assert end.client
    assert play.rows == {0: NewCall(0, "client", "item_1", "call_s", "shell_call", "")}


def test_a_custom_tool_call_is_a_clients() -> None:
    """Its input is free text: nothing is put in its place when it is empty."""
    item = {"id": "up_0", "type": "custom_tool_call", "call_id": "c", "name": "patch"}
    at = {"item_id": "ctc_1"}
    final = {"id": "ctc_1", "type": "custom_tool_call", "status": "completed", "call_id": "c", "name": "patch"}
    shown, end = Play().run(
        up("output_item.added", 0, item={**item, "input": ""}),
        up("custom_tool_call_input.delta", 0, item_id="up_0", delta="*** go"),
        up("custom_tool_call_input.done", 0, item_id="up_0", input="*** go"),
        up("output_item.done", 0, item={**item, "input": "*** go"}),
        completed(),
    )
    assert shown == [
        {"type": events.ITEM_ADDED, "item": {**final, "input": "", "status": "in_progress"}},
        {"type": "response.custom_tool_call_input.delta", **at, "delta": "*** go"},
        {"type": "response.custom_tool_call_input.done", **at, "input": "*** go"},
        {"type": events.ITEM_DONE, "item": {**final, "input": "*** go"}},
    ]
    assert end.client


def test_no_upstream_id_and_no_internal_name_is_ever_shown() -> None:
    """Over a round with everything in it."""
    play = Play()
    play.run(
        *message(0, "hi"),
        *call(1, "mcp__docs__search", "{}"),
        *call(2, "mcp__docs__gone", "{}"),
        *call(3, "book", "{}"),
        completed(),
    )
    wire = b"".join(events.encode(event) for event in play.events)
    assert b"up_" not in wire
    assert b"mcp__" not in wire
    assert b"obfuscation" not in wire


def test_hosted_calls_are_counted_and_take_from_the_cap() -> None:
    """Those the server ran; a client's native call is none of them, and a namespaced one is the client's whatever its
    name."""
    search = {"id": "ws_up", "type": "web_search_call", "status": "completed", "action": {"type": "search"}}
    shell = {"id": "sh_up", "type": "shell_call", "status": "completed", "call_id": "k", "action": {"commands": ["ls"]}}
    echo = {"id": "fc_up", "type": "function_call", "call_id": "e", "name": "mcp__desk__x", "arguments": "{}"}
    _, end = Play().run(
        *(up(f"output_item.{what}", 0, item=search) for what in ("added", "done")),
        *(up(f"output_item.{what}", 1, item=shell) for what in ("added", "done")),
        *(up(f"output_item.{what}", 2, item={**echo, "namespace": "mcp__desk"}) for what in ("added", "done")),
        completed(),
    )
    assert (end.hosted, end.client, end.run, end.refused) == (1, True, (), 0)


def test_hosted_calls_of_a_round_take_from_the_cap_of_its_own_calls() -> None:
    """Two of three are left, the server's own search takes one: the second call of ours is over the cap."""
    search = {"id": "ws_up", "type": "web_search_call", "status": "completed", "action": {"type": "search"}}
    _, end = Play(used=1, limit=3).run(
        *(up(f"output_item.{what}", 0, item=search) for what in ("added", "done")),
        *call(1, "mcp__docs__search", "{}"),
        *call(2, "mcp__docs__search", "{}"),
        completed(),
    )
    assert (end.hosted, len(end.run), end.refused, end.over_cap) == (1, 1, 1, True)
