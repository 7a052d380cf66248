"""Admin against a scripted cluster: retries, errors per item, and requests to old brokers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any
from uuid import UUID

import pytest

from aiokq import wire
from aiokq.admin.client import Admin
from aiokq.admin.config_types import (
    ConfigChange,
    ConfigResource,
    ConfigResourceType,
    ConfigSource,
)
from aiokq.admin.partitions import NewPartitions
from aiokq.admin.topics import NewTopic
from aiokq.core.errors import (
    Closed,
    ConfigError,
    InvalidConfiguration,
    InvalidPartitions,
    NotController,
    RequestTimeout,
    TopicExists,
    UnknownTopicOrPartition,
    UnsupportedVersion,
)
from aiokq.core.types import TopicPartition
from tests.unit.cluster.scripted import ScriptedBroker, ScriptedCluster, simulate
from tests.unit.cluster.scripted_log import ScriptedLogs

Main = Callable[[ScriptedCluster, Admin], Coroutine[Any, Any, None]]


def with_admin(main: Main, **overrides: Any) -> None:
    """Run `main` with an admin client and its scripted cluster."""

    async def run(cluster: ScriptedCluster) -> None:
        admin = Admin(cluster.bootstrap_servers, _environment=cluster.environment, **overrides)
        async with admin:
            await main(cluster, admin)

    simulate(run)


class Controller:
    """CreateTopics, DeleteTopics and CreatePartitions of a controller, with scripted errors."""

    def __init__(self, cluster: ScriptedCluster) -> None:
        self.cluster = cluster
        self.errors: dict[str, list[int]] = {}
        cluster.handlers[wire.CreateTopicsRequest] = self.create
        cluster.handlers[wire.DeleteTopicsRequest] = self.delete
        cluster.handlers[wire.CreatePartitionsRequest] = self.grow

    def _code(self, broker: ScriptedBroker, name: str) -> int:
        if broker.node_id != self.cluster.controller_id:
            return 41
        errors = self.errors.get(name)
        return errors.pop(0) if errors else 0

    def create(self, broker: ScriptedBroker, request: Any, version: int) -> Any:
        results = []
        for topic in request.topics:
            code = self._code(broker, topic.name)
            if not code and topic.name in self.cluster.topics:
                code = 36
            if not code and not request.validate_only:
                self.cluster.add_topic(topic.name, [1] * max(1, topic.num_partitions))
            results.append(
                wire.CreatableTopicResult(
                    name=topic.name,
                    error_code=code,
                    error_message="said the broker" if code else None,
                    num_partitions=topic.num_partitions,
                    replication_factor=1,
                )
            )
        return wire.CreateTopicsResponse(topics=results)

    def delete(self, broker: ScriptedBroker, request: Any, version: int) -> Any:
        names = (
            [(t.name, t.topic_id) for t in request.topics]
            if version >= 6
            else [(name, UUID(int=0)) for name in request.topic_names]
        )
        results = []
        for name, topic_id in names:
            known = name if name is not None else self._name(topic_id)
            code = self._code(broker, known or "")
            if not code and self.cluster.topics.pop(known or "", None) is None:
                code = 3 if name is not None else 100
            results.append(
                wire.DeletableTopicResult(
                    name=known if known else name, topic_id=topic_id, error_code=code
                )
            )
        return wire.DeleteTopicsResponse(responses=results)

    def _name(self, topic_id: UUID) -> str | None:
        return next((n for n, t in self.cluster.topics.items() if t.topic_id == topic_id), None)

    def grow(self, broker: ScriptedBroker, request: Any, version: int) -> Any:
        results = []
        for topic in request.topics:
            code = self._code(broker, topic.name)
            known = self.cluster.topics.get(topic.name)
            if not code:
                code = 3 if known is None else 37 if topic.count <= len(known.partitions) else 0
            results.append(wire.CreatePartitionsTopicResult(name=topic.name, error_code=code))
        return wire.CreatePartitionsResponse(results=results)


# -- results ----------------------------------------------------------------------------------


def test_each_item_has_its_own_result():
    """One topic exists already; the other one is created."""

    async def main(cluster: ScriptedCluster, admin: Admin) -> None:
        Controller(cluster)
        cluster.add_topic("old", [1])
        results = await admin.create_topics([NewTopic("new", 3), "old"])
        assert list(results) == ["new", "old"]
        assert results["new"].error is None
        assert results["new"].num_partitions == 3
        assert isinstance(results["old"].error, TopicExists)
        assert "said the broker" in str(results["old"].error)
        assert (results.ok, set(results.errors)) == (False, {"old"})
        with pytest.raises(TopicExists):
            results.raise_for_errors()

    with_admin(main)


def test_raise_errors_raises_the_first_with_the_others_as_notes():
    """An application that creates topics at startup needs an exception."""

    async def main(cluster: ScriptedCluster, admin: Admin) -> None:
        Controller(cluster)
        for name in ("a", "b"):
            cluster.add_topic(name, [1])
        with pytest.raises(TopicExists) as caught:
            await admin.create_topics(["a", "b"], raise_errors=True)
        assert any(note.startswith("b: ") for note in caught.value.__notes__)
        results = await admin.create_topics("c", raise_errors=True)
        assert results.ok
        assert results.raise_for_errors() is results

    with_admin(main)


# -- retries ----------------------------------------------------------------------------------


def test_a_moved_controller_is_found():
    """After NOT_CONTROLLER the remaining topics are sent to the new controller."""

    async def main(cluster: ScriptedCluster, admin: Admin) -> None:
        Controller(cluster)
        cluster.controller_id = 3
        results = await admin.create_topics(["a"])
        assert results.ok
        asked = [
            s.node_id for s in cluster.served if isinstance(s.request, wire.CreateTopicsRequest)
        ]
        assert asked == [1, 3]

    with_admin(main)


def test_only_failed_items_are_retried():
    """One of two topics gets THROTTLING_QUOTA_EXCEEDED."""

    async def main(cluster: ScriptedCluster, admin: Admin) -> None:
        Controller(cluster).errors = {"b": [89, 89]}
        assert (await admin.create_topics(["a", "b"])).ok
        names = [
            [topic.name for topic in request.topics]
            for request in cluster.requests(wire.CreateTopicsRequest)
        ]
        assert names == [["a", "b"], ["b"], ["b"]]

    with_admin(main)


def test_not_controller_until_the_timeout_is_the_error_of_the_item():
    """The item's error is NOT_CONTROLLER, and it comes after the timeout."""

    async def main(cluster: ScriptedCluster, admin: Admin) -> None:
        Controller(cluster).errors = {"a": [41] * 1_000}
        before = cluster.loop.time()
        results = await admin.create_topics("a", timeout=3)
        assert isinstance(results["a"].error, NotController)
        assert cluster.loop.time() - before == pytest.approx(3, abs=0.1)

    with_admin(main)


