"""Each number that a public call accepts: at the ends of its range, beyond them, and wrong types.

The arguments are read from the signatures of `aiokq.__all__`: the first test fails if an argument
has no entry in the table.
"""

from __future__ import annotations

import ast
import asyncio
import enum
import importlib
import inspect
import math
import re
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import aiokq
from aiokq import (
    AbortTransactionSpec,
    Admin,
    ClientQuotaEntity,
    Cluster,
    ConfigChange,
    Consumer,
    EmbeddedCluster,
    EventStream,
    FeatureUpdate,
    GroupMetadata,
    KafkaError,
    NewPartitions,
    NewTopic,
    OffsetAndMetadata,
    Producer,
    ResetTo,
    ScramDeletion,
    TopicPartition,
)
from aiokq.client.registry import Registry
from aiokq.core.errors import ConfigError
from aiokq.core.limits import INT16_MAX, INT32_MAX, INT64_MAX, MAX_SECONDS
from aiokq.core.observable_map import ObservableMap
from aiokq.core.settings import Settings
from aiokq.producer import delivery_engine
from aiokq.producer.batch_builder import BatchBuilder
from aiokq.producer.record_appender import SendNowait
from aiokq.wire import ApiVersionsRequest
from tests import cores
from tests.sim.harness.simulation import Simulation, run

NAN, INF = math.nan, math.inf
NO_INTS: tuple[object, ...] = (True, 1.0, NAN, INF, -INF, "1", b"1")
NO_SECONDS: tuple[object, ...] = (True, "1", b"1")
HUGE = (2**63, 2**64, -(2**63) - 1)


@dataclass(frozen=True)
class Kind:
    """A kind of number.

    Attributes:
        taken: accepted values: the ends of the range and special values.
        past: values out of range, which raise ValueError.
        none: values of a wrong type, which raise TypeError.
    """

    taken: tuple[object, ...]
    past: tuple[object, ...]
    none: tuple[object, ...] = NO_INTS


def _ints(low: int, high: int, *special: int) -> Kind:
    past = sorted({low - 1, high + 1, 2**31, *HUGE})
    return Kind(
        (low, high, *special),
        tuple(n for n in past if not low <= n <= high and n not in special),
    )


PARTITION = _ints(0, INT32_MAX)
OFFSET = _ints(0, INT64_MAX)
TIMESTAMP = OFFSET
SECONDS = Kind(
    (0, 0.5, MAX_SECONDS), (-1, -0.001, MAX_SECONDS + 1, NAN, INF, -INF, *HUGE), NO_SECONDS
)
INTERVAL = Kind((0.5, MAX_SECONDS), (0, -1, NAN, INF, -INF, *HUGE), NO_SECONDS)
SPEC = _ints(0, INT64_MAX, -1, -2)
SHIFT = _ints(-INT64_MAX, INT64_MAX)
COUNT = _ints(1, INT32_MAX)
BYTES = _ints(0, INT32_MAX)
NODE = _ints(0, INT32_MAX)
OPTIONAL_COUNT = _ints(1, INT32_MAX, -1)
REPLICAS = _ints(1, INT16_MAX, -1)
LEVEL = _ints(0, INT16_MAX)
PORT = _ints(0, 65_535)
STREAMS = _ints(1, 10_000)
ANY_INT32 = _ints(-(2**31), INT32_MAX)
ANY_INT64 = _ints(-(2**63), INT64_MAX)
INDEX = Kind((0,), (), (NAN, "1", 1.5))
CONFIG = Kind((1.5, 1, True), (NAN, INF, -INF), ())
EPOCH = _ints(-1, INT32_MAX)


class World:
    """An embedded broker with one client of each kind."""

    def __init__(self, core: SimpleNamespace, kafka: EmbeddedCluster, cluster: Cluster) -> None:
        self.core = core
        self.kafka = kafka
        self.cluster = cluster
        self.producer: Producer
        self.consumer: Consumer
        self.admin: Admin
        self.topic = "t"
        self.tp = ("t", 0)


Call = Callable[[World, Any], Any]


def _columns(w: World) -> Any:
    return w.core.RecordColumns(1, value=(None, struct.pack("<2i", 0, 1), b"v"))


async def _batch(w: World, value: Any) -> Any:
    batch = w.producer.create_batch()
    batch.append(b"v")
    return await (await w.producer.send_batch(batch, w.topic, partition=value))


async def _produce(w: World, **options: Any) -> Any:
    batch = w.cluster.create_batch()
    batch.append(b"v")
    return await w.cluster.produce({TP: batch}, **{"node": 1, "timeout": 1, **options})


async def _enqueue(w: World, **number: Any) -> Any:
    return await (await w.producer.enqueue(w.topic, b"v", **number))


