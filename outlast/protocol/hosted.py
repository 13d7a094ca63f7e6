"""Hosted tools that an MCP server of the operator's runs, one row a type: spellings, item, order of events, results.

`[mcp.servers.NAME] builtin_type` binds a type to one tool of that server. A new type is a row of `TYPES`, its id prefix
in `ids`, and tests; nothing else here or elsewhere asks for a type by name.

Order of events: added → `.in_progress` → the code, where the item has some → what the run is called → (it runs) →
`.completed`, but for images, where three recordings of the real API have none → done. A failed call has no
`.completed` either: its item says so.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from outlast.protocol import building, hosted_results, json
from outlast.protocol.events import WireEvent
from outlast.protocol.hosted_results import Answer, Finished
from outlast.protocol.json import JsonObject

NOTHING: JsonObject = {}


@dataclass(frozen=True, slots=True)
class HostedType:
    """One type. `key`: its name in config, and the function's name the model sees; `spellings`: of requests, each also
    with a date behind it.

    `begin`: what an item says before its run, of the arguments and the caller's tool; `empty`: what of that is not
    there yet when the item is added; `step`: the last sub-event before the run; `gate`: an `include` value, and the
    item as it is shown without it.
    """

    key: str
    spellings: tuple[str, ...]
    item: str
    description: str
    step: str
    completes: bool
    begin: Callable[[JsonObject, JsonObject], JsonObject]
    finish: Callable[[JsonObject, Answer], Finished]
    empty: JsonObject
    gate: tuple[str, Callable[[JsonObject], JsonObject]] | None = None


def _begin_search(arguments: JsonObject, _: JsonObject) -> JsonObject:
    return {"action": hosted_results.search_action(arguments)}


def _begin_files(arguments: JsonObject, _: JsonObject) -> JsonObject:
    return {"queries": hosted_results.queries(arguments), "results": None}


def _begin_code(arguments: JsonObject, config: JsonObject) -> JsonObject:
    container = config.get("container")
    return {
        "code": hosted_results.text_of(arguments, "code", "source", "input"),
        "container_id": container if isinstance(container, str) else "auto",
        "outputs": None,
    }


def _begin_image(_: JsonObject, __: JsonObject) -> JsonObject:
    return {"result": None}


def _without_sources(item: JsonObject) -> JsonObject:
    return {**item, "action": {key: value for key, value in item["action"].items() if key != "sources"}}


TYPES = {
    each.key: each
    for each in (
        HostedType(
            key="web_search",
            spellings=("web_search", "web_search_preview"),
            item="web_search_call",
            description="Search the web for current information and return the results with their addresses.",
            step="searching",
            completes=True,
            begin=_begin_search,
            finish=hosted_results.web_search,
            empty=NOTHING,
            gate=("web_search_call.action.sources", _without_sources),
        ),
        HostedType(
            key="file_search",
            spellings=("file_search",),
            item="file_search_call",
            description="Search the user's files for passages that answer a question.",
            step="searching",
            completes=True,
            begin=_begin_files,
            finish=hosted_results.file_search,
            empty={"queries": []},
            gate=("file_search_call.results", lambda item: {**item, "results": None}),
        ),
        HostedType(
            key="code_interpreter",
            spellings=("code_interpreter",),
            item="code_interpreter_call",
            description="Run Python code in a sandbox and return what it prints.",
            step="interpreting",
            completes=True,
            begin=_begin_code,
            finish=hosted_results.code_interpreter,
            empty={"code": ""},
            gate=("code_interpreter_call.outputs", lambda item: {**item, "outputs": None}),
        ),
        HostedType(
            key="image_generation",
            spellings=("image_generation",),
            item="image_generation_call",
            description="Make an image from a description. The user sees the image itself.",
            step="generating",
            completes=False,
            begin=_begin_image,
            finish=hosted_results.image_generation,
            empty=NOTHING,
        ),
    )
}
ITEMS = {each.item: each for each in TYPES.values()}


def key_of(kind: str) -> str | None:
    """The type's key by any spelling of it, `web_search_preview_2025_03_11` included; None for every other tool."""
    for each in TYPES.values():
        for spelling in each.spellings:
            date = kind.removeprefix(spelling)
            if date != kind and (not date or (date[0] == "_" and date[1:].replace("_", "").isdigit())):
                return each.key
    return None


def item(kind: str, item_id: str, arguments: JsonObject, config: JsonObject) -> JsonObject:
    """A call before its run. `arguments`: what the tool is called with, by the names the model knows; `config`: the
    caller's tool."""
    of = TYPES[kind]
    return {"id": item_id, "type": of.item, "status": "in_progress", **of.begin(arguments, config)}


def announce(begun: JsonObject) -> list[WireEvent]:
    """The events up to the run; `begun` comes from `item`."""
    of = ITEMS[begun["type"]]
    item_id, events = begun["id"], f"response.{of.item}"
    code: list[WireEvent] = []
    if "code" in of.empty:
        code = [
            WireEvent(f"{events}_code.delta", {"item_id": item_id, "delta": begun["code"]}),
            WireEvent(f"{events}_code.done", {"item_id": item_id, "code": begun["code"]}),
        ]
    return [
        building.added({**begun, **of.empty}),
        WireEvent(f"{events}.in_progress", {"item_id": item_id}),
        *code,
        WireEvent(f"{events}.{of.step}", {"item_id": item_id}),
    ]


def succeed(begun: JsonObject, fields: JsonObject, include: Collection[str]) -> list[WireEvent]:
    """The events after a run that went well. `fields`: of `Finished`; `include`: the request's."""
    of = ITEMS[begun["type"]]
    final = {**begun, **fields, "status": "completed"}
    if of.gate is not None and of.gate[0] not in include:
        final = of.gate[1](final)
    completed = [WireEvent(f"response.{of.item}.completed", {"item_id": begun["id"]})] if of.completes else []
    return [*completed, building.done(final)]


def fail(begun: JsonObject, text: str) -> list[WireEvent]:
    """The events after one that did not. Of these items only an image says why."""
    final = {**begun, "status": "failed"}
    if makes_images(begun):
        final["error"] = {"type": "server_error", "code": "tool_failed", "message": text}
    return [building.done(final)]


def makes_images(begun: JsonObject) -> bool:
    """Whether the call's result is an image."""
    return bool(begun["type"] == TYPES["image_generation"].item)


def finished(begun: JsonObject, arguments: JsonObject, answer: Answer) -> Finished:
    """What a server's answer comes to."""
    return ITEMS[begun["type"]].finish(arguments, answer)


def told(public: JsonObject) -> tuple[str, str]:
    """(arguments, output) of a call nobody has kept more of than its public item: what can be told of it to a model."""
    match public:
        case {"action": dict(action)}:
            sources = action.get("sources")
            given = {key: value for key, value in action.items() if key != "sources"}
            return json.dumps_text(given), json.dumps_text({"sources": sources}) if sources else _status(public)
        case {"queries": list(asked)}:
            results = public.get("results")
            return json.dumps_text({"queries": asked}), json.dumps_text(results) if results else _status(public)
        case {"code": code}:
            outputs: Sequence[JsonObject] = public.get("outputs") or ()
            logs = "\n".join(str(each["logs"]) for each in outputs if "logs" in each)
            return json.dumps_text({"code": code}), logs or _status(public)
        case {"revised_prompt": str(prompt)}:
            return json.dumps_text({"prompt": prompt}), _status(public)
        case _:
            return "{}", _status(public)


def _status(public: JsonObject) -> str:
    return str(public.get("status") or "completed")
