"""What every client is driven against: one Outlast, a model that does what it is told, a tool server, a cut line."""

import json
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from outlast.settings import Settings
from tests.support.client_model import ClientModel, client_model
from tests.support.cutting import Line, cutting
from tests.support.mcp_server import McpTestServer, Tool, mcp_server
from tests.support.stack import Outlast, outlast, settings

JsonObject = dict[str, Any]
MODEL = "plain"
_PAGE = Path(__file__).resolve().parents[2] / "docs" / "clients.md"
# What the snippets print that refund an order.
REFUNDED = r'May I\? refund_order \{"order_id":104\d,.*\}\nDone\. Refunded [\d.]+ EUR for order 104\d to .*\n?'
# Behind a server that counts as OpenAI's.
SEALING = "sealing"
# The same under a name without which the Agents SDK compacts nothing.
OPENAI_NAME = "gpt-4.1"
# Behind a server that speaks Chat Completions; tools it cannot take are skipped.
CHATTING = "chatting"
LONG = 400  # words of an answer that is cut: far more than what is in flight
CUT_AT = b"word-200"


@dataclass(frozen=True)
class Served:
    """A running world. `base_url`: with `/v1`; `line`: a proxy before the server, with `line.url` without `/v1`."""

    server: Outlast
    model: ClientModel
    tools: McpTestServer
    line: Line

    @property
    def base_url(self) -> str:
        """What a client is given."""
        return f"{self.server.url}/v1"

    @property
    def client(self) -> Any:
        """The official Python client, without retries. Its types want a type guard for each item a test looks at."""
        return self.server.client

    def mcp(self, approval: str) -> JsonObject:
        """The tool server as a tool: `echo` repeats its `text`."""
        server = {"type": "mcp", "server_label": "test", "server_url": self.tools.url}
        return {**server, "require_approval": approval}

    def echoed(self, text: str) -> int:
        """How often `echo` ran with a text."""
        return sum(each.arguments == {"text": text} for each in self.tools.calls)


@asynccontextmanager
async def served(folder: Path, temporal: str) -> AsyncIterator[Served]:
    """The world, for a module of tests."""
    async with AsyncExitStack() as stack:
        model = await stack.enter_async_context(client_model())
        tools = await stack.enter_async_context(mcp_server({"echo": echo_tool()}))
        upstreams = {
            "own": {"base_url": model.url, "dialect": "responses"},
            "chat": {"base_url": model.url, "dialect": "chat"},
            "maker": {"base_url": model.url, "dialect": "responses", "openai": True},
        }
        models = {
            MODEL: {"upstream": "own"},
            OPENAI_NAME: {"upstream": "own"},
            SEALING: {"upstream": "maker"},
            CHATTING: {"upstream": "chat"},
        }
        changed = {"upstreams": upstreams, "models": models, "tools": {"unsupported": "skip"}}
        plain = settings(folder, temporal).model_dump()
        given = Settings.model_validate({**plain, **changed})
        server = await stack.enter_async_context(outlast(given, desk=False))
        line = await stack.enter_async_context(cutting(server.url))
        yield Served(server, model, tools, line)


def echo_tool() -> Tool:
    """`echo`: says its text again."""
    schema = {
        "type": "object",
        "properties": {"text": {"type": "string"}},
        "required": ["text"],
        "additionalProperties": False,
    }
    return Tool(lambda given: f"echo {given['text']}", description="Says a text again.", schema=schema)


def use(name: str, **arguments: object) -> str:
    """A prompt that makes the model call a tool."""
    return f"use tool {name} with {json.dumps(arguments)}"


def snippets(language: str, url: str) -> list[str]:
    """The snippets of docs/clients.md in a language, pointed at a server; `url` without `/v1`."""
    page = _PAGE.read_text(encoding="utf-8").replace("http://127.0.0.1:8080", url)
    return re.findall(rf"^```{language}\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
