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
    """The settings of a consumer. Names, units and defaults are Kafka's.

    Raises:
        ConfigError: a setting is unknown, out of range, or contradicts another.
    """

    auto_offset_reset: Annotated[str, AfterValidator(known_policy)] = Field(
        default="latest",
        description="Where to start in a partition without a position, and after the position "
        "fell out of the log: 'earliest', 'latest', 'by_duration:PT1H' (the first record of the "
        "last hour, here; KIP-1106), or 'none', which raises.",
    )
    new_partitions: Literal["earliest", "auto_offset_reset"] = Field(
        default="earliest",
        description="Where to start in partitions and topics that come to exist after the "
        "subscription. Not Kafka's: Java follows auto_offset_reset, and with 'latest' misses "
        "what was written before it noticed them.",
    )
    isolation_level: Literal["read_uncommitted", "read_committed"] = Field(
        default="read_uncommitted",
        description="Whether records of open and aborted transactions are handed over.",
    )
    check_crcs: bool = Field(
        default=True, description="Whether the checksum of each batch is verified."
    )

    fetch_min_bytes: int = Field(
        default=1,
        ge=0,
        le=INT32_MAX,
        description="Bytes that a broker waits for, up to fetch_max_wait_ms, before it answers.",
    )
    fetch_max_wait_ms: int = Field(
        default=500,
        ge=0,
        le=INT32_MAX,
        description="How long a broker may hold a fetch while there are fewer than "
        "fetch_min_bytes.",
    )
    fetch_max_bytes: int = Field(
        default=52_428_800,
        ge=0,
        le=INT32_MAX,
        description="Bytes of records in one response. A first batch that is larger comes all "
        "the same (KIP-74).",
    )
    max_partition_fetch_bytes: int = Field(
        default=1_048_576,
        ge=0,
        le=INT32_MAX,
        description="Bytes of one partition in one response, likewise; a partition that has as "
        "much waiting is not fetched further.",
    )
    queued_max_bytes: int = Field(
        default=67_108_864,
        ge=1,
        le=INT64_MAX,
        description="Bytes fetched ahead, over all partitions, while user code runs; one response "
        "per broker may come on top. Not Kafka's: librdkafka's queued.max.messages.kbytes.",
    )
    max_poll_records: int = Field(
        default=500,
        ge=1,
        le=INT32_MAX,
        description="Most records that `getmany` returns unless told otherwise.",
    )

    exclude_internal_topics: bool = Field(
        default=True,
        description="Whether a pattern leaves internal topics such as __consumer_offsets out.",
    )

    key_deserializer: Deserializer | Callable[[bytes], Any] | None = Field(
        default=None,
        description="Makes objects of keys: a callable, or an object with deserialize().",
    )
    value_deserializer: Deserializer | Callable[[bytes], Any] | None = Field(
        default=None,
        description="Makes objects of values: a callable, or an object with deserialize().",
    )

    group_id: str | None = Field(
        default=None,
        description="The group to be a member of: its members share the partitions, and it keeps "
        "the offsets. Without one a consumer takes all partitions, and nothing is committed.",
    )
    group_instance_id: str | None = Field(
        default=None,
        description="A name that stays over restarts: a static member, which gets its partitions "
        "back if it returns within the session timeout (KIP-345).",
    )
    group_protocol: Annotated[GroupProtocol, BeforeValidator(in_any_case)] = Field(
        default="classic",
        description="'classic', where members assign, 'consumer' (KIP-848), where the broker does, "
        "or 'auto': the consumer protocol where broker and group allow it.",
    )
    group_remote_assignor: str | None = Field(
        default=None,
        description="The broker's assignor to use, of the consumer protocol: 'uniform' or 'range'; "
        "the broker's default if not given.",
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
        description="A member that is not heard of for so long is expelled. Classic protocol; "
        "with the consumer protocol the broker's setting counts.",
    )
    heartbeat_interval_ms: int = Field(
        default=3_000,
        ge=1,
        le=INT32_MAX,
        description="How often a member says that it lives, and hears of rebalances. Classic "
        "protocol; with the consumer protocol the broker's setting counts.",
    )
    max_poll_interval_ms: int = Field(
        default=300_000,
        ge=1,
        le=INT32_MAX,
        description="A member of which nobody asks for records for so long leaves its group, and "
        "joins again when it is read from again.",
    )
    rebalance_timeout_ms: int | None = Field(
        default=None,
        ge=1,
        le=INT32_MAX,
        description="How long the group waits for its members in a rebalance: records in work and "
        "rebalance handlers must be done by then. max_poll_interval_ms if not given, as in Java.",
    )
    enable_auto_commit: bool = Field(
        default=True,
        description="Whether finished records are committed by themselves: every "
        "auto_commit_interval_ms, in rebalances and at the end. Without a group_id there is "
        "nothing to commit to: true is refused then, if given.",
    )
    auto_commit_interval_ms: int = Field(
        default=5_000,
        ge=1,
        le=INT32_MAX,
        description="How often finished records are committed.",
    )
    ack_mode: Literal["implicit", "explicit"] = Field(
        default="implicit",
        description="When a record is finished: when the next one is asked for, or when it is "
        "given to ack(). Not Kafka's.",
    )
