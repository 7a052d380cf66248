"""ConsumerSettings: where to start, how much to fetch ahead, what to make of records, the group."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final, Literal, Self, TypeAlias

from pydantic import Field, field_validator, model_validator

from aiokq.assign.assignor import Assignor, resolve
from aiokq.cluster.settings import ClusterSettings
from aiokq.consumer.deserializers import Deserializer

__all__ = ["ConsumerSettings", "duration_ms"]

GROUP_SETTINGS: Final = (
    "ack_mode",
    "auto_commit_interval_ms",
    "group_instance_id",
    "group_protocol",
    "group_remote_assignor",
    "heartbeat_interval_ms",
    "max_poll_interval_ms",
    "partition_assignment_strategy",
    "rebalance_timeout_ms",
    "session_timeout_ms",
)
"""Settings that mean something in a group only."""

CLASSIC_ONLY: Final = (
    "heartbeat_interval_ms",
    "partition_assignment_strategy",
    "session_timeout_ms",
)
"""Settings that the broker decides on with the consumer protocol."""

GroupProtocol: TypeAlias = Literal["classic", "consumer", "auto"]

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
        default=None,
        description="The group to be a member of: its members share the partitions, and it keeps "
        "the offsets. Without one a consumer takes all partitions, and nothing is committed.",
    )
    group_instance_id: str | None = Field(
        default=None,
        description="A name that stays over restarts: a static member, which gets its partitions "
        "back if it returns within the session timeout (KIP-345).",
    )
    group_protocol: GroupProtocol = Field(
        default="classic",
        description="'classic', where members assign, 'consumer' (KIP-848), where the broker does, "
        "or 'auto': the consumer protocol where broker and group allow it.",
    )
    group_remote_assignor: str | None = Field(
        default=None,
        description="The broker's assignor to use, of the consumer protocol: 'uniform' or 'range'; "
        "the broker's default if not given.",
    )
    partition_assignment_strategy: tuple[str | Assignor, ...] = Field(
        default=("range", "cooperative-sticky"),
        description="Assignors of the classic protocol, most preferred first: 'range', "
        "'roundrobin', 'sticky', 'cooperative-sticky', Java's class names, or an Assignor of your "
        "own.",
    )
    session_timeout_ms: int = Field(
        default=45_000,
        ge=1,
        description="A member that is not heard of for so long is expelled. Classic protocol; "
        "with the consumer protocol the broker's setting counts.",
    )
    heartbeat_interval_ms: int = Field(
        default=3_000,
        ge=1,
        description="How often a member says that it lives, and hears of rebalances. Classic "
        "protocol; with the consumer protocol the broker's setting counts.",
    )
    max_poll_interval_ms: int = Field(
        default=300_000,
        ge=1,
        description="A member of which nobody asks for records for so long leaves its group, and "
        "joins again when it is read from again.",
    )
    rebalance_timeout_ms: int | None = Field(
        default=None,
        ge=1,
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
        default=5_000, ge=1, description="How often finished records are committed."
    )
    ack_mode: Literal["implicit", "explicit"] = Field(
        default="implicit",
        description="When a record is finished: when the next one is asked for, or when it is "
        "given to ack(). Not Kafka's.",
    )

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        given = self.explicit
        if self.group_id is None:
            if lonely := [name for name in GROUP_SETTINGS if name in given and getattr(self, name)]:
                raise ValueError(
                    f"{lonely[0]} means something in a group only: set group_id too, or leave it "
                    "out"
                )
            if "enable_auto_commit" in given and self.enable_auto_commit:
                raise ValueError(
                    "enable_auto_commit needs a group to commit to: set group_id, or leave it out"
                )
        elif not self.group_id:
            raise ValueError("group_id is empty: name the group, or leave it out")
        if self.group_protocol == "consumer":
            if wrong := [name for name in CLASSIC_ONLY if name in given]:
                raise ValueError(
                    f"{wrong[0]} is the broker's to decide with group_protocol='consumer' "
                    "(group.consumer.* there): leave it out, or set group_protocol='classic'"
                )
        elif self.group_protocol == "classic" and self.group_remote_assignor is not None:
            raise ValueError(
                "group_remote_assignor is of the consumer protocol: set group_protocol='consumer', "
                "or name assignors in partition_assignment_strategy"
            )
        if self.heartbeat_interval_ms >= self.session_timeout_ms:
            raise ValueError(
                f"heartbeat_interval_ms={self.heartbeat_interval_ms} must be below "
                f"session_timeout_ms={self.session_timeout_ms}, best a third of it: one lost "
                "heartbeat would expel the member"
            )
        if self.group_instance_id is not None and not self.group_instance_id:
            raise ValueError("group_instance_id is empty: name the member, or leave it out")
        return self

    @field_validator("group_protocol", mode="before")
    @classmethod
    def _in_any_case(cls, value: object) -> object:
        return value.strip().lower() if isinstance(value, str) else value

    @field_validator("partition_assignment_strategy", mode="before")
    @classmethod
    def _one_or_several(cls, value: object) -> object:
        several = value if isinstance(value, (list, tuple)) else (value,)
        for item in several:
            if isinstance(item, type):
                raise ValueError(f"{item.__name__} is a class: give an object of it")
            if not isinstance(item, (str, Assignor)):
                raise ValueError(
                    f"{item!r} is neither the name of an assignor nor one: an Assignor has "
                    "name, rebalance_protocols, user_data(), assign() and assigned()"
                )
        return tuple(several)

    @field_validator("partition_assignment_strategy", mode="after")
    @classmethod
    def _known_assignors(cls, value: tuple[str | Assignor, ...]) -> tuple[str | Assignor, ...]:
        resolve(value)
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

    @property
    def auto_commit(self) -> bool:
        """Whether offsets are committed without being asked: there is a group, and it is wanted."""
        return self.group_id is not None and self.enable_auto_commit

    @property
    def auto_commit_interval(self) -> float:
        """``auto_commit_interval_ms`` in seconds."""
        return self.auto_commit_interval_ms / 1000

    @property
    def max_poll_interval(self) -> float:
        """``max_poll_interval_ms`` in seconds."""
        return self.max_poll_interval_ms / 1000

    @property
    def rebalance_timeout(self) -> float:
        """``rebalance_timeout_ms`` in seconds, or what stands for it."""
        milliseconds = self.rebalance_timeout_ms
        return (self.max_poll_interval_ms if milliseconds is None else milliseconds) / 1000
