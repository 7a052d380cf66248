"""DescribeAcls, CreateAcls and DeleteAcls, and what they have to do with other requests."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random

import pytest

from aiokq import wire
from aiokq.broker.config.authorizer_settings import STANDARD_AUTHORIZER
from aiokq.connection.principal import Principal
from aiokq.connection.request_context import CloseConnection, RequestContext
from aiokq.core.acl_types import Operation, PatternType, PermissionType, ResourceType
from aiokq.core.acls import parse_acl
from tests.unit.broker.harness import Broker, batch

ADMIN = {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:admin"}
VERSIONS = range(1, 4)


def world(**settings):
    broker = Broker(
        offsets_topic_num_partitions=1,
        group_initial_rebalance_delay_ms=0,
        **({**ADMIN, **settings}),
    )
    broker.client.session.principal = Principal.user("admin")
    return broker


def client(name, host="127.0.0.1"):
    context = RequestContext(2, f"{host}:5000", host, "PLAINTEXT")
    context.session.principal = Principal.user(name)
    return context


def creation(line):
    [acl] = parse_acl(line)
    return wire.AclCreation(
        resource_type=acl.resource_type,
        resource_name=acl.resource_name,
        resource_pattern_type=acl.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission_type,
    )


async def create(broker, *creations, version=3, who=None):
    request = wire.CreateAclsRequest(
        creations=[creation(each) if isinstance(each, str) else each for each in creations]
    )
    response = await broker.ask(request, version, client=who)
    return [(each.error_code, each.error_message) for each in response.results]


def acl_filter(cls=wire.DescribeAclsRequest, **fields):
    return cls(
        **{
            "resource_type_filter": 1,
            "resource_name_filter": None,
            "pattern_type_filter": 1,
            "principal_filter": None,
            "host_filter": None,
            "operation": 1,
            "permission_type": 1,
            **fields,
        }
    )


async def describe(broker, version=3, who=None, **fields):
    response = await broker.ask(acl_filter(**fields), version, client=who)
    assert response.error_code == 0, response.error_message
    return sorted(
        (
            each.resource_type,
            each.resource_name,
            each.pattern_type,
            acl.principal,
            acl.host,
            acl.operation,
            acl.permission_type,
        )
        for each in response.resources
        for acl in each.acls
    )


async def delete(broker, *filters, version=3, who=None):
    request = wire.DeleteAclsRequest(
        filters=[acl_filter(wire.DeleteAclsFilter, **each) for each in filters]
    )
    return (await broker.ask(request, version, client=who)).filter_results


async def write(broker, who, topic="t"):
    response = await broker.ask(
        wire.ProduceRequest(
            acks=-1,
            timeout_ms=1000,
            topic_data=[
                wire.TopicProduceData(
                    name=topic,
                    partition_data=[wire.PartitionProduceData(index=0, records=batch())],
                )
            ],
        ),
        9,
        client=who,
    )
    return response.responses[0].partition_responses[0].error_code


LINE = "User:alice Allow Write Topic:t"
VALUE = (2, "t", 3, "User:alice", "*", 4, 3)


@pytest.mark.parametrize("version", VERSIONS)
async def test_an_acl_is_in_force_when_its_creation_is_answered(version):
    async with world() as broker:
        await broker.create("t")
        assert await write(broker, client("alice")) == 29
        assert await create(broker, LINE, version=version) == [(0, "")]
        assert await write(broker, client("alice")) == 0
        assert await write(broker, client("bob")) == 29
        assert await describe(broker, version) == [VALUE]
        [result] = await delete(broker, {"principal_filter": "User:alice"}, version=version)
        assert (result.error_code, result.error_message) == (0, None)
        [gone] = result.matching_acls
        assert (gone.error_code, gone.resource_name, gone.principal) == (0, "t", "User:alice")
        assert await write(broker, client("alice")) == 29
        assert await describe(broker, version) == []


async def test_acls_survive_a_restart():
    async with world() as broker:
        await broker.create("t")
        await create(broker, LINE, "User:bob Deny All Topic:*")
        await delete(broker, {"principal_filter": "User:bob"})
        files = broker.files
    async with Broker(files, **ADMIN) as broker:
        broker.client.session.principal = Principal.user("admin")
        assert await describe(broker) == [VALUE]
        assert await write(broker, client("alice")) == 0


async def test_what_exists_already_is_no_error():
    async with world() as broker:
        assert await create(broker, LINE, LINE) == [(0, ""), (0, "")]
        end = broker.node.storage.metadata.end_offset
        assert await create(broker, LINE) == [(0, "")]
        assert broker.node.storage.metadata.end_offset == end
        assert await describe(broker) == [VALUE]


def changed(**fields):
    made = creation(LINE)
    for name, value in fields.items():
        setattr(made, name, value)
    return made


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"resource_type": 4, "resource_name": "x"}, "only valid name for the CLUSTER"),
        ({"resource_name": ""}, "Invalid empty resource name"),
        ({"resource_type": 8}, "Invalid resourceType UNKNOWN"),
        ({"resource_type": -1}, "Invalid resourceType UNKNOWN"),
        ({"resource_pattern_type": 5}, "Invalid patternType UNKNOWN"),
        ({"operation": 16}, "Invalid operation UNKNOWN"),
        ({"permission_type": 4}, "Invalid permissionType UNKNOWN"),
        ({"principal": "alice"}, "Could not parse principal from `alice`"),
    ],
)
async def test_an_invalid_acl_is_refused_and_the_others_are_created(fields, message):
    async with world() as broker:
        [bad, good] = await create(broker, changed(**fields), LINE)
        assert bad[0] == 42
        assert message in bad[1]
        assert good == (0, "")
        assert await describe(broker) == [VALUE]


@pytest.mark.parametrize(
    "fields",
    [
        {"resource_type": 1},
        {"resource_pattern_type": 1},
        {"resource_pattern_type": 2},
        {"operation": 1},
        {"permission_type": 1},
    ],
)
async def test_a_code_of_filters_fails_the_whole_creation(fields):
    """As in Kafka: error -1 for each, and nothing is created."""
    async with world() as broker:
        assert [code for code, _ in await create(broker, changed(**fields), LINE)] == [-1, -1]
        assert await describe(broker) == []


@pytest.mark.parametrize(
    "name", ["resource_type", "resource_pattern_type", "operation", "permission_type"]
)
async def test_the_code_0_closes_the_connection(name):
    async with world() as broker:
        with pytest.raises(CloseConnection, match="code 0"):
            await create(broker, LINE, changed(**{name: 0}))
        of_filter = {
            "resource_type": "resource_type_filter",
            "resource_pattern_type": "pattern_type_filter",
        }.get(name, name)
        with pytest.raises(CloseConnection, match="code 0"):
            await describe(broker, **{of_filter: 0})
        with pytest.raises(CloseConnection, match="code 0"):
            await delete(broker, {of_filter: 0})


async def test_names_that_kafka_does_not_check_are_accepted():
    """The operation may have no meaning for the resource, and a topic may have any name."""
    async with world() as broker:
        lines = [
            changed(operation=12),
            changed(resource_name="no topic/has this name"),
            changed(host="nowhere"),
            changed(principal="Group:x"),
            changed(principal=":"),
        ]
        assert [code for code, _ in await create(broker, *lines)] == [0] * 5
        assert len(await describe(broker)) == 5


FILTERED = [
    "User:alice Allow Read Topic:orders",
    "User:alice Allow All Topic:orders",
    "User:bob Deny Read Topic:order*",
    "User:* Allow Read Topic:*",
    "User:bob Allow Read Topic:other from 192.0.2.7",
    "User:bob Allow Read Group:orders",
]


@pytest.mark.parametrize(
    ("fields", "found"),
    [
        ({}, {0, 1, 2, 3, 4, 5}),
        ({"resource_type_filter": 2}, {0, 1, 2, 3, 4}),
        ({"resource_name_filter": "orders"}, {0, 1, 5}),
        ({"resource_name_filter": "order"}, {2}),
        ({"resource_name_filter": "orders", "pattern_type_filter": 3}, {0, 1, 5}),
        ({"resource_name_filter": "orders", "pattern_type_filter": 4}, set()),
        ({"pattern_type_filter": 4}, {2}),
        ({"resource_name_filter": "orders", "pattern_type_filter": 2}, {0, 1, 2, 3, 5}),
        ({"resource_name_filter": "o", "pattern_type_filter": 2}, {3}),
        ({"pattern_type_filter": 2}, {0, 1, 2, 3, 4, 5}),
        ({"resource_name_filter": "*"}, {3}),
        ({"principal_filter": "User:alice"}, {0, 1}),
        ({"host_filter": "192.0.2.7"}, {4}),
        ({"host_filter": "*"}, {0, 1, 2, 3, 5}),
        ({"operation": 3}, {0, 2, 3, 4, 5}),
        ({"operation": 2}, {1}),
        ({"permission_type": 2}, {2}),
        ({"resource_name_filter": ""}, set()),
    ],
)
async def test_a_filter_finds(fields, found):
    """A value finds itself only, except for MATCH, which finds what covers the name."""
    async with world() as broker:
        await create(broker, *FILTERED)
        values = [
            tuple(
                getattr(creation(line), name)
                for name in (
                    "resource_type",
                    "resource_name",
                    "resource_pattern_type",
                    "principal",
                    "host",
                    "operation",
                    "permission_type",
                )
            )
            for line in FILTERED
        ]
        assert await describe(broker, **fields) == sorted(values[number] for number in found)
        [result] = await delete(broker, fields)
        assert len(result.matching_acls) == len(found)
        assert len(await describe(broker)) == len(FILTERED) - len(found)


async def test_an_acl_may_match_several_filters():
    async with world() as broker:
        await create(broker, LINE)
        results = await delete(
            broker, {}, {"principal_filter": "User:alice"}, {"principal_filter": "User:x"}
        )
        assert [len(each.matching_acls) for each in results] == [1, 1, 0]
        assert {each.error_code for each in results} == {0}


async def test_an_unknown_code_in_a_filter_is_an_error_of_the_filter():
    async with world() as broker:
        await create(broker, LINE)
        bad, other, good = await delete(broker, {"resource_type_filter": 9}, {"operation": 16}, {})
        assert (bad.error_code, bad.error_message) == (42, "Unknown patternFilter.")
        assert (other.error_code, other.error_message) == (42, "Unknown entryFilter.")
        assert len(good.matching_acls) == 1
        assert await describe(broker, resource_type_filter=9) == []


async def test_without_an_authorizer_acls_are_disabled():
    async with Broker() as broker:
        assert {code for code, _ in await create(broker, LINE, LINE)} == {54}
        response = await broker.ask(acl_filter(), 3)
        assert (response.error_code, response.resources) == (54, [])
        assert {each.error_code for each in await delete(broker, {}, {})} == {54}


async def test_only_a_permitted_client_manages_acls():
    async with world() as broker:
        await create(
            broker, LINE, "User:auditor Allow Describe Cluster", "User:ops Allow Alter Cluster"
        )
        alice, auditor, ops = client("alice"), client("auditor"), client("ops")
        assert {code for code, _ in await create(broker, LINE, who=alice)} == {31}
        assert {code for code, _ in await create(broker, LINE, who=auditor)} == {31}
        assert {each.error_code for each in await delete(broker, {}, {}, who=auditor)} == {31}
        assert (await broker.ask(acl_filter(), 3, client=alice)).error_code == 31
        assert len(await describe(broker, who=auditor)) == 3
        assert len(await describe(broker, who=ops)) == 3  # ALTER includes DESCRIBE
        assert await create(broker, "User:x Allow Read Topic:t", who=ops) == [(0, "")]


async def test_changes_are_in_the_audit_log(caplog):
    caplog.set_level(logging.INFO, "aiokq.audit")
    async with world() as broker:
        await create(broker, LINE, changed(principal="x"))
        await delete(broker, {}, {})
        await create(broker, LINE, who=client("alice"))
    lines = [each.getMessage() for each in caplog.records]
    who = "principal=User:admin host=127.0.0.1 listener=PLAINTEXT"
    assert lines[:2] == [
        f'ACL created: {who} item="{LINE}"',
        f'ACL deleted: {who} item="{LINE}"',
    ]
    assert lines[2].startswith("operation denied: principal=User:alice")
    assert lines[2].endswith("api=CreateAcls operation=ALTER resource=CLUSTER:kafka-cluster")


async def test_a_request_has_a_bounded_number_of_acls():
    """Kafka's limit of 10,000 records for an operation."""
    async with world() as broker:
        many = [changed(resource_name=f"t{number}") for number in range(10_001)]
        assert {code for code, _ in await create(broker, *many)} == {42}
        assert await describe(broker) == []
        assert {code for code, _ in await create(broker, *many[1:])} == {0}
        assert len(await describe(broker)) == 10_000


