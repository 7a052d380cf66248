"""Quotas of a node: set and described by requests, kept, and in effect at once."""

from __future__ import annotations

import asyncio

import pytest

from aiokq import wire
from aiokq.broker import node_quotas
from aiokq.broker.config.settings import broker_settings
from aiokq.connection.request_context import CloseConnection, RequestContext
from aiokq.core.errors import ProtocolError
from tests.unit.broker.harness import Broker, batch, until


def entity(**parts):
    return [
        wire.AlterClientQuotasEntityData(entity_type=kind.replace("_", "-"), entity_name=name)
        for kind, name in parts.items()
    ]


async def alter(broker, parts, *, validate_only=False, version=1, **values):
    """Change the quotas of one entity; return the error code."""
    ops = [
        wire.AlterClientQuotasOpData(key=key, value=value or 0.0, remove=value is None)
        for key, value in values.items()
    ]
    request = wire.AlterClientQuotasRequest(
        entries=[wire.AlterClientQuotasEntryData(entity=entity(**parts), ops=ops)],
        validate_only=validate_only,
    )
    response = await broker.ask(request, version)
    [entry] = response.entries
    return entry.error_code


async def describe(broker, *components, strict=False, version=1):
    """Return the quotas of the entities that match, or the error code."""
    request = wire.DescribeClientQuotasRequest(
        components=[
            wire.ComponentData(entity_type=kind, match_type=match_type, match=match)
            for kind, match_type, match in components
        ],
        strict=strict,
    )
    response = await broker.ask(request, version)
    if response.error_code:
        assert response.entries is None
        return response.error_code
    return {
        tuple((part.entity_type, part.entity_name) for part in entry.entity): {
            value.key: value.value for value in entry.values
        }
        for entry in response.entries
    }


async def test_the_audit_log_says_who_changed_what(caplog):
    """Not what was only checked, or refused."""
    caplog.set_level("INFO", "aiokq.audit.change")
    async with Broker() as broker:
        await alter(broker, APP, producer_byte_rate=1000, request_percentage=None)
        await alter(broker, ALICE, producer_byte_rate=0.5)
        await alter(broker, ALICE, validate_only=True, producer_byte_rate=5)
    [line] = [record.message for record in caplog.records if "quotas changed" in record.message]
    assert "principal=User:ANONYMOUS" in line
    assert "client-id=app: producer_byte_rate=1000 request_percentage removed" in line


ALICE = {"user": "alice"}
APP = {"client_id": "app"}


async def test_quotas_are_kept_and_in_effect_again_after_a_restart():
    """They are records of the metadata log."""
    async with Broker() as broker:
        assert broker.node.gate.quotas is None
        assert await alter(broker, APP, producer_byte_rate=50_000, request_percentage=5.5) == 0
        assert broker.node.gate.quotas is not None
        assert await alter(broker, {**ALICE, **APP}, consumer_byte_rate=7) == 0
    async with Broker(broker.files) as broker:
        assert broker.node.gate.quotas is not None
        assert await describe(broker) == {
            (("client-id", "app"),): {"producer_byte_rate": 50_000, "request_percentage": 5.5},
            (("client-id", "app"), ("user", "alice")): {"consumer_byte_rate": 7},
        }
        for parts, key in ((APP, "producer_byte_rate"), (APP, "request_percentage")):
            assert await alter(broker, parts, **{key: None}) == 0
        assert await alter(broker, {**ALICE, **APP}, consumer_byte_rate=None) == 0
        assert await describe(broker) == {}
        assert broker.node.gate.quotas is None


LONGEST = 32_767
"""The longest name in bytes that Kafka's strings can have."""

ODD_NAMES = [
    "CN=alice,OU=a/b; c",
    "<default>",
    "default",
    " ",
    "\0",
    "line\nbreak\t%s {} \\ '\"",
    "jürgen \U0001f40c",
    "x" * LONGEST,
    "y" * (LONGEST - 3) + "€",
]


