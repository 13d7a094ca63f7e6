"""The table of docs/parameters.md as data, so that tests hold it to the behaviour."""

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

JsonObject = dict[str, Any]
PAGE = Path(__file__).resolve().parents[2] / "docs" / "parameters.md"
REFUSED = "refused"


@dataclass(frozen=True)
class Row:
    """One parameter. `response`, `responses`, `chat`: the cells."""

    name: str
    request: JsonObject
    response: str
    responses: str
    chat: str

    @property
    def parameter(self) -> str:
        """Its top-level name."""
        return next(iter(self.request))

    def expected(self, cell: str) -> JsonObject:
        """Keys and values this cell promises."""
        if cell == "as given":
            return {self.parameter: self.request[self.parameter]}
        found: JsonObject = {} if cell == "–" else json.loads(cell.strip("`"))
        return found

    def refused(self, dialect: str) -> bool:
        """Whether the request is 400 there."""
        return {"responses": self.responses, "chat": self.chat}[dialect] == REFUSED


def rows() -> list[Row]:
    """All of them, in order."""
    found = re.findall(
        r"^\| (`.+?) \| `(\{.+?\})` \| (.+?) \| (.+?) \| (.+?) \|$", PAGE.read_text("utf-8"), re.MULTILINE
    )
    return [Row(name, json.loads(request), *cells) for name, request, *cells in found]