async def test_deleting_needs_the_topic_or_the_cluster():
    """DELETE on the cluster includes every topic."""
    async with world() as broker:
        ids = {name: await broker.create(name) for name in ("a", "b", "c")}
        await create(
            broker,
            "User:janitor Allow Delete Cluster",
            "User:alice Allow Describe Topic:*",
            "User:alice Allow Delete Topic:a",
        )

        async def gone(who, *states, version=6):
            request = wire.DeleteTopicsRequest(topics=list(states), timeout_ms=1000)
            response = await broker.ask(request, version, client=who)
            return [(each.name, each.error_code) for each in response.responses]

        state = wire.DeleteTopicState
        alice, janitor = client("alice"), client("janitor")
        assert await gone(alice, state(name="a"), state(name="b"), state(name="missing")) == [
            ("a", 0),
            ("b", 29),
            ("missing", 3),
        ]
        assert await gone(alice, state(name=None, topic_id=ids["c"])) == [("c", 29)]
        assert await gone(client("x"), state(name="missing")) == [("missing", 29)]
        assert await gone(client("x"), state(name=None, topic_id=ids["c"])) == [(None, 29)]
        assert await gone(
            janitor, state(name="b"), state(name=None, topic_id=ids["c"]), state(name="missing")
        ) == [("b", 0), ("c", 0), ("missing", 3)]


