"""A round as a history for `aiokq.testing.check`.

The checker compares the sends of all producers, the records in the order in which each consumer was
handed them, and the log after the faults. It does not judge offsets of groups, because the history
lacks automatic commits, which no client reports. `checker.py` judges them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from aiokq.testing import Final, Isolation, Operation, Outcome, Poll, Polled, Report, Send
from aiokq.testing import check as check_history
from tests.fault.misuse.checker import Aftermath, Violation
from tests.fault.misuse.history import History, Sent, State, named

__all__ = ["CONDEMNED", "condemned", "judged"]

CONDEMNED = "condemned by aiokq.testing.check"


def condemned(history: History, after: Aftermath) -> list[Violation]:
    """Return a violation with the report if the checker condemns anything."""
    report = judged(history, after)
    return [] if report.ok else [Violation(CONDEMNED, str(report))]


def judged(history: History, after: Aftermath) -> Report:
    """Return the checker's report."""
    return check_history([*_sends(history, after), *history.read, *_log(after)])


def _sends(history: History, after: Aftermath) -> Iterator[Send]:
    """Yield the records of topics that still exist.

    A producer without idempotence may write a record at each of its attempts, so each further place
    of the record is one more attempt, whose outcome is unknown.
    """
    topics = {topic for topic, _ in after.log}
    places = Counter(value for records in after.log.values() for value in records.values())
    for number, sent in enumerate(history.sent.values()):
        if sent.topic not in topics:
            continue
        # Only records that were given one after the other, with idempotence, have an order to keep.
        in_order = sent.idempotent and sent.ordered
        process = sent.producer if in_order else f"{sent.producer}#{number}"
        outcome = _outcome(sent)
        acknowledged = outcome is Outcome.OK
        yield Send(
            process,
            sent.topic,
            named(sent.value),
            outcome,
            sent.partition if acknowledged and sent.partition >= 0 else None,
            sent.offset if acknowledged and sent.offset >= 0 else None,
            start=sent.offered_at,
            end=sent.outcome_at,
        )
        if not sent.idempotent:
            for _ in range(places[sent.value] - 1):
                yield Send(f"{process} again", sent.topic, named(sent.value), Outcome.UNKNOWN)


def _outcome(sent: Sent) -> Outcome:
    if sent.state is State.ACKNOWLEDGED and (sent.offset >= 0 or sent.idempotent):
        return Outcome.OK  # without an offset and without idempotence: acks=0
    never = sent.state is State.FAILED and sent.may_be_written is False
    return Outcome.FAILED if never or sent.state is State.REFUSED else Outcome.UNKNOWN


def _log(after: Aftermath) -> Iterator[Operation]:
    """Yield the whole log as a poll of each partition, and its ends; nobody has a transaction."""
    for (topic, partition), records in after.log.items():
        polled = [Polled(topic, partition, o, named(records[o])) for o in sorted(records)]
        yield Poll("the log", polled, Isolation.READ_COMMITTED)
        end = after.ends.get((topic, partition), 0)
        yield Final(topic, partition, 0, end, end)
