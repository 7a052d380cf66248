"""The acceptance points of the gateway that need no faults, for both engines, on Apache Kafka.

They are the tests of tests/fault/test_gateway_points.py, test_gateway_reports.py and
tests/interop/test_gateway_programs_of_dory.py, with one node of Apache Kafka in place of the
embedded broker. Points 4, 11 and 16 need no Kafka; those of the engine `bruce` alone are in
test_gateway_bruce.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest

import aiokq
from aiokq.errors import TopicExists
from aiokq.gateway import Gateway, GatewaySettings
from tests.fault import test_gateway_points as points
from tests.fault import test_gateway_reports as reports
from tests.fault.gateway_support import (
    Rig,
    both_engines,
    configuration,
    directory,
    engine,  # noqa: F401
    message,
)
from tests.fault.test_gateway_points import (  # noqa: F401
    test_point_01_the_examples_arrive_with_topic_key_and_value,
    test_point_05_a_discard_has_the_range_of_client_timestamps,
    test_point_05_a_discard_of_the_engine_has_the_range_of_client_timestamps,
    test_point_09_other_api_keys_and_versions_have_their_own_counters,
    test_point_10_the_limit_of_datagrams,
    test_point_12_streams_are_put_together_and_taken_apart,
    test_point_13_a_valid_message_and_an_impossible_size_in_one_write,
    test_point_14_a_malformed_body_leaves_the_connection_open,
    test_point_15_half_a_message_is_an_unclean_disconnect,
    test_point_17_partition_keys_are_unsigned,
    test_point_21_ten_thousand_messages_stay_in_order,
    test_point_22_a_number_of_messages_or_bytes_completes_a_batch,
    test_point_22_the_age_of_a_message_completes_a_batch,
    test_point_22_what_reaches_no_limit_waits,
    test_point_22_without_batching_a_message_is_sent_at_once,
    test_point_23_a_future_timestamp_pins_no_batch_and_an_ancient_one_sends_it,
    test_point_26_compression_by_topic_with_minimum_size_and_ratio,
    test_point_27_a_set_is_limited_before_compression,
    test_point_27_no_batch_is_larger_than_the_topic_allows,
    test_point_28_an_overlong_message_is_discarded_and_the_next_delivered,
    test_point_29_a_full_pool_discards_exactly_and_recovers,
    test_point_30_a_rate_limit_of_five_discards_three_of_eight,
    test_point_31_messages_of_a_topic_that_does_not_exist_are_discarded,
    test_point_31_topics_are_created_on_request,
    test_point_33_messages_of_a_deleted_topic_are_discarded_as_of_a_bad_topic,
    test_point_45_reports_are_json_with_any_bytes_in_topics,
    test_point_47_received_is_acked_discarded_and_in_flight_at_any_moment,
    test_point_49_a_storm_of_requests_does_not_stall_the_intake,
    test_point_50_unknown_paths_are_404,
    test_points_07_and_08_malformed_messages,
)
from tests.fault.test_gateway_reports import (  # noqa: F401
    test_point_05_timestamps_of_the_client_are_in_the_discard_report,
    test_point_15_half_a_message_counts_with_its_transport_and_bytes,
    test_point_30_messages_above_the_limit_are_in_both_maps,
    test_point_40_metadata_that_did_not_change_is_updated_and_not_modified,
    test_point_44_two_windows_of_the_report,
    test_point_45_every_report_is_json_with_any_bytes_in_topics,
    test_point_46_the_queues_add_up_at_any_moment,
    test_point_48_every_discard_has_a_line_in_the_log,
    test_point_48_the_log_rotates_and_the_oldest_files_are_deleted,
    test_point_49_a_sender_loses_nothing_in_a_storm_of_requests,
    test_point_50_unknown_paths_are_404_and_both_update_urls_are_accepted,
)
from tests.interop import test_gateway_programs_of_dory as programs
from tests.interop.apache.support import led
from tests.interop.test_gateway_programs_of_dory import (  # noqa: F401
    library,
    test_point_02_to_dory_writes_over_each_transport,
    test_point_03_the_client_library_in_c,
    test_point_06_a_bad_message_is_malformed_and_harms_nobody,
    to_dory,
)
from tests.peers.apache_kafka import ApacheKafka
from tests.peers.other_clients import confluent_messages

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300), both_engines]

SECONDS = 20.0


@pytest.fixture(autouse=True)
def on_apache(apache: ApacheKafka, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put the node in the place of the embedded broker."""

    @asynccontextmanager
    async def rig(
        values: Mapping[str, Any] | None = None, *, topics: Mapping[str, int] | None = None
    ) -> AsyncIterator[Rig]:
        servers = apache.bootstrap_servers
        with directory() as path:
            async with aiokq.Admin(servers) as admin:
                before = set(await admin.list_topics())
                for name, partitions in (topics or {"orders": 1}).items():
                    await created(admin, aiokq.NewTopic(name, partitions))
                    await led(servers, name, partitions)
                settings = GatewaySettings.of(
                    configuration(path, values), bootstrap_servers=servers
                )
                try:
                    async with Gateway(settings) as gateway:
                        kafka: Any = SimpleNamespace(bootstrap_servers=servers)
                        made = Rig(kafka, admin, gateway, path)
                        try:
                            yield made
                        finally:
                            made.close()
                finally:
                    await deleted(admin, set(await admin.list_topics()) - before)

    monkeypatch.setattr(points, "rig", rig)
    monkeypatch.setattr(programs, "rig", rig)
    monkeypatch.setattr(reports, "rig", rig)


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
async def test_point_26_compressed_sets_are_read_by_a_stock_consumer(codec: str) -> None:
    """That of librdkafka, with keys and values."""
    values = {"compression": {"type": codec}, "batching": {"messages": 100}}
    async with points.rig(values) as r:
        sent = [(b"k%d" % n, b"text" * 50 + b"%d" % n) for n in range(100)]
        await r.send(*(message("orders", value, key) for key, value in sent))
        await r.settled(100)
        assert all(number > 0 for number, _ in await points.batches_of(r, "orders"))
        servers = r.kafka.bootstrap_servers
        found = await asyncio.to_thread(confluent_messages, servers, "orders", 100)
        assert [(one.key(), one.value()) for one in found] == sent


async def test_point_42_sigterm_delivers_half_full_batches_and_ends_with_0(
    apache: ApacheKafka,
) -> None:
    async with aiokq.Admin(apache.bootstrap_servers) as admin:
        await created(admin, aiokq.NewTopic("orders", 1))
        try:
            await points.ended_by_sigterm(apache.bootstrap_servers)
        finally:
            await deleted(admin, {"orders"})


async def created(admin: aiokq.Admin, topic: aiokq.NewTopic) -> None:
    """Create a topic, perhaps one whose predecessor is not deleted yet."""
    async with asyncio.timeout(SECONDS):
        while True:
            try:
                await admin.create_topics([topic])
                return
            except TopicExists:
                await asyncio.sleep(0.1)


async def deleted(admin: aiokq.Admin, names: set[str]) -> None:
    """Delete the topics of a test, because other tests use the same names."""
    if not names:
        return
    await admin.delete_topics(sorted(names))
    async with asyncio.timeout(SECONDS):
        while names & set(await admin.list_topics()):  # noqa: ASYNC110
            await asyncio.sleep(0.1)
