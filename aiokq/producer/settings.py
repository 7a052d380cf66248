"""ProducerSettings: batching, memory, delivery guarantees and hooks of a producer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

from pydantic import Field, PrivateAttr, field_validator, model_validator

from aiokq.cluster.settings import ClusterSettings
from aiokq.core.types import Buffer
from aiokq.producer.interceptors import Interceptor
from aiokq.producer.partitioner import Partitioner, PartitionFunction
from aiokq.producer.serializers import Serializer
from aiokq.producer.timeouts import ProducerTimeouts, fitted
from aiokq.records.compression import CODEC_NAMES, GZIP, LEVELS, LZ4, ZSTD, check_level, codec_id

__all__ = ["CompressionType", "ProducerSettings"]

CompressionType = Literal["none", "gzip", "snappy", "lz4", "zstd"]

MAX_IDEMPOTENT_IN_FLIGHT = 5
"""A broker recognizes a repetition among a producer's last five batches of a partition."""


class ProducerSettings(ClusterSettings):
    """How records are batched, kept and delivered. Names, units and defaults are Kafka's.

    Two things differ. `batch_size` is 128 KiB, not 16: it is a ceiling, memory grows with the
    records. `linger_ms` is 5 in Kafka since 4.0, and here, but unless it is set, records that are
    awaited do not linger (`linger_when_awaited`).

    Where `delivery_timeout_ms` is set, timeouts that are not set give way to it: `linger_ms` to a
    quarter of it, `produce_request_timeout_ms` to half of the rest, `max_block_ms` to all of it.

    Raises:
        ConfigError: a setting is unknown, out of range, or contradicts another.
    """

    acks: Literal[0, 1, -1, "all"] = Field(
        default=-1,
        description="Who must have a record before it counts as delivered: nobody (0: it was "
        "written to the socket, and its offset is -1), the leader (1), or all in-sync replicas "
        "(-1 or 'all').",
    )
    batch_size: int = Field(
        default=131_072,
        ge=0,
        description="Bytes, before compression, at which a batch is full; 0 sends each record "
        "as a batch of its own.",
    )
    linger_ms: float = Field(
        default=5.0,
        ge=0,
        description="How long a batch that is not full waits for more records; 0 sends at the "
        "next turn of the event loop. Unset, at most a quarter of a delivery_timeout_ms that is "
        "set.",
    )
    linger_when_awaited: bool | None = Field(
        default=None,
        description="Whether batches linger although every record that the producer holds is "
        "awaited and none is on its way. If not, they go as soon as the event loop has nothing "
        "else to do, and linger_ms is the most they wait: `await send()` takes a round trip. "
        "Unset, they linger if linger_ms was set, as in Kafka. "
        "Who awaits what `send_many` gave awaits all of its records, unless interceptors, "
        "serializers or a partitioner are set: then they linger. Not Kafka's.",
    )
    buffer_memory: int = Field(
        default=33_554_432,
        ge=1,
        description="Bytes of records that may be unacknowledged; then `send` and `enqueue` wait.",
    )
    max_block_ms: int = Field(
        default=60_000,
        ge=0,
        description="How long a call waits for room in buffer_memory, and how long records wait "
        "for a topic that the cluster does not know. Unset, at most a delivery_timeout_ms that is "
        "set.",
    )
    max_request_size: int = Field(
        default=1_048_576,
        ge=1,
        description="Bytes of record batches in one request; also of the largest record.",
    )
    delivery_timeout_ms: int = Field(
        default=120_000,
        ge=1,
        description="From the moment a record is accepted to its delivery or failure. Where it is "
        "set, those of the others that are not give way: linger_ms is at most a quarter of it, a "
        "Produce request waits for its response at most half of the rest (100 ms at least), and "
        "max_block_ms is at most equal to it. Set together, it is at least linger_ms + "
        "request_timeout_ms. Unset, it is raised to that.",
    )
    retries: int = Field(
        default=2**31 - 1,
        ge=0,
        le=2**31 - 1,
        description="How often a batch is sent again. delivery_timeout_ms is the better limit.",
    )
    max_in_flight_requests_per_connection: int = Field(
        default=5,
        ge=1,
        description="Produce requests a broker may owe an answer for.",
    )
    enable_idempotence: bool = Field(
        default=True,
        description="Each record is written exactly once and in order, whatever is retried. "
        "Unset, it is off where acks, retries or max_in_flight_requests_per_connection "
        "conflict with it.",
    )
    metadata_max_idle_ms: int = Field(
        default=300_000,
        ge=5_000,
        description="How long a topic's metadata is kept current without a record for it.",
    )
    transactional_id: str | None = Field(
        default=None, description="Not supported yet: transactions come with a later version."
    )

    compression_type: CompressionType = Field(
        default="none", description="Codec of the batches: none, gzip, snappy, lz4 or zstd."
    )
    compression_type_by_topic: Mapping[str, CompressionType] = Field(
        default_factory=dict,
        description="Codecs of single topics; as text 'orders:zstd,clicks:lz4'. Not Kafka's.",
    )
    compression_gzip_level: int = Field(
        default=LEVELS[GZIP].default, description="1 (fast) to 9 (small), or -1 for zlib's own."
    )
    compression_lz4_level: int = Field(
        default=LEVELS[LZ4].default, description="1 to 17; 9, the default, is the fast one."
    )
    compression_zstd_level: int = Field(
        default=LEVELS[ZSTD].default, description="-131072 (fast) to 22 (small)."
    )

    partitioner: Partitioner | PartitionFunction | None = Field(
        default=None,
        description="Chooses partitions instead of murmur2 (with a key) and sticky (without): an "
        "object with partition(), or a callable that takes the key, all partitions and those with "
        "a leader, as in aiokafka and kafka-python. A result of None leaves the choice to the "
        "default.",
    )
    partitioner_adaptive_partitioning_enable: bool = Field(
        default=True,
        description="Whether records without a key go rather to partitions whose broker keeps up "
        "(KIP-794), else to all alike.",
    )
    partitioner_availability_timeout_ms: int = Field(
        default=0,
        ge=0,
        description="Records without a key avoid partitions whose broker has been sent nothing "
        "for this long though there is something to send; 0 does not avoid any.",
    )
    partitioner_ignore_keys: bool = Field(
        default=False, description="Partition records with a key like those without one."
    )
    key_serializer: Serializer | Callable[[Any], Buffer | None] | None = Field(
        default=None,
        description="Makes bytes of keys: a callable, or an object with serialize(). None, no key, "
        "is not asked for.",
    )
    value_serializer: Serializer | Callable[[Any], Buffer | None] | None = Field(
        default=None,
        description="Makes bytes of values: a callable, or an object with serialize(). None, "
        "which deletes a key, is not asked for.",
    )
    interceptors: tuple[Interceptor, ...] = Field(
        default=(), description="Hooks on_enqueue, on_batch, on_ack and on_error, in order."
    )

    _produce_request_timeout_ms: int = PrivateAttr(default=30_000)

    def __repr_args__(self) -> Iterable[tuple[str | None, Any]]:
        yield from super().__repr_args__()
        yield "produce_request_timeout_ms", self.produce_request_timeout_ms

    @field_validator("acks", mode="before")
    @classmethod
    def _acks_as_number(cls, value: Any) -> Any:
        if isinstance(value, bool):
            raise ValueError("acks is 0, 1, -1 or 'all'")
        if isinstance(value, str):
            text = value.strip().lower()
            known = {"all": -1, "-1": -1, "0": 0, "1": 1}
            if text not in known:
                raise ValueError(f"acks is 0, 1, -1 or 'all', not {value!r}")
            return known[text]
        return value  # "all" is kept as -1

    @field_validator("partitioner", mode="before")
    @classmethod
    def _no_name_of_a_partitioner(cls, value: Any) -> Any:
        # str has a method partition(), and so has a class of which no object was made.
        plain = isinstance(value, type) or not (callable(value) or isinstance(value, Partitioner))
        if value is not None and (plain or isinstance(value, str | bytes | bytearray)):
            raise ValueError(
                "it is a callable (key, partitions, available) -> int, or an object with "
                f"partition(), not {value!r}"
            )
        return value

    @field_validator("compression_type", mode="before")
    @classmethod
    def _known_codec(cls, value: Any) -> Any:
        if isinstance(value, str):
            codec_id(value)  # its ConfigError lists the names
        return value

    @field_validator("compression_type_by_topic", mode="before")
    @classmethod
    def _codecs_from_text(cls, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        codecs: dict[str, str] = {}
        for part in filter(None, map(str.strip, value.split(","))):
            topic, colon, codec = part.rpartition(":")
            if not colon or codec not in CODEC_NAMES:
                raise ValueError(f"{part!r} is not 'topic:codec'")
            codecs[topic] = codec
        return codecs

    @field_validator("compression_gzip_level", "compression_lz4_level", "compression_zstd_level")
    @classmethod
    def _level_in_range(cls, value: int, info: Any) -> int:
        return check_level(codec_id(info.field_name.split("_")[1]), value)

    @field_validator("transactional_id", mode="after")
    @classmethod
    def _no_transactions_yet(cls, value: str | None) -> str | None:
        if value is not None:
            raise ValueError(
                "transactions are not supported yet: leave transactional_id out; "
                "enable_idempotence alone keeps records single and in order"
            )
        return value

    @model_validator(mode="after")
    def _consistent_idempotence(self) -> ProducerSettings:
        limit = MAX_IDEMPOTENT_IN_FLIGHT
        in_flight = self.max_in_flight_requests_per_connection
        conflicts = []
        if self.acks != -1:
            conflicts.append(f"acks={self.acks} (it needs 'all')")
        if self.retries == 0:
            conflicts.append("retries=0 (it needs at least 1)")
        if in_flight > limit:
            conflicts.append(
                f"max_in_flight_requests_per_connection={in_flight} (it needs {limit} or fewer)"
            )
        if conflicts and self.enable_idempotence:
            if "enable_idempotence" in self.model_fields_set:
                raise ValueError("enable_idempotence conflicts with " + ", ".join(conflicts))
            self._settle("enable_idempotence", False)
        return self

    @model_validator(mode="after")
    def _fit_timeouts(self) -> ProducerSettings:
        given = ProducerTimeouts(
            self.linger_ms, self.request_timeout_ms, self.delivery_timeout_ms, self.max_block_ms
        )
        # What was given to the Cluster limits its requests; it asks for nothing of this producer.
        held = fitted(given, self.explicit - self.of_cluster)
        self._settle("linger_ms", held.linger_ms)
        self._settle("delivery_timeout_ms", held.delivery_timeout_ms)
        self._settle("max_block_ms", held.max_block_ms)
        self._produce_request_timeout_ms = held.request_timeout_ms
        return self

    def _settle(self, name: str, value: object) -> None:
        """Sets what follows from the other settings, without counting as given."""
        self.__dict__[name] = value

    @property
    def required_acks(self) -> int:
        """``acks`` as it is sent: 0, 1 or -1."""
        return -1 if self.acks == "all" else self.acks

    @property
    def produce_request_timeout_ms(self) -> int:
        """How long a Produce request of this producer may wait for its response.

        `request_timeout_ms`, or what a `delivery_timeout_ms` that was set leaves of it. Other
        requests have `request_timeout_ms`.
        """
        return self._produce_request_timeout_ms

    @property
    def timeouts(self) -> ProducerTimeouts:
        """The limits that hold, derived ones included."""
        return ProducerTimeouts(
            self.linger_ms,
            self.produce_request_timeout_ms,
            self.delivery_timeout_ms,
            self.max_block_ms,
        )

    @property
    def linger(self) -> float:
        """``linger_ms`` in seconds."""
        return self.linger_ms / 1000

    @property
    def lingers_when_awaited(self) -> bool:
        """``linger_when_awaited``, or what follows from ``linger_ms``: what was set is done."""
        if self.linger_when_awaited is None:
            return "linger_ms" in self.model_fields_set
        return self.linger_when_awaited

    @property
    def delivery_timeout(self) -> float:
        """``delivery_timeout_ms`` in seconds."""
        return self.delivery_timeout_ms / 1000

    @property
    def max_block(self) -> float:
        """``max_block_ms`` in seconds."""
        return self.max_block_ms / 1000

    def compression_level(self, codec: int) -> int | None:
        """The level set for a codec; None for codecs without levels."""
        levels = {
            GZIP: self.compression_gzip_level,
            LZ4: self.compression_lz4_level,
            ZSTD: self.compression_zstd_level,
        }
        return levels.get(codec)
