"""Conversations as they really happen, for properties of the preparation: what clients send answers what we emitted.

Every text, call and output is numbered, so that a test can say where each has to be.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from hypothesis import strategies as st

from outlast.protocol.json import JsonObject


@dataclass
class Turn:
    """One request and its response."""

    sent: list[JsonObject] = field(default_factory=list)
    output: list[JsonObject] = field(default_factory=list)


@dataclass
class Told:
    """A whole conversation and what a model must read of it.

    `texts`: of users and assistant, in order; `calls`: (call id, output) in the model's order; `labels`: of lists.
    """

    turns: list[Turn] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    calls: list[tuple[str, str]] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)

    @property
    def items(self) -> list[JsonObject]:
        """Everything, oldest first: what a stateless client has at the end, and what a chain has stored."""
        return [item for turn in self.turns for item in (*turn.sent, *turn.output)]


class _Teller:
    """Writes a conversation; `draw` decides."""

    def __init__(self, draw: Callable[[st.SearchStrategy[Any]], Any]) -> None:
        self._draw = draw
        self._numbers = count()
        self.told = Told()
        # Client calls to answer and asks to decide, by the next request.
        self._due: list[JsonObject] = []
        self._asks: list[JsonObject] = []

    def turn(self) -> None:
        """A request and its response."""
        turn = Turn()
        self.told.turns.append(turn)
        approved = self._answers(turn)
        self._says(turn)
        for ask in approved:
            turn.output.append(self._ran(ask))
        for _ in range(self._draw(st.integers(1, 3))):
            if not self._round(turn):
                return
        self._answer(turn)

    def _number(self) -> int:
        return next(self._numbers)

    def _answers(self, turn: Turn) -> list[JsonObject]:
        """Outputs of client calls in any order, decisions on asks; the approved ones."""
        due, self._due = self._due, []
        turn.sent += self._draw(st.permutations(due))
        approved = []
        asks, self._asks = self._asks, []
        for ask in asks:
            verdict = self._draw(st.sampled_from([True, False, None]))
            if verdict is None:  # left open: nothing of it is shown
                self.told.calls = [pair for pair in self.told.calls if pair[0] != ask["id"]]
                continue
            decision = {"type": "mcp_approval_response", "approval_request_id": ask["id"], "approve": verdict}
            turn.sent.append(decision)
            if verdict:
                approved.append(ask)
            else:
                self._expect(ask["id"], "denied")
        return approved

    def _expect(self, call_id: str, output: str) -> None:
        self.told.calls = [(known, output if known == call_id else text) for known, text in self.told.calls]

    def _says(self, turn: Turn) -> None:
        for _ in range(self._draw(st.integers(0 if turn.sent else 1, 2))):
            text = self._draw(st.sampled_from(["hello", f"question {self._number()}"]))
            self.told.texts.append(text)
            content = self._draw(st.sampled_from([text, [{"type": "input_text", "text": text}]]))
            turn.sent.append({"type": "message", "role": "user", "content": content})

    def _round(self, turn: Turn) -> bool:
        """Reasoning, text, calls; False when the client has to go on."""
        n = self._number()
        if self._draw(st.booleans()):
            label = self._draw(st.sampled_from(["desk", "docs"]))
            turn.output.append({"type": "mcp_list_tools", "id": f"mcpl_{n}", "server_label": label, "tools": []})
            self.told.labels.append(label)
        turn.output += self._draw(st.lists(_reasonings(n), max_size=1))
        if self._draw(st.booleans()):
            self._answer(turn)
        kinds = self._draw(
            st.lists(st.sampled_from(["mcp", "failed", "ask", "function", "custom", "unknown"]), max_size=3)
        )
        for kind in kinds:
            self._call(turn, kind)
        return bool(kinds) and not (self._due or self._asks)

    def _answer(self, turn: Turn) -> None:
        n = self._number()
        text = self._draw(st.sampled_from(["sure", f"answer {n}"]))
        self.told.texts.append(text)
        part = {"type": "output_text", "text": text, "annotations": []}
        message = {"type": "message", "id": f"msg_{n}", "role": "assistant", "status": "completed", "content": [part]}
        turn.output.append(message)

    def _call(self, turn: Turn, kind: str) -> None:
        n = self._number()
        gateway = {"server_label": "desk", "name": "do", "arguments": f'{{"n":{n}}}'}
        match kind:
            case "mcp":
                done = {"output": f"out {n}", "error": None, "status": "completed", "approval_request_id": None}
                turn.output.append({"type": "mcp_call", "id": f"mcp_{n}", **gateway, **done})
                self.told.calls.append((f"mcp_{n}", f"out {n}"))
            case "failed":
                error = {"type": "mcp_tool_execution_error", "content": [{"type": "text", "text": f"bad {n}"}]}
                turn.output.append(
                    {"type": "mcp_call", "id": f"mcp_{n}", **gateway, "error": error, "status": "failed"}
                )
                self.told.calls.append((f"mcp_{n}", f"bad {n}"))
            case "ask":
                ask = {"type": "mcp_approval_request", "id": f"mcpr_{n}", **gateway}
                turn.output.append(ask)
                self._asks.append(ask)
                self.told.calls.append((f"mcpr_{n}", "?"))
            case "unknown":
                turn.output.append(
                    {"type": "thing_of_tomorrow", "id": f"item_{n}", "call_id": f"call_{n}", "output": f"out {n}"}
                )
                self.told.calls.append((f"call_{n}", f"out {n}"))
            case _:
                self._client_call(turn, kind, n)

    def _client_call(self, turn: Turn, kind: str, n: int) -> None:
        field = "arguments" if kind == "function" else "input"
        call = {"type": f"{kind}_call" if kind == "function" else "custom_tool_call", "id": f"fc_{n}"}
        turn.output.append({**call, "call_id": f"call_{n}", "name": "mine", field: "{}", "status": "completed"})
        output = {"type": f"{call['type']}_output", "call_id": f"call_{n}", "output": f"out {n}"}
        self._due.append(output)
        self.told.calls.append((f"call_{n}", f"out {n}"))

    def _ran(self, ask: JsonObject) -> JsonObject:
        n = self._number()
        self._expect(ask["id"], f"out {n}")
        copied = {key: ask[key] for key in ("server_label", "name", "arguments")}
        done = {"output": f"out {n}", "status": "completed", "approval_request_id": ask["id"]}
        return {"type": "mcp_call", "id": f"mcp_{n}", **copied, **done}

    def end(self) -> Told:
        """With a last request, so that nothing is left to answer."""
        turn = Turn()
        self.told.turns.append(turn)
        turn.output += [self._ran(ask) for ask in self._answers(turn)]
        return self.told


def _reasonings(n: int) -> st.SearchStrategy[JsonObject]:
    """Plain, sealed, summary only, with an empty first part."""
    parts = st.sampled_from([["thought"], ["", "thought"], [""], []])
    return st.builds(
        lambda texts, summary, sealed: {
            "type": "reasoning",
            "id": f"rs_{n}",
            "summary": [{"type": "summary_text", "text": text} for text in summary],
            "content": [{"type": "reasoning_text", "text": text} for text in texts],
            **({"encrypted_content": "sealed"} if sealed else {}),
        },
        parts,
        st.lists(st.just("in short"), max_size=1),
        st.booleans(),
    )


@st.composite
def conversations(draw: Any) -> Told:
    """One to four turns and what closes the last of them."""
    teller = _Teller(draw)
    for _ in range(draw(st.integers(1, 4))):
        teller.turn()
    return teller.end()
