"""A request that names very many resources lets the other tasks of the loop run meanwhile."""

from __future__ import annotations

import asyncio
import copy
import gc
import logging
import time
import uuid

import pytest

from aiokq import wire
from aiokq.broker.handlers import APIS, h08_offset_commit, h09_offset_fetch
from aiokq.connection import turn as module
from aiokq.connection.request_context import RequestContext
from aiokq.core.errors import Closed, ConnectionLost
from tests.unit.broker.every_request import every_request
from tests.unit.broker.harness import Broker, batch, offsets
from tests.unit.broker.test_gate import Denying

MANY = 20_000
LONGEST = 0.1
"""Seconds of CPU time that a request may hold the loop.

A turn takes 2 ms; a step that is not divided, such as a copy of the frame, takes more.
"""


def world():
    return Broker(
        offsets_topic_num_partitions=1,
        transaction_state_log_num_partitions=1,
        group_initial_rebalance_delay_ms=0,
    )


NAMES = [f"made-up-{number:06}" for number in range(MANY)]


def of_groups(key, version):
    """Return the requests that name groups or transactional ids."""
    return {
        9: lambda: wire.OffsetFetchRequest(
            groups=[wire.OffsetFetchRequestGroup(group_id=name, topics=None) for name in NAMES]
        ),
        10: lambda: wire.FindCoordinatorRequest(key_type=0, coordinator_keys=NAMES),
        15: lambda: wire.DescribeGroupsRequest(groups=NAMES, include_authorized_operations=True),
        42: lambda: wire.DeleteGroupsRequest(groups_names=NAMES),
        65: lambda: wire.DescribeTransactionsRequest(transactional_ids=NAMES),
        69: lambda: wire.ConsumerGroupDescribeRequest(
            group_ids=NAMES, include_authorized_operations=True
        ),
    }[key]()


OF_TOPICS = [1, 2, 3, 8, 9, 19, 20, 21, 23, 28, 32, 33, 37, 43, 44, 45, 47, 61, 68, 75]
OF_GROUPS = [9, 10, 15, 42, 65, 69]
VERSIONS = {24: 3, 1: 12}


def samples():
    for key in [*OF_TOPICS, 24]:
        yield pytest.param(key, False, id=APIS[key].name)
    for key in OF_GROUPS:
        yield pytest.param(key, True, id=f"{APIS[key].name}-groups")


def request_of(key, by_group):
    version = VERSIONS.get(key, APIS[key].max_version)
    if by_group:
        return of_groups(key, version), version
    requests = every_request(key, version, NAMES, {}, "g")
    if key == 3:
        requests = requests[1:]  # by name
        requests[0].allow_auto_topic_creation = False
    if key == 19:
        del requests[0].topics[MANY:]
        for topic in requests[0].topics:
            topic.name += "!"  # no valid name, so that nothing is created
    return requests[0], version


def frame_of(request, version):
    fragments = wire.encode_request(request, version=version, correlation_id=7, client_id="t")
    return b"".join(map(bytes, fragments))[4:]


async def held(broker, frame, client=None):
    """Handle a request; return the longest and the whole CPU time between turns of other tasks."""
    task = asyncio.ensure_future(broker.frame(frame, client))
    gc.collect()
    gc.disable()  # a collection takes longer than the longest turn, because of all other tests
    longest, begin = 0.0, time.thread_time()
    last = begin
    while not task.done():
        await asyncio.sleep(0)
        now = time.thread_time()
        longest, last = max(longest, now - last), now
    gc.enable()
    return longest, last - begin, task.result()


@pytest.mark.parametrize("denies", [False, True], ids=["open", "denied"])
@pytest.mark.parametrize(("key", "by_group"), list(samples()))
async def test_a_request_of_many_names_does_not_hold_the_loop(key, by_group, denies):
    request, version = request_of(key, by_group)
    frame = frame_of(request, version)
    async with world() as broker:
        await broker.ask(wire.FindCoordinatorRequest(key="g"), 0)
        await broker.frame(frame_of(*small(key, by_group)))  # compile the codecs
        if denies:
            broker.node.gate.authorizer = Denying()
        longest, whole, answer = await held(broker, frame)
        assert answer is not None
        assert longest < LONGEST, f"{longest:.3f} of {whole:.3f} s"


