"""The operation and the resource that an authorization error names."""

from __future__ import annotations

import copy
import pickle

import pytest

from aiokq import wire
from aiokq.broker.permissions import PERMISSIONS
from aiokq.cluster.metadata import TopicInfo
from aiokq.core.acl_types import Operation
from aiokq.core.denials import _OPERATIONS, denied_operation
from aiokq.core.errors import (
    GroupAuthorization,
    KafkaError,
    TopicAuthorization,
    UnknownTopicOrPartition,
    error_for,
)
from aiokq.core.types import TopicPartition

NEVER_REFUSED = {
    ("AddPartitionsToTxn", 31),  # only brokers get it
    ("DescribeCluster", 31),
    ("DescribeTransactions", 29),
    ("JoinGroup", 29),
    ("ListGroups", 30),
    ("ListGroups", 31),
    ("ListTransactions", 53),
    ("Metadata", 31),
}
"""Denials that a response shows by leaving something out, and not as an error of a client."""

SERVED = {wire.api(key).NAME: rows for key, rows in PERMISSIONS.items()}


def test_the_table_agrees_with_the_brokers():
    for api, rows in _OPERATIONS.items():
        if api not in SERVED:
            continue
        known = {(row.operation.name, row.refusal.code) for row in SERVED[api]}
        assert set(rows) - known <= {("IDEMPOTENT_WRITE", 31)}, api
    unnamed = {
        (api, row.refusal.code)
        for api, rows in SERVED.items()
        for row in rows
        if denied_operation(api, row.refusal.code) is None
    }
    assert unnamed == NEVER_REFUSED
    assert {operation for rows in _OPERATIONS.values() for operation, _ in rows} <= set(
        Operation.__members__
    )


def test_an_authorization_error_says_who_lacks_what():
    error = error_for(
        29, api="Produce", topic_partition=TopicPartition("orders", 3), principal="User:alice"
    )
    assert isinstance(error, TopicAuthorization)
    assert (error.principal, error.operation, error.resource) == (
        "User:alice",
        "WRITE",
        "TOPIC:orders",
    )
    assert str(error).endswith(": User:alice lacks WRITE on TOPIC:orders")
    for again in (copy.copy(error), pickle.loads(pickle.dumps(error))):
        assert str(again) == str(error)


def test_what_is_not_known_is_none():
    error = error_for(30, api="JoinGroup")
    assert (error.operation, error.resource, error.principal) == ("READ", None, None)
    assert "lacks" not in str(error)
    error.add_context(resource_name="billing")
    assert isinstance(error, GroupAuthorization)
    assert error.resource == "GROUP:billing"
    assert str(error).endswith("this client lacks READ on GROUP:billing")
    assert error_for(31, api="CreateAcls").resource == "CLUSTER:kafka-cluster"
    assert error_for(29, topic_partition="t").operation is None
    error = TopicInfo("t", error_code=29).error
    assert error is not None
    assert str(error).endswith("this client lacks DESCRIBE on TOPIC:t")


@pytest.mark.parametrize("error", [KafkaError("x"), UnknownTopicOrPartition(topic_partition="t")])
def test_other_errors_have_neither(error):
    assert (error.operation, error.resource, error.principal) == (None, None, None)
