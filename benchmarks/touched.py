"""Touching of free memory before a measurement needs it.

A virtual machine returns free memory to its host within seconds. The first access to such memory
then costs ten times as much as a later write, and would count for the first measurement.
"""

from __future__ import annotations

import mmap
from typing import Final

_SPARE: Final = 256 << 20
"""Bytes to touch beyond those requested. The system does not reuse the memory first that was freed
last: if only 32 MB were touched, the page cache would get none of them once it has grown by a GB,
and a broker that writes would use three times the CPU time.
"""


def touch(size: int) -> None:
    """Make the system hold about `size` bytes of free memory that need not come from the host."""
    if hasattr(mmap, "MAP_POPULATE"):
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE
        mmap.mmap(-1, size + _SPARE, flags=flags).close()
