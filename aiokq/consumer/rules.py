"""ConsumerRules: compares consumer settings with each other, and computes values from settings.

The functions check and convert single settings.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, Literal

from aiokq.assign.assignor import Assignor, resolve
from aiokq.cluster.rules import ClusterRules

if TYPE_CHECKING:
    from aiokq.consumer.settings import GroupProtocol

__all__ = [
    "ConsumerRules",
    "duration_ms",
    "in_any_case",
    "known_assignors",
    "known_policy",
    "one_or_several",
]

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
"""Settings that only apply in a group."""

CLASSIC_ONLY: Final = (
    "heartbeat_interval_ms",
    "partition_assignment_strategy",
    "session_timeout_ms",
)
"""With the consumer protocol, the broker's configuration applies instead of these settings."""

BY_DURATION: Final = "by_duration:"

_DURATION: Final = re.compile(
    r"P(?:(?P<days>\d+)D)?"
    r"(?:T(?=\d)(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d{1,9})?)S)?)?",
    re.ASCII,
)


def duration_ms(text: str) -> int:
    """Return the milliseconds of an ISO 8601 duration, such as `PT1H30M`.

    Raises:
        ValueError: `text` is not a duration of days, hours, minutes and seconds.

    Source: java.time.Duration.parse, which Kafka uses (KIP-1106).
    """
    match = _DURATION.fullmatch(text.strip().upper())
    if match is None or not any(match.groups()):
        raise ValueError(f"{text!r} is not an ISO 8601 duration such as 'PT1H30M' or 'P2D'")
    days, hours, minutes, seconds = (float(part or 0) for part in match.groups())
    return round((((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000)


def in_any_case(value: object) -> object:
    return value.strip().lower() if isinstance(value, str) else value


def one_or_several(value: object) -> object:
    several = value if isinstance(value, (list, tuple)) else (value,)
    for item in several:
        if isinstance(item, type):
            raise ValueError(f"{item.__name__} is a class: pass an instance")
        if not isinstance(item, (str, Assignor)):
            raise ValueError(
                f"{item!r} is neither the name of an assignor nor an Assignor, which has name, "
                "rebalance_protocols, user_data(), assign() and assigned()"
            )
    return tuple(several)


def known_assignors(value: tuple[str | Assignor, ...]) -> tuple[str | Assignor, ...]:
    resolve(value)
    return value


def known_policy(value: str) -> str:
    policy = value.strip()
    if policy.lower() in ("earliest", "latest", "none"):
        return policy.lower()
    if policy.lower().startswith(BY_DURATION):
        duration_ms(policy[len(BY_DURATION) :])
        return BY_DURATION + policy[len(BY_DURATION) :].upper()
    raise ValueError(
        f"{value!r} is not 'earliest', 'latest', 'none' or 'by_duration:<ISO 8601 duration>'"
    )


class ConsumerRules(ClusterRules):
    """Compares consumer settings with each other, and computes values from settings."""

    if TYPE_CHECKING:
        auto_offset_reset: str
        isolation_level: Literal["read_uncommitted", "read_committed"]
        fetch_max_wait_ms: int
        group_id: str | None
        group_instance_id: str | None
        group_protocol: GroupProtocol
        group_remote_assignor: str | None
        session_timeout_ms: int
        heartbeat_interval_ms: int
        max_poll_interval_ms: int
        rebalance_timeout_ms: int | None
        enable_auto_commit: bool
        auto_commit_interval_ms: int

    def _check_together(self) -> None:
        super()._check_together()
        self._check_group()

    def _check_group(self) -> None:
        given = self.explicit
        if self.group_id is None:
            if lonely := [name for name in GROUP_SETTINGS if name in given and getattr(self, name)]:
                raise ValueError(
                    f"{lonely[0]} only applies in a group: set group_id too, or leave it out"
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
                    f"{wrong[0]} is set on the broker (group.consumer.*) with "
                    "group_protocol='consumer': leave it out, or set group_protocol='classic'"
                )
        elif self.group_protocol == "classic" and self.group_remote_assignor is not None:
            raise ValueError(
                "group_remote_assignor only applies to the consumer protocol: set "
                "group_protocol='consumer', or name assignors in partition_assignment_strategy"
            )
        if self.heartbeat_interval_ms >= self.session_timeout_ms:
            raise ValueError(
                f"heartbeat_interval_ms={self.heartbeat_interval_ms} must be below "
                f"session_timeout_ms={self.session_timeout_ms}, preferably a third of it: "
                "otherwise one lost heartbeat removes the member from the group"
            )
        if self.group_instance_id is not None and not self.group_instance_id:
            raise ValueError("group_instance_id is empty: name the member, or leave it out")

    @property
    def reset_duration_ms(self) -> int | None:
        """The duration of a by_duration policy in milliseconds; None for other policies."""
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
        """Whether offsets are committed automatically.

        This needs a ``group_id``, and ``enable_auto_commit`` must be true.
        """
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
        """``rebalance_timeout_ms`` in seconds, by default ``max_poll_interval_ms``."""
        milliseconds = self.rebalance_timeout_ms
        return (self.max_poll_interval_ms if milliseconds is None else milliseconds) / 1000
