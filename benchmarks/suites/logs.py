"""The suite `log`: appends, fetches, recovery, start with many logs, compaction.

Apache Kafka is measured in the same run, in turns, if it is installed.
"""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.report import Section
from benchmarks.suites.log_compaction import compaction
from benchmarks.suites.log_load import load
from benchmarks.suites.log_recovery import recovery
from benchmarks.suites.log_start import start
from benchmarks.suites.targets import targets_section


def logs(megabytes: int | None, rounds: int, progress: Callable[[str], None]) -> list[Section]:
    """Measure appends, fetches, recovery, start-up and compaction; compare with the targets."""
    loaded, targets = load(megabytes, rounds, progress)
    recovered, more = recovery(rounds, progress)
    targets += more
    started, more = start(rounds, progress)
    targets += more
    compacted = compaction(rounds, progress)
    return [targets_section(targets), *loaded, recovered, started, compacted]
