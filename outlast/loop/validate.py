"""What a chain and a request's input must be, checked as a whole before anything happened (behaviour §2, §2.1).

Texts of the pairing errors are those of the real API. Content never appears in an error, ids and places do.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence

from outlast.loop import pairing, reasoning
from outlast.loop.compaction import Opener, as_read, nothing_sealed, surviving
from outlast.loop.prepare import Reads, foreign_answer, prepare
from outlast.protocol.compaction import is_ours
from outlast.protocol.errors import InvalidRequest, NotFound
from outlast.protocol.items import (
    Compaction,
    CustomToolCall,
    CustomToolCallOutput,
    FunctionCall,
    FunctionCallOutput,
    Item,
    ItemReference,
    McpApprovalResponse,
    Message,
    NativeItem,
    Reasoning,
    UnknownItem,
    parse_item,
)
from outlast.protocol.json import JsonObject

_CUT = frozenset({"incomplete", "in_progress"})


def references(items: Sequence[Item]) -> tuple[str, ...]:
    """Ids that `resolve` needs, each once."""
    return tuple(dict.fromkeys(item.id for item in items if isinstance(item, ItemReference)))


def resolve(
    items: Sequence[Item], found: Mapping[str, JsonObject], *, present: Collection[str] = ()
) -> tuple[Item, ...]:
    """The input with references replaced by stored items. `present`: ids the chain has already; an item that is there,
    in full or by an earlier reference, is not put in again. Raises: NotFound naming the first unknown id."""
    full = {item.id for item in items if item.id is not None and not isinstance(item, ItemReference)}
    known = full | set(present)
    resolved: list[Item] = []
    for index, item in enumerate(items):
        if not isinstance(item, ItemReference):
            resolved.append(item)
        elif item.id in known:
            continue
        elif item.id not in found:
            raise NotFound(f"Item with id '{item.id}' not found.", param=f"input[{index}].id")
        else:
            known.add(item.id)
            resolved.append(parse_item(found[item.id]))
    return tuple(resolved)


def validate(
    history: Sequence[Item],
    inputs: Sequence[Item],
    *,
    upstream: Reads,
    interrupted: Collection[str] = (),
    before: str = "previous_response_id",
    opener: Opener = nothing_sealed,
    compacts: bool = False,
) -> None:
    """Refuse what cannot become a transcript; what a compaction supersedes is not looked at. `history`: the stored
    chain, oldest first; `before`: the parameter that brought it; `interrupted`: call ids of calls whose response
    failed, was cancelled or is incomplete, which need no output; `compacts`: the request asks for a compaction, which
    keeps calls that are still to be answered. Raises: InvalidRequest."""
    calls: list[FunctionCall | CustomToolCall] = []
    outputs: dict[str, tuple[FunctionCallOutput | CustomToolCallOutput, str]] = {}
    natives: list[NativeItem] = []
    answered: set[str] = set()
    read: list[Item] = []
    for item, param in _places(history, inputs, before, opener):
        read.append(item)
        if not upstream.images:
            _refuse_images(item, param)
        match item:
            case Message():
                pass
            case Reasoning():
                if not upstream.encrypted_reasoning:
                    _refuse_sealed(item, param)
            case FunctionCall() | CustomToolCall():
                calls.append(item)
            case FunctionCallOutput() | CustomToolCallOutput():
                outputs[item.call_id] = (item, param)
            case Compaction():
                _refuse_foreign(item, param, upstream)
            case NativeItem() if upstream.native:
                natives.append(item)
            case NativeItem() | UnknownItem():
                answer = foreign_answer(item)
                answered.update(answer[:1] if answer is not None else ())
            case _:
                pass
    if compacts:
        pending = (key[1] for item in natives if (key := pairing.native_call(item)) is not None)
        interrupted = {*interrupted, *(call.call_id for call in calls), *pending}
    _refuse_unpaired(calls, outputs, answered, interrupted)
    _refuse_unpaired_natives(natives, interrupted)
    _refuse_silence(read, upstream)


def _refuse_silence(items: Sequence[Item], upstream: Reads) -> None:
    # A decision brings its call; everything else must leave the model something to read.
    if any(isinstance(item, Message | McpApprovalResponse) for item in items):
        return
    if not prepare(items, upstream=upstream).transcript:
        raise InvalidRequest("'input' has nothing a model could read: add a message.", param="input")


def _places(history: Sequence[Item], inputs: Sequence[Item], before: str, opener: Opener) -> Iterator[tuple[Item, str]]:
    """Every item that a model would get something of, with the parameter that brought it."""
    if not any(isinstance(item, Compaction) for item in (*history, *inputs)):  # nearly always, and 6 µs an item less
        yield from ((item, before) for item in history)
        yield from ((item, f"input[{index}]") for index, item in enumerate(inputs))
        return
    for placed in surviving([*history, *inputs], opener):
        index = placed.index - len(history)
        yield as_read(placed), before if index < 0 else f"input[{index}]"


def _refuse_foreign(item: Compaction, param: str, upstream: Reads) -> None:
    if upstream.encrypted_reasoning and not is_ours(item.encrypted_content):
        return
    named = repr(item.id) if item.id else "without id"
    raise InvalidRequest(
        f"Compaction item {named} was not made here for you, or was changed: its 'encrypted_content' cannot be opened. "
        "Send the items it stands for, or use the server that made it.",
        param=param,
    )


def _refuse_sealed(item: Reasoning, param: str) -> None:
    if reasoning.unreadable(item):
        named = repr(item.id) if item.id else "without id"
        raise InvalidRequest(
            f"Reasoning item {named} carries 'encrypted_content' that this model's server cannot read: "
            "leave the item out, or use a model of the server that made it.",
            param=param,
        )


def _refuse_images(item: Item, param: str) -> None:
    match item:
        case Message(content=[*parts]):
            where = "content"
        case FunctionCallOutput(output=[*parts]) | CustomToolCallOutput(output=[*parts]):
            where = "output"
        case _:
            return
    for index, part in enumerate(parts):
        if part.get("type") == "input_image":
            full = f"{param}.{where}[{index}]" if param.startswith("input[") else param
            raise InvalidRequest(f"This model does not read images: remove the image part at '{full}'.", param=full)


def _refuse_unpaired(
    calls: Sequence[FunctionCall | CustomToolCall],
    outputs: Mapping[str, tuple[FunctionCallOutput | CustomToolCallOutput, str]],
    answered: Collection[str],
    interrupted: Collection[str],
) -> None:
    called = {item.call_id for item in calls}
    for call_id, (output, param) in outputs.items():
        if call_id not in called:
            # One of a conversation is to be deleted there: nothing in this input can mend it.
            where = "input" if param.startswith("input[") else param
            raise InvalidRequest(
                f"No tool call found for {_spoken(output)} output with call_id {call_id}.", param=where
            )
    done = {*answered, *interrupted, *outputs}
    for call in calls:
        cut = isinstance(call, FunctionCall) and call.status in _CUT
        if call.call_id not in done and not cut:
            raise InvalidRequest(f"No tool output found for {_spoken(call)} {call.call_id}.", param="input")


def _refuse_unpaired_natives(items: Sequence[NativeItem], interrupted: Collection[str]) -> None:
    """The same for shell calls and their like, each kind among itself."""
    calls = {key: item for item in items if (key := pairing.native_call(item)) is not None}
    answers = {key: item for item in items if (key := pairing.native_answer(item)) is not None}
    for key in answers:
        if key not in calls:
            kind, call_id = key
            raise InvalidRequest(f"No tool call found for {_words(kind)} output with call_id {call_id}.", param="input")
    for key, call in calls.items():
        kind, call_id = key
        cut = (call.model_extra or {}).get("status") in _CUT
        if key not in answers and call_id not in interrupted and not cut:
            raise InvalidRequest(f"No tool output found for {_words(kind)} {call_id}.", param="input")


def _words(kind: str) -> str:
    return kind.replace("_", " ")


def _spoken(item: FunctionCall | FunctionCallOutput | CustomToolCall | CustomToolCallOutput) -> str:
    return "function call" if isinstance(item, FunctionCall | FunctionCallOutput) else "custom tool call"
