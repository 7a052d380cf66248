"""The unit for reading records: from fetched bytes to records or columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiokq.fastpath import COMPILED
from aiokq.fastpath.loading import load

if TYPE_CHECKING:
    from aiokq.fastpath.consume.columns import COLUMN_NAMES, Columns
    from aiokq.fastpath.consume.cursor import Codecs as Codecs
    from aiokq.fastpath.consume.cursor import Cursor, Record
    from aiokq.fastpath.consume.stream import CursorSource as CursorSource
    from aiokq.fastpath.consume.stream import RecordStream
else:
    globals().update(load("consume", COMPILED))

__all__ = ["COLUMN_NAMES", "Columns", "Cursor", "Record", "RecordStream"]
