"""`outlast approvals`: the inbox on the command line, over HTTP to a running server."""

import os
from urllib.parse import quote

import httpx

from outlast.protocol.errors import ConfigurationError
from outlast.protocol.json import JsonObject

DEFAULT_URL = "http://127.0.0.1:8080"
_TIMEOUT = 30.0


def base_url(given: str | None) -> str:
    """`--url`, else `OUTLAST_URL`, else this machine's default; with or without `/v1`."""
    return (given or os.environ.get("OUTLAST_URL") or DEFAULT_URL).rstrip("/").removesuffix("/v1")


def list_open(url: str | None, *, status: str) -> str:
    """The asks with this status, a block each. Raises: ConfigurationError when the server does not answer."""
    found = _request("GET", url, f"/v1/approvals?status={quote(status)}")["data"]
    if not found:
        return f"No {status} approvals."
    return "\n\n".join(_block(approval) for approval in found)


def decide(url: str | None, approval_id: str, *, approve: bool, reason: str | None) -> str:
    """Decide one; the sentence to print. Raises: ConfigurationError with the server's words when it refuses."""
    body: JsonObject = {"approve": approve} | ({"reason": reason} if reason else {})
    approval = _request("POST", url, f"/v1/approvals/{quote(approval_id, safe='')}", body)
    note = approval.get("note")
    return f"{approval['id']}: {approval['status']} by {approval['decided_by']}" + (f" ({note})" if note else "")


def _block(approval: JsonObject) -> str:
    lines = [
        f"{approval['id']}  {approval['status']}  {approval['server_label']}.{approval['name']}",
        f"  arguments  {approval['arguments']}",
        f"  response   {approval['response_id']}  ({approval['mode']} mode)",
    ]
    if approval.get("decided_by"):
        lines.append(f"  decided    by {approval['decided_by']} over {approval['decided_how']}")
    return "\n".join(lines)


def _request(method: str, url: str | None, path: str, body: JsonObject | None = None) -> JsonObject:
    where = base_url(url)
    try:
        answer = httpx.request(method, where + path, json=body, timeout=_TIMEOUT, headers={"x-outlast-via": "cli"})
        found: JsonObject = answer.json()
    except (httpx.HTTPError, ValueError) as error:
        raise ConfigurationError(
            f"no Outlast server answers at {where} ({error}): start one with 'make run', or give --url"
        ) from error
    match found:
        case {"error": {"message": str(message)}}:
            raise ConfigurationError(message)
        case {"object": "list" | "approval"}:
            return found
        case _:
            raise ConfigurationError(f"what answers at {where} is not an Outlast server: give --url")
