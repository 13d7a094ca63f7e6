"""What is stored: read, list, delete."""

from outlast.conformance.base import Group, equal, expect
from outlast.conformance.shapes import completed, ok, refused
from outlast.conformance.target import Target
from outlast.protocol.json import JsonObject

group = Group("Reading")


async def _three(target: Target) -> JsonObject:
    """A response in front of which three messages stand."""
    texts = ("One.", "Two.", "Three.")
    return completed(ok(await target.create([{"role": "user", "content": text} for text in texts])))


@group.check("retrieve", "OpenAI API reference: retrieve a response")
async def retrieve(target: Target) -> None:
    """GET answers what POST answered."""
    response = completed(ok(await target.create()))
    equal(ok(await target.get(f"/responses/{response['id']}")), response, "the response")


@group.check("retrieve-unknown", "OpenAI API reference: errors")
async def retrieve_unknown(target: Target) -> None:
    """An unknown id is a 404 with the envelope."""
    refused(await target.get("/responses/resp_0123456789abcdef0123456789abcdef"), status=(404,))


@group.check("delete", "OpenAI API reference: delete a response")
async def delete(target: Target) -> None:
    """DELETE says so; afterwards the response is not found, also for a second DELETE."""
    response = completed(ok(await target.create()))
    gone = ok(await target.send("DELETE", f"/responses/{response['id']}"))
    equal((gone.get("id"), gone.get("deleted")), (response["id"], True), "id and deleted")
    refused(await target.get(f"/responses/{response['id']}"), status=(404,))
    refused(await target.send("DELETE", f"/responses/{response['id']}"), status=(404,))


@group.check("input-items", "openai.types.responses.ResponseItemList")
async def input_items(target: Target) -> None:
    """A list with data, first_id, last_id and has_more, newest first."""
    response = await _three(target)
    page = ok(await target.get(f"/responses/{response['id']}/input_items"))
    equal(page.get("object"), "list", "object")
    texts = [item["content"][0]["text"] for item in page["data"]]
    equal(texts, ["Three.", "Two.", "One."], "texts")
    ends = (page["data"][0]["id"], page["data"][-1]["id"], False)
    equal((page["first_id"], page["last_id"], page["has_more"]), ends, "first_id, last_id, has_more")


@group.check("input-items-paging", "OpenAI API reference: list input items: after, limit, order")
async def input_items_paging(target: Target) -> None:
    """Pages of one, oldest first, give every item once and end."""
    response = await _three(target)
    path = f"/responses/{response['id']}/input_items"
    texts: list[str] = []
    query: dict[str, object] = {"order": "asc", "limit": 1}
    for _ in range(4):
        page = ok(await target.get(path, **query))
        texts += [item["content"][0]["text"] for item in page["data"]]
        query["after"] = page["last_id"]
        if not page["has_more"]:
            break
    equal(texts, ["One.", "Two.", "Three."], "texts over all pages")


@group.check("input-items-limit", "OpenAI API reference: list input items: limit between 1 and 100")
async def input_items_limit(target: Target) -> None:
    """A limit of 0 or 101 is a 400."""
    response = await _three(target)
    for limit in (0, 101):
        refused(await target.get(f"/responses/{response['id']}/input_items", limit=limit))


@group.check("include", "openai.types.responses.ResponseIncludable; bug lists of peers: never a 500")
async def include(target: Target) -> None:
    """`include[]` on GET and on `input_items` is honoured or ignored, never an error."""
    response = await _three(target)
    for path in (f"/responses/{response['id']}", f"/responses/{response['id']}/input_items"):
        ok(await target.get(path, **{"include[]": "message.input_image.image_url"}))


@group.check("request-id", "openai 3.57 client: x-request-id")
async def request_id(target: Target) -> None:
    """Every answer has an `x-request-id` of its own."""
    seen = [(await target.get("/models")).headers.get("x-request-id") for _ in range(2)]
    expect(all(seen) and seen[0] != seen[1], f"x-request-id: {seen}")
