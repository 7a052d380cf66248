"""The base class of enums whose values are Kafka's names, such as the states of groups."""

from __future__ import annotations

from enum import StrEnum
from typing import Self

from aiokq.core.errors import ConfigError

__all__ = ["KafkaName"]


class KafkaName(StrEnum):
    """An enum of Kafka's names, looked up case-insensitively; subclasses have a member UNKNOWN."""

    @classmethod
    def of(cls, text: str) -> Self:
        """Return the member named `text`; UNKNOWN if there is none (a name of newer brokers)."""
        by_name = {member.value.lower(): member for member in cls}
        return by_name.get(text.lower()) or cls("Unknown")

    @classmethod
    def wanted(cls, text: str) -> Self:
        """Return the member named `text`, for use as a filter of a listing.

        Raises:
            ConfigError: no member other than UNKNOWN has this name.
        """
        found = cls.of(text)
        if found.value == "Unknown":
            known = ", ".join(member.value for member in cls if member.value != "Unknown")
            raise ConfigError(f"{text!r} is not one of {known}")
        return found
