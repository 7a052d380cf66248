"""Parsing of bootstrap addresses, and the errors for invalid ones."""

from __future__ import annotations

import pytest

from aiokq.cluster.addresses import BootstrapAddress, parse_bootstrap_servers


def test_one_string_and_a_list_give_the_same():
    """Kafka's comma separated form and a Python list are both natural to write."""
    expected = (BootstrapAddress("a", 9092), BootstrapAddress("b", 9093))
    assert parse_bootstrap_servers("a:9092, b:9093") == expected
    assert parse_bootstrap_servers(["a:9092", "b:9093"]) == expected
    assert parse_bootstrap_servers(("a:9092,b:9093,",)) == expected


def test_an_address_given_twice_is_tried_once():
    """A list merged from two configurations may name an address twice."""
    assert len(parse_bootstrap_servers("a:9092,a:9092")) == 1


def test_ipv6_in_brackets_is_read_and_written():
    """An IPv6 address contains colons; the brackets are not part of the host."""
    (address,) = parse_bootstrap_servers("[::1]:9092")
    assert address == ("::1", 9092)
    assert str(address) == "[::1]:9092"


@pytest.mark.parametrize(
    ("text", "fix"),
    [
        ("localhost", "'localhost:9092'"),
        ("[::1]", "'[::1]:9092'"),
        ("::1:9092", "brackets"),
        ("kafka://localhost:9092", "'localhost:9092'"),
        ("SASL_SSL://localhost:9092", "security_protocol"),
        ("localhost:http", "1 to 65535"),
        ("localhost:0", "1 to 65535"),
        ("localhost:65536", "1 to 65535"),
        ("localhost:" + "9" * 5000, "1 to 65535"),
        ("localhost:", "host:port"),
        (":9092", "host:port"),
        ("local host:9092", "host:port"),
    ],
)
def test_an_unreadable_address_is_refused_with_the_fix(text: str, fix: str):
    """A typo must be reported at once, not as an unknown host ten seconds later."""
    with pytest.raises(ValueError, match=r".*") as caught:
        parse_bootstrap_servers(text)
    assert fix in str(caught.value)


def test_an_address_with_settings_is_refused_without_their_values():
    with pytest.raises(ValueError, match="write 'a:9092'; settings are keywords") as caught:
        parse_bootstrap_servers(["b:9092", "a:9092?sasl_password=hidden"])
    assert "hidden" not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "kafka://me:hidden@a:9092",
        "me:hidden@a:9092",
        "me:hid,hidden@a:9092",
        "b:9092,SASL_SSL://me:hidden@c@a:9092",
    ],
)
def test_an_address_with_a_login_is_refused_without_its_password(text):
    """Other libraries take URLs of this form."""
    with pytest.raises(ValueError, match="write 'a:9092'; logins are settings") as caught:
        parse_bootstrap_servers(text)
    assert "hid" not in str(caught.value)
