"""Counts: what became of the messages of a client."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

__all__ = ["Counts"]


class Counts(NamedTuple):
    """What became of the messages of a client. Messages of a parent process are not counted."""

    sent: int
    """Messages that the kernel accepted."""
    sent_bytes: int
    """Bytes of these messages, as encoded."""
    dropped: Mapping[str, int]
    """Messages that were dropped, by reason: `away`, `queue_full`."""
    raised: Mapping[str, int]
    """Messages for which `send` raised, by reason: `away`, `queue_full`, `too_large`, `cancelled`.
    """
    connects: int
    """Sockets that were connected; more than one after a restart of the gateway."""
