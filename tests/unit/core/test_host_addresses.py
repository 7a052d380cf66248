"""Numeric addresses of hosts."""

from __future__ import annotations

import pytest

from aiokq.core.host_addresses import addresses_of, numeric_address


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("::1", "[::1]"),
        ("[fd00:0::1]", "[fd00::1]"),
        ("localhost", None),
        ("127.1", None),
        ("a\0b", None),
        ("", None),
    ],
)
def test_an_address_has_the_form_of_a_peer(host: str, address: str | None) -> None:
    assert numeric_address(host) == address


def test_unknown_hosts_are_left_out() -> None:
    found = addresses_of(["localhost", "no-such-host.invalid", "a..b"])
    assert found.keys() == {"localhost"}
    assert set(found["localhost"]) <= {"127.0.0.1", "[::1]"}
