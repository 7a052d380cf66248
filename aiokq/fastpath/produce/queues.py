"""The compiled part of a partition's queue: the operations that run once per batch.

    closed batches              QueuedBatch
    batches in flight           SendWindow
    the queue                   SendQueue, the base class of PartitionQueue

`producer/partition_queue.py` has what the queue does after errors, timeouts and leader changes.

Tests: tests/unit/producer/test_partition_queue.py.
"""

# Hot path, measured by benchmarks/micro/producer.py.

from __future__ import annotations

from collections import deque

try:
    from aiokq.fastpath import cython_names as cython
except ImportError:  # never raised: `import cython` is only for the Cython compiler
    import cython

if cython.compiled:
    from cython.cimports.aiokq.fastpath.native import AIOKQ_SOURCE_HASH

__all__ = ["QueuedBatch", "SendQueue", "SendWindow"]

_NEVER = float("inf")


# ---------------------------------------------------------------- closed batches


@cython.final
@cython.cclass
class QueuedBatch:
    """A closed batch and the state of its delivery.

    Attributes:
        queue: the PartitionQueue of the batch.
        batch: the batch of the accumulator, with its records and Deliveries.
        deadline: monotonic seconds at which the batch fails if it is not acknowledged.
        sealed: whether the batch is ready to be sent: it is compressed, or has no codec.
        sealing: whether the batch is being compressed outside of the event loop.
        size: size of the batch in bytes as it is sent; before `sealed`, the uncompressed size.
        codec: id of the codec that the batch is compressed with; 0 before `sealed`, and if the
            batch is sent uncompressed.
        stamp: producer id, epoch and first sequence number of the batch, or None. A batch that may
            have been written keeps its stamp.
        attempts: number of times that the batch was sent.
        in_flight: whether the response to the newest attempt is outstanding.
        node_id: id of the broker of the newest attempt.
        uncertain: whether an attempt without a known result may have written the batch.
        torn: whether the batch is a part of a split batch that may have been written before the
            split. A broker would refuse the part as out of order instead of recognizing a
            duplicate.
        expired: whether the batch has failed although it is in flight. The response still shows
            whether the batch's sequence numbers were used.
        done: whether the batch was removed from its queue, because it was delivered, has failed, or
            was replaced by its parts. An expired batch in flight is not done.
        error: error of the newest attempt that failed; None if no attempt has failed.
    """

    __slots__ = (
        "attempts",
        "batch",
        "codec",
        "deadline",
        "done",
        "error",
        "expired",
        "in_flight",
        "node_id",
        "queue",
        "sealed",
        "sealing",
        "size",
        "stamp",
        "torn",
        "uncertain",
    )

    def __init__(self, queue, batch, deadline):
        self.queue = queue
        self.batch = batch
        self.deadline = deadline
        self.sealed = False
        self.sealing = False
        self.size = batch.size
        self.codec = 0
        self.stamp = None
        self.attempts = 0
        self.in_flight = False
        self.node_id = -1
        self.uncertain = False
        self.torn = False
        self.expired = False
        self.done = False
        self.error = None


# ---------------------------------------------------------------- batches in flight


@cython.final
@cython.cclass
class SendWindow:
    """The batches of a partition, with a cursor between sent and unsent batches of a window.

    The batches before the cursor were sent in the current window. A refused batch ends the window:
    no batch is sent until every batch in flight is answered. After that, the next window begins at
    the first batch. This keeps the order, also when the leader changes.

    Attributes:
        batches: the batches that are in the queue, oldest first.
        in_flight: number of batches in flight.
    """

    __slots__ = ("_cursor", "_draining", "batches", "in_flight")

    def __init__(self):
        self.batches = deque()
        self.in_flight = 0
        self._cursor = 0
        self._draining = False

    @property
    def draining(self):
        """Whether sending has to wait until all batches in flight are answered."""
        return self._draining and self.in_flight > 0

    @property
    def next(self):
        """The first batch that was not sent in this window; None if all were sent."""
        return _next(self)

    def launched(self, queued):
        """Mark a batch as in flight.

        If the batch is `next`, `next` becomes the batch after it. Otherwise the window ends.
        """
        _launched(self, queued)

    def answered(self, queued):
        """Mark a batch as not in flight: it was answered, or its answer does not matter."""
        queued.in_flight = False
        self.in_flight -= 1

    def drain(self):
        """End the window: no batch is sent until every batch in flight is answered."""
        self._draining = True

    def restart_if_drained(self):
        """Begin a new window if the current window was ended and no batch is in flight."""
        if self._draining and not self.in_flight:
            self._draining = False
            self._cursor = 0

    def restart(self):
        """Begin again with the first batch; called when no batch is in flight."""
        self._cursor = 0

    def remove(self, queued):
        """Mark a batch as done and remove it."""
        _remove(self, queued)

    def replace(self, queued, parts):
        """Replace a batch with its parts, which were not sent yet."""
        place: cython.Py_ssize_t = self.batches.index(queued)
        _remove(self, queued)
        for part in reversed(parts):
            self.batches.insert(place, part)
        self._cursor = min(self._cursor, place)

    def clear(self):
        """Mark all batches as done and remove them; none of them counts as in flight."""
        for queued in self.batches:
            queued.done = True
        self.batches.clear()
        self._cursor = self.in_flight = 0


