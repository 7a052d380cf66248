"""Parses bootstrap addresses."""

from __future__ import annotations

import re
from collections.abc import Iterable

from aiokq.core.named_tuple import NamedTuple
from aiokq.core.numbers import PORT_MAX, parse_number

__all__ = ["BootstrapAddress", "parse_bootstrap_servers"]

_ADDRESS = re.compile(r"(?:\[(?P<v6>[^\[\]]+)\]|(?P<host>[^\[\]:/\s]+)):(?P<port>[^:\s]+)")


class BootstrapAddress(NamedTuple):
    """A host name or numeric address, without brackets, and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_bootstrap_servers(servers: str | Iterable[str]) -> tuple[BootstrapAddress, ...]:
    """Return the addresses in ``servers``, in order and without duplicates.

    Args:
        servers: a string or several strings with comma-separated "host:port" items; IPv6 addresses
            are in brackets.

    Raises:
        ValueError: an item is not an address; the message says what to write instead.
    """
    texts = [servers] if isinstance(servers, str) else list(servers)
    for text in texts:
        if "@" in text:  # a URL with a login, which is not shown
            raise ValueError(
                f"an address has no user and no password: write {text.rpartition('@')[2]!r}; "
                "logins are settings, such as sasl_plain_username"
            )
        if "?" in text:  # a URL with settings, which may be secrets and are not shown
            raise ValueError(
                f"an address has no settings: write {text.partition('?')[0]!r}; settings are "
                "keywords, such as client_id='me'"
            )
    items = [item.strip() for text in texts for item in text.split(",")]
    return tuple(dict.fromkeys(_parse_item(item) for item in items if item))


def _parse_item(item: str) -> BootstrapAddress:
    if "://" in item:
        rest = item.split("://", 1)[1].rstrip("/")
        raise ValueError(
            f"{item!r}: write {rest!r}, without a protocol; TLS and SASL are chosen by "
            "security_protocol"
        )
    if item.count(":") > 1 and "[" not in item:
        raise ValueError(f"{item!r}: put an IPv6 address in brackets, as in '[::1]:9092'")
    match = _ADDRESS.fullmatch(item)
    if match is None:
        if ":" not in item or item.endswith("]"):
            raise ValueError(f"{item!r} has no port: write {item + ':9092'!r}")
        raise ValueError(f"{item!r} is not an address: write 'host:port', as in 'localhost:9092'")
    port = match["port"]
    try:
        number = parse_number(port, PORT_MAX)
    except ValueError:
        number = 0
    if number == 0:
        raise ValueError(f"{item[:80]!r}: {port[:40]!r} is not a port number from 1 to 65535")
    return BootstrapAddress(match["v6"] or match["host"], number)
