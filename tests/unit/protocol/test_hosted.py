"""Claims about hosted types: spellings, and what servers' answers of many shapes become."""

import base64
import json

import pytest

from outlast.protocol import closing, hosted, ids, images, native
from outlast.protocol.hosted_results import Answer, Finished, Image
from outlast.protocol.json import JsonObject

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256))
ENCODED = base64.b64encode(PNG).decode()
PICTURE = Image(PNG, "image/png")
NOTE = images.note("image/png", PNG)


@pytest.mark.parametrize(
    ("kind", "key"),
    [
        ("web_search", "web_search"),
        ("web_search_preview", "web_search"),
        ("web_search_2025_08_26", "web_search"),
        ("web_search_preview_2025_03_11", "web_search"),
        ("file_search", "file_search"),
        ("code_interpreter", "code_interpreter"),
        ("image_generation", "image_generation"),
        ("web_search_", None),
        ("web_searches", None),
        ("web_search_beta", None),
        ("computer_use_preview", None),
        ("function", None),
    ],
)
def test_a_type_is_known_by_every_spelling_and_by_no_other(kind: str, key: str | None) -> None:
    """Dates are digits."""
    assert hosted.key_of(kind) == key


def test_every_type_has_its_items_everywhere() -> None:
    """A row alone is no type: its item has an id prefix and counts as a hosted call."""
    for each in hosted.TYPES.values():
        assert each.item in ids.ITEM_PREFIX
        assert each.item in native.HOSTED_CALLS
        assert all(native.hosted(spelling) for spelling in each.spellings)


def finished(kind: str, arguments: JsonObject, answer: Answer) -> Finished:
    """As the activity asks for it."""
    return hosted.finished(hosted.item(kind, "x_1", arguments, {}), arguments, answer)


SOURCES = [{"type": "url", "url": "https://a.test"}, {"type": "url", "url": "https://b.test"}]


@pytest.mark.parametrize(
    "payload",
    [
        {"sources": ["https://a.test", "https://b.test", "no address"]},
        {"results": [{"url": "https://a.test"}, {"link": "https://b.test"}, {"url": 3}, {"url": "https://a.test"}]},
        {"result": [{"url": "https://a.test"}, {"url": "https://b.test"}]},
        [{"url": "https://a.test"}, {"url": "https://b.test"}],
    ],
)
def test_sources_are_found_wherever_servers_put_them(payload: object) -> None:
    """Each address once; structured or JSON in the text."""
    answers = [Answer(json.dumps(payload))]
    if isinstance(payload, dict):
        answers.append(Answer("three pages", payload))
    for answer in answers:
        found = finished("web_search", {"query": "tea"}, answer)
        assert found.fields["action"]["sources"] == SOURCES
        assert found.text == answer.text


@pytest.mark.parametrize(
    ("arguments", "payload", "asked"),
    [
        ({"queries": ["a", "b"]}, None, ["a", "b"]),
        ({"q": "a"}, None, ["a"]),
        ({"query": "a"}, {"queries": ["a refined"]}, ["a refined"]),
        ({}, None, []),
    ],
)
def test_what_was_searched_for_is_the_tool_s_word_else_the_model_s(
    arguments: JsonObject, payload: JsonObject | None, asked: list[str]
) -> None:
    """Of both kinds of search."""
    answer = Answer("text", payload)
    action = finished("web_search", arguments, answer).fields["action"]
    assert (action["query"], action.get("queries", [])) == (asked[0] if asked else "", asked)
    assert finished("file_search", arguments, answer).fields["queries"] == asked


def test_passages_without_a_file_are_no_results() -> None:
    """What a server does not say, or says in a wrong type, is left out."""
    rows = [
        {
            "id": "file_1",
            "name": "a.md",
            "content": [{"type": "text", "text": "x"}, {"text": "y"}],
            "metadata": {"p": 1},
        },
        {"filename": "b.md", "score": True, "text": 3},
        {"text": "nowhere"},
        "text",
    ]
    assert finished("file_search", {}, Answer("", {"data": rows})).fields["results"] == [
        {"file_id": "file_1", "filename": "a.md", "text": "x\ny", "attributes": {"p": 1}},
        {"filename": "b.md"},
    ]


@pytest.mark.parametrize(
    ("answer", "outputs"),
    [
        (Answer("plain"), [{"type": "logs", "logs": "plain"}]),
        (Answer('{"stdout": "a", "stderr": "b"}'), [{"type": "logs", "logs": "a\nb"}]),
        (Answer("", {"stdout": ""}), []),
        (
            Answer("", {"outputs": [{"type": "logs", "logs": "x"}, {"type": "odd"}, {"type": "image", "url": "u"}]}),
            [{"type": "logs", "logs": "x"}, {"type": "image", "url": "u"}],
        ),
        (
            Answer(NOTE, images=(PICTURE,)),
            [
                {"type": "logs", "logs": NOTE},
                {"type": "image", "url": f"data:image/png;base64,{ENCODED}"},
            ],
        ),
    ],
)
def test_outputs_of_code_are_what_it_printed_and_drew(answer: Answer, outputs: list[JsonObject]) -> None:
    """The container stays the caller's where the answer names none."""
    found = finished("code_interpreter", {"code": "1"}, answer)
    assert found.fields == {"outputs": outputs}
    assert found.images == answer.images


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (Answer(NOTE, images=(PICTURE,)), NOTE),
        (Answer(f"{NOTE}\nhere you are", images=(PICTURE,)), f"{NOTE}\nhere you are"),
        (Answer(ENCODED), NOTE),
        (Answer(f"data:image/png;base64,{ENCODED}"), NOTE),
        (Answer("", {"result": ENCODED}), NOTE),
        (Answer("", {"data": [{"b64_json": ENCODED}], "seed": 7}), f'{{"seed":7}}\n{NOTE}'),
        (Answer(json.dumps({"image": f"data:image/png;base64,{ENCODED}"})), NOTE),
        (Answer(json.dumps({"image_base64": ENCODED}), {"image_base64": ENCODED}), NOTE),
    ],
)
def test_an_image_is_found_and_never_becomes_text_of_the_model(answer: Answer, text: str) -> None:
    """Whatever it came in; the model is given the picture itself, apart."""
    found = finished("image_generation", {"prompt": "a cat"}, answer)
    assert found == Finished({"output_format": "png", "result": ENCODED}, text, (PICTURE,))


def test_an_image_says_what_is_known_of_it() -> None:
    """The answer's word, else the arguments'."""
    arguments = {"size": "1x1", "quality": "low", "prompt": "a cat"}
    found = finished("image_generation", arguments, Answer("", {"result": ENCODED, "size": "2x2", "quality": 3}))
    assert found.fields == {"size": "2x2", "output_format": "png", "result": ENCODED}


@pytest.mark.parametrize("answer", [Answer("no picture today"), Answer("", {"result": "aGk="}), Answer("[]")])
def test_no_image_is_a_failure(answer: Answer) -> None:
    """Not an empty success."""
    assert finished("image_generation", {}, answer) == Finished(failed="the tool returned no image")


def test_an_image_call_that_is_given_up_has_failed() -> None:
    """Its type knows no `incomplete`; the others do."""
    for kind, status in (("image_generation", "failed"), ("web_search", "incomplete")):
        begun = hosted.item(kind, "x_1", {}, {})
        assert closing.abandoned(begun)["status"] == status
