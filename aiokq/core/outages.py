"""Owns what is logged of trouble that lasts: its beginning, one line a minute, and its end.

What is trouble, and when it is over, its owners know: nodes, the metadata, producers, consumers,
groups. Tests: tests/unit/core/test_outages.py, tests/sim/test_outage_log.py.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Hashable, Mapping
from typing import Final

from aiokq.core.error_base import BrokerError, KafkaError
from aiokq.core.errors import ConnectionLost, RequestTimeout
from aiokq.core.log_lines import BURST, EVERY, log_line

__all__ = ["Outages", "cause_of"]

FORGOTTEN_AFTER: Final = 600.0
"""Seconds without another failure after which nobody waits for the end of it: what it concerned
is not tried any more. Pauses between tries are shorter."""


def cause_of(error: KafkaError) -> str:
    """What makes two failures the same: Kafka's name of the error, or that of its class."""
    return error.name if isinstance(error, BrokerError) else type(error).__name__


class _Run:
    """One cause at one place, from its first failure on.

    Attributes:
        what, where: how its lines begin.
        began: when.
        latest: when it failed last.
        due: when it is told again if it still lasts; where it is over, when it is forgotten.
        lines: when the last ones were written.
        times: failures so far.
        records: that were concerned, where failures count them.
        lasting: it failed last; else it is over, and remembered until `due`.
        told: the last line says that it lasts.
        members: what it concerns, as partitions; it is over when none is left.
    """

    __slots__ = (
        "began",
        "due",
        "error",
        "lasting",
        "latest",
        "level",
        "lines",
        "members",
        "records",
        "times",
        "told",
        "what",
        "where",
    )

    def __init__(self, what: str, where: str, level: int, now: float, error: KafkaError) -> None:
        self.what = what
        self.where = where
        self.level = level
        self.began = now
        self.latest = now
        self.due = now + EVERY
        self.error = error
        self.times = 0
        self.records = 0
        self.lasting = False
        self.told = False
        self.lines: deque[float] = deque(maxlen=BURST)
        self.members: dict[Hashable, None] = {}

    def begin(self, now: float) -> bool:
        """It failed, and had not just before. Returns whether that is to be told."""
        self.lasting = True
        if len(self.lines) == BURST and now - self.lines[0] < EVERY:
            return False
        self.began = now
        self.due = now + EVERY
        self.times = self.records = 0
        return True

    def is_old(self, now: float) -> bool:
        return now >= (self.latest + FORGOTTEN_AFTER if self.lasting else self.due)


