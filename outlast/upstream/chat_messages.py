"""The canonical transcript as the `messages` of Chat Completions.

Rules:
1. Instructions come first, as system; the other items keep their order.
2. Everything one model round made is one assistant message: reasoning, text, calls. A round is over when something of
   another role follows; a text or reasoning after calls that wait for their outputs still belongs to it.
3. The outputs of a message's calls follow it at once, whatever stood between (the Responses API pairs by `call_id`,
   Chat Completions by position). A `call_id` used again in a later round means that round's own output.
4. Tool messages carry text only: images of an output follow all of them in one user message, or leave a note behind.
"""

from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from outlast.protocol import items, json
from outlast.protocol.errors import UnsupportedFeature
from outlast.protocol.items import Part, PreparedItem
from outlast.protocol.json import JsonObject

Call = items.FunctionCall | items.CustomToolCall
Output = items.FunctionCallOutput | items.CustomToolCallOutput

_TEXT_PARTS = frozenset({"input_text", "output_text", "text", "summary_text", "reasoning_text"})


def convert(
    transcript: Sequence[PreparedItem], instructions: str | None, *, developer_role: bool, images: bool
) -> list[JsonObject]:
    """The messages of a round.

    `developer_role`: the server knows role developer (else it is sent as system); `images`: the model sees images.
    Raises: UnsupportedFeature for a content part Chat Completions cannot say, TypeError for an unprepared item.
    """
    writer = _Writer(transcript, developer_role=developer_role, images=images)
    if instructions:
        writer.messages.append({"role": "system", "content": instructions})
    for item in transcript:
        writer.add(item)
    writer.end_turn()
    return writer.messages


@dataclass(slots=True)
class _Turn:
    """What one model round has said so far."""

    reasoning: list[str] = field(default_factory=list)
    text: str | None = None
    calls: list[Call] = field(default_factory=list)


class _Writer:
    """The messages so far and the open assistant turn."""

    def __init__(self, transcript: Sequence[PreparedItem], *, developer_role: bool, images: bool) -> None:
        self.messages: list[JsonObject] = []
        self._developer_role = developer_role
        self._images = images
        self._turn: _Turn | None = None
        self._outputs: defaultdict[str, deque[Output]] = defaultdict(deque)
        for item in transcript:
            if isinstance(item, Output):
                self._outputs[item.call_id].append(item)

    def add(self, item: PreparedItem) -> None:
        """Append one item."""
        match item:
            case items.Message(role="assistant"):
                self._assistant_text(_assistant_content(item.content))
            case items.Message():
                self.end_turn()
                role = "system" if item.role == "developer" and not self._developer_role else item.role
                self.messages.append({"role": role, "content": _content(item.content)})
            case items.Reasoning():
                turn = self._open_turn(fresh=self._turn is not None and self._turn.text is not None)
                turn.reasoning.append(_texts(item.content or [], "\n"))
            case items.FunctionCall() | items.CustomToolCall():
                self._open_turn().calls.append(item)
            case items.FunctionCallOutput() | items.CustomToolCallOutput():
                self.end_turn()
                waiting = self._outputs[item.call_id]
                if waiting and waiting[0] is item:  # its call is not in this transcript: the server shall say so
                    self._tool_messages([waiting.popleft()])
            case _:
                raise TypeError(f"unprepared item in a transcript: {getattr(item, 'type', type(item).__name__)}")

    def end_turn(self) -> None:
        """Write the open assistant message and the outputs of its calls."""
        turn, self._turn = self._turn, None
        if turn is None:
            return
        message: JsonObject = {"role": "assistant", "content": turn.text}
        if turn.reasoning:
            message["reasoning_content"] = "\n".join(turn.reasoning)
        if turn.calls:
            message["tool_calls"] = [_call(call) for call in turn.calls]
        elif turn.text is None:
            message["content"] = ""  # null needs calls beside it
        self.messages.append(message)
        waiting = [self._outputs[call.call_id] for call in turn.calls]
        self._tool_messages([queue.popleft() for queue in waiting if queue])

    def _open_turn(self, *, fresh: bool = False) -> _Turn:
        """The open turn, or a new one; `fresh` ends it first, unless its calls still wait for their outputs."""
        if fresh and self._turn is not None and not self._turn.calls:
            self.end_turn()
        if self._turn is None:
            self._turn = _Turn()
        return self._turn

    def _assistant_text(self, text: str) -> None:
        turn = self._open_turn(fresh=self._turn is not None and self._turn.text is not None)
        turn.text = text if turn.text is None else turn.text + "\n" + text

    def _tool_messages(self, outputs: list[Output]) -> None:
        shown: list[JsonObject] = []
        for output in outputs:
            content, pictures = self._output(output)
            self.messages.append({"role": "tool", "tool_call_id": output.call_id, "content": content})
            if pictures:
                shown += [{"type": "text", "text": f"Images returned by tool call {output.call_id}:"}, *pictures]
        if shown:
            self.messages.append({"role": "user", "content": shown})

    def _output(self, output: Output) -> tuple[str, list[JsonObject]]:
        """The text of an output and the images to be shown after it."""
        if isinstance(output.output, str):
            return output.output, []
        texts: list[str] = []
        pictures: list[JsonObject] = []
        for part in output.output:
            kind = part.get("type")
            if kind in _TEXT_PARTS:
                texts.append(str(part.get("text", "")))
            elif kind == "input_image" and self._images:
                pictures.append(_image(part))
                texts.append("[image: shown in the next user message]")
            else:
                texts.append(f"[{kind} not shown: the model cannot read it]")
        return "\n".join(texts), pictures


def _content(content: str | list[Part] | None) -> str | list[JsonObject]:
    """Text alone as one string, which every server reads; else parts."""
    if content is None or isinstance(content, str):
        return content or ""
    if all(part.get("type") in _TEXT_PARTS for part in content):
        return _texts(content, "\n")
    return [_part(part) for part in content]


def _assistant_content(content: str | list[Part] | None) -> str:
    """The text of a message of the model, refusals included: deltas of one message belong together without a break."""
    return content or "" if content is None or isinstance(content, str) else _texts(content, "")


def _texts(parts: list[Part], separator: str) -> str:
    return separator.join(str(part.get("text") or part.get("refusal") or "") for part in parts)


def _part(part: Part) -> JsonObject:
    match part.get("type"):
        case kind if kind in _TEXT_PARTS:
            return {"type": "text", "text": part.get("text", "")}
        case "input_image":
            return _image(part)
        case "input_file" if not part.get("file_url"):
            return {
                "type": "file",
                "file": {key: part[key] for key in ("file_id", "file_data", "filename") if part.get(key)},
            }
        case "input_audio":
            return {"type": "input_audio", "input_audio": part.get("input_audio")}
        case kind:
            raise UnsupportedFeature(
                f"This model's server cannot take a content part {kind!r} in this form.", param="input"
            )


def _image(part: Part) -> JsonObject:
    url = part.get("image_url")
    if not isinstance(url, str):
        raise UnsupportedFeature(
            "This model's server takes images by `image_url` only (a URL or a data: URL), not by `file_id`.",
            param="input",
        )
    detail = part.get("detail")
    return {"type": "image_url", "image_url": {"url": url, **({"detail": detail} if detail else {})}}


def _call(call: Call) -> JsonObject:
    """A call; templates parse the arguments, so none is an empty object; a free-text input is its one argument."""
    arguments = json.dumps_text({"input": call.input}) if isinstance(call, items.CustomToolCall) else call.arguments
    return {"id": call.call_id, "type": "function", "function": {"name": call.name, "arguments": arguments or "{}"}}
