"""The controller's decisions about ACLs; `handlers/test_acls.py` has the requests."""

from __future__ import annotations

import uuid

import pytest

from aiokq.broker.metadata.controller import acl_changes
from aiokq.broker.metadata.controller.acl_changes import AclFilter
from aiokq.broker.metadata.image.image import MetadataImage
from aiokq.connection.turn import at_once
from aiokq.core.errors import InvalidRequest

VALUE = (2, "t", 3, "User:alice", "*", 4, 3)
EVERYTHING = AclFilter(1, None, 1, None, None, 1, 1)


def create_acls(*args, **kwargs):
    return at_once(acl_changes.create_acls(*args, **kwargs))


def delete_acls(*args):
    return at_once(acl_changes.delete_acls(*args))


def ids():
    numbers = iter(range(1000))
    return lambda: uuid.UUID(int=next(numbers))


def image_with(*values):
    image = MetadataImage()
    for record in create_acls(image, values, new_id=ids()).records:
        image.replay(record)
    return image


def test_only_new_acls_are_recorded():
    image = image_with(VALUE)
    other = (*VALUE[:6], 2)
    decision = create_acls(image, [VALUE, other, other], new_id=ids())
    assert decision.answer == [None, None, None]
    assert [record.permission_type for record in decision.records] == [2]


def test_an_acl_can_be_created_again_after_its_removal():
    image = image_with(VALUE)
    for record in delete_acls(image, [EVERYTHING]).records:
        image.replay(record)
    assert image.principals.acl_values == {}
    assert len(create_acls(image, [VALUE], new_id=ids()).records) == 1


def test_an_acl_of_two_filters_is_removed_once():
    image = image_with(VALUE, (*VALUE[:3], "User:bob", *VALUE[4:]))
    decision = delete_acls(image, [EVERYTHING, EVERYTHING._replace(principal="User:bob")])
    assert [len(found) for found in decision.answer] == [2, 1]
    assert len(decision.records) == 2


def test_too_many_acls_are_refused_together(monkeypatch):
    monkeypatch.setattr(acl_changes, "MOST_RECORDS", 2)
    values = [(2, f"t{number}", *VALUE[2:]) for number in range(3)]
    with pytest.raises(InvalidRequest):
        create_acls(MetadataImage(), values, new_id=ids())
    image = image_with(*values[:2])
    for record in create_acls(MetadataImage(), values[2:], new_id=lambda: uuid.UUID(int=9)).records:
        image.replay(record)
    with pytest.raises(InvalidRequest):
        delete_acls(image, [EVERYTHING])


def test_results_have_a_limit_because_filters_may_match_the_same_acls(monkeypatch):
    monkeypatch.setattr(acl_changes, "MOST_MATCHES", 4)
    image = image_with(VALUE, (*VALUE[:3], "User:bob", *VALUE[4:]))
    assert len(delete_acls(image, [EVERYTHING] * 2).records) == 2
    with pytest.raises(InvalidRequest, match="counting an acl for each filter"):
        delete_acls(image, [EVERYTHING] * 3)


@pytest.mark.parametrize("pattern_type", [1, 2, 3, 4])
@pytest.mark.parametrize("name", [None, "t", "topic", "*", "absent"])
@pytest.mark.parametrize("principal", [None, "User:alice", "User:nobody"])
def test_the_index_finds_what_a_comparison_with_each_acl_finds(pattern_type, name, principal):
    values = [
        (2, resource, pattern, user, "*", 4, 3)
        for resource in ("t", "top", "topic", "*")
        for pattern in (3, 4)
        for user in ("User:alice", "User:bob")
    ]
    image = image_with(*values)
    asked = AclFilter(1, name, pattern_type, principal, None, 1, 1)
    decision = delete_acls(image, [asked])
    expected = [acl for acl in image.principals.acls.values() if asked.matches(acl)]
    assert decision.answer == [expected]
    assert len(decision.records) == len(expected)


def test_equal_acls_of_another_writer_are_counted():
    """A damaged or foreign log may have two; one of them is left after the other is removed."""
    image = image_with(VALUE)
    for record in create_acls(MetadataImage(), [VALUE], new_id=lambda: uuid.UUID(int=9)).records:
        image.replay(record)
    [first, _] = delete_acls(image, [EVERYTHING]).records
    image.replay(first)
    assert image.principals.acl_values == {VALUE: 1}
    assert create_acls(image, [VALUE], new_id=ids()).records == []
