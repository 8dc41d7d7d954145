"""Names under which a server may be asked: a protection from DNS rebinding.

The owner of a name can point it at a local server, so that a web page under that name reaches it.
"""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import ip_address

_LOCAL = ("localhost", "127.0.0.1", "[::1]")
_ANY_ADDRESS = ("0.0.0.0", "::")  # noqa: S104 - compared with an address that the user chose
_ANY_IP = "any IP address"


def own_hosts(address: str, allowed: Iterable[str] = ()) -> frozenset[str]:
    """Return the names of a server that listens on this address, without ports.

    If it listens on every address, any IP address is its name: a page can only be served under a name.
    """
    bound = _ANY_IP if address in _ANY_ADDRESS else f"[{address}]" if ":" in address else address.lower()
    return frozenset({*_LOCAL, bound, *map(host_name, allowed)})


def is_own_host(header: str, hosts: frozenset[str]) -> bool:
    """Return True if a Host header has one of the names that `own_hosts` returned."""
    host = host_name(header)
    return host in hosts or (_ANY_IP in hosts and _is_ip(host))


def host_name(header: str) -> str:
    """Return the name in a Host header, in lower case and without port and final dot."""
    host = header.strip().lower()
    name, colon, port = host.rpartition(":")
    has_port = colon and port.isdecimal() and (not name.count(":") or name.endswith("]"))
    return (name if has_port else host).rstrip(".")


def _is_ip(name: str) -> bool:
    try:
        ip_address(name.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    return True