async def _send_nowait(w: World, **number: Any) -> Any:
    return await w.producer.send_nowait(w.topic, b"v", **number)


async def _many_to(w: World, value: Any) -> Any:
    return await (await w.producer.send_many(w.topic, [(None, b"v")], value))


async def _many(w: World, value: Any) -> Any:
    return await (await w.producer.send_many(w.topic, [(None, b"v"), (None, b"w", None, value)]))


async def _read(w: World, **options: Any) -> Any:
    options = {"stop": 0, **options}
    async for _batch in w.cluster.read(w.tp, **options):
        break


async def _watch(w: World, **options: Any) -> Any:
    async with await w.cluster.registry.watch("/brokers/ids", **options):
        pass


def _run_blocking_side(w: World, value: Any) -> Any:
    async def nothing() -> None: ...

    return w.kafka.run(nothing(), value)


async def _transaction_offsets(w: World, value: Any) -> None:
    async with (
        w.cluster.producer(transactional_id="x", max_block_ms=2_000) as producer,
        producer.transaction() as txn,
    ):
        await txn.send_offsets({TP: value}, GroupMetadata("g"))


def _process(keyword: str, **options: Any) -> Call:
    """Return a call of `process()` that ends before it reads a record."""
    stop = asyncio.Event()
    stop.set()

    def call(w: World, value: Any) -> Any:
        given = {**options, keyword: value}
        return w.cluster.process("t", _nothing, group_id="p", stop=stop, **given)

    return call


async def _nothing(record: object) -> None: ...


def _at(name: str, keyword: str, *arguments: Any, via: str = "admin", **options: Any) -> Call:
    """Return a call of a method that passes the number as a keyword."""

    def call(w: World, value: Any) -> Any:
        client = w.cluster.registry if via == "registry" else getattr(w, via)
        return getattr(client, name)(*arguments, **options, **{keyword: value})

    return call


def _timeouts(via: str, **calls: tuple[Any, ...]) -> Iterator[tuple[str, tuple[Kind, Call]]]:
    owner = via.title()
    for name, arguments in calls.items():
        yield f"{owner}.{name}(timeout)", (SECONDS, _at(name, "timeout", *arguments, via=via))


TP = TopicPartition("t", 0)

