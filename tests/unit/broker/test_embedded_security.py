"""EmbeddedCluster(acls=...) and EmbeddedCluster(authorize=...), with aiokq's own clients."""

from __future__ import annotations

import asyncio

import pytest

import aiokq
from aiokq import errors
from aiokq.broker.config.authorizer_settings import STANDARD_AUTHORIZER

ANYBODY = "User:ANONYMOUS"
AUTHORIZER = {"authorizer.class.name": STANDARD_AUTHORIZER}


async def send(kafka, topic, value=b"v"):
    async with (
        aiokq.Cluster(kafka.bootstrap_servers) as cluster,
        cluster.producer(max_block_ms=2000) as producer,
    ):
        return await producer.send(topic, value)


async def test_acls_in_one_line_each():
    lines = [f"{ANYBODY} Allow Write Topic:orders", f"{ANYBODY} Allow Describe Topic:seen*"]
    async with aiokq.EmbeddedCluster(acls=lines) as kafka:
        for topic in ("orders", "seen", "secret"):
            await kafka.create_topic(topic)
        await send(kafka, "orders")
        with pytest.raises(errors.TopicAuthorization) as caught:
            await send(kafka, "seen")
        error = caught.value
        assert (error.principal, error.operation, error.resource) == (
            ANYBODY,
            "WRITE",
            "TOPIC:seen",
        )
        with pytest.raises(errors.TopicAuthorization) as caught:
            await send(kafka, "secret")
        error = caught.value
        assert (error.principal, error.operation, error.resource) == (
            ANYBODY,
            "DESCRIBE",
            "TOPIC:secret",
        )
        async with aiokq.Admin(kafka.bootstrap_servers) as admin:
            assert set(await admin.list_topics()) == {"orders", "seen"}


async def test_an_empty_list_allows_nothing():
    async with (
        aiokq.EmbeddedCluster(acls=[]) as kafka,
        aiokq.Admin(kafka.bootstrap_servers) as admin,
    ):
        results = await admin.create_topics("t")
        assert isinstance(results["t"].error, errors.TopicAuthorization)


async def test_a_group_that_may_not_be_read_is_named():
    lines = [f"{ANYBODY} Allow All Topic:*", f"{ANYBODY} Allow Describe Group:g"]
    async with aiokq.EmbeddedCluster(acls=lines) as kafka:
        await kafka.create_topic("t")
        async with aiokq.Cluster(kafka.bootstrap_servers) as cluster:
            for group_id, operation in (("g", "READ"), ("other", "DESCRIBE")):
                async with cluster.consumer("t", group_id=group_id) as consumer:
                    with pytest.raises(errors.GroupAuthorization) as caught:
                        await asyncio.wait_for(anext(aiter(consumer)), 10)
                assert caught.value.resource == f"GROUP:{group_id}"
                assert caught.value.operation == operation
                assert caught.value.principal == ANYBODY


async def test_acls_are_kept_and_added_to(tmp_path):
    line = f"{ANYBODY} Allow Describe Cluster"
    async with aiokq.EmbeddedCluster(acls=[line], data_dir=tmp_path):
        pass
    more = aiokq.Acl.parse(f"{ANYBODY} Allow Read Topic:t")
    async with (
        aiokq.EmbeddedCluster(acls=[line, *more], data_dir=tmp_path) as kafka,
        aiokq.Admin(kafka.bootstrap_servers) as admin,
    ):
        found = await admin.describe_acls()
    assert [str(acl) for acl in found] == [f"{ANYBODY} Allow Read Topic:t", line]
    async with aiokq.EmbeddedCluster(data_dir=tmp_path) as kafka:  # kept, but not enforced
        await kafka.create_topic("t")
        await send(kafka, "t")


async def test_users_with_acls():
    """The error names the user, and another user may do what its own ACL says."""
    users = {"alice": "a secret", "bob": "another one"}
    lines = [
        "User:alice Allow Write Topic:t",
        "User:bob Allow Describe Topic:t",
        "User:bob Allow IdempotentWrite Cluster",
    ]
    async with aiokq.EmbeddedCluster(users=users, acls=lines) as kafka:
        await kafka.create_topic("t")
        for user, password in users.items():
            async with aiokq.Producer(
                kafka.bootstrap_servers,
                security_protocol="SASL_PLAINTEXT",
                sasl_mechanism="SCRAM-SHA-256",
                sasl_plain_username=user,
                sasl_plain_password=password,
            ) as producer:
                if user == "alice":
                    await producer.send("t", b"v")
                    continue
                with pytest.raises(errors.TopicAuthorization) as caught:
                    await producer.send("t", b"v")
                assert caught.value.principal == "User:bob"
                assert (caught.value.operation, caught.value.resource) == ("WRITE", "TOPIC:t")


JAAS = "org.apache.kafka.common.security.scram.ScramLoginModule required {};"