class Outages:
    """The troubles of one client, and their lines in the log.

    A cause at a place is one line when it appears, one a minute while it lasts, and one when it is
    over. One that comes and goes is four lines a minute at most; the times in between are counted.
    All of it is logged as warnings, the end as well: who reads warnings only shall know that it is
    over. What merely follows from a broker that cannot be reached is for DEBUG.

    Args:
        now: seconds; any clock that goes on.
        logger: where the lines go.
    """

    def __init__(self, now: Callable[[], float], logger: logging.Logger) -> None:
        self._now = now
        self._logger = logger
        self._runs: dict[tuple[str, Hashable], dict[str, _Run]] = {}
        self._unreachable: dict[int | str, _Run] = {}
        """By name and by address of the node that cannot be used, or could not just now."""
        self._memberships: dict[tuple[str, Hashable], dict[_Run, None]] = {}

    def failed(
        self,
        what: str,
        key: Hashable,
        error: KafkaError,
        *,
        where: Mapping[str, object],
        member: Hashable = None,
    ) -> None:
        """Something failed that will be tried again.

        Args:
            what: in a word or two; the lines begin with it.
            key: the place; `ended` is told it.
            where: the place in words, for the first line: names and values.
            member: what it failed for, if others may fail for the same cause; `recovered` is told.
        """
        now = self._now()
        self._unreachable = {n: r for n, r in self._unreachable.items() if not r.is_old(now)}
        if self.explains(error):
            self._write(logging.DEBUG, "%s: %serror=%s", what, _words(where), error)
            return
        self._note(what, key, cause_of(error), error, where, member, 0, logging.WARNING)

    def lost(
        self,
        what: str,
        partition: Hashable,
        error: KafkaError,
        *,
        records: int,
    ) -> None:
        """Records failed for good: an error in the log, whatever the cause of it is.

        Args:
            partition: theirs; `recovered` is told when others are delivered to it.
            records: how many.
        """
        where = {"partition": partition}
        self._note(what, None, cause_of(error), error, where, partition, records, logging.ERROR)

    def unreachable(
        self, name: int | str, address: str, error: KafkaError, *, retry_in: float
    ) -> None:
        """A node cannot be connected to, or its connection was lost.

        Args:
            name: its id, or its address where the id is not known; as in the `node` of errors.
        """
        where = {"node": name} if name == address else {"node": name, "address": address}
        what, other = "node unreachable", "node refuses"
        if not error.retriable:
            what, other = other, what
        self._runs.pop((other, address), None)  # its state is another now
        cause = "unreachable" if error.retriable else cause_of(error)
        run = self._note(what, address, cause, error, where, None, 0, logging.WARNING)
        self._unreachable[name] = self._unreachable[address] = run
        text = "node failed: node=%s retry_in=%.3fs error=%s"
        self._write(logging.DEBUG, text, name, retry_in, error)

    def reached(self, address: str) -> bool:
        """A node answers. Returns whether it had been told that it does not."""
        lost = self.ended("node unreachable", address)
        return self.ended("node refuses", address) or lost

    def moved(self, address: str, to: str) -> None:
        """A node has another address now: what lasts there goes on here."""
        for what in ("node unreachable", "node refuses"):
            runs = self._runs.pop((what, address), None)
            if runs is not None:
                self._runs[what, to] = runs

    def ended(self, what: str, key: Hashable) -> bool:
        """All is well at a place again. Returns whether a line was written."""
        runs = self._runs.get((what, key))
        if not runs:
            return False
        told = False
        for run in runs.values():
            told = self._end(run) or told
        return told

    @property
    def troubled(self) -> bool:
        """Whether anything that `recovered` could be told of fails."""
        return bool(self._memberships)

    def recovered(self, what: str, member: Hashable) -> None:
        """What it failed for succeeded. Harmless if nothing is known of it."""
        for run in self._memberships.pop((what, member), ()):
            run.members.pop(member, None)
            if not run.members:
                self._end(run)

    def explains(self, error: BaseException | None) -> bool:
        """Whether an error only follows from nodes that cannot be used, which is told already."""
        if not isinstance(error, KafkaError):
            return False
        failures = getattr(error, "failures", None)  # of a NoAnswer: one per node that was asked
        if isinstance(failures, dict):
            return any(map(self.explains, failures.values())) and all(
                map(_is_of_connection, failures.values())
            )
        of_connection = _is_of_connection(error)
        if error.node is not None:
            told = self._unreachable.get(error.node)
            return told is not None and (of_connection or type(error) is type(told.error))
        if not of_connection:
            return False
        if isinstance(error.__cause__, KafkaError):
            return self.explains(error.__cause__)
        # Somebody waited in vain, nobody knows for whom. A node that does not answer is told of
        # as soon as a request to it is overdue.
        return bool(self._unreachable)

    # -- inside

    def _note(
        self,
        what: str,
        key: Hashable,
        cause: str,
        error: KafkaError,
        where: Mapping[str, object],
        member: Hashable,
        records: int,
        level: int,
    ) -> _Run:
        now = self._now()
        causes = self._runs.setdefault((what, key), {})
        run = causes.get(cause)
        if run is None or run.is_old(now):
            self._forget_old(now)
            causes = self._runs.setdefault((what, key), {})
            run = causes[cause] = _Run(what, _words(where), level, now, error)
        run.latest = now
        run.error = error
        begins = not run.lasting and run.begin(now)
        run.times += 1
        run.records += records
        if member is not None and member not in run.members:
            run.members[member] = None
            self._memberships.setdefault((what, member), {})[run] = None
        if begins:
            self._log(run, "")
        elif now >= run.due:
            run.due += EVERY * ((now - run.due) // EVERY + 1)
            self._log(run, ", still", f"lasts={now - run.began:.0f}s {_counts(run)}")
        return run

    def _end(self, run: _Run) -> bool:
        if not run.lasting:
            return False
        run.lasting = False
        if not run.told:
            return False
        now = self._now()
        run.due = now + EVERY
        self._log(run, ", over", f"lasted={now - run.began:.0f}s {_counts(run)}")
        return True

    def _log(self, run: _Run, stage: str, counts: str = "") -> None:
        run.told = run.lasting
        run.lines.append(self._now())
        self._write(
            run.level if run.lasting else logging.WARNING,
            "%s%s: %s%scause=%s%s",
            run.what,
            stage,
            run.where,
            counts,
            cause_of(run.error),
            f" error={run.error}" if run.lasting else "",
        )

    def _write(self, level: int, text: str, *args: object) -> None:
        log_line(self._logger, level, text, *args)

    def _forget_old(self, now: float) -> None:
        """Runs that ended a while ago, and those that nobody tries any more."""
        for place, runs in list(self._runs.items()):
            for cause, run in list(runs.items()):
                if run.is_old(now):
                    del runs[cause]
                    for member in run.members:
                        self._memberships.get((run.what, member), {}).pop(run, None)
            if not runs:
                del self._runs[place]
        self._memberships = {key: runs for key, runs in self._memberships.items() if runs}


def _is_of_connection(error: BaseException) -> bool:
    return isinstance(error, ConnectionLost) or (
        isinstance(error, RequestTimeout) and error.origin == "client"
    )


def _words(where: Mapping[str, object]) -> str:
    return "".join(f"{name}={value} " for name, value in where.items())


def _counts(run: _Run) -> str:
    text = f"times={run.times} "
    if run.records:
        text += f"records={run.records} "
    if len(run.members) > 1:
        text += f"partitions={len(run.members)} "
    return text
