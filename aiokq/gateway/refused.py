"""The options of the pool that keep refused messages for the discard log and dead letters.

Tests: tests/unit/gateway/test_discard_log.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from aiokq.fastpath.gateway import BAD_TOPIC, SPOOL_ERROR, SPOOL_FULL, TOO_LONG

if TYPE_CHECKING:
    from aiokq.gateway.settings import GatewaySettings

__all__ = ["refused_options"]

QUEUE_BYTES: Final = (1024 * 1024, 8 * 1024 * 1024)
"""Smallest and largest size of the queue of refused messages; between them, an eighth of the pool.

The queue is not part of the pool's limit. Messages that may become dead letters are also charged to
the pool; messages that are only for the log are not.
"""

LOGGED_PER_S: Final = 2_000
"""Maximum number of refused messages per second that the discard log gets, in addition to those
that may become dead letters. Further ones are only counted, so that a program that sends only
refused messages takes a limited part of the loop's time.
"""

LEAST_PREFIX: Final = 16
"""Bytes of a message that are kept for the log in any case: its API key and version."""


def refused_options(settings: GatewaySettings) -> dict[str, Any]:
    """Return the options that tell a pool which refused messages to keep; {} to keep none."""
    letters = () if settings.dead_letters is None else (TOO_LONG, BAD_TOPIC)
    least, most = QUEUE_BYTES
    options: dict[str, Any] = {
        "refused_bytes": min(max(least, settings.pool.max_bytes // 8), most),
        "refused_reasons": letters,
        "refused_whole": letters,
    }
    if settings.discards.log_path is not None:
        options["refused_reasons"] = (*range(BAD_TOPIC + 1), SPOOL_FULL, SPOOL_ERROR)
        options["refused_prefix"] = max(LEAST_PREFIX, settings.discards.log_max_prefix_bytes)
        options["refused_per_s"] = LOGGED_PER_S
    return options if options["refused_reasons"] else {}