@cython.cfunc
def _next(window: SendWindow) -> object:
    return window.batches[window._cursor] if window._cursor < len(window.batches) else None


@cython.cfunc
def _launched(window: SendWindow, queued: QueuedBatch) -> object:
    queued.in_flight = True
    window.in_flight += 1
    cursor: cython.Py_ssize_t = window._cursor
    batches = window.batches
    if cursor < len(batches) and batches[cursor] is queued:
        window._cursor = cursor + 1
    else:
        window._draining = True  # a batch is sent out of order to learn whether it was written
    return None


@cython.cfunc
def _remove(window: SendWindow, queued: QueuedBatch) -> object:
    queued.done = True
    batches = window.batches
    if batches and batches[0] is queued:
        batches.popleft()
        if window._cursor:
            window._cursor -= 1
        return None
    for index, other in enumerate(batches):
        if other is queued:
            del batches[index]
            if index < window._cursor:
                window._cursor -= 1
            return None
    return None


# ---------------------------------------------------------------- the queue


@cython.cclass
class SendQueue:
    """The batches of one partition that have no outcome yet, in order; see `PartitionQueue`.

    Args:
        sequences: the sequence numbers of the partition; None without idempotence.
        gate: decides whether batches may be sent; None without transactions.

    Attributes:
        slot: the partition's slot in the accumulator; None until the accumulator has created it.
        leader: node id of the leader; -1 if there is none.
        retry_at: monotonic seconds before which no batch is sent.
        blocked_by: the last error that delays the partition's batches; None if there is none. An
            acknowledgement or a new leader clears the error.
        scheduled_at: monotonic seconds at which the timer calls `on_time`; infinite if no call is
            scheduled.
    """

    __slots__ = (
        "_backoff",
        "_delivery_timeout",
        "_gate",
        "_limits",
        "_linger",
        "_outcomes",
        "_owner",
        "_senders",
        "_single",
        "_window",
        "blocked_by",
        "leader",
        "leader_epoch",
        "partition",
        "retry_at",
        "scheduled_at",
        "sequences",
        "slot",
        "topic",
    )

    def __init__(
        self,
        topic,
        partition,
        owner,
        senders,
        outcomes,
        limits,
        backoff,
        sequences,
        gate=None,
    ):
        self.topic = topic
        self.partition = partition
        self.slot = None
        self.leader = -1
        self.leader_epoch = -1
        self.retry_at = 0.0
        self.blocked_by = None
        self.scheduled_at = _NEVER
        self.sequences = sequences
        self._gate = gate
        self._owner = owner
        self._senders = senders
        self._outcomes = outcomes
        self._limits = limits
        self._linger = limits.linger
        self._delivery_timeout = limits.delivery_timeout
        self._backoff = backoff
        self._window = SendWindow()
        self._single = sequences is None and limits.required_acks != 0 and limits.retries > 0

    @property
    def all_sent(self):
        """Whether each batch was sent in the current window and no batch is open."""
        slot = self.slot
        return (slot is None or slot.batch is None) and _next(self._window) is None

    def batch_opened(self, batch):
        """Register a new open batch; schedule the end of its linger, or its delivery timeout.

        If batches do not linger at present, the queue is offered to its sender immediately.
        """
        self._owner.opened(self, batch)
        if not self._linger or self._owner.hurried:
            self._senders.ready(self)
        # The timer is set even if the queue was offered to its sender, because the batch may still
        # be open when `hurried` becomes False.
        when: cython.double = batch.created + (self._linger or self._delivery_timeout)
        if when < self.scheduled_at:
            self._owner.schedule(self, when)

    def peek(self, now):
        """Return the sealed batch to send next; None if no batch may be sent now.

        The call may schedule the timer, close the open batch, start to seal a batch, renumber the
        batches, request a producer id, or request to add the partition to the transaction.
        """
        window: SendWindow = self._window
        in_flight: cython.Py_ssize_t = window.in_flight
        if self.leader < 0 or (in_flight and window._draining):
            return None
        if now < self.retry_at:
            # `reschedule` ignores a pause while the queue has no batch, so the timer is perhaps not
            # set for the end of the pause.
            self._owner.schedule(self, self.retry_at)
            return None
        if in_flight and in_flight >= self._limit():
            return None
        sequences = self.sequences
        if sequences is not None and sequences.broken:
            if in_flight:
                return None
            probe = self._resolve(sequences)
            if probe is not None:
                return probe if self._gate is None or self._gate.admits(self) else None
        queued: QueuedBatch = _next(window)
        if queued is None:
            slot = self.slot
            batch = None if slot is None else slot.batch
            if batch is None or not (self._owner.hurried or now >= batch.created + self._linger):
                return None
            queued = _append(self, self._take())
        if not queued.sealed and (queued.sealing or not self._owner.seal(queued)):
            return None
        if sequences is not None and queued.stamp is None and not sequences.identified:
            self._owner.producer_id_needed()
            return None
        if self._gate is not None and not self._gate.admits(self):
            return None
        return queued

    def launch(self, queued, node_id):
        """Mark the batch from `peek` as in flight; give it sequence numbers if it has none.

        Returns:
            The number of this attempt, from 1.
        """
        sent: QueuedBatch = queued
        if self.sequences is not None and sent.stamp is None:
            sent.stamp = self.sequences.stamp(sent.batch.count)
        sent.attempts += 1
        sent.node_id = node_id
        _launched(self._window, sent)
        return sent.attempts

    def answered(self, queued, attempt, base_offset, log_append_time_ms):
        """Complete an acknowledged batch; with acks=0, a batch that was written to a connection.

        The call ends a pause and clears `blocked_by`. A batch that has expired stays failed.
        `attempt` is ignored, because an acknowledgement of an earlier attempt, which may come after
        a leader change, counts as well.
        """
        sent: QueuedBatch = queued
        window: SendWindow = self._window
        if sent.done:
            return
        if sent.in_flight:
            sent.in_flight = False
            window.in_flight -= 1
        if self.sequences is not None and sent.stamp is not None:
            self.sequences.acknowledged(sent.stamp, sent.batch.count)
        _remove(window, sent)
        self._backoff.reset()
        self.retry_at = 0.0
        self.blocked_by = None
        if not sent.expired:
            self._outcomes.delivered(sent, base_offset, log_append_time_ms)
        window.restart_if_drained()

    def offer_if_ripe(self, now):
        """Offer the queue to its sender if a batch is ready and no pause prevents sending.

        A queue without a leader is offered even during a pause: nothing is sent, but the owner of
        the senders then looks for the leader.
        """
        if self.leader >= 0 and now < self.retry_at:
            return
        slot = self.slot
        batch = None if slot is None else slot.batch
        if _next(self._window) is not None or (
            batch is not None and (self._owner.hurried or now >= batch.created + self._linger)
        ):
            self._senders.ready(self)

    def _take(self):
        """Close the open batch, which must exist, and return it."""
        batch = self.slot.take_open()
        assert batch is not None
        return batch

    def _append(self, batch):
        """Add a closed batch at the end."""
        return _append(self, batch)


@cython.cfunc
def _append(queue: SendQueue, batch: object) -> QueuedBatch:
    queued = QueuedBatch(queue, batch, batch.created + queue._delivery_timeout)
    window: SendWindow = queue._window
    window.batches.append(queued)
    return queued


# ---------------------------------------------------------------- module initialization

if cython.compiled:
    SOURCE_HASH: str = AIOKQ_SOURCE_HASH.decode()
