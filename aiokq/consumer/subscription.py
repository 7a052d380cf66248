"""Subscription: the topics or partitions that a consumer reads."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import TypeAlias

from aiokq.cluster.partition_arguments import checked_partition, checked_topic
from aiokq.core.errors import ConfigError
from aiokq.core.types import TopicFilter, TopicPartition

__all__ = ["Mode", "Partition", "Subscription"]

Partition: TypeAlias = TopicPartition | tuple[str, int]
"""A partition in the form in which users pass it to methods."""


class Mode(Enum):
    """The kind of a subscription."""

    NOTHING = "no topics"
    TOPICS = "topics by name, with all their partitions"
    PATTERN = "topics that match a pattern, with all their partitions"
    REGEX = (
        "topics that match a regular expression evaluated by the broker, with all their partitions"
    )
    PARTITIONS = "partitions given to assign()"


class Subscription:
    """The subscription of one consumer; subscribe() and assign() exclude each other.

    A pattern has to match the complete name of a topic, as in Java.

    Attributes:
        names: the topics subscribed to by name.
        regex: an expression that the broker evaluates, or None.
        partitions: the partitions passed to assign(), or added one by one to a subscription, in the
            order in which they were added.
    """

    def __init__(self) -> None:
        self.mode = Mode.NOTHING
        self.names: frozenset[str] = frozenset()
        self.regex: str | None = None
        self.partitions: Mapping[TopicPartition, None] = {}
        self._include: re.Pattern[str] | None = None
        self._exclude: re.Pattern[str] | None = None

    def subscribe(
        self,
        topics: Iterable[str | TopicFilter] | str | TopicFilter | re.Pattern[str] | None,
        pattern: str | re.Pattern[str] | None,
        regex: str | None = None,
    ) -> None:
        """Replace the subscription; see `Consumer.subscribe`."""
        if self.mode is Mode.PARTITIONS:
            raise ConfigError(
                "partitions are assigned, and subscribe() would replace them: "
                "call unsubscribe() first"
            )
        if isinstance(topics, re.Pattern):
            if pattern is not None:
                raise ConfigError("two patterns are given: subscribe to one of them")
            topics, pattern = None, topics
        if isinstance(topics, str | TopicFilter):
            topics = [topics]
        wanted = list(topics or ())
        for item in wanted:
            if isinstance(item, Mapping):
                raise ConfigError(
                    "a topic must be a str, not a dict; settings are keywords, with '_' in place "
                    "of '.': Consumer('orders', bootstrap_servers='host:port', "
                    "group_id='billing')"
                )
            if not isinstance(item, str | TopicFilter):
                raise TypeError(
                    f"a topic must be a str or a TopicFilter, not {item!r}; name several topics "
                    "as in Consumer('a', 'b') or subscribe(['a', 'b'])"
                )
        filters = [item for item in wanted if isinstance(item, TopicFilter)]
        names = frozenset(checked_topic(item) for item in wanted if isinstance(item, str))
        if regex is not None and (not isinstance(regex, str) or not regex):
            raise TypeError(f"regex must be a str, an expression in RE2's syntax, not {regex!r}")
        if bool(names) + len(filters) + (pattern is not None) + (regex is not None) != 1:
            raise ConfigError(
                "subscribe to topic names, to one TopicFilter, or to one pattern: an empty or "
                "mixed subscription is ambiguous (unsubscribe() ends a subscription)"
            )
        include = exclude = None
        if filters:
            include = _compiled(filters[0].include)
            if filters[0].exclude is not None:
                exclude = _compiled(filters[0].exclude)
        elif pattern is not None:
            include = _compiled(pattern)
        self.mode = Mode.TOPICS if names else Mode.PATTERN if regex is None else Mode.REGEX
        self.names, self._include, self._exclude = names, include, exclude
        self.regex = regex

    def add_topic(self, topic: str) -> None:
        """Subscribe to one more topic."""
        if self.mode not in (Mode.NOTHING, Mode.TOPICS):
            raise ConfigError(
                f"add_topic({topic!r}) extends a subscription to topic names, and this consumer "
                f"reads {self.mode.value}: call unsubscribe() first"
            )
        self.names |= {checked_topic(topic)}
        self.mode = Mode.TOPICS

    def add_partition(self, partition: Partition) -> None:
        """Read one more partition in addition to the subscription."""
        self.partitions = {**self.partitions, checked_partition(partition): None}

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions."""
        if self.topics_wanted:
            raise ConfigError(
                "topics are subscribed to, and assign() would replace them: "
                "call unsubscribe() first"
            )
        self.mode = Mode.PARTITIONS
        self.partitions = dict.fromkeys(partitions)

    def clear(self) -> None:
        """End the subscription."""
        self.mode = Mode.NOTHING
        self.names = frozenset()
        self.partitions = {}
        self.regex = self._include = self._exclude = None

    @property
    def topics_wanted(self) -> bool:
        """Whether topics are subscribed to, which in a group requires membership."""
        return self.mode in (Mode.TOPICS, Mode.PATTERN, Mode.REGEX)

    @property
    def empty(self) -> bool:
        """Whether nothing was subscribed to, assigned or added; `assign([])` is an assignment."""
        return self.mode is Mode.NOTHING and not self.partitions

    def wants(self, topic: str, *, internal: bool) -> bool:
        """Whether the topic is subscribed to by name or by a pattern that the client evaluates.

        Args:
            internal: whether the topic is internal and `exclude_internal_topics` is set.
        """
        if self.mode is Mode.TOPICS:
            return topic in self.names
        if self.mode is not Mode.PATTERN or internal or self._include is None:
            return False
        if self._include.fullmatch(topic) is None:
            return False
        return self._exclude is None or self._exclude.fullmatch(topic) is None


def _compiled(pattern: str | re.Pattern[str]) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as error:
        raise ConfigError(f"{pattern!r} is not a regular expression: {error}") from None
