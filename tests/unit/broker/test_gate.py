"""aiokq.broker.gate: the requests that a connection may send, and the resources they may use."""

from __future__ import annotations

import asyncio
import struct

import pytest

from aiokq import wire
from aiokq.broker.dispatch import has_throttle_time
from aiokq.broker.gate import Gate
from aiokq.broker.handlers import APIS, advertised_versions
from aiokq.broker.log import file_names
from aiokq.broker.permissions import (
    PERMISSIONS,
    SUPPORTED_OPERATIONS,
    Operation,
    ResourceType,
    operation_bits,
)
from aiokq.connection.request_context import CloseConnection, RequestContext, SessionState
from aiokq.core.errors import ClusterAuthorization, TopicAuthorization
from tests.unit.broker.every_request import BUILDERS, every_request
from tests.unit.broker.harness import Broker, batch, until
from tests.unit.broker.log.test_cold_reads import damaged
from tests.unit.broker.transactional_client import TransactionalClient

SECRET = "secret"
CLIENT = "test"

EVERY_VERSION = [
    (api.key, version)
    for api in APIS.values()
    for version in range(api.oldest(True), api.max_version + 1)
]

TELLS_ONLY_BROKERS = {18, 60}
"""APIs that Kafka serves without permission: versions, and brokers to connect to."""

LOGIN = {17, 36}
"""APIs of a login; without one, they are answered with ILLEGAL_SASL_STATE (34)."""


class Denying:
    """Denies the given operations, and records what it was asked."""

    asks_caller = False

    def __init__(self, denied=lambda operation, resource_type, name: True):
        self.denied = denied
        self.asked = set()

    def authorize(self, connection, operation, resource_type, names):
        self.asked.add((operation, resource_type))
        return [name for name in names if not self.denied(operation, resource_type, name)]

    def authorize_any(self, connection, operation, resource_type):
        self.asked.add((operation, resource_type))
        return not self.denied(operation, resource_type, "")

    def operations(self, connection, resource_type, name):
        return operation_bits(
            [
                operation
                for operation in SUPPORTED_OPERATIONS[resource_type]
                if not self.denied(operation, resource_type, name)
            ]
        )


def world(*, legacy=True):
    return Broker(
        legacy=legacy,
        offsets_topic_num_partitions=1,
        transaction_state_log_num_partitions=1,
        group_initial_rebalance_delay_ms=0,
    )


def id_of(version):
    return f"{APIS[version[0]].name}-{version[1]}"


def contents(files, directory="/data"):
    found = {}
    for name in files.listdir(directory):
        path = f"{directory}/{name}"
        if files.is_dir(path):
            found.update(contents(files, path))
        else:
            found[path] = files.read_bytes(path)
    return found


def state(broker):
    """Return what a request could have changed: files, metadata, groups."""
    node = broker.node
    return (
        contents(broker.files),
        node.storage.metadata.end_offset,  # counts the changes
        sorted(topic.name for topic in node.topics),
        [
            (partition.log.log_start_offset, partition.log.log_end_offset)
            for topic in node.topics.sorted()
            for partition in topic.partitions
        ],
        sorted(
            (group.group_id, repr(group))
            for shard in node.group_coordinator.active_shards()
            for group in shard.list_groups([], [])
        ),
        [
            metadata
            for shard in node.transaction_coordinator.active_shards()
            for metadata in shard.transactions.values()
        ],
        node.group_configs.group_ids(),
        node.counters.batches_appended,
        node.counters.offsets_committed,
    )


async def populate(broker, *topics):
    """Create topics with records, and a group with offsets for each of them."""
    ids = {}
    for topic in topics:
        ids[topic] = await broker.create(topic, 2, min_insync_replicas=1)
        await broker.produce(topic, batch(3))
    found = await broker.ask(wire.FindCoordinatorRequest(key="g"), 0)
    assert found.error_code == 0
    response = await broker.ask(
        wire.OffsetCommitRequest(
            group_id="g",
            topics=[
                wire.OffsetCommitRequestTopic(
                    name=topic,
                    partitions=[
                        wire.OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
                    ],
                )
                for topic in topics
            ],
        ),
        8,
    )
    assert {p.error_code for t in response.topics for p in t.partitions} <= {0}
    if topics:
        [join] = every_request(68, 1, topics, ids, "g")
        assert (await broker.ask(join, 1)).error_code == 0
        await begin_transaction(broker, topics, ids)
    return ids


