"""The base of enums whose values are Kafka's names, such as states of groups and transactions."""

from __future__ import annotations

from enum import StrEnum
from typing import Self

from aiokq.core.errors import ConfigError

__all__ = ["KafkaName"]


class KafkaName(StrEnum):
    """Kafka's names, looked up case-insensitively; each enum has a member UNKNOWN."""

    @classmethod
    def of(cls, text: str) -> Self:
        """Return the member of that name; UNKNOWN for a name of a newer broker."""
        by_name = {member.value.lower(): member for member in cls}
        return by_name.get(text.lower()) or cls("Unknown")

    @classmethod
    def wanted(cls, text: str) -> Self:
        """Return the member of that name, for a filter.

        Raises:
            ConfigError: there is no such member.
        """
        found = cls.of(text)
        if found.value == "Unknown":
            known = ", ".join(member.value for member in cls if member.value != "Unknown")
            raise ConfigError(f"{text!r} is not one of {known}")
        return found
