"""`Engine`: the interface of delivery engines; `TopicState`: what they share with the router.

An engine gets the messages of a topic in batches (`Taken`), delivers them, and reports each outcome
to `Outcomes`. No topic waits for another topic.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

if TYPE_CHECKING:
    from aiokq import TopicInfo
    from aiokq.errors import KafkaError
    from aiokq.fastpath.gateway import Taken
    from aiokq.gateway.settings_tables import TopicRules

__all__ = ["Engine", "Guard", "InEngine", "Outcomes", "TopicState", "Trace"]

Guard: TypeAlias = Callable[[Callable[..., None]], Callable[..., Any]]
"""Wraps a callback of the event loop, so that its exceptions end the gateway."""


class Trace(Protocol):
    """Records the steps of messages of topics that are debugged."""

    def received(self, topic: str, taken: Taken, rows: Sequence[int]) -> None:
        """Record messages that were taken from the pool."""

    def sent(self, topic: str, taken: Taken, rows: Sequence[int]) -> None:
        """Record messages that were sent."""

    def acked(self, topic: str, taken: Taken, rows: Sequence[int]) -> None:
        """Record messages that were acknowledged."""


class TopicState:
    """A topic that exists, and to which messages were sent.

    Attributes:
        name: name of the topic.
        slot: slot of the topic in the pool.
        rules: the options of the configuration for the topic.
        partitions: number of partitions.
        usable: a byte per partition: 1 if the partition has a leader; None if all or none have one.
        earliest_ms: oldest timestamp that the topic accepts now, as milliseconds before the current
            time; None for no limit.
        latest_ms: newest timestamp that the topic accepts now, as milliseconds after the current
            time; None for no limit.
        max_batch_bytes: ``max.message.bytes`` of the topic; None if it is not known.
        too_long: number of its messages that were too long when its limits were last requested.
        stale: whether `partitions` and `usable` are those of a cluster that a reload has replaced.
        charge: bytes of the pool that the topic itself is charged.
        gone: whether the topic was deleted. Its messages are discarded.
        trace: records the steps of the messages; None unless the topic is debugged.
    """

    __slots__ = (
        "charge",
        "earliest_ms",
        "gone",
        "latest_ms",
        "max_batch_bytes",
        "name",
        "partitions",
        "rules",
        "seen",
        "slot",
        "stale",
        "too_long",
        "trace",
        "usable",
    )

    def __init__(self, name: str, rules: TopicRules) -> None:
        self.name = name
        self.slot = -1
        self.charge = 0
        self.rules = rules
        self.partitions = 0
        self.usable: bytes | None = None
        self.earliest_ms: int | None = None
        self.latest_ms: int | None = None
        self.max_batch_bytes: int | None = None
        self.too_long = 0
        self.stale = False
        self.gone = False
        self.trace: Trace | None = None
        self.seen: object = None
        """The metadata from which `partitions` and `usable` were taken last."""

    def update(self, info: TopicInfo | None) -> None:
        """Take the partitions from the metadata of the topic, if they have changed.

        Args:
            info: None if the metadata does not have the topic.
        """
        if info is not None and info is not self.seen and info.partitions:
            self.seen = info
            self.stale = False
            self.set_leaders({number: part.leader for number, part in info.partitions.items()})

    def set_leaders(self, leaders: Mapping[int, int]) -> None:
        """Set the number of partitions, and which of them have a leader.

        Args:
            leaders: node id of the leader by partition; -1 if there is none.
        """
        self.partitions = max(leaders, default=-1) + 1
        usable = bytes(leaders.get(number, -1) >= 0 for number in range(self.partitions))
        self.usable = None if all(usable) or not any(usable) else usable

    def __repr__(self) -> str:
        return f"<TopicState {self.name} slot={self.slot} partitions={self.partitions}>"


class InEngine(NamedTuple):
    """The messages of one topic that an engine holds.

    Attributes:
        waiting: messages that are not sent yet, or are to be sent again.
        sent: messages that are sent and not acknowledged.
    """

    waiting: int
    sent: int


class Outcomes(Protocol):
    """Receives the outcomes of messages."""

    def charged(self, size: int) -> None:
        """Charge the pool `size` bytes, which are released with the messages."""

    def acked(self, topic: TopicState, taken: Taken, rows: Sequence[int], charge: int) -> None:
        """Count messages that were acknowledged, and release `charge` bytes of the pool.

        Args:
            rows: the indexes of the messages in `taken`.
        """

    def discarded(
        self,
        topic: TopicState,
        taken: Taken,
        rows: Sequence[int],
        reason: int,
        charge: int,
        *,
        error: KafkaError | None = None,
        attempts: int = 0,
    ) -> None:
        """Discard messages for a reason of `aiokq.fastpath.gateway`, or dead-letter them.

        Args:
            rows: the indexes of the messages in `taken`.
            charge: bytes of the pool that the call releases.
            error: the error of the delivery, if there was one.
            attempts: number of attempts to deliver the messages.
        """

    def possible_duplicates(self, topic: TopicState, taken: Taken, rows: Sequence[int]) -> None:
        """Count messages that are sent again and may have been written before."""


class Engine(Protocol):
    """Delivers messages. All methods are called on the loop of the gateway.

    Attributes:
        max_message_bytes: largest size of key and value that the engine can deliver.
    """

    max_message_bytes: int

    @property
    def pauses(self) -> tuple[int, int]:
        """The numbers of begun and of ended pauses of all brokers since the start."""
        ...

    async def start(self) -> None:
        """Start the tasks. Kafka need not be reachable."""

    def room(self, topic: TopicState) -> int:
        """Return how many bytes of messages of the topic `accept` takes now.

        If the result is 0, the engine later calls `on_room`, an argument of its constructor, when
        the topic may have room. A topic without messages in the engine nearly always has room.
        """
        ...

    def accept(self, topic: TopicState, taken: Taken) -> None:
        """Take over messages. The engine reports the outcome of each of them."""

    def held(self) -> Mapping[str, InEngine]:
        """Return the numbers of held messages by topic; topics without messages are left out."""
        ...

    def reconfigure(self) -> None:
        """Use the changed rules of topics."""

    async def drain(self) -> None:
        """Wait until the engine holds no messages."""

    @property
    def sending(self) -> bool:
        """Whether a broker may have messages without an outcome."""
        ...

    def suspend(self) -> None:
        """Send nothing more until `resume`. Messages in flight get their outcomes."""

    def resume(self) -> None:
        """Send again after `suspend`."""

    def adopt(self, other: Any) -> None:
        """Take over the messages of a suspended engine, in their order.

        Args:
            other: an engine of the same class, which is not `sending`.
        """

    async def close(self) -> None:
        """Discard the messages that have no outcome, with reason shutdown, and end all tasks."""