async def begin_transaction(broker, topics, ids):
    """Begin a transaction of the transactional id `t` that has a partition of each topic."""
    found = await broker.ask(wire.FindCoordinatorRequest(key="t", key_type=1), 1)
    assert found.error_code == 0
    _, initialize = every_request(22, 4, topics, ids, "g")
    producer = await broker.ask(initialize, 4)
    assert producer.error_code == 0
    [add] = every_request(24, 3, topics, ids, "g")
    add.v3_and_below_producer_id = producer.producer_id
    add.v3_and_below_producer_epoch = producer.producer_epoch
    assert set(codes(await broker.ask(add, 3))) == {0}


async def answers(broker, key, version, topics, ids):
    """Return the responses to all requests of a version, decoded and as bytes."""
    found = []
    for request in every_request(key, version, topics, ids, "g"):
        fragments = wire.encode_request(request, version=version, correlation_id=7, client_id="t")
        frame = b"".join(map(bytes, fragments))[4:]
        try:
            answer = await broker.frame(frame)
        except CloseConnection:
            continue
        if answer is not None:
            response = wire.decode_response(type(request).RESPONSE, answer, version)[1]
            found.append((request, response, answer))
    return found


def codes(struct_):
    """Return all error codes in a response."""
    found = []
    for field in struct_.__fields__:
        value = getattr(struct_, field.name)
        if field.name.endswith("error_code"):
            found.append(value)
        for item in value if isinstance(value, list) else [value]:
            if hasattr(item, "__fields__"):
                found += codes(item)
    return found


@pytest.mark.parametrize("key_version", EVERY_VERSION, ids=id_of)
async def test_a_denied_request_changes_nothing_and_tells_nothing(key_version):
    """The response does not depend on whether the topics and groups exist."""
    key, version = key_version
    async with world() as broker, world() as empty:
        ids = await populate(broker, SECRET)
        await asyncio.wait_for(populate(empty), 10)
        broker.node.gate.authorizer = empty.node.gate.authorizer = Denying()
        # The cluster id differs between nodes.
        cluster_id = broker.node.cluster_id.encode()
        other_id = empty.node.cluster_id.encode()
        before = state(broker), state(empty)
        got = await answers(broker, key, version, [SECRET], ids)
        there = await answers(empty, key, version, [SECRET], {})
        assert (state(broker), state(empty)) == before
        assert len(got) == len(there) > 0
        for (request, response, answer), (_, other, of_missing) in zip(got, there, strict=True):
            if key == 18:  # as in Kafka, the epoch of the features is an offset of the metadata
                response.finalized_features_epoch = other.finalized_features_epoch
                assert response == other
                continue
            names_an_id = ids[SECRET].bytes in b"".join(
                map(
                    bytes,
                    wire.encode_request(request, version=version, correlation_id=7, client_id="t"),
                )
            )
            if names_an_id:  # an id's existence is not secret, but the topic's name is
                assert SECRET.encode() not in answer
                assert set(codes(response)) & {row.refusal.code for row in PERMISSIONS[key]}
            else:
                assert answer.replace(cluster_id, other_id) == of_missing


LISTS = {3, 9, 16, 66, 75}
"""APIs whose requests may name no resource; their responses then omit denied ones."""

NO_PLACE_FOR_AN_ERROR = {(35, 1), (35, 2), (43, 0)}
"""Versions without a top-level error code: an empty response is a denial, too."""


@pytest.mark.parametrize("key_version", EVERY_VERSION, ids=id_of)
async def test_a_denial_is_answered_with_the_error_of_the_table(key_version):
    """No other error is returned, whatever else is wrong with the request."""
    key, version = key_version
    refusals = {row.refusal.code for row in PERMISSIONS[key]}
    async with world() as broker:
        ids = await populate(broker, SECRET)
        broker.node.gate.authorizer = Denying()
        for number, (_, response, _) in enumerate(
            await answers(broker, key, version, [SECRET], ids)
        ):
            found = set(codes(response)) - {0}
            if key in TELLS_ONLY_BROKERS | LOGIN:
                assert found == ({34} if key in LOGIN else set())
            elif found or not (key in LISTS or key_version in NO_PLACE_FOR_AN_ERROR):
                assert found, number
                assert found <= refusals, number


