"""ConsumerSettings: the settings of a consumer and its group membership."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import AfterValidator, BeforeValidator, Field

from aiokq.assign.assignor import Assignor
from aiokq.cluster.settings import ClusterSettings
from aiokq.consumer.deserializers import Deserializer
from aiokq.consumer.rules import (
    ConsumerRules,
    in_any_case,
    known_assignors,
    known_policy,
    one_or_several,
)
from aiokq.core.limits import INT32_MAX, INT64_MAX

__all__ = ["ConsumerSettings"]

GroupProtocol: TypeAlias = Literal["classic", "consumer", "auto"]


class ConsumerSettings(ConsumerRules, ClusterSettings):
    """The settings of a consumer.

    Settings that exist in Kafka have Kafka's names, units and defaults, except for two defaults,
    which the docstring of `ClusterSettings` names.

    Raises:
        ConfigError: a setting is unknown, out of range, or contradicts another.
    """

    auto_offset_reset: Annotated[str, AfterValidator(known_policy)] = Field(
        default="latest",
        description="Where to start in a partition without a committed offset, or if the position "
        "is out of range: 'earliest', 'latest', 'by_duration:PT1H' (the first record "
        "of the last hour; KIP-1106), or 'none', which raises an error.",
    )
    new_partitions: Literal["earliest", "auto_offset_reset"] = Field(
        default="earliest",
        description="Where to start in partitions and topics that are created after the "
        "subscription. Not a setting of Kafka: Java's consumer uses "
        "auto_offset_reset, and with 'latest' misses records that were written before "
        "it discovers such a partition.",
    )
    isolation_level: Literal["read_uncommitted", "read_committed"] = Field(
        default="read_uncommitted",
        description="'read_committed' delivers no records of open or aborted transactions; "
        "'read_uncommitted' delivers all records.",
    )
    check_crcs: bool = Field(
        default=True, description="Whether the CRC-32 checksum of each batch is verified."
    )

    fetch_min_bytes: int = Field(
        default=1,
        ge=0,
        le=INT32_MAX,
        description="Bytes of records for which a broker waits, at most fetch_max_wait_ms, before "
        "it answers a fetch.",
    )
    fetch_max_wait_ms: int = Field(
        default=500,
        ge=0,
        le=INT32_MAX,
        description="Maximum time in milliseconds for which a broker waits for fetch_min_bytes "
        "before it answers a fetch.",
    )
    fetch_max_bytes: int = Field(
        default=52_428_800,
        ge=0,
        le=INT32_MAX,
        description="Maximum bytes of records in one fetch response. The first batch is returned "
        "even if it is larger (KIP-74).",
    )
    max_partition_fetch_bytes: int = Field(
        default=1_048_576,
        ge=0,
        le=INT32_MAX,
        description="Maximum bytes of records of one partition in one fetch response. The first "
        "batch is returned even if it is larger (KIP-74). A partition with twice as many "
        "bytes buffered is not fetched.",
    )
    queued_max_bytes: int = Field(
        default=67_108_864,
        ge=1,
        le=INT64_MAX,
        description="Maximum bytes fetched ahead for all partitions while user code runs; one "
        "response per broker may exceed it. Not a setting of Kafka; like librdkafka's "
        "queued.max.messages.kbytes.",
    )
    max_poll_records: int = Field(
        default=500,
        ge=1,
        le=INT32_MAX,
        description="Maximum number of records that `getmany` returns if its argument max_records "
        "is not given.",
    )

    exclude_internal_topics: bool = Field(
        default=True,
        description="Whether a subscription by pattern excludes internal topics such as "
        "__consumer_offsets.",
    )

    key_deserializer: Deserializer | Callable[[bytes], Any] | None = Field(
        default=None,
        description="Deserializer of keys: a callable, or an object with deserialize().",
    )
    value_deserializer: Deserializer | Callable[[bytes], Any] | None = Field(
        default=None,
        description="Deserializer of values: a callable, or an object with deserialize().",
    )

    group_id: str | None = Field(
        default=None,
        description="The group to join: its members share the partitions, and offsets are "
        "committed to the group. A consumer without a group_id reads all partitions and commits "
        "nothing.",
    )
    group_instance_id: str | None = Field(
        default=None,
        description="Permanent id that makes the consumer a static member, which keeps its "
        "partitions if it is restarted within the session timeout (KIP-345).",
    )
    group_protocol: Annotated[GroupProtocol, BeforeValidator(in_any_case)] = Field(
        default="classic",
        description="'classic', in which a member assigns the partitions; 'consumer' (KIP-848), "
        "in which the broker assigns them; or 'auto', the consumer protocol if broker "
        "and group allow it, otherwise the classic protocol.",
    )
    group_remote_assignor: str | None = Field(
        default=None,
        description="Assignor that the broker uses with the consumer protocol: 'uniform' or "
        "'range'. Default: the broker chooses.",
    )
    partition_assignment_strategy: Annotated[
        tuple[str | Assignor, ...],
        BeforeValidator(one_or_several),
        AfterValidator(known_assignors),
    ] = Field(
        default=("range", "cooperative-sticky"),
        description="Assignors of the classic protocol, most preferred first: 'range', "
        "'roundrobin', 'sticky', 'cooperative-sticky', Java's class names, or an Assignor of your "
        "own.",
    )
    session_timeout_ms: int = Field(
        default=45_000,
        ge=1,
        le=INT32_MAX,
        description="Time in milliseconds without a heartbeat after which a member is removed from "
        "the group. Classic protocol; with the consumer protocol the broker's setting applies.",
    )
    heartbeat_interval_ms: int = Field(
        default=3_000,
        ge=1,
        le=INT32_MAX,
        description="Interval in milliseconds between heartbeats, whose responses also announce "
        "rebalances. Classic protocol; with the consumer protocol the broker's setting applies.",
    )
    max_poll_interval_ms: int = Field(
        default=300_000,
        ge=1,
        le=INT32_MAX,
        description="Time in milliseconds without a request for a record after which a member "
        "leaves its group. It joins again when the application requests a record.",
    )
    rebalance_timeout_ms: int | None = Field(
        default=None,
        ge=1,
        le=INT32_MAX,
        description="Maximum time in milliseconds for which a rebalance waits for the members: "
        "until then, records in progress and rebalance handlers must be finished. Default: "
        "max_poll_interval_ms, as in Java.",
    )
    enable_auto_commit: bool = Field(
        default=True,
        description="Whether finished records are committed automatically: every "
        "auto_commit_interval_ms, in rebalances and when the consumer closes. An explicit true "
        "needs a group_id.",
    )
    auto_commit_interval_ms: int = Field(
        default=5_000,
        ge=1,
        le=INT32_MAX,
        description="Interval in milliseconds at which finished records are committed "
        "automatically.",
    )
    ack_mode: Literal["implicit", "explicit"] = Field(
        default="implicit",
        description="When a record is finished: when the next record or batch is requested "
        "('implicit'), or when the record is passed to ack() ('explicit'). Not a setting of Kafka.",
    )