TABLE: dict[str, tuple[Kind, Call]] = {
    **dict(
        _timeouts(
            "admin",
            abort_transaction=(AbortTransactionSpec(("t", 0), 0, 0, 0),),
            alter_configs=({"t": {"retention.ms": 1}},),
            alter_group_offsets=("g", {TP: 0}),
            alter_partition_reassignments=({TP: None},),
            create_partitions=({"t": 1},),
            create_topics=("t",),
            delete_group_offsets=("g", [TP]),
            delete_groups=("g",),
            delete_records=({TP: 0},),
            delete_topics=("none",),
            describe_cluster=(),
            describe_configs=("t",),
            describe_features=(),
            describe_groups=("g",),
            describe_log_dirs=(),
            describe_metadata_quorum=(),
            describe_producers=([TP],),
            describe_topics=("t",),
            describe_transactions=("x",),
            elect_leaders=([TP],),
            fence_producers=("x",),
            group_lag=("g",),
            import_group_offsets=({"g": {TP: 0}},),
            list_group_offsets=("g",),
            list_config_resources=(),
            list_groups=(),
            list_offsets=({TP: "latest"},),
            list_partition_reassignments=(),
            list_topics=(),
            list_transactions=(),
            remove_members=("g", ["m"]),
            reset_group_offsets=("g", 0, [TP]),
            rewind_group=("g", 0, [TP]),
            terminate_transaction=("x",),
            describe_client_quotas=(),
            alter_client_quotas=({ClientQuotaEntity(user="u"): {"producer_byte_rate": 1.0}},),
            describe_acls=(),
            create_acls=(["User:u Allow Read Topic:t"],),
            delete_acls=(["User:u Allow Read Topic:t"],),
            describe_user_scram_credentials=(),
            alter_user_scram_credentials=([ScramDeletion("u")],),
            unregister_broker=(7,),
            update_features=({"group.version": 1},),
        )
    ),
    **dict(
        _timeouts(
            "consumer",
            beginning_offsets=([TP],),
            commit=({TP: 0},),
            committed=(TP,),
            end_offsets=([TP],),
            getmany=(TP,),
            offsets_for_times=({TP: 0},),
            position=(TP,),
            seek_to_beginning=(TP,),
            seek_to_committed=(TP,),
            seek_to_end=(TP,),
            topics=(),
        )
    ),
    **dict(
        _timeouts(
            "cluster",
            fetch=(TP, 0),
            offsets=(TP, "latest"),
            refresh=("t",),
            request=(ApiVersionsRequest(),),
        )
    ),
    **dict(
        _timeouts("registry", children=("/brokers",), exists=("/brokers",), get=("/brokers/ids",))
    ),
    "Registry.read(timeout)": (SECONDS, lambda w, v: w.cluster.registry.read(("brokers",), v)),
    "Registry.watch(timeout)": (SECONDS, lambda w, v: _watch(w, timeout=v)),
    "Registry.watch(interval)": (INTERVAL, lambda w, v: _watch(w, interval=v)),
    "Admin.alter_partition_reassignments(reassignments)": (
        NODE,
        lambda w, v: w.admin.alter_partition_reassignments({TP: [v]}),
    ),
    "Admin.elect_leaders(partitions)": (PARTITION, lambda w, v: w.admin.elect_leaders([("t", v)])),
    "Admin.list_partition_reassignments(partitions)": (
        PARTITION,
        lambda w, v: w.admin.list_partition_reassignments([("t", v)]),
    ),
    "Admin.alter_group_offsets(offsets)": (
        OFFSET,
        lambda w, v: w.admin.alter_group_offsets("g", {TP: v}),
    ),
    "Admin.create_partitions(topic_partitions)": (
        COUNT,
        lambda w, v: w.admin.create_partitions({"t": v}, validate_only=True),
    ),
    "Admin.create_topics(num_partitions)": (
        OPTIONAL_COUNT,
        lambda w, v: w.admin.create_topics("x", num_partitions=v, validate_only=True),
    ),
    "Admin.create_topics(replication_factor)": (
        REPLICAS,
        lambda w, v: w.admin.create_topics("x", replication_factor=v, validate_only=True),
    ),
    "Admin.create_topics(configs)": (
        CONFIG,
        lambda w, v: w.admin.create_topics("x", configs={"retention.ms": v}, validate_only=True),
    ),
    "Admin.alter_configs(changes)": (
        CONFIG,
        lambda w, v: w.admin.alter_configs({"t": {"retention.ms": v}}, validate_only=True),
    ),
    "Admin.delete_group_offsets(partitions)": (
        PARTITION,
        lambda w, v: w.admin.delete_group_offsets("g", [("t", v)]),
    ),
    "Admin.delete_records(before)": (OFFSET, lambda w, v: w.admin.delete_records({TP: v})),
    "Admin.describe_features(node_id)": (NODE, _at("describe_features", "node_id")),
    "Admin.describe_log_dirs(node_ids)": (NODE, lambda w, v: w.admin.describe_log_dirs([v])),
    "Admin.describe_producers(node_id)": (NODE, _at("describe_producers", "node_id", [TP])),
    "Admin.describe_producers(partitions)": (
        PARTITION,
        lambda w, v: w.admin.describe_producers([("t", v)]),
    ),
    "Admin.import_group_offsets(groups)": (
        OFFSET,
        lambda w, v: w.admin.import_group_offsets({"g": {TP: v}}, dry_run=True),
    ),
    "Admin.list_group_offsets(group_ids)": (
        PARTITION,
        lambda w, v: w.admin.list_group_offsets({"g": [("t", v)]}),
    ),
    "Admin.list_offsets(partitions)": (SPEC, lambda w, v: w.admin.list_offsets({TP: v})),
    "Admin.list_transactions(longer_than_ms)": (
        OFFSET,
        _at("list_transactions", "longer_than_ms"),
    ),
    "Admin.list_transactions(producer_ids)": (
        OFFSET,
        lambda w, v: w.admin.list_transactions(producer_ids=[v]),
    ),
    "Admin.unregister_broker(broker_id)": (NODE, lambda w, v: w.admin.unregister_broker(v)),
    "Admin.update_features(updates)": (
        LEVEL,
        lambda w, v: w.admin.update_features({"f": FeatureUpdate(v, "safe_downgrade")}),
    ),
    "Admin.alter_client_quotas(changes)": (
        Kind((0.5, 1, 2**64), (0, -1, NAN, INF, -INF, 10**400), NO_SECONDS),
        lambda w, v: w.admin.alter_client_quotas(
            {ClientQuotaEntity(user="u"): {"controller_mutation_rate": v}}, raise_errors=True
        ),
    ),
    "Admin.reset_group_offsets(to)": (
        OFFSET,
        lambda w, v: w.admin.reset_group_offsets("g", {TP: v}, dry_run=True),
    ),
    "Admin.reset_group_offsets(partitions)": (
        PARTITION,
        lambda w, v: w.admin.reset_group_offsets("g", 0, [TopicPartition("t", v)]),
    ),
    "Admin.rewind_group(to)": (OFFSET, lambda w, v: w.admin.rewind_group("g", {TP: v})),
    "Admin.rewind_group(partitions)": (
        PARTITION,
        lambda w, v: w.admin.rewind_group("g", 0, [TopicPartition("t", v)]),
    ),
    "Cluster.events(limit)": (COUNT, lambda w, v: w.cluster.events(limit=v).close()),
    "Cluster.fetch(partition)": (PARTITION, lambda w, v: w.cluster.fetch(("t", v), 0)),
    "Cluster.fetch(offset)": (OFFSET, lambda w, v: w.cluster.fetch(TP, v)),
    "Cluster.fetch(max_bytes)": (BYTES, lambda w, v: w.cluster.fetch(TP, 0, v)),
    "Cluster.fetch(max_wait_ms)": (BYTES, lambda w, v: w.cluster.fetch(TP, 0, max_wait_ms=v)),
    "Cluster.fetch(stop)": (OFFSET, lambda w, v: w.cluster.fetch(TP, 0, stop=v)),
    "Cluster.offsets(partition)": (PARTITION, lambda w, v: w.cluster.offsets(("t", v), "latest")),
    "Cluster.offsets(timestamp)": (SPEC, lambda w, v: w.cluster.offsets(TP, v)),
    **{
        f"Cluster.process({name})": (kind, _process(name, **options))
        for name, kind, options in (
            ("commit_interval_ms", BYTES, {"guarantee": "at_least_once"}),
            ("concurrency", COUNT, {}),
            ("max_records", COUNT, {}),
            ("retries", BYTES, {}),
            ("retry_backoff_max_ms", BYTES, {}),
            ("retry_backoff_ms", BYTES, {}),
            ("transaction_timeout_ms", COUNT, {"commit_interval_ms": 0}),
        )
    },
    "Cluster.create_batch(max_bytes)": (BYTES, lambda w, v: w.cluster.create_batch(max_bytes=v)),
    "Cluster.create_batch(compression_level)": (
        _ints(1, 9, -1),
        lambda w, v: w.cluster.create_batch(compression_type="gzip", compression_level=v),
    ),
    "Cluster.create_batch(compression_max_ratio)": (
        Kind((0, 0.5, 1), (-0.001, 1.001, NAN, INF, -INF, *HUGE), NO_SECONDS),
        lambda w, v: w.cluster.create_batch(compression_max_ratio=v),
    ),
    "Cluster.produce(node)": (NODE, lambda w, v: _produce(w, node=v)),
    "Cluster.produce(timeout)": (SECONDS, lambda w, v: _produce(w, timeout=v)),
    "Cluster.produce(timeout_ms)": (BYTES, lambda w, v: _produce(w, timeout_ms=v)),
    "Cluster.read(partition)": (PARTITION, lambda w, v: w.cluster.read(("t", v))),
    "Cluster.read(start)": (SPEC, lambda w, v: _read(w, start=v)),
    "Cluster.read(stop)": (_ints(0, INT64_MAX, -1, -2), lambda w, v: w.cluster.read(TP, 0, v)),
    "Cluster.read(max_bytes)": (BYTES, lambda w, v: _read(w, max_bytes=v)),
    "Cluster.read(timeout)": (SECONDS, lambda w, v: _read(w, timeout=v)),
    "Cluster.request(node)": (
        _ints(0, INT32_MAX),
        lambda w, v: w.cluster.request(ApiVersionsRequest(), node=v),
    ),
    "Consumer.add_topic(partition)": (
        PARTITION,
        lambda w, v: w.consumer.add_topic("t", partition=v),
    ),
    "Consumer.close(timeout)": (
        Kind((), SECONDS.past, SECONDS.none),
        lambda w, v: w.consumer.close(v),
    ),
    "Consumer.commit(offsets)": (OFFSET, lambda w, v: w.consumer.commit({TP: v})),
    "Consumer.commit_nowait(offsets)": (OFFSET, lambda w, v: w.consumer.commit_nowait({TP: v})),
    "Consumer.getmany(max_records)": (COUNT, lambda w, v: w.consumer.getmany(max_records=v)),
    "Consumer.offsets_for_times(timestamps)": (
        TIMESTAMP,
        lambda w, v: w.consumer.offsets_for_times({TP: v}),
    ),
    "Consumer.seek(offset)": (OFFSET, lambda w, v: w.consumer.seek(TP, v)),
    "Consumer.streams(count)": (
        Kind((), STREAMS.past, STREAMS.none),
        lambda w, v: w.consumer.streams(v),
    ),
    "EmbeddedCluster.__init__(brokers)": (
        Kind((1,), (0, -1, 2, *HUGE)),
        lambda w, v: EmbeddedCluster(brokers=v),
    ),
    "EmbeddedCluster.__init__(features)": (
        Kind((0, 2), (-1, 3, 2**31, *HUGE)),
        lambda w, v: EmbeddedCluster(features={"transaction.version": v}),
    ),
    "EmbeddedCluster.__init__(port)": (PORT, lambda w, v: EmbeddedCluster(port=v)),
    "EmbeddedCluster.create_topic(partitions)": (
        _ints(1, INT32_MAX),
        lambda w, v: w.kafka.create_topic("t", v),
    ),
    "EmbeddedCluster.create_topic(configs)": (
        CONFIG,
        lambda w, v: w.kafka.create_topic("u", configs={"min.cleanable.dirty.ratio": v}),
    ),
    "EmbeddedCluster.run(timeout)": (SECONDS, _run_blocking_side),
    "Producer.close(timeout)": (
        Kind((), SECONDS.past, SECONDS.none),
        lambda w, v: w.producer.close(v),
    ),
    "Producer.enqueue(partition)": (
        PARTITION,
        lambda w, v: _enqueue(w, partition=v),
    ),
    "Producer.enqueue(timestamp_ms)": (
        TIMESTAMP,
        lambda w, v: _enqueue(w, timestamp_ms=v),
    ),
    "Producer.send(partition)": (
        PARTITION,
        lambda w, v: w.producer.send(w.topic, b"v", partition=v),
    ),
    "Producer.send(timestamp_ms)": (
        TIMESTAMP,
        lambda w, v: w.producer.send(w.topic, b"v", timestamp_ms=v),
    ),
    "Producer.send_batch(partition)": (PARTITION, _batch),
    "Producer.send_many(partition)": (
        PARTITION,
        _many_to,
    ),
    "Producer.send_many(records)": (TIMESTAMP, _many),
    "Producer.send_nowait(partition)": (
        PARTITION,
        lambda w, v: _send_nowait(w, partition=v),
    ),
    "Producer.send_nowait(timestamp_ms)": (
        TIMESTAMP,
        lambda w, v: _send_nowait(w, timestamp_ms=v),
    ),
    "RecordColumns.__init__(count)": (
        Kind((0,), (-1, 2**31, *HUGE)),
        lambda w, v: w.core.RecordColumns(v, value=(None, bytes(4), b"")),
    ),
    "RecordColumns.fitting(max_bytes)": (OFFSET, lambda w, v: _columns(w).fitting(None, v)),
    "RecordColumns.fitting(max_rows)": (
        BYTES,
        lambda w, v: _columns(w).fitting(None, 1, max_rows=v),
    ),
    "RecordColumns.fitting(overhead)": (
        BYTES,
        lambda w, v: _columns(w).fitting(None, 1, overhead=v),
    ),
    "RecordColumns.record(index)": (INDEX, lambda w, v: _columns(w).record(v)),
    "RecordColumns.size(index)": (INDEX, lambda w, v: _columns(w).size(v)),
    "Record.__init__(partition)": (ANY_INT32, lambda w, v: w.core.Record("t", v, 0, 0)),
    "Record.__init__(offset)": (ANY_INT64, lambda w, v: w.core.Record("t", 0, v, 0)),
    "Record.__init__(timestamp_ms)": (ANY_INT64, lambda w, v: w.core.Record("t", 0, 0, v)),
    "Record.__init__(timestamp_type)": (ANY_INT32, lambda w, v: w.core.Record("t", 0, 0, 0, v)),
    "Record.__init__(leader_epoch)": (
        ANY_INT32,
        lambda w, v: w.core.Record("t", 0, 0, 0, leader_epoch=v),
    ),
    "RecordMetadata.__init__(partition)": (
        ANY_INT32,
        lambda w, v: w.core.RecordMetadata("t", v, 0, 0),
    ),
    "RecordMetadata.__init__(offset)": (
        ANY_INT64,
        lambda w, v: w.core.RecordMetadata("t", 0, v, 0),
    ),
    "RecordMetadata.__init__(timestamp_ms)": (
        ANY_INT64,
        lambda w, v: w.core.RecordMetadata("t", 0, 0, v),
    ),
    "BatchBuilder.__init__(limit)": (BYTES, lambda w, v: BatchBuilder(v)),
    "BatchBuilder.append(timestamp_ms)": (
        TIMESTAMP,
        lambda w, v: w.producer.create_batch().append(b"v", timestamp_ms=v),
    ),
    "EventStream.__init__(limit)": (COUNT, lambda w, v: EventStream(ObservableMap(), limit=v)),
    "Transaction.send_offsets(offsets)": (OFFSET, _transaction_offsets),
    "AbortTransactionSpec.__init__(producer_id)": (
        OFFSET,
        lambda w, v: AbortTransactionSpec(TP, v, 0),
    ),
    "AbortTransactionSpec.__init__(producer_epoch)": (
        LEVEL,
        lambda w, v: AbortTransactionSpec(TP, 0, v),
    ),
    "AbortTransactionSpec.__init__(coordinator_epoch)": (
        NODE,
        lambda w, v: AbortTransactionSpec(TP, 0, 0, v),
    ),
    "TopicPartition.of(value)": (PARTITION, lambda w, v: TopicPartition.of(("t", v))),
    "ConfigChange.set(value)": (CONFIG, lambda w, v: ConfigChange.set(v)),
    "NewPartitions.__init__(total_count)": (COUNT, lambda w, v: NewPartitions(v)),
    "NewPartitions.__init__(assignments)": (NODE, lambda w, v: NewPartitions(2, [[v]])),
    "NewTopic.__init__(num_partitions)": (OPTIONAL_COUNT, lambda w, v: NewTopic("x", v)),
    "NewTopic.__init__(replication_factor)": (REPLICAS, lambda w, v: NewTopic("x", 1, v)),
    "NewTopic.__init__(assignments)": (NODE, lambda w, v: NewTopic("x", assignments={0: [v]})),
    "NewTopic.__init__(configs)": (CONFIG, lambda w, v: NewTopic("x", configs={"a": v})),
    "ResetTo.__init__(value)": (OFFSET, lambda w, v: ResetTo("offset", v)),
    "ResetTo.duration(duration_ms)": (OFFSET, lambda w, v: ResetTo.duration(v)),
    "ResetTo.offset(offset)": (OFFSET, lambda w, v: ResetTo.offset(v)),
    "ResetTo.of(value)": (Kind(OFFSET.taken, OFFSET.past, ()), lambda w, v: ResetTo.of(v)),
    "ResetTo.shift(by)": (SHIFT, lambda w, v: ResetTo.shift(v)),
    "ResetTo.timestamp(timestamp_ms)": (TIMESTAMP, lambda w, v: ResetTo.timestamp(v)),
}
"""The kind of number and a call with it, by class, method and argument."""

