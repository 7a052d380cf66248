"""The catalogue of messages: the key of each API, and the file of each message class.

Message files are imported on first use through these tables, because importing a file takes
milliseconds, and no program needs all files.
"""

from __future__ import annotations

import importlib
from typing import Final, cast

from aiokq.core.errors import ProtocolError
from aiokq.wire.struct import Request, Response

__all__ = ["API_NAMES", "APIS", "MODULES", "api"]

MODULES: Final = {
    # begin generated modules
    "add_offsets_to_txn": ("AddOffsetsToTxnRequest AddOffsetsToTxnResponse "),
    "add_partitions_to_txn": (
        "AddPartitionsToTxnPartitionResult AddPartitionsToTxnRequest "
        "AddPartitionsToTxnResponse AddPartitionsToTxnResult AddPartitionsToTxnTopic "
        "AddPartitionsToTxnTopicResult AddPartitionsToTxnTransaction "
    ),
    "alter_client_quotas": (
        "AlterClientQuotasEntityData AlterClientQuotasEntryData AlterClientQuotasOpData "
        "AlterClientQuotasRequest AlterClientQuotasResponse "
        "AlterClientQuotasResponseEntryData "
    ),
    "alter_configs": (
        "AlterConfigsAlterableConfig AlterConfigsRequest AlterConfigsResource "
        "AlterConfigsResourceResponse AlterConfigsResponse "
    ),
    "alter_partition_reassignments": (
        "AlterPartitionReassignmentsRequest AlterPartitionReassignmentsResponse "
        "ReassignablePartition ReassignablePartitionResponse ReassignableTopic "
        "ReassignableTopicResponse "
    ),
    "alter_user_scram_credentials": (
        "AlterUserScramCredentialsRequest AlterUserScramCredentialsResponse "
        "AlterUserScramCredentialsResult ScramCredentialDeletion ScramCredentialUpsertion "
    ),
    "api_versions": (
        "ApiVersion ApiVersionsRequest ApiVersionsResponse FinalizedFeatureKey SupportedFeatureKey "
    ),
    "cluster_metadata_records": (
        "AbortTransactionRecord BeginTransactionRecord ClearElrRecord ConfigRecord "
        "EndTransactionRecord FeatureLevelRecord NoOpRecord PartitionChangeRecord "
        "PartitionRecord ProducerIdsRecord RemoveTopicRecord TopicRecord "
        "ZkMigrationStateRecord "
    ),
    "consumer_group_describe": (
        "ConsumerGroupDescribeAssignment ConsumerGroupDescribeMember "
        "ConsumerGroupDescribeRequest ConsumerGroupDescribeResponse "
        "ConsumerGroupDescribeTopicPartitions ConsumerGroupDescribedGroup "
    ),
    "consumer_group_heartbeat": (
        "ConsumerGroupHeartbeatAssignment ConsumerGroupHeartbeatRequest "
        "ConsumerGroupHeartbeatResponse ConsumerGroupHeartbeatTopicPartitions "
    ),
    "consumer_group_records": (
        "ClassicMemberMetadata ClassicProtocol ConsumerGroupCurrentMemberAssignmentKey "
        "ConsumerGroupCurrentMemberAssignmentTopicPartitions "
        "ConsumerGroupCurrentMemberAssignmentValue ConsumerGroupMemberMetadataKey "
        "ConsumerGroupMemberMetadataValue ConsumerGroupMetadataKey "
        "ConsumerGroupMetadataValue ConsumerGroupPartitionMetadataKey "
        "ConsumerGroupPartitionMetadataTopicMetadata ConsumerGroupPartitionMetadataValue "
        "ConsumerGroupRegularExpressionKey ConsumerGroupRegularExpressionValue "
        "ConsumerGroupTargetAssignmentMemberKey "
        "ConsumerGroupTargetAssignmentMemberTopicPartition "
        "ConsumerGroupTargetAssignmentMemberValue "
        "ConsumerGroupTargetAssignmentMetadataKey "
        "ConsumerGroupTargetAssignmentMetadataValue PartitionMetadata "
    ),
    "consumer_protocol": (
        "ConsumerProtocolAssignment ConsumerProtocolAssignmentTopicPartition "
        "ConsumerProtocolSubscription ConsumerProtocolSubscriptionTopicPartition "
    ),
    "create_acls": ("AclCreation AclCreationResult CreateAclsRequest CreateAclsResponse "),
    "create_partitions": (
        "CreatePartitionsAssignment CreatePartitionsRequest CreatePartitionsResponse "
        "CreatePartitionsTopic CreatePartitionsTopicResult "
    ),
    "create_topics": (
        "CreatableReplicaAssignment CreatableTopic CreatableTopicConfig "
        "CreatableTopicConfigs CreatableTopicResult CreateTopicsRequest "
        "CreateTopicsResponse "
    ),
    "delete_acls": (
        "DeleteAclsFilter DeleteAclsFilterResult DeleteAclsMatchingAcl DeleteAclsRequest "
        "DeleteAclsResponse "
    ),
    "delete_groups": ("DeletableGroupResult DeleteGroupsRequest DeleteGroupsResponse "),
    "delete_records": (
        "DeleteRecordsPartition DeleteRecordsPartitionResult DeleteRecordsRequest "
        "DeleteRecordsResponse DeleteRecordsTopic DeleteRecordsTopicResult "
    ),
    "delete_topics": (
        "DeletableTopicResult DeleteTopicState DeleteTopicsRequest DeleteTopicsResponse "
    ),
    "describe_acls": (
        "AclDescription DescribeAclsRequest DescribeAclsResource DescribeAclsResponse "
    ),
    "describe_client_quotas": (
        "ComponentData DescribeClientQuotasEntityData DescribeClientQuotasEntryData "
        "DescribeClientQuotasRequest DescribeClientQuotasResponse "
        "DescribeClientQuotasValueData "
    ),
    "describe_cluster": ("DescribeClusterBroker DescribeClusterRequest DescribeClusterResponse "),
    "describe_configs": (
        "DescribeConfigsRequest DescribeConfigsResource DescribeConfigsResourceResult "
        "DescribeConfigsResponse DescribeConfigsResult DescribeConfigsSynonym "
    ),
    "describe_groups": (
        "DescribeGroupsRequest DescribeGroupsResponse DescribedGroup DescribedGroupMember "
    ),
    "describe_log_dirs": (
        "DescribableLogDirTopic DescribeLogDirsPartition DescribeLogDirsRequest "
        "DescribeLogDirsResponse DescribeLogDirsResult DescribeLogDirsTopic "
    ),
    "describe_producers": (
        "DescribeProducersPartitionResponse DescribeProducersRequest "
        "DescribeProducersResponse DescribeProducersTopicRequest "
        "DescribeProducersTopicResponse ProducerState "
    ),
    "describe_quorum": (
        "DescribeQuorumListener DescribeQuorumNode DescribeQuorumPartitionData "
        "DescribeQuorumReplicaState DescribeQuorumRequest DescribeQuorumResponse "
        "DescribeQuorumResponsePartitionData DescribeQuorumResponseTopicData "
        "DescribeQuorumTopicData "
    ),
    "describe_topic_partitions": (
        "Cursor DescribeTopicPartitionsRequest DescribeTopicPartitionsResponse "
        "DescribeTopicPartitionsResponsePartition DescribeTopicPartitionsResponseTopic "
        "DescribeTopicPartitionsTopicRequest "
    ),
    "describe_transactions": (
        "DescribeTransactionsRequest DescribeTransactionsResponse "
        "DescribeTransactionsTopicData DescribeTransactionsTransactionState "
    ),
    "describe_user_scram_credentials": (
        "CredentialInfo DescribeUserScramCredentialsRequest "
        "DescribeUserScramCredentialsResponse DescribeUserScramCredentialsResult UserName "
    ),
    "elect_leaders": (
        "ElectLeadersPartitionResult ElectLeadersRequest ElectLeadersResponse "
        "ElectLeadersTopicPartitions ReplicaElectionResult "
    ),
    "end_txn": ("EndTxnRequest EndTxnResponse "),
    "fetch": (
        "AbortedTransaction FetchEpochEndOffset FetchLeaderIdAndEpoch FetchNodeEndpoint "
        "FetchPartition FetchPartitionData FetchReplicaState FetchRequest FetchResponse "
        "FetchTopic FetchableTopicResponse ForgottenTopic SnapshotId "
    ),
    "find_coordinator": ("Coordinator FindCoordinatorRequest FindCoordinatorResponse "),
    "group_records": (
        "GroupMetadataKey GroupMetadataValue LegacyOffsetCommitKey "
        "LegacyOffsetCommitValue MemberMetadata OffsetCommitKey OffsetCommitValue "
    ),
    "heartbeat": ("HeartbeatRequest HeartbeatResponse "),
    "incremental_alter_configs": (
        "IncrementalAlterConfigsAlterableConfig IncrementalAlterConfigsRequest "
        "IncrementalAlterConfigsResource IncrementalAlterConfigsResourceResponse "
        "IncrementalAlterConfigsResponse "
    ),
    "init_producer_id": ("InitProducerIdRequest InitProducerIdResponse "),
    "join_group": (
        "JoinGroupRequest JoinGroupRequestProtocol JoinGroupResponse JoinGroupResponseMember "
    ),
    "leave_group": ("LeaveGroupRequest LeaveGroupResponse MemberIdentity MemberResponse "),
    "list_config_resources": (
        "ConfigResource ListConfigResourcesRequest ListConfigResourcesResponse "
    ),
    "list_groups": ("ListGroupsRequest ListGroupsResponse ListedGroup "),
    "list_offsets": (
        "ListOffsetsPartition ListOffsetsPartitionResponse ListOffsetsRequest "
        "ListOffsetsResponse ListOffsetsTopic ListOffsetsTopicResponse "
    ),
    "list_partition_reassignments": (
        "ListPartitionReassignmentsRequest ListPartitionReassignmentsResponse "
        "ListPartitionReassignmentsTopics OngoingPartitionReassignment "
        "OngoingTopicReassignment "
    ),
    "list_transactions": (
        "ListTransactionsRequest ListTransactionsResponse ListTransactionsTransactionState "
    ),
    "metadata": (
        "MetadataRequest MetadataRequestTopic MetadataResponse MetadataResponseBroker "
        "MetadataResponsePartition MetadataResponseTopic "
    ),
    "offset_commit": (
        "OffsetCommitRequest OffsetCommitRequestPartition OffsetCommitRequestTopic "
        "OffsetCommitResponse OffsetCommitResponsePartition OffsetCommitResponseTopic "
    ),
    "offset_delete": (
        "OffsetDeleteRequest OffsetDeleteRequestPartition OffsetDeleteRequestTopic "
        "OffsetDeleteResponse OffsetDeleteResponsePartition OffsetDeleteResponseTopic "
    ),
    "offset_fetch": (
        "OffsetFetchRequest OffsetFetchRequestGroup OffsetFetchRequestTopic "
        "OffsetFetchRequestTopics OffsetFetchResponse OffsetFetchResponseGroup "
        "OffsetFetchResponsePartition OffsetFetchResponsePartitions "
        "OffsetFetchResponseTopic OffsetFetchResponseTopics "
    ),
    "offset_for_leader_epoch": (
        "OffsetForLeaderEpochEndOffset OffsetForLeaderEpochRequest "
        "OffsetForLeaderEpochResponse OffsetForLeaderPartition OffsetForLeaderTopic "
        "OffsetForLeaderTopicResult "
    ),
    "principal_records": (
        "AccessControlEntryRecord ClientQuotaEntityData ClientQuotaRecord "
        "DelegationTokenRecord RemoveAccessControlEntryRecord RemoveDelegationTokenRecord "
        "RemoveUserScramCredentialRecord UserScramCredentialRecord "
    ),
    "produce": (
        "BatchIndexAndErrorMessage PartitionProduceData PartitionProduceResponse "
        "ProduceLeaderIdAndEpoch ProduceNodeEndpoint ProduceRequest ProduceResponse "
        "TopicProduceData TopicProduceResponse "
    ),
    "quorum_records": (
        "KRaftVersionFeature KRaftVersionRecord LeaderChangeMessage "
        "LeaderChangeMessageVoter SnapshotFooterRecord SnapshotHeaderRecord VotersRecord "
        "VotersRecordEndpoint VotersRecordVoter "
    ),
    "registration_records": (
        "BrokerEndpoint BrokerFeature BrokerRegistrationChangeRecord ControllerEndpoint "
        "ControllerFeature FenceBrokerRecord RegisterBrokerRecord "
        "RegisterControllerRecord UnfenceBrokerRecord UnregisterBrokerRecord "
    ),
    "sasl_authenticate": ("SaslAuthenticateRequest SaslAuthenticateResponse "),
    "sasl_handshake": ("SaslHandshakeRequest SaslHandshakeResponse "),
    "sync_group": ("SyncGroupRequest SyncGroupRequestAssignment SyncGroupResponse "),
    "transaction_records": ("EndTxnMarker PartitionsSchema TransactionLogKey TransactionLogValue "),
    "txn_offset_commit": (
        "TxnOffsetCommitRequest TxnOffsetCommitRequestPartition "
        "TxnOffsetCommitRequestTopic TxnOffsetCommitResponse "
        "TxnOffsetCommitResponsePartition TxnOffsetCommitResponseTopic "
    ),
    "unregister_broker": ("UnregisterBrokerRequest UnregisterBrokerResponse "),
    "update_features": (
        "FeatureUpdateKey UpdatableFeatureResult UpdateFeaturesRequest UpdateFeaturesResponse "
    ),
    "write_txn_markers": (
        "WritableTxnMarker WritableTxnMarkerPartitionResult WritableTxnMarkerResult "
        "WritableTxnMarkerTopic WritableTxnMarkerTopicResult WriteTxnMarkersRequest "
        "WriteTxnMarkersResponse "
    ),
    # end generated modules
}
"""Public classes of each message file."""

