"""`Lane`: the messages of one topic in the engine `producer`, in pieces that are sent together.

Tests: tests/unit/gateway/test_producer_engine.py.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aiokq.gateway.engine import TopicState
    from aiokq.gateway.load import Load

__all__ = ["Lane", "Piece"]


class Piece:
    """Rows of a `Load` that are sent together.

    Attributes:
        rows: the indexes of the rows, in order.
        number: position of the piece in the order in which the topic's pieces arrived. Parts of a
            piece that are sent again keep its number.
        restamped: whether the timestamps are replaced, because the topic refused them.
        alone: whether each record is sent in a batch of its own.
        attempts: number of times that the rows were sent.
    """

    __slots__ = ("alone", "attempts", "load", "number", "restamped", "rows")

    def __init__(self, load: Load, rows: Sequence[int], number: int, attempts: int = 0) -> None:
        self.load = load
        self.rows = rows
        self.number = number
        self.restamped = False
        self.alone = False
        self.attempts = attempts


class Lane:
    """The messages of one topic in the engine.

    Attributes:
        compression: the compression of the pieces in flight, which determines their producer.
        queue: pieces to send, in order.
        failed: pieces that failed, in any order. When nothing is in flight, they are put before
            `queue`, in the order of their arrival.
        appending: the piece that is being passed to a producer, which may wait for metadata.
        in_flight: pieces that a producer has, without an outcome.
        sent: number of messages in flight.
        pauses: whether to wait before the pieces that failed are sent again.
        running: whether a task serves the lane.
        woken: set when the task has to check the lane again.
    """

    __slots__ = (
        "appending",
        "compression",
        "failed",
        "in_flight",
        "pauses",
        "queue",
        "running",
        "sent",
        "topic",
        "woken",
    )

    def __init__(self, topic: TopicState) -> None:
        self.topic = topic
        self.compression = topic.rules.compression
        self.queue: deque[Piece] = deque()
        self.failed: list[Piece] = []
        self.appending: Piece | None = None
        self.in_flight: dict[Piece, None] = {}
        self.sent = 0
        self.pauses = False
        self.running = False
        self.woken = asyncio.Event()

    @property
    def waiting(self) -> int:
        """Number of messages that are not in flight."""
        return sum(len(piece.rows) for piece in self._not_sent())

    def _not_sent(self) -> list[Piece]:
        appending = () if self.appending is None else (self.appending,)
        return [*appending, *self.failed, *self.queue]

    def take_failed(self) -> list[Piece]:
        """Remove and return the pieces that failed, in the order of their arrival."""
        failed = sorted(self.failed, key=lambda piece: (piece.number, piece.rows[0]))
        self.failed = []
        return failed

    def take_waiting(self) -> list[Piece]:
        """Remove and return the pieces that are neither in flight nor being appended, in order."""
        pieces = [*self.take_failed(), *self.queue]
        self.queue = deque()
        return pieces

    def take_all(self) -> list[Piece]:
        """Remove and return all pieces without an outcome."""
        pieces = [*self.in_flight, *self._not_sent()]
        self.appending, self.in_flight, self.sent = None, {}, 0
        self.failed, self.queue = [], deque()
        return pieces
