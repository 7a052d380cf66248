"""`check`: reads a history and returns a report. The rules are in the modules `*_checks`."""

from __future__ import annotations

import gc
from collections.abc import Iterable
from os import PathLike

from aiokq.testing.flow_checks import check_circles, check_copies, check_group_offsets
from aiokq.testing.history import Operation
from aiokq.testing.history_format import read_history
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
    """Check what clients saw of a Kafka cluster; time and memory are linear in the history.

    ::

        report = aiokq.testing.check("history.jsonl")
        assert report.ok, report

    Args:
        history: the path of a file in the JSON-lines format, or operations. Operations of one
            consumer are in the order of its calls; apart from that, their order does not matter.

    Raises:
        HistoryError: the file has a line that is not an operation.
    """
    if isinstance(history, str | PathLike):
        history = read_history(history)
    # Millions of tuples without cycles: the garbage collector would visit them again and again.
    enabled = gc.isenabled()
    gc.disable()
    try:
        index = HistoryIndex(history)
        found = [anomaly for rule in CHECKS for anomaly in rule(index)]
    finally:
        if enabled:
            gc.enable()
    return Report(index.operations, tuple(found))
