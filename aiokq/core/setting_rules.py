"""`Rules`: the base class of the pydantic models of client settings, and of `Values`."""

from __future__ import annotations

from typing import TYPE_CHECKING

__all__ = ["Rules", "split_list"]


class Rules:
    """Base class of the settings models, and of `Values`.

    A subclass for one kind of client checks whether settings contradict each other, and derives
    settings from other settings.
    """

    if TYPE_CHECKING:

        @property
        def explicit(self) -> frozenset[str]:
            """The names of the settings that were given; other values are defaults or derived."""

        @property
        def of_cluster(self) -> frozenset[str]:
            """The names of the settings that were given to the Cluster that this client shares."""

    def _check_together(self) -> None:
        """Check the settings together; called after every setting was found valid by itself.

        Raises:
            ValueError: two settings contradict each other.
        """

    def _settle(self, name: str, value: object) -> None:
        """Set a derived setting, which does not count as explicit."""
        self.__dict__[name] = value


def split_list(text: str) -> list[str]:
    """Return the items of a comma-separated list."""
    return [item for part in text.split(",") if (item := part.strip())]