def test_if_the_cluster_is_down_the_call_times_out():
    """No item has a result, so the call itself raises, with the cause."""

    async def main(cluster: ScriptedCluster, admin: Admin) -> None:
        for broker in cluster.brokers.values():
            broker.die()
        with pytest.raises(RequestTimeout, match="refused"):
            await admin.create_topics("a", timeout=2)

    with_admin(main)


# -- topics -----------------------------------------------------------------------------------


def test_create_topics_sends_all_parameters():
    """Partitions, replication factor, assignments and configs."""

    async def main(cluster: ScriptedCluster, admin: Admin) -> None:
        Controller(cluster)
        await admin.create_topics(
            [
                NewTopic("a", 3, 2, configs={"retention.ms": 1_000, "preallocate": True}),
                NewTopic("b", assignments={0: [1, 2], 1: [2, 1]}),
            ],
            validate_only=True,
        )
        (request,) = cluster.requests(wire.CreateTopicsRequest)
        a, b = request.topics
        assert request.validate_only
        assert (a.num_partitions, a.replication_factor) == (3, 2)
        assert {c.name: c.value for c in a.configs} == {
            "retention.ms": "1000",
            "preallocate": "true",
        }
        assert [(x.partition_index, x.broker_ids) for x in b.assignments] == [
            (0, [1, 2]),
            (1, [2, 1]),
        ]
        assert (b.num_partitions, b.replication_factor) == (-1, -1)
        assert not cluster.topics

    with_admin(main)


def test_create_topics_refuses_contradictory_arguments():
    """Nothing is sent."""

    async def main(cluster: ScriptedCluster, admin: Admin) -> None:
        with pytest.raises(ConfigError, match="given twice"):
            await admin.create_topics(["a", "a"])
        with pytest.raises(ConfigError, match="assignments"):
            await admin.create_topics(NewTopic("a", 3, assignments={0: [1]}))
        cluster.limits[wire.CreateTopicsRequest] = 3

    with_admin(main)


