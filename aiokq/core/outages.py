"""Logs a failure when it begins, once a minute while it lasts, and when it ends.

The callers (nodes, metadata, producers, consumers and groups) report failures and their ends.
Tests: tests/unit/core/test_outages.py, tests/sim/test_outage_log.py.
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
"""Seconds after which a failure that did not recur is forgotten, without a line about its end.

Pauses between retries are shorter. An operation that has not failed for this long is therefore no
longer retried.
"""


def cause_of(error: KafkaError) -> str:
    """Return the cause of a failure: Kafka's name of the error code, or the error's class name."""
    return error.name if isinstance(error, BrokerError) else type(error).__name__


class _Run:
    """The consecutive failures of one operation at one place with one cause.

    All times are in seconds on a monotonic clock.

    Attributes:
        what, where: operation and place, the first words of the log lines.
        began: time of the first failure.
        latest: time of the latest failure.
        due: while the failure lasts, the time of the next line; afterwards, the time at which the
            run is forgotten.
        lines: times of the latest lines.
        times: number of failures.
        records: number of lost records; 0 if the operation loses none.
        lasting: whether the latest attempt failed. If not, the run is over and kept until `due`.
        told: whether the latest line reports a failure and not its end. The end of the failure is
            logged only if `told` is True.
        members: failed members, such as partitions. The run is over when all have recovered.
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
        """Record the run's first failure, or its first failure after a success.

        Returns:
            False if no line may be logged, because `BURST` lines were logged in the last `EVERY`
            seconds.
        """
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
    """The lasting failures of one client, and their log lines.

    A place is the object of an operation, such as a node, a group or a topic. For each cause of
    failures at a place, one line is logged when the cause begins, one a minute while it lasts, and
    one when it is over. If four lines about a cause were logged within the last minute, no line is
    logged when the cause recurs. Lines are warnings, or errors if records are lost. The last line
    is a warning too, so that a log of warnings shows that the failure is over. Failures that follow
    from an unreachable broker are logged at DEBUG.

    Args:
        now: returns seconds on a monotonic clock.
        logger: logger of the lines.
    """

    def __init__(self, now: Callable[[], float], logger: logging.Logger) -> None:
        self._now = now
        self._logger = logger
        self._runs: dict[tuple[str, Hashable], dict[str, _Run]] = {}
        self._unreachable: dict[int | str, _Run] = {}
        """Current and recent runs of unreachable nodes, by the node's name and by its address."""
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
        """Record a failure of an operation that will be retried.

        Args:
            what: the operation that failed; the lines begin with this text.
            key: the place of the failure, as passed to `ended`.
            where: names and values that show the place in the log lines. All lines of a lasting
                failure show the names and values of its first failure.
            member: the partition or similar item that failed, as passed to `recovered`; None if
                the operation does not concern one item.
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
        """Report that a batch has failed for good, so that its records are lost.

        Args:
            what: the operation that failed; the lines begin with this text.
            partition: the partition of the records, as passed to `recovered` after a success.
            records: number of records.
        """
        where = {"partition": partition}
        self._note(what, None, cause_of(error), error, where, partition, records, logging.ERROR)

    def unreachable(
        self, name: int | str, address: str, error: KafkaError, *, retry_in: float
    ) -> None:
        """Record a failed connection attempt, or the loss of a connection.

        Args:
            name: node id, or the address if the id is not known, as in `KafkaError.node`.
            retry_in: seconds until the next connection attempt.
        """
        where = {"node": name} if name == address else {"node": name, "address": address}
        what, other = "node unreachable", "node refuses"
        if not error.retriable:
            what, other = other, what
        # A node either is unreachable or refuses connections, never both.
        self._runs.pop((other, address), None)
        cause = "unreachable" if error.retriable else cause_of(error)
        run = self._note(what, address, cause, error, where, None, 0, logging.WARNING)
        self._unreachable[name] = self._unreachable[address] = run
        text = "node failed: node=%s retry_in=%.3fs error=%s"
        self._write(logging.DEBUG, text, name, retry_in, error)

    def reached(self, address: str) -> bool:
        """Record a response of the node at `address`.

        Returns:
            Whether a line about the end of an outage was logged.
        """
        lost = self.ended("node unreachable", address)
        return self.ended("node refuses", address) or lost

    def moved(self, address: str, to: str) -> None:
        """Move the outages of a node to its new address."""
        for what in ("node unreachable", "node refuses"):
            runs = self._runs.pop((what, address), None)
            if runs is not None:
                self._runs[what, to] = runs

    def ended(self, what: str, key: Hashable) -> bool:
        """Record a success of the operation `what` at a place.

        Returns:
            Whether a line about the end of a failure was logged.
        """
        runs = self._runs.get((what, key))
        if not runs:
            return False
        told = False
        for run in runs.values():
            told = self._end(run) or told
        return told

    @property
    def troubled(self) -> bool:
        """Whether there is an outage that `recovered` could end."""
        return bool(self._memberships)

    def recovered(self, what: str, member: Hashable) -> None:
        """Record a success for `member`. Does nothing if no failure of `member` is known."""
        for run in self._memberships.pop((what, member), ()):
            run.members.pop(member, None)
            if not run.members:
                self._end(run)

    def explains(self, error: BaseException | None) -> bool:
        """Return whether an error follows from unreachable nodes, which are already logged."""
        if not isinstance(error, KafkaError):
            return False
        failures = getattr(error, "failures", None)  # set by NoAnswer: one error per node tried
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
        # The error names no node, so any unreachable node may be its cause. A node that does not
        # answer is already reported as unreachable, because a request to it is overdue.
        return bool(self._unreachable)

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
        """Forget ended runs whose `due` has passed.

        Also forget lasting runs whose latest failure is more than `FORGOTTEN_AFTER` seconds old.
        """
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