APIS: Final = {
    # begin generated apis
    0: ("Produce", "produce", "ProduceRequest"),
    1: ("Fetch", "fetch", "FetchRequest"),
    2: ("ListOffsets", "list_offsets", "ListOffsetsRequest"),
    3: ("Metadata", "metadata", "MetadataRequest"),
    8: ("OffsetCommit", "offset_commit", "OffsetCommitRequest"),
    9: ("OffsetFetch", "offset_fetch", "OffsetFetchRequest"),
    10: ("FindCoordinator", "find_coordinator", "FindCoordinatorRequest"),
    11: ("JoinGroup", "join_group", "JoinGroupRequest"),
    12: ("Heartbeat", "heartbeat", "HeartbeatRequest"),
    13: ("LeaveGroup", "leave_group", "LeaveGroupRequest"),
    14: ("SyncGroup", "sync_group", "SyncGroupRequest"),
    15: ("DescribeGroups", "describe_groups", "DescribeGroupsRequest"),
    16: ("ListGroups", "list_groups", "ListGroupsRequest"),
    17: ("SaslHandshake", "sasl_handshake", "SaslHandshakeRequest"),
    18: ("ApiVersions", "api_versions", "ApiVersionsRequest"),
    19: ("CreateTopics", "create_topics", "CreateTopicsRequest"),
    20: ("DeleteTopics", "delete_topics", "DeleteTopicsRequest"),
    21: ("DeleteRecords", "delete_records", "DeleteRecordsRequest"),
    22: ("InitProducerId", "init_producer_id", "InitProducerIdRequest"),
    23: ("OffsetForLeaderEpoch", "offset_for_leader_epoch", "OffsetForLeaderEpochRequest"),
    24: ("AddPartitionsToTxn", "add_partitions_to_txn", "AddPartitionsToTxnRequest"),
    25: ("AddOffsetsToTxn", "add_offsets_to_txn", "AddOffsetsToTxnRequest"),
    26: ("EndTxn", "end_txn", "EndTxnRequest"),
    27: ("WriteTxnMarkers", "write_txn_markers", "WriteTxnMarkersRequest"),
    28: ("TxnOffsetCommit", "txn_offset_commit", "TxnOffsetCommitRequest"),
    29: ("DescribeAcls", "describe_acls", "DescribeAclsRequest"),
    30: ("CreateAcls", "create_acls", "CreateAclsRequest"),
    31: ("DeleteAcls", "delete_acls", "DeleteAclsRequest"),
    32: ("DescribeConfigs", "describe_configs", "DescribeConfigsRequest"),
    33: ("AlterConfigs", "alter_configs", "AlterConfigsRequest"),
    35: ("DescribeLogDirs", "describe_log_dirs", "DescribeLogDirsRequest"),
    36: ("SaslAuthenticate", "sasl_authenticate", "SaslAuthenticateRequest"),
    37: ("CreatePartitions", "create_partitions", "CreatePartitionsRequest"),
    42: ("DeleteGroups", "delete_groups", "DeleteGroupsRequest"),
    43: ("ElectLeaders", "elect_leaders", "ElectLeadersRequest"),
    44: ("IncrementalAlterConfigs", "incremental_alter_configs", "IncrementalAlterConfigsRequest"),
    45: (
        "AlterPartitionReassignments",
        "alter_partition_reassignments",
        "AlterPartitionReassignmentsRequest",
    ),
    46: (
        "ListPartitionReassignments",
        "list_partition_reassignments",
        "ListPartitionReassignmentsRequest",
    ),
    47: ("OffsetDelete", "offset_delete", "OffsetDeleteRequest"),
    48: ("DescribeClientQuotas", "describe_client_quotas", "DescribeClientQuotasRequest"),
    49: ("AlterClientQuotas", "alter_client_quotas", "AlterClientQuotasRequest"),
    50: (
        "DescribeUserScramCredentials",
        "describe_user_scram_credentials",
        "DescribeUserScramCredentialsRequest",
    ),
    51: (
        "AlterUserScramCredentials",
        "alter_user_scram_credentials",
        "AlterUserScramCredentialsRequest",
    ),
    55: ("DescribeQuorum", "describe_quorum", "DescribeQuorumRequest"),
    57: ("UpdateFeatures", "update_features", "UpdateFeaturesRequest"),
    60: ("DescribeCluster", "describe_cluster", "DescribeClusterRequest"),
    61: ("DescribeProducers", "describe_producers", "DescribeProducersRequest"),
    64: ("UnregisterBroker", "unregister_broker", "UnregisterBrokerRequest"),
    65: ("DescribeTransactions", "describe_transactions", "DescribeTransactionsRequest"),
    66: ("ListTransactions", "list_transactions", "ListTransactionsRequest"),
    68: ("ConsumerGroupHeartbeat", "consumer_group_heartbeat", "ConsumerGroupHeartbeatRequest"),
    69: ("ConsumerGroupDescribe", "consumer_group_describe", "ConsumerGroupDescribeRequest"),
    74: ("ListConfigResources", "list_config_resources", "ListConfigResourcesRequest"),
    75: ("DescribeTopicPartitions", "describe_topic_partitions", "DescribeTopicPartitionsRequest"),
    # end generated apis
}
"""For each API key, the name, the file and the request class of the API."""

API_NAMES: Final[dict[int, str]] = {key: name for key, (name, _, _) in APIS.items()}
"""For each API key, Kafka's name of the API."""

_requests: dict[int, type[Request[Response]]] = {}


def api(key: int) -> type[Request[Response]]:
    """Return the request class of an API; its `RESPONSE` is the response class.

    Raises:
        ProtocolError: this library has no API with that key.
    """
    request = _requests.get(key)
    if request is None:
        if key not in APIS:
            raise ProtocolError(f"no API has key {key}")
        _, module, name = APIS[key]
        found = getattr(importlib.import_module(f"aiokq.wire.{module}"), name)
        request = _requests[key] = cast("type[Request[Response]]", found)
    return request
