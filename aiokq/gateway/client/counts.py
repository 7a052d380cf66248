"""Counts: the numbers of a client's messages, by outcome."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

__all__ = ["Counts"]


class Counts(NamedTuple):
    """The numbers of a client's messages, by outcome, without messages of a parent process."""

    sent: int
    """Messages that the kernel accepted."""
    sent_bytes: int
    """Bytes of these messages, as encoded."""
    dropped: Mapping[str, int]
    """Messages that were dropped, by reason: `away`, `queue_full`."""
    raised: Mapping[str, int]
    """Messages for which `send` raised, by reason: `away`, `queue_full`, `too_large`, `cancelled`.

    Messages that `encode` refuses, and those of a closed client, are not counted.
    """
    connects: int
    """Sockets that were connected; more than one after a restart of the gateway."""
