"""Histories for `aiokq.testing.check`: what tests sent, what logs contain, and what queries read.

Spark's clients run in workers, whose calls nobody records. What they did is therefore taken from
the result: a query wrote the records of a log, and read the rows of its sink.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter

import aiokq
from aiokq.testing import (
    Copy,
    Final,
    Isolation,
    Operation,
    Outcome,
    Poll,
    Polled,
    Recorder,
    Send,
    check,
)
from tests.spark.logs import places
from tests.spark.streams import Row
from tests.spark.topics import Topics

__all__ = ["acknowledged", "assert_copied", "assert_read", "assert_sound", "assert_written"]


def assert_sound(history: Iterable[Operation]) -> None:
    """Fail with the report if the checker condemns anything."""
    report = check(history)
    assert report.ok, str(report)


def acknowledged(topic: str, values: Iterable[str]) -> Iterator[Send]:
    """Yield sends of rows that a finished query or export says to have written once."""
    for value in values:
        yield Send("writer", topic, value, Outcome.OK)


def assert_written(
    topics: Topics, topic: str, sends: Sequence[Send], *, at_least_once: bool = False
) -> None:
    """Judge the sends to a topic by what confluent-kafka reads from it as committed.

    Args:
        at_least_once: whether records may have been written again. Each further record of a value
            is then one more attempt whose outcome nobody knows.
    """
    history = [*sends, *_logged(topics, topic)]
    if at_least_once:
        found = Counter(r.value for each in history if isinstance(each, Poll) for r in each.records)
        for value, times in found.items():
            history += [Send("writer again", topic, value, Outcome.UNKNOWN)] * (times - 1)
    assert_sound(history)


def assert_copied(topics: Topics, source: str, target: str, sends: Sequence[Send]) -> None:
    """Judge whether `target` has exactly one committed copy of each record sent to `source`."""
    assert_sound([*sends, *_logged(topics, source), *_logged(topics, target), Copy(source, target)])


def assert_read(
    topics: Topics, topic: str, sends: Sequence[Send], rows: Iterable[Row], *, start: int = 0
) -> None:
    """Judge whether the rows of a query's sink are the records sent to a topic, each once.

    The rows count as polls of one consumer in the order of their offsets: a row that is there twice
    is a poll that goes back, and one that lacks is a lost write.

    Args:
        start: the offset of each partition at which the query began.
    """
    # The checker knows only this reader, so that no other reader excuses a row that lacks.
    finals = [each for each in _logged(topics, topic) if isinstance(each, Final)]
    wanted = [each for each in sends if each.offset is not None and each.offset >= start]
    assert wanted
    assert_sound([*wanted, *_polls("query", topic, sorted(rows)), *finals])


def _logged(topics: Topics, topic: str) -> list[Operation]:
    """Return the committed records of a topic as polls, and the ends of its partitions."""
    history: list[Operation] = list(
        _polls("reader", topic, places(topics, topic, "read_committed"))
    )
    recorder = Recorder()

    async def work(cluster: aiokq.Cluster) -> None:
        for partition in sorted((await cluster.refresh(topic)).topics[topic].partitions):
            await recorder.finish(cluster, topic, partition)

    topics.run(work)
    return history + recorder.history


def _polls(process: str, topic: str, rows: Iterable[Row]) -> Iterator[Poll]:
    for partition, found in groupby(rows, itemgetter(0)):
        records = [Polled(topic, partition, offset, value) for _, offset, value in found]
        yield Poll(process, records, Isolation.READ_COMMITTED)