async def test_each_row_of_the_table_is_asked_by_its_handler():
    """A row that no handler uses would be an empty promise."""
    for key in APIS:
        api = APIS[key]
        rows = {(row.operation, row.resource_type) for row in PERMISSIONS[key]}
        asked = set()
        transactional_id = ResourceType.TRANSACTIONAL_ID
        for denies_all_but in (
            set(),
            {ResourceType.GROUP},
            {ResourceType.TOPIC},
            {transactional_id},
            {transactional_id, ResourceType.GROUP},
        ):
            if not denies_all_but <= {kind for _, kind in rows}:
                continue  # the API uses no such resource
            for version in range(api.max_version, api.min_version - 1, -1):
                if version < api.max_version and asked == rows:
                    break  # older versions are tried only for rows that no newer one asks
                async with world(legacy=False) as broker:
                    ids = await populate(broker, SECRET)
                    authorizer = Denying(
                        lambda operation, kind, name, allowed=denies_all_but: (
                            kind not in allowed or (operation, name) == (Operation.CREATE, "x")
                        )
                    )
                    if key == 19 and not denies_all_but:
                        authorizer.denied = lambda operation, kind, name: (
                            operation is not Operation.CREATE or kind is ResourceType.CLUSTER
                        )
                    broker.node.gate.authorizer = authorizer
                    await answers(broker, key, version, [SECRET, "missing"], ids)
                    authorizer.asked -= {
                        (operation, kind)
                        for operation, kind in authorizer.asked - rows
                        if key in (3, 15, 60, 69, 75)  # the authorized operations
                    }
                    assert authorizer.asked <= rows, api.name
                    asked |= authorizer.asked
        if key == 11:  # asked only for the expressions of other members, in a test of its own
            asked.add((Operation.DESCRIBE, ResourceType.TOPIC))
        assert asked == rows, api.name


def test_every_api_has_its_rows_and_a_sample():
    """A new API needs rows in the table."""
    assert set(PERMISSIONS) == set(APIS) == set(BUILDERS)


ONE_OF_SEVERAL = [
    key_version
    for key_version in EVERY_VERSION
    if key_version[0] in (0, 1, 2, 3, 8, 9, 19, 20, 21, 23, 32, 33, 37, 44, 47, 75)
    and not (key_version[0] == 0 and key_version[1] < 3)
]


@pytest.mark.parametrize("key_version", ONE_OF_SEVERAL, ids=id_of)
async def test_of_several_topics_the_denied_one_is_refused_and_the_others_are_served(key_version):
    """The result for the other topic is the same as without a denial."""
    key, version = key_version
    async with world() as broker, world() as free:
        names = ["open", SECRET]
        ids, free_ids = await populate(broker, *names), await populate(free, *names)
        broker.node.gate.authorizer = Denying(
            lambda operation, kind, name: (
                (kind is ResourceType.TOPIC and name.startswith(SECRET))
                or (
                    operation in (Operation.CLUSTER_ACTION, Operation.CREATE, Operation.DELETE)
                    and kind is ResourceType.CLUSTER
                )
            )
        )
        secret = broker.node.topics.get(SECRET)
        before = secret.configs, [p.log.log_end_offset for p in secret.partitions]
        got = await answers(broker, key, version, names, ids)
        expected = await answers(free, key, version, names, free_ids)
        assert broker.node.topics.get(SECRET) is secret
        after = secret.configs, [p.log.log_end_offset for p in secret.partitions]
        assert before == after
        for (request, response, answer), (_, there, _) in zip(got, expected, strict=True):
            if key == 1 and (
                request.replica_id >= 0
                or (request.replica_state and request.replica_state.replica_id >= 0)
            ):
                continue  # a follower has one permission for all topics
            mine = {repr(_key(item)): item for item in _items(response)}
            theirs = {repr(_key(item)): item for item in _items(there)}
            for name in mine:
                about = mine[name]
                if SECRET in name or ids[SECRET].hex in name.replace("-", ""):
                    assert TopicAuthorization.code in codes(about) or key == 20, about
                elif "open" in name:
                    assert codes(about) == codes(theirs[name])
            refused = TopicAuthorization.code in codes(response)
            assert refused or SECRET.encode() not in answer


def _items(response):
    """Return the parts of a response that are about one topic or resource each."""
    for field in response.__fields__:
        value = getattr(response, field.name)
        if isinstance(value, list):
            for item in value:
                if hasattr(item, "topics"):
                    yield from _items(item)
                elif hasattr(item, "__fields__"):
                    yield item


def _key(item):
    return [
        getattr(item, name, None)
        for name in ("name", "topic", "topic_id", "topic_name", "resource_name", "group_id")
    ]


@pytest.mark.parametrize("version", range(3, 14))
async def test_the_fast_way_of_produce_asks_the_gate(version):
    """The batches of a denied topic are refused, the others are appended."""
    async with world(legacy=False) as broker:
        ids = await populate(broker, "open", SECRET)
        counters = broker.node.counters
        ordinary = broker.node.dispatcher._ordinary
        [request, *_] = every_request(0, version, ["open"], ids, "g")
        await broker.ask(request, version)
        assert ordinary.appended == 1
        broker.node.gate.authorizer = Denying(lambda operation, kind, name: name == SECRET)
        await broker.ask(request, version)
        assert ordinary.appended == 1
        appended, secret = counters.batches_appended, broker.node.topics.get(SECRET)
        end = secret.partitions[0].log.log_end_offset
        [request, *_] = every_request(0, version, ["open", SECRET], ids, "g")
        response = await broker.ask(request, version)
        assert ordinary.appended == 1
        assert codes(response) == [0, TopicAuthorization.code]
        assert counters.batches_appended == appended + 1
        assert counters.errors["TOPIC_AUTHORIZATION_FAILED"] == 1
        request.acks = 0
        with pytest.raises(CloseConnection):
            await broker.ask(request, version)
        assert secret.partitions[0].log.log_end_offset == end


