"""The resident memory of a process, from /proc.

`resource.getrusage` does not serve for the peak: a process that another one starts begins with the
peak of the one that started it.
"""

from __future__ import annotations

from pathlib import Path

__all__ = ["peak_bytes", "resident_bytes"]


def resident_bytes(pid: int | str = "self") -> int:
    """Return the resident memory."""
    return _read(pid, "VmRSS")


def peak_bytes(pid: int | str = "self") -> int:
    """Return the largest resident memory so far."""
    return _read(pid, "VmHWM")


def _read(pid: int | str, name: str) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    (line,) = (line for line in lines if line.startswith(f"{name}:"))
    return int(line.split()[1]) * 1024
