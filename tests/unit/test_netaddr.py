"""Whose address a name is, by a resolver that says what a test wants."""

import socket
from collections.abc import Mapping, Sequence

import pytest

from outlast import netaddr

NAMES = {
    "localhost": ["127.0.0.1", "::1"],
    "laptop": ["127.0.1.1", "192.0.2.7"],
    "box": ["192.0.2.7"],
    "elsewhere": ["192.0.2.8"],
    "0.0.0.0": ["0.0.0.0"],
    "::": ["::"],
    "127.0.0.1": ["127.0.0.1"],
}


def resolver(names: Mapping[str, Sequence[str]]) -> object:
    """A `getaddrinfo` that knows these names and no other."""

    def getaddrinfo(host: str, _port: object) -> list[tuple[object, ...]]:
        if host not in names:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 0)) for address in names[host]]

    return getaddrinfo


@pytest.fixture(autouse=True)
def _this_machine_is_the_box(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", resolver(NAMES))
    monkeypatch.setattr(socket, "gethostname", lambda: "box")


@pytest.mark.parametrize(
    ("url", "host", "own"),
    [
        ("http://localhost:80/v1", "127.0.0.1", True),
        ("http://localhost/v1", "127.0.0.1", True),
        ("https://localhost/v1", "127.0.0.1", False),
        ("http://box/v1", "127.0.0.1", False),
        # A wildcard listens on every address of this machine.
        ("http://box/v1", "0.0.0.0", True),
        ("http://laptop/v1", "::", True),
        ("http://elsewhere/v1", "0.0.0.0", False),
        # Connecting to the wildcard address arrives at this machine.
        ("http://0.0.0.0/v1", "127.0.0.1", True),
        ("http://0.0.0.0/v1", "box", False),
        ("http://unknown.example/v1", "0.0.0.0", False),
    ],
)
def test_a_url_is_our_own_when_it_leads_to_an_address_we_listen_on(url: str, host: str, own: bool) -> None:
    """Listening on port 80, the one a URL without a port means."""
    assert netaddr.is_own(url, host=host, port=80) is own


@pytest.mark.parametrize(
    ("host", "loopback"),
    [("127.0.0.1", True), ("localhost", True), ("0.0.0.0", False), ("laptop", False), ("box", False), ("gone", False)],
)
def test_a_host_is_the_loopback_only_with_all_of_its_addresses(host: str, loopback: bool) -> None:
    """One that is also on the network is warned of."""
    assert netaddr.is_loopback(host) is loopback
