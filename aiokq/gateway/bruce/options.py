"""BruceOptions: the options of the engine `bruce`.

Tests: tests/unit/gateway/test_import_xml.py, tests/sim/test_gateway_bruce.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from aiokq import ProducerSettings
from aiokq.gateway.bruce.batching import BatchLimits
from aiokq.gateway.bruce.dispatcher import DispatcherOptions
from aiokq.gateway.bruce.error_tables import ERROR_TABLES
from aiokq.gateway.bruce.packing import RequestLimits
from aiokq.gateway.budget import budget_bytes

if TYPE_CHECKING:
    from aiokq.gateway.settings import GatewaySettings

__all__ = ["BruceOptions"]

HELD: Final = 32 * 1024 * 1024


class BruceOptions(NamedTuple):
    """The options of the engine; the defaults are those of Dory.

    Attributes:
        dispatcher: error table, attempts and limits of requests.
        pause_initial, min_pause: seconds; see PauseBackoff.
        restart_delay: seconds that a restart waits for responses.
        combined: limits of combined batches; None if no topic uses them.
        timeout_ms: `timeout_ms` of Produce requests.
        held_bytes: limit of the messages in the engine.
    """

    dispatcher: DispatcherOptions
    pause_initial: float = 5.0
    pause_max_doublings: int = 4
    min_pause: float = 5.0
    restart_delay: float = 5.0
    combined: BatchLimits | None = None
    acks: Literal[0, 1, -1, "all"] = "all"
    timeout_ms: int = 10_000
    held_bytes: int = HELD

    @classmethod
    def of(cls, settings: GatewaySettings) -> BruceOptions:
        """Return the options of a configuration."""
        delivery = settings.delivery
        table = ERROR_TABLES[delivery.error_table or "modern"]
        attempts = _or(delivery.max_failed_delivery_attempts, 5)
        limits = RequestLimits(
            _or(delivery.produce_request_data_limit, 1024 * 1024),
            _or(delivery.message_max_bytes, 1_000_000),
        )
        initial = _or(delivery.pause_initial_ms, 5000) / 1000
        combined = None if settings.combined is None else BatchLimits.of(settings.combined)
        return cls(
            DispatcherOptions(table, attempts, limits, initial / 50, initial * 6),
            pause_initial=initial,
            pause_max_doublings=_or(delivery.pause_max_doublings, 4),
            min_pause=_or(delivery.min_pause_ms, 5000) / 1000,
            restart_delay=_or(delivery.dispatcher_restart_max_delay_ms, 5000) / 1000,
            combined=combined,
            acks=ProducerSettings(acks=settings.kafka.get("acks", "all")).acks,  # may be "1"
            timeout_ms=_or(delivery.replication_timeout_ms, 10_000),
            held_bytes=budget_bytes(settings),
        )


def _or(value: int | None, default: int) -> int:
    return default if value is None else value
