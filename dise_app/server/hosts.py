"""The names that a server answers to. A page of another site can make its own name resolve to this
machine (DNS rebinding), and a browser then sends that name as the Host.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable
from ipaddress import ip_address

LOOPBACK = ("localhost", "127.0.0.1", "::1")

ANY = "*"


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
        if ANY in self._names:
            return True
        name = _name(header)
        return name in self._names or (self._takes_addresses and _is_address(name))


def _name(header: str) -> str:
    """Return the host of HOST, HOST:PORT, [ADDRESS] or [ADDRESS]:PORT."""
    name, colon, port = header.strip().rpartition(":")
    if not colon or not (port.isdigit() or port == ""):
        name = header.strip()
    return _plain(name)


def _plain(name: str) -> str:
    name = name.lower().removeprefix("[").removesuffix("]").removesuffix(".")
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
