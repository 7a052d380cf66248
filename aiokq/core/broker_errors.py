"""Exception classes of Kafka's error codes, created from the table in codes.py on first use.

A process uses few of the 133 classes, and a broker that created all of them would start 2.5% more
slowly. Type checkers read broker_errors.pyi. The class of code 7, RequestTimeout, is in errors.py,
because a client raises RequestTimeout for its own deadlines too.
"""

from __future__ import annotations

from aiokq.core.codes import ERROR_CODES
from aiokq.core.error_base import BrokerError, code_attributes

_ROWS = {row.class_name: row for row in ERROR_CODES if row.code != 7}

__all__ = sorted(_ROWS)


def __getattr__(name: str) -> type[BrokerError]:
    row = _ROWS.get(name)
    if row is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    doc = f"{row.name} ({row.code}): {row.message}"
    made = type(
        name, (BrokerError,), {"__doc__": doc, "__module__": __name__, **code_attributes(row)}
    )
    # Another thread may have created the class meanwhile; all threads must use the same class.
    found: type[BrokerError] = globals().setdefault(name, made)
    return found
