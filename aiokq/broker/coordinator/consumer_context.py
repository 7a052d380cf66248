"""What the consumer-protocol groups of one shard share. Owns nothing of any group.

Here is the seam for the dynamic configs of a group (KIP-848's GROUP resources): today every group
has the broker's timeouts.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field

from aiokq.assign.server import SERVER_ASSIGNORS
from aiokq.assign.server_model import ServerAssignor
from aiokq.broker.coordinator.consumer_regex import RegexCompiler, compile_re2
from aiokq.broker.coordinator.timers import Timers
from aiokq.broker.coordinator.topic_view import TopicView
from aiokq.broker.settings import BrokerSettings

__all__ = ["ConsumerContext"]


@dataclass(frozen=True, slots=True)
class ConsumerContext:
    """Settings, timers and topics of a shard.

    Attributes:
        random: where member ids come from that the broker makes (heartbeat version 0).
        assignors: by name; the first is used where no member asks for one.
        compile_regex: how expressions are compiled.
    """

    settings: BrokerSettings
    timers: Timers
    topics: TopicView
    random: random.Random
    assignors: Mapping[str, ServerAssignor] = field(default_factory=lambda: SERVER_ASSIGNORS)
    compile_regex: RegexCompiler = compile_re2

    def session_timeout(self, group_id: str) -> float:
        """Seconds without a heartbeat after which a member of the group is fenced."""
        return self.settings.group_consumer_session_timeout_ms / 1000

    def heartbeat_interval_ms(self, group_id: str) -> int:
        """How often members of the group shall send heartbeats."""
        return self.settings.group_consumer_heartbeat_interval_ms
