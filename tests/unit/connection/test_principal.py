"""aiokq.connection.principal: principals as text."""

from __future__ import annotations

import pytest

from aiokq.connection.principal import ANONYMOUS, Principal


@pytest.mark.parametrize(
    "text", ["User:alice", "User:CN=a,OU=b", "Group:x:y", "User:*", "User: a ", "user:alice"]
)
def test_a_principal_is_its_text(text: str) -> None:
    """The first colon ends the type, so that a name may have colons."""
    principal = Principal.parse(text)
    assert str(principal) == text
    assert principal == Principal(*text.split(":", 1))
    assert not principal.token_authenticated


@pytest.mark.parametrize("text", ["", "alice", "User:", ":alice", ":"])
def test_a_text_without_type_and_name_is_no_principal(text: str) -> None:
    """`alice` alone would otherwise be an ACL for nobody."""
    with pytest.raises(ValueError, match="User:alice"):
        Principal.parse(text)


def test_upper_and_lower_case_differ() -> None:
    """As in Kafka, which compares types and names exactly."""
    assert Principal.parse("user:alice") != Principal.user("alice")
    assert str(ANONYMOUS) == "User:ANONYMOUS"
