"""Claims about where settings come from and which ones are refused."""

import os
from pathlib import Path

import pytest

from outlast import ports
from outlast import settings as config
from outlast.protocol.errors import ConfigurationError
from outlast.settings import ModelRoute, Settings


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No OPENAI_* or OUTLAST_* of the developer, and an empty working folder."""
    for name in list(os.environ):
        if name.startswith(("OPENAI_", "OUTLAST_")):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


def write(text: str) -> Path:
    """An `outlast.toml` in the working folder."""
    path = Path("outlast.toml")
    path.write_text(text, encoding="utf-8")
    return path


def refused(**kwargs: object) -> str:
    """The text with which `load` refuses."""
    with pytest.raises(ConfigurationError) as caught:
        config.load(**kwargs)  # type: ignore[arg-type]  # keyword arguments pass through
    return caught.value.message


def test_nothing_given_means_the_documented_defaults() -> None:
    """Also: no upstream, and the demo model is there."""
    settings = config.load()
    assert settings == Settings()
    assert (settings.host, settings.port, settings.temporal_port, settings.ui_port) == ("127.0.0.1", 8080, 7233, 8233)
    assert settings.store_url == f"sqlite+aiosqlite:///{Path.cwd()}/.outlast/outlast.db"
    assert settings.temporal_address == "127.0.0.1:7233"
    assert settings.route("demo") == ModelRoute("demo", "demo")
    assert settings.route("gpt-5") is None


def test_a_flag_beats_the_environment_beats_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """Per key: a section given in two places is merged."""
    write("port = 1\nui_port = 2\n[limits]\nmax_rounds = 3\nmax_tools = 4\n")
    monkeypatch.setenv("OUTLAST_PORT", "11")
    monkeypatch.setenv("OUTLAST_TEMPORAL_PORT", "12")
    monkeypatch.setenv("OUTLAST_LIMITS__MAX_ROUNDS", "13")
    settings = config.load(overrides={"port": 21, "host": None})
    assert (settings.port, settings.ui_port, settings.temporal_port, settings.host) == (21, 2, 12, "127.0.0.1")
    assert (settings.limits.max_rounds, settings.limits.max_tools) == (13, 4)


def test_upstreams_and_servers_can_be_given_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The nested form reaches named sections."""
    monkeypatch.setenv("OUTLAST_UPSTREAMS__LOCAL__BASE_URL", "http://10.0.0.1:9000/v1/")
    monkeypatch.setenv("OUTLAST_MCP__SERVERS__DESK__URL", "http://10.0.0.1:9001/mcp")
    settings = config.load()
    assert settings.upstreams["local"].base_url == "http://10.0.0.1:9000/v1"
    assert settings.mcp.servers["desk"].url == "http://10.0.0.1:9001/mcp"


@pytest.mark.parametrize(
    ("environment", "kwargs", "expected"),
    [
        ({}, {}, None),
        ({"OPENAI_API_KEY": "k"}, {}, ("https://api.openai.com/v1", "responses", "k")),
        ({"OPENAI_BASE_URL": "http://10.0.0.1/v1"}, {}, ("http://10.0.0.1/v1", "chat", None)),
        (
            {"OPENAI_BASE_URL": "http://10.0.0.1/v1", "OPENAI_API_KEY": "k"},
            {"dialect": "responses"},
            ("http://10.0.0.1/v1", "responses", "k"),
        ),
        ({"OPENAI_BASE_URL": "https://api.openai.com/v1"}, {}, ("https://api.openai.com/v1", "responses", None)),
        ({"OPENAI_BASE_URL": "http://10.0.0.1"}, {"upstream": "http://10.0.0.2"}, ("http://10.0.0.2", "chat", None)),
    ],
)
def test_the_upstream_of_flag_and_openai_variables(
    monkeypatch: pytest.MonkeyPatch,
    environment: dict[str, str],
    kwargs: dict[str, str],
    expected: tuple[str, str, str | None] | None,
) -> None:
    """The key alone means OpenAI with `responses`; elsewhere `chat` unless given; the flag wins."""
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    settings = config.load(**kwargs)  # type: ignore[arg-type]  # keyword arguments pass through
    if expected is None:
        assert settings.upstreams == {}
        return
    (only,) = settings.upstreams.values()
    assert (only.base_url, only.spoken_dialect, only.api_key()) == expected
    assert settings.route("any/model") == ModelRoute("default", "any/model")


