"""Topics, partitions and offsets that users give, validated and converted.

Shared by consumers and by the transactions of producers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TypeVar

from aiokq.core import limits
from aiokq.core.errors import ConfigError, InvalidTopic
from aiokq.core.types import OffsetAndMetadata, TopicPartition

__all__ = ["checked_offsets", "checked_partition", "checked_topic"]

_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_ADDRESS = re.compile(r"\[?[\w.:-]+\]?:\d+")

P = TypeVar("P", bound=tuple[str, int])


def checked_topic(name: str) -> str:
    """Return `name` if it is valid for a topic.

    Raises:
        ConfigError: `name` is an address.
        InvalidTopic: `name` is not valid.
        TypeError: `name` is not a str.
    """
    if not isinstance(name, str):
        raise TypeError(f"a topic must be a str, not {name!r}")
    if _TOPIC.fullmatch(name) is None or name in (".", ".."):
        if _ADDRESS.fullmatch(name) is not None:
            raise ConfigError(
                f"{name!r} is an address, not a topic: "
                f"Consumer('topic', bootstrap_servers={name!r})"
            )
        raise InvalidTopic(
            f"{name!r} cannot be a topic's name: 1 to 249 letters, digits, '.', '_' and '-'; "
            "for a regular expression use subscribe(pattern=...) or a TopicFilter",
            topic_partition=name,
        )
    return name


def checked_partition(tp: tuple[str, int]) -> TopicPartition:
    """Return a (topic, number) tuple as a TopicPartition.

    Raises:
        TypeError: `tp` is not a (topic, number) tuple.
        ValueError: the number is out of range.
        ConfigError: the topic is an address.
        InvalidTopic: the topic's name is not valid.
    """
    if (
        not isinstance(tp, tuple)
        or len(tp) != 2
        or not isinstance(tp[1], int)
        or isinstance(tp[1], bool)
    ):
        raise TypeError(
            f"a partition must be a (topic, number) tuple or a TopicPartition, not {tp!r}; "
            "assign(), beginning_offsets() and end_offsets() take a list of partitions, the "
            "other methods one or several"
        )
    topic = checked_topic(tp[0])
    return TopicPartition(topic, limits.partition(tp[1], f"partition of {topic!r}"))


def checked_offsets(
    offsets: Mapping[P, int | OffsetAndMetadata],
) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return the offsets that a user gave, validated and converted.

    Raises:
        TypeError: a key is not a partition, or a value is not an offset.
        ConfigError: an offset or a leader epoch is out of range.
        ConfigError, InvalidTopic, ValueError: see `checked_partition`.
    """
    checked = {}
    for partition, offset in offsets.items():
        tp = checked_partition(partition)
        wanted = OffsetAndMetadata(offset) if isinstance(offset, int) else offset
        if not isinstance(wanted, OffsetAndMetadata) or isinstance(offset, bool):
            raise TypeError(f"an offset must be an int or an OffsetAndMetadata, not {offset!r}")
        limits.offset(wanted.offset, f"offset of {tp}", error=ConfigError)
        if wanted.leader_epoch is not None:
            limits.count(wanted.leader_epoch, f"leader_epoch of {tp}", -1, error=ConfigError)
        checked[tp] = wanted
    return checked
