"""What the demo clerk says and does."""

import json

import pytest

from outlast.demo.script import STORIES, WELCOME, Answered, Call, Do, Prompt, Say, Tool, reply

LOOKUP = Tool("mcp__desk__lookup_order", {"type": "object"})
REFUND = Tool("mcp__desk__refund_order", {"type": "object"})
DESK = (LOOKUP, REFUND)
ORDER = "Order 1042: a pair of hiking boots, bought by Jonas Keller for 129.50 EUR. Status: delivered."
LOOKED = Answered(LOOKUP.name, ORDER)
ASK = "Please refund order 1042."


def do(name: str, **arguments: object) -> Do:
    return Do((Call(name, arguments),))


def test_a_refund_begins_with_a_look() -> None:
    """First the lookup, then, with the order in hand, the refund."""
    assert reply(Prompt(ASK, tools=DESK)) == do(LOOKUP.name, order_id=1042)
    assert reply(Prompt(ASK, (LOOKED,), DESK)) == do(REFUND.name, order_id=1042, reason="asked for by the customer")


@pytest.mark.parametrize(
    ("output", "said"),
    [
        (
            "Refunded 129.50 EUR for order 1042 to Jonas Keller.",
            "Done. Refunded 129.50 EUR for order 1042 to Jonas Keller.",
        ),
        (
            "denied: too expensive",
            "I did not make the refund of order 1042, because it was not approved. I was told: denied: too expensive",
        ),
        (
            "outcome_unknown: the worker stopped",
            "I could not confirm the refund of order 1042: it may or may not have gone through; "
            "please check the ledger before trying again.",
        ),
        ("HTTP 503: away", "I could not make the refund of order 1042: HTTP 503: away"),
    ],
)
def test_the_outcome_is_told_as_it_is(output: str, said: str) -> None:
    """Success, denial, doubt and failure; nothing is called again."""
    assert reply(Prompt(ASK, (LOOKED, Answered(REFUND.name, output)), DESK)) == Say(said)


@pytest.mark.parametrize("ask", ["look up order 1042", "Where is order 1042?"])
def test_a_question_about_an_order_only_looks(ask: str) -> None:
    """No money moves because somebody asked where the parcel is."""
    assert reply(Prompt(ask, tools=DESK)) == do(LOOKUP.name, order_id=1042)
    assert reply(Prompt(ask, (LOOKED,), DESK)) == Say(f"Here is what I found. {ORDER}")


def test_an_unknown_order_is_not_refunded() -> None:
    """The lookup failed: say so."""
    missing = Answered(LOOKUP.name, "There is no order 9999.")
    assert reply(Prompt("refund order 9999", (missing,), DESK)) == Say(
        "I could not look that up: There is no order 9999."
    )


def test_a_tool_is_called_when_its_name_is_mentioned() -> None:
    """Arguments are made from the schema and the text."""
    weather = Tool(
        "get_weather",
        {
            "type": "object",
            "properties": {
                "city": {"type": "string"},
                "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
                "days": {"type": ["integer", "null"]},
                "detail": {"type": "object", "properties": {"wind": {"type": "boolean"}}},
                "tags": {"type": "array", "items": {"type": "string"}},
                "left_out": {"type": "string"},
            },
            "required": ["city", "unit", "days", "detail", "tags"],
        },
    )
    prompt = Prompt("What is the weather in Lisbon for 3 days?", tools=(weather, *DESK))
    assert reply(prompt) == do(
        "get_weather", city="Lisbon", unit="celsius", days=3, detail={"wind": True}, tags=["Lisbon"]
    )
    answered = Prompt(prompt.user, (Answered("get_weather", "sunny"),), prompt.tools)
    assert reply(answered) == Say("get_weather says: sunny")


def test_two_mentioned_tools_are_two_calls_unless_one_at_a_time() -> None:
    """`parallel_tool_calls: false` gives the first."""
    tools = (Tool("get_weather", {}), Tool("get_time", {}))
    prompt = Prompt("weather and time", tools=tools)
    assert reply(prompt) == Do((Call("get_weather", {}), Call("get_time", {})))
    assert reply(Prompt("weather and time", tools=tools, parallel=False)) == do("get_weather")


def test_tool_choice_is_honoured() -> None:
    """None calls nothing, required calls something, a name calls that one."""
    assert reply(Prompt(ASK, tools=DESK, choice="none")) == Say(WELCOME)
    assert reply(Prompt("tell me", tools=DESK, choice="required")) == do(LOOKUP.name)
    assert reply(Prompt("tell me", tools=DESK, choice=REFUND.name)) == do(REFUND.name)


@pytest.mark.parametrize("ask", ["", "hello", "refund order 1042", "What can you do? help"])
def test_without_tools_it_says_what_it_can_do(ask: str) -> None:
    """A newcomer's first words get a useful answer."""
    assert reply(Prompt(ask)) == Say(WELCOME)


def test_a_plain_question_gets_the_same_short_story_every_time() -> None:
    """About twenty words, whatever the process."""
    told = {reply(Prompt(f"question {n}")) for n in range(40)}
    assert told == {Say(story) for story in STORIES}
    assert reply(Prompt("question 1")) == reply(Prompt("question 1"))
    assert all(18 <= len(story.split()) <= 24 for story in STORIES)


def test_a_json_answer_fits_the_schema() -> None:
    """A simple schema is filled; without one it is an object with the story in it."""
    schema = {"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer"}}}
    filled = reply(Prompt("tell of Ada, 36", schema=schema))
    assert isinstance(filled, Say)
    assert json.loads(filled.text) == {"name": "Ada", "age": 36}
    free = reply(Prompt("question 1", schema={}))
    assert isinstance(free, Say)
    assert list(json.loads(free.text)) == ["answer"]