def small(key, by_group):
    """Return a request of the same kind with few names, long enough for the codecs in steps."""
    request, version = request_of(key, by_group)
    for field in type(request).__fields__:
        value = getattr(request, field.name)
        if isinstance(value, list):
            setattr(request, field.name, value[:1500])
    return request, version


OF_PARTITIONS = [
    (2, 9), (8, 9), (8, 10), (9, 7), (9, 10), (21, 2), (23, 4), (24, 3), (28, 5), (35, 4), (43, 2),
    (45, 1), (47, 0), (61, 0),
]  # fmt: skip
"""The APIs whose requests list partitions of a topic, with a version."""

PARTITION = ("partition_index", "partition")


def with_many_partitions(request, indexes):
    """Replace each list of partitions in a request by one that has the indexes."""
    for field in type(request).__fields__:
        value = getattr(request, field.name)
        if not isinstance(value, list) or not value:
            continue
        if field.name in {"partitions", "partition_indexes"}:
            setattr(request, field.name, [with_index(value[0], index) for index in indexes])
        elif not isinstance(value[0], str | int):
            for each in value:
                with_many_partitions(each, indexes)


def with_index(partition, index):
    if isinstance(partition, int):
        return index
    partition = copy.copy(partition)
    setattr(partition, PARTITION[0] if hasattr(partition, PARTITION[0]) else PARTITION[1], index)
    return partition


DENIED_APART = {8, 9, 24, 28, 43}
"""The APIs that answer a denied request in code of its own."""


def of_partitions():
    for key, version in OF_PARTITIONS:
        name = f"{APIS[key].name}-{version}"
        yield pytest.param(key, version, False, id=f"{name}-open")
        if key in DENIED_APART:
            yield pytest.param(key, version, True, id=f"{name}-denied")


@pytest.mark.parametrize(("key", "version", "denies"), list(of_partitions()))
async def test_a_request_of_many_partitions_does_not_hold_the_loop(key, version, denies):
    """One partition again and again, and partitions that do not exist."""
    async with world() as broker:
        await broker.create("t", 3)
        ids = {"t": broker.node.topics.get("t").topic_id}
        await broker.ask(wire.FindCoordinatorRequest(key="g"), 0)

        def frame(count):
            request = every_request(key, version, ["t"], ids, "g")[0]
            with_many_partitions(request, [1] * count + list(range(3, 3 + count)))
            return frame_of(request, version)

        await broker.frame(frame(1500))
        if denies:
            broker.node.gate.authorizer = Denying()
        longest, whole, answer = await held(broker, frame(MANY))
        assert answer is not None
        assert longest < LONGEST, f"{longest:.3f} of {whole:.3f} s"


@pytest.mark.parametrize("version", [9, 10])
async def test_many_offsets_are_committed_in_parts_as_few_are_at_once(version, monkeypatch):
    for handler in (h08_offset_commit, h09_offset_fetch):
        monkeypatch.setattr(handler, "PARTITIONS_AT_ONCE", 4)
    async with world() as broker:
        await broker.create("t", 15)
        topic_id = broker.node.topics.get("t").topic_id
        await broker.ask(wire.FindCoordinatorRequest(key="g"), 0)

        def commit(indexes):
            return wire.OffsetCommitRequest(
                group_id="g",
                topics=[
                    wire.OffsetCommitRequestTopic(
                        name=name,
                        topic_id=an_id,
                        partitions=[
                            wire.OffsetCommitRequestPartition(
                                partition_index=index, committed_offset=offset
                            )
                            for index, offset in indexes
                        ],
                    )
                    for name, an_id in (("t", topic_id), ("absent", uuid.UUID(int=5)))
                ],
            )

        indexes = [(index, 100 + index) for index in range(20)]
        response = await broker.ask(commit([*indexes, (7, 1), (7, 2)]), version)
        codes = {
            (topic.name if version == 9 else topic.topic_id, one.partition_index): one.error_code
            for topic in response.topics
            for one in topic.partitions
        }
        there, absent = ("t", "absent") if version == 9 else (topic_id, uuid.UUID(int=5))
        assert len(codes) == sum(len(topic.partitions) for topic in response.topics) == 40
        assert {codes[there, index] for index in range(15)} == {0}
        assert {codes[there, index] for index in range(15, 20)} == {3}
        assert {codes[absent, index] for index in range(20)} == {3 if version == 9 else 100}
        fetched = await broker.ask(
            wire.OffsetFetchRequest(
                groups=[
                    wire.OffsetFetchRequestGroup(
                        group_id="g",
                        topics=[
                            wire.OffsetFetchRequestTopics(
                                name="t", topic_id=topic_id, partition_indexes=list(range(20))
                            )
                        ],
                    )
                ]
            ),
            version,
        )
        [topic] = fetched.groups[0].topics
        found = {one.partition_index: one.committed_offset for one in topic.partitions}
        assert found == {**dict(indexes[:15]), 7: 2, **dict.fromkeys(range(15, 20), -1)}
        # The commit of a member that the group does not have is refused for each part.
        stranger = commit(indexes)
        stranger.member_id, stranger.generation_id_or_member_epoch = "nobody", 5
        response = await broker.ask(stranger, version)
        refused = {one.error_code for one in response.topics[0].partitions}
        assert refused - {3}
        assert 0 not in refused


