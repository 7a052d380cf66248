"""The gateway's unit: inputs, and the pool of messages that they receive (ADR 18).

An Intake reads a socket in a thread of its own, independently of the event loop. It parses messages
and stores them in the Pool, in arenas by topic. With a spool, it appends them to the spool's files
instead, and the event loop feeds them to the Pool. The event loop takes messages from the Pool as
columns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiokq.fastpath import COMPILED
from aiokq.fastpath.loading import load

if TYPE_CHECKING:
    from aiokq.fastpath.gateway.intake import Intake
    from aiokq.fastpath.gateway.pool import Pool, Taken
    from aiokq.fastpath.gateway.spool import (
        SpoolWriter,
        spool_frames,
        spool_mark,
        spool_version,
    )
    from aiokq.fastpath.gateway.values import (
        API_KEY,
        API_VERSION,
        ATTEMPT_LIMIT,
        AUTOCREATE_FAILED,
        BAD_TOPIC,
        ERROR_ACK,
        MALFORMED,
        NEVER,
        NO_MEMORY,
        NO_PARTITION,
        NOT_ALLOWED,
        RATE_LIMIT,
        REASONS,
        SHUTDOWN,
        SPOOL_DAMAGED,
        SPOOL_ERROR,
        SPOOL_FULL,
        SPOOL_HEADER_BYTES,
        SPOOL_VERSION,
        TOO_LONG,
        TRANSPORTS,
        UNCLEAN_DISCONNECT,
        IntakeCounts,
        Message,
        PoolCounts,
        Refused,
        Sample,
        SpoolCounts,
        SpoolFrame,
        SpoolProgress,
        TopicCounts,
    )
else:
    globals().update(load("gateway", COMPILED))

__all__ = [
    "API_KEY",
    "API_VERSION",
    "ATTEMPT_LIMIT",
    "AUTOCREATE_FAILED",
    "BAD_TOPIC",
    "ERROR_ACK",
    "Intake",
    "IntakeCounts",
    "MALFORMED",
    "Message",
    "NEVER",
    "NOT_ALLOWED",
    "NO_MEMORY",
    "NO_PARTITION",
    "Pool",
    "PoolCounts",
    "RATE_LIMIT",
    "REASONS",
    "Refused",
    "SHUTDOWN",
    "SPOOL_DAMAGED",
    "SPOOL_ERROR",
    "SPOOL_FULL",
    "SPOOL_HEADER_BYTES",
    "SPOOL_VERSION",
    "Sample",
    "SpoolCounts",
    "SpoolFrame",
    "SpoolProgress",
    "SpoolWriter",
    "TOO_LONG",
    "TRANSPORTS",
    "Taken",
    "TopicCounts",
    "UNCLEAN_DISCONNECT",
    "spool_frames",
    "spool_mark",
    "spool_version",
]
