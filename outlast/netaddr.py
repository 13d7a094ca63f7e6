"""Is a URL our own address, and which port is free? The only place that asks the resolver or the kernel."""

import ipaddress
import socket
from urllib.parse import urlsplit


def is_own(url: str, *, host: str, port: int) -> bool:
    """Whether `url` leads to a server that listens on `host:port`.

    All loopback spellings count as one address, and a wildcard host listens on every address of this machine. A name
    that does not resolve is not ours.
    """
    parts = urlsplit(url)
    if (parts.port or {"http": 80, "https": 443}.get(parts.scheme)) != port:
        return False
    ours = _addresses(host)
    if "any" in ours:
        ours |= {"loopback"} | _addresses(socket.gethostname())
    theirs = _addresses(parts.hostname or "")
    return bool(ours & ({"loopback"} if "any" in theirs else theirs))


def is_loopback(host: str) -> bool:
    """Whether every address of `host` is this machine's loopback."""
    return _addresses(host) == {"loopback"}


def free_port(host: str = "127.0.0.1") -> int:
    """A port nobody listens on now. Another process may take it before it is used: the caller's start then fails."""
    with socket.socket() as probe:
        probe.bind((host, 0))
        port: int = probe.getsockname()[1]
        return port


def is_taken(port: int, host: str = "127.0.0.1") -> bool:
    """Whether something listens on `host:port`."""
    with socket.socket() as probe:
        # As servers bind: connections in TIME_WAIT of a killed predecessor do not count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return True
        return False


def _addresses(host: str) -> set[str]:
    try:
        found = {str(info[4][0]) for info in socket.getaddrinfo(host, None)}
    except OSError:
        return set()
    return {_canonical(address) for address in found}


def _canonical(address: str) -> str:
    parsed = ipaddress.ip_address(address.partition("%")[0])
    if parsed.is_unspecified:
        return "any"
    return "loopback" if parsed.is_loopback else str(parsed)