@pytest.mark.parametrize("version", [9, 12, 13])
async def test_a_denied_transactional_id_refuses_all_batches_of_the_request(version):
    """Also the batches that are not transactional, as in Kafka."""
    async with world(legacy=False) as broker:
        ids = await populate(broker, "open", "other")
        plain, _, transactional = every_request(0, version, ["open", "other"], ids, "g")
        transactional.topic_data[1] = plain.topic_data[1]
        ends = [p.log.log_end_offset for t in broker.node.topics.sorted() for p in t.partitions]
        broker.node.gate.authorizer = Denying(
            lambda operation, kind, name: kind is ResourceType.TRANSACTIONAL_ID
        )
        assert codes(await broker.ask(transactional, version)) == [53, 53]
        broker.node.gate.authorizer = None
        transactional.transactional_id = None
        assert codes(await broker.ask(transactional, version)) == [53, 53]
        assert ends == [
            p.log.log_end_offset for t in broker.node.topics.sorted() for p in t.partitions
        ]


async def test_a_batch_of_an_open_transaction_needs_the_transactional_id():
    """The fast path appended it without one."""
    async with world(legacy=False) as broker:
        await broker.create("t", min_insync_replicas=1)
        client = TransactionalClient(broker)
        assert await client.initialize() == 0
        assert (await client.send("t")).error_code == 0
        data = batch(
            1,
            attributes=0x10,
            producer_id=client.producer_id,
            producer_epoch=client.epoch,
            base_sequence=1,
        )
        for version in (9, 12):
            result = await broker.produce("t", data, version=version, transactional_id=None)
            assert result.error_code == 53


async def test_internal_topics_cannot_be_added_to_a_transaction_even_before_they_exist():
    async with world(legacy=False) as broker:
        await broker.create("open")
        names = ["__transaction_state", "__consumer_offsets", "open"]
        [request] = every_request(24, 3, names, {}, "g")
        assert codes(await broker.ask(request, 3)) == [0, 29, 29, 55]
        assert broker.node.topics.get(names[0]) is None


async def test_a_transactional_commit_without_a_group_id_hides_denied_topics():
    async with world(legacy=False) as broker:
        ids = await populate(broker, "open", SECRET)
        broker.node.gate.authorizer = Denying(lambda operation, kind, name: name == SECRET)
        [request] = every_request(28, 3, ["open", SECRET], ids, "")
        assert codes(await broker.ask(request, 3)) == [24, 29]


async def test_a_topic_by_name_and_id_is_no_question_of_permission():
    async with world(legacy=False) as broker:
        ids = await populate(broker, SECRET)
        broker.node.gate.authorizer = Denying()
        request = wire.DeleteTopicsRequest(
            topics=[wire.DeleteTopicState(name=SECRET, topic_id=ids[SECRET])], timeout_ms=1000
        )
        assert codes(await broker.ask(request, 6)) == [42]


@pytest.mark.parametrize(
    ("cursor", "names"),
    [(("other", 0), ["open"]), (("open", -1), ["open"]), (("open", -1), [])],
)
async def test_a_wrong_cursor_is_refused_for_all_topics(cursor, names):
    async with world(legacy=False) as broker:
        await populate(broker, "open")
        request = wire.DescribeTopicPartitionsRequest(
            topics=[wire.DescribeTopicPartitionsTopicRequest(name=name) for name in names],
            cursor=wire.Cursor(topic_name=cursor[0], partition_index=cursor[1]),
        )
        response = await broker.ask(request, 0)
        assert [topic.error_code for topic in response.topics] == [42] * len(names)


async def test_metadata_tells_that_a_missing_internal_topic_is_internal():
    async with world(legacy=False) as broker:
        request = wire.MetadataRequest(
            topics=[wire.MetadataRequestTopic(name="__transaction_state")],
            allow_auto_topic_creation=False,
        )
        [topic] = (await broker.ask(request, 9)).topics
        assert (topic.error_code, topic.is_internal) == (3, True)