@pytest.mark.parametrize("name", ODD_NAMES, ids=range(len(ODD_NAMES)))
async def test_names_may_have_any_characters_and_any_length_of_a_string(name):
    """Set, described, in effect for a client with this id, kept over a restart, and removed."""
    names = {"client_id": name}
    async with Broker() as broker:
        assert await alter(broker, {"client_id": None}, producer_byte_rate=1_000_000) == 0
        assert await alter(broker, names, producer_byte_rate=1) == 0
        assert await alter(broker, {"user": name, "client_id": name}, consumer_byte_rate=5) == 0
    async with Broker(broker.files) as broker:
        assert await describe(broker, ("client-id", 0, name), strict=True) == {
            (("client-id", name),): {"producer_byte_rate": 1}
        }
        assert await describe(broker, ("user", 0, name)) == {
            (("client-id", name), ("user", name)): {"consumer_byte_rate": 5}
        }
        await broker.create("t")
        for _ in range(3):
            await broker.produce("t", batch(3), client_id=name)
        assert broker.node.counters.throttled["producer_byte_rate"] == 3
        await broker.produce("t", batch(3), client_id="another")
        assert broker.node.counters.throttled["producer_byte_rate"] == 3
        assert await alter(broker, names, producer_byte_rate=None) == 0
        assert await describe(broker, ("client-id", 0, name), strict=True) == {}


async def test_a_name_that_is_no_string_of_kafka_is_refused_at_both_ends():
    """64 KB: the client says so before it sends anything, the broker closes the connection."""
    name = "x" * 65_536
    async with Broker() as broker:
        with pytest.raises(ProtocolError):
            await alter(broker, {"client_id": name}, producer_byte_rate=1)
        frame = bytearray(
            b"".join(
                map(
                    bytes,
                    wire.encode_request(
                        wire.AlterClientQuotasRequest(
                            entries=[
                                wire.AlterClientQuotasEntryData(
                                    entity=entity(client_id="NAME"),
                                    ops=[wire.AlterClientQuotasOpData(key="k", value=1.0)],
                                )
                            ]
                        ),
                        version=1,
                        correlation_id=7,
                        client_id="test",
                    ),
                )
            )[4:]
        )
        # A compact string: its length + 1 as a varint of three bytes, 65,537.
        hostile = frame.replace(b"\x05NAME", b"\x81\x80\x04" + name.encode())
        assert len(hostile) > 65_000
        with pytest.raises(ProtocolError):
            await broker.frame(bytes(hostile))
        assert await describe(broker) == {}


async def test_the_default_of_each_level_is_set_and_removed():
    """Each is an entity of its own; what is removed leaves the others in effect."""
    defaults = [
        {"user": None},
        {"client_id": None},
        {"user": None, "client_id": None},
        {"user": None, **APP},
        {**ALICE, "client_id": None},
    ]
    async with Broker() as broker:
        for n, parts in enumerate(defaults):
            assert await alter(broker, parts, producer_byte_rate=n + 1) == 0
        assert len(await describe(broker)) == len(defaults)
        for n, parts in enumerate(defaults, 1):
            assert await alter(broker, parts, producer_byte_rate=None) == 0
            assert await alter(broker, parts, producer_byte_rate=None) == 0  # removed already
            assert len(await describe(broker)) == len(defaults) - n
        assert broker.node.gate.quotas is None


async def test_a_check_changes_nothing():
    """With validate_only, a wrong value is refused and a good one is not set."""
    async with Broker() as broker:
        assert await alter(broker, APP, validate_only=True, producer_byte_rate=1) == 0
        assert await alter(broker, APP, validate_only=True, producer_byte_rate=0.5) == 42
        assert await describe(broker) == {}
        assert broker.node.gate.quotas is None