def test_old_brokers_need_explicit_partition_and_replica_counts():
    """Brokers before 2.4 have no defaults for them (KIP-464)."""

    async def main(cluster: ScriptedCluster) -> None:
        cluster.limits[wire.CreateTopicsRequest] = 3
        Controller(cluster)
        admin = Admin(cluster.bootstrap_servers, _environment=cluster.environment)
        async with admin:
            with pytest.raises(UnsupportedVersion, match="num_partitions"):
                await admin.create_topics("a")
            assert (await admin.create_topics("a", num_partitions=1, replication_factor=1)).ok

    simulate(main)


@pytest.mark.parametrize("version", [5, 6])
def test_topics_are_deleted_by_name(version: int):
    """A missing topic has its error at once."""

    async def main(cluster: ScriptedCluster) -> None:
        cluster.limits[wire.DeleteTopicsRequest] = version
        Controller(cluster)
        cluster.add_topic("a", [1])
        async with Admin(cluster.bootstrap_servers, _environment=cluster.environment) as admin:
            before = cluster.loop.time()
            results = await admin.delete_topics(["a", "nope"])
            assert results["a"].error is None
            assert isinstance(results["nope"].error, UnknownTopicOrPartition)
            assert cluster.loop.time() - before < 1
        assert not cluster.topics

    simulate(main)


def test_topics_are_deleted_by_id():
    """By now the name may denote another topic."""

    async def main(cluster: ScriptedCluster, admin: Admin) -> None:
        Controller(cluster)
        topic_id = cluster.add_topic("a", [1]).topic_id
        results = await admin.delete_topics([topic_id, UUID(int=9)])
        assert results[topic_id].name == "a"
        assert results[UUID(int=9)].error is not None
        assert not cluster.topics

    with_admin(main)


def test_list_topics_returns_all_topics():
    """The list comes from a broker, not from cached metadata; internal topics are optional."""

    async def main(cluster: ScriptedCluster, admin: Admin) -> None:
        cluster.add_topic("b", [1, 2])
        cluster.add_topic("a", [1])
        listed = await admin.list_topics()
        assert list(listed) == ["a", "b"]
        assert (listed["b"].partitions, listed["b"].internal) == (2, False)

    with_admin(main)


def test_describe_topics_reads_all_pages():
    """A topic with 5,000 partitions needs three pages (KIP-966)."""

    async def main(cluster: ScriptedCluster, admin: Admin) -> None:
        def describe(broker: ScriptedBroker, request: Any, version: int) -> Any:
            start = request.cursor.partition_index if request.cursor else 0
            end = min(start + request.response_partition_limit, 5_000)
            assert [t.name for t in request.topics] == ["big", "nope"]
            topics = [
                wire.DescribeTopicPartitionsResponseTopic(
                    name="big",
                    topic_id=UUID(int=1),
                    partitions=[
                        wire.DescribeTopicPartitionsResponsePartition(
                            partition_index=n, leader_id=1, leader_epoch=2, replica_nodes=[1]
                        )
                        for n in range(start, end)
                    ],
                )
            ]
            cursor = wire.Cursor(topic_name="big", partition_index=end) if end < 5_000 else None
            if cursor is None:
                topics.append(wire.DescribeTopicPartitionsResponseTopic(name="nope", error_code=3))
            return wire.DescribeTopicPartitionsResponse(topics=topics, next_cursor=cursor)

        cluster.handlers[wire.DescribeTopicPartitionsRequest] = describe
        results = await admin.describe_topics(["nope", "big"])
        assert [p.partition for p in results["big"].partitions] == list(range(5_000))
        assert isinstance(results["nope"].error, UnknownTopicOrPartition)
        assert len(cluster.requests(wire.DescribeTopicPartitionsRequest)) == 3

    with_admin(main)


def test_a_topic_missing_from_the_response_is_not_a_topic_without_partitions():
    """It was returned as a topic without partitions and without an error."""

    async def main(cluster: ScriptedCluster, admin: Admin) -> None:
        cluster.handlers[wire.DescribeTopicPartitionsRequest] = lambda *asked: (
            wire.DescribeTopicPartitionsResponse()
        )
        results = await admin.describe_topics(["a"])
        assert isinstance(results["a"].error, UnknownTopicOrPartition)

    with_admin(main)


