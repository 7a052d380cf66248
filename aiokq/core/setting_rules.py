"""Rules between the settings of a client, for the pydantic models and the plain values alike."""

from __future__ import annotations

from typing import TYPE_CHECKING

__all__ = ["Rules", "split_list"]


class Rules:
    """Base class of the settings models and values: checks across settings, and derived settings.

    Subclasses have the rules of one kind of client, and properties derived from its settings.
    """

    if TYPE_CHECKING:

        @property
        def explicit(self) -> frozenset[str]:
            """The names of the settings that were given; the others have their defaults."""

        @property
        def of_cluster(self) -> frozenset[str]:
            """The names of the settings that were given to the Cluster that this client shares."""

    def _check_together(self) -> None:
        """Check each setting against the others; called when every setting is valid by itself.

        Raises:
            ValueError: two settings contradict each other.
        """

    def _settle(self, name: str, value: object) -> None:
        """Set a setting that is derived from others; it does not count as explicit."""
        self.__dict__[name] = value


def split_list(text: str) -> list[str]:
    """Return the items of a comma-separated list."""
    return [item for part in text.split(",") if (item := part.strip())]