class Recording(Denying):
    """Records each decision about a resource."""

    def __init__(self, *denied):
        super().__init__(lambda operation, kind, name: name in denied)
        self.decisions = []

    def authorize(self, connection, operation, resource_type, names):
        self.decisions += sorted(names)
        return super().authorize(connection, operation, resource_type, names)

    def take(self):
        decisions, self.decisions = self.decisions, []
        return decisions


@pytest.mark.parametrize("path", ["fast", "general", "denied before it is converted"])
@pytest.mark.parametrize("version", [9, 13])
async def test_a_produce_request_asks_once_for_each_topic(path, version):
    """A denial was recorded twice on the fast path, and once for each partition on the general."""
    async with world(legacy=False) as broker:
        configs = {} if path == "fast" else {"cleanup_policy": "compact"}
        ids = {name: await broker.create(name, 3, **configs) for name in ("open", SECRET)}
        authorizer = broker.node.gate.authorizer = Recording(SECRET)
        denied_only = path.startswith("denied")
        request = wire.ProduceRequest(
            acks=-1,
            timeout_ms=1000,
            topic_data=[
                wire.TopicProduceData(
                    **({"topic_id": ids[name]} if version >= 13 else {"name": name}),
                    partition_data=[
                        wire.PartitionProduceData(index=index, records=batch())
                        for index in range(3)
                    ],
                )
                for name in ([SECRET] if denied_only else ["open", SECRET])
            ],
        )
        response = await broker.ask(request, version)
        refused = [TopicAuthorization.code] * 3
        assert codes(response) == (refused if denied_only else [0, 0, 0, *refused])
        assert authorizer.take() == ([SECRET] if denied_only else ["open", SECRET])


async def test_a_fetch_asks_once_for_each_topic_and_again_after_it_waited():
    """It asked for each partition. After a wait the permission may have been withdrawn."""
    async with world(legacy=False) as broker:
        await broker.create("open", 3)
        await broker.create(SECRET, 3)
        authorizer = broker.node.gate.authorizer = Recording(SECRET)
        both = [(topic, index, 0) for topic in ("open", SECRET) for index in range(3)]
        response = await broker.fetch(*both)
        data = [one for topic in response.responses for one in topic.partitions]
        assert [one.error_code for one in data] == [*[0] * 3, *[TopicAuthorization.code] * 3]
        assert authorizer.take() == ["open", SECRET]
        waiting = asyncio.ensure_future(
            broker.fetch(*both[:3], max_wait_ms=10_000, client=RequestContext(2, "", "", ""))
        )
        await until(lambda: len(broker.node.purgatory))
        assert authorizer.take() == ["open"]
        broker.node.gate.authorizer = None
        await broker.produce("open", batch())
        broker.node.gate.authorizer = authorizer
        await waiting
        assert authorizer.take() == ["open"]
        await broker.fetch(*both[:3], replica_id=7)
        assert authorizer.take() == ["kafka-cluster"]


async def test_a_fetch_that_reads_the_disk_asks_once():
    """The partitions are read again when the index of one of them is loaded."""
    async with Broker(await damaged(file_names.INDEX)) as broker:
        await broker.create(SECRET)
        authorizer = broker.node.gate.authorizer = Recording(SECRET)
        response = await broker.fetch(("t", 0, 450), (SECRET, 0, 0))
        data = [one for topic in response.responses for one in topic.partitions]
        assert [one.error_code for one in data] == [0, TopicAuthorization.code]
        assert authorizer.take() == ["t", SECRET]


async def test_a_permission_that_is_taken_away_ends_a_fetch_that_waits():
    """The gate is asked again when records arrive, not only when the fetch begins."""
    async with world(legacy=False) as broker:
        await populate(broker, SECRET)
        authorizer = broker.node.gate.authorizer = Denying(lambda *_: False)
        waiting = asyncio.ensure_future(
            broker.fetch_one(SECRET, 0, 3, max_wait_ms=10_000, client=RequestContext(2, "", "", ""))
        )
        await until(lambda: len(broker.node.purgatory))
        authorizer.denied = lambda operation, *_: operation is Operation.READ
        await broker.produce(SECRET, batch())
        data = await waiting
        assert (data.error_code, bytes(data.records or b"")) == (TopicAuthorization.code, b"")


