"""The timeouts of a producer; `fitted` derives unset timeouts and refuses contradictions."""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import replace
from typing import Final

from aiokq.core.errors import ConfigError
from aiokq.core.frozen import frozen
from aiokq.core.limits import INT32_MAX

__all__ = ["ProducerTimeouts", "fitted"]

logger = logging.getLogger("aiokq.producer")

LEAST_REQUEST_TIMEOUT_MS: Final = 100
"""The shortest timeout that is derived for Produce requests: brokers need time to replicate."""


@frozen
class ProducerTimeouts:
    """The timeouts of a producer, in milliseconds.

    Attributes:
        linger_ms: time that a batch waits for more records.
        request_timeout_ms: timeout of a Produce request. Other requests use the
            `request_timeout_ms` of the settings.
        delivery_timeout_ms: longest time from the acceptance of a record to its delivery or
            failure.
        max_block_ms: longest time that a call waits for buffer memory. Records wait for an unknown
            topic for at most this time and at most `delivery_timeout_ms`.
    """

    linger_ms: float
    request_timeout_ms: int
    delivery_timeout_ms: int
    max_block_ms: int

    def __str__(self) -> str:
        return (
            f"linger_ms={self.linger_ms:g} request_timeout_ms={self.request_timeout_ms} "
            f"delivery_timeout_ms={self.delivery_timeout_ms} max_block_ms={self.max_block_ms}"
        )


def fitted(given: ProducerTimeouts, explicit: Collection[str]) -> ProducerTimeouts:
    """Return the effective timeouts.

    If `delivery_timeout_ms` was set, it limits the timeouts that were not set:

    - `linger_ms` is at most a quarter of `delivery_timeout_ms`. If `request_timeout_ms` was set,
      `linger_ms` is also at most `delivery_timeout_ms` - `request_timeout_ms`.
    - The timeout of Produce requests is at most half of the time that remains after `linger_ms`,
      but is not lowered below 100 ms.
    - `max_block_ms` is at most `delivery_timeout_ms`.

    If `delivery_timeout_ms` was not set and is below `linger_ms` + `request_timeout_ms`, it is
    raised to this sum, as in Java, but not above its maximum. A warning is logged.

    Args:
        given: the settings, with defaults for those that were not set.
        explicit: the names of the settings that were set.

    Raises:
        ConfigError: settings contradict each other.
    """
    linger, request = given.linger_ms, given.request_timeout_ms
    delivery = given.delivery_timeout_ms
    if "delivery_timeout_ms" not in explicit:
        least = min(int(linger) + request, INT32_MAX)
        if delivery >= least:
            return given
        logger.warning("delivery_timeout_ms raised to linger_ms + request_timeout_ms: %s", least)
        return replace(given, delivery_timeout_ms=least)
    if "linger_ms" not in explicit:
        linger = min(linger, delivery / 4)
    elif linger >= delivery:
        raise ConfigError(
            f"linger_ms={linger:g} leaves no time to send within delivery_timeout_ms={delivery}: "
            "lower linger_ms, or raise delivery_timeout_ms"
        )
    if "request_timeout_ms" not in explicit:
        half = int((delivery - linger) / 2)
        request = min(request, max(LEAST_REQUEST_TIMEOUT_MS, half))
    elif "linger_ms" not in explicit:
        if delivery < request:
            raise ConfigError(
                f"delivery_timeout_ms={delivery} is below request_timeout_ms={request}: raise "
                f"delivery_timeout_ms to {request} or more, or lower request_timeout_ms"
            )
        linger = min(linger, delivery - request)
    elif delivery < (least := min(int(linger) + request, INT32_MAX)):
        raise ConfigError(
            f"delivery_timeout_ms={delivery} is below linger_ms={linger:g} + "
            f"request_timeout_ms={request}: raise delivery_timeout_ms to {least}, or lower the "
            "other two"
        )
    block = given.max_block_ms
    if "max_block_ms" not in explicit:
        block = min(block, delivery)
    return ProducerTimeouts(linger, request, delivery, block)
