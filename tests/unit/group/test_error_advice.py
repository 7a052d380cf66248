"""Error messages for a group that uses another protocol."""

from __future__ import annotations

import pytest

from aiokq.core.errors import (
    GroupAuthorization,
    GroupIdNotFound,
    InconsistentGroupProtocol,
    KafkaError,
    UnsupportedVersion,
)
from aiokq.group.error_advice import with_advice


@pytest.mark.parametrize(
    ("error", "says", "set_to"),
    [
        (GroupIdNotFound("Group g is not a consumer group."), "members of the classic", "classic"),
        (UnsupportedVersion(), "does not have the consumer protocol", "classic"),
        (InconsistentGroupProtocol(), "members of the consumer protocol", "consumer"),
    ],
)
def test_a_group_of_the_other_protocol_is_named_with_the_setting_that_helps(
    error: KafkaError, says: str, set_to: str
) -> None:
    """ "The group id does not exist" is misleading for a group that exists."""
    better = with_advice(error, "g", auto=False, by_regex=False)
    assert type(better) is type(error)
    assert says in str(better)
    assert "group_protocol='auto'" in str(better)
    assert repr(set_to) in str(better)
    assert error.message in str(better)


def test_a_server_side_pattern_needs_another_subscription_first() -> None:
    """group_protocol='auto' alone would not help: classic groups have no server-side patterns."""
    assert "pattern=" in str(with_advice(GroupIdNotFound(), "g", auto=False, by_regex=True))


def test_other_errors_are_unchanged() -> None:
    """Also INCONSISTENT_GROUP_PROTOCOL with a message of its own, about an assignor not offered."""
    for error in (GroupAuthorization(), InconsistentGroupProtocol("the group chose 'x'")):
        assert with_advice(error, "g", auto=False, by_regex=False) is error


def test_a_setting_that_is_already_set_is_not_advised() -> None:
    """With 'auto' both protocols were tried, so an assignor of the other members is needed."""
    told = str(with_advice(InconsistentGroupProtocol(), "g", auto=True, by_regex=False))
    assert "partition_assignment_strategy" in told
    assert "group_protocol" not in told
