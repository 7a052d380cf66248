"""Exception classes of Kafka's error codes, made from the table in codes.py on first use.

A process uses few of the 133 classes, and creating all of them would lengthen a broker's start by a
fortieth. Type checkers read broker_errors.pyi. RequestTimeout (7) is in errors.py, because a client
raises it for its own deadline too.
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