INSIDE_VALUES: dict[str, tuple[Kind, Call]] = {
    "partition of seek": (
        Kind((0,), PARTITION.past, PARTITION.none),
        lambda w, v: w.consumer.seek(("t", v), 0),
    ),
    "partition of assign": (
        Kind((), PARTITION.past, PARTITION.none),
        lambda w, v: w.consumer.assign([("t", v)]),
    ),
    "OffsetAndMetadata.offset": (
        OFFSET,
        lambda w, v: w.consumer.commit({TP: OffsetAndMetadata(v)}),
    ),
    "OffsetAndMetadata.leader_epoch": (
        EPOCH,
        lambda w, v: w.consumer.commit({TP: OffsetAndMetadata(0, "", v)}),
    ),
    "OffsetAndMetadata.offset of alter_group_offsets": (
        OFFSET,
        lambda w, v: w.admin.alter_group_offsets("g", {TP: OffsetAndMetadata(v)}),
    ),
    "OffsetAndMetadata.leader_epoch of alter_group_offsets": (
        EPOCH,
        lambda w, v: w.admin.alter_group_offsets("g", {TP: OffsetAndMetadata(0, "", v)}),
    ),
}
"""Numbers inside other arguments, which are not visible in the signatures."""

MADE_BY_AIOKQ = {
    "Assigned", "Assignment", "BatchInfo", "BrokerDescription", "BrokerDown", "BrokerHealth",
    "BrokerInfo", "BrokerLogDirs", "BrokerUp", "CloseReport", "ClusterDescription", "ClusterHealth",
    "ClusterMetadata", "ConsumerHealth", "DeadLettered", "DeliveriesFailed", "DeserializedRecord",
    "FeatureMetadata", "FeatureUpdated", "FencedProducer", "FinalizedVersionRange",
    "GroupDescription", "GroupHealth", "GroupLag", "GroupListing", "GroupListings",
    "GroupOffsetAltered", "GroupOffsetDeleted", "GroupOffsetImported", "GroupOffsetReset",
    "GroupOffsets", "LeaderChanged", "LogDirDescription", "LoopStalled", "Lost",
    "MemberDescription", "OffsetListing", "PartitionDescription", "PartitionFailed",
    "PartitionHealth", "PartitionInfo", "PartitionLag", "PartitionRecords", "PartitionRecovered",
    "PartitionsAdded", "PartitionsCreated", "ProcessAborted", "ProcessReport", "ProducerHealth",
    "ProduceResult", "ProducerState", "QuorumInfo", "QuorumNode", "QuorumReplicaState",
    "RaftVoterEndpoint", "Reassignment", "RecordBatch", "RecordsDeleted", "RegistryNode",
    "RegistryWatch", "ReplicaInfo", "Results", "Revoked", "ScramCredential", "Subscription",
    "SupportedVersionRange", "Throttled", "TopicAdded", "TopicCreated", "TopicInfo", "TopicListing",
    "TopicRecreated", "Topology", "TransactionDescription", "TransactionListing",
    "TransactionListings",
}  # fmt: skip
"""Results, events and similar classes, whose numbers come from a broker."""

