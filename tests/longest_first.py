"""Order of the files in `--dist loadfile`: the longest begin first, so that none is left alone.

pytest-xdist begins with the files that have the most tests. The longest files have few tests, and
one process would work on the last of them while the others have nothing to do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from xdist.scheduler import LoadScopeScheduling

if TYPE_CHECKING:
    from xdist.workermanage import WorkerController

APART = {
    "tests/fault/test_fuzz.py": 30,
    "tests/fault/test_hostile_connections.py": 20,
    "tests/fault/test_misuse.py": 25,
    "tests/interop/apache/test_storage.py": 20,
    "tests/interop/test_quotas.py": 45,
}
"""Files whose tests share little, so that each test may run in any process; seconds of a test."""

SECONDS = {
    "tests/examples/test_examples.py": 60,
    "tests/examples/test_guides.py": 70,
    "tests/fault/test_command_kills.py": 20,
    "tests/fault/test_gateway_hostile.py": 30,
    "tests/fault/test_gateway_process.py": 40,
    "tests/fault/test_gateway_reload.py": 60,
    "tests/fault/test_gateway_reports.py": 60,
    "tests/fault/test_gateway_spool.py": 60,
    "tests/fault/test_gateway_torture.py": 30,
    "tests/fault/test_process_kills.py": 30,
    "tests/fault/test_process_suspended.py": 25,
    "tests/interop/apache/test_directories.py": 40,
    "tests/interop/apache/test_earlier_releases.py": 50,
    "tests/interop/apache/test_gateway_points.py": 60,
    "tests/interop/apache/test_producer_id_rotation.py": 60,
    "tests/interop/apache/test_rounds.py": 50,
    "tests/interop/apache/test_sasl.py": 40,
    "tests/interop/apache/test_secured_properties.py": 40,
    "tests/interop/apache/test_security.py": 30,
    "tests/interop/apache/test_transactions.py": 60,
    "tests/interop/test_groups_broker.py": 40,
    "tests/interop/test_sasl_on_broker.py": 80,
    "tests/interop/test_tls_on_broker.py": 60,
    **APART,
}
"""About how many seconds the longest files take in CI; the others take `OTHERS`."""
OTHERS = 10
SHORT = 20
"""Seconds of a unit above which the process gets the shortest unit, not the longest, behind it."""


class LongestFirst(LoadScopeScheduling):
    """Gives each process the longest unit that is left: a file, or a test of a file in `APART`."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.split("::", 1)[0]
        return nodeid if file in APART else file

    def _assign_work_unit(self, node: WorkerController) -> None:
        """Choose a unit for a process.

        A process always has a test behind the one that it runs: a short one behind a long one.
        """
        units = self.assigned_work.get(node, {})
        pending = [unit for unit, tests in units.items() if not all(tests.values())]
        choose = min if any(seconds_of(unit) > SHORT for unit in pending) else max
        self.workqueue.move_to_end(choose(self.workqueue, key=seconds_of), last=False)
        super()._assign_work_unit(node)


def seconds_of(unit: str) -> int:
    """Return about how long a file takes, or a test by its id."""
    return SECONDS.get(unit.split("::", 1)[0], OTHERS)
