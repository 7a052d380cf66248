"""`Principal`: the identity of a client, which ACLs and quotas name.

Source: Kafka ``KafkaPrincipal.java``, ``SecurityUtils.parseKafkaPrincipal``.
Tests: ``tests/unit/connection/test_principal.py``.
"""

from __future__ import annotations

from typing import Final

from aiokq.core.named_tuple import NamedTuple

__all__ = ["ANONYMOUS", "USER", "Principal"]

USER: Final = "User"
"""The type of principals that authentication returns."""


class Principal(NamedTuple):
    """An authenticated client, or `ANONYMOUS`.

    Attributes:
        type: the type of the principal, such as "User".
        name: the name, which may contain any character.
        token_authenticated: whether the client has logged in with a delegation token.
    """

    type: str
    name: str
    token_authenticated: bool = False

    @classmethod
    def user(cls, name: str) -> Principal:
        """Return the principal of a user."""
        return cls(USER, name)

    @classmethod
    def parse(cls, text: str) -> Principal:
        """Return the principal that a text such as "User:alice" names.

        The first colon ends the type. The text is case-sensitive.

        Raises:
            ValueError: the text has no colon, or the type or the name is empty.
        """
        kind, colon, name = text.partition(":")
        if not (kind and colon and name):
            raise ValueError(f"{text!r} is not a principal: write its type and name, as User:alice")
        return cls(kind, name)

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


ANONYMOUS: Final = Principal(USER, "ANONYMOUS")
"""The principal of a client on a listener without authentication."""