@pytest.mark.parametrize("exists", [False, True])
async def test_many_members_leave_in_parts(exists):
    async with world() as broker:
        await broker.ask(wire.FindCoordinatorRequest(key="g"), 0)
        if exists:
            join = wire.JoinGroupRequest(
                group_id="g",
                session_timeout_ms=10_000,
                rebalance_timeout_ms=10_000,
                protocol_type="consumer",
                protocols=[wire.JoinGroupRequestProtocol(name="range", metadata=b"")],
            )
            joined = await broker.ask(join, 3)
            assert joined.error_code == 0
        request = wire.LeaveGroupRequest(
            group_id="g", members=[wire.MemberIdentity(member_id=name) for name in NAMES]
        )
        if exists:
            request.members[700].member_id = joined.member_id
        longest, whole, answer = await held(broker, frame_of(request, 5))
        assert longest < LONGEST, f"{longest:.3f} of {whole:.3f} s"
        response = wire.decode_response(wire.LeaveGroupResponse, answer, 5)[1]
        assert [one.member_id for one in response.members] == [
            one.member_id for one in request.members
        ]
        left = [at for at, one in enumerate(response.members) if not one.error_code]
        assert left == ([700] if exists else [])


def join_of(protocols, group_id="g", metadata=b""):
    return wire.JoinGroupRequest(
        group_id=group_id,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=[
            wire.JoinGroupRequestProtocol(name=f"p{number}", metadata=metadata)
            for number in range(protocols)
        ],
    )


async def test_a_member_of_many_protocols_does_not_hold_the_loop():
    """A group compares the protocols of all members at each rebalance."""
    async with world() as broker:
        await broker.ask(wire.FindCoordinatorRequest(key="g"), 0)
        await broker.frame(frame_of(join_of(1000, "first"), 3))
        for protocols, code in ((1000, 0), (1001, 23), (100_000, 23)):
            frame = frame_of(join_of(protocols), 3)
            longest, whole, answer = await held(broker, frame)
            assert longest < LONGEST, f"{longest:.3f} of {whole:.3f} s"
            assert wire.decode_response(wire.JoinGroupResponse, answer, 3)[1].error_code == code
            if not code:
                joined = wire.decode_response(wire.JoinGroupResponse, answer, 3)[1]
        sync = wire.SyncGroupRequest(
            group_id="g",
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            assignments=[
                wire.SyncGroupRequestAssignment(member_id=name, assignment=b"")
                for name in (*NAMES, joined.member_id)
            ],
        )
        longest, whole, answer = await held(broker, frame_of(sync, 3))
        assert longest < LONGEST, f"{longest:.3f} of {whole:.3f} s"
        assert wire.decode_response(wire.SyncGroupResponse, answer, 3)[1].error_code == 0


async def test_a_resource_that_a_request_repeats_is_described_once():
    """Each of the names takes 6 bytes, and its description some 10,000."""
    async with world() as broker:
        await broker.create("t")
        request = wire.DescribeConfigsRequest(
            resources=[
                wire.DescribeConfigsResource(resource_type=2, resource_name="t"),
                wire.DescribeConfigsResource(
                    resource_type=2, resource_name="t", configuration_keys=["retention.ms"]
                ),
                wire.DescribeConfigsResource(
                    resource_type=2, resource_name="u", configuration_keys=["retention.ms"]
                ),
            ]
        )
        response = await broker.ask(request, 4)
        assert [result.resource_name for result in response.results] == ["t", "u"]
        assert len(response.results[0].configs) > 20
        request.resources = request.resources[:1] * MANY
        longest, whole, answer = await held(broker, frame_of(request, 4))
        assert longest < LONGEST, f"{longest:.3f} of {whole:.3f} s"
        assert len(answer) < 20_000


