"""The table of the APIs that this broker serves, and one handler module for each API.

A module is imported when the first request of its API arrives. ApiVersions advertises the versions
in the table. Every advertised version is served completely, except Produce 0-2 without the broker
setting `legacy`.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from aiokq.core.named_tuple import NamedTuple

if TYPE_CHECKING:
    from aiokq.broker.handlers.areas import Handler
    from aiokq.broker.handlers.binding import Areas

__all__ = ["APIS", "Api", "advertised_versions"]


class Api(NamedTuple):
    """An API: its versions, its oldest version with `legacy`, and the module of its handler."""

    key: int
    name: str
    min_version: int
    max_version: int
    module: str
    legacy_min_version: int | None = None

    def oldest(self, legacy: bool) -> int:
        """Return the oldest version that is served."""
        if legacy and self.legacy_min_version is not None:
            return self.legacy_min_version
        return self.min_version

    def load(self, areas: Areas) -> Handler:
        """Import the module, and return its `handle` bound to the areas that it uses."""
        from aiokq.broker.handlers.binding import bind

        return bind(importlib.import_module(f"{__name__}.{self.module}").handle, areas)


APIS: Final = {
    api.key: api
    for api in (
        # Produce 0-2 are always advertised; without `legacy`, every partition of such a request
        # gets UNSUPPORTED_VERSION. With a minimum above 0, librdkafka before 2.11 would assume a
        # broker without compression, and send uncompressed batches without notice.
        Api(0, "Produce", 0, 13, "h00_produce"),
        Api(1, "Fetch", 4, 18, "h01_fetch", legacy_min_version=0),
        Api(2, "ListOffsets", 1, 11, "h02_list_offsets", legacy_min_version=0),
        Api(3, "Metadata", 0, 13, "h03_metadata"),
        Api(8, "OffsetCommit", 2, 10, "h08_offset_commit"),
        Api(9, "OffsetFetch", 1, 10, "h09_offset_fetch"),
        Api(10, "FindCoordinator", 0, 6, "h10_find_coordinator"),
        Api(11, "JoinGroup", 0, 9, "h11_join_group"),
        Api(12, "Heartbeat", 0, 4, "h12_heartbeat"),
        Api(13, "LeaveGroup", 0, 5, "h13_leave_group"),
        Api(14, "SyncGroup", 0, 5, "h14_sync_group"),
        Api(15, "DescribeGroups", 0, 6, "h15_describe_groups"),
        Api(16, "ListGroups", 0, 5, "h16_list_groups"),
        Api(17, "SaslHandshake", 0, 1, "h17_sasl_handshake"),
        Api(18, "ApiVersions", 0, 4, "h18_api_versions"),
        Api(19, "CreateTopics", 2, 7, "h19_create_topics"),
        Api(20, "DeleteTopics", 1, 6, "h20_delete_topics"),
        Api(21, "DeleteRecords", 0, 2, "h21_delete_records"),
        Api(22, "InitProducerId", 0, 5, "h22_init_producer_id"),
        Api(23, "OffsetForLeaderEpoch", 2, 4, "h23_offset_for_leader_epoch"),
        Api(24, "AddPartitionsToTxn", 0, 5, "h24_add_partitions_to_txn"),
        Api(25, "AddOffsetsToTxn", 0, 4, "h25_add_offsets_to_txn"),
        Api(26, "EndTxn", 0, 5, "h26_end_txn"),
        Api(27, "WriteTxnMarkers", 1, 2, "h27_write_txn_markers"),
        Api(28, "TxnOffsetCommit", 0, 5, "h28_txn_offset_commit"),
        Api(29, "DescribeAcls", 1, 3, "h29_describe_acls"),
        Api(30, "CreateAcls", 1, 3, "h30_create_acls"),
        Api(31, "DeleteAcls", 1, 3, "h31_delete_acls"),
        Api(32, "DescribeConfigs", 1, 4, "h32_describe_configs"),
        Api(33, "AlterConfigs", 0, 2, "h33_alter_configs"),
        Api(35, "DescribeLogDirs", 1, 4, "h35_describe_log_dirs"),
        Api(36, "SaslAuthenticate", 0, 2, "h36_sasl_authenticate"),
        Api(37, "CreatePartitions", 0, 3, "h37_create_partitions"),
        Api(42, "DeleteGroups", 0, 2, "h42_delete_groups"),
        Api(43, "ElectLeaders", 0, 2, "h43_elect_leaders"),
        Api(44, "IncrementalAlterConfigs", 0, 1, "h44_incremental_alter_configs"),
        Api(45, "AlterPartitionReassignments", 0, 1, "h45_alter_partition_reassignments"),
        Api(46, "ListPartitionReassignments", 0, 0, "h46_list_partition_reassignments"),
        Api(47, "OffsetDelete", 0, 0, "h47_offset_delete"),
        Api(48, "DescribeClientQuotas", 0, 1, "h48_describe_client_quotas"),
        Api(49, "AlterClientQuotas", 0, 1, "h49_alter_client_quotas"),
        Api(50, "DescribeUserScramCredentials", 0, 0, "h50_describe_user_scram_credentials"),
        Api(51, "AlterUserScramCredentials", 0, 0, "h51_alter_user_scram_credentials"),
        Api(55, "DescribeQuorum", 0, 2, "h55_describe_quorum"),
        Api(57, "UpdateFeatures", 0, 2, "h57_update_features"),
        Api(60, "DescribeCluster", 0, 2, "h60_describe_cluster"),
        Api(61, "DescribeProducers", 0, 0, "h61_describe_producers"),
        Api(64, "UnregisterBroker", 0, 0, "h64_unregister_broker"),
        Api(65, "DescribeTransactions", 0, 0, "h65_describe_transactions"),
        Api(66, "ListTransactions", 0, 2, "h66_list_transactions"),
        Api(68, "ConsumerGroupHeartbeat", 0, 1, "h68_consumer_group_heartbeat"),
        Api(69, "ConsumerGroupDescribe", 0, 1, "h69_consumer_group_describe"),
        Api(74, "ListConfigResources", 0, 1, "h74_list_config_resources"),
        Api(75, "DescribeTopicPartitions", 0, 0, "h75_describe_topic_partitions"),
    )
}
"""The APIs by their keys."""


def advertised_versions(legacy: bool) -> Iterator[tuple[int, int, int]]:
    """Yield the key, the oldest and the newest version of each API."""
    for api in APIS.values():
        yield api.key, api.oldest(legacy), api.max_version
