"""Fetch (1), versions 4-18, 0-3 with `legacy`: read record batches of partitions.

The partitions of the fetch session are read in turn. If they return fewer than `min_bytes` bytes
together, the request waits for records up to `max_wait_ms`. If a partition has an error or a
diverging epoch, the response is sent without a wait. A consumer beyond its quota gets an empty
response and keeps its session; the next request returns the records. Versions 0-3 get records
converted to message formats 0 and 1. A fetch with a replica id of 0 or more comes from a follower.
The fetch offset of such a request shows how far the follower has replicated the log.

Errors of the request: FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH,
FETCH_SESSION_TOPIC_ID_ERROR.

Errors of a partition: OFFSET_OUT_OF_RANGE, CORRUPT_MESSAGE, UNKNOWN_TOPIC_OR_PARTITION,
NOT_LEADER_OR_FOLLOWER, TOPIC_AUTHORIZATION_FAILED, KAFKA_STORAGE_ERROR, FENCED_LEADER_EPOCH,
UNKNOWN_LEADER_EPOCH, UNSUPPORTED_COMPRESSION_TYPE, UNKNOWN_TOPIC_ID.

v4   isolation level          v10  zstd                             v15  replica state
v5   log start offset         v11  rack                             v16  endpoints of leaders
v7   sessions (KIP-227)       v12  flexible, divergence (KIP-595)   v17  directories of followers
v9   leader epochs (KIP-320)  v13  topic ids                        v18  high watermark of followers
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from aiokq.broker.handlers.decisions import Decisions
from aiokq.broker.log.disk_load import ColdRead, DiskLoad
from aiokq.broker.permissions import CLUSTER_NAME, Operation, ResourceType
from aiokq.broker.replica.fetch_sessions import FetchTarget, asked_targets
from aiokq.broker.replica.partition import CONSUMER, check_leader_epoch
from aiokq.broker.replica.purgatory import Watch
from aiokq.connection.turn import STEPS_PER_LOOK, Steps, at_once
from aiokq.core.errors import (
    BrokerError,
    ConnectionLost,
    KafkaStorage,
    OffsetOutOfRange,
    UnknownTopicId,
    UnknownTopicOrPartition,
    UnsupportedCompressionType,
)
from aiokq.core.types import TopicPartition
from aiokq.wire.codec import encode, encode_in_steps
from aiokq.wire.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchEpochEndOffset,
    FetchPartitionData,
    FetchRequest,
    FetchResponse,
)

if TYPE_CHECKING:
    import uuid

    from aiokq.broker.handlers.areas import Configs, Host, Logs, Topics
    from aiokq.broker.handlers.call import Call
    from aiokq.broker.log.partition_log import PartitionLog
    from aiokq.broker.replica.fetch_sessions import FetchContext
    from aiokq.broker.replica.partition import Partition
    from aiokq.core.files import FileRange

READ_COMMITTED: Final = 1
FIRST_V2_VERSION: Final = 4
"""The first version whose clients read message format 2."""

SIZE_BYTES: Final = 4
"""Length of the size field before a response; Kafka counts this field for quotas."""


@dataclass(slots=True)
class Pass:
    """The outcome of reading all partitions of a fetch once.

    Attributes:
        results: the part of the response for each partition.
        size: the bytes of records in `results`.
        immediate: whether the response is sent without a wait, even with fewer than `min_bytes`.
    """

    results: list[tuple[FetchTarget, FetchPartitionData]] = field(default_factory=list)
    size: int = 0
    immediate: bool = False
    room: dict[TopicPartition, int] = field(default_factory=dict)
    """The bytes that each partition may still add to the response.

    The purgatory counts the new records of a partition up to this number of bytes.
    """
    read: list[tuple[PartitionLog, FetchPartitionData]] = field(default_factory=list)
    """The log and the part of the response of each partition that returned records."""
    loads: list[DiskLoad] = field(default_factory=list)
    """The disk reads that partitions need before they can be read.

    Until these reads have ended, `results` has an error for each of these partitions.
    """


async def handle(
    topics: Topics,
    logs: Logs,
    configs: Configs,
    host: Host,
    request: FetchRequest,
    call: Call,
) -> FetchResponse:
    """Read the partitions; wait and read again until they return `min_bytes` or the time is up."""
    replica_id = _replica_id(request, call.version)
    permits = _Permits(call, replica_id)
    is_trusted = permits.is_trusted()  # may raise Undecided, before anything changes
    asked = await call.pace.run(asked_targets(request))
    context = logs.fetch_sessions.open(request, call.version, asked)
    quotas = None if is_trusted else call.gate.quotas
    if context.error_code:
        response = FetchResponse(error_code=context.error_code, session_id=0)
        if quotas is not None:
            response.throttle_time_ms = quotas.fetched(call.connection, call.client_id, 0)
        return response
    if call.gate.asks_caller:
        await _settle(topics, call, request, context.targets)
    max_bytes = min(request.max_bytes, configs.settings.fetch_max_bytes)
    if quotas is not None:
        max_bytes = min(max_bytes, quotas.fetch_bytes(call.connection, call.client_id))
    min_bytes = min(request.min_bytes, max_bytes)
    clock = host.clock
    deadline = clock.monotonic() + request.max_wait_ms / 1000
    is_long = len(context.targets) > STEPS_PER_LOOK
    watch: Watch | None = None
    """Counts the records appended to each partition after it was read; None if not needed."""

    def look() -> Steps[Pass]:
        return _read_all(topics, call, permits, context.targets, request, max_bytes, logs, watch)

    async def look_again() -> Pass:
        nonlocal watch
        if not is_long:
            return at_once(look())
        if watch is not None:
            logs.purgatory.end(watch)
        watch = Watch() if min_bytes > 0 and request.max_wait_ms > 0 else None
        return await call.pace.run(look())

    fresh = False
    try:
        while True:
            found = await look_again() if is_long else at_once(look())
            if found.loads:
                found = await _read_cold(logs, found, look_again)
            if found.immediate or found.size >= min_bytes or not context.targets:
                break
            left = deadline - clock.monotonic()
            if left <= 0:
                break
            # Records that end the wait were just written. They are in the page cache and need not
            # be loaded. With READ_COMMITTED, the end of a transaction may also end the wait, and
            # the records of the transaction may have been written long before.
            fresh = not found.size and request.isolation_level != READ_COMMITTED
            lacking = min_bytes - found.size
            if watch is None:
                woken = await logs.purgatory.wait(call.connection, lacking, found.room, left)
            else:
                woken = await logs.purgatory.wait_on(call.connection, watch, lacking, left)
            permits = _Permits(call, replica_id)  # permissions may have been withdrawn meanwhile
            if not woken:
                # The wait has ended: return the available records, even if fewer than `min_bytes`.
                found = await look_again()
                if found.loads:
                    found = await _read_cold(logs, found, look_again)
                break
    except ConnectionLost:
        if quotas is not None:  # count the used loop time, although nobody gets the response
            quotas.fetched(call.connection, call.client_id, 0)
        raise
    finally:
        if watch is not None:
            logs.purgatory.end(watch)
    if quotas is not None:
        nbytes = await _response_bytes(context, found, call)
        throttle_ms = quotas.fetched(call.connection, call.client_id, nbytes)
        if throttle_ms:
            # The next request returns the records, so the session must not record them as sent.
            return FetchResponse(session_id=context.session_id, throttle_time_ms=throttle_ms)
    if not fresh:
        await _load_cold(logs, call, found)
    call.counters.record_bytes_fetched += found.size
    finished = context.finish(found.results, privileged=is_trusted)
    if is_long:
        session_id, results = await call.pace.run(finished)
        by_topic = await call.pace.run(_by_topic(results))
    else:
        session_id, results = at_once(finished)
        by_topic = at_once(_by_topic(results))
    response = FetchResponse(responses=by_topic)
    if call.version >= 7:
        response.session_id = session_id
    if call.version < FIRST_V2_VERSION:
        for _, data in results:
            await _convert_down(host, call, data, call.version)
    return response


async def _settle(
    topics: Topics, call: Call, request: FetchRequest, targets: Sequence[FetchTarget]
) -> None:
    """Await all answers of the authorizer, so that no later check raises `Undecided`.

    After `Undecided`, the handler would run again. That must not happen once the fetch session is
    open.
    """
    if _replica_id(request, call.version) >= 0:
        await call.settle((Operation.CLUSTER_ACTION, ResourceType.CLUSTER, (CLUSTER_NAME,)))
        return
    names = set()
    for target in targets:
        topic = topics.by_id(target.topic_id) if call.version >= 13 else None
        names.add(target.topic if topic is None else topic.name)
        if call.pace.spend():
            await call.pace.next()
    await call.settle((Operation.READ, ResourceType.TOPIC, names))


async def _response_bytes(context: FetchContext, found: Pass, call: Call) -> int:
    """Return the size in bytes of the response with these results, without header, as in Kafka.

    Records that are converted for an old client count with their size before the conversion.
    """
    included = await call.pace.run(context.included(found.results))
    response = FetchResponse(responses=await call.pace.run(_by_topic(included)))
    if len(included) > STEPS_PER_LOOK:
        fragments = await call.pace.run(encode_in_steps(response, call.version))
    else:
        fragments = encode(response, call.version)
    return SIZE_BYTES + sum(map(len, fragments))


def _replica_id(request: FetchRequest, version: int) -> int:
    if version < 15:
        return request.replica_id
    return CONSUMER if request.replica_state is None else request.replica_state.replica_id


async def _read_cold(logs: Logs, found: Pass, look: Callable[[], Awaitable[Pass]]) -> Pass:
    """Run the disk reads of all partitions together, then read the partitions again.

    Args:
        found: the outcome of a read, with the disk reads that the partitions need.
    """
    first = [found]

    async def settled() -> Pass:
        found = first.pop() if first else await look()
        if found.loads:
            raise ColdRead(found.loads)
        return found

    try:
        return await logs.cold_reads.read_by(settled)
    except ColdRead:
        return await look()  # a partition that still needs a disk read gets an error


class _Permits:
    """The decisions about the topics that a consumer may read, or a follower may replicate."""

    __slots__ = ("_decisions", "_has_authorizer", "_is_follower")

    def __init__(self, call: Call, replica_id: int) -> None:
        self._is_follower = replica_id >= 0
        self._has_authorizer = call.gate.authorizer is not None
        if self._is_follower:
            self._decisions = Decisions(call, Operation.CLUSTER_ACTION, ResourceType.CLUSTER)
        else:
            self._decisions = Decisions(call, Operation.READ, ResourceType.TOPIC)

    def is_trusted(self) -> bool:
        """Return whether the client is a follower that an authorizer has permitted.

        Every client can claim to be a follower. Only a trusted follower is exempt from quotas and
        has priority in the cache of sessions.
        """
        if not self._is_follower or not self._has_authorizer:
            return False
        try:
            self._decisions.check()
        except BrokerError:
            return False
        return True

    def check(self, topic: str) -> None:
        """Check that the client may read a topic, or replicate it if the client is a follower.

        Raises:
            TopicAuthorization: the client lacks the permission.
        """
        if self._is_follower:
            self._decisions.check()  # CLUSTER_ACTION covers all topics
        else:
            self._decisions.check(topic)


def _read_all(
    topics: Topics,
    call: Call,
    permits: _Permits,
    targets: Sequence[FetchTarget],
    request: FetchRequest,
    max_bytes: int,
    logs: Logs,
    watch: Watch | None,
) -> Steps[Pass]:
    """Read the partitions in order, up to `max_bytes` together; yield between some of them.

    The first batch of the response is returned even if it is larger than `max_bytes`. Changes of
    other tasks between two steps affect only partitions that are not read yet. `watch` counts the
    records that are appended to a partition after it was read.

    Raises:
        ConnectionLost: the client has disconnected meanwhile.
    """
    # Hot path, measured by benchmarks/raw_load.py.
    found = Pass()
    version = call.version
    replica_id = _replica_id(request, version)
    read_committed = request.isolation_level == READ_COMMITTED
    left = max_bytes
    for number, target in enumerate(targets):
        if number and not number % STEPS_PER_LOOK:
            yield
            if not call.connection.connected:
                raise ConnectionLost("the client has disconnected during a long fetch")
        partition: Partition | None = None
        try:
            if replica_id >= 0:
                permits.check("")  # first, because the permission covers all topics
            if version >= 13:
                topic = topics.by_id(target.topic_id)
                if topic is None:
                    raise UnknownTopicId()
                permits.check(topic.name)
                partition = topic.partition(target.partition)
            else:
                permits.check(target.topic)
                partition = topics.partition(target.topic, target.partition)
            if partition is None:
                raise UnknownTopicOrPartition()
            if version < 10 and partition.topic.config.compression_type == "zstd":
                raise UnsupportedCompressionType()
            check_leader_epoch(partition, target.current_leader_epoch)
            end = partition.visible_end(replica_id, read_committed)
            data = _read(partition, target, end, left, found, read_committed)
            if replica_id >= 0 and data.diverging_epoch is None:
                partition.replica_fetched(replica_id, target.fetch_offset)
        except BrokerError as error:
            if isinstance(error, ColdRead):
                found.loads += error.loads
            found.immediate = True
            data = FetchPartitionData(
                partition_index=target.partition,
                error_code=error.code,
                high_watermark=-1,
                # as Kafka: null only if the partition itself has refused the read
                aborted_transactions=[] if partition is None else None,
                records=b"",
            )
        else:
            if data.diverging_epoch is not None:
                found.immediate = True
            size = sum(map(len, data.records)) if isinstance(data.records, list) else 0
            found.size += size
            left = max(left - size, 0)
            room = found.room[partition.name] = max(target.max_bytes - size, 0)
            if watch is not None and not found.immediate:
                logs.purgatory.add(watch, partition.name, room)
            if size:
                found.read.append((partition.log, data))
        found.results.append((target, data))
    return found


def _read(
    partition: Partition,
    target: FetchTarget,
    end: int,
    left: int,
    found: Pass,
    read_committed: bool,
) -> FetchPartitionData:
    log = partition.log
    offset = target.fetch_offset
    data = FetchPartitionData(
        partition_index=target.partition,
        error_code=0,
        high_watermark=partition.high_watermark,
        last_stable_offset=partition.last_stable_offset,
        log_start_offset=log.log_start_offset,
        aborted_transactions=[] if read_committed else None,
        records=b"",
    )
    if target.last_fetched_epoch >= 0:
        epoch, epoch_end = partition.end_offset_for_epoch(target.last_fetched_epoch)
        if epoch_end < 0 or epoch < 0:
            raise OffsetOutOfRange(f"epoch {target.last_fetched_epoch} is not in this log")
        if epoch < target.last_fetched_epoch or epoch_end < offset:
            data.diverging_epoch = FetchEpochEndOffset(epoch=epoch, end_offset=epoch_end)
            return data
    if not log.log_start_offset <= offset <= log.log_end_offset:
        raise OffsetOutOfRange()
    if offset < end:
        # The first partition that has records returns a whole batch, however large (KIP-74).
        read = log.read(
            offset,
            min(target.max_bytes, left),
            upper_bound=end,
            at_least_one=found.size == 0,
            read_committed=read_committed,
        )
        data.records = read.fragments
        if read.aborted_transactions:
            data.aborted_transactions = [
                AbortedTransaction(
                    producer_id=aborted.producer_id, first_offset=aborted.first_offset
                )
                for aborted in read.aborted_transactions
            ]
    return data


def _by_topic(
    results: Sequence[tuple[FetchTarget, FetchPartitionData]],
) -> Steps[list[FetchableTopicResponse]]:
    """Group adjacent results of one topic. Yields between steps."""
    responses: list[FetchableTopicResponse] = []
    before: tuple[str, uuid.UUID] | None = None
    partitions: list[FetchPartitionData] = []
    for number, (target, data) in enumerate(results, 1):
        topic = target.topic, target.topic_id
        if topic != before:
            before, partitions = topic, []
            responses.append(
                FetchableTopicResponse(
                    topic=target.topic, topic_id=target.topic_id, partitions=partitions
                )
            )
        partitions.append(data)
        if not number % STEPS_PER_LOOK:
            yield
    return responses


async def _load_cold(logs: Logs, call: Call, found: Pass) -> None:
    """Load file ranges that are not in the page cache, so that sending does not block the loop.

    If a range cannot be read, its partition gets an error instead of records.
    """
    for log, data in found.read:
        fragments: list[FileRange] = data.records if isinstance(data.records, list) else []
        for fragment in fragments:
            if not fragment.cached():
                try:
                    await logs.cold_reads.run(fragment.load)
                except OSError as error:
                    _refuse(data, log.read_refused(error))
                    break


async def _convert_down(host: Host, call: Call, data: FetchPartitionData, version: int) -> None:
    """Convert a partition's records to message format 0 (versions 0 and 1) or 1 (versions 2 and 3).

    If the records cannot be converted, the partition gets an error in their place.
    """
    from aiokq.records.legacy import downconvert

    fragments: list[FileRange] = data.records if isinstance(data.records, list) else []
    if not fragments:
        return
    magic = 0 if version < 2 else 1
    try:
        data.records = await host.offload.run(
            lambda: downconvert(b"".join([fragment.read() for fragment in fragments]), magic)
        )
        return
    except BrokerError as error:
        refusal = error
    except (OSError, EOFError) as error:
        refusal = KafkaStorage(f"read failed: {error}")
    _refuse(data, refusal)


def _refuse(data: FetchPartitionData, error: BrokerError) -> None:
    data.error_code, data.high_watermark, data.records = error.code, -1, b""
