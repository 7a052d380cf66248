"""A broker that denies most calls, and checks of the errors that clients get from it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Set
from contextlib import asynccontextmanager

import pytest

import aiokq
from aiokq import errors

ALICE = [
    "Describe Topic:seen",
    "Describe Topic:revoked",
    "Read Topic:readable",
    "Write Topic:writable",
    "Describe Group:described",
    "Describe Group:members-*",
    "Describe Group:deletable",
    "Read Group:readable",
    "Delete Group:deletable",
    "Describe TransactionalId:described",
    "Write TransactionalId:writable",
]
"""What `alice` may do. Write on a topic also allows an idempotent producer (IDEMPOTENT_WRITE)."""

BOB = ["Describe Topic:seen"]
"""What `bob` may do: without Write on any topic, he lacks IDEMPOTENT_WRITE, too."""

USERS = {"root": "root-secret", "alice": "alice-secret", "bob": "bob-secret"}
LINES = [
    *(f"User:alice Allow {line}" for line in ALICE),
    *(f"User:bob Allow {line}" for line in BOB),
]
SETTINGS = {"super.users": "User:root"}

TOPICS = ["seen", "secret", "readable", "writable", "revoked"]

SEEN = aiokq.TopicPartition("seen", 0)
SECRET = aiokq.TopicPartition("secret", 0)
READABLE = aiokq.TopicPartition("readable", 0)

CLUSTER = "CLUSTER:kafka-cluster"
DESCRIBE_SECRET = ("DESCRIBE", "TOPIC:secret")
READ_SEEN = ("READ", "TOPIC:seen")
WRITE_SEEN = ("WRITE", "TOPIC:seen")
NO_GROUP = ("DESCRIBE", "GROUP:hidden")
READ_GROUP = ("READ", "GROUP:described")

Denial = tuple[str, str]
"""The operation and the resource that an error must name."""


@asynccontextmanager
async def denying_broker() -> AsyncIterator[aiokq.EmbeddedCluster]:
    """Run a broker with topics and groups, most of which `alice` may not use."""
    async with aiokq.EmbeddedCluster(users=USERS, acls=LINES, settings=SETTINGS) as kafka:
        async with aiokq.Admin(**kafka.client_settings("root")) as root:
            await root.create_topics(TOPICS, raise_errors=True)
            for group_id in ("described", "deletable", "readable"):
                await root.alter_group_offsets(
                    group_id, {SEEN: 0, SECRET: 0, READABLE: 0}, raise_errors=True
                )
        async with (
            aiokq.Cluster(**kafka.client_settings("root")) as cluster,
            cluster.producer() as producer,
        ):
            await producer.send("seen", b"v")
        yield kafka


async def denials_of(call: Callable[[], Awaitable[object]]) -> list[BaseException]:
    """Return the errors that a call raises; those of its partitions or records, if it has them."""
    with pytest.raises(errors.KafkaError) as caught:
        await call()
    match caught.value:
        case errors.CommitFailed(errors=by_partition):
            return list(by_partition.values())
        case errors.DeliveryFailed(errors=by_record):
            return [error for error in by_record if error is not None]
    return [caught.value]


def check(denials: list[BaseException], principal: str, expected: Denial) -> None:
    assert denials
    for error in denials:
        assert isinstance(error, errors.KafkaError)
        assert (error.principal, error.operation, error.resource) == (principal, *expected), error
        operation, resource = expected
        assert f"{principal} lacks {operation} on {resource}" in str(error)


def check_completeness(kind: type, tested: Set[str], never_denied: Set[str]) -> None:
    """Every public method of a class has a test, or is listed as one that is never denied."""
    public = {
        name for name in dir(kind) if not name.startswith("_") and callable(getattr(kind, name))
    }
    assert tested | never_denied == public
    assert not tested & never_denied