async def test_a_topic_is_hidden_from_who_may_not_describe_it():
    async with world() as broker:
        await broker.create("seen")
        await broker.create("secret")
        await create(broker, "User:alice Allow Read Topic:seen")
        asked = wire.MetadataRequest(topics=None, include_topic_authorized_operations=True)
        response = await broker.ask(asked, 12, client=client("alice"))
        [topic] = response.topics
        assert topic.name == "seen"
        assert topic.topic_authorized_operations == 1 << Operation.READ | 1 << Operation.DESCRIBE


async def test_acls_written_by_another_node_are_in_force():
    """The records of the metadata log are the only source."""
    async with world() as broker:
        await broker.create("t")
        values = [VALUE]
        assert await broker.node.metadata.create_acls(values) == [None]
        assert await write(broker, client("alice")) == 0


async def test_a_change_that_is_recorded_later_counts_later():
    """Requests between two changes see each of them whole."""
    async with world() as broker:
        await broker.create("t")
        answers = await asyncio.gather(
            *(create(broker, f"User:u{number} Allow Write Topic:t") for number in range(20))
        )
        assert answers == [[(0, "")]] * 20
        for number in range(20):
            assert await write(broker, client(f"u{number}")) == 0


def test_the_codes_are_those_of_the_protocol():
    assert (ResourceType.TOPIC, PatternType.PREFIXED, PermissionType.ALLOW) == (2, 4, 3)