def test_a_configured_upstream_keeps_openai_variables_out_but_not_the_flag(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the flag the file's upstreams and models do not count."""
    write('[upstreams.box]\nbase_url = "http://10.0.0.1"\n[models."big"]\nupstream = "box"\nname = "org/big"\n')
    monkeypatch.setenv("OPENAI_BASE_URL", "http://10.0.0.9")
    settings = config.load()
    assert list(settings.upstreams) == ["box"]
    assert settings.route("big") == ModelRoute("box", "org/big")
    assert settings.route("other") is None
    flagged = config.load(upstream="http://10.0.0.2")
    assert [up.base_url for up in flagged.upstreams.values()] == ["http://10.0.0.2"]
    assert flagged.models == {}
    assert flagged.route("other") == ModelRoute("default", "other")
    # The built-in one exists beside every upstream.
    assert flagged.route("demo") == settings.route("demo") == ModelRoute("demo", "demo")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[limits]\nmax_toolz = 1\n", "outlast.toml, limits.max_toolz: unknown key"),
        ("prot = 1\n", "outlast.toml, prot: unknown key"),
        ("port = 'x'\n", "outlast.toml, port: Input should be a valid integer"),
        ("port = \n", "outlast.toml: Invalid value (at line 1"),
        ("port = 65536\n", "outlast.toml, port: Input should be less than or equal to 65535"),
        ("[limits]\nmax_rounds = 0\n", "outlast.toml, limits.max_rounds: Input should be greater than or equal to 1"),
        ("[limits]\nidle_seconds = 0\n", "outlast.toml, limits.idle_seconds: Input should be greater than 0"),
        ("[limits]\nround_seconds = 841\n", "outlast.toml, limits.round_seconds: Input should be less than or equal"),
        ("[approvals]\ndeadline_seconds = 0\n", "outlast.toml, approvals.deadline_seconds: Input should be greater"),
        ('[upstreams.a]\nbase_url = "ftp://x"\n', "outlast.toml, upstreams.a.base_url: 'ftp://x' is not an http"),
        ('[models.x]\nupstream = "y"\n', "[models.\"x\"] upstream = 'y' is not in [upstreams] (none)"),
        ('[upstreams.demo]\nbase_url = "http://x"\n', "the name 'demo' belongs to the built-in demo model"),
        (
            '[upstreams.a]\nbase_url = "http://x"\n[upstreams.b]\nbase_url = "http://y"\n',
            "several upstreams (a, b) need",
        ),
        ('[approvals]\non_deadline = "deny"\n', "outlast.toml, approvals: on_deadline = 'deny' needs deadline_seconds"),
        (
            '[mcp.servers.s]\nurl = "http://x"\nbuiltin_type = "web_search"\n',
            "outlast.toml, mcp.servers.s: builtin_type and builtin_tool_name are given together or not at all",
        ),
        (
            '[mcp.servers.s]\nurl = "http://x"\ninternal = true\n'
            '[mcp.servers.s.tools.t]\nrequire_approval = "always"\n',
            "[mcp.servers.s] internal = true hides",
        ),
    ],
)
def test_a_wrong_file_is_refused_naming_file_and_key(text: str, expected: str) -> None:
    """What to change is in the text."""
    write(text)
    assert refused().startswith(expected)


def test_an_internal_server_is_fine_when_approvals_wait() -> None:
    """Its asks are decided through the approvals API, not the public response."""
    tool = '[mcp.servers.s.tools.t]\nrequire_approval = "always"\n'
    write(f'[mcp.servers.s]\nurl = "http://x"\ninternal = true\n{tool}[approvals]\nmode = "wait"\n')
    assert config.load().mcp.servers["s"].internal


def test_two_servers_cannot_be_bound_to_one_hosted_type() -> None:
    """One server per type."""
    server = 'url = "http://x"\nbuiltin_type = "web_search"\nbuiltin_tool_name = "t"\n'
    write(f"[mcp.servers.a]\n{server}[mcp.servers.b]\n{server}")
    assert refused() == "outlast.toml, mcp: a and b are both bound to web_search"


def test_two_servers_at_one_address_say_one_thing() -> None:
    """For two hosted types; headers and tools are looked up by the address."""
    server = 'url = "http://x"\n'
    write(f'[mcp.servers.a]\n{server}[mcp.servers.b]\n{server}headers_env = {{ authorization = "B" }}')
    assert refused() == "outlast.toml, mcp: a and b have one url and different headers_env: give both the same"
    both = "".join(f"[mcp.servers.{name}]\n{server}[mcp.servers.{name}.tools.t]\nread_only = true\n" for name in "ab")
    write(both)
    assert refused() == "outlast.toml, mcp: a and b have one url, and both say something of t: say it once"
    write(both.replace("b.tools.t", "b.tools.u"))
    assert ports._servers(config.load().mcp).policies_of("http://x").keys() == {"t", "u"}


def test_wrong_values_elsewhere_name_the_variable_or_the_flag(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same check, another origin."""
    assert refused(overrides={"temporal_port": 70000}).startswith("--temporal-port: ")
    assert refused(upstream="nowhere").startswith("--upstream or OPENAI_BASE_URL: 'nowhere' is not an http")
    assert refused(config=Path("gone.toml")) == "gone.toml: no such file"
    assert refused(dialect="chat").startswith("--dialect needs an upstream")
    monkeypatch.setenv("OUTLAST_LIMITS__MAX_ROUNDZ", "1")
    assert refused() == "environment, OUTLAST_LIMITS__MAX_ROUNDZ: unknown key"


@pytest.mark.parametrize("url", ["http://localhost:8080/v1", "http://127.0.0.1:8080", "http://0.0.0.0:8080"])
@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0", "localhost"])
def test_an_upstream_that_is_this_server_is_refused(url: str, host: str) -> None:
    """Every spelling of the loopback address is one address."""
    assert "is the address of this server" in refused(upstream=url, overrides={"host": host})


@pytest.mark.parametrize("url", ["http://127.0.0.1:8081/v1", "http://192.0.2.1:8080/v1"])
def test_an_upstream_on_another_port_or_machine_is_accepted(url: str) -> None:
    """Only this server's own address is a loop."""
    assert config.load(upstream=url).upstreams["default"].base_url == url


def test_a_secret_is_read_from_the_variable_its_key_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """An unset one is an error that names it."""
    write('[upstreams.u]\nbase_url = "http://x"\napi_key_env = "BOX_KEY"\n')
    upstream = config.load().upstreams["u"]
    with pytest.raises(ConfigurationError, match="BOX_KEY, which is not set"):
        upstream.api_key()
    monkeypatch.setenv("BOX_KEY", "secret")
    assert upstream.api_key() == "secret"
