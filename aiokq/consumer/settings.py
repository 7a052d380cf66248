"""ConsumerSettings: where to start, how much to fetch ahead, and what to make of records."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final, Literal

from pydantic import Field, field_validator, model_validator

from aiokq.cluster.settings import ClusterSettings
from aiokq.consumer.deserializers import Deserializer

__all__ = ["ConsumerSettings", "duration_ms"]

GROUP_SETTINGS: Final = frozenset(
    (
        "auto_commit_interval_ms",
        "group_protocol",
        "group_remote_assignor",
        "heartbeat_interval_ms",
        "max_poll_interval_ms",
        "partition_assignment_strategy",
        "rebalance_timeout_ms",
        "session_timeout_ms",
    )
)
"""Settings that mean something in a group only."""

NO_GROUPS_YET: Final = (
    "consumer groups are not supported yet: leave it out; without a group a consumer takes all "
    "partitions of what it subscribes to, or those given to assign()"
)

BY_DURATION: Final = "by_duration:"

_DURATION: Final = re.compile(
    r"P(?:(?P<days>\d+)D)?"
    r"(?:T(?=\d)(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d{1,9})?)S)?)?"
)


def duration_ms(text: str) -> int:
    """Milliseconds of an ISO 8601 duration in days, hours, minutes and seconds, as `PT1H30M`.

    Raises:
        ValueError: it is none.

    Source: java.time.Duration.parse, which Kafka uses (KIP-1106).
    """
    match = _DURATION.fullmatch(text.strip().upper())
    if match is None or not any(match.groups()):
        raise ValueError(f"{text!r} is no ISO 8601 duration such as 'PT1H30M' or 'P2D'")
    days, hours, minutes, seconds = (float(part or 0) for part in match.groups())
    return round((((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000)


class ConsumerSettings(ClusterSettings):
    """How a consumer starts, fetches and hands over. Names, units and defaults are Kafka's.

    Raises:
        ConfigError: a setting is unknown, out of range, or contradicts another.
    """

    auto_offset_reset: str = Field(
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
        description="Bytes that a broker waits for, up to fetch_max_wait_ms, before it answers.",
    )
    fetch_max_wait_ms: int = Field(
        default=500,
        ge=0,
        description="How long a broker may hold a fetch while there are fewer than "
        "fetch_min_bytes.",
    )
    fetch_max_bytes: int = Field(
        default=52_428_800,
        ge=0,
        description="Bytes of records in one response. A first batch that is larger comes all "
        "the same (KIP-74).",
    )
    max_partition_fetch_bytes: int = Field(
        default=1_048_576,
        ge=0,
        description="Bytes of one partition in one response, likewise; a partition that has as "
        "much waiting is not fetched further.",
    )
    queued_max_bytes: int = Field(
        default=67_108_864,
        ge=1,
        description="Bytes fetched ahead, over all partitions, while user code runs; one response "
        "per broker may come on top. Not Kafka's: librdkafka's queued.max.messages.kbytes.",
    )
    max_poll_records: int = Field(
        default=500, ge=1, description="Most records that `getmany` returns unless told otherwise."
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
        default=None, description="Not supported yet: groups come with a later version."
    )
    group_instance_id: str | None = Field(
        default=None, description="Not supported yet: groups come with a later version."
    )
    enable_auto_commit: bool = Field(
        default=False,
        description="Not supported yet: there is nothing to commit to without a group. "
        "(Kafka's default is true.)",
    )

    @model_validator(mode="before")
    @classmethod
    def _no_group_settings(cls, values: Any) -> Any:
        if isinstance(values, dict) and (given := sorted(GROUP_SETTINGS & values.keys())):
            raise ValueError(f"{given[0]}: {NO_GROUPS_YET}")
        return values

    @field_validator("group_id", "group_instance_id", "enable_auto_commit", mode="after")
    @classmethod
    def _no_groups_yet(cls, value: Any) -> Any:
        if value:
            raise ValueError(NO_GROUPS_YET)
        return value

    @field_validator("auto_offset_reset", mode="after")
    @classmethod
    def _known_policy(cls, value: str) -> str:
        policy = value.strip()
        if policy.lower() in ("earliest", "latest", "none"):
            return policy.lower()
        if policy.lower().startswith(BY_DURATION):
            duration_ms(policy[len(BY_DURATION) :])
            return BY_DURATION + policy[len(BY_DURATION) :].upper()
        raise ValueError(
            f"{value!r} is not 'earliest', 'latest', 'none' or 'by_duration:<ISO 8601 duration>'"
        )

    @property
    def reset_duration_ms(self) -> int | None:
        """Milliseconds of a by_duration policy; None for the others."""
        policy = self.auto_offset_reset
        return duration_ms(policy[len(BY_DURATION) :]) if policy.startswith(BY_DURATION) else None

    @property
    def fetch_max_wait(self) -> float:
        """``fetch_max_wait_ms`` in seconds."""
        return self.fetch_max_wait_ms / 1000

    @property
    def committed_only(self) -> bool:
        """Whether ``isolation_level`` is read_committed."""
        return self.isolation_level == "read_committed"
