"""Advice for the user in errors that end a group membership."""

from __future__ import annotations

from aiokq.core.errors import (
    BrokerError,
    GroupIdNotFound,
    InconsistentGroupProtocol,
    KafkaError,
    UnsupportedVersion,
)

__all__ = ["with_advice"]


def with_advice(error: KafkaError, group_id: str, *, auto: bool, by_regex: bool) -> KafkaError:
    """Return `error`; if the user can resolve it, a new error of its class with advice.

    Args:
        auto: whether `group_protocol` is "auto".
        by_regex: whether the subscription is a pattern that the broker evaluates.
    """
    if not isinstance(error, BrokerError):
        return error
    match error:
        case GroupIdNotFound():
            advice = f"group {group_id!r} has members of the classic protocol: " + _other_ways(
                auto, by_regex
            )
        case UnsupportedVersion():
            advice = "the broker does not have the consumer protocol (KIP-848): " + _other_ways(
                auto, by_regex
            )
        case InconsistentGroupProtocol() if error.message == error.default_message:
            advice = (
                f"group {group_id!r} has members of the consumer protocol, or its members have no "
                "assignor in common with this one: "
                + ("" if auto else "set group_protocol='auto' or 'consumer', or ")
                + "set partition_assignment_strategy to an assignor of these members"
            )
        case _:
            return error
    better = type(error)(f"{advice} [{error.message}]", api=error.api, node=error.node)
    better.__cause__ = error.__cause__
    return better


def _other_ways(auto: bool, by_regex: bool) -> str:
    if by_regex:
        return "subscribe with pattern= in place of regex=, and set group_protocol='auto'"
    if auto:
        return "the protocol of the group changed during the attempt: try again"
    return "set group_protocol='auto' or 'classic'"