@pytest.mark.parametrize("version", [0, 1])
async def test_filters(version):
    """By name, default or any name, with other types in the entity or without."""
    async with Broker() as broker:
        for parts in (ALICE, {"user": None}, APP, {**ALICE, **APP}):
            assert await alter(broker, parts, version=version, producer_byte_rate=1000) == 0
        for parts in ({"ip": "10.0.0.1"}, {"ip": None}):
            assert await alter(broker, parts, version=version, connection_creation_rate=5) == 0

        async def found(*components, strict=False):
            entities = await describe(broker, *components, strict=strict, version=version)
            return {"+".join(f"{kind[0]}:{name}" for kind, name in one) for one in entities}

        assert len(await found()) == 6
        assert await found(strict=True) == set()
        assert await found(("user", 0, "alice")) == {"u:alice", "c:app+u:alice"}
        assert await found(("user", 0, "alice"), strict=True) == {"u:alice"}
        assert await found(("user", 1, None)) == {"u:None"}
        assert await found(("user", 2, None)) == {"u:alice", "u:None", "c:app+u:alice"}
        assert await found(("user", 2, None), ("client-id", 0, "app")) == {"c:app+u:alice"}
        assert await found(("ip", 2, None)) == {"i:10.0.0.1", "i:None"}
        assert await found(("client-id", 0, "unknown")) == set()


@pytest.mark.parametrize(
    ("components", "code"),
    [
        ([("", 2, None)], 42),
        ([("group", 2, None)], 35),
        ([("user", 2, None), ("user", 0, "a")], 42),
        ([("user", 0, None)], 42),
        ([("user", 1, "a")], 42),
        ([("user", 2, "a")], 42),
        ([("user", 3, None)], 42),
        ([("ip", 2, None), ("user", 2, None)], 42),
    ],
)
async def test_wrong_filters(components, code):
    """With the error codes of Kafka."""
    async with Broker() as broker:
        assert await describe(broker, *components) == code


async def test_an_entity_named_twice_is_answered_once():
    """As by Kafka, which answers by entity."""
    async with Broker() as broker:
        entry = wire.AlterClientQuotasEntryData(
            entity=entity(**ALICE),
            ops=[wire.AlterClientQuotasOpData(key="producer_byte_rate", value=1.0)],
        )
        response = await broker.ask(wire.AlterClientQuotasRequest(entries=[entry, entry]), 1)
        [answered] = response.entries
        assert answered.error_code == 42
        assert await describe(broker) == {}


async def test_a_host_that_does_not_exist_is_refused():
    """A name is resolved off the loop; addresses need no lookup."""
    async with Broker() as broker:
        bad = {"ip": "no such host"}
        assert await alter(broker, bad, connection_creation_rate=1) == 42
        assert await alter(broker, {"ip": "::1"}, connection_creation_rate=1) == 0
        assert await alter(broker, {"ip": "localhost"}, connection_creation_rate=2) == 0
        servers = broker.node.servers
        await until(lambda: "127.0.0.1" in servers._host_rates.of_host)
        assert servers._host_rates.default is None
        assert servers._host_rates.of_host["127.0.0.1"] == 2


# What requests are throttled


@pytest.mark.parametrize("compression", ["producer", "gzip"])
async def test_produce_counts_the_size_of_the_request(compression):
    """On the fast path and, for records that are compressed again, on the general path."""
    async with Broker() as broker:
        await broker.create("t", compression_type=compression)
        await alter(broker, {"client_id": "test"}, producer_byte_rate=100)
        while not broker.client.mute_until:
            assert (await broker.produce("t", batch(3))).error_code == 0
        assert broker.node.dispatcher._ordinary.appended == (compression == "producer")
        partition = broker.node.topics.partition("t", 0)
        assert 1000 < partition.log.log_end_offset / 3 * (80 + len(batch(3))) < 1600
        assert broker.node.counters.throttled["producer_byte_rate"] == 1


