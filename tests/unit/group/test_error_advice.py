"""What is told to whoever meets a group that speaks another protocol."""

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
    """ "The group id does not exist", of a group that everybody sees, sends people astray."""
    better = with_advice(error, "g", auto=False, by_regex=False)
    assert type(better) is type(error)
    assert says in str(better)
    assert "group_protocol='auto'" in str(better)
    assert repr(set_to) in str(better)
    assert error.message in str(better)


def test_a_pattern_of_the_brokers_needs_another_subscription_first() -> None:
    """group_protocol='auto' alone would change nothing: classic groups know no such pattern."""
    assert "pattern=" in str(with_advice(GroupIdNotFound(), "g", auto=False, by_regex=True))


def test_other_errors_stay_as_they_are() -> None:
    """Also 23 with words of its own: an assignor that was not offered is no matter of protocols."""
    for error in (GroupAuthorization(), InconsistentGroupProtocol("the group chose 'x'")):
        assert with_advice(error, "g", auto=False, by_regex=False) is error


def test_the_setting_that_is_in_force_is_not_advised() -> None:
    """It was tried both ways: what is left is an assignor that the others have."""
    told = str(with_advice(InconsistentGroupProtocol(), "g", auto=True, by_regex=False))
    assert "partition_assignment_strategy" in told
    assert "group_protocol" not in told
