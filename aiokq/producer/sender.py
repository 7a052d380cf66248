"""Sender: sends Produce requests to one broker; several requests may be in flight.

There is one Sender per broker, and no Sender waits for another. A request has at most one batch per
partition, and at most max_request_size bytes of batches. A batch above this limit is sent alone.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, cast

from aiokq.cluster.metadata import BrokerInfo
from aiokq.cluster.reducer_inputs import LeaderHint
from aiokq.connection.node import Purpose
from aiokq.core.errors import (
    ConnectionLost,
    KafkaError,
    ProtocolError,
    UnsupportedCompressionType,
    UnsupportedVersion,
    copy_error,
    error_for,
)
from aiokq.core.named_tuple import NamedTuple
from aiokq.fastpath.produce import produce_body
from aiokq.producer.produce_exchange import FIRST_ENCODED, EncodedProduce, ProduceAnswers
from aiokq.records.compression import ZSTD
from aiokq.wire.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

if TYPE_CHECKING:
    from uuid import UUID

    from aiokq.connection.connection import Connection
    from aiokq.connection.node import Node
    from aiokq.fastpath.produce import QueuedBatch
    from aiokq.producer.internal_errors import InternalErrors
    from aiokq.producer.partition_queue import PartitionQueue
    from aiokq.wire.fields import Fragment

__all__ = ["Sender", "SenderOwner", "SenderTransactions"]

logger = logging.getLogger("aiokq.producer")

FIRST_WITH_BATCHES_V2 = 3
FIRST_WITH_ZSTD = 7
FIRST_WITH_TOPIC_IDS = 13


class SenderOwner(Protocol):
    """The methods of the SenderPool that its senders call."""

    def now(self) -> float:
        """Return the monotonic time in seconds."""
        ...

    def topic_id(self, topic: str) -> UUID:
        """Return the topic's id; zero if the cluster has no topic ids, or the topic is unknown."""
        ...

    def codec(self, topic: str) -> int:
        """Return the codec id of a topic's batches."""
        ...

    def launched(self, queued: QueuedBatch, attempt: int) -> memoryview:
        """Return the bytes of a batch for an attempt, with its sequence numbers.

        The `on_batch` hooks of the interceptors are called first.
        """
        ...

    def answered(
        self, queued: QueuedBatch, attempt: int, base_offset: int, log_append_time_ms: int
    ) -> None:
        """Process the delivery of a batch."""

    def refused(
        self,
        queued: QueuedBatch,
        attempt: int,
        error: KafkaError,
        bad_records: dict[int, str | None] | None = None,
        hint: LeaderHint | None = None,
    ) -> None:
        """Process a failed attempt to send a batch.

        Args:
            error: the error of the batch in the response, or the error of the whole request.
            bad_records: the messages for the records that the broker refused, by index.
            hint: the leader that the response names; None if no leader is named.
        """

    def unreachable(self, queues: list[PartitionQueue], error: KafkaError) -> None:
        """Process the failure to connect to the broker that leads the partitions of `queues`."""


class SenderTransactions(Protocol):
    """The methods of a producer's transactions that its senders call."""

    @property
    def transactional_id(self) -> str:
        """The transactional id of the producer."""
        ...

    @property
    def newest_produce_version(self) -> int | None:
        """The newest version of Produce to use; None if every version may be used."""
        ...

    def batch_refused(self) -> None:
        """Record that an attempt to send a batch failed."""

    def request_answered(self) -> None:
        """Process the end of a Produce request, after its batches were processed."""


_Launched: TypeAlias = "tuple[QueuedBatch, int]"
"""A batch in a request, and the number of this attempt."""


class _InFlight(NamedTuple):
    launched: list[_Launched]
    names: Mapping[str | bytes, str]
    """Topic names by the bytes of the topic id; empty if the request names its topics."""