async def test_settings_that_a_request_names_are_looked_up_not_searched():
    async with world() as broker:
        await broker.create("t")
        names = [*NAMES, "retention.ms"]
        request = wire.DescribeConfigsRequest(
            resources=[
                wire.DescribeConfigsResource(
                    resource_type=2, resource_name="t", configuration_keys=names[start:]
                )
                for start in (0, 1, 2)
            ]
        )
        longest, whole, answer = await held(broker, frame_of(request, 4))
        assert longest < LONGEST, f"{longest:.3f} of {whole:.3f} s"
        [result] = wire.decode_response(wire.DescribeConfigsResponse, answer, 4)[1].results
        assert [entry.name for entry in result.configs] == ["retention.ms"]


def with_acls():
    return Broker(
        authorizer_class_name="org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        super_users="User:ANONYMOUS",
    )


def creations(names):
    return wire.CreateAclsRequest(
        creations=[
            wire.AclCreation(
                resource_type=2,
                resource_name=name,
                resource_pattern_type=3,
                principal="User:alice",
                host="*",
                operation=3,
                permission_type=3,
            )
            for name in names
        ]
    )


def deletions(names, **fields):
    asked = {
        "resource_type_filter": 2,
        "pattern_type_filter": 3,
        "principal_filter": None,
        "host_filter": None,
        "operation": 1,
        "permission_type": 1,
        **fields,
    }
    return wire.DeleteAclsRequest(
        filters=[wire.DeleteAclsFilter(resource_name_filter=name, **asked) for name in names]
    )


MANY_ACLS = 2500
"""The node of this test appends to the metadata log on the loop, a broker does so in a thread."""


async def test_changes_of_many_acls_do_not_hold_the_loop():
    async with with_acls() as broker:
        for part in (creations(NAMES[:MANY_ACLS]), creations(NAMES[MANY_ACLS : MANY_ACLS + 500])):
            longest, whole, answer = await held(broker, frame_of(part, 3))
            assert longest < LONGEST, f"{longest:.3f} of {whole:.3f} s"
            response = wire.decode_response(wire.CreateAclsResponse, answer, 3)[1]
            assert {result.error_code for result in response.results} == {0}
        # Each of the filters is compared with all ACLs, because none of them names a resource.
        hosts = wire.DeleteAclsRequest(
            filters=[
                each
                for number in range(300)
                for each in deletions([None], host_filter=f"h{number}").filters
            ]
        )
        longest, whole, _ = await held(broker, frame_of(hosts, 3))
        assert longest < LONGEST, f"{longest:.3f} of {whole:.3f} s"
        longest, whole, answer = await held(broker, frame_of(deletions(NAMES[:MANY_ACLS]), 3))
        assert longest < LONGEST, f"{longest:.3f} of {whole:.3f} s"
        response = wire.decode_response(wire.DeleteAclsResponse, answer, 3)[1]
        assert {len(result.matching_acls) for result in response.filter_results} == {1}
        assert len(broker.node.metadata._metadata.image.principals.acls) == 500


async def test_the_changes_of_a_long_request_are_in_few_lines_of_the_audit_log(caplog):
    """Those after the hundredth are in lines of a hundred; each of them had a line."""
    caplog.set_level(logging.INFO, "aiokq.audit.change")
    async with with_acls() as broker:
        await broker.frame(frame_of(creations(NAMES[:1050]), 3))
    lines = [record.audit for record in caplog.records if record.name == "aiokq.audit.change"]
    assert len(lines) == 110
    logged = [text for line in lines for text in line.get("items") or [line["item"]]]
    assert logged == [f"User:alice Allow Read Topic:{name}" for name in NAMES[:1050]]


def described_acls():
    return wire.DescribeAclsRequest(
        resource_type_filter=1,
        resource_name_filter=None,
        pattern_type_filter=1,
        principal_filter=None,
        host_filter=None,
        operation=1,
        permission_type=1,
    )


