"""`check`: checks a history and returns a report. The rules are in the modules `*_checks`."""

from __future__ import annotations

import gc
from collections.abc import Iterable
from os import PathLike

from aiokq.testing.copy_checks import check_copies
from aiokq.testing.flow_checks import check_circles, check_group_offsets
from aiokq.testing.history import Operation
from aiokq.testing.history_format import HistoryError, read_history
from aiokq.testing.history_index import HistoryIndex
from aiokq.testing.order_checks import (
    check_last_stable,
    check_polls,
    check_rebalances,
    check_send_order,
)
from aiokq.testing.record_checks import (
    check_duplicates,
    check_missing,
    check_offsets_of_records,
    check_visibility,
)
from aiokq.testing.report import Report

__all__ = ["check"]

CHECKS = (
    check_missing,
    check_duplicates,
    check_offsets_of_records,
    check_visibility,
    check_polls,
    check_rebalances,
    check_send_order,
    check_last_stable,
    check_circles,
    check_group_offsets,
    check_copies,
)


def check(history: str | PathLike[str] | Iterable[Operation]) -> Report:
    """Check a history for anomalies.

    Time and memory grow about linearly with the length of the history.

    ::

        report = aiokq.testing.check("history.jsonl")
        assert report.ok, report

    Args:
        history: operations, or the path of a file with operations as JSON lines. The operations of
            each consumer must be in the order of its calls; no other order is required.

    Raises:
        HistoryError: the file has a line that is not an operation, or two committed records of a
            topic have the same value.
        OSError: the file cannot be read.
    """
    if isinstance(history, str | PathLike):
        history = read_history(history)
    # A history may have millions of tuples, which form no reference cycles. The garbage collector
    # would visit them again and again.
    enabled = gc.isenabled()
    gc.disable()
    try:
        index = HistoryIndex(history)
        _refuse_repeated_values(index)
        found = [anomaly for rule in CHECKS for anomaly in rule(index)]
    finally:
        if enabled:
            gc.enable()
    return Report(index.operations, tuple(found))


def _refuse_repeated_values(index: HistoryIndex) -> None:
    """Raise HistoryError if two committed records of a topic have the same value.

    Output topics of copiers are left out, because `check_copies` reports such records.
    """
    outputs = {copy.output for copy in index.copies}
    for topic, values in index.attempts.items():
        if topic in outputs:
            continue
        for value, attempts in values.items():
            if len(attempts) < 2:
                continue
            times = sum(index.was_committed(attempt) for attempt in attempts)
            if times > 1:
                raise HistoryError(
                    f"{topic}: {value[:100]!r} was sent {times} times; values identify records, so "
                    "that each is sent to a topic once, and again only after an attempt that was "
                    "aborted, failed or has an unknown outcome. Make values unique, or add a copy "
                    "operation if the topic is the output of a copier"
                )
