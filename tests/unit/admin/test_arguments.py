"""The errors of Admin's methods for arguments of a wrong type: each method, each argument."""

from __future__ import annotations

import inspect
import linecache
import math
import traceback
from collections.abc import AsyncIterator, Callable
from datetime import datetime
from typing import Any
from uuid import UUID

import pytest
import pytest_asyncio

from aiokq import (
    AbortTransactionSpec,
    Admin,
    ClientQuotaEntity,
    EmbeddedCluster,
    ScramDeletion,
    TopicPartition,
)
from aiokq.admin.config_types import ConfigResourceType
from aiokq.admin.partitions import NewPartitions
from aiokq.admin.topics import NewTopic
from aiokq.core.error_base import KafkaError

RIGHT: dict[str, dict[str, Any]] = {
    "create_topics": {"new_topics": "made"},
    "delete_topics": {"topics": "none"},
    "describe_topics": {},
    "list_topics": {},
    "create_partitions": {"topic_partitions": {"t": 3}},
    "describe_configs": {"config_resources": "t"},
    "alter_configs": {"changes": {"t": {"retention.ms": 1000}}},
    "list_config_resources": {},
    "describe_cluster": {},
    "describe_log_dirs": {},
    "list_offsets": {"partitions": {("t", 0): "latest"}},
    "delete_records": {"before": {("t", 0): 0}},
    "list_groups": {},
    "describe_groups": {"group_ids": "g"},
    "delete_groups": {"group_ids": "g"},
    "remove_members": {"group_id": "g", "member_ids": "m"},
    "list_group_offsets": {"group_ids": "g"},
    "alter_group_offsets": {"group_id": "g", "offsets": {("t", 0): 0}},
    "delete_group_offsets": {"group_id": "g", "partitions": [("t", 0)]},
    "reset_group_offsets": {"group_id": "g", "to": "earliest"},
    "rewind_group": {"group_id": "g", "to": "earliest"},
    "import_group_offsets": {"groups": {"g": {("t", 0): 0}}},
    "group_lag": {"group_ids": "g"},
    "elect_leaders": {},
    "list_transactions": {},
    "describe_transactions": {"transactional_ids": "x"},
    "describe_producers": {"partitions": [("t", 0)]},
    "abort_transaction": {"spec": AbortTransactionSpec(TopicPartition("t", 0), 1, 0)},
    "terminate_transaction": {"transactional_id": "x"},
    "fence_producers": {"transactional_ids": "x"},
    "alter_partition_reassignments": {"reassignments": {("t", 0): [1]}},
    "list_partition_reassignments": {},
    "describe_metadata_quorum": {},
    "describe_features": {},
    "update_features": {"updates": {"group.version": 1}},
    "unregister_broker": {"broker_id": 7},
    "describe_acls": {},
    "create_acls": {"acls": ["User:u Allow Read Topic:t"]},
    "delete_acls": {"filters": ["User:u Allow Read Topic:t"]},
    "describe_user_scram_credentials": {},
    "alter_user_scram_credentials": {"changes": [ScramDeletion("u")]},
    "describe_client_quotas": {},
    "alter_client_quotas": {
        "changes": {ClientQuotaEntity(user="alice"): {"producer_byte_rate": 1e6}}
    },
}
"""Valid arguments by method; the others have defaults."""

FLAGS = ("timeout", "raise_errors")

WRONG: list[Any] = [
    5,
    -1,
    1.5,
    math.inf,
    math.nan,
    1j,
    True,
    "topic",
    b"t",
    object(),
    len,
    datetime(2026, 1, 1),
    UUID(int=7),
    ConfigResourceType.TOPIC,
    [5],
    [None],
    [math.inf],
    [1j],
    ["topic"],
    [b"t"],
    [["t", 0]],
    [("t", "0")],
    [("t", -1)],
    [("t", 0, 0)],
    [[]],
    [{}],
    {5},
    {"t": None},
    {"t": 0},
    {"t": "retention.ms=1"},
    {"t": [1]},
    {"t": {5: 5}},
    {"t": {"name": object()}},
    {"g": {("t", 0): "0"}},
    {"g": {("t", 0): True}},
    {"g": [5]},
    {5: 5},
    {5: None},
    {("t", 0): 0},
    {("t", 0): True},
    {("t", 0): "0"},
    {("t", 0): [None]},
    {("t", 0): object()},
    {("t", 0): math.inf},
    {("t", "0"): 0},
]

CASES = [
    (method, argument)
    for method in RIGHT
    for argument, parameter in inspect.signature(getattr(Admin, method)).parameters.items()
    if argument not in ("self", *FLAGS) and parameter.annotation != "bool"
]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def admin() -> AsyncIterator[Admin]:
    async with EmbeddedCluster() as kafka, Admin(kafka.bootstrap_servers) as admin:
        await kafka.create_topic("t", 1)
        yield admin


def test_all_methods_are_in_the_table() -> None:
    """A new method has to be added to the table."""
    methods = {
        name
        for name, method in inspect.getmembers(Admin, inspect.iscoroutinefunction)
        if not name.startswith("_")
    }
    assert methods - {"start", "close"} == RIGHT.keys()


def said_by_aiokq(error: BaseException) -> bool:
    """Return whether `error` was raised by a `raise` statement in aiokq."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    line = linecache.getline(last.filename, last.lineno or 0)
    return "/aiokq/" in last.filename and line.strip().startswith("raise ")


@pytest.mark.parametrize(("method", "argument"), CASES)
@pytest.mark.asyncio(loop_scope="module")
async def test_an_argument_of_a_wrong_type_is_accepted_or_refused_by_aiokq(
    admin: Admin, method: str, argument: str
) -> None:
    """An error raised inside Python's library names neither the argument nor the accepted types."""
    bad = []
    for wrong in WRONG:
        try:
            await getattr(admin, method)(**(RIGHT[method] | {argument: wrong}), timeout=0.2)
        except (TypeError, ValueError) as error:
            if not said_by_aiokq(error):
                bad.append((wrong, error))
        except KafkaError as error:  # an error of the broker, or a timeout
            if "cannot encode" in str(error):
                bad.append((wrong, error))
    assert bad == []


@pytest.mark.parametrize(("method", "argument"), CASES)
@pytest.mark.asyncio(loop_scope="module")
async def test_the_error_for_an_invalid_argument_names_it(
    admin: Admin, method: str, argument: str
) -> None:
    """The invalid value is an object that no argument accepts."""
    wrong = object()
    with pytest.raises((TypeError, ValueError), match=argument.removesuffix("s")):
        await getattr(admin, method)(**(RIGHT[method] | {argument: wrong}), timeout=10)


@pytest.mark.parametrize(
    "make",
    [
        lambda: NewTopic("t", configs=["a"]),  # type: ignore[arg-type]
        lambda: NewTopic("t", configs="a=b"),  # type: ignore[arg-type]
        lambda: NewTopic("t", configs={5: "a"}),  # type: ignore[dict-item]
        lambda: NewTopic("t", assignments=[[1]]),  # type: ignore[arg-type]
        lambda: NewTopic("t", assignments={0: 1}),  # type: ignore[dict-item]
        lambda: NewPartitions(2, 1),  # type: ignore[arg-type]
        lambda: NewPartitions(2, [1]),  # type: ignore[list-item]
    ],
)
def test_errors_of_value_classes_name_the_argument(make: Callable[[], object]) -> None:
    """NewTopic and NewPartitions check their arguments like Admin's methods."""
    with pytest.raises(TypeError, match=r"^(configs|assignments)") as caught:
        make()
    assert said_by_aiokq(caught.value)
