"""`throttle_seconds`: the time that a client has to wait because a broker throttles it.

Since KIP-219 a broker answers without delay, and the response states for how long the broker will
not read from the connection. In API versions before KIP-219 the broker waits before it answers, so
the client need not wait.

Source: KIP-219; Kafka `AbstractResponse.shouldClientThrottle` and its overrides.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from aiokq.wire import Response

__all__ = ["throttle_seconds"]

# First version in which the client waits, by API key. An API has no entry if its responses have had
# a throttle time only since KIP-219: the client then waits in every version.
_SINCE: Final = {
    0: 6, 1: 8, 2: 3, 3: 6, 8: 4, 9: 4, 10: 2, 11: 3, 12: 2, 13: 2, 14: 2, 15: 2, 16: 2,
    18: 2, 19: 3, 20: 2, 21: 1, 22: 1, 24: 1, 25: 1, 26: 1, 28: 1, 29: 1, 30: 1, 31: 1, 32: 2,
    33: 1, 34: 1, 35: 1, 37: 1, 38: 1, 39: 1, 40: 1, 41: 1, 42: 1,
}  # fmt: skip


def throttle_seconds(response: Response, version: int) -> float:
    """Return the seconds for which the client must not send to the node; usually 0."""
    milliseconds = getattr(response, "throttle_time_ms", 0)
    if milliseconds <= 0 or version < _SINCE.get(response.API_KEY, 0):
        return 0.0
    return float(milliseconds) / 1000