CALLED_BY_AIOKQ = {"Assignor", "Deserializer", "Interceptor", "Partitioner", "Serializer"}
"""Interfaces implemented by users; aiokq calls their methods."""

CHECKED_WHERE_USED = {
    "FeatureUpdate",
    "GroupMetadata",
    "OffsetAndMetadata",
    "OAuthToken",
    "OffsetAndTimestamp",
    "Outgoing",
    "ProducerRecord",
    "ScramUpsertion",
}
"""Values that users and aiokq create; they are checked when they are used."""

NOT_SENT = {
    "Consumer.ack(item)",
    "TopicPartition.__init__(partition)",
    "TopicPartition.of(cls)",
}
"""Arguments that are only compared with existing objects, or checked where they are used."""

NUMERIC = re.compile(
    r"\b(int|float|OffsetSpec|ResetToLike|ManyRecord|NodeLike|GroupsLike|ChangeLike|PartitionLike)\b"
)
NATIVE = {"Deliveries", "Delivery", "Record", "RecordColumns", "RecordMetadata"}


def _native_arguments(names: set[str]) -> Iterator[str]:
    stubs = (Path(aiokq.__file__).parent / "fastpath").rglob("*.pyi")
    for node in (node for stub in stubs for node in ast.parse(stub.read_text()).body):
        if isinstance(node, ast.ClassDef) and node.name in names:
            for method in node.body:
                if not isinstance(method, ast.FunctionDef):
                    continue
                if method.name.startswith("_") and method.name != "__init__":
                    continue
                for argument in [*method.args.args, *method.args.kwonlyargs]:
                    if argument.annotation and NUMERIC.search(ast.unparse(argument.annotation)):
                        yield f"{node.name}.{method.name}({argument.arg})"


