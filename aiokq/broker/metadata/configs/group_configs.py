"""The settings of individual groups (resources of type GROUP, KIP-848): table and values.

Settings may exist for a group that does not exist. If a group does not have a setting, the broker's
setting applies. Other broker settings limit the values that a request can set.

Source: Kafka ``GroupConfig.java``, ``GroupConfigManager.java``.
Tests: ``tests/unit/broker/metadata/configs/test_group_configs.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from aiokq.broker.config.setting import Setting
from aiokq.core.errors import ConfigError, InvalidConfiguration
from aiokq.core.named_tuple import NamedTuple

if TYPE_CHECKING:
    from aiokq.broker.config.settings import BrokerSettings

__all__ = ["GROUP_CONFIGS", "GroupConfig", "GroupConfigs", "check_group_configs"]


class GroupConfig(NamedTuple):
    """One row of ``GROUP_CONFIGS``.

    Attributes:
        server: name of the broker setting with the default value.
        least: name of the broker setting with the lower limit.
        most: name of the broker setting with the upper limit.
    """

    name: str
    doc: str
    server: str
    least: str
    most: str

    @property
    def setting(self) -> Setting:
        """The type of the setting, and its range without the broker's limits."""
        return Setting(self.name, self.name.replace(".", "_"), "int", None, self.doc, at_least=1)


_SESSION: Final = "consumer.session.timeout.ms"
_HEARTBEAT: Final = "consumer.heartbeat.interval.ms"

GROUP_CONFIGS: Final[Mapping[str, GroupConfig]] = {
    row.name: row
    for row in (
        GroupConfig(
            _SESSION,
            "Time without a heartbeat after which a member of the consumer protocol is fenced.",
            "group.consumer.session.timeout.ms",
            "group.consumer.min.session.timeout.ms",
            "group.consumer.max.session.timeout.ms",
        ),
        GroupConfig(
            _HEARTBEAT,
            "Interval at which members of the consumer protocol send heartbeats.",
            "group.consumer.heartbeat.interval.ms",
            "group.consumer.min.heartbeat.interval.ms",
            "group.consumer.max.heartbeat.interval.ms",
        ),
    )
}
"""Every setting by Kafka's name."""

_NONE: Final[Mapping[str, str]] = MappingProxyType({})


class GroupConfigs:
    """The settings of groups on this node. Used from the node's loop only.

    The publisher calls ``configure``; a change takes effect for a member at its next heartbeat.
    """

    def __init__(self, settings: BrokerSettings) -> None:
        self._settings = settings
        self._configs: dict[str, Mapping[str, str]] = {}

    def configure(self, group_id: str, configs: Mapping[str, str]) -> None:
        """Replace the settings of a group; an empty mapping restores the broker's settings.

        Settings and values that Apache Kafka has stored and that have no effect here are left out.
        """
        configs = {
            name: text
            for name, text in configs.items()
            if name in GROUP_CONFIGS and text.strip().isdecimal()
        }
        if configs:
            self._configs[group_id] = configs
        else:
            self._configs.pop(group_id, None)

    def given(self, group_id: str) -> Mapping[str, str]:
        """Return the group's own settings, by Kafka's names."""
        return self._configs.get(group_id, _NONE)

    def group_ids(self) -> list[str]:
        """Return the ids of the groups that have settings of their own, sorted."""
        return sorted(self._configs)

    def session_timeout_ms(self, group_id: str) -> int:
        """Return the milliseconds without a heartbeat after which a member is fenced."""
        return self.value(group_id, _SESSION)

    def heartbeat_interval_ms(self, group_id: str) -> int:
        """Return the milliseconds between two heartbeats of a member."""
        return self.value(group_id, _HEARTBEAT)

    def value(self, group_id: str, name: str) -> int:
        """Return the value in effect for the group: its own, or the broker's."""
        own = self._configs.get(group_id)
        text = None if own is None else own.get(name)
        if text is not None:
            return int(text)
        return _server(self._settings, GROUP_CONFIGS[name].server)


def check_group_configs(configs: Mapping[str, str], settings: BrokerSettings) -> dict[str, str]:
    """Check settings against ``GROUP_CONFIGS`` and the broker's limits; return the values to store.

    Raises:
        InvalidConfiguration: an unknown name, a value that is not allowed, or a session timeout
            that is not greater than the heartbeat interval.
    """
    values: dict[str, int] = {}
    for name, text in configs.items():
        row = GROUP_CONFIGS.get(name)
        if row is None:
            raise InvalidConfiguration(f"Unknown group config name: {name}")
        values[name] = _number(row, text, settings)
    session = values.get(_SESSION, _server(settings, GROUP_CONFIGS[_SESSION].server))
    heartbeat = values.get(_HEARTBEAT, _server(settings, GROUP_CONFIGS[_HEARTBEAT].server))
    if values and session <= heartbeat:
        raise InvalidConfiguration(f"{_SESSION} must be greater than {_HEARTBEAT}")
    return {name: str(value) for name, value in values.items()}


def _number(row: GroupConfig, text: str, settings: BrokerSettings) -> int:
    try:
        value = row.setting.parse(text)
    except ConfigError as error:
        raise InvalidConfiguration(str(error)) from None
    assert isinstance(value, int)
    if value < _server(settings, row.least):
        raise InvalidConfiguration(f"{row.name} must be greater than or equal to {row.least}")
    if value > _server(settings, row.most):
        raise InvalidConfiguration(f"{row.name} must be less than or equal to {row.most}")
    return value


def _server(settings: BrokerSettings, name: str) -> int:
    value = settings.value_of(name)
    assert isinstance(value, int)
    return value
