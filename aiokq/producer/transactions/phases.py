"""The phases of a transactional producer, and the allowed changes of phase."""

from __future__ import annotations

from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["MOVES", "Phase"]


class Phase(Enum):
    """The phases of a transactional producer."""

    __hash__ = object.__hash__  # Enum's is a Python function, which is slower

    NEW = "the producer has no id yet"
    READY = "no transaction is open"
    BEGINNING = "the producer waits for the epoch of the next transaction"
    OPEN = "records are accepted into a transaction"
    FAILED = "the transaction can only be aborted"
    COMMITTING = "the records are delivered, then the commit is requested"
    ABORTING = "records that were not sent fail, then the abort is requested"
    UNKNOWN = (
        "no response showed whether the commit or abort took effect: the same call can be repeated"
    )
    FINISHED = "the producer can only be closed"


MOVES: Final[Mapping[Phase, frozenset[Phase]]] = MappingProxyType(
    {
        Phase.NEW: frozenset({Phase.READY, Phase.FINISHED}),
        Phase.READY: frozenset({Phase.BEGINNING, Phase.OPEN, Phase.FINISHED}),
        Phase.BEGINNING: frozenset({Phase.READY, Phase.FINISHED}),
        Phase.OPEN: frozenset({Phase.COMMITTING, Phase.ABORTING, Phase.FAILED, Phase.FINISHED}),
        Phase.FAILED: frozenset({Phase.ABORTING, Phase.FINISHED}),
        Phase.COMMITTING: frozenset({Phase.READY, Phase.ABORTING, Phase.UNKNOWN, Phase.FINISHED}),
        Phase.ABORTING: frozenset({Phase.READY, Phase.UNKNOWN, Phase.FINISHED}),
        Phase.UNKNOWN: frozenset({Phase.COMMITTING, Phase.ABORTING, Phase.FINISHED}),
        Phase.FINISHED: frozenset(),
    }
)