async def test_the_authorized_operations_are_those_that_the_client_has():
    """KIP-430: topics, groups and the cluster."""
    async with world(legacy=False) as broker:
        await populate(broker, SECRET)
        broker.node.gate.authorizer = Denying(
            lambda operation, kind, name: operation not in (Operation.DESCRIBE, Operation.READ)
        )
        read_and_describe = 1 << Operation.READ | 1 << Operation.DESCRIBE
        [request, _] = every_request(3, 8, [SECRET], {}, "g")
        response = await broker.ask(request, 8)
        assert response.topics[0].topic_authorized_operations == read_and_describe
        assert response.cluster_authorized_operations == 1 << Operation.DESCRIBE
        [request] = every_request(15, 5, [SECRET], {}, "g")
        response = await broker.ask(request, 5)
        assert response.groups[0].authorized_operations == read_and_describe
        [request] = every_request(60, 0, [SECRET], {}, "g")
        response = await broker.ask(request, 0)
        assert response.cluster_authorized_operations == 1 << Operation.DESCRIBE
        broker.node.gate.authorizer = Denying()
        assert (await broker.ask(request, 0)).cluster_authorized_operations == 0


async def test_an_idempotent_producer_needs_any_topic_or_the_cluster():
    """KIP-679: WRITE on any topic is enough."""
    for allowed in (
        (Operation.WRITE, ResourceType.TOPIC),
        (Operation.IDEMPOTENT_WRITE, ResourceType.CLUSTER),
    ):
        async with world(legacy=False) as broker:
            broker.node.gate.authorizer = Denying(
                lambda operation, kind, name, allowed=allowed: (operation, kind) != allowed
            )
            request = wire.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)
            assert (await broker.ask(request, 4)).error_code == 0
            broker.node.gate.authorizer = Denying()
            assert (await broker.ask(request, 4)).error_code == ClusterAuthorization.code


async def test_a_consumer_group_with_a_denied_topic_is_not_described():
    """Its members' assignments would tell the topic."""
    async with world(legacy=False) as broker:
        await populate(broker, SECRET)
        broker.node.gate.authorizer = Denying(
            lambda operation, kind, name: kind is ResourceType.TOPIC
        )
        request = wire.ConsumerGroupDescribeRequest(group_ids=["g.new"])
        [group] = (await broker.ask(request, 1)).groups
        assert (group.error_code, group.members) == (TopicAuthorization.code, [])


async def test_a_subscription_by_expression_matches_no_denied_topic():
    """A match would reveal the topic; once permitted, the topic is matched."""
    pytest.importorskip("re2")
    async with world(legacy=False) as broker:
        ids = await populate(broker, "open", SECRET)
        authorizer = broker.node.gate.authorizer = Denying(
            lambda operation, kind, name: kind is ResourceType.TOPIC and name == SECRET
        )

        async def assigned(epoch):
            response = await broker.ask(
                wire.ConsumerGroupHeartbeatRequest(
                    group_id="by-expression",
                    member_id="m",
                    member_epoch=epoch,
                    rebalance_timeout_ms=1000,
                    subscribed_topic_regex="open|secret",
                    topic_partitions=[],
                ),
                1,
            )
            assert response.error_code == 0
            topics = response.assignment.topic_partitions if response.assignment else []
            return {topic.topic_id for topic in topics}, response.member_epoch

        found, epoch = await assigned(0)
        assert found == {ids["open"]}
        authorizer.denied = lambda *_: False
        await broker.create("another")  # expressions are resolved when topics change
        found, _ = await assigned(epoch)
        assert found == set(ids.values())


async def test_a_classic_member_lets_no_expression_match_a_denied_topic():
    """Its JoinGroup resolves the expressions of the group's other members again."""
    pytest.importorskip("re2")
    async with world(legacy=False) as broker:
        ids = await populate(broker, "open")
        heartbeat = wire.ConsumerGroupHeartbeatRequest(
            group_id="by-expression",
            member_id="m",
            member_epoch=0,
            rebalance_timeout_ms=1000,
            subscribed_topic_regex="open|secret",
            topic_partitions=[],
        )
        joined = await broker.ask(heartbeat, 1)
        assert {topic.topic_id for topic in joined.assignment.topic_partitions} == {ids["open"]}
        authorizer = broker.node.gate.authorizer = Denying(
            lambda operation, kind, name: kind is ResourceType.TOPIC and name == SECRET
        )
        await broker.create(SECRET)
        [request] = every_request(11, 3, [], ids, "by-expression")
        assert (await broker.ask(request, 3)).error_code == 0
        assert (Operation.DESCRIBE, ResourceType.TOPIC) in authorizer.asked
        assert broker.node.topics.get(SECRET) is not None
        broker.node.gate.authorizer = None
        described = await broker.ask(
            wire.ConsumerGroupDescribeRequest(group_ids=["by-expression"]), 1
        )
        [group] = described.groups
        assert len(group.members) == 2
        [member] = [one for one in group.members if one.member_id == "m"]
        target = member.target_assignment.topic_partitions
        assert [topic.topic_name for topic in target] == ["open"]


# Admission


def head(key, version):
    return key << 16 | version & 0xFFFF


