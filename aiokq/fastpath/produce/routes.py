"""Route: the partitions of a topic, and the choice of a partition for records without a key.

Tests: tests/unit/fastpath/test_accumulator.py.
"""

# Hot path, measured by benchmarks/micro/core.py.

from __future__ import annotations

try:
    from aiokq.fastpath import cython_names as cython
except ImportError:  # never raised: `import cython` is only for the Cython compiler
    import cython

if cython.compiled:
    from cython.cimports.aiokq.fastpath.native import AIOKQ_SOURCE_HASH, HEADER_SIZE
    from cython.cimports.aiokq.fastpath.produce._accumulator import Accumulator
    from cython.cimports.aiokq.fastpath.produce._batch import Slot, report_bug
else:
    from aiokq.fastpath.produce.batch import Slot, report_bug
    from aiokq.fastpath.pure import HEADER_SIZE

__all__ = ["Route"]


if cython.compiled:
    # Imported from C: with literals this large, Cython would compute with Python ints.
    from cython.cimports.aiokq.fastpath.native import (
        AIOKQ_GOLDEN as _GOLDEN,
    )
    from cython.cimports.aiokq.fastpath.native import (
        AIOKQ_MIX_1 as _MIX_1,
    )
    from cython.cimports.aiokq.fastpath.native import (
        AIOKQ_MIX_2 as _MIX_2,
    )
else:
    _GOLDEN = 0x9E3779B97F4A7C15
    _MIX_1 = 0xBF58476D1CE4E5B9
    _MIX_2 = 0x94D049BB133111EB
    _MASK_64 = 2**64 - 1


@cython.final
@cython.cclass
class Route:
    """The partitions of one topic, and the batches that wait for its metadata.

    Attributes:
        topic: name of the topic.
        slots: one Slot per partition.
        partitions: number of partitions; 0 while the metadata is unknown.
        available: the partitions that have a leader.
        pending: batches of records that wait for the metadata, oldest first.
    """

    __slots__ = (
        "accumulator",
        "available",
        "cache",
        "partitions",
        "pending",
        "pending_slot",
        "slots",
        "sticky",
        "sticky_bytes",
        "topic",
    )

    def __init__(self, topic, accumulator):
        self.topic = topic
        self.accumulator = accumulator
        self.slots = []
        self.partitions = 0
        self.available = ()
        self.pending = []
        self.pending_slot = Slot(topic, -1, self)
        self.sticky = None
        self.sticky_bytes = 0
        self.cache = {}

    def batch_opened(self, batch):
        """Add to `pending` a batch whose records wait for the metadata."""
        self.pending.append(batch)

    def batch_full(self, batch):
        """Do nothing: the full batch waits for the metadata as well."""


@cython.cfunc
def next_sticky(accumulator: Accumulator, route: Route) -> Slot:
    """Choose the partition for the next batch_size bytes of records without a key (KIP-794)."""
    chosen: cython.Py_ssize_t = -1
    route.sticky_bytes = HEADER_SIZE
    if accumulator.choose is not None:
        try:
            chosen = accumulator.choose(route.topic)
        except Exception as error:  # noqa: BLE001  reported to the owner
            report_bug(accumulator, "choose", error)
    if 0 <= chosen < route.partitions:
        route.sticky = route.slots[chosen]
    elif route.available:
        route.sticky = route.slots[route.available[_below(accumulator, len(route.available))]]
    else:
        route.sticky = route.slots[_below(accumulator, route.partitions)]
    return route.sticky


@cython.cfunc
@cython.exceptval(check=False)
def _below(accumulator: Accumulator, limit: cython.uint) -> cython.uint:
    """Return a random number below `limit` (splitmix64, the same sequence in both cores)."""
    if cython.compiled:
        z: cython.ulonglong
        accumulator.random = accumulator.random + _GOLDEN
        z = accumulator.random
        z = (z ^ (z >> 30)) * _MIX_1
        z = (z ^ (z >> 27)) * _MIX_2
        z = z ^ (z >> 31)
        return cython.cast(cython.uint, ((z >> 32) * limit) >> 32)
    else:
        accumulator.random = accumulator.random + _GOLDEN & _MASK_64
        z = accumulator.random
        z = (z ^ z >> 30) * _MIX_1 & _MASK_64
        z = (z ^ z >> 27) * _MIX_2 & _MASK_64
        z ^= z >> 31
        return (z >> 32) * limit >> 32


# ---------------------------------------------------------------- module initialization

if cython.compiled:
    SOURCE_HASH: str = AIOKQ_SOURCE_HASH.decode()
