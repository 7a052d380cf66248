"""Router: which topics exist, their partitions and limits, and the creation of missing topics.

A topic that exists is looked up once; then its messages never wait for a lookup. One request
is for up to 1,000 topics. Tests: tests/unit/gateway/test_router.py.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from typing import TYPE_CHECKING, Any, Final

from aiokq.errors import KafkaError, error_for
from aiokq.fastpath.gateway import AUTOCREATE_FAILED, BAD_TOPIC, SHUTDOWN
from aiokq.gateway.engine import TopicState
from aiokq.wire import (
    CreatableTopic,
    CreateTopicsRequest,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    MetadataRequest,
    MetadataRequestTopic,
)

if TYPE_CHECKING:
    from aiokq import Cluster
    from aiokq.fastpath.gateway import Pool
    from aiokq.gateway.accounting import Accounting
    from aiokq.gateway.settings import GatewaySettings
    from aiokq.gateway.settings_tables import TopicRules
    from aiokq.wire import DescribeConfigsResult, MetadataResponseTopic

__all__ = ["Router"]

logger = logging.getLogger("aiokq.gateway")

NAMES: Final = 1000
"""Largest number of topics in one request."""

CONFIRM_SECONDS: Final = 0.3
"""Time after which a missing topic is looked up again, because brokers do not all learn of a new
topic at the same time.
"""

MOST_CONFIRMED: Final = 500
"""If one response has more missing topics than this, their messages are discarded at once.

With fewer missing topics, or with `autocreate`, the topics are looked up again first.
"""

MOST_CREATIONS: Final = 4
"""Largest number of requests that create topics at the same time."""

REQUEST_SECONDS: Final = 5.0
CONFIG_SECONDS: Final = 2.0
MOST_MISSING: Final = 10_000
"""Number of missing topics above which those without messages in the pool are removed."""

RETRY_SECONDS: Final = (0.1, 2.0)
"""Shortest and longest pause between lookups that no broker answers."""

REFRESH_SECONDS: Final = 300.0
"""Seconds until the limits of topics are requested again.

If no broker has answered, they are requested again after 2 seconds, then after 4, and so on.
"""

TOO_LONG_SECONDS: Final = 10.0
"""Seconds until the limits of a topic are requested again if some messages are too long for it."""

TOPIC_RESOURCE: Final = 2
LIMITS: Final = (
    "max.message.bytes",
    "message.timestamp.before.max.ms",
    "message.timestamp.after.max.ms",
)
NO_LIMIT_MS: Final = 2**62
BATCH_OVERHEAD: Final = 68
"""Bytes by which the smallest batch of one message is larger than its key and value."""

TOPIC_BYTES: Final = 6 * 1024
PARTITION_BYTES: Final = 1024
"""Bytes of the pool that a registered topic is charged, for itself and for each of its partitions.