async def test_a_fetch_beyond_the_quota_is_answered_empty_and_its_session_stays():
    """The next request of the session gets the records."""
    async with Broker() as broker:
        await broker.create("t")
        await broker.produce("t", batch(5))
        asked = ("t", 0, 0)
        first = await broker.fetch(asked, session_epoch=0)
        await alter(broker, {"client_id": "test"}, consumer_byte_rate=10)
        assert first.session_id
        size = sum(len(p.records) for topic in first.responses for p in topic.partitions)
        assert size > 100
        before = broker.node.counters.record_bytes_fetched
        empty = await broker.fetch(asked, session_id=first.session_id, session_epoch=1)
        assert (empty.error_code, empty.session_id, empty.responses) == (0, first.session_id, [])
        assert empty.throttle_time_ms > 0
        assert broker.client.mute_until > asyncio.get_running_loop().time()
        assert broker.node.counters.record_bytes_fetched == before
        await alter(broker, {"client_id": "test"}, consumer_byte_rate=None)
        again = await broker.fetch(asked, session_id=first.session_id, session_epoch=2)
        assert again.responses == first.responses


async def test_a_full_fetch_beyond_the_quota_begins_no_session():
    """As in Kafka; a client with KIP-219 expects an empty answer."""
    async with Broker() as broker:
        await broker.create("t")
        await broker.produce("t", batch(5))
        await alter(broker, {"client_id": "test"}, consumer_byte_rate=1)
        found = await broker.fetch(("t", 0, 0), session_epoch=0)
        assert (found.session_id, found.responses) == (0, [])
        assert found.throttle_time_ms > 0
        assert len(broker.node.fetch_sessions) == 0


class Permitting:
    """An authorizer that permits or denies everything."""

    asks_caller = False

    def __init__(self, *, permits):
        self.permits = permits

    def authorize(self, connection, operation, resource_type, names):
        return names if self.permits else ()


@pytest.mark.parametrize("authorizer", [None, Permitting(permits=False), Permitting(permits=True)])
async def test_only_a_permitted_follower_is_not_throttled(authorizer):
    """Replication must not depend on quotas of clients, but every client can claim a replica id."""
    async with Broker() as broker:
        await broker.create("t")
        await broker.produce("t", batch(5))
        await alter(broker, {"client_id": "test"}, consumer_byte_rate=1)
        broker.node.gate.authorizer = authorizer
        is_permitted = authorizer is not None and authorizer.permits
        found = await broker.fetch(("t", 0, 0), replica_id=5, session_epoch=0)
        assert (found.throttle_time_ms == 0) == is_permitted
        assert bool(found.responses) == is_permitted
        sessions = broker.node.fetch_sessions._sessions.values()
        assert [session.privileged for session in sessions] == [True] * is_permitted


async def test_a_claimed_follower_without_quotas_gets_no_privileged_session():
    """A privileged session would evict the sessions of consumers."""
    async with Broker() as broker:
        await broker.create("t")
        await broker.fetch(("t", 0, 0), replica_id=5, session_epoch=0)
        [session] = broker.node.fetch_sessions._sessions.values()
        assert not session.privileged


async def test_batches_appended_before_a_refusal_with_acks_0_count():
    """On the general path, which closes the connection without a response."""
    async with Broker() as broker:
        await broker.create("t", compression_type="gzip")
        await alter(broker, {"client_id": "test"}, producer_byte_rate=1)
        request = wire.ProduceRequest(
            acks=0,
            timeout_ms=1000,
            topic_data=[
                wire.TopicProduceData(
                    name=name,
                    partition_data=[wire.PartitionProduceData(index=0, records=batch(3))],
                )
                for name in ("t", "absent")
            ],
        )
        with pytest.raises(CloseConnection):
            await broker.ask(request, 9)
        assert broker.node.topics.partition("t", 0).log.log_end_offset == 3
        assert broker.node.counters.throttled["producer_byte_rate"] == 1


# Partitions


def creation(name, partitions):
    return wire.CreateTopicsRequest(
        topics=[wire.CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)]
    )


