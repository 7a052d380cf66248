"""Owns what a consumer wants to read: topics by name or pattern, or partitions; no cluster."""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import Enum
from typing import Final, TypeAlias

from aiokq.core.errors import ConfigError, InvalidTopic
from aiokq.core.types import TopicFilter, TopicPartition

__all__ = ["Mode", "Partition", "Subscription", "checked_partition", "checked_topic"]

Partition: TypeAlias = TopicPartition | tuple[str, int]
"""A partition as arguments take it."""

_LAST_PARTITION: Final = 2**31 - 1

_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_ADDRESS = re.compile(r"\[?[\w.:-]+\]?:\d+")


class Mode(Enum):
    """How partitions come to a consumer."""

    NOTHING = "nothing is subscribed to"
    TOPICS = "all partitions of topics by name"
    PATTERN = "all partitions of topics that match"
    PARTITIONS = "partitions given to assign()"


class Subscription:
    """One at a time: subscribe() and assign() exclude each other.

    A pattern has to match a topic's whole name, as in Java.
    """

    def __init__(self) -> None:
        self.mode = Mode.NOTHING
        self.names: frozenset[str] = frozenset()
        self.partitions: tuple[TopicPartition, ...] = ()
        self._include: re.Pattern[str] | None = None
        self._exclude: re.Pattern[str] | None = None

    def subscribe(
        self,
        topics: Iterable[str | TopicFilter] | str | TopicFilter | re.Pattern[str] | None,
        pattern: str | re.Pattern[str] | None,
    ) -> None:
        """Replace the subscription.

        Raises:
            ConfigError: partitions are assigned; names and a pattern at once; no topic at all; an
                address instead of a topic; an expression that cannot be compiled.
            InvalidTopic: a name that cannot be a topic's.
        """
        if self.mode is Mode.PARTITIONS:
            raise ConfigError(
                "partitions are assigned, and subscribe() would replace them: "
                "call unsubscribe() first"
            )
        if isinstance(topics, re.Pattern):
            if pattern is not None:
                raise ConfigError("two patterns: subscribe to one")
            topics, pattern = None, topics
        if isinstance(topics, str | TopicFilter):
            topics = [topics]
        wanted = list(topics or ())
        for item in wanted:
            if not isinstance(item, str | TopicFilter):
                raise TypeError(
                    f"a topic is a str or a TopicFilter, not {item!r}; several go as "
                    "Consumer('a', 'b') or subscribe(['a', 'b'])"
                )
        filters = [item for item in wanted if isinstance(item, TopicFilter)]
        names = frozenset(checked_topic(item) for item in wanted if isinstance(item, str))
        if bool(names) + len(filters) + (pattern is not None) != 1:
            raise ConfigError(
                "subscribe to topic names, to one TopicFilter, or to one pattern: "
                "an empty or mixed subscription says nothing (unsubscribe() ends it)"
            )
        include = exclude = None
        if filters:
            include = _compiled(filters[0].include)
            if filters[0].exclude is not None:
                exclude = _compiled(filters[0].exclude)
        elif pattern is not None:
            include = _compiled(pattern)
        self.mode = Mode.TOPICS if names else Mode.PATTERN
        self.names, self._include, self._exclude = names, include, exclude

    def assign(self, partitions: Iterable[TopicPartition] = ()) -> None:
        """These partitions are given by hand.

        Raises:
            ConfigError: topics are subscribed to.
        """
        if self.mode in (Mode.TOPICS, Mode.PATTERN):
            raise ConfigError(
                "topics are subscribed to, and assign() would replace them: "
                "call unsubscribe() first"
            )
        self.mode = Mode.PARTITIONS
        self.partitions = tuple(partitions)

    def clear(self) -> None:
        """Nothing is wanted any more."""
        self.mode = Mode.NOTHING
        self.names = frozenset()
        self.partitions = ()
        self._include = self._exclude = None

    def wants(self, topic: str, *, internal: bool) -> bool:
        """Whether the topic is subscribed to.

        Args:
            internal: the topic is internal and those are left out of patterns.
        """
        if self.mode is Mode.TOPICS:
            return topic in self.names
        if self.mode is not Mode.PATTERN or internal or self._include is None:
            return False
        if self._include.fullmatch(topic) is None:
            return False
        return self._exclude is None or self._exclude.fullmatch(topic) is None


def checked_topic(name: str) -> str:
    """The name, if it can be a topic's.

    Raises:
        ConfigError: it is an address.
        InvalidTopic: it cannot be.
    """
    if not isinstance(name, str):
        raise TypeError(f"a topic is a str, not {name!r}")
    if _TOPIC.fullmatch(name) is None or name in (".", ".."):
        if _ADDRESS.fullmatch(name) is not None:
            raise ConfigError(
                f"{name!r} is an address, and a topic belongs here: "
                f"Consumer('topic', bootstrap_servers={name!r})"
            )
        raise InvalidTopic(
            f"{name!r} cannot be a topic's name: 1 to 249 letters, digits, '.', '_' and '-'; "
            "for a regular expression use subscribe(pattern=...) or a TopicFilter",
            topic_partition=name,
        )
    return name


def checked_partition(tp: Partition) -> TopicPartition:
    """The partition; any (topic, number) tuple is one.

    Raises:
        TypeError: it is none.
    """
    if (
        not isinstance(tp, tuple)
        or len(tp) != 2
        or not isinstance(tp[1], int)
        or isinstance(tp[1], bool)
        or not 0 <= tp[1] <= _LAST_PARTITION
    ):
        raise TypeError(
            f"a partition is a (topic, number) tuple or TopicPartition, not {tp!r}; assign(), "
            "beginning_offsets() and end_offsets() take a list of them, the others one or several"
        )
    return TopicPartition(checked_topic(tp[0]), tp[1])


def _compiled(pattern: str | re.Pattern[str]) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as error:
        raise ConfigError(f"{pattern!r} is no regular expression: {error}") from None
