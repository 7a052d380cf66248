"""Exception classes of Kafka's error codes, made from the table in codes.py.

Type checkers read broker_errors.pyi. RequestTimeout (7) is in errors.py, because a client raises it
for its own deadline too.
"""

from __future__ import annotations

from aiokq.core.codes import ERROR_CODES, ErrorCode
from aiokq.core.error_base import BrokerError, code_attributes


def _error_class(row: ErrorCode) -> type[BrokerError]:
    doc = f"{row.name} ({row.code}): {row.message}"
    return type(
        row.class_name,
        (BrokerError,),
        {"__doc__": doc, "__module__": __name__, **code_attributes(row)},
    )


_CLASSES = {row.class_name: _error_class(row) for row in ERROR_CODES if row.code != 7}

globals().update(_CLASSES)
__all__ = sorted(_CLASSES)
