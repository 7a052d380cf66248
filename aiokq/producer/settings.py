"""ProducerSettings: batching, memory, delivery guarantees and hooks of a producer."""

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
    no_transactions_yet,
    zstd_level,
)
from aiokq.producer.serializers import Serializer
from aiokq.records.compression import GZIP, LEVELS, LZ4, ZSTD

__all__ = ["CompressionType", "ProducerSettings"]

CompressionType = Literal["none", "gzip", "snappy", "lz4", "zstd"]


class ProducerSettings(ProducerRules, ClusterSettings):
    """How records are batched, kept and delivered. Names, units and defaults are mostly Kafka's.

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
        description="Which replicas must have a record before it counts as delivered: none (0: it "
        "was written to the connection, which may still buffer it, and its offset is -1), the "
        "leader (1), or all in-sync replicas (-1 or 'all').",
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
        description="How long a batch that is not full waits for more records; 0 sends at the "
        "next turn of the event loop. Unset, at most a quarter of a delivery_timeout_ms that is "
        "set.",
    )
    linger_when_awaited: bool | None = Field(
        default=None,
        description="Whether batches linger although every record of the producer is awaited and "
        "no batch is in flight. If not, such batches are sent as soon as the event loop is idle, "
        "at the latest after linger_ms, so that `await send()` takes one round trip. Unset, "
        "batches linger if linger_ms was set, as in Kafka. Awaiting the result of `send_many` "
        "awaits all of its records, unless interceptors, serializers or a partitioner are set: "
        "then batches linger. Not Kafka's.",
    )
    buffer_memory: int = Field(
        default=33_554_432,
        ge=1,
        le=INT64_MAX,
        description="Bytes of records that may be unacknowledged; at this limit `send` and "
        "`enqueue` wait.",
    )
    max_block_ms: int = Field(
        default=60_000,
        ge=0,
        le=INT64_MAX,
        description="How long a call waits for memory in buffer_memory, and how long records wait "
        "for a topic that the cluster does not know. Unset, at most a delivery_timeout_ms that is "
        "set.",
    )
    max_request_size: int = Field(
        default=1_048_576,
        ge=1,
        le=INT32_MAX,
        description="Largest size of the record batches in one request, and of one record.",
    )
    delivery_timeout_ms: int = Field(
        default=120_000,
        ge=1,
        le=INT32_MAX,
        description="The time from the acceptance of a record to its delivery or failure. If it "
        "is set, it limits the timeouts that are unset: linger_ms to a quarter of it, the wait "
        "for a Produce response to half of the rest (but not below 100 ms), and max_block_ms to "
        "all of it. It must be at least linger_ms + request_timeout_ms if those are also set; "
        "unset, it is raised to that sum.",
    )
    retries: int = Field(
        default=2**31 - 1,
        ge=0,
        le=2**31 - 1,
        description="Maximum number of retries of a batch. delivery_timeout_ms is the better "
        "limit.",
    )
    max_in_flight_requests_per_connection: int = Field(
        default=5,
        ge=1,
        le=INT32_MAX,
        description="Maximum number of unanswered Produce requests to a broker.",
    )
    enable_idempotence: bool = Field(
        default=True,
        description="Whether each record is written exactly once and in order, also with "
        "retries. Unset, it is off if acks, retries or max_in_flight_requests_per_connection "
        "conflict with it.",
    )
    metadata_max_idle_ms: int = Field(
        default=300_000,
        ge=5_000,
        le=INT64_MAX,
        description="How long a topic's metadata is refreshed while no record is sent to the "
        "topic.",
    )
    transactional_id: Annotated[str | None, AfterValidator(no_transactions_yet)] = Field(
        default=None, description="Not supported yet, because aiokq has no transactions."
    )

    compression_type: Annotated[CompressionType, BeforeValidator(known_codec)] = Field(
        default="none", description="Codec of the batches: none, gzip, snappy, lz4 or zstd."
    )
    compression_type_by_topic: Annotated[
        Mapping[str, CompressionType], BeforeValidator(codecs_from_text)
    ] = Field(
        default_factory=dict,
        description="Codecs of single topics; as text 'orders:zstd,clicks:lz4'. Not Kafka's.",
    )
    compression_gzip_level: Annotated[int, AfterValidator(gzip_level)] = Field(
        default=LEVELS[GZIP].default, description="1 (fast) to 9 (small), or -1 for zlib's default."
    )
    compression_lz4_level: Annotated[int, AfterValidator(lz4_level)] = Field(
        default=LEVELS[LZ4].default, description="1 to 17; 9, the default, is the fast algorithm."
    )
    compression_zstd_level: Annotated[int, AfterValidator(zstd_level)] = Field(
        default=LEVELS[ZSTD].default, description="-131072 (fast) to 22 (small)."
    )

    partitioner: Annotated[
        Partitioner | PartitionFunction | None, BeforeValidator(no_name_of_a_partitioner)
    ] = Field(
        default=None,
        description="Partitioner to use instead of murmur2 (records with a key) and sticky "
        "partitioning (records without): an object with partition(), or a callable that takes "
        "the key, all partitions and the partitions with a leader, as in aiokafka and "
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
        description="Time after which records without a key avoid the partitions of a broker "
        "that was sent nothing although batches wait for it; 0 avoids no partitions.",
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
        "not called for None, a tombstone.",
    )
    interceptors: tuple[Interceptor, ...] = Field(
        default=(),
        description="Interceptors, with the hooks on_enqueue, on_batch, on_ack and on_error; "
        "called in the order given.",
    )

    def __repr_args__(self) -> Iterable[tuple[str | None, Any]]:
        yield from super().__repr_args__()
        yield "produce_request_timeout_ms", self.produce_request_timeout_ms