def test_describe_topics_falls_back_to_metadata():
    """Brokers before 3.7 lack DescribeTopicPartitions."""

    async def main(cluster: ScriptedCluster) -> None:
        cluster.missing.add(wire.DescribeTopicPartitionsRequest)
        cluster.add_topic("a", [1, 2], epoch=4)
        async with Admin(cluster.bootstrap_servers, _environment=cluster.environment) as admin:
            results = await admin.describe_topics(["a", "nope"])
            assert [(p.leader, p.leader_epoch) for p in results["a"].partitions] == [(1, 4), (2, 4)]
            assert isinstance(results["nope"].error, UnknownTopicOrPartition)
            assert list(await admin.describe_topics()) == ["a"]
            assert list(await admin.describe_topics([])) == []

    simulate(main)


def test_partitions_are_added():
    """By count, or with the replicas of each new partition."""

    async def main(cluster: ScriptedCluster, admin: Admin) -> None:
        Controller(cluster)
        cluster.add_topic("a", [1])
        cluster.add_topic("b", [1])
        results = await admin.create_partitions({"a": 3, "b": NewPartitions(2, [[2, 1]]), "c": 1})
        assert results["a"].error is None
        assert isinstance(results["c"].error, UnknownTopicOrPartition)
        (request,) = cluster.requests(wire.CreatePartitionsRequest)
        assert [
            (t.count, t.assignments and t.assignments[0].broker_ids) for t in request.topics
        ] == [
            (3, None),
            (2, [2, 1]),
            (1, None),
        ]
        fewer = await admin.create_partitions({"a": 1}, validate_only=True)
        assert isinstance(fewer["a"].error, InvalidPartitions)

    with_admin(main)


# -- configs ----------------------------------------------------------------------------------


class Configs:
    """DescribeConfigs, AlterConfigs and IncrementalAlterConfigs, over a dictionary per resource."""

    def __init__(self, cluster: ScriptedCluster) -> None:
        self.values: dict[tuple[int, str], dict[str, str | None]] = {}
        self.defaults = {"retention.ms": "604800000", "cleanup.policy": "delete"}
        self.sensitive: set[str] = set()
        cluster.handlers[wire.DescribeConfigsRequest] = self.describe
        cluster.handlers[wire.IncrementalAlterConfigsRequest] = self.incremental
        cluster.handlers[wire.AlterConfigsRequest] = self.replace
        self.asked: list[tuple[int, str]] = []

    def describe(self, broker: ScriptedBroker, request: Any, version: int) -> Any:
        results = []
        for resource in request.resources:
            key = (resource.resource_type, resource.resource_name)
            self.asked.append((broker.node_id, resource.resource_name))
            result = wire.DescribeConfigsResult(
                error_code=0 if key in self.values else 3,
                resource_type=key[0],
                resource_name=key[1],
            )
            own = self.values.get(key, {})
            for name in self.defaults | own:
                if resource.configuration_keys is None or name in resource.configuration_keys:
                    result.configs.append(
                        wire.DescribeConfigsResourceResult(
                            name=name,
                            value=None
                            if name in self.sensitive
                            else own.get(name, self.defaults.get(name)),
                            is_sensitive=name in self.sensitive,
                            config_source=1 if name in own else 5,
                        )
                    )
            results.append(result)
        return wire.DescribeConfigsResponse(results=results)

    def incremental(self, broker: ScriptedBroker, request: Any, version: int) -> Any:
        return wire.IncrementalAlterConfigsResponse(
            responses=[
                wire.IncrementalAlterConfigsResourceResponse(
                    error_code=40 if any(c.name == "bad" for c in r.configs) else 0,
                    resource_type=r.resource_type,
                    resource_name=r.resource_name,
                )
                for r in request.resources
            ]
        )

    def replace(self, broker: ScriptedBroker, request: Any, version: int) -> Any:
        for r in request.resources:
            self.values[r.resource_type, r.resource_name] = {
                c.name: c.value for c in r.configs if c.value is not None
            }
        return wire.AlterConfigsResponse(
            responses=[
                wire.AlterConfigsResourceResponse(
                    resource_type=r.resource_type, resource_name=r.resource_name
                )
                for r in request.resources
            ]
        )


def topic(name: str) -> ConfigResource:
    return ConfigResource(ConfigResourceType.TOPIC, name)