class Sender:
    """Takes batches from the offered partition queues, and sends the batches to one broker.

    Args:
        node: the node of the broker.
        owner: the pool of senders.
        internal_errors: logs an unexpected exception, and fails the batches concerned.
        acks: the `acks` field of the requests: 0, 1 or -1.
        max_in_flight: largest number of requests in flight.
        max_request_size: largest size of all batches in a request, in bytes; a single batch may be
            larger.
        timeout: seconds within which the broker has to answer a request.
        spawn: starts a task that belongs to the producer.
        transactions: the transactions of the producer; None if it has no transactional id. With
            transactions, the sender has a connection of its own, because a broker may delay a
            Produce request until it has verified the transaction with the coordinator.
    """

    def __init__(
        self,
        node: Node,
        owner: SenderOwner,
        internal_errors: InternalErrors,
        *,
        acks: int,
        max_in_flight: int,
        max_request_size: int,
        timeout: float,
        spawn: Callable[[Coroutine[Any, Any, None], str], object],
        transactions: SenderTransactions | None = None,
    ) -> None:
        self._transactions = transactions
        self._dedicated = None if transactions is None else node.dedicated("transactions")
        self.node = node
        self._owner = owner
        self._internal_errors = internal_errors
        self._acks = acks
        self._max_in_flight = max_in_flight
        self._max_request_size = max_request_size
        self._timeout = timeout
        self._ready: OrderedDict[PartitionQueue, None] = OrderedDict()
        """The offered queues, in the order in which they are served.

        Each sender has its own set: a queue whose leader changes is offered to another sender while
        this sender, which may be busy connecting, still has the queue.
        """
        self._waiting_since: float | None = None
        """Monotonic seconds at which the wait of queues began; each request restarts the wait.

        None if no queue waits.
        """
        self._in_flight = 0
        self._ended = False
        """Whether `run` has ended. Then this sender ignores the responses for batches in flight."""
        self._spawn = spawn
        self._connecting = False
        self._silence: asyncio.TimerHandle | None = None
        self._woken = asyncio.Event()

    def offer(self, queue: PartitionQueue) -> None:
        """Add the queue of a partition that this broker leads; the queue may have a ready batch."""
        if queue not in self._ready:
            if self._waiting_since is None:
                self._waiting_since = self._owner.now()
            self._ready[queue] = None
            if self._in_flight < self._max_in_flight:
                self._woken.set()

    def stalled(self, now: float) -> float:
        """Return the seconds that batches have waited since the last request; 0 if none waits."""
        return 0.0 if self._waiting_since is None else now - self._waiting_since

    async def run(self) -> None:
        """Send batches until the task is cancelled; a failed request does not end the task."""
        try:
            await self._run()
        finally:
            self._ended = True
            if self._silence is not None:
                self._silence.cancel()
            if self._dedicated is not None:
                self._dedicated.shut("the producer was closed")
                self.node.release(self._dedicated)

    def send_now(self) -> None:
        """Send the batches of the offered queues now, not in the loop's next iteration.

        With acks=0, or if there is no open connection, `run` sends them.
        """
        if self._acks and not self._ended and self._may_send():
            connection = self._connection()
            if connection is not None:
                self._send(connection)
                connection.push()

    async def _run(self) -> None:
        woken = self._woken
        while True:
            await woken.wait()
            woken.clear()
            if not self._may_send():
                continue
            connection = self._connection()
            if connection is None:
                if not self._connecting:
                    self._connecting = True
                    # Connect in another task, because the queues may get another leader meanwhile.
                    self._spawn(self._connect(), f"connect to node {self.node.node_id}")
            elif self._acks:
                self._send(connection)
                connection.push()  # no need to wait: this turn of the loop adds no other request
            else:
                await self._send_and_forget(connection)

    def _may_send(self) -> bool:
        """Return whether queues are offered, and another request may be sent."""
        return bool(self._ready) and self._in_flight < self._max_in_flight and not self._throttled()

    def _connection(self) -> Connection | None:
        """Return the open connection for Produce requests; None if there is none."""
        if self._dedicated is None:
            return self.node.connected(Purpose.PRODUCE)
        connection = self._dedicated.current
        return None if connection is None or connection.retiring else connection

    async def _connect(self) -> None:
        """Try to connect once; the node waits for its backoff first."""
        try:
            if self._dedicated is None:
                await self.node.connection(Purpose.PRODUCE)
            else:
                await self._dedicated.get()
        except KafkaError as error:
            self._unreachable(error)
        except Exception as error:  # noqa: BLE001  logged by report()
            self._unreachable(self._internal_errors.report("connecting", error))
        finally:
            self._connecting = False
            self._woken.set()

    def _unreachable(self, error: KafkaError) -> None:
        queues = [queue for queue in self._ready if queue.leader == self.node.node_id]
        self._ready.clear()
        self._waiting_since = None
        self._owner.unreachable(queues, error)

    def _throttled(self) -> bool:
        """Return whether the broker throttles this client (KIP-219).

        If so, a timer sets `_woken` when the throttling ends.
        """
        loop = asyncio.get_running_loop()
        silence = self.node.throttle_until - loop.time()
        if silence <= 0:
            return False
        if self._silence is None:  # at most one timer
            self._silence = loop.call_later(silence, self._silence_over)
        return True

    def _silence_over(self) -> None:
        self._silence = None
        self._woken.set()

    def _send(self, connection: Connection) -> None:
        """Send requests until no batch is ready, max_in_flight is reached or `connection` ends."""
        while self._ready and self._in_flight < self._max_in_flight and not connection.closed:
            made = self._next_request(connection)
            if made is None:
                return
            in_flight, request, version = made
            try:
                future = connection.send(
                    request,
                    timeout=self._timeout,
                    version=version,
                    at_once=not self._ready,  # the last request of this call
                )
            except Exception as error:  # noqa: BLE001  see `_not_sent`
                self._not_sent(in_flight, error)
                continue
            self._in_flight += 1
            future.add_done_callback(partial(self._arrived, in_flight))

    def _next_request(self, connection: Connection) -> tuple[_InFlight, ProduceRequest, int] | None:
        """Launch the next batches; return their request and its version, or None if none is ready.

        Batches that cannot be part of a request fail.
        """
        try:
            version = self._version(connection)
        except UnsupportedVersion as error:
            self._fail_ready(error)
            return None
        while launched := self._launch(version):
            in_flight, request, usable = self._request(launched, version)
            if in_flight.launched:
                return in_flight, request, usable
        return None

    def _not_sent(self, in_flight: _InFlight, error: Exception) -> None:
        """Process the failure to send a request."""
        if not isinstance(error, KafkaError):
            self._all_broke(in_flight, "request", error)  # logged by fail_batch()
            return
        self._all_refused(in_flight, error)
        if isinstance(error, ConnectionLost):
            # The connection was closed between two requests. Wake `run`, which uses another
            # connection.
            self._woken.set()

    # Hot path, once per request; measured by benchmarks/micro/producer.py.
    def _launch(self, version: int) -> list[_Launched]:
        """Launch the next batches of the ready queues, one per queue, until a request is full."""
        now = self._owner.now()
        node_id = self.node.node_id
        ready = self._ready
        launched: list[_Launched] = []
        size = 0
        for _ in range(len(ready)):
            queue = next(iter(ready))
            try:
                queued = queue.peek(now) if queue.leader == node_id else None
                if queued is not None and version < FIRST_WITH_ZSTD and self._zstd(queue, version):
                    queued = None
            except Exception as error:  # noqa: BLE001  logged by fail_queue()
                self._internal_errors.fail_queue(queue, "peek", error)
                queued = None
            if queued is None:
                del ready[queue]
                continue
            size += queued.size
            if size > self._max_request_size and launched:
                break
            # Launch the batch before `peek` is called for the next queue, because that call may
            # discard the producer id, and then this batch could not be numbered.
            try:
                attempt = queue.launch(queued, node_id)
            except Exception as error:  # noqa: BLE001  logged by fail_batch()
                self._internal_errors.fail_batch(queued, "launch", error)
                size -= queued.size
                del ready[queue]  # the queue is offered again if it has more batches
                continue
            launched.append((queued, attempt))
            if queue.all_sent:
                del ready[queue]  # the queue is offered again when it has another batch
            else:
                ready.move_to_end(queue)  # its next batch goes into the next request
        self._waiting_since = now if ready else None
        return launched

    def _version(self, connection: Connection) -> int:
        version = connection.version_for(ProduceRequest)
        if self._transactions is not None:
            newest = self._transactions.newest_produce_version
            if newest is not None:
                version = min(version, newest)
        if version < FIRST_WITH_BATCHES_V2:
            raise UnsupportedVersion(
                "the broker is older than 0.11 and does not support record batches of version 2: "
                "upgrade the broker, because aiokq does not write older formats",
                api="Produce",
                node=self.node.node_id,
            )
        return version

    def _zstd(self, queue: PartitionQueue, version: int) -> bool:
        """If the topic's codec is zstd, fail the unsent batches of the queue and return True.

        Called only if the broker's `version` of Produce does not support zstd.
        """
        if self._owner.codec(queue.topic) != ZSTD:
            return False
        queue.fail_unsent(
            UnsupportedCompressionType(
                f"zstd needs Produce version {FIRST_WITH_ZSTD}, the broker has {version} (older "
                "than 2.1): choose another compression_type",
                node=self.node.node_id,
            )
        )
        return True

    # Hot path, once per request; measured by benchmarks/micro/producer.py.
    def _request(
        self, launched: list[_Launched], version: int
    ) -> tuple[_InFlight, ProduceRequest, int]:
        owner = self._owner
        ids: dict[str, UUID] = {}
        has_ids = version >= FIRST_WITH_TOPIC_IDS
        topics: dict[str, list[tuple[int, memoryview]]] = {}
        sent: list[_Launched] = []
        for each in launched:
            queued, attempt = each
            queue = queued.queue
            batches = topics.get(queue.topic)
            try:
                records = owner.launched(queued, attempt)
                if batches is None:
                    topic_id = ids[queue.topic] = owner.topic_id(queue.topic)
                    has_ids = has_ids and topic_id.int != 0  # `UUID.__eq__` takes longer
                    batches = topics[queue.topic] = []
            except Exception as error:  # noqa: BLE001  logged by fail_batch()
                self._internal_errors.fail_batch(queued, "launch", error)
                continue
            sent.append(each)
            batches.append((queue.partition, records))
        names: dict[str | bytes, str] = {}
        if has_ids:
            names = {topic_id.bytes: topic for topic, topic_id in ids.items()}
        elif version >= FIRST_WITH_TOPIC_IDS:  # a topic is unknown, or the brokers have no ids
            version = FIRST_WITH_TOPIC_IDS - 1
        transactions = self._transactions
        transactional_id = None if transactions is None else transactions.transactional_id
        timeout_ms = int(self._timeout * 1000)
        in_flight = _InFlight(sent, names)
        if version >= FIRST_ENCODED:
            body = produce_body(
                version,
                transactional_id,
                self._acks,
                timeout_ms,
                [(topic, ids[topic].bytes, batches) for topic, batches in topics.items()],
            )
            if body is not None:
                return in_flight, EncodedProduce(cast("list[Fragment]", body)), version
        request = ProduceRequest(
            transactional_id=transactional_id,
            acks=self._acks,
            timeout_ms=timeout_ms,
            topic_data=[
                TopicProduceData(
                    name=topic,
                    topic_id=ids[topic],
                    partition_data=[
                        PartitionProduceData(index=index, records=records)
                        for index, records in batches
                    ],
                )
                for topic, batches in topics.items()
            ],
        )
        return in_flight, request, version

    async def _send_and_forget(self, connection: Connection) -> None:
        """Send with acks=0: a batch counts as delivered once it is written to the connection.

        At that time, up to 1 MiB of the connection's output may be unsent.
        """
        while not connection.closed and (made := self._next_request(connection)) is not None:
            in_flight, request, version = made
            try:
                connection.send_no_reply(request, version=version)
                await self._written(connection)
            except Exception as error:  # noqa: BLE001  see `_not_sent`
                self._not_sent(in_flight, error)
                continue
            for queued, attempt in in_flight.launched:
                self._owner.answered(queued, attempt, -1, -1)

    async def _written(self, connection: Connection) -> None:
        """Wait while more than 1 MiB of the connection's output is unsent.

        Raises:
            ConnectionLost: the connection ended, or the broker read nothing within the timeout.
        """
        try:
            async with asyncio.timeout(self._timeout):
                await connection.drain()
        except TimeoutError:
            # The connection expects no response, so it does not notice that the broker hangs.
            lost = ConnectionLost(
                f"closed: {self.node.name} read nothing for {self._timeout:g} s",
                api="Produce",
                node=self.node.node_id,
            )
            connection.abort(lost)
            raise lost from None

    def _arrived(self, in_flight: _InFlight, future: asyncio.Future[ProduceResponse]) -> None:
        """Process the response to a request, or its failure."""
        self._in_flight -= 1
        if self._ended:
            return
        if self._ready:
            self._woken.set()
        if future.cancelled():
            error: BaseException | None = ConnectionLost("the request was abandoned")
        else:
            error = future.exception()
        if error is None:
            self._take(in_flight, future.result())
        elif isinstance(error, KafkaError):
            self._all_refused(in_flight, error)
        elif isinstance(error, Exception):
            self._all_broke(in_flight, "answer", error)
        else:
            raise error
        if self._transactions is not None:
            self._transactions.request_answered()

    def _take(self, in_flight: _InFlight, response: ProduceResponse | ProduceAnswers) -> None:
        if isinstance(response, ProduceAnswers):
            self._take_answers(in_flight, response)
            return
        answers: dict[tuple[str, int], PartitionProduceResponse] = {}
        for topic in response.responses:
            name = topic.name or in_flight.names.get(topic.topic_id.bytes, "")
            for partition in topic.partition_responses:
                answers[name, partition.index] = partition
        for queued, attempt in in_flight.launched:
            queue = queued.queue
            answer = answers.get((queue.topic, queue.partition))
            try:
                if answer is None:
                    self._owner.refused(queued, attempt, self._no_answer(queue))
                elif answer.error_code == 0:
                    self._owner.answered(
                        queued, attempt, answer.base_offset, answer.log_append_time_ms
                    )
                else:
                    self._take_error(queued, attempt, answer, response)
            except Exception as bug:  # noqa: BLE001  logged by fail_batch()
                self._internal_errors.fail_batch(queued, "answer", bug)

    # Hot path, once per request; measured by benchmarks/micro/producer.py.
    def _take_answers(self, in_flight: _InFlight, response: ProduceAnswers) -> None:
        """Process a response in which every batch was appended."""
        owner, names = self._owner, in_flight.names
        answers = {
            (names.get(topic, topic), index): (base_offset, log_append_time_ms)
            for topic, index, base_offset, log_append_time_ms in response.answers
        }
        for queued, attempt in in_flight.launched:
            queue = queued.queue
            answer = answers.get((queue.topic, queue.partition))
            try:
                if answer is None:
                    owner.refused(queued, attempt, self._no_answer(queue))
                else:
                    owner.answered(queued, attempt, *answer)
            except Exception as bug:  # noqa: BLE001  logged by fail_batch()
                self._internal_errors.fail_batch(queued, "answer", bug)

    def _no_answer(self, queue: PartitionQueue) -> ProtocolError:
        return ProtocolError(
            f"the broker's response does not mention {queue.topic}-{queue.partition}",
            api="Produce",
            node=self.node.node_id,
            may_have_been_written=True,
        )

    def _take_error(
        self,
        queued: QueuedBatch,
        attempt: int,
        answer: PartitionProduceResponse,
        response: ProduceResponse,
    ) -> None:
        error = error_for(
            answer.error_code, answer.error_message, api="Produce", node=self.node.node_id
        )
        bad_records = {
            record.batch_index: record.batch_index_error_message or answer.error_message
            for record in answer.record_errors
        }
        hint = None
        leader = answer.current_leader
        if leader is not None and leader.leader_id >= 0:
            broker = next(
                (
                    BrokerInfo(node.node_id, node.host, node.port, node.rack)
                    for node in response.node_endpoints
                    if node.node_id == leader.leader_id
                ),
                None,
            )
            hint = LeaderHint(leader.leader_id, leader.leader_epoch, broker)
        # DUPLICATE_SEQUENCE_NUMBER: the batch is in the log, at an offset that is not known.
        if answer.error_code == 46:
            self._owner.answered(queued, attempt, -1, -1)
        else:
            self._owner.refused(queued, attempt, error, bad_records, hint)

    def _all_refused(self, in_flight: _InFlight, error: KafkaError) -> None:
        for queued, attempt in in_flight.launched:
            try:
                self._owner.refused(queued, attempt, copy_error(error))
            except Exception as bug:  # noqa: BLE001  logged by fail_batch()
                self._internal_errors.fail_batch(queued, "answer", bug)

    def _all_broke(self, in_flight: _InFlight, where: str, error: Exception) -> None:
        for queued, _ in in_flight.launched:
            self._internal_errors.fail_batch(queued, where, error)

    def _fail_ready(self, error: KafkaError) -> None:
        """Fail the unsent batches of the offered queues of this broker, which is too old."""
        while self._ready:
            queue, _ = self._ready.popitem(last=False)
            if queue.leader == self.node.node_id:
                queue.fail_unsent(error)