@pytest.mark.parametrize(
    ("session", "admitted"),
    [
        (SessionState.READY, {3, 18, 0}),
        (SessionState.HANDSHAKE, {18}),
        (SessionState.MECHANISM, set()),
        (SessionState.EXPIRED, set()),
    ],
)
def test_a_session_sends_what_its_state_admits(session, admitted):
    """SaslHandshake and SaslAuthenticate are admitted where they are served."""
    served = {*advertised_versions(False), (17, 0, 1), (36, 0, 2)}
    gate = Gate(served, max_frame_bytes=1000, max_login_frame_bytes=100)
    context = RequestContext(1, "", "", "")
    context.session.state = session
    login = {
        SessionState.READY: {17, 36},
        SessionState.HANDSHAKE: {17},
        SessionState.MECHANISM: {17},
        SessionState.EXPIRED: {17},
    }[session]
    for key in (0, 3, 17, 18, 36):
        if key in admitted | login:
            assert gate.admit(context, head(key, 1), 50)
        else:
            with pytest.raises(CloseConnection, match="login"):
                gate.admit(context, head(key, 1), 50)


@pytest.mark.parametrize("sends_tokens", [False, True])
def test_during_a_login_only_its_tokens_have_a_handler(sends_tokens):
    """A token without the header of a request may look like any request."""
    gate = Gate([(3, 0, 13), (36, 0, 2)], max_frame_bytes=1000)
    context = RequestContext(1, "", "", "")
    context.session.state = SessionState.AUTHENTICATE
    context.session.sends_tokens = sends_tokens
    assert gate.admit(context, head(36, 1), 50) is not sends_tokens
    for key, version in [(3, 1), (17, 1), (18, 3), (999, 0)]:
        assert not gate.admit(context, head(key, version), 50)


async def test_a_session_ends_at_the_first_request_after_its_time():
    """There is no timer, so an idle client costs nothing."""
    gate = Gate([(3, 0, 13), (17, 0, 1), (18, 0, 4)], max_frame_bytes=1000)
    context = RequestContext(1, "", "", "")
    loop = asyncio.get_running_loop()
    context.session.expires_at = loop.time() + 60
    assert gate.admit(context, head(3, 1), 50)
    assert not gate.admit(context, head(18, 99), 50)
    context.session.expires_at = loop.time()
    assert context.session.state is SessionState.READY
    for key in (3, 18):
        with pytest.raises(CloseConnection, match="login"):
            gate.admit(context, head(key, 1), 50)
        assert context.session.state is SessionState.EXPIRED
    assert gate.admit(context, head(17, 1), 50)


def test_a_frame_before_the_login_is_complete_is_small():
    """Kafka's ``sasl.server.max.receive.size``: an unauthenticated client cannot send 100 MB."""
    gate = Gate([(18, 0, 4)], max_frame_bytes=1000, max_login_frame_bytes=100)
    assert gate.frame_limit(SessionState.READY) == 1000
    assert gate.frame_limit(SessionState.HANDSHAKE) == 100
    context = RequestContext(1, "", "", "")
    assert gate.admit(context, head(18, 3), 101)
    context.session.state = SessionState.HANDSHAKE
    assert gate.admit(context, head(18, 3), 100)
    with pytest.raises(CloseConnection, match="101 bytes"):
        gate.admit(context, head(18, 3), 101)


async def test_a_request_that_is_not_admitted_is_not_decoded():
    """The connection is closed for its state, whatever the body is."""
    async with world(legacy=False) as broker:
        await broker.create("t")
        broker.client.session.state = SessionState.HANDSHAKE
        for key, version in EVERY_VERSION:
            if key in (17, 18):  # admitted
                continue
            with pytest.raises(CloseConnection, match="login"):
                await broker.frame(struct.pack(">hh", key, version) + b"\xff" * 20)
        produce = every_request(0, 9, ["t"], {}, "g")[0]
        with pytest.raises(CloseConnection, match="login"):
            await broker.ask(produce, 9)
        assert broker.node.counters.batches_appended == 0
        assert (await broker.ask(wire.ApiVersionsRequest(), 0)).error_code == 0
        assert broker.client.session.state is SessionState.MECHANISM
        with pytest.raises(CloseConnection, match="login"):
            await broker.ask(wire.ApiVersionsRequest(), 0)


def test_the_version_of_a_refused_request_is_a_signed_number():
    """The version is signed in the protocol, so the message must show it so."""
    gate = Gate([(3, 0, 13)], max_frame_bytes=1000)
    with pytest.raises(CloseConnection, match="Metadata version -1 "):
        gate.admit(RequestContext(1, "", "", ""), head(3, -1), 50)


# Throttling


