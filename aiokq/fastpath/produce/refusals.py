"""The errors for records that the accumulator does not accept. Performance does not matter here.

Tests: tests/unit/fastpath/test_accumulator.py.
"""

from __future__ import annotations

import re
import reprlib
from typing import TYPE_CHECKING, Final

from aiokq.core.errors import InvalidTopic, UnknownTopicOrPartition
from aiokq.core.types import TopicPartition

if TYPE_CHECKING:
    from aiokq.fastpath.produce.routes import Route

_TOPIC: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")


def bad_partition(partition: object) -> Exception:
    """Return the error for an explicit partition that no topic can have."""
    if not isinstance(partition, int) or isinstance(partition, bool):
        return TypeError(f"a partition is an int, not {type(partition).__name__}")
    return ValueError(f"partition {partition}: partitions are numbered from 0 to 2**31 - 1")


def no_partition(route: Route, partition: int) -> Exception:
    """Return the error for an explicit partition that the topic does not have."""
    return UnknownTopicOrPartition(
        f"topic {route.topic!r} has {route.partitions} partitions, numbered from 0",
        topic_partition=TopicPartition(route.topic, partition),
    )


def bad_timestamp(timestamp_ms: object) -> Exception:
    """Return the error for an explicit timestamp that no record can have."""
    if not isinstance(timestamp_ms, int) or isinstance(timestamp_ms, bool):
        return TypeError(f"timestamp_ms is an int, not {type(timestamp_ms).__name__}")
    return ValueError(
        f"timestamp_ms {timestamp_ms}: must be milliseconds since 1970, from 0 to 2**63 - 1"
    )


def bad_headers(headers: object) -> Exception:
    """Return the error for headers that are not an iterable of pairs."""
    return TypeError(
        f"headers are (name, value) pairs, as in [('name', b'value')], not {reprlib.repr(headers)}"
    )


def bad_record(n: int) -> Exception:
    """Return the error for an item of send_many() that is not a record."""
    return TypeError(
        f"record {n} is not a tuple of (key, value), (key, value, headers) or "
        "(key, value, headers, timestamp_ms)"
    )


def read_once(n: int) -> Exception:
    """Return the error for a record of send_many() whose headers are an iterator."""
    return TypeError(
        f"the headers of record {n} can be read only once, and send_many() reads them twice: pass "
        "a list"
    )


def check_topic(topic: object) -> None:
    """Raise an error if `topic` is not a valid topic name."""
    if not isinstance(topic, str):
        raise TypeError(f"a topic is str, not {type(topic).__name__}")
    if _TOPIC.fullmatch(topic) is None or topic in (".", ".."):
        if re.fullmatch(r"[^\s:]+:\d+", topic):
            raise InvalidTopic(
                f"{topic!r} is an address, not a topic: the first argument is the topic's name, "
                "addresses go to bootstrap_servers",
                topic_partition=topic,
            )
        raise InvalidTopic(
            f"{topic!r} is not a topic name: 1 to 249 of a-z A-Z 0-9 . _ -", topic_partition=topic
        )