async def test_hostile_acls_and_filters():
    """Any code and any text gets an answer or closes the connection, and decisions go on."""
    rng = random.Random(18)
    texts = [
        "",
        "*",
        "User:*",
        "User:",
        ":",
        "\x00",
        "é" * 300,
        "a" * 32_000,
        "kafka-cluster",
        "::1",
    ]

    def code():
        return rng.choice((*range(-2, 17), 127, -128))

    def text():
        return rng.choice((*texts, "".join(rng.choices("ab*:é ", k=rng.randint(1, 40)))))

    async with world() as broker:
        for _ in range(300):
            fields = {
                "operation": code(),
                "permission_type": code(),
            }
            created = wire.CreateAclsRequest(
                creations=[
                    wire.AclCreation(
                        resource_type=code(),
                        resource_name=text(),
                        resource_pattern_type=code(),
                        principal=text(),
                        host=text(),
                        **fields,
                    )
                ]
            )
            filters = {
                "resource_type_filter": code(),
                "resource_name_filter": rng.choice((None, text())),
                "pattern_type_filter": code(),
                "principal_filter": rng.choice((None, text())),
                "host_filter": rng.choice((None, text())),
                **fields,
            }
            valid = wire.CreateAclsRequest(
                creations=[
                    wire.AclCreation(
                        resource_type=rng.choice((2, 3, 5)),
                        resource_name=text() or "x",
                        resource_pattern_type=rng.choice((3, 4)),
                        principal=f"User:{text()}",
                        host=text(),
                        operation=rng.randint(2, 15),
                        permission_type=rng.choice((2, 3)),
                    )
                ]
            )
            deleted = wire.DeleteAclsRequest(filters=[wire.DeleteAclsFilter(**filters)])
            for request in (created, wire.DescribeAclsRequest(**filters), valid, deleted):
                with contextlib.suppress(CloseConnection):
                    assert await broker.ask(request, 3) is not None
            await broker.ask(
                wire.FindCoordinatorRequest(coordinator_keys=[text() or "x"]),
                4,
                client=client(text()),
            )
        files = broker.files
    async with Broker(files, **ADMIN) as again:
        again.client.session.principal = Principal.user("admin")
        await describe(again)