def _arguments() -> set[str]:
    """Return `Class.method(argument)` for all public numbers."""
    found = set(_native_arguments(NATIVE & set(aiokq.__all__)))
    left_out = MADE_BY_AIOKQ | CALLED_BY_AIOKQ | CHECKED_WHERE_USED | NATIVE
    for name in aiokq.__all__:
        owner = getattr(aiokq, name)
        if not inspect.isclass(owner) or name in left_out:
            continue
        if issubclass(owner, BaseException | enum.Enum | Settings):
            continue
        for method, call in inspect.getmembers(owner, callable):
            if method.startswith("_") and method != "__init__":
                continue
            try:
                made = owner if method == "__init__" else call
                parameters = inspect.signature(made).parameters.values()
            except ValueError:
                continue
            for parameter in parameters:
                if NUMERIC.search(str(parameter.annotation)):
                    found.add(f"{name}.{method}({parameter.name})")
    hints = inspect.signature(SendNowait.__call__).parameters.values()
    found |= {f"Producer.send_nowait({p.name})" for p in hints if NUMERIC.search(str(p.annotation))}
    return found - NOT_SENT


def _takes_none(name: str) -> bool:
    """Return whether an argument of the table may be None according to its annotation."""
    parts = re.fullmatch(r"(\w+)\.(\w+)\((\w+)\)", name)
    assert parts is not None
    owner, method, argument = parts.groups()
    if owner == "Registry":
        call = getattr(Registry, method)
    elif owner in NATIVE or name.startswith("Producer.send_nowait("):
        return True  # the core's own tests cover None
    else:
        kind = getattr(aiokq, owner, None) or globals()[owner]
        call = kind if method == "__init__" else getattr(kind, method)
    annotation = inspect.signature(call).parameters[argument].annotation
    return "None" in annotation or not re.fullmatch(r"int|float", annotation)