def test_configs_are_described_with_their_source():
    """One value was set, the other one is the default."""

    async def main(cluster: ScriptedCluster, admin: Admin) -> None:
        Configs(cluster).values = {(2, "a"): {"retention.ms": "1000"}}
        results = await admin.describe_configs(["a", topic("nope")])
        entries = results[topic("a")].entries
        assert entries["retention.ms"].value == "1000"
        assert entries["retention.ms"].source is ConfigSource.TOPIC_CONFIG
        assert entries["cleanup.policy"].is_default
        assert results[topic("nope")].error is not None
        named = await admin.describe_configs("a", names=["retention.ms"])
        assert list(named[topic("a")].entries) == ["retention.ms"]

    with_admin(main)


def test_the_configs_of_a_broker_are_requested_from_that_broker():
    """Other brokers do not know its static configs."""

    async def main(cluster: ScriptedCluster, admin: Admin) -> None:
        configs = Configs(cluster)
        configs.values = {(4, "2"): {}, (4, "3"): {}}
        resources = [ConfigResource(ConfigResourceType.BROKER, name) for name in ("2", "3", "9")]
        results = await admin.describe_configs(resources)
        assert sorted(configs.asked) == [(2, "2"), (3, "3")]
        assert results[resources[2]].error is not None
        with pytest.raises(ConfigError, match="broker id"):
            await admin.describe_configs(ConfigResource(ConfigResourceType.BROKER, "x"))

    with_admin(main, default_api_timeout_ms=2_000)


def test_configs_are_altered_one_by_one():
    """Set, delete, append and subtract; a plain value means set, and None means delete."""

    async def main(cluster: ScriptedCluster, admin: Admin) -> None:
        Configs(cluster)
        results = await admin.alter_configs(
            {
                "a": {
                    "retention.ms": 1_000,
                    "preallocate": False,
                    "segment.ms": None,
                    "cleanup.policy": ConfigChange.append("compact"),
                    "x": ConfigChange.subtract("y"),
                },
                "b": {"bad": 1},
            }
        )
        assert results[topic("a")].error is None
        assert results[topic("b")].error is not None
        (request,) = cluster.requests(wire.IncrementalAlterConfigsRequest)
        assert [(c.name, c.config_operation, c.value) for c in request.resources[0].configs] == [
            ("retention.ms", 0, "1000"),
            ("preallocate", 0, "false"),
            ("segment.ms", 1, None),
            ("cleanup.policy", 2, "compact"),
            ("x", 3, "y"),
        ]

    with_admin(main)


def test_old_brokers_receive_all_configs_of_a_resource():
    """Before 2.3, AlterConfigs replaces all configs, so the unchanged ones must be sent too."""

    async def main(cluster: ScriptedCluster) -> None:
        cluster.missing.add(wire.IncrementalAlterConfigsRequest)
        configs = Configs(cluster)
        configs.values = {(2, "a"): {"retention.ms": "1000", "segment.ms": "5"}}
        async with Admin(cluster.bootstrap_servers, _environment=cluster.environment) as admin:
            results = await admin.alter_configs(
                {
                    "a": {
                        "segment.ms": None,
                        "cleanup.policy": ConfigChange.append("compact"),
                        "max.message.bytes": 9,
                    },
                    "nope": {"retention.ms": 1},
                }
            )
            assert results[topic("nope")].error is not None
            assert configs.values[2, "a"] == {
                "retention.ms": "1000",
                "cleanup.policy": "delete,compact",
                "max.message.bytes": "9",
            }
            await admin.alter_configs({"a": {"cleanup.policy": ConfigChange.subtract("delete")}})
            assert configs.values[2, "a"]["cleanup.policy"] == "compact"

    simulate(main)


def test_a_change_on_an_old_broker_does_not_delete_secrets():
    """Brokers return no sensitive values, and AlterConfigs deletes a config that is sent as null.

    A change that replaces or deletes all sensitive configs needs no unknown value.
    """

    async def main(cluster: ScriptedCluster) -> None:
        cluster.missing.add(wire.IncrementalAlterConfigsRequest)
        configs = Configs(cluster)
        before = {"password": "secret", "retention.ms": "1"}
        configs.values = {(2, "a"): dict(before), (2, "b"): {}}
        configs.sensitive = {"password"}
        async with Admin(cluster.bootstrap_servers, _environment=cluster.environment) as admin:
            for change in (2, ConfigChange.append("x")):
                name = "retention.ms" if change == 2 else "password"
                results = await admin.alter_configs({"a": {name: change}, "b": {"segment.ms": 5}})
                error = results[topic("a")].error
                assert isinstance(error, InvalidConfiguration)
                assert "would delete password" in error.message
                assert results[topic("b")].error is None
                assert configs.values == {(2, "a"): before, (2, "b"): {"segment.ms": "5"}}
            await admin.alter_configs({"a": {"retention.ms": 2, "password": "new"}})
            assert configs.values[2, "a"] == {"password": "new", "retention.ms": "2"}
            await admin.alter_configs({"a": {"password": None}})
            assert configs.values[2, "a"] == {"retention.ms": "2"}

    simulate(main)