async def test_changes_of_quotas_and_users_are_in_the_audit_log_too(caplog):
    caplog.set_level(logging.INFO, "aiokq.audit.change")
    async with world() as broker:
        part, op = wire.AlterClientQuotasEntityData, wire.AlterClientQuotasOpData
        for validate_only in (True, False):
            request = wire.AlterClientQuotasRequest(
                entries=[
                    wire.AlterClientQuotasEntryData(
                        entity=[
                            part(entity_type="user", entity_name="alice"),
                            part(entity_type="client-id", entity_name=None),
                        ],
                        ops=[op(key="producer_byte_rate", value=1000.0)],
                    ),
                    wire.AlterClientQuotasEntryData(entity=[], ops=[]),
                ],
                validate_only=validate_only,
            )
            await broker.ask(request, 1)
        upsertion = wire.ScramCredentialUpsertion(
            name="alice", mechanism=1, iterations=4096, salt=b"salt", salted_password=b"password"
        )
        await broker.ask(wire.AlterUserScramCredentialsRequest(upsertions=[upsertion]), 0)
    who = "principal=User:admin host=127.0.0.1 listener=PLAINTEXT"
    assert [each.getMessage() for each in caplog.records] == [
        f'quotas changed: {who} item="user=alice, client-id=<default>: producer_byte_rate=1000"',
        f'user changed: {who} item="alice: SCRAM-SHA-256 set"',
    ]
    assert "password" not in caplog.text
