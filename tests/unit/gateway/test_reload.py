"""Which options a reload changes, and which it refuses by name."""

from __future__ import annotations

from typing import Any

import pytest

from aiokq.errors import ConfigError
from aiokq.gateway import GatewaySettings
from aiokq.gateway.reload import changes

BASE: dict[str, Any] = {
    "kafka": {"bootstrap_servers": "h:1"},
    "inputs": [{"type": "tcp", "port": 1}],
}


def changed(values: dict[str, Any]) -> list[str]:
    return changes(GatewaySettings.checked(BASE), GatewaySettings.checked({**BASE, **values}))


def test_options_that_can_change_at_once_are_named():
    """Nothing that is not in the file counts as changed."""
    assert changed({}) == []
    assert changed(
        {
            "batching": {"time_ms": 5},
            "topics": {"orders": {"max_message_bytes": 5}},
            "delivery": {"autocreate": True, "shutdown_max_delay_ms": 1},
        }
    ) == ["delivery.shutdown_max_delay_ms", "delivery.autocreate", "batching", "topics"]


@pytest.mark.parametrize(
    ("values", "name"),
    [
        ({"inputs": [{"type": "tcp", "port": 2}]}, "inputs"),
        ({"http": {}}, "http"),
        ({"delivery": {"engine": "bruce"}}, "delivery.engine"),
        ({"kafka": {"bootstrap_servers": "h:2"}}, "kafka"),
    ],
)
def test_what_a_running_gateway_exchanges_is_named(values: dict[str, Any], name: str):
    """Inputs, HTTP, brokers and the engine."""
    assert set(changed({**values, "batching": {"time_ms": 5}})) == {name, "batching"}


@pytest.mark.parametrize(
    ("values", "name"),
    [
        ({"pool": {"max_bytes": "64 MiB"}}, "pool"),
        ({"spool": {"path": "/var/lib/aiokq/spool"}}, "spool"),
        ({"discards": {"report_interval_s": 60}}, "discards"),
        ({"debug": {"directory": "/var/lib/aiokq/debug"}}, "debug"),
        ({"dead_letters": {"topic": "dead"}}, "dead_letters"),
    ],
)
def test_options_that_need_a_restart_are_refused_by_name(values: dict[str, Any], name: str):
    """Together with a change that would be possible: nothing is changed."""
    with pytest.raises(ConfigError, match=f"^{name}: changed in the file, and only a restart"):
        changed({**values, "batching": {"time_ms": 5}})