async def test_a_list_of_many_acls_does_not_hold_the_loop():
    """Monitoring asks for it; its permission is Describe."""
    async with with_acls() as broker:
        for part in range(3):
            names = [f"{part}-{name}" for name in NAMES[:9000]]
            await broker.frame(frame_of(creations(names), 3))
        frame = frame_of(described_acls(), 3)
        longest, whole, answer = await held(broker, frame)
        assert longest < LONGEST, f"{longest:.3f} of {whole:.3f} s"
        response = wire.decode_response(wire.DescribeAclsResponse, answer, 3)[1]
        assert len(response.resources) == 27_000


def quotas_of(names, rate):
    return wire.AlterClientQuotasRequest(
        entries=[
            wire.AlterClientQuotasEntryData(
                entity=[
                    wire.AlterClientQuotasEntityData(entity_type="user", entity_name=name),
                    wire.AlterClientQuotasEntityData(entity_type="client-id", entity_name=None),
                ],
                ops=[
                    wire.AlterClientQuotasOpData(key=key, value=rate)
                    for key in ("producer_byte_rate", "consumer_byte_rate")
                ],
            )
            for name in names
        ]
    )


async def test_the_quotas_of_many_users_do_not_hold_the_loop():
    async with Broker() as broker:
        await broker.frame(frame_of(quotas_of(NAMES[:40], 2.0), 1))
        longest, whole, answer = await held(broker, frame_of(quotas_of(NAMES[:1000], 1.0), 1))
        assert longest < LONGEST, f"{longest:.3f} of {whole:.3f} s"
        response = wire.decode_response(wire.AlterClientQuotasResponse, answer, 1)[1]
        assert [entry.error_code for entry in response.entries] == [0] * 1000
        # A change of one quota among many.
        longest, whole, _ = await held(broker, frame_of(quotas_of(NAMES[:1], 3.0), 1))
        assert longest < LONGEST, f"{longest:.3f} of {whole:.3f} s"
        request = wire.DescribeClientQuotasRequest(components=[], strict=False)
        longest, whole, answer = await held(broker, frame_of(request, 1))
        assert longest < LONGEST, f"{longest:.3f} of {whole:.3f} s"
        response = wire.decode_response(wire.DescribeClientQuotasResponse, answer, 1)[1]
        assert len(response.entries) == 1000


async def test_the_credentials_of_many_users_do_not_hold_the_loop():
    async with Broker() as broker:

        def request(names):
            return wire.AlterUserScramCredentialsRequest(
                upsertions=[
                    wire.ScramCredentialUpsertion(
                        name=name,
                        mechanism=2,
                        iterations=4096,
                        salt=b"salt",
                        salted_password=bytes(64),
                    )
                    for name in names
                ]
            )

        await broker.frame(frame_of(request(NAMES[:40]), 0))
        longest, whole, answer = await held(broker, frame_of(request(NAMES[:2000]), 0))
        assert longest < LONGEST, f"{longest:.3f} of {whole:.3f} s"
        response = wire.decode_response(wire.AlterUserScramCredentialsResponse, answer, 0)[1]
        assert [result.error_code for result in response.results] == [0] * 2000
        request = wire.DescribeUserScramCredentialsRequest(users=None)
        longest, whole, answer = await held(broker, frame_of(request, 0))
        assert longest < LONGEST, f"{longest:.3f} of {whole:.3f} s"


async def test_a_node_stops_while_acls_are_compared():
    async with with_acls() as broker:
        await broker.frame(frame_of(creations(NAMES[:2000]), 3))
        filters = [
            each
            for number in range(20_000)
            for each in deletions([None], host_filter=f"h{number}").filters
        ]
        deleting = asyncio.ensure_future(
            broker.frame(frame_of(wire.DeleteAclsRequest(filters=filters), 3))
        )
        await asyncio.sleep(0.2)
        assert not deleting.done()
        async with asyncio.timeout(5):
            await broker.node.metadata.close()
        with pytest.raises(Closed):
            await deleting


async def test_the_metadata_of_many_topics_does_not_hold_the_loop():
    async with world() as broker:
        for number in range(20):
            await broker.create(f"t{number}", 50)
        frame = frame_of(wire.MetadataRequest(topics=None), 12)
        await broker.frame(frame)
        longest, whole, _ = await held(broker, frame)
        assert longest < LONGEST, f"{longest:.3f} of {whole:.3f} s"


