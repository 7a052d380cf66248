"""Draws what happens in a round: a pure function of its seed.

Kinds that are switched off are drawn and then left out, so that the rest of the plan is the same.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

BROKER_KINDS = (
    "kill",
    "restart",
    "pause",
    "descriptors",
    "disk_full",
    "file_size",
    "memory",
)
"""Faults of the broker's process, limits and disk, which never overlap."""

NETWORK_KINDS = ("cut", "mid_frame", "delay", "trickle", "half_open", "stall", "refuse")
"""Faults of the proxy between clients and broker, in rounds that have a proxy."""

HOSTILE_KINDS = ("garbage", "half_messages", "unknown_apis", "oversized", "connections")
"""Kinds of hostile peers."""

CLIENT_KINDS = (
    "bad_records",
    "bad_arguments",
    "bad_admin",
    "other_loop",
    "fork",
    "closing",
    "iterators",
    "commits",
    "cancellation",
    "unknown_topics",
    "recreated_topics",
    "callbacks",
    "abandoned",
    "embedded_fork",
)
"""Kinds of misuse of clients."""

LOAD_KINDS = ("poison", "confluent")
"""Parts of the load: records that deserializers reject, and clients of confluent-kafka."""

KINDS = BROKER_KINDS + NETWORK_KINDS + HOSTILE_KINDS + CLIENT_KINDS + LOAD_KINDS

TOPICS = {"steady-1": 1, "steady-3": 3, "steady-8": 8}
"""Topics that exist for the whole round, with their numbers of partitions."""


@dataclass(frozen=True)
class Action:
    """One fault or misuse.

    Attributes:
        at: seconds after the load began.
        kind: one of `KINDS`.
        lasts: seconds.
        seed: the seed of all further random choices.
    """

    at: float
    kind: str
    lasts: float
    seed: int

    def __str__(self) -> str:
        return f"{self.at:5.1f} s  {self.kind:<16} {self.lasts:4.1f} s  {self.seed}"


@dataclass(frozen=True)
class ProducerPlan:
    """One producer of the load.

    Attributes:
        style: awaited (send), cancelled (send), enqueue, many or nowait; or confluent.
        rate: records per second, at most.
    """

    name: str
    style: str
    topics: tuple[str, ...]
    rate: int
    sizes: tuple[int, ...]
    settings: dict[str, Any]
    poison: float
    seed: int


@dataclass(frozen=True)
class GroupPlan:
    """One group of the load.

    Attributes:
        style: records, streams, batches or many; or confluent.
        commits: auto, manual or explicit.
        poison: whether its deserializer raises for poisoned records.
    """

    name: str
    style: str
    commits: str
    topics: tuple[str, ...]
    members: int
    poison: bool
    settings: dict[str, Any]
    seed: int


@dataclass(frozen=True)
class Plan:
    """The plan of a round."""

    seed: int
    seconds: float
    uvloop: bool
    proxied: bool
    broker_settings: dict[str, Any]
    producers: tuple[ProducerPlan, ...]
    groups: tuple[GroupPlan, ...]
    actions: tuple[Action, ...]
    left_out: tuple[str, ...] = field(default=())

    @property
    def mode(self) -> str:
        return (
            f"{'uvloop' if self.uvloop else 'asyncio'}, {'proxied' if self.proxied else 'direct'}"
        )

    def lines(self) -> list[str]:
        """Return the plan as lines of text."""
        found = [
            f"seed {self.seed}, {self.seconds:.0f} s, {self.mode}, broker {self.broker_settings}"
        ]
        for producer in self.producers:
            found.append(
                f"  producer {producer.name} {producer.style} to {', '.join(producer.topics)}, "
                f"{producer.rate}/s of {producer.sizes}, {producer.settings}"
            )
        for group in self.groups:
            found.append(
                f"  group {group.name}: {group.members} x {group.style}, {group.commits} commits, "
                f"of {', '.join(group.topics)}{', poison' * group.poison}, {group.settings}"
            )
        found += [f"  {action}" for action in self.actions]
        return found


def make_plan(seed: int, kinds: Collection[str] = KINDS) -> Plan:
    """Return the plan of a seed with only the named kinds."""
    random = Random(seed)
    seconds = random.uniform(12, 24)
    uvloop = random.random() < 0.6
    proxied = random.random() < 0.6
    broker_settings: dict[str, Any] = {
        "log.segment.bytes": random.choice([1024 * 1024, 1024 * 1024, 64 * 1024 * 1024]),
        "log.flush.interval.messages": random.choice([1, 1000, 2**63 - 1, 2**63 - 1]),
        "group.consumer.session.timeout.ms": random.choice([5000, 10_000]),
        "num.partitions": random.choice([1, 3]),
    }
    poison = random.random() < 0.5
    producers = [_producer(random, number) for number in range(random.randint(3, 5))]
    groups = [_group(random, number, poison) for number in range(random.randint(2, 3))]
    foreign_producer = _foreign_producer(random)
    foreign_group = _foreign_group(random)
    if random.random() < 0.35 and "confluent" in kinds:
        producers.append(foreign_producer)
        groups.append(foreign_group)
    if "poison" not in kinds:
        groups = [replace(group, poison=False) for group in groups]
    actions = _actions(random, seconds, proxied)
    return Plan(
        seed=seed,
        seconds=seconds,
        uvloop=uvloop,
        proxied=proxied,
        broker_settings=broker_settings,
        producers=tuple(producers),
        groups=tuple(groups),
        actions=tuple(action for action in actions if action.kind in kinds),
        left_out=tuple(kind for kind in KINDS if kind not in kinds),
    )