async def test_topics_beyond_the_quota_are_refused_from_version_6_on():
    """Older versions create them, and throttle their client (KIP-599)."""
    async with Broker() as broker:
        await alter(broker, {"client_id": "test"}, controller_mutation_rate=1)
        assert (await broker.ask(creation("a", 5), 7)).throttle_time_ms == 0
        assert (await broker.ask(creation("b", 10), 7)).throttle_time_ms == 0
        refused = await broker.ask(creation("c", 1), 6)
        assert [topic.error_code for topic in refused.topics] == [89]
        assert 3000 < refused.throttle_time_ms <= 4000
        assert broker.client.mute_until > asyncio.get_running_loop().time() + 2
        old = await broker.ask(creation("c", 1), 5)
        assert [topic.error_code for topic in old.topics] == [0]
        assert 4000 < old.throttle_time_ms <= 5000


async def test_deletions_and_new_partitions_count_too():
    """Refused from DeleteTopics 5 and CreatePartitions 3 on."""
    async with Broker() as broker:
        for name in ("a", "b", "c"):
            await broker.create(name, 20)
        await alter(broker, {"client_id": "test"}, controller_mutation_rate=1)

        async def grow(name, version):
            topic = wire.CreatePartitionsTopic(name=name, count=21, assignments=None)
            response = await broker.ask(wire.CreatePartitionsRequest(topics=[topic]), version)
            return response.results[0].error_code, response.throttle_time_ms > 0

        async def delete(name, version):
            response = await broker.ask(wire.DeleteTopicsRequest(topic_names=[name]), version)
            return response.responses[0].error_code, response.throttle_time_ms > 0

        assert await grow("a", 3) == (0, False)
        assert await delete("b", 5) == (0, False)
        assert await delete("c", 5) == (89, True)
        assert await grow("c", 3) == (89, True)
        assert await grow("c", 2) == (0, True)
        assert await delete("c", 4) == (0, True)


async def test_a_topic_that_a_client_creates_by_asking_for_it_is_counted():
    """It is created even beyond the quota, and its client is throttled."""
    async with Broker(num_partitions=12) as broker:
        await alter(broker, {"client_id": "test"}, controller_mutation_rate=1)
        for name, throttled in (("a", True), ("b", True)):
            request = wire.MetadataRequest(topics=[wire.MetadataRequestTopic(name=name)])
            response = await broker.ask(request, 12)
            assert [topic.error_code for topic in response.topics] == [0]
            assert (response.throttle_time_ms > 0) == throttled


async def test_a_failed_creation_costs_nothing():
    """Only valid topics are counted, as in Kafka."""
    async with Broker() as broker:
        await alter(broker, {"client_id": "test"}, controller_mutation_rate=1)
        for _ in range(20):
            response = await broker.ask(creation("no/name", 20), 7)
            assert response.topics[0].error_code == 17
        assert (await broker.ask(creation("good", 1), 7)).topics[0].error_code == 0


# Connections


async def test_quotas_of_addresses_reach_the_servers():
    """Names and the default apply to new connections."""
    async with Broker() as broker:
        await alter(broker, {"ip": "10.0.0.1"}, connection_creation_rate=5)
        await alter(broker, {"ip": None}, connection_creation_rate=7)
        rates = broker.node.servers._host_rates
        assert (rates.default, rates.of_host) == (7, {"10.0.0.1": 5})
        assert broker.node.gate.quotas is None
        await alter(broker, {"ip": "10.0.0.1"}, connection_creation_rate=None)
        await alter(broker, {"ip": None}, connection_creation_rate=None)
        assert broker.node.servers._host_rates is None


class SlowNames:
    """`getaddrinfo` in an executor that answers when the test says so."""

    def __init__(self, broker, monkeypatch):
        self.addresses = {"client.example": "10.1.1.1"}
        self.asked = []
        self.gate = asyncio.Event()
        self.gate.set()
        monkeypatch.setattr(node_quotas, "addresses_of", self.resolved)
        offload = broker.node._quotas._environment.offload
        run = offload.run

        async def run_slowly(fn, *args):
            if fn == self.resolved:
                await self.gate.wait()
            return await run(fn, *args)

        monkeypatch.setattr(offload, "run", run_slowly)

    def resolved(self, names):
        self.asked.append(sorted(names))
        return {name: [self.addresses[name]] for name in names if name in self.addresses}