class Slow:
    """Quotas that throttle every request for the same time."""

    def __init__(self, throttle_ms):
        self.ms = throttle_ms
        self.counted = []

    def throttle_ms(self, connection, api_key, client_id, nbytes, *, answered, in_login):
        self.counted.append((api_key, client_id, nbytes))
        return self.ms

    def fetch_bytes(self, connection, client_id):
        return 2**31 - 1

    def fetched(self, connection, client_id, nbytes):
        return 0

    def mutations(self, connection, client_id, *, is_strict):
        return None


@pytest.mark.parametrize("key_version", EVERY_VERSION, ids=id_of)
async def test_a_throttle_time_is_in_every_answer_whose_version_has_the_field(key_version):
    """The connection is muted for that time, also in versions without the field (KIP-219)."""
    key, version = key_version
    async with world() as broker:
        ids = await populate(broker, SECRET)
        quotas = broker.node.gate.quotas = Slow(1234)
        broker.node.storage.publisher.quotas_changed = lambda: None  # it would replace them
        loop = asyncio.get_running_loop()
        field = has_throttle_time(wire.api(key).RESPONSE, version)
        found = await answers(broker, key, version, [SECRET], ids)
        assert found
        for _, response, _ in found:
            assert getattr(response, "throttle_time_ms", 0) == (1234 if field else 0)
        assert broker.client.mute_until == pytest.approx(loop.time() + 1.234, abs=60)
        assert {(asked, name) for asked, name, _ in quotas.counted} == {(key, "t")}


def test_every_newest_version_has_a_throttle_time():
    """Except for APIs whose Kafka schema has none."""
    without = {
        APIS[key].name
        for key in APIS
        if not has_throttle_time(wire.api(key).RESPONSE, APIS[key].max_version)
    }
    assert without == {
        "DescribeQuorum",
        "SaslAuthenticate",
        "SaslHandshake",
        "WriteTxnMarkers",
    }


@pytest.mark.parametrize("denied", [SECRET, "id"])
async def test_the_fast_way_of_a_transaction_asks_the_gate(denied):
    """Each batch of a transaction needs the transactional id, and then its topic."""
    async with world(legacy=False) as broker:
        await populate(broker, "open", SECRET)
        client = TransactionalClient(broker, "id")
        assert await client.initialize() == 0
        for topic in ("open", SECRET):
            await client.wrote(topic)
        ordinary = broker.node.dispatcher._ordinary
        broker.node.gate.authorizer = Denying(lambda operation, kind, name: name == denied)
        refusal = (53 if denied == "id" else 29, -1)
        result = await client.send(SECRET)
        assert (result.error_code, result.base_offset) == refusal
        assert (await client.send("open")).error_code == (53 if denied == "id" else 0)
        assert ordinary.appended == (0 if denied == "id" else 1)
        plain = await broker.produce("open", batch(), transactional_id="id")
        assert (plain.error_code, ordinary.appended) == (0, 1)


@pytest.mark.parametrize("version", range(3, 14))
async def test_the_fast_answer_to_produce_carries_a_throttle_time(version):
    """It is at the same position as in the response of the general path."""
    async with world(legacy=False) as broker:
        ids = await populate(broker, "t")
        broker.node.gate.quotas = Slow(0x01020304)
        request = every_request(0, version, ["t"], ids, "g")[0]
        response = await broker.ask(request, version)
        assert broker.node.dispatcher._ordinary.appended == 1
        assert response.throttle_time_ms == 0x01020304
        assert codes(response) == [0]


async def test_a_producer_that_wants_no_answer_is_muted_too():
    """With acks=0 there is no response with a throttle time."""
    async with world(legacy=False) as broker:
        await populate(broker, "t")
        broker.node.gate.quotas = Slow(5000)
        request = every_request(0, 9, ["t"], {}, "g")[0]
        request.acks = 0
        assert await broker.ask(request, 9) is None
        assert broker.client.mute_until > asyncio.get_running_loop().time() + 1


async def test_a_shorter_throttle_does_not_end_a_longer_one():
    """A client that exceeds two quotas waits for the longer time."""
    async with world(legacy=False) as broker:
        quotas = broker.node.gate.quotas = Slow(60_000)
        await broker.ask(wire.ApiVersionsRequest(), 1)
        until = broker.client.mute_until
        quotas.ms = 1
        await broker.ask(wire.ApiVersionsRequest(), 1)
        assert broker.client.mute_until == until


async def test_a_throttle_time_beyond_an_int32_is_shortened():
    """The field of the response holds no longer time."""
    async with world(legacy=False) as broker:
        broker.node.gate.quotas = Slow(2**31)
        response = await broker.ask(wire.ApiVersionsRequest(), 1)
        assert response.throttle_time_ms == 2**31 - 1
