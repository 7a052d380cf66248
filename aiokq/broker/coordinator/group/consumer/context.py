"""Context shared by a shard's consumer-protocol groups: settings, timers, topics, downgrades."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from aiokq.assign.server import SERVER_ASSIGNORS
from aiokq.assign.server_model import ServerAssignor
from aiokq.broker.config.settings import BrokerSettings
from aiokq.broker.coordinator.group.consumer.regex import RegexCompiler
from aiokq.broker.coordinator.group.topic_view import TopicView
from aiokq.broker.coordinator.re2_expressions import compile_re2
from aiokq.broker.coordinator.timers import Timers
from aiokq.core.counters import CounterBy

if TYPE_CHECKING:
    from collections.abc import Collection

    from aiokq.assign.server_model import Partitions
    from aiokq.broker.coordinator.group.consumer.image import GroupImage
    from aiokq.broker.coordinator.group.consumer.member import ConsumerMember
    from aiokq.broker.coordinator.record import CoordinatorRecord
    from aiokq.broker.coordinator.timers import Instant

__all__ = ["ConsumerContext", "GroupTimeouts", "server_assignors"]


class GroupTimeouts(Protocol):
    """Timeouts that may differ between groups (KIP-848's GROUP resources), in milliseconds."""

    def session_timeout_ms(self, group_id: str) -> int: ...

    def heartbeat_interval_ms(self, group_id: str) -> int: ...


class Downgrade(Protocol):
    """The downgrade of one group to the classic protocol."""

    @property
    def records(self) -> list[CoordinatorRecord]: ...

    def complete(self, reason: str | None, instant: Instant) -> None:
        """Start the classic group, after the records were replayed.

        Args:
            reason: why the members have to join again; None if the assignment stays.
        """
        ...


class Downgrades(Protocol):
    """Interface to the downgrades of groups; `migration.downgrade` implements it."""

    def is_due(self, group_id: str, members: Collection[ConsumerMember]) -> bool:
        """Whether a group is downgraded to a classic group when only these members are left."""
        ...

    def plan(
        self,
        image: GroupImage,
        members: Collection[ConsumerMember],
        targets: Mapping[str, Partitions],
        timestamp_ms: int,
        replaced: str | None,
    ) -> Downgrade | None:
        """Return the downgrade of a group with these members; None if it is not possible.

        Args:
            members: the members; all use the classic protocol.
            targets: the target assignments by member id.
            replaced: the previous id of a static member that joined again, if there is one. The
                caller writes the tombstones of this id.
        """
        ...


def server_assignors(settings: BrokerSettings) -> Mapping[str, ServerAssignor]:
    """Return the assignors by name, in the order of group.consumer.assignors."""
    names = (name.strip() for name in settings.group_consumer_assignors.split(","))
    return {name: SERVER_ASSIGNORS[name] for name in names}


@dataclass(frozen=True, slots=True)
class ConsumerContext:
    """Settings, timers and topics of a shard.

    Attributes:
        random: the source of member ids that the broker generates (for heartbeats of version 0 and
            for JoinGroup).
        downgrades: downgrades groups to the classic protocol.
        assignors: the assignors by name; the first is the default.
        compile_regex: compiles the regular expressions of subscriptions.
        timeouts: timeouts of individual groups; None if all groups have the broker's timeouts.
        rebalances: counts rebalances by the name of the group protocol.
    """

    settings: BrokerSettings
    timers: Timers
    topics: TopicView
    random: random.Random
    downgrades: Downgrades
    assignors: Mapping[str, ServerAssignor] = field(default_factory=lambda: SERVER_ASSIGNORS)
    compile_regex: RegexCompiler = compile_re2
    timeouts: GroupTimeouts | None = None
    rebalances: CounterBy = field(default_factory=CounterBy)

    def session_timeout(self, group_id: str) -> float:
        """Return the session timeout of members that use the consumer protocol, in seconds."""
        if self.timeouts is not None:
            return self.timeouts.session_timeout_ms(group_id) / 1000
        return self.settings.group_consumer_session_timeout_ms / 1000

    def heartbeat_interval_ms(self, group_id: str) -> int:
        """Return the interval of ConsumerGroupHeartbeat requests, in milliseconds."""
        if self.timeouts is not None:
            return self.timeouts.heartbeat_interval_ms(group_id)
        return self.settings.group_consumer_heartbeat_interval_ms
