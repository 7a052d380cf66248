"""The settings of single groups (resources of type GROUP, KIP-848): their table and their values.

Owns what a group may be told and what it was told; a group need not exist for that. What is not
set is the broker's own setting, at whose limits values are checked.

Source: Kafka ``GroupConfig.java``, ``GroupConfigManager.java``.
Tests: ``tests/unit/broker/metadata/test_group_configs.py``.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from aiokq.broker.metadata.metadata_records import GroupConfigsRecord
from aiokq.broker.settings import Setting
from aiokq.core.errors import ConfigError, InvalidConfiguration, InvalidRequest
from aiokq.core.supervisor import shielded

if TYPE_CHECKING:
    from aiokq.broker.metadata.metadata_log import MetadataLog
    from aiokq.broker.settings import BrokerSettings
    from aiokq.core.offload import Offload

__all__ = ["GROUP_CONFIGS", "GroupConfig", "GroupConfigs"]

logger = logging.getLogger("aiokq.broker")


class GroupConfig(NamedTuple):
    """One row of the table.

    Attributes:
        server: the broker setting that holds where this is not set.
        least: the broker setting that is the lower limit; `most` the upper one.
    """

    name: str
    doc: str
    server: str
    least: str
    most: str

    @property
    def setting(self) -> Setting:
        """Its type, and the range that no broker setting widens."""
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
            "How often members of the consumer protocol send heartbeats.",
            "group.consumer.heartbeat.interval.ms",
            "group.consumer.min.heartbeat.interval.ms",
            "group.consumer.max.heartbeat.interval.ms",
        ),
    )
}
"""Every setting by Kafka's name."""

_NONE: Final[Mapping[str, str]] = MappingProxyType({})


class GroupConfigs:
    """What groups were told, kept in the metadata log.

    Used from the node's loop only. A change is durable before it counts, and counts from a
    member's next heartbeat on.
    """

    def __init__(self, metadata: MetadataLog, offload: Offload, settings: BrokerSettings) -> None:
        self._metadata = metadata
        self._offload = offload
        self._settings = settings
        self._configs: dict[str, Mapping[str, str]] = dict(metadata.image.group_configs)
        self._lock = asyncio.Lock()

    def given(self, group_id: str) -> Mapping[str, str]:
        """What was set for this group, by Kafka's names."""
        return self._configs.get(group_id, _NONE)

    def group_ids(self) -> list[str]:
        """The groups that were told anything, by name."""
        return sorted(self._configs)

    def session_timeout_ms(self, group_id: str) -> int:
        """After how many milliseconds without a heartbeat a member of the group is fenced."""
        return self.value(group_id, _SESSION)

    def heartbeat_interval_ms(self, group_id: str) -> int:
        """How often members of the group shall send heartbeats, in milliseconds."""
        return self.value(group_id, _HEARTBEAT)

    def value(self, group_id: str, name: str) -> int:
        """What holds for the group: its own value, or the broker's."""
        own = self._configs.get(group_id)
        text = None if own is None else own.get(name)
        return self._server(GROUP_CONFIGS[name].server) if text is None else int(text)

    def _server(self, name: str) -> int:
        value = self._settings.value_of(name)
        assert isinstance(value, int)
        return value

    async def alter(
        self,
        group_id: str,
        change: Callable[[Mapping[str, str]], Mapping[str, str]],
        *,
        validate_only: bool = False,
    ) -> None:
        """Change a group's settings.

        Args:
            change: the new settings, of those the group has when its turn has come.

        Raises:
            InvalidRequest: the group has no name.
            InvalidConfiguration: an unknown setting, or a value beyond the broker's limits.
            KafkaStorage: it could not be written; nothing has changed.
        """
        if not group_id:
            raise InvalidRequest("the default of all groups is a setting of the broker")
        await shielded(self._alter(group_id, change, validate_only), name=f"alter {group_id}")

    async def _alter(
        self,
        group_id: str,
        change: Callable[[Mapping[str, str]], Mapping[str, str]],
        validate_only: bool,
    ) -> None:
        async with self._lock:
            checked = self._checked(change(self.given(group_id)))
            if validate_only or checked == self.given(group_id):
                return
            await self._offload.run(self._metadata.append, GroupConfigsRecord(group_id, checked))
            if checked:
                self._configs[group_id] = checked
            else:
                self._configs.pop(group_id, None)
        logger.info("group settings changed: group=%s configs=%s", group_id, checked)

    def _checked(self, configs: Mapping[str, str]) -> dict[str, str]:
        values: dict[str, int] = {}
        for name, text in configs.items():
            row = GROUP_CONFIGS.get(name)
            if row is None:
                raise InvalidConfiguration(f"Unknown group config name: {name}")
            values[name] = self._number(row, text)
        session = values.get(_SESSION, self._server(GROUP_CONFIGS[_SESSION].server))
        heartbeat = values.get(_HEARTBEAT, self._server(GROUP_CONFIGS[_HEARTBEAT].server))
        if values and session <= heartbeat:
            raise InvalidConfiguration(f"{_SESSION} must be greater than {_HEARTBEAT}")
        return {name: str(value) for name, value in values.items()}

    def _number(self, row: GroupConfig, text: str) -> int:
        try:
            value = row.setting.parse(text)
        except ConfigError as error:
            raise InvalidConfiguration(str(error)) from None
        assert isinstance(value, int)
        if value < self._server(row.least):
            raise InvalidConfiguration(f"{row.name} must be greater than or equal to {row.least}")
        if value > self._server(row.most):
            raise InvalidConfiguration(f"{row.name} must be less than or equal to {row.most}")
        return value
