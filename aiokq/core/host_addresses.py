"""Numeric addresses of hosts, in the form in which connections name their peers.

Tests: ``tests/unit/core/test_host_addresses.py``.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable, Mapping, Sequence

__all__ = ["addresses_of", "numeric_address"]


def numeric_address(host: str) -> str | None:
    """Return a numeric address in canonical form, IPv6 in brackets; None for a host name."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        address = socket.inet_ntop(family, socket.inet_pton(family, host.strip("[]")))
    except (OSError, ValueError):  # a NUL character raises ValueError
        return None
    return f"[{address}]" if family == socket.AF_INET6 else address


def addresses_of(hosts: Iterable[str]) -> Mapping[str, Sequence[str]]:
    """Return the addresses of host names; unknown hosts are left out.

    The call may take long, because it may ask a name server.
    """
    found: dict[str, Sequence[str]] = {}
    for host in hosts:
        try:
            answers = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        except (OSError, ValueError):  # a label is empty or too long, or a character is invalid
            continue
        addresses = [numeric_address(str(answer[4][0])) for answer in answers]
        found[host] = [address for address in addresses if address is not None]
    return found