This is half of what it uses beside its messages, as measured: counts, metadata, queues of the
engine's client, and segments that are not full. The other half is in the quarter by which the
process may be larger than the pool.
"""

TOPICS_PART: Final = 4
"""All topics together are charged at most this part of the pool, a fourth: the rest is for
messages, however many topics there are."""

UNKNOWN: Final = 3
EXISTS: Final = 36
WAIT_CODES: Final = frozenset({3, 5, 36})
"""Codes after which a topic that is being created may still appear."""


class _Missing:
    """A topic whose messages wait because it is not known to exist.

    Attributes:
        since: monotonic seconds of the first answer that the topic does not exist; None before.
        at: monotonic seconds of the next lookup.
        requested: whether the creation of the topic was requested.
    """

    __slots__ = ("at", "requested", "since")

    def __init__(self, now: float) -> None:
        self.since: float | None = None
        self.at = now
        self.requested = False


class Router:
    """Registers topics that exist with the pool, and discards the messages of other topics.

    Args:
        max_message_bytes: largest size of key and value that the engine accepts.
        spawn: starts a task that belongs to the gateway.
        on_topic: called with each topic that was registered.

    Attributes:
        topics: the registered topics, by slot.
        answered: whether the last lookup was answered by a broker.
    """

    def __init__(
        self,
        cluster: Cluster,
        pool: Pool,
        accounting: Accounting,
        settings: GatewaySettings,
        *,
        max_message_bytes: int,
        spawn: Callable[[Coroutine[Any, Any, None], str], object],
        on_topic: Callable[[TopicState], None],
    ) -> None:
        self._cluster = cluster
        self._pool = pool
        self._accounting = accounting
        self._settings = settings
        self._max_message_bytes = max_message_bytes
        self._spawn = spawn
        self._on_topic = on_topic
        self._missing: dict[str, _Missing] = {}
        self._most_missing = MOST_MISSING
        self._to_create: deque[str] = deque()
        self._creations = 0
        self._woken = asyncio.Event()
        self._limits_wanted = asyncio.Event()
        """Set when the limits of all topics are to be requested at once."""
        self._by_name: dict[str, TopicState] = {}
        self._room = pool.max_bytes // TOPICS_PART
        """Bytes that topics may be charged in addition."""
        self.topics: dict[int, TopicState] = {}
        self.answered = False

    def start(self) -> None:
        """Start the lookups on the running loop."""
        self._spawn(self._look_up_topics(), "topics")
        self._spawn(self._refresh_limits(), "limits of topics")

    def notice(self) -> None:
        """Begin to look up the topics that the pool does not know yet, if there are any."""
        while True:
            names = self._pool.unresolved(NAMES)
            now = asyncio.get_running_loop().time()
            for name, _ in names:
                self._missing.setdefault(name.decode("ascii"), _Missing(now))
            if names:
                self._woken.set()
            if len(names) < NAMES:
                break
        if len(self._missing) > self._most_missing:
            self._forget_ended()

    def _forget_ended(self) -> None:
        """Remove missing topics whose messages the pool has discarded.

        The pool limits the number of the remaining topics.
        """
        waits = self._pool.waits
        self._missing = {
            name: missing for name, missing in self._missing.items() if waits(name.encode())
        }
        self._most_missing = max(2 * len(self._missing), MOST_MISSING)

    def update(self, topic: TopicState) -> None:
        """Take the partitions of a topic from the Cluster's metadata, if they have changed."""
        topic.update(self._cluster.metadata.topics.get(topic.name))

    def gone(self, topic: TopicState) -> None:
        """Discard the messages of a deleted topic; a later message causes another lookup."""
        if topic.gone:
            return
        topic.gone = True
        logger.warning("topic does not exist any more: topic=%s", topic.name)
        del self._by_name[topic.name]
        del self.topics[topic.slot]
        self._pool.forget(topic.slot)  # later messages of its name go to another slot
        self._pool.release(0, topic.charge)
        self._room += topic.charge
        self._accounting.forget(topic)
        self._discard_held(topic)
        self.notice()

    def _discard_held(self, topic: TopicState) -> None:
        while True:
            try:
                taken = self._pool.take(topic.slot, flush=True)
            except ValueError:  # the slot was forgotten and empty
                return
            if taken is None:
                return
            rows = range(taken.count)
            self._accounting.discarded(topic, taken, rows, BAD_TOPIC, taken.charge)

    def configure(self, settings: GatewaySettings, max_message_bytes: int) -> None:
        """Use other settings, also for registered topics."""
        self._settings = settings
        self._max_message_bytes = max_message_bytes
        for topic in self.topics.values():
            topic.rules = settings.of_topic(topic.name)
            self._pool.configure(topic.slot, **self._limits(topic))

    def use(self, cluster: Cluster, max_message_bytes: int) -> None:
        """Look up topics on the Cluster of a new engine from now on.

        If the new engine has another Cluster than the old one, the answers of the old Cluster are
        forgotten.

        Args:
            cluster: the Cluster of the new engine.
            max_message_bytes: the size of the largest message that the engine takes.
        """
        self._max_message_bytes = max_message_bytes
        if cluster is not self._cluster:
            self._cluster = cluster
            self._forget_answers()
        for topic in self.topics.values():
            self._pool.configure(topic.slot, **self._limits(topic))

    def _forget_answers(self) -> None:
        now = asyncio.get_running_loop().time()
        for name in self._missing:
            self._missing[name] = _Missing(now)
        self._to_create.clear()
        self._woken.set()
        for topic in self.topics.values():
            topic.seen, topic.stale = None, True
            # The limits of the old cluster are dropped. Until the limits of the new cluster are
            # known, the new cluster itself refuses what it does not accept.
            topic.max_batch_bytes = topic.earliest_ms = topic.latest_ms = None
            if self._settings.delivery.autocreate:
                self._missing[topic.name] = _Missing(now)  # the new cluster may lack the topic
        self._limits_wanted.set()

    def discard_missing(self) -> int:
        """Discard the messages of topics that are not known, with reason shutdown.

        Returns:
            The number of messages.
        """
        self.notice()
        count = 0
        for name in self._missing:
            count += self._accounting.discard_unresolved(name, SHUTDOWN)
        self._missing.clear()
        self._to_create.clear()
        return count

    # ------------------------------------------------------------ lookups

    async def _look_up_topics(self) -> None:
        loop = asyncio.get_running_loop()
        pause = RETRY_SECONDS[0]
        while True:
            self._woken.clear()
            now = loop.time()
            ready = [name for name, missing in self._missing.items() if missing.at <= now]
            if not ready:
                await self._wait(now)
                continue
            names = ready[:NAMES]
            cluster = self._cluster
            try:
                found = await self._metadata(names)
            except KafkaError as error:
                if cluster is not self._cluster:
                    continue  # a reload has closed it
                self.answered = False
                logger.warning("topics cannot be looked up: error=%s", error)
                await asyncio.sleep(pause)
                pause = min(2 * pause, RETRY_SECONDS[1])
                continue
            pause = RETRY_SECONDS[0]
            self.answered = True
            if cluster is self._cluster:
                await self._register(
                    [one for one in found if one.error_code == 0 and one.partitions]
                )
            if cluster is not self._cluster:
                continue  # the answer is from a cluster that is no longer used
            self._judge([one for one in found if one.error_code != 0 or not one.partitions])

    async def _wait(self, now: float) -> None:
        """Wait for a new topic, or for the time of the next lookup."""
        next_at = min((missing.at for missing in self._missing.values()), default=None)
        try:
            async with asyncio.timeout(None if next_at is None else max(0.0, next_at - now)):
                await self._woken.wait()
        except TimeoutError:
            pass

    async def _metadata(self, names: Iterable[str]) -> list[MetadataResponseTopic]:
        delivery = self._settings.delivery
        response = await self._cluster.request(
            MetadataRequest(
                topics=[MetadataRequestTopic(name=name) for name in names],
                allow_auto_topic_creation=delivery.autocreate
                and delivery.autocreate_with == "metadata",
            ),
            timeout=REQUEST_SECONDS,
        )
        return response.topics

    async def _register(self, found: list[MetadataResponseTopic]) -> None:
        """Register topics that exist, with their limits."""
        topics = []
        cluster = self._cluster
        for one in found:
            name = one.name or ""
            if name in self._by_name:  # looked up because of a reload with other brokers
                self._missing.pop(name, None)
                continue
            topic = TopicState(name, self._settings.of_topic(name))
            leaders = {part.partition_index: part.leader_id for part in one.partitions}
            topic.set_leaders(leaders)
            topics.append(topic)
        await self._learn_limits(topics)
        if cluster is not self._cluster:
            return
        for topic in topics:
            topic.rules = self._settings.of_topic(topic.name)  # a reload may have changed them
            self._missing.pop(topic.name, None)
            if topic.name in self._by_name:
                continue
            topic.slot = self._pool.register(topic.name.encode(), **self._limits(topic))
            topic.charge = min(TOPIC_BYTES + topic.partitions * PARTITION_BYTES, self._room)
            self._pool.charge(topic.charge)
            self._room -= topic.charge
            self.topics[topic.slot] = self._by_name[topic.name] = topic
            self._accounting.registered(topic)
            self._on_topic(topic)

    def _judge(self, found: list[MetadataResponseTopic]) -> None:
        """Discard the messages of topics that do not exist, or create the topics."""
        delivery = self._settings.delivery
        now = asyncio.get_running_loop().time()
        many = len(found) > MOST_CONFIRMED
        create: list[str] = []
        for one in found:
            name = one.name or ""
            missing = self._missing.get(name)
            if missing is None:
                continue
            code = one.error_code
            if code == 0 or (code != UNKNOWN and error_for(code).retriable):
                missing.at = now + CONFIRM_SECONDS  # the topic exists, but has no partitions yet
                continue
            if code != UNKNOWN:
                logger.warning("topic cannot be used: topic=%s error=%s", name, error_for(code))
                self._discard(name, BAD_TOPIC)
                continue
            first, missing.since = missing.since is None, missing.since or now
            waits = now - missing.since
            if not delivery.autocreate:
                if first and not many:
                    missing.at = now + CONFIRM_SECONDS
                else:
                    self._discard(name, BAD_TOPIC)
            elif waits * 1000 >= delivery.autocreate_timeout_ms:
                logger.warning("topic was not created: topic=%s", name)
                self._discard(name, AUTOCREATE_FAILED)
            else:
                missing.at = now + min(max(CONFIRM_SECONDS, waits / 4), 2.0)
                if delivery.autocreate_with == "create_topics" and not missing.requested:
                    missing.requested = True
                    create.append(name)
        self._to_create += create
        # Brokers may take seconds to create topics, and other topics are looked up meanwhile.
        while self._to_create and self._creations < MOST_CREATIONS:
            names = [self._to_create.popleft() for _ in range(min(NAMES, len(self._to_create)))]
            self._creations += 1
            self._spawn(self._create_all(names), "creation of topics")

    async def _create_all(self, names: list[str]) -> None:
        """Create topics, and then topics that were queued for creation meanwhile."""
        try:
            while names:
                await self._create(names)
                count = min(NAMES, len(self._to_create))
                names = [self._to_create.popleft() for _ in range(count)]
        finally:
            self._creations -= 1

    async def _create(self, names: list[str]) -> None:
        delivery = self._settings.delivery
        request = CreateTopicsRequest(
            topics=[
                CreatableTopic(
                    name=name,
                    num_partitions=delivery.autocreate_partitions or -1,
                    replication_factor=delivery.autocreate_replication_factor or -1,
                )
                for name in names
            ],
            timeout_ms=int(REQUEST_SECONDS * 1000),
        )
        cluster = self._cluster
        try:
            response = await cluster.request(request, node="controller", timeout=REQUEST_SECONDS)
        except KafkaError as error:
            if cluster is not self._cluster:
                return
            logger.warning("topics cannot be created: topics=%s error=%s", len(names), error)
            for name in names:
                if name in self._missing:
                    self._missing[name].requested = False
            return
        if cluster is not self._cluster:
            return
        for one in response.topics:
            if one.error_code == 0:
                logger.info("topic created: topic=%s", one.name)
                self._look_up_soon(one.name)
            elif one.error_code not in WAIT_CODES:
                refusal = error_for(one.error_code, one.error_message)
                if refusal.retriable:
                    if one.name in self._missing:
                        self._missing[one.name].requested = False
                    continue
                logger.warning("topic cannot be created: topic=%s error=%s", one.name, refusal)
                self._discard(one.name, AUTOCREATE_FAILED)

    def _look_up_soon(self, name: str) -> None:
        missing = self._missing.get(name)
        if missing is not None:
            missing.at = asyncio.get_running_loop().time()
            self._woken.set()

    def _discard(self, name: str, reason: int) -> None:
        self._missing.pop(name, None)
        self._accounting.discard_unresolved(name, reason)

    # ------------------------------------------------------------ limits

    async def _learn_limits(self, topics: list[TopicState]) -> bool:
        """Request the limits of topics; return whether a broker answered.

        If the gateway is not allowed to read the configs of a topic, the topic keeps the limits
        that it has; a new topic has none.
        """
        if not topics:
            return True
        by_name = {topic.name: topic for topic in topics}
        request = DescribeConfigsRequest(
            resources=[
                DescribeConfigsResource(
                    resource_type=TOPIC_RESOURCE,
                    resource_name=name,
                    configuration_keys=list(LIMITS),
                )
                for name in by_name
            ]
        )
        cluster = self._cluster
        try:
            response = await cluster.request(request, timeout=CONFIG_SECONDS)
        except KafkaError as error:
            logger.info("limits of topics are not known: topics=%s error=%s", len(topics), error)
            return False
        if cluster is not self._cluster:
            return False
        for one in response.results:
            topic = by_name.get(one.resource_name)
            if topic is not None and one.error_code == 0:
                _set_limits(topic, one)
        return True

    async def _refresh_limits(self) -> None:
        loop = asyncio.get_running_loop()
        at, retry = loop.time() + REFRESH_SECONDS, RETRY_SECONDS[1]
        while True:
            every = True
            try:
                async with asyncio.timeout(min(at - loop.time(), TOO_LONG_SECONDS)):
                    await self._limits_wanted.wait()
                retry = RETRY_SECONDS[1]
            except TimeoutError:
                every = loop.time() >= at
            self._limits_wanted.clear()
            outgrown = self._outgrown()
            topics = list(self.topics.values() if every else outgrown)
            answered = True
            for start in range(0, len(topics), NAMES):
                answered = await self._learn_limits(topics[start : start + NAMES])
                if not answered:
                    break
            if answered:  # else these topics are requested again
                for topic, too_long in outgrown.items():
                    topic.too_long = too_long
            for topic in topics:
                if not topic.gone:
                    self._pool.configure(topic.slot, **self._limits(topic))
            if every and answered:
                at, retry = loop.time() + REFRESH_SECONDS, RETRY_SECONDS[1]
            elif every:
                at = loop.time() + retry
                retry = min(2 * retry, REFRESH_SECONDS)

    def _outgrown(self) -> dict[TopicState, int]:
        """Return the topics whose limit may have been raised: they had messages above it.

        Each has the number of its messages that were too long until now.
        """
        counts = self._pool.counts(topics=True).topics
        return {
            topic: counts[slot].too_long
            for slot, topic in self.topics.items()
            if topic.max_batch_bytes is not None
            and slot in counts
            and counts[slot].too_long > topic.too_long
        }

    def _limits(self, topic: TopicState) -> dict[str, int]:
        """Return the limits of a topic as arguments for the pool."""
        rules = topic.rules
        sizes = [self._max_message_bytes]
        if rules.max_message_bytes is not None:
            sizes.append(rules.max_message_bytes)
        if topic.max_batch_bytes is not None and rules.compression.type == "none":
            # Not with compression: a compressed batch may fit although its message is larger.
            sizes.append(topic.max_batch_bytes - BATCH_OVERHEAD)
        # A limit that is smaller than the overhead of a message leaves nothing for the message.
        limits = {"max_message_bytes": max(0, min(sizes)), **_batching(rules)}
        if rules.rate_limit is not None:
            limits["rate_interval_ms"] = rules.rate_limit.interval_ms
            limits["rate_max_messages"] = rules.rate_limit.max_messages
        return limits


def _batching(rules: TopicRules) -> dict[str, int]:
    batching = rules.batching
    if batching.mode != "per_topic":
        return {}
    limits = {}
    if batching.messages is not None:
        limits["batch_messages"] = batching.messages
    if batching.bytes is not None:
        limits["batch_bytes"] = batching.bytes
    if batching.time_ms is not None:
        limits["batch_ms"] = batching.time_ms
    return limits


def _set_limits(topic: TopicState, result: DescribeConfigsResult) -> None:
    values = {config.name: config.value for config in result.configs}
    topic.max_batch_bytes = _number(values.get(LIMITS[0]))
    topic.earliest_ms = _limit(_number(values.get(LIMITS[1])))
    topic.latest_ms = _limit(_number(values.get(LIMITS[2])))


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() else None


def _limit(milliseconds: int | None) -> int | None:
    return None if milliseconds is None or milliseconds >= NO_LIMIT_MS else milliseconds
