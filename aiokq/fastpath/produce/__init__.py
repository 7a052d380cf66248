"""The unit for sending records: from Accumulator.append to the outcome of a Delivery."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiokq.fastpath import COMPILED
from aiokq.fastpath.loading import load

if TYPE_CHECKING:
    from aiokq.fastpath.produce.accumulator import Accumulator
    from aiokq.fastpath.produce.accumulator import RecordTuple as RecordTuple
    from aiokq.fastpath.produce.batch import Batch, Slot
    from aiokq.fastpath.produce.batch import PlainRecord as PlainRecord
    from aiokq.fastpath.produce.batch import SlotOwner as SlotOwner
    from aiokq.fastpath.produce.building import build_batch
    from aiokq.fastpath.produce.columns import RecordColumns
    from aiokq.fastpath.produce.deliveries import Deliveries, Delivery, RecordMetadata
    from aiokq.fastpath.produce.messages import Answer as Answer
    from aiokq.fastpath.produce.messages import produce_body, read_answers
    from aiokq.fastpath.produce.outgoing import HandlerResults, Outgoing
    from aiokq.fastpath.produce.queues import QueuedBatch, SendQueue, SendWindow
    from aiokq.fastpath.produce.routes import Route
else:
    globals().update(load("produce", COMPILED))

__all__ = [
    "Accumulator",
    "Batch",
    "Deliveries",
    "Delivery",
    "HandlerResults",
    "Outgoing",
    "QueuedBatch",
    "RecordColumns",
    "RecordMetadata",
    "Route",
    "SendQueue",
    "SendWindow",
    "Slot",
    "build_batch",
    "produce_body",
    "read_answers",
]
