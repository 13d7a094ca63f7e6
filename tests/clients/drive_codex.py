"""The Codex CLI, driven: `make test-clients`, which installs it. Not collected by `make test`."""

import asyncio
import base64
import json
import os
from asyncio.subprocess import PIPE
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.clients.installed import path
from tests.support.client_model import GREETING, SUMMARY
from tests.support.clients import CHATTING, CUT_AT, LONG, MODEL, SEALING, Served, snippets, use

JsonObject = dict[str, Any]
# One red pixel.
RED = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="
)
_CONFIG = """\
model = "{model}"
model_provider = "outlast"
approval_policy = "never"
sandbox_mode = "danger-full-access"
{more}
[model_providers.outlast]
name = "{provider}"
base_url = "{base_url}"
wire_api = "responses"
request_max_retries = 0
stream_max_retries = {retries}
supports_websockets = {websockets}
[mcp_servers.test]
url = "{mcp_url}"
"""


@dataclass(frozen=True)
class Turn:
    """What `codex exec --json` printed."""

    events: list[JsonObject]

    @property
    def said(self) -> str:
        """The last message of the agent."""
        return str(self.items("agent_message")[-1]["text"])

    def items(self, kind: str) -> list[JsonObject]:
        """Completed items of a kind."""
        done = [event["item"] for event in self.events if event["type"] == "item.completed"]
        return [item for item in done if item["type"] == kind]

    def ended(self, kind: str) -> JsonObject:
        """The last event, which must be of this kind."""
        assert self.events[-1]["type"] == kind, self.events
        return self.events[-1]


@dataclass(frozen=True)
class Codex:
    """A home and a folder of its own."""

    world: Served
    home: Path
    work: Path

    def configure(
        self,
        *,
        model: str = MODEL,
        provider: str = "outlast",
        through: str | None = None,
        retries: int = 0,
        websockets: bool = False,
        **more: object,
    ) -> None:
        """Write `config.toml`. `through`: another way to the server than its own URL."""
        config = _CONFIG.format(
            model=model,
            provider=provider,
            base_url=f"{through or self.world.server.url}/v1",
            retries=retries,
            websockets=json.dumps(websockets),
            mcp_url=self.world.tools.url,
            more="\n".join(f"{key} = {json.dumps(value)}" for key, value in more.items()),
        )
        (self.home / "config.toml").write_text(config, encoding="utf-8")

    async def turn(self, prompt: str, *options: str, resume: bool = False, fails: bool = False) -> Turn:
        """One turn, which succeeds unless told otherwise; `resume`: of the last session."""
        command = ("exec", *(["resume", "--last"] if resume else []), "--json", "--skip-git-repo-check", *options)
        code, out = await self.run(*command, prompt)
        turn = Turn([json.loads(line) for line in out.splitlines()])
        turn.ended("turn.failed" if fails else "turn.completed")
        assert (code != 0) == fails
        return turn

    async def run(self, *arguments: str) -> tuple[int, str]:
        """Exit code and standard output of `codex`."""
        env = {"PATH": path(), "HOME": os.environ.get("HOME", "/"), "CODEX_HOME": str(self.home)}
        process = await asyncio.create_subprocess_exec(
            "codex", *arguments, cwd=self.work, env=env, stdin=asyncio.subprocess.DEVNULL, stdout=PIPE, stderr=PIPE
        )
        async with asyncio.timeout(60):
            out, _ = await process.communicate()
        assert process.returncode is not None
        return process.returncode, out.decode()


@pytest.fixture
def codex(world: Served, tmp_path: Path) -> Codex:
    """A fresh one."""
    made = Codex(world, tmp_path / "home", tmp_path / "work")
    made.home.mkdir()
    made.work.mkdir()
    made.configure()
    return made


