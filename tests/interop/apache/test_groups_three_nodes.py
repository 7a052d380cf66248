"""Groups of Apache Kafka with coordinators on three nodes, one of which dies."""

from __future__ import annotations

import asyncio
import signal

import pytest

import aiokq
from aiokq.admin.group_types import GroupState
from tests.interop.apache.support import create_topic, eventually
from tests.peers.apache_kafka import apache_kafka, why_absent

pytestmark = [pytest.mark.kafka, pytest.mark.full]

GROUPS = [f"g{n}" for n in range(30)]


@pytest.fixture(scope="module")
def cluster():
    reason = why_absent()
    if reason is not None:
        pytest.skip(f"APACHE KAFKA IS NOT TESTED: {reason}")
    # A dead node must be noticed within 3 s.
    properties = {"broker_session_timeout_ms": "3000", "broker_heartbeat_interval_ms": "500"}
    with apache_kafka(3, **properties) as running:
        yield running


async def test_groups_are_administered_while_their_coordinators_move(cluster) -> None:
    """A third of the groups loses its coordinator; calls are retried until another responds."""
    await create_topic(cluster, "orders", 1, 3)
    async with aiokq.Admin(cluster.bootstrap_servers) as admin:
        for group in GROUPS:
            await admin.alter_group_offsets(group, {("orders", 0): 0}, raise_errors=True)

        async def on_all_nodes() -> None:
            listed = await admin.list_groups(raise_errors=True)
            assert sorted(listed) == sorted(GROUPS)
            assert {group.coordinator for group in listed.values()} == {1, 2, 3}

        await eventually(on_all_nodes)
        described = await admin.describe_groups(GROUPS, raise_errors=True)
        assert {group.state for group in described.values()} == {GroupState.EMPTY}
        await asyncio.to_thread(cluster.stop_node, 1, signal.SIGKILL)

        # Call at once, while the cluster still considers the node alive. A new coordinator of Kafka
        # may deny for a moment that a group exists, because it reads up to the high watermark only.
        async def moved() -> None:
            lags = await admin.group_lag(GROUPS, raise_errors=True)
            assert all(lag.group.coordinator.node_id != 1 for lag in lags.values())

        await eventually(moved)
        altered = [await admin.alter_group_offsets(group, {("orders", 0): 0}) for group in GROUPS]
        assert all(result.ok for result in altered)

        async def on_two_nodes() -> None:
            listed = await admin.list_groups(raise_errors=True)
            assert sorted(listed) == sorted(GROUPS)

        await eventually(on_two_nodes)
        await asyncio.to_thread(cluster.start_node, 1)
        assert (await admin.delete_groups(GROUPS)).ok
