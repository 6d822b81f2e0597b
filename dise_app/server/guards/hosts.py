"""The names that a server answers to. A page of another site can make its own name
resolve to this machine (DNS rebinding), and a browser then sends that name as the Host.
"""

import re
import socket
from collections.abc import Iterable
from ipaddress import IPv4Address, IPv6Address, ip_address

PORT = re.compile(r":\d*$")


class Hosts:
    """The allowed values of the Host header, whatever the port."""

    def __init__(self, bound: str, allowed: Iterable[str] = ()) -> None:
        """bound: where it listens; beyond loopback all addresses and its name are taken."""
        loopback = ("localhost", "127.0.0.1", "::1")
        self._names = {_plain(name) for name in (*loopback, bound, *allowed)}
        address = _address(_plain(bound))
        is_local = _plain(bound) == "localhost" if address is None else address.is_loopback
        self._takes_addresses = not is_local
        if self._takes_addresses:
            self._names.add(_plain(socket.gethostname()))

    def allows(self, header: str) -> bool:
        name = _plain(PORT.sub("", header.strip()))
        is_known = name in self._names or "*" in self._names
        return is_known or (self._takes_addresses and _address(name) is not None)


def _plain(name: str) -> str:
    name = name.lower().strip("[]").removesuffix(".")
    return str(_address(name) or name)


def _address(name: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(name)
    except ValueError:
        return None
