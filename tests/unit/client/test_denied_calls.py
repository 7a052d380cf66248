"""Every call of a client that an authorizer can deny says who lacks what on which resource."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import pytest_asyncio

import aiokq
from tests.denials import (
    CLUSTER,
    DESCRIBE_SECRET,
    NO_GROUP,
    READ_GROUP,
    READ_SEEN,
    READABLE,
    SECRET,
    SEEN,
    WRITE_SEEN,
    Denial,
    check,
    check_completeness,
    denials_of,
    denying_broker,
)

pa = pytest.importorskip("pyarrow")

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def kafka() -> AsyncIterator[aiokq.EmbeddedCluster]:
    async with denying_broker() as kafka:
        yield kafka


async def delivered(deliveries: Awaitable[Any]) -> None:
    await (await deliveries)


def columns() -> aiokq.RecordColumns:
    return aiokq.RecordColumns.from_arrow(pa.record_batch({"value": pa.array([b"v"])}))


async def columns_at_once(producer: aiokq.Producer, topic: str) -> None:
    await producer.send_columns_nowait(topic, columns())


async def batch(producer: aiokq.Producer, topic: str) -> None:
    builder = producer.create_batch()
    builder.append(value=b"v")
    await delivered(producer.send_batch(builder, topic, partition=0))


SENDS: dict[str, Callable[[aiokq.Producer, str], Awaitable[object]]] = {
    "send": lambda producer, topic: producer.send(topic, b"v"),
    "enqueue": lambda producer, topic: delivered(producer.enqueue(topic, b"v")),
    "send_many": lambda producer, topic: delivered(producer.send_many(topic, [(None, b"v")])),
    "send_batch": batch,
    "send_columns": lambda producer, topic: delivered(producer.send_columns(topic, columns())),
    "send_columns_nowait": columns_at_once,
}


@pytest.mark.parametrize("name", SENDS)
@pytest.mark.parametrize(
    ("user", "topic", "settings", "expected"),
    [
        ("alice", "seen", {}, WRITE_SEEN),
        ("alice", "seen", {"enable_idempotence": False}, WRITE_SEEN),
        ("alice", "secret", {}, DESCRIBE_SECRET),
        ("alice", "secret", {"enable_idempotence": False}, DESCRIBE_SECRET),
        ("bob", "seen", {}, ("IDEMPOTENT_WRITE", CLUSTER)),
    ],
)
async def test_sends(
    kafka: aiokq.EmbeddedCluster,
    name: str,
    user: str,
    topic: str,
    settings: dict[str, Any],
    expected: Denial,
) -> None:
    async with (
        aiokq.Cluster(**kafka.client_settings(user)) as cluster,
        cluster.producer(**settings) as producer,
    ):
        denials = await denials_of(lambda: SENDS[name](producer, topic))
        check(denials, f"User:{user}", expected)
        (error,) = denials
        if expected[0] == "IDEMPOTENT_WRITE":
            assert error.api == "InitProducerId"


async def test_partitions_for(kafka: aiokq.EmbeddedCluster) -> None:
    async with (
        aiokq.Cluster(**kafka.client_settings("alice")) as cluster,
        cluster.producer() as producer,
    ):
        denials = await denials_of(lambda: producer.partitions_for("secret"))
        check(denials, "User:alice", DESCRIBE_SECRET)


@pytest.mark.parametrize(
    ("transactional_id", "operation"), [("hidden", "DESCRIBE"), ("described", "WRITE")]
)
async def test_start_of_a_transactional_producer(
    kafka: aiokq.EmbeddedCluster, transactional_id: str, operation: str
) -> None:
    async with aiokq.Cluster(**kafka.client_settings("alice")) as cluster:
        producer = cluster.producer(transactional_id=transactional_id)
        denials = await denials_of(producer.start)
        check(denials, "User:alice", (operation, f"TRANSACTIONAL_ID:{transactional_id}"))
        await producer.close()


READS: dict[str, Callable[[aiokq.Consumer], Awaitable[object]]] = {
    "getone": lambda consumer: consumer.getone(),
    "getmany": lambda consumer: consumer.getmany(timeout=60),
    "batches": lambda consumer: anext(aiter(consumer.batches())),
    "streams": lambda consumer: anext(aiter(consumer.streams(1)[0])),
}
READERS: list[tuple[str, dict[str, str], Denial]] = [
    ("seen", {}, READ_SEEN),
    ("secret", {}, DESCRIBE_SECRET),
    *(
        (topic, {"group_id": group_id, "group_protocol": protocol}, expected)
        for protocol in ("classic", "consumer")
        for topic, group_id, expected in (
            ("seen", "readable", READ_SEEN),
            ("secret", "readable", DESCRIBE_SECRET),
            ("readable", "hidden", NO_GROUP),
            ("readable", "described", READ_GROUP),
        )
    ),
]


@pytest.mark.parametrize("name", READS)
@pytest.mark.parametrize(("topic", "settings", "expected"), READERS)
async def test_reads(
    kafka: aiokq.EmbeddedCluster,
    caplog: pytest.LogCaptureFixture,
    name: str,
    topic: str,
    settings: dict[str, Any],
    expected: Denial,
) -> None:
    """No warning says that the topic does not exist."""
    async with (
        aiokq.Cluster(**kafka.client_settings("alice")) as cluster,
        cluster.consumer(topic, auto_offset_reset="earliest", **settings) as consumer,
    ):
        check(await denials_of(lambda: READS[name](consumer)), "User:alice", expected)
    assert "does not exist" not in caplog.text


COMMITS: list[tuple[str, Callable[[aiokq.Consumer], Awaitable[object]], str, Denial]] = [
    *(
        (name, call, group_id, expected)
        for name, call in (
            ("commit", lambda consumer: consumer.commit({READABLE: 0})),
            ("commit_nowait", lambda consumer: consumer.commit_nowait({READABLE: 0})),
        )
        for group_id, expected in (("hidden", NO_GROUP), ("described", READ_GROUP))
    ),
    ("commit", lambda consumer: consumer.commit({SEEN: 0}), "readable", READ_SEEN),
    ("commit_nowait", lambda consumer: consumer.commit_nowait({SEEN: 0}), "readable", READ_SEEN),
    ("committed", lambda consumer: consumer.committed(READABLE), "hidden", NO_GROUP),
    ("committed", lambda consumer: consumer.committed(SECRET), "readable", DESCRIBE_SECRET),
    ("seek_to_committed", lambda consumer: consumer.seek_to_committed(), "hidden", NO_GROUP),
    (
        "seek_to_committed",
        lambda consumer: consumer.seek_to_committed(SECRET),
        "readable",
        DESCRIBE_SECRET,
    ),
]


@pytest.mark.parametrize(("name", "call", "group_id", "expected"), COMMITS)
async def test_offsets_of_a_group(
    kafka: aiokq.EmbeddedCluster,
    name: str,
    call: Callable[[aiokq.Consumer], Awaitable[object]],
    group_id: str,
    expected: Denial,
) -> None:
    async with (
        aiokq.Cluster(**kafka.client_settings("alice")) as cluster,
        cluster.consumer(
            group_id=group_id, enable_auto_commit=False, auto_offset_reset="latest"
        ) as consumer,
    ):
        consumer.assign([READABLE, SEEN, SECRET])
        check(await denials_of(lambda: call(consumer)), "User:alice", expected)


LOOKUPS: dict[str, Callable[[aiokq.Consumer], Awaitable[object]]] = {
    "beginning_offsets": lambda consumer: consumer.beginning_offsets([SECRET]),
    "end_offsets": lambda consumer: consumer.end_offsets([SECRET]),
    "offsets_for_times": lambda consumer: consumer.offsets_for_times({SECRET: 0}),
    "position": lambda consumer: consumer.position(SECRET),
    "seek_to_beginning": lambda consumer: consumer.seek_to_beginning(SECRET),
    "seek_to_end": lambda consumer: consumer.seek_to_end(SECRET),
}


@pytest.mark.parametrize("name", LOOKUPS)
async def test_lookups_of_a_consumer(kafka: aiokq.EmbeddedCluster, name: str) -> None:
    async with (
        aiokq.Cluster(**kafka.client_settings("alice")) as cluster,
        cluster.consumer() as consumer,
    ):
        consumer.assign([SECRET])
        denials = await denials_of(lambda: LOOKUPS[name](consumer))
        check(denials, "User:alice", DESCRIBE_SECRET)


async def produced(cluster: aiokq.Cluster) -> None:
    builder = cluster.create_batch()
    builder.append(value=b"v")
    await cluster.refresh("seen")
    (result,) = (await cluster.produce({SEEN: builder}, node=SEEN)).values()
    assert result.error is not None
    raise result.error


CLUSTER_CALLS: list[tuple[str, Callable[[aiokq.Cluster], Awaitable[object]], Denial]] = [
    ("fetch", lambda cluster: cluster.fetch(SEEN, 0), READ_SEEN),
    ("fetch", lambda cluster: cluster.fetch(SECRET, 0), DESCRIBE_SECRET),
    ("read", lambda cluster: anext(cluster.read(SEEN, 0)), READ_SEEN),
    ("read", lambda cluster: anext(cluster.read(SECRET)), DESCRIBE_SECRET),
    ("offsets", lambda cluster: cluster.offsets(SECRET, "latest"), DESCRIBE_SECRET),
    ("produce", produced, WRITE_SEEN),
]


@pytest.mark.parametrize(("name", "call", "expected"), CLUSTER_CALLS)
async def test_cluster(
    kafka: aiokq.EmbeddedCluster,
    name: str,
    call: Callable[[aiokq.Cluster], Awaitable[object]],
    expected: Denial,
) -> None:
    async with aiokq.Cluster(**kafka.client_settings("alice")) as cluster:
        check(await denials_of(lambda: call(cluster)), "User:alice", expected)


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=[2, 1])
async def version(kafka: aiokq.EmbeddedCluster, request: pytest.FixtureRequest) -> int:
    """The version of transactions."""
    how = "upgrade" if request.param == 2 else "safe_downgrade"
    async with aiokq.Admin(**kafka.client_settings("root")) as root:
        await root.update_features(
            {"transaction.version": aiokq.FeatureUpdate(request.param, how)}, raise_errors=True
        )
    return request.param


@pytest.mark.parametrize(
    ("tp", "group_id", "expected"),
    [
        (READABLE, "hidden", NO_GROUP),
        (READABLE, "described", READ_GROUP),
        (SEEN, "readable", READ_SEEN),
        (SECRET, "readable", ("READ", "TOPIC:secret")),
    ],
)
async def test_offsets_in_a_transaction(
    kafka: aiokq.EmbeddedCluster,
    version: int,
    tp: aiokq.TopicPartition,
    group_id: str,
    expected: Denial,
) -> None:
    if version == 1 and expected == NO_GROUP:
        expected = ("READ", "GROUP:hidden")  # AddOffsetsToTxn comes before FindCoordinator
    async with (
        aiokq.Cluster(**kafka.client_settings("alice")) as cluster,
        cluster.producer(transactional_id="writable") as producer,
    ):
        transaction = await producer.begin_transaction()
        await producer.send("writable", b"v")
        denials = await denials_of(lambda: transaction.send_offsets({tp: 1}, group_id))
        denials += await denials_of(lambda: producer.send("writable", b"v"))
        denials += await denials_of(producer.commit_transaction)
        check(denials, "User:alice", expected)


@pytest.mark.parametrize("name", SENDS)
async def test_sends_in_a_transaction(
    kafka: aiokq.EmbeddedCluster, version: int, name: str
) -> None:
    async with (
        aiokq.Cluster(**kafka.client_settings("alice")) as cluster,
        cluster.producer(transactional_id="writable") as producer,
    ):
        await producer.begin_transaction()
        denials = await denials_of(lambda: SENDS[name](producer, "seen"))
        denials += await denials_of(producer.commit_transaction)
        check(denials, "User:alice", WRITE_SEEN)


async def test_a_permission_that_ends(kafka: aiokq.EmbeddedCluster) -> None:
    """The client knows the topic, so that ListOffsets is denied, and not Metadata."""
    tp = aiokq.TopicPartition("revoked", 0)
    async with (
        aiokq.Cluster(**kafka.client_settings("alice")) as cluster,
        aiokq.Admin(**kafka.client_settings("root")) as root,
    ):
        await cluster.offsets(tp, "latest")
        acls = aiokq.Acl.parse("User:alice Allow Describe Topic:revoked")
        await root.delete_acls(acls, raise_errors=True)
        denials = await denials_of(lambda: cluster.offsets(tp, "latest"))
        check(denials, "User:alice", ("DESCRIBE", "TOPIC:revoked"))
        (error,) = denials
        assert error.api == "ListOffsets"


TESTED = {
    aiokq.Producer: {*SENDS, "partitions_for", "start", "commit_transaction"},
    aiokq.Consumer: {*READS, *LOOKUPS, *(name for name, _, _, _ in COMMITS)},
    aiokq.Transaction: {"send_offsets"},
}

NEVER_DENIED = {
    aiokq.Producer: {
        # Their errors are those of earlier sends.
        *("flush", "close", "abort_transaction"),
        # They send no request that needs a permission; `start` has one for the transactional id.
        *("begin_transaction", "transaction", "create_batch", "health"),
    },
    aiokq.Consumer: {
        # The reads raise the errors of these topics, partitions and positions.
        *("start", "subscribe", "unsubscribe", "assign", "add_topic", "seek", "pause", "resume"),
        # A listing leaves out what a client may not see.
        "topics",
        # The last commit fails as `commit` does, and is logged.
        "close",
        # They send no request.
        *("ack", "assignment", "group_metadata", "health", "highwater", "lag"),
        *("last_poll_timestamp", "last_stable_offset", "offsets_for_transaction"),
        *("partitions_for_topic", "paused", "subscription"),
    },
    aiokq.Transaction: {"outcome"},
}


@pytest.mark.parametrize("kind", TESTED, ids=lambda kind: kind.__name__)
async def test_no_call_is_forgotten(kind: type) -> None:
    check_completeness(kind, TESTED[kind], NEVER_DENIED[kind])