class Ticks:
    """Counts the iterations of the loop."""

    def __init__(self):
        self.count = 0
        self._handle = None

    def __enter__(self):
        self._tick()
        return self

    def _tick(self):
        self.count += 1
        self._handle = asyncio.get_running_loop().call_soon(self._tick)

    def __exit__(self, *exc_info):
        self._handle.cancel()


@pytest.fixture
def hurried(monkeypatch):
    """Every look at the clock ends a turn."""
    monkeypatch.setattr(module, "SECONDS_PER_TURN", 0.0)


async def test_a_request_of_few_names_takes_no_extra_turn(hurried):
    async with world() as broker:
        for number in range(4):
            await broker.create(f"t{number}")
            await broker.produce(f"t{number}", batch(2))
        with Ticks() as ticks:
            asked = [(f"t{number}", 0, 0) for number in range(4)]
            response = await broker.fetch(*asked, session_epoch=0)
            assert len(response.responses) == 4
            await broker.ask(
                wire.MetadataRequest(
                    topics=[wire.MetadataRequestTopic(name=f"t{number}") for number in range(4)]
                ),
                9,
            )
        assert ticks.count == 1


PARTITIONS = 200


async def filled(broker):
    await broker.create("t", PARTITIONS)
    for index in range(PARTITIONS):
        await broker.produce("t", batch(1), partition=index)


async def reads(broker):
    """Wait until a long fetch has read its first partitions."""
    async with asyncio.timeout(30):
        while not broker.node.purgatory._watchers:  # noqa: ASYNC110  a read has no event
            await asyncio.sleep(0)


def long_fetch(*, offset=0, topic="t", **options):
    return wire.FetchRequest(
        **{"max_wait_ms": 0, "min_bytes": 1, **options},
        topics=[
            wire.FetchTopic(
                topic=topic,
                partitions=[
                    wire.FetchPartition(
                        partition=index, fetch_offset=offset, partition_max_bytes=1_000_000
                    )
                    for index in range(PARTITIONS)
                ],
            )
        ],
    )


async def test_a_long_fetch_returns_what_one_in_a_single_turn_returns(monkeypatch):
    async with world() as broker:
        await filled(broker)
        expected = await broker.ask(long_fetch(session_epoch=0), 12)
        monkeypatch.setattr(module, "SECONDS_PER_TURN", 0.0)
        with Ticks() as ticks:
            response = await broker.ask(long_fetch(session_epoch=0), 12)
        assert ticks.count > PARTITIONS // module.STEPS_PER_LOOK
        assert response.responses == expected.responses
        # The sessions of both continue; nothing is new in them.
        for session_id in (expected.session_id, response.session_id):
            again = await broker.ask(
                wire.FetchRequest(
                    max_wait_ms=0, min_bytes=1, session_id=session_id, session_epoch=1, topics=[]
                ),
                12,
            )
            assert again.error_code == 0
            assert sum(len(topic.partitions) for topic in again.responses) == PARTITIONS


async def test_records_that_arrive_while_a_long_fetch_reads_end_its_wait(hurried):
    """A record after the read of its partition and before the wait was not noticed."""
    async with world() as broker:
        await filled(broker)
        fetch = asyncio.ensure_future(
            broker.ask(long_fetch(offset=1, max_wait_ms=60_000, min_bytes=1), 12)
        )
        await reads(broker)
        assert not len(broker.node.purgatory)
        other = RequestContext(2, "127.0.0.1:5001", "127.0.0.1", "PLAINTEXT")
        produce = wire.ProduceRequest(
            acks=1,
            timeout_ms=1000,
            topic_data=[
                wire.TopicProduceData(
                    name="t",
                    partition_data=[wire.PartitionProduceData(index=0, records=batch(1))],
                )
            ],
        )
        await broker.ask(produce, 9, client=other)
        response = await asyncio.wait_for(fetch, 10)
        [topic] = response.responses
        assert [p.partition_index for p in topic.partitions if offsets(p.records)] == [0]
        assert broker.node.purgatory._watchers == {}