@pytest.mark.parametrize(
    "login",
    [
        {"sasl_plain_username": "bob", "sasl_plain_password": "secret"},
        {"sasl_jaas_config": JAAS.format('username="bob" password="secret"')},
    ],
    ids=["name", "jaas"],
)
async def test_errors_of_an_administrator_name_who_lacks_what(login):
    """Whether the call raises them, or returns them with each item."""
    async with (
        aiokq.EmbeddedCluster(users={"bob": "secret"}, acls=[]) as kafka,
        aiokq.Admin(
            kafka.bootstrap_servers,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="SCRAM-SHA-512",
            **login,
        ) as admin,
    ):
        group = aiokq.ConfigResource(aiokq.ConfigResourceType.GROUP, "g")
        for call, operation, resource in (
            (admin.describe_acls(), "DESCRIBE", "CLUSTER:kafka-cluster"),
            (admin.create_acls(["User:a Allow Read Topic:t"]), "ALTER", "CLUSTER:kafka-cluster"),
            (admin.create_topics("t"), "CREATE", "TOPIC:t"),
            (admin.describe_topics("t"), "DESCRIBE", "TOPIC:t"),
            (admin.describe_configs("t"), "DESCRIBE_CONFIGS", "TOPIC:t"),
            (admin.describe_configs(group), "DESCRIBE_CONFIGS", "GROUP:g"),
            (admin.alter_configs({"t": {"retention.ms": 5}}), "ALTER_CONFIGS", "TOPIC:t"),
            (admin.describe_groups("g"), "DESCRIBE", "GROUP:g"),
        ):
            try:
                [result] = (await call).values()
                error = result.error
            except errors.KafkaError as raised:
                error = raised
            found = error.principal, error.operation, error.resource
            assert found == ("User:bob", operation, resource)


async def test_reset_keeps_acls():
    async with aiokq.EmbeddedCluster(acls=[f"{ANYBODY} Allow Write Topic:t"]) as kafka:
        await kafka.create_topic("t")
        await kafka.reset()
        await kafka.create_topic("t")
        await kafka.create_topic("u")
        await send(kafka, "t")
        with pytest.raises(errors.TopicAuthorization):
            await send(kafka, "u")


async def test_a_function_decides():
    asked = []

    def authorize(principal, host, operation, resource):
        asked.append((str(principal), host, operation.name, resource.type.name, resource.name))
        return resource.name == "t"

    async with aiokq.EmbeddedCluster(authorize=authorize) as kafka:
        for topic in ("t", "u"):
            await kafka.create_topic(topic)
        await send(kafka, "t")
        assert (ANYBODY, "127.0.0.1", "WRITE", "TOPIC", "t") in asked
        with pytest.raises(errors.TopicAuthorization):
            await send(kafka, "u")


async def test_a_coroutine_decides():
    async def authorize(principal, host, operation, resource):
        await asyncio.sleep(0.001)
        return resource.name in ("t", "g")

    async with aiokq.EmbeddedCluster(authorize=authorize) as kafka:
        for topic in ("t", "u"):
            await kafka.create_topic(topic)
        await send(kafka, "t", b"1")
        with pytest.raises(errors.TopicAuthorization):
            await send(kafka, "u")
        async with (
            aiokq.Cluster(kafka.bootstrap_servers) as cluster,
            cluster.consumer("t", group_id="g", auto_offset_reset="earliest") as consumer,
        ):
            record = await asyncio.wait_for(anext(aiter(consumer)), 10)
            assert record.value == b"1"
            await consumer.commit()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"acls": ["alice Allow Read Topic:t"]}, "such as User:alice"),
        ({"acls": "User:alice Allow Read Topic:t"}, "acls must be a list of lines"),
        ({"acls": 3}, "acls must be a list of lines"),
        ({"acls": [3]}, "line of text"),
        ({"acls": [], "settings": {"authorizer.class.name": ""}}, "acls have no effect"),
        ({"acls": [], "authorize": print}, "authorize and acls exclude each other"),
        ({"authorize": print, "settings": AUTHORIZER}, "authorize and authorizer.class.name"),
        ({"authorize": "x"}, "authorize must be a function"),
        ({"settings": {"authorizer.class.name": "kafka.Acl"}}, "has only org.apache"),
        ({"settings": {**AUTHORIZER, "super.users": "root"}}, "such as User:root"),
        ({"alcs": []}, "did you mean acls"),
    ],
)
def test_a_wrong_argument_is_refused(arguments, message):
    with pytest.raises(errors.ConfigError) as caught:
        aiokq.EmbeddedCluster(**arguments)
    assert message in str(caught.value)


async def test_settings_alone_turn_it_on():
    settings = {**AUTHORIZER, "super.users": ANYBODY}
    async with aiokq.EmbeddedCluster(settings=settings) as kafka:
        await send(kafka, "t")
    settings = {**AUTHORIZER, "allow.everyone.if.no.acl.found": True}
    async with aiokq.EmbeddedCluster(settings=settings) as kafka:
        await send(kafka, "t")
        assert kafka.node.settings.without_effect == ()
    assert set(
        aiokq.EmbeddedCluster(settings={"super.users": "User:a"})._settings.without_effect
    ) == {"super.users"}
