"""The `outlast` command: starts processes, decides approvals of a running server, and checks servers."""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from outlast import approvals_client
from outlast import settings as config
from outlast.protocol.errors import ConfigurationError, OutlastError
from outlast.settings import Settings

# What each command runs, a function of `outlast.processes`.
_PROCESSES = {
    "dev": "API, worker and an embedded Temporal in one place, with the demo world.",
    "serve": "API and worker on one client, against an external Temporal.",
    "api": "HTTP only.",
    "worker": "Workflows and activities only.",
}


def main(argv: Sequence[str] | None = None) -> None:
    """Run a command; leaves the process by `os._exit`, since Temporal's threads can abort the interpreter's end."""
    try:
        code = _run(_parser().parse_args(argv))
        sys.stdout.flush()
    except BrokenPipeError:
        # `… | head` has read enough; flushing once more would fail again.
        os._exit(0)
    sys.stderr.flush()
    os._exit(code)


def _run(arguments: argparse.Namespace) -> int:
    """The exit code of a command."""
    try:
        return int(arguments.run(arguments) or 0)
    except OutlastError as error:
        print(f"outlast: {error.message}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def _process(arguments: argparse.Namespace) -> int:
    settings = _settings(arguments)
    # Imported here: `outlast approvals` is one HTTP request and need not wait seconds for it.
    from outlast import logs, processes

    logs.configure(os.environ.get("OUTLAST_LOG", "WARNING"))
    _make_data_folder(settings)
    compose = {
        "dev": processes.dev,
        "serve": processes.all_in_one,
        "api": processes.api,
        "worker": processes.worker,
    }
    processes.run(compose[arguments.command], settings)
    return 0


def _settings(arguments: argparse.Namespace) -> Settings:
    given = ("host", "port", "temporal_port", "ui_port", "data_dir")
    return config.load(
        arguments.config,
        upstream=arguments.upstream,
        dialect=arguments.dialect,
        overrides={name: getattr(arguments, name) for name in given},
    )


def _make_data_folder(settings: Settings) -> None:
    try:
        settings.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigurationError(
            f"{settings.data_dir} cannot be the data folder ({error.strerror}): choose another one with --data-dir"
        ) from error


def _approvals(arguments: argparse.Namespace) -> int:
    if arguments.action == "list":
        print(approvals_client.list_open(arguments.url, status=arguments.status))
    else:
        approve = arguments.action == "approve"
        print(approvals_client.decide(arguments.url, arguments.id, approve=approve, reason=arguments.reason))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="outlast", description=(__doc__ or "").splitlines()[0])
    commands = parser.add_subparsers(required=True, dest="command", metavar="COMMAND")
    for name, text in _PROCESSES.items():
        _add_process(commands.add_parser(name, help=text, description=text))
    _add_conformance(commands.add_parser("conformance", help="Check a Responses server, this one or any other."))
    asks = commands.add_parser("approvals", help="List and decide what waits for a human.")
    actions = asks.add_subparsers(required=True, dest="action", metavar="ACTION")
    for action in ("list", "approve", "deny"):
        each = actions.add_parser(action)
        each.add_argument("--url", help=f"server, default OUTLAST_URL or {approvals_client.DEFAULT_URL}")
        if action == "list":
            each.add_argument("--status", default="pending")
        else:
            each.add_argument("id", help="mcpr_…")
            each.add_argument("--reason", help="told to the model when denied")
        each.set_defaults(run=_approvals)
    return parser


def _add_conformance(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("url", help="base URL of a Responses server, with or without /v1")
    parser.add_argument("--model", default="demo", help="the model to ask (demo)")
    parser.add_argument("--api-key-env", metavar="VARIABLE", help="environment variable that holds the API key")
    parser.add_argument("--mcp-host", default="127.0.0.1", help="this machine as the server reaches it (127.0.0.1)")
    parser.add_argument("--only", metavar="NAMES", help="check or group names, comma separated")
    parser.add_argument("--skip", metavar="NAMES", help="check or group names, comma separated")
    parser.add_argument("--json", action="store_true", help="print one JSON array instead of the table")
    parser.set_defaults(run=_conformance)


def _conformance(arguments: argparse.Namespace) -> int:
    # Imported here: an MCP server and a hundred checks, which no other command wants.
    from outlast.conformance.command import Wanted, conform

    text, held = conform(
        Wanted(
            url=arguments.url,
            model=arguments.model,
            key_env=arguments.api_key_env,
            mcp_host=arguments.mcp_host,
            only=arguments.only,
            skip=arguments.skip,
            as_json=arguments.json,
        )
    )
    print(text)
    return 0 if held else 1


def _add_process(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--host", help="address to listen on (127.0.0.1)")
    parser.add_argument("--port", type=int, help="port of the API (8080)")
    parser.add_argument("--temporal-port", type=int, help="port of the embedded Temporal (7233)")
    parser.add_argument("--ui-port", type=int, help="port of Temporal's UI (8233)")
    parser.add_argument("--data-dir", type=Path, help="folder of the store, the key and the logs (.outlast)")
    parser.add_argument("--config", type=Path, metavar="FILE", help="settings file (outlast.toml if it is there)")
    parser.add_argument("--upstream", metavar="URL", help="model server behind every name but demo")
    parser.add_argument("--dialect", choices=("chat", "responses"), help="what the upstream speaks")
    parser.set_defaults(run=_process)
