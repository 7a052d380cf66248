"""aiokq.broker.dispatch: frames that get a response, and frames that close the connection."""

from __future__ import annotations

import struct
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokq import wire
from aiokq.broker.handlers import APIS, advertised_versions
from aiokq.connection.request_context import CloseConnection, RequestContext, SessionState
from aiokq.core.errors import ProtocolError
from tests.unit.broker.harness import Broker, batch


def frame(key: int, version: int, body: bytes = b"", client_id: bytes | None = b"t") -> bytes:
    length = -1 if client_id is None else len(client_id)
    return struct.pack(">hhih", key, version, 7, length) + (client_id or b"") + body


async def test_an_unknown_api_closes_the_connection():
    """Such a client could not read any error code."""
    async with Broker() as broker:
        with pytest.raises(CloseConnection, match="999"):
            await broker.frame(frame(999, 0))


@pytest.mark.parametrize("api", [api for api in APIS.values() if api.key != 18])
async def test_a_version_that_is_not_advertised_closes_the_connection(api):
    """Versions below and above the range; the body is not even decoded."""
    async with Broker() as broker:
        with pytest.raises(CloseConnection, match=api.name):
            await broker.frame(frame(api.key, api.max_version + 1, b"\0"))
        if api.min_version > 0:
            with pytest.raises(CloseConnection, match=api.name):
                await broker.frame(frame(api.key, api.min_version - 1, b"\0"))


async def test_what_is_advertised_is_what_the_table_serves_and_can_be_encoded():
    """With a wider range the first request of an extra version would fail."""
    async with Broker() as broker:
        response = await broker.ask(
            wire.ApiVersionsRequest(client_software_name="t", client_software_version="1"), 3
        )
        ranges = {(api.api_key, api.min_version, api.max_version) for api in response.api_keys}
        assert ranges == set(advertised_versions(False))
        for key, low, high in ranges:
            assert low >= wire.api(key).MIN_VERSION
            assert high <= wire.api(key).MAX_VERSION
        assert (0, 0, 13) in ranges  # librdkafka loses compression without Produce 0


async def test_the_request_that_begins_a_connection_is_no_sign_of_a_client_at_work():
    """Regression: 300 new TLS connections a second waited for each other's ApiVersions requests."""
    async with Broker() as broker:
        turn = broker.node.turn
        before = turn.begun
        await broker.ask(wire.ApiVersionsRequest(), 0)
        assert turn.begun == before
        await broker.ask(wire.MetadataRequest(topics=[]), 9)
        assert turn.begun == before + 1
        # `Strangers` takes the requests of tasks before the login off. Regression: this one was
        # taken off twice, so that a stranger's hid a request of a client at work.
        stranger = RequestContext(1, "10.0.0.9:5000", "10.0.0.9", "PLAINTEXT")
        stranger.session.state = SessionState.HANDSHAKE
        await broker.node.dispatcher.handle(stranger, memoryview(frame(18, 0)))
        assert turn.begun == before + 2
        # Regression: with quotas, these requests counted as work.
        entry = wire.AlterClientQuotasEntryData(
            entity=[wire.AlterClientQuotasEntityData(entity_type="client-id", entity_name="other")],
            ops=[wire.AlterClientQuotasOpData(key="producer_byte_rate", value=1e6)],
        )
        await broker.ask(wire.AlterClientQuotasRequest(entries=[entry]), 1)
        before = turn.begun
        await broker.ask(wire.ApiVersionsRequest(), 0)
        assert turn.begun == before


async def test_a_client_that_pipelines_leaves_room_for_others():
    """Requests that have already arrived must not all be handled in one loop iteration."""
    import asyncio

    from aiokq.connection.turn import REQUESTS_PER_TURN

    async with Broker() as broker:
        turns = 0
        running = True

        async def other():
            nonlocal turns
            while running:
                turns += 1
                await asyncio.sleep(0)

        task = asyncio.create_task(other())
        for _ in range(REQUESTS_PER_TURN * 5):
            await broker.ask(wire.ApiVersionsRequest(), 0)
        running = False
        await task
        assert turns >= 4


async def test_a_thousand_clients_with_one_request_each_leave_room_for_others():
    """Regression: 64 requests were handled in the first loop iteration, and 936 in the second."""
    import asyncio

    from aiokq.connection.turn import REQUESTS_PER_TURN

    async with Broker() as broker:
        handled = 0

        async def client():
            nonlocal handled
            await broker.ask(wire.ApiVersionsRequest(), 0)
            handled += 1

        clients = [asyncio.create_task(client()) for _ in range(1000)]
        counts = [0]
        while handled < len(clients):
            await asyncio.sleep(0)
            counts.append(handled)
        assert max(end - begin for begin, end in pairwise(counts)) == REQUESTS_PER_TURN
        await asyncio.gather(*clients)


async def test_a_client_of_many_partitions_leaves_room_for_others():
    """A client that pipelines requests with many partitions must not block other clients.

    Regression: a thousand small batches were few requests and few bytes, so all were appended in
    one loop iteration of some hundred milliseconds.
    """
    import asyncio

    from aiokq.connection.turn import BATCHES_PER_REQUEST, REQUESTS_PER_TURN

    count = 1000
    data = [wire.PartitionProduceData(index=0, records=batch())] * count
    topics = [wire.TopicProduceData(name="t", partition_data=data)]
    request = wire.ProduceRequest(acks=1, timeout_ms=1000, topic_data=topics)
    async with Broker() as broker:
        await broker.create("t")
        log = broker.node.topics.partition("t", 0).log

        async def pipeline():
            for _ in range(8):
                await broker.ask(request, 9)

        task = asyncio.create_task(pipeline())
        ends = [0]
        while not task.done():
            await asyncio.sleep(0)
            ends.append(log.log_end_offset)
        assert ends[-1] == 8 * count
        most = max(end - begin for begin, end in pairwise(ends))
        assert most <= REQUESTS_PER_TURN * BATCHES_PER_REQUEST + count