# -- the cluster, offsets, records ------------------------------------------------------------


def test_the_cluster_is_described():
    """By DescribeCluster, or by Metadata for brokers before 2.8."""

    async def main(cluster: ScriptedCluster) -> None:
        cluster.handlers[wire.DescribeClusterRequest] = lambda b, r, v: (
            wire.DescribeClusterResponse(
                cluster_id="c",
                controller_id=2,
                brokers=[
                    wire.DescribeClusterBroker(broker_id=2, host="h", port=1, rack="r"),
                    wire.DescribeClusterBroker(broker_id=1, host="h", port=1, is_fenced=True),
                ],
            )
        )
        async with Admin(cluster.bootstrap_servers, _environment=cluster.environment) as admin:
            described = await admin.describe_cluster(include_fenced_brokers=True)
            assert [(b.node_id, b.rack, b.fenced) for b in described.brokers] == [
                (1, None, True),
                (2, "r", False),
            ]
        cluster.missing.add(wire.DescribeClusterRequest)
        async with Admin(cluster.bootstrap_servers, _environment=cluster.environment) as admin:
            described = await admin.describe_cluster()
            assert (described.cluster_id, described.controller_id) == ("scripted", 1)
            assert [b.node_id for b in described.brokers] == [1, 2, 3]
            with pytest.raises(UnsupportedVersion):
                await admin.describe_cluster(include_fenced_brokers=True)

    simulate(main)


def test_log_directories_are_described_by_each_broker() -> None:
    """An offline directory has an error; disk sizes are present if the broker reports them."""

    def answer(broker, request, version):
        return wire.DescribeLogDirsResponse(
            results=[
                wire.DescribeLogDirsResult(
                    error_code=0,
                    log_dir="/a",
                    topics=[
                        wire.DescribeLogDirsTopic(
                            name="t",
                            partitions=[
                                wire.DescribeLogDirsPartition(
                                    partition_index=3,
                                    partition_size=500,
                                    offset_lag=2,
                                    is_future_key=True,
                                )
                            ],
                        )
                    ],
                    total_bytes=1000,
                    usable_bytes=400,
                ),
                wire.DescribeLogDirsResult(error_code=56, log_dir="/b", topics=[]),
            ]
        )

    async def main(cluster: ScriptedCluster) -> None:
        cluster.handlers[wire.DescribeLogDirsRequest] = answer
        cluster.missing.add(wire.DescribeClusterRequest)
        async with Admin(cluster.bootstrap_servers, _environment=cluster.environment) as admin:
            found = await admin.describe_log_dirs()
            assert sorted(found) == [1, 2, 3]
            a, b = found[2].log_dirs
            assert (a.path, a.size_bytes, a.total_bytes, a.usable_bytes) == ("/a", 500, 1000, 400)
            [(partition, replica)] = a.replicas.items()
            assert (str(partition), replica.offset_lag, replica.is_future) == ("t-3", 2, True)
            assert (b.path, b.total_bytes) == ("/b", None)
            assert b.error is not None
            assert b.error.code == 56
            assert list(await admin.describe_log_dirs([3])) == [3]

    simulate(main)


def test_offsets_are_listed_per_partition():
    """Plain tuples are accepted; each partition has its own spec and its own error."""

    async def main(cluster: ScriptedCluster, admin: Admin) -> None:
        cluster.add_topic("t", [1, 2])
        logs = ScriptedLogs(cluster)
        logs.log("t", 0).append(b"a", b"b")
        results = await admin.list_offsets(
            {("t", 0): "latest", ("t", 1): "earliest", ("t", 5): "latest"}
        )
        assert results[TopicPartition("t", 0)].offset == 2
        assert results[TopicPartition("t", 1)].offset == 0
        assert results[TopicPartition("t", 5)].error is not None
        young = await admin.list_offsets({("t", 0): 99_000})
        assert young[TopicPartition("t", 0)].offset == -1
        assert young.ok

    with_admin(main)


