"""The names that a server answers to. A page of another site can make its own name resolve to this
machine (DNS rebinding), and a browser then sends that name as the Host.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Iterable
from ipaddress import ip_address

LOOPBACK = ("localhost", "127.0.0.1", "::1")

PORT = re.compile(r":\d*$")


class Hosts:
    """The allowed values of the Host header, whatever the port."""

    def __init__(self, bound: str, allowed: Iterable[str] = ()) -> None:
        """bound: the address that the server listens on. On loopback, only loopback's names are
        allowed, and `allowed`; elsewhere also that address, every IP address, since no name can be
        rebound to make one, and this machine's name.
        """
        self._names = {_plain(name) for name in (*LOOPBACK, bound, *allowed)}
        self._takes_addresses = not _is_loopback(bound)
        if self._takes_addresses:
            self._names.add(_plain(socket.gethostname()))

    def allows(self, header: str) -> bool:
        """Return whether a request with this Host is for this server."""
        name = _plain(PORT.sub("", header.strip()))
        is_known = name in self._names or "*" in self._names
        return is_known or (self._takes_addresses and _is_address(name))


def _plain(name: str) -> str:
    name = name.lower().strip("[]").removesuffix(".")
    return str(ip_address(name)) if _is_address(name) else name


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def _is_loopback(name: str) -> bool:
    plain = _plain(name)
    return plain == "localhost" or (_is_address(plain) and ip_address(plain).is_loopback)
