"""ProducerSettings: the settings of a producer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from aiokq.cluster.settings import ClusterSettings
from aiokq.core.limits import INT32_MAX, INT64_MAX
from aiokq.core.types import Buffer
from aiokq.producer.interceptors import Interceptor
from aiokq.producer.partitioner import Partitioner, PartitionFunction
from aiokq.producer.rules import (
    ProducerRules,
    acks_as_number,
    codecs_from_text,
    gzip_level,
    known_codec,
    lz4_level,
    no_name_of_a_partitioner,
    not_empty,
    zstd_level,
)
from aiokq.producer.serializers import Serializer
from aiokq.records.compression import GZIP, LEVELS, LZ4, ZSTD

__all__ = ["CompressionType", "ProducerSettings"]

CompressionType = Literal["none", "gzip", "snappy", "lz4", "zstd"]


class ProducerSettings(ProducerRules, ClusterSettings):
    """Settings of a producer. Names, units and defaults are mostly Kafka's.

    `batch_size` is 128 KiB instead of Kafka's 16 KiB: it is an upper limit, and the memory of a
    batch grows with its records. `linger_ms` is 5, as in Kafka since 4.0, but if it is not set,
    batches do not linger while every record is awaited (`linger_when_awaited`).

    If `delivery_timeout_ms` is set, it limits the timeouts that are not set. `linger_ms` is at most
    a quarter of `delivery_timeout_ms`, and `max_block_ms` is at most `delivery_timeout_ms`.
    `produce_request_timeout_ms` is at most half of the time that remains after `linger_ms`, but is
    not lowered below 100 ms.

    Raises:
        ConfigError: a setting is unknown, out of range, or contradicts another.
    """

    acks: Annotated[Literal[0, 1, -1, "all"], BeforeValidator(acks_as_number)] = Field(
        default=-1,
        description="Replicas that must have a record before the record counts as delivered: all "
        "in-sync replicas (-1 or 'all'), the leader (1), or none (0). With 0, a record counts as "
        "delivered once it is written to the connection, which may still buffer it; the offset of "
        "the record is -1.",
    )
    batch_size: int = Field(
        default=131_072,
        ge=0,
        le=INT32_MAX,
        description="Bytes, before compression, at which a batch is full; 0 sends each record "
        "as a batch of its own.",
    )
    linger_ms: float = Field(
        default=5.0,
        ge=0,
        le=INT32_MAX,
        description="Time in milliseconds for which a batch that is not full waits for more "
        "records; with 0, the batch is sent in the next iteration of the event loop. If "
        "delivery_timeout_ms is set and linger_ms is not, linger_ms is at most a quarter of "
        "delivery_timeout_ms.",
    )
    linger_when_awaited: bool | None = Field(
        default=None,
        description="Whether batches linger although every record of the producer is awaited and "
        "no batch is in flight. If True, they linger, as in Kafka. If False, these batches are "
        "sent as soon as the event loop is idle, at the latest after linger_ms, so that "
        "`await send()` takes one round trip. Default: True if linger_ms is set, else False. "
        "Awaiting "
        "the result of `send_many` awaits all of its records at once, or one record at a time if "
        "interceptors, serializers or a partitioner are set, so that batches then linger. Not a "
        "setting of Kafka.",
    )
    buffer_memory: int = Field(
        default=33_554_432,
        ge=1,
        le=INT64_MAX,
        description="Maximum bytes of records that are not acknowledged yet; at this limit, "
        "`send` and `enqueue` wait.",
    )
    max_block_ms: int = Field(
        default=60_000,
        ge=0,
        le=INT64_MAX,
        description="Maximum time in milliseconds for which a call waits for room in "
        "buffer_memory, and for which records wait for a topic that the cluster does not know. If "
        "delivery_timeout_ms is set and max_block_ms is not, max_block_ms is at most "
        "delivery_timeout_ms.",
    )
    max_request_size: int = Field(
        default=1_048_576,
        ge=1,
        le=INT32_MAX,
        description="Maximum bytes of the record batches in one request, and of one record.",
    )
    delivery_timeout_ms: int = Field(
        default=120_000,
        ge=1,
        le=INT32_MAX,
        description="Maximum time in milliseconds from the acceptance of a record to its delivery "
        "or failure. If delivery_timeout_ms is set, it limits the timeouts that are not set: "
        "linger_ms is at most a quarter of delivery_timeout_ms. The timeout of Produce requests is "
        "at most half of the time that remains after linger_ms, but is not lowered below 100 ms. "
        "max_block_ms is at most delivery_timeout_ms. If linger_ms and request_timeout_ms are set "
        "as well, delivery_timeout_ms must be at least their sum. If delivery_timeout_ms is not "
        "set and is below linger_ms + request_timeout_ms, it is raised to this sum.",
    )
    retries: int = Field(
        default=2**31 - 1,
        ge=0,
        le=2**31 - 1,
        description="Maximum number of times that a batch is sent again. Kafka recommends the "
        "default, and delivery_timeout_ms as the limit (KIP-91).",
    )
    max_in_flight_requests_per_connection: int = Field(
        default=5,
        ge=1,
        le=INT32_MAX,
        description="Maximum number of unanswered Produce requests to a broker.",
    )
    enable_idempotence: bool = Field(
        default=True,
        description="Whether each record is written exactly once and in order, also with retries. "
        "If enable_idempotence is not set, it is off when acks, retries or "
        "max_in_flight_requests_per_connection conflict with it. If it is set, a "
        "conflict is an error.",
    )
    metadata_max_idle_ms: int = Field(
        default=300_000,
        ge=5_000,
        le=INT64_MAX,
        description="Minimum time in milliseconds for which the metadata of a topic is kept "
        "current after the last record was sent to the topic (KIP-526); the maximum is twice this "
        "time.",
    )
    transactional_id: Annotated[str | None, AfterValidator(not_empty)] = Field(
        default=None,
        description="Transactional id. It makes the producer transactional: the records of a "
        "`transaction()` become visible together. A producer that starts with this id fences "
        "earlier producers with the same id, so each instance of a program needs its own id, and "
        "keeps it across restarts. Requires acks='all', retries above 0, enable_idempotence and at "
        "most 5 max_in_flight_requests_per_connection.",
    )
    transaction_timeout_ms: int = Field(
        default=60_000,
        ge=1,
        le=INT32_MAX,
        description="Time in milliseconds after which the broker aborts a transaction of this "
        "producer that is still open. Limited by transaction.max.timeout.ms of the broker.",
    )

    compression_type: Annotated[CompressionType, BeforeValidator(known_codec)] = Field(
        default="none",
        description="Compression codec of the batches: 'none', 'gzip', 'snappy', 'lz4' or 'zstd'.",
    )
    compression_type_by_topic: Annotated[
        Mapping[str, CompressionType], BeforeValidator(codecs_from_text)
    ] = Field(
        default_factory=dict,
        description="Compression codecs of single topics, as a mapping or as the text "
        "'orders:zstd,clicks:lz4'. Not a setting of Kafka.",
    )
    compression_gzip_level: Annotated[int, AfterValidator(gzip_level)] = Field(
        default=LEVELS[GZIP].default,
        description="Level of gzip: from 1 (fastest) to 9 (smallest), or -1 for zlib's default.",
    )
    compression_lz4_level: Annotated[int, AfterValidator(lz4_level)] = Field(
        default=LEVELS[LZ4].default,
        description="Level of lz4: from 1 to 17. The default 9 selects the fast algorithm. Each "
        "other level selects the high-compression algorithm, with the nearest level from 3 to 12.",
    )
    compression_zstd_level: Annotated[int, AfterValidator(zstd_level)] = Field(
        default=LEVELS[ZSTD].default,
        description="Level of zstd: from -131072 (fastest) to 22 (smallest).",
    )
    compression_min_bytes: int = Field(
        default=0,
        ge=0,
        le=INT32_MAX,
        description="A batch whose records have fewer bytes is sent uncompressed. The batch header "
        "does not count. Not a setting of Kafka.",
    )
    compression_max_ratio: float | None = Field(
        default=None,
        ge=0,
        le=1,
        description="A batch is sent uncompressed if the compressed size of its records is larger "
        "than their size multiplied by this number. If it is not set, the compressed records are "
        "sent whatever their size. Not a setting of Kafka.",
    )

    partitioner: Annotated[
        Partitioner | PartitionFunction | None, BeforeValidator(no_name_of_a_partitioner)
    ] = Field(
        default=None,
        description="Partitioner to use instead of murmur2 (records with a key) and sticky "
        "partitioning (records without a key): an object with partition(), or a callable that "
        "takes the key, all partitions and the partitions with a leader, as in aiokafka and "
        "kafka-python. If the result is None, the default partitioner chooses.",
    )
    partitioner_adaptive_partitioning_enable: bool = Field(
        default=True,
        description="Whether partitions with fewer waiting batches get more of the records "
        "without a key (KIP-794); otherwise all partitions get the same share.",
    )
    partitioner_availability_timeout_ms: int = Field(
        default=0,
        ge=0,
        le=INT64_MAX,
        description="Records without a key avoid the partitions of a broker to which nothing was "
        "sent for this time in milliseconds although batches wait for the broker (KIP-794); 0 "
        "turns this off. It has no effect without partitioner_adaptive_partitioning_enable.",
    )
    partitioner_ignore_keys: bool = Field(
        default=False,
        description="Whether records with a key are partitioned like records without a key.",
    )
    key_serializer: Serializer | Callable[[Any], Buffer | None] | None = Field(
        default=None,
        description="Converts keys to bytes: a callable, or an object with serialize(). It is not "
        "called for None.",
    )
    value_serializer: Serializer | Callable[[Any], Buffer | None] | None = Field(
        default=None,
        description="Converts values to bytes: a callable, or an object with serialize(). It is "
        "not called for None, which is a tombstone.",
    )
    interceptors: tuple[Interceptor, ...] = Field(
        default=(),
        description="Interceptors, with the hooks on_enqueue, on_batch, on_ack and on_error; "
        "called in the order given.",
    )

    def __repr_args__(self) -> Iterable[tuple[str | None, Any]]:
        yield from super().__repr_args__()
        yield "produce_request_timeout_ms", self.produce_request_timeout_ms
