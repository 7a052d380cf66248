"""What the consumer-protocol groups of one shard share. Owns nothing of any group."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from aiokq.assign.server import SERVER_ASSIGNORS
from aiokq.assign.server_model import ServerAssignor
from aiokq.broker.coordinator.group.consumer.regex import RegexCompiler, compile_re2
from aiokq.broker.coordinator.group.topic_view import TopicView
from aiokq.broker.coordinator.timers import Timers
from aiokq.broker.settings import BrokerSettings
from aiokq.core.counters import CounterBy

if TYPE_CHECKING:
    from aiokq.broker.coordinator.group.classic.group import ClassicGroup

__all__ = ["ConsumerContext", "GroupTimeouts", "server_assignors"]


class GroupTimeouts(Protocol):
    """Timeouts that may differ between groups (KIP-848's GROUP resources), in milliseconds."""

    def session_timeout_ms(self, group_id: str) -> int: ...

    def heartbeat_interval_ms(self, group_id: str) -> int: ...


def server_assignors(settings: BrokerSettings) -> Mapping[str, ServerAssignor]:
    """The assignors that group.consumer.assignors names, by name, in its order."""
    names = (name.strip() for name in settings.group_consumer_assignors.split(","))
    return {name: SERVER_ASSIGNORS[name] for name in names}


@dataclass(frozen=True, slots=True)
class ConsumerContext:
    """Settings, timers and topics of a shard.

    Attributes:
        random: where member ids come from that the broker makes (heartbeat version 0).
        assignors: by name; the first is used where no member asks for one.
        compile_regex: how expressions are compiled.
        timeouts: those of single groups; None where all have the broker's.
        rebalances: counts the changes that made a group compute its assignment anew.
        classic_group: gives the classic group of an id, which one of these groups has become.
    """

    settings: BrokerSettings
    timers: Timers
    topics: TopicView
    random: random.Random
    assignors: Mapping[str, ServerAssignor] = field(default_factory=lambda: SERVER_ASSIGNORS)
    compile_regex: RegexCompiler = compile_re2
    timeouts: GroupTimeouts | None = None
    rebalances: CounterBy = field(default_factory=CounterBy)
    classic_group: Callable[[str], ClassicGroup] | None = None

    def session_timeout(self, group_id: str) -> float:
        """Seconds without a heartbeat after which a member of the group is fenced."""
        if self.timeouts is not None:
            return self.timeouts.session_timeout_ms(group_id) / 1000
        return self.settings.group_consumer_session_timeout_ms / 1000

    def heartbeat_interval_ms(self, group_id: str) -> int:
        """How often members of the group shall send heartbeats."""
        if self.timeouts is not None:
            return self.timeouts.heartbeat_interval_ms(group_id)
        return self.settings.group_consumer_heartbeat_interval_ms
