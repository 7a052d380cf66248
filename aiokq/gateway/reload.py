"""Which options of a running gateway can change at once, and which need a restart."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aiokq.errors import ConfigError

if TYPE_CHECKING:
    from aiokq.gateway.settings import GatewaySettings

__all__ = ["AT_ONCE", "changes"]

AT_ONCE: Final = frozenset(
    {
        "batching",
        "compression",
        "dead_letters",
        "rate_limit",
        "limits",
        "topics",
        "empty_key",
        "empty_value",
    }
)
"""The tables and options that a reload can change."""

DELIVERY_AT_ONCE: Final = frozenset(
    {
        "shutdown_max_delay_ms",
        "autocreate",
        "autocreate_with",
        "autocreate_partitions",
        "autocreate_replication_factor",
        "autocreate_timeout_ms",
    }
)
"""The options of [delivery] that a reload can change."""


def changes(old: GatewaySettings, new: GatewaySettings) -> list[str]:
    """Return the names of the tables and options that differ.

    Raises:
        ConfigError: an option differs that only a restart can change.
    """
    changed: list[str] = []
    fixed: list[str] = []
    for name in type(old).model_fields:
        before, after = getattr(old, name), getattr(new, name)
        if before == after:
            continue
        if name == "delivery":
            for option in type(before).model_fields:
                if getattr(before, option) != getattr(after, option):
                    places = changed if option in DELIVERY_AT_ONCE else fixed
                    places.append(f"delivery.{option}")
        elif name in AT_ONCE:
            changed.append(name)
        else:
            fixed.append(name)
    if fixed:
        raise ConfigError(
            f"{', '.join(fixed)}: changed in the file, and only a restart can change it; nothing "
            "was changed"
        )
    return changed
