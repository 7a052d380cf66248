"""The result of a controller method: an answer for the caller, and the records to append."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Generic, TypeAlias, TypeVar

from aiokq.core.named_tuple import NamedTuple

if TYPE_CHECKING:
    from aiokq.wire.struct import Message

__all__ = ["Charge", "ConfigChange", "Decision"]

R = TypeVar("R")

ConfigChange: TypeAlias = Callable[[Mapping[str, str]], Mapping[str, str]]
"""A function that computes the new settings of a resource from the current ones. It raises a
BrokerError to refuse the change.
"""

Charge: TypeAlias = Callable[[int], None]
"""A function that charges a client's quota for partitions that the client creates or deletes.

The argument is the number of partitions. The function raises ThrottlingQuotaExceeded to refuse
them.
"""


class Decision(NamedTuple, Generic[R]):
    """The controller's decision about a request.

    Attributes:
        answer: the caller's result, returned when the records are in effect.
        records: the records to append together; empty if nothing changes.
    """

    answer: R
    records: Sequence[Message]
