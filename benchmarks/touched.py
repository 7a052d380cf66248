"""Free memory that the system has touched before a measurement needs it.

A virtual machine returns free memory to its host within seconds, and the first touch of it then
costs ten times as much as writing to it: the first measurement would pay for all.
"""

from __future__ import annotations

import mmap
from typing import Final

_SPARE: Final = 256 << 20
"""Further bytes to touch, because the system does not reuse first what was freed last: if only 32
MB are touched, the page cache gets none of it once it has grown by a GB, and a broker that writes
uses three times the CPU time.
"""


def touch(size: int) -> None:
    """Make the system hold about `size` bytes of free memory that need not come from the host."""
    if hasattr(mmap, "MAP_POPULATE"):
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE
        mmap.mmap(-1, size + _SPARE, flags=flags).close()