async def test_clients_whose_batches_take_the_general_path_share_a_turn():
    """16 batches count as a request of the node, as on the fast path.

    The batches of each request were limited, but not those of all requests together.
    """
    import asyncio

    from aiokq.connection.turn import BATCHES_PER_REQUEST, REQUESTS_PER_TURN

    count, clients = 200, 20
    data = [wire.PartitionProduceData(index=0, records=batch())] * count
    topics = [wire.TopicProduceData(name="t", partition_data=data)]
    request = wire.ProduceRequest(acks=1, timeout_ms=1000, topic_data=topics)
    async with Broker() as broker:
        await broker.create("t", cleanup_policy="compact")
        log = broker.node.topics.partition("t", 0).log
        asking = asyncio.gather(*[broker.ask(request, 9) for _ in range(clients)])
        ends = [0]
        while not asking.done():
            await asyncio.sleep(0)
            ends.append(log.log_end_offset)
        assert ends[-1] == clients * count
        most = max(end - begin for begin, end in pairwise(ends))
        assert most <= REQUESTS_PER_TURN * BATCHES_PER_REQUEST


async def test_bytes_behind_a_request_are_skipped():
    """librdkafka's Metadata request for all topics has three extra bytes, which Kafka ignores."""
    async with Broker() as broker:
        await broker.create("t")
        body = bytes.fromhex("000000000000010000")[1:]
        answer = await broker.frame(frame(3, 13, b"\0" + body))
        _, response = wire.decode_response(wire.MetadataResponse, answer, 13)
        assert [topic.name for topic in response.topics] == ["t"]


async def test_legacy_advertises_the_versions_that_kafka_4_dropped():
    """With `legacy` they are served."""
    async with Broker(legacy=True) as broker:
        response = await broker.ask(wire.ApiVersionsRequest(), 0)
        ranges = {api.api_key: api.min_version for api in response.api_keys}
        assert ranges[1] == 0
        assert ranges[2] == 0


async def test_a_newer_api_versions_is_answered_in_version_0_with_the_range_to_retry():
    """Java sends its highest version to an unknown broker, then retries within the range."""
    async with Broker() as broker:
        answer = await broker.frame(frame(18, 100, b"\x00\x02x\x02y\x00"))
        correlation_id, response = wire.decode_response(wire.ApiVersionsResponse, answer, 0)
        assert correlation_id == 7
        assert response.error_code == 35
        [own] = response.api_keys
        assert (own.api_key, own.min_version, own.max_version) == (18, 0, 4)


@pytest.mark.parametrize(("name", "version"), [("", "1"), ("a b", "1"), ("ok", "-1"), ("x", "")])
async def test_a_client_software_name_that_kafka_refuses_is_42(name, version):
    """The pattern of KIP-511, from version 3 on."""
    async with Broker() as broker:
        request = wire.ApiVersionsRequest(
            client_software_name=name, client_software_version=version
        )
        assert (await broker.ask(request, 3)).error_code == 42
        request = wire.ApiVersionsRequest(
            client_software_name="apache-kafka-java", client_software_version="4.2.0"
        )
        assert (await broker.ask(request, 4)).error_code == 0


async def test_the_clients_software_is_remembered_for_its_connection():
    """Logs and metrics use it as long as the connection is open."""
    async with Broker() as broker:
        request = wire.ApiVersionsRequest(
            client_software_name="librdkafka", client_software_version="2.11.1"
        )
        await broker.ask(request, 3)
        session = broker.client.session
        assert (session.software_name, session.software_version) == ("librdkafka", "2.11.1")


async def test_only_features_that_work_are_announced():
    """With `share.version` Java's consumers would use requests that are not served."""
    async with Broker() as broker:
        response = await broker.ask(
            wire.ApiVersionsRequest(client_software_name="t", client_software_version="1"), 4
        )
        names = {
            "eligible.leader.replicas.version",
            "group.version",
            "metadata.version",
            "transaction.version",
        }
        assert {one.name for one in response.finalized_features} == names
        assert {one.name for one in response.supported_features} == names | {"kraft.version"}


@given(st.binary(max_size=200))
def test_arbitrary_bytes_only_close_the_connection(data):
    """A port scanner must not cause a traceback."""
    import asyncio

    async def main():
        async with Broker() as broker:
            try:
                await broker.frame(data)
            except (CloseConnection, ProtocolError):
                pass

    asyncio.run(main())


@given(st.sampled_from(sorted(APIS)), st.data(), st.binary(max_size=120))
def test_arbitrary_bodies_of_every_api_only_close_the_connection(key, data, body):
    """Valid headers followed by garbage, in every version served."""
    import asyncio

    api = APIS[key]
    version = data.draw(st.integers(api.min_version, api.max_version))
    tags = b"\0" if wire.api(key).is_flexible(version) else b""

    async def main():
        async with Broker() as broker:
            try:
                await broker.frame(frame(key, version, tags + body))
            except (CloseConnection, ProtocolError):
                pass

    asyncio.run(main())
