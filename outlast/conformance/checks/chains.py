"""Responses that continue others."""

from outlast.conformance.base import Group, equal, expect
from outlast.conformance.shapes import completed, ok, refused, streamed
from outlast.conformance.target import Target
from outlast.protocol.json import JsonObject

group = Group("Chains")


async def _heard(target: Target, response: JsonObject) -> list[str]:
    """What is in front of a response, messages only, oldest first."""
    listed = ok(await target.get(f"/responses/{response['id']}/input_items", order="asc", limit=100))["data"]
    messages = [item for item in listed if item.get("type") == "message"]
    return ["".join(str(part.get("text", "")) for part in item["content"]) for item in messages]


@group.check("chain", "OpenAI guide: conversation state; Open Responses 2026-04-24: previous_response_id")
async def chain(target: Target) -> None:
    """A third turn has both turns before it in front of it, questions and answers."""
    first = completed(ok(await target.create("My name is Ada.")))
    second = completed(ok(await target.create("I live in Paris.", previous_response_id=first["id"])))
    third = completed(ok(await target.create("Who am I?", previous_response_id=second["id"])))
    equal(third["previous_response_id"], second["id"], "previous_response_id")
    heard = await _heard(target, third)
    said = ["My name is Ada.", "I live in Paris.", "Who am I?"]
    equal([text for text in heard if text in said], said, "the user's texts")
    equal(len(heard), 5, "messages in front of the third answer")


@group.check("chain-from-stream", "openai.types.responses.ResponseCreatedEvent: the id")
async def chain_from_stream(target: Target) -> None:
    """The id of `response.created` can be continued as soon as the stream has ended."""
    stream = streamed(await target.stream("Say hello."))
    first = stream.frames[0].data["response"]["id"]
    completed(ok(await target.create("And again.", previous_response_id=first)))


@group.check("chain-branches", "recording of the API: one response continued twice")
async def chain_branches(target: Target) -> None:
    """A response can be continued more than once; branches do not see each other."""
    root = completed(ok(await target.create("Say hello.")))
    left = completed(ok(await target.create("Left.", previous_response_id=root["id"])))
    right = completed(ok(await target.create("Right.", previous_response_id=root["id"])))
    expect("Left." not in await _heard(target, right), "one branch sees the other")
    expect(left["id"] != right["id"], "two responses with one id")


@group.check("instructions-not-inherited", "OpenAI API reference: instructions with previous_response_id")
async def instructions_not_inherited(target: Target) -> None:
    """Instructions are those of the request alone."""
    first = completed(ok(await target.create(instructions="Speak like a pirate.")))
    second = completed(ok(await target.create("And again.", previous_response_id=first["id"])))
    equal((first["instructions"], second["instructions"]), ("Speak like a pirate.", None), "instructions")


@group.check("previous-unknown", "Open Responses 2026-04-24: previous_response_not_found")
async def previous_unknown(target: Target) -> None:
    """An unknown previous response is a 400 that names the parameter."""
    answer = await target.create(previous_response_id="resp_0123456789abcdef0123456789abcdef")
    refused(answer, status=(400, 404), param="previous_response_id", code="previous_response_not_found")


@group.check("previous-not-stored", "Open Responses 2026-04-24: state of store=false")
async def previous_not_stored(target: Target) -> None:
    """A response that was not stored cannot be continued."""
    first = completed(ok(await target.create(store=False)))
    refused(await target.create("And?", previous_response_id=first["id"]), status=(400, 404))


@group.check("previous-deleted", "OpenAI API reference: delete a response")
async def previous_deleted(target: Target) -> None:
    """A deleted response cannot be continued, nor one behind it with a shorter history."""
    first = completed(ok(await target.create("My name is Ada.")))
    second = completed(ok(await target.create("Say hello.", previous_response_id=first["id"])))
    ok(await target.send("DELETE", f"/responses/{first['id']}"))
    refused(await target.create("And?", previous_response_id=first["id"]), status=(400, 404))
    third = await target.create("Who am I?", previous_response_id=second["id"])
    if third.status == 200:
        expect("My name is Ada." in await _heard(target, third.body), "the history became shorter without a word")
    else:
        refused(third, status=(400, 404))