def test_records_are_deleted_at_each_leader():
    """Retried if a leader has moved, refused if the partition does not exist."""

    async def main(cluster: ScriptedCluster, admin: Admin) -> None:
        cluster.add_topic("t", [1, 2])

        def delete(broker: ScriptedBroker, request: Any, version: int) -> Any:
            (asked,) = request.topics
            partitions = []
            for p in asked.partitions:
                leader = cluster.topics["t"].partitions[p.partition_index].leader
                partitions.append(
                    wire.DeleteRecordsPartitionResult(
                        partition_index=p.partition_index,
                        low_watermark=7 if p.offset == -1 else p.offset,
                        error_code=0 if leader == broker.node_id else 6,
                    )
                )
            return wire.DeleteRecordsResponse(
                topics=[wire.DeleteRecordsTopicResult(name="t", partitions=partitions)]
            )

        cluster.handlers[wire.DeleteRecordsRequest] = delete
        assert (await admin.delete_records({("t", 0): 5})).ok
        cluster.move("t", 0, 3)
        results = await admin.delete_records({("t", 0): 5, ("t", 1): "latest", ("t", 9): 1})
        assert results[TopicPartition("t", 0)].low_watermark == 5
        assert results[TopicPartition("t", 1)].low_watermark == 7
        assert isinstance(results[TopicPartition("t", 9)].error, UnknownTopicOrPartition)
        with pytest.raises(ConfigError, match="'latest'"):
            await admin.delete_records({("t", 0): -1})

    with_admin(main)


# -- lifecycle --------------------------------------------------------------------------------


def test_use_before_start_and_after_close_is_refused():
    """The error says what to do."""

    async def main(cluster: ScriptedCluster) -> None:
        admin = Admin(cluster.bootstrap_servers, _environment=cluster.environment)
        with pytest.raises(Closed, match="async with"):
            await admin.list_topics()
        await admin.start()
        await asyncio.gather(admin.close(), admin.close())
        with pytest.raises(Closed, match="create a new one"):
            await admin.list_topics()
        with pytest.raises(Closed):
            await admin.start()

    simulate(main)


def test_bootstrap_servers_twice_is_refused():
    """Given both positionally and as a keyword."""
    with pytest.raises(ConfigError, match="twice"):
        Admin("a:1", bootstrap_servers="b:1")
    assert Admin(bootstrap_servers="b:1").settings.bootstrap_servers == ("b:1",)


def test_an_admin_left_open_warns():
    """Its sockets would stay open until the process ends."""

    async def main(cluster: ScriptedCluster) -> None:
        admin = Admin(cluster.bootstrap_servers, _environment=cluster.environment)
        await admin.start()
        engine = admin._engine
        with pytest.warns(ResourceWarning, match="was not closed"):
            del admin
        await engine.close()

    simulate(main)


@pytest.mark.parametrize("call", ["list_topics", "describe_topics", "describe_cluster"])
def test_a_read_only_request_is_retried_when_its_broker_goes_down(call: str):
    """Listings failed in a rolling restart, because a request that was sent was not retried."""

    async def main(cluster: ScriptedCluster, admin: Admin) -> None:
        cluster.add_topic("t", [3])
        died: list[int] = []

        def dies(then: Callable[..., Any]) -> Callable[..., Any]:
            def handle(broker: ScriptedBroker, request: Any, version: int) -> Any:
                refresh = isinstance(request, wire.MetadataRequest) and request.topics is not None
                if not died and not refresh:
                    died.append(broker.node_id)
                    broker.die()
                    return None
                return then(broker, request, version)

            return handle

        cluster.handlers[wire.DescribeTopicPartitionsRequest] = dies(
            lambda b, r, v: wire.DescribeTopicPartitionsResponse(
                topics=[wire.DescribeTopicPartitionsResponseTopic(name="t")]
            )
        )
        cluster.handlers[wire.DescribeClusterRequest] = dies(
            lambda b, r, v: wire.DescribeClusterResponse(cluster_id="c", controller_id=1)
        )
        if call == "list_topics":
            cluster.handlers[wire.MetadataRequest] = dies(lambda b, r, v: cluster.metadata(r))
        assert await getattr(admin, call)(timeout=10)
        assert len(died) == 1

    with_admin(main)