def _topics(random: Random) -> tuple[str, ...]:
    names = sorted(TOPICS)
    return tuple(sorted(random.sample(names, random.randint(1, len(names)))))


def _producer(random: Random, number: int) -> ProducerPlan:
    acks: Any = random.choice(["all", "all", "all", 1, 0])
    request_timeout_ms = random.choice([1000, 2000, 3000])
    settings: dict[str, Any] = {
        "acks": acks,
        "linger_ms": random.choice([0, 5, 50]),
        "batch_size": random.choice([0, 1000, 16_384, 131_072]),
        "compression_type": random.choice(["none", "none", "gzip", "snappy", "lz4", "zstd"]),
        "buffer_memory": random.choice([200_000, 1_000_000, 33_554_432]),
        "request_timeout_ms": request_timeout_ms,
        "delivery_timeout_ms": request_timeout_ms + random.choice([2000, 8000, 20_000, 40_000]),
        "max_block_ms": random.choice([500, 5000, 20_000]),
        "max_in_flight_requests_per_connection": random.choice([1, 2, 5]),
        "retry_backoff_ms": random.choice([20, 100]),
    }
    if acks == "all" and random.random() < 0.2:
        settings["enable_idempotence"] = False
    return ProducerPlan(
        name=f"p{number}",
        style=random.choice(["awaited", "cancelled", "enqueue", "many", "nowait"]),
        topics=_topics(random),
        rate=random.choice([50, 300, 1000]),
        sizes=random.choice([(10, 100), (100, 2000), (1, 60_000)]),
        settings=settings,
        poison=random.choice([0.0, 0.002, 0.02]),
        seed=random.getrandbits(32),
    )


def _group(random: Random, number: int, poison: bool) -> GroupPlan:
    protocol = random.choice(["classic", "classic", "consumer"])
    settings: dict[str, Any] = {
        "group_protocol": protocol,
        "auto_commit_interval_ms": random.choice([50, 300, 1000]),
        "max_partition_fetch_bytes": random.choice([10_000, 1_048_576]),
        "fetch_max_wait_ms": random.choice([50, 500]),
    }
    if protocol == "classic":
        settings |= {
            "session_timeout_ms": random.choice([3000, 6000]),
            "heartbeat_interval_ms": random.choice([100, 500]),
            "partition_assignment_strategy": [
                random.choice(["range", "roundrobin", "sticky", "cooperative-sticky"])
            ],
        }
    settings["rebalance_timeout_ms"] = 5000
    return GroupPlan(
        name=f"g{number}",
        style=random.choice(["records", "records", "streams", "batches", "many"]),
        commits=random.choice(["auto", "auto", "manual", "explicit"]),
        topics=_topics(random),
        members=random.randint(1, 3),
        poison=poison,
        settings=settings,
        seed=random.getrandbits(32),
    )


def _foreign_producer(random: Random) -> ProducerPlan:
    idempotent = random.random() < 0.7
    return ProducerPlan(
        name="confluent",
        style="confluent",
        topics=_topics(random),
        rate=random.choice([50, 500]),
        sizes=(10, 1000),
        settings={
            "enable.idempotence": idempotent,
            "acks": "all",
            "linger.ms": 5,
            "compression.type": random.choice(["none", "gzip", "snappy", "lz4", "zstd"]),
            "message.timeout.ms": 30_000,
            "request.timeout.ms": 3000,
        },
        poison=0.0,
        seed=random.getrandbits(32),
    )


def _foreign_group(random: Random) -> GroupPlan:
    return GroupPlan(
        name="confluent",
        style="confluent",
        commits="auto",
        topics=_topics(random),
        members=random.randint(1, 2),
        poison=False,
        settings={"auto.commit.interval.ms": 300, "session.timeout.ms": 6000},
        seed=random.getrandbits(32),
    )


def _actions(random: Random, seconds: float, proxied: bool) -> list[Action]:
    """Draw the actions: faults of the broker one after the other, all others at random times."""
    found: list[Action] = []
    # Broker faults have weights because some of them end in a restart, which takes seconds.
    weighted = [
        *("kill",) * 4,
        *("restart",) * 2,
        *("pause",) * 3,
        *("descriptors",) * 3,
        *("disk_full",) * 2,
        "file_size",
        "memory",
    ]
    at = random.uniform(1.5, 4)
    while at < seconds - 2:
        lasts = random.uniform(0.2, 4.0)
        found.append(Action(at, random.choice(weighted), lasts, random.getrandbits(32)))
        at += lasts + random.uniform(1.5, 5)
    for _ in range(random.randint(2, 6)):
        action = _anywhere(random, NETWORK_KINDS, seconds, 3.0)
        if proxied:
            found.append(action)
    for _ in range(random.randint(1, 5)):
        found.append(_anywhere(random, HOSTILE_KINDS, seconds, 3.0))
    for _ in range(random.randint(4, 10)):
        found.append(_anywhere(random, CLIENT_KINDS, seconds, 4.0))
    return sorted(found, key=lambda action: action.at)


def _anywhere(random: Random, kinds: Collection[str], seconds: float, longest: float) -> Action:
    return Action(
        random.uniform(0.5, seconds - 1),
        random.choice(list(kinds)),
        random.uniform(0.2, longest),
        random.getrandbits(32),
    )