async def test_partitions_that_go_while_a_long_fetch_reads_get_an_error(hurried):
    async with world() as broker:
        await filled(broker)
        fetch = asyncio.ensure_future(
            broker.ask(long_fetch(offset=1, max_wait_ms=60_000, min_bytes=1), 12)
        )
        await reads(broker)
        await broker.node.metadata.delete_topic(broker.node.topics.get("t"))
        response = await asyncio.wait_for(fetch, 10)
        [topic] = response.responses
        codes = {p.error_code for p in topic.partitions}
        assert 3 in codes
        assert codes <= {0, 3}
        assert broker.node.purgatory._watchers == {}


async def test_a_long_fetch_of_a_client_that_goes_ends(hurried):
    async with world() as broker:
        await filled(broker)
        client = RequestContext(2, "127.0.0.1:5001", "127.0.0.1", "PLAINTEXT")
        fetch = asyncio.ensure_future(
            broker.ask(long_fetch(offset=1, max_wait_ms=60_000), 12, client=client)
        )
        await reads(broker)
        client.disconnected()
        with pytest.raises(ConnectionLost):
            await fetch
        assert broker.node.purgatory._watchers == {}


class Counting:
    """Quotas that count what is counted, and throttle nothing."""

    def __init__(self):
        self.counted = []

    def fetch_bytes(self, connection, client_id):
        return 2**31 - 1

    def fetched(self, connection, client_id, nbytes):
        self.counted.append((connection, client_id, nbytes))
        return 0


async def test_the_time_of_a_long_fetch_counts_although_its_client_has_gone(hurried):
    """Otherwise a client could keep the loop busy beyond its `request_percentage`."""
    async with world() as broker:
        await filled(broker)
        quotas = broker.node.gate.quotas = Counting()
        client = RequestContext(2, "127.0.0.1:5001", "127.0.0.1", "PLAINTEXT")
        fetch = asyncio.ensure_future(
            broker.ask(long_fetch(offset=1, max_wait_ms=60_000), 12, client=client)
        )
        await reads(broker)
        client.disconnected()
        with pytest.raises(ConnectionLost):
            await fetch
        assert quotas.counted == [(client, "test", 0)]


async def test_a_long_fetch_that_is_cancelled_watches_nothing(hurried):
    async with world() as broker:
        await filled(broker)
        fetch = asyncio.ensure_future(broker.ask(long_fetch(offset=1, max_wait_ms=60_000), 12))
        await reads(broker)
        fetch.cancel()
        with pytest.raises(asyncio.CancelledError):
            await fetch
        assert broker.node.purgatory._watchers == {}


async def test_a_session_of_very_many_partitions_does_not_hold_the_loop():
    """A small request of a session reads all its partitions."""
    async with world() as broker:
        topics = [
            wire.FetchTopic(
                topic=f"made-up-{number}",
                partitions=[
                    wire.FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1)
                    for index in range(1000)
                ],
            )
            for number in range(60)
        ]
        begin = wire.FetchRequest(max_wait_ms=0, min_bytes=1, session_epoch=0, topics=topics)
        longest, whole, answer = await held(broker, frame_of(begin, 12))
        assert longest < LONGEST, f"{longest:.3f} of {whole:.3f} s"
        response = wire.decode_response(wire.FetchResponse, answer, 12)[1]
        assert response.session_id
        again = wire.FetchRequest(
            max_wait_ms=0,
            min_bytes=1,
            session_id=response.session_id,
            session_epoch=1,
            topics=[],
        )
        longest, whole, answer = await held(broker, frame_of(again, 12))
        assert longest < LONGEST, f"{longest:.3f} of {whole:.3f} s"
        response = wire.decode_response(wire.FetchResponse, answer, 12)[1]
        assert sum(len(topic.partitions) for topic in response.responses) == 60_000


async def test_a_produce_request_of_very_many_batches_does_not_hold_the_loop():
    """It takes the general path, which appends some in each turn."""
    async with world() as broker:
        await broker.create("t", 1)
        request = wire.ProduceRequest(
            acks=1,
            timeout_ms=1000,
            topic_data=[
                wire.TopicProduceData(
                    name="t",
                    partition_data=[wire.PartitionProduceData(index=0, records=batch(1))] * 10_000,
                )
            ],
        )
        longest, whole, _ = await held(broker, frame_of(request, 9))
        assert longest < LONGEST, f"{longest:.3f} of {whole:.3f} s"
        assert broker.node.counters.batches_appended == 10_000