def test_each_public_number_has_an_entry() -> None:
    """For a new argument, the accepted values have to be defined here."""
    arguments = _arguments()
    assert len(arguments) > 80
    assert sorted(arguments - TABLE.keys()) == []


def test_all_excluded_classes_exist() -> None:
    """If a class were renamed, its old name here would have no effect."""
    assert set(aiokq.__all__) >= (MADE_BY_AIOKQ | CALLED_BY_AIOKQ | CHECKED_WHERE_USED)


@pytest.fixture(params=cores.NAMES)
def core(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The core that the producer uses."""
    module = cores.core(request.param)

    def accumulator(**options: Any) -> Any:
        guard = module.LoopGuard(options["guard"].require)  # of the same core
        return module.Accumulator(**{**options, "guard": guard})

    monkeypatch.setattr(delivery_engine, "Accumulator", accumulator)
    return module


async def _called(call: Call, world: World, value: object) -> None:
    result = call(world, value)
    if inspect.isawaitable(result):
        await result


@pytest.mark.parametrize("name", [*TABLE, *INSIDE_VALUES])
def test_a_number_is_accepted_within_its_range_and_refused_beyond(
    name: str, core: SimpleNamespace
) -> None:
    """Numbers beyond it caused an internal OverflowError, an endless wait, or no request at all."""
    kind, call = {**TABLE, **INSIDE_VALUES}[name]
    if name == "EmbeddedCluster.run(timeout)":
        with EmbeddedCluster() as kafka:
            side = World(core, kafka, None)  # type: ignore[arg-type]
            for value in kind.taken[1:]:
                call(side, value)
            for value in (*kind.past, *kind.none):
                with pytest.raises((ValueError, TypeError), match="timeout"):
                    call(side, value)
        return

    async def body(w: World) -> None:
        number = 0
        without_default = () if name in INSIDE_VALUES or _takes_none(name) else (None,)
        for value in (*kind.past, *kind.none, *without_default):
            if name.startswith("Producer."):
                # The topic is unknown to the producer, so its records get their partition later.
                number += 1
                w.topic = f"t{number}"
                await w.kafka.create_topic(w.topic)
            accepted = w.producer.send_nowait(w.topic, b"before")
            used = w.producer._delivery.accumulator.used_bytes
            # Arguments that also accept text raise ConfigError with their own message.
            errors = ValueError if value in kind.past else (TypeError, ConfigError)
            with pytest.raises(errors) as refused:
                await _called(call, w, value)
            if type(value) is int and value in kind.past:
                assert str(value) in str(refused.value)
            assert w.producer._delivery.accumulator.used_bytes <= used
            assert (await accepted).offset >= 0
        for value in kind.taken:
            try:
                async with asyncio.timeout(1):  # some calls wait for objects that do not exist
                    await _called(call, w, value)
            except ConfigError:
                raise
            except (KafkaError, TimeoutError):
                pass  # the object does not exist in the broker or the log

    async def main(simulation: Simulation) -> None:
        async with (
            EmbeddedCluster(environment=simulation.environment()) as kafka,
            Cluster(
                kafka.bootstrap_servers,
                _environment=simulation.environment(),
                default_api_timeout_ms=2_000,
            ) as cluster,
        ):
            await kafka.create_topic("t")
            w = World(core, kafka, cluster)
            async with (
                cluster.producer(max_block_ms=2_000, linger_ms=0) as w.producer,
                cluster.consumer(group_id="g", enable_auto_commit=False) as w.consumer,
                cluster.admin() as w.admin,
            ):
                w.consumer.assign([TP])
                await body(w)

    run(1, main, limit=3600.0)


SETTINGS = {
    "ClusterSettings": {},
    "AdminSettings": {},
    "ConsumerSettings": {"group_id": "g"},
    "ProducerSettings": {},
}
"""Other settings that each class requires."""


def _numbers_of(name: str) -> list[str]:
    fields = getattr(aiokq, name).model_fields.items()
    return [each for each, field in fields if field.annotation in (int, float, int | None)]


@pytest.mark.parametrize(
    ("settings", "name"), [(each, name) for each in SETTINGS for name in _numbers_of(each)]
)
def test_a_numeric_setting_has_a_range(settings: str, name: str) -> None:
    """A batch_size beyond int32 was accepted, and with linger_ms=inf nothing was ever sent."""
    model, beside = getattr(aiokq, settings), SETTINGS[settings]
    values = importlib.import_module(f"aiokq.{settings.removesuffix('Settings').lower()}.values")
    table = getattr(values, settings.replace("Settings", "Values"))
    high = (
        next(each.le for each in model.model_fields[name].metadata if getattr(each, "le", None))
        if "level" not in name
        else 22
    )
    for value in (NAN, INF, -INF, True, False, "nan", "inf", high + 1, -(2**63) - 1, 2**64, b"x"):
        with pytest.raises(ConfigError, match=name):
            model(**beside, **{name: value})
        with pytest.raises(ConfigError, match=name):
            table.given({**beside, name: value})