@pytest.fixture(scope="module")
async def catalogs(world: Served, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Files that give our model the tools of those Codex knows: `plain` has a custom tool, `search` a tool search too,
    `lite` has all its tools in an input item."""
    folder = tmp_path_factory.mktemp("catalogs")
    (folder / "home").mkdir()
    _, out = await Codex(world, folder / "home", folder).run("debug", "models")
    known = json.loads(out)["models"]
    lite = next(model for model in known if model.get("use_responses_lite"))
    full = next(model for model in known if not model.get("use_responses_lite"))
    made = {"plain": (full, False), "search": (full, True), "lite": (lite, True)}
    for name, (model, search) in made.items():
        ours = {**model, "slug": MODEL, "supports_search_tool": search, "upgrade": None}
        (folder / f"{name}.json").write_text(json.dumps({"models": [ours]}), encoding="utf-8")
    return {name: folder / f"{name}.json" for name in made}


async def test_a_text(codex: Codex) -> None:
    """One turn, its usage counted."""
    turn = await codex.turn("hello")
    assert turn.said == GREETING
    assert turn.ended("turn.completed")["usage"]["input_tokens"] > 0


async def test_a_shell_round(codex: Codex) -> None:
    """The command runs here, its output goes back."""
    turn = await codex.turn(use("exec_command", cmd="echo is-$((40+2))"))
    [ran] = turn.items("command_execution")
    assert (ran["aggregated_output"], ran["exit_code"]) == ("is-42\n", 0)
    assert "is-42" in turn.said


async def test_a_shell_round_with_a_model_behind_chat_completions(codex: Codex) -> None:
    """Such a model gets Codex's functions; namespaces and the like are left out."""
    codex.configure(model=CHATTING)
    turn = await codex.turn(use("exec_command", cmd="echo is-$((40+2))"))
    assert "is-42" in turn.said
    assert {tool["type"] for tool in codex.world.model.bodies[-1]["tools"]} == {"function"}


async def test_its_own_mcp_server(codex: Codex) -> None:
    """A tool inside a `namespace`: the call comes back with it, and Codex calls the server."""
    turn = await codex.turn(use("echo", text="codex"))
    [ran] = turn.items("mcp_tool_call")
    assert (ran["server"], ran["tool"], ran["status"]) == ("test", "echo", "completed")
    assert turn.said.endswith("echo codex")
    assert codex.world.echoed("codex") == 1


async def test_structured_output(codex: Codex) -> None:
    """`--output-schema`."""
    schema = {
        "type": "object",
        "properties": {"a": {"type": "string"}},
        "required": ["a"],
        "additionalProperties": False,
    }
    (codex.home / "schema.json").write_text(json.dumps(schema), encoding="utf-8")
    turn = await codex.turn('answer with {"a": "x"}', "--output-schema", str(codex.home / "schema.json"))
    assert json.loads(turn.said) == {"a": "x"}
    assert codex.world.model.bodies[-1]["text"]["format"]["schema"] == schema


async def test_a_custom_tool(codex: Codex, catalogs: dict[str, Path]) -> None:
    """`apply_patch` takes free text, not JSON."""
    codex.configure(model_catalog_json=str(catalogs["plain"]))
    patch = "*** Begin Patch\n*** Add File: new.txt\n+made by a patch\n*** End Patch\n"
    await codex.turn(use("apply_patch", input=patch))
    assert (codex.work / "new.txt").read_text(encoding="utf-8") == "made by a patch\n"


async def test_tools_that_are_searched(codex: Codex, catalogs: dict[str, Path]) -> None:
    """The MCP tool is in no `tools`: a `tool_search_call` brings it as an item."""
    codex.configure(model_catalog_json=str(catalogs["search"]))
    turn = await codex.turn(f"{use('tool_search', query='echo text')} and {use('echo', text='found')}")
    assert turn.said.endswith("echo found")


async def test_tools_in_an_item(codex: Codex, catalogs: dict[str, Path]) -> None:
    """`additional_tools` instead of `tools`, and a custom tool inside a namespace."""
    codex.configure(model_catalog_json=str(catalogs["lite"]))
    turn = await codex.turn(use("exec", input='text("is-" + (40 + 2))'))
    assert "is-42" in turn.said


async def test_an_image_a_tool_returns(codex: Codex) -> None:
    """`view_image` answers with parts, the image as a data URL: the model gets it."""
    codex.configure(model=SEALING)
    (codex.work / "red.png").write_bytes(RED)
    await codex.turn(use("view_image", path=str(codex.work / "red.png")))
    [answer] = [item for item in codex.world.model.bodies[-1]["input"] if item["type"] == "function_call_output"]
    [picture] = [part for part in answer["output"] if part["type"] == "input_image"]
    assert picture["image_url"].startswith("data:image/png;base64,")


async def test_two_turns(codex: Codex) -> None:
    """`codex exec resume` sends the whole history; call and output stay a pair."""
    await codex.turn(use("exec_command", cmd="echo first-$((1+1))"))
    turn = await codex.turn(use("exec_command", cmd="echo second-$((2+2))"), resume=True)
    assert "second-4" in turn.said
    given = codex.world.model.bodies[-1]["input"]
    calls = [item["call_id"] for item in given if item["type"] == "function_call"]
    assert calls == [item["call_id"] for item in given if item["type"] == "function_call_output"]
    assert len(calls) == 2


@pytest.mark.parametrize("websockets", [False, True])
async def test_two_turns_of_sealed_reasoning(codex: Codex, websockets: bool) -> None:
    """The server of the model holds encrypted content to the id it was made for, as OpenAI does: the id survives
    Outlast and Codex."""
    codex.configure(model=SEALING, websockets=websockets)
    await codex.turn(use("exec_command", cmd="echo first-$((1+1))"))
    turn = await codex.turn(use("exec_command", cmd="echo second-$((2+2))"), resume=True)
    assert "second-4" in turn.said
    given = codex.world.model.bodies[-1]["input"]
    sealed = [item for item in given if item["type"] == "reasoning"]
    assert len(sealed) == 3
    assert all(item["id"].startswith("rs_") and item["encrypted_content"] for item in sealed)


async def test_over_a_websocket(codex: Codex) -> None:
    """Two rounds over one connection; Codex does not fall back to HTTP."""
    line = codex.world.line
    before = line.connections
    codex.configure(through=line.url, websockets=True)
    turn = await codex.turn(use("exec_command", cmd="echo is-$((40+2))"))
    assert "is-42" in turn.said
    opened = line.openings[before:]
    assert opened
    assert all(b"upgrade: websocket" in each.lower() for each in opened)


async def test_a_stream_killed_in_mid_text(codex: Codex) -> None:
    """Codex asks again by itself and gets the whole text."""
    codex.configure(through=codex.world.line.url, retries=2)
    codex.world.line.cut_at(CUT_AT)
    turn = await codex.turn(f"tell {LONG} words to codex")
    assert turn.said.endswith(f"word-{LONG}")
    assert len(turn.items("agent_message")) == 1
    assert len(codex.world.model.asked("words to codex")) == 2


async def test_a_socket_lost_while_the_model_writes(codex: Codex) -> None:
    """Codex connects again and asks again, with all it had sent."""
    codex.configure(through=codex.world.line.url, retries=2, websockets=True)
    codex.world.line.cut_when(lambda: bool(codex.world.model.asked("lose me")))
    turn = await codex.turn("tell 9 words, wait 0.5 s, lose me")
    assert turn.said.endswith("word-9")
    assert len(codex.world.model.asked("lose me")) == 2


async def test_a_refusal_is_shown(codex: Codex) -> None:
    """A 400 is not tried again and its message reaches the user."""
    turn = await codex.turn("fail with 400", fails=True)
    assert "told to fail with 400" in turn.ended("turn.failed")["error"]["message"]


async def test_a_long_session_is_summed_up_by_codex(codex: Codex) -> None:
    """Over its limit of tokens Codex asks for a summary in words, then goes on with that."""
    codex.configure(model_auto_compact_token_limit=1000)
    await codex.turn("hello one")
    turn = await codex.turn("hello two", resume=True)
    assert turn.said == GREETING
    assert codex.world.model.asked("CONTEXT CHECKPOINT COMPACTION")


@pytest.mark.parametrize("websockets", [False, True])
@pytest.mark.parametrize("model", [MODEL, SEALING])
async def test_a_long_session_is_compacted_by_a_trigger(codex: Codex, model: str, websockets: bool) -> None:
    """Where the provider has the name `OpenAI`: the answer to a `compaction_trigger` is one compaction item, Outlast's
    or that of an OpenAI server, which knows it again by its id."""
    codex.configure(model=model, provider="OpenAI", websockets=websockets, model_auto_compact_token_limit=1000)
    await codex.turn(use("exec_command", cmd="echo before-$((1+1))"))
    turn = await codex.turn("hello after", resume=True)
    assert turn.said == GREETING
    session = "".join(path.read_text(encoding="utf-8") for path in (codex.home / "sessions").rglob("*.jsonl"))
    assert session.count('"type":"compacted"') >= 1
    given = codex.world.model.bodies[-1]["input"]
    assert not [item for item in given if item["type"] in ("function_call", "function_call_output")]
    if model == SEALING:
        assert [item["id"][:4] for item in given if item["type"] == "compaction"] == ["cmp_"]
    else:
        assert SUMMARY in json.dumps(given)


async def test_the_snippet_works_as_printed(codex: Codex) -> None:
    """docs/clients.md, with a model that is there."""
    config, _ = snippets("toml", codex.world.server.url)
    assert 'model = "your-model"' in config
    (codex.home / "config.toml").write_text(config.replace("your-model", MODEL), encoding="utf-8")
    turn = await codex.turn(use("exec_command", cmd="echo is-$((40+2))"))
    assert "is-42" in turn.said