HOST = {"ip": "client.example"}


async def test_the_quota_of_a_host_does_not_lapse_while_its_name_is_looked_up(monkeypatch, caplog):
    """Each change of any quota looks the names up again; the last answers hold until then."""
    async with Broker() as broker:
        names = SlowNames(broker, monkeypatch)

        def rates():
            found = broker.node.servers._host_rates
            return None if found is None else dict(found.of_host)

        assert await alter(broker, HOST, connection_creation_rate=5) == 0
        assert rates() == {"10.1.1.1": 5}  # in effect with the answer
        await until(lambda: not broker.node._quotas._is_resolving)
        names.gate.clear()
        names.asked.clear()
        names.addresses["client.example"] = "10.1.1.2"
        for rate in (1, 2, 3):
            assert await alter(broker, APP, producer_byte_rate=rate) == 0
            assert rates() == {"10.1.1.1": 5}
        names.gate.set()
        await until(lambda: rates() == {"10.1.1.2": 5})
        await until(lambda: not broker.node._quotas._is_resolving)
        assert len(names.asked) <= 2  # one task, which asks again for what came meanwhile
        del names.addresses["client.example"]
        assert await alter(broker, APP, producer_byte_rate=4) == 0
        await until(lambda: not broker.node._quotas._is_resolving)
        assert rates() == {"10.1.1.2": 5}
        assert "host=client.example addresses_until_now=10.1.1.2" in caplog.text
        names.addresses["client.example"] = "10.1.1.2"  # a change must name a host that exists
        assert await alter(broker, HOST, connection_creation_rate=None) == 0
        assert rates() is None
        assert not broker.node._quotas._found


async def test_changes_of_quotas_do_not_keep_a_new_name_from_being_looked_up(monkeypatch):
    """An answer counts although the quotas have changed while it was on its way."""
    async with Broker() as broker:
        names = SlowNames(broker, monkeypatch)
        assert await alter(broker, HOST, connection_creation_rate=5) == 0
        await until(lambda: not broker.node._quotas._is_resolving)
        names.addresses["client.example"] = "10.1.1.9"
        names.gate.clear()
        assert await alter(broker, APP, producer_byte_rate=1) == 0
        await asyncio.sleep(0)
        assert await alter(broker, APP, producer_byte_rate=2) == 0
        names.gate.set()
        await until(lambda: "10.1.1.9" in broker.node.servers._host_rates.of_host)


def test_settings_of_windows_and_rates():
    """By Kafka's names, also for one listener."""
    settings = broker_settings(
        {
            "quota.window.num": 5,
            "quota.window.size.seconds": "2",
            "controller.quota.window.num": 7,
            "controller.quota.window.size.seconds": 3,
            "max.connection.creation.rate": 50,
            "listener.name.plaintext.max.connection.creation.rate": "20",
        }
    )
    assert settings.quota_window_num == 5
    assert settings.controller_quota_window_size_seconds == 3
    assert settings.listener_max_connection_creation_rates == (("PLAINTEXT", 20),)
    assert not settings.without_effect


async def test_another_connection_of_the_client_shares_its_budget():
    """The second one is throttled in its turn."""
    async with Broker() as broker:
        await broker.create("t")
        await alter(broker, {"client_id": "test"}, consumer_byte_rate=100)
        await broker.produce("t", batch(20))
        other = RequestContext(2, "127.0.0.1:5001", "127.0.0.1", "PLAINTEXT")
        assert (await broker.fetch(("t", 0, 0))).throttle_time_ms == 0
        found = [await broker.fetch(("t", 0, 0), client=other) for _ in range(10)]
        assert found[-1].throttle_time_ms > 0
        assert other.mute_until > 0
