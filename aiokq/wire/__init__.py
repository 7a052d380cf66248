"""Kafka's messages: typed classes and the functions that encode and decode them.

Owns bytes of messages and frames; no connections, no records inside record batches.

Every message is one class for all its versions (`MetadataRequest`, `MetadataResponse`, and nested
structs by Kafka's names), with keyword arguments, Kafka's defaults and snake_case field names::

    from aiokq import wire

    frame = wire.encode_request(
        wire.MetadataRequest(topics=None), version=12, correlation_id=1, client_id="me"
    )
    correlation_id, answer = wire.decode_response(wire.MetadataResponse, frame, 12)

Bytes that are not the message they should be raise `ProtocolError`, whatever they are. Classes are
imported on first use. To add an API see `tools/generate_messages.py`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from aiokq.wire.catalog import API_NAMES, MODULES, api
from aiokq.wire.codec import decode, decode_prefixed, encode, encode_bytes, encode_prefixed
from aiokq.wire.fields import ZERO_UUID, Buffer, Fragment, Records
from aiokq.wire.frames import (
    RequestHeader,
    decode_request,
    decode_request_header,
    decode_response,
    encode_request,
    encode_response,
    peek_correlation_id,
)
from aiokq.wire.primitives import FieldNotSupported
from aiokq.wire.struct import NO_TAGS, Message, Request, Response, Struct

if TYPE_CHECKING:
    # begin generated imports
    from aiokq.wire.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
    from aiokq.wire.add_partitions_to_txn import (
        AddPartitionsToTxnPartitionResult,
        AddPartitionsToTxnRequest,
        AddPartitionsToTxnResponse,
        AddPartitionsToTxnResult,
        AddPartitionsToTxnTopic,
        AddPartitionsToTxnTopicResult,
        AddPartitionsToTxnTransaction,
    )
    from aiokq.wire.alter_client_quotas import (
        AlterClientQuotasEntityData,
        AlterClientQuotasEntryData,
        AlterClientQuotasOpData,
        AlterClientQuotasRequest,
        AlterClientQuotasResponse,
        AlterClientQuotasResponseEntryData,
    )
    from aiokq.wire.alter_configs import (
        AlterConfigsAlterableConfig,
        AlterConfigsRequest,
        AlterConfigsResource,
        AlterConfigsResourceResponse,
        AlterConfigsResponse,
    )
    from aiokq.wire.alter_partition_reassignments import (
        AlterPartitionReassignmentsRequest,
        AlterPartitionReassignmentsResponse,
        ReassignablePartition,
        ReassignablePartitionResponse,
        ReassignableTopic,
        ReassignableTopicResponse,
    )
    from aiokq.wire.alter_user_scram_credentials import (
        AlterUserScramCredentialsRequest,
        AlterUserScramCredentialsResponse,
        AlterUserScramCredentialsResult,
        ScramCredentialDeletion,
        ScramCredentialUpsertion,
    )
    from aiokq.wire.api_versions import (
        ApiVersion,
        ApiVersionsRequest,
        ApiVersionsResponse,
        FinalizedFeatureKey,
        SupportedFeatureKey,
    )
    from aiokq.wire.cluster_metadata_records import (
        AbortTransactionRecord,
        BeginTransactionRecord,
        ConfigRecord,
        EndTransactionRecord,
        FeatureLevelRecord,
        PartitionChangeRecord,
        PartitionRecord,
        ProducerIdsRecord,
        RemoveTopicRecord,
        TopicRecord,
    )
    from aiokq.wire.consumer_group_describe import (
        ConsumerGroupDescribeAssignment,
        ConsumerGroupDescribedGroup,
        ConsumerGroupDescribeMember,
        ConsumerGroupDescribeRequest,
        ConsumerGroupDescribeResponse,
        ConsumerGroupDescribeTopicPartitions,
    )
    from aiokq.wire.consumer_group_heartbeat import (
        ConsumerGroupHeartbeatAssignment,
        ConsumerGroupHeartbeatRequest,
        ConsumerGroupHeartbeatResponse,
        ConsumerGroupHeartbeatTopicPartitions,
    )
    from aiokq.wire.consumer_group_records import (
        ClassicMemberMetadata,
        ClassicProtocol,
        ConsumerGroupCurrentMemberAssignmentKey,
        ConsumerGroupCurrentMemberAssignmentTopicPartitions,
        ConsumerGroupCurrentMemberAssignmentValue,
        ConsumerGroupMemberMetadataKey,
        ConsumerGroupMemberMetadataValue,
        ConsumerGroupMetadataKey,
        ConsumerGroupMetadataValue,
        ConsumerGroupPartitionMetadataKey,
        ConsumerGroupPartitionMetadataTopicMetadata,
        ConsumerGroupPartitionMetadataValue,
        ConsumerGroupRegularExpressionKey,
        ConsumerGroupRegularExpressionValue,
        ConsumerGroupTargetAssignmentMemberKey,
        ConsumerGroupTargetAssignmentMemberTopicPartition,
        ConsumerGroupTargetAssignmentMemberValue,
        ConsumerGroupTargetAssignmentMetadataKey,
        ConsumerGroupTargetAssignmentMetadataValue,
        PartitionMetadata,
    )
    from aiokq.wire.consumer_protocol import (
        ConsumerProtocolAssignment,
        ConsumerProtocolAssignmentTopicPartition,
        ConsumerProtocolSubscription,
        ConsumerProtocolSubscriptionTopicPartition,
    )
    from aiokq.wire.create_acls import (
        AclCreation,
        AclCreationResult,
        CreateAclsRequest,
        CreateAclsResponse,
    )
    from aiokq.wire.create_partitions import (
        CreatePartitionsAssignment,
        CreatePartitionsRequest,
        CreatePartitionsResponse,
        CreatePartitionsTopic,
        CreatePartitionsTopicResult,
    )
    from aiokq.wire.create_topics import (
        CreatableReplicaAssignment,
        CreatableTopic,
        CreatableTopicConfig,
        CreatableTopicConfigs,
        CreatableTopicResult,
        CreateTopicsRequest,
        CreateTopicsResponse,
    )
    from aiokq.wire.delete_acls import (
        DeleteAclsFilter,
        DeleteAclsFilterResult,
        DeleteAclsMatchingAcl,
        DeleteAclsRequest,
        DeleteAclsResponse,
    )
    from aiokq.wire.delete_groups import (
        DeletableGroupResult,
        DeleteGroupsRequest,
        DeleteGroupsResponse,
    )
    from aiokq.wire.delete_records import (
        DeleteRecordsPartition,
        DeleteRecordsPartitionResult,
        DeleteRecordsRequest,
        DeleteRecordsResponse,
        DeleteRecordsTopic,
        DeleteRecordsTopicResult,
    )
    from aiokq.wire.delete_topics import (
        DeletableTopicResult,
        DeleteTopicsRequest,
        DeleteTopicsResponse,
        DeleteTopicState,
    )
    from aiokq.wire.describe_acls import (
        AclDescription,
        DescribeAclsRequest,
        DescribeAclsResource,
        DescribeAclsResponse,
    )
    from aiokq.wire.describe_client_quotas import (
        ComponentData,
        DescribeClientQuotasEntityData,
        DescribeClientQuotasEntryData,
        DescribeClientQuotasRequest,
        DescribeClientQuotasResponse,
        DescribeClientQuotasValueData,
    )
    from aiokq.wire.describe_cluster import (
        DescribeClusterBroker,
        DescribeClusterRequest,
        DescribeClusterResponse,
    )
    from aiokq.wire.describe_configs import (
        DescribeConfigsRequest,
        DescribeConfigsResource,
        DescribeConfigsResourceResult,
        DescribeConfigsResponse,
        DescribeConfigsResult,
        DescribeConfigsSynonym,
    )
    from aiokq.wire.describe_groups import (
        DescribedGroup,
        DescribedGroupMember,
        DescribeGroupsRequest,
        DescribeGroupsResponse,
    )
    from aiokq.wire.describe_log_dirs import (
        DescribableLogDirTopic,
        DescribeLogDirsPartition,
        DescribeLogDirsRequest,
        DescribeLogDirsResponse,
        DescribeLogDirsResult,
        DescribeLogDirsTopic,
    )
    from aiokq.wire.describe_producers import (
        DescribeProducersPartitionResponse,
        DescribeProducersRequest,
        DescribeProducersResponse,
        DescribeProducersTopicRequest,
        DescribeProducersTopicResponse,
        ProducerState,
    )
    from aiokq.wire.describe_quorum import (
        DescribeQuorumListener,
        DescribeQuorumNode,
        DescribeQuorumPartitionData,
        DescribeQuorumReplicaState,
        DescribeQuorumRequest,
        DescribeQuorumResponse,
        DescribeQuorumResponsePartitionData,
        DescribeQuorumResponseTopicData,
        DescribeQuorumTopicData,
    )
    from aiokq.wire.describe_topic_partitions import (
        Cursor,
        DescribeTopicPartitionsRequest,
        DescribeTopicPartitionsResponse,
        DescribeTopicPartitionsResponsePartition,
        DescribeTopicPartitionsResponseTopic,
        DescribeTopicPartitionsTopicRequest,
    )
    from aiokq.wire.describe_transactions import (
        DescribeTransactionsRequest,
        DescribeTransactionsResponse,
        DescribeTransactionsTopicData,
        DescribeTransactionsTransactionState,
    )
    from aiokq.wire.describe_user_scram_credentials import (
        CredentialInfo,
        DescribeUserScramCredentialsRequest,
        DescribeUserScramCredentialsResponse,
        DescribeUserScramCredentialsResult,
        UserName,
    )
    from aiokq.wire.elect_leaders import (
        ElectLeadersPartitionResult,
        ElectLeadersRequest,
        ElectLeadersResponse,
        ElectLeadersTopicPartitions,
        ReplicaElectionResult,
    )
    from aiokq.wire.end_txn import EndTxnRequest, EndTxnResponse
    from aiokq.wire.fetch import (
        AbortedTransaction,
        FetchableTopicResponse,
        FetchEpochEndOffset,
        FetchLeaderIdAndEpoch,
        FetchNodeEndpoint,
        FetchPartition,
        FetchPartitionData,
        FetchReplicaState,
        FetchRequest,
        FetchResponse,
        FetchTopic,
        ForgottenTopic,
        SnapshotId,
    )
    from aiokq.wire.find_coordinator import (
        Coordinator,
        FindCoordinatorRequest,
        FindCoordinatorResponse,
    )
    from aiokq.wire.group_records import (
        GroupMetadataKey,
        GroupMetadataValue,
        LegacyOffsetCommitKey,
        LegacyOffsetCommitValue,
        MemberMetadata,
        OffsetCommitKey,
        OffsetCommitValue,
    )
    from aiokq.wire.heartbeat import HeartbeatRequest, HeartbeatResponse
    from aiokq.wire.incremental_alter_configs import (
        IncrementalAlterConfigsAlterableConfig,
        IncrementalAlterConfigsRequest,
        IncrementalAlterConfigsResource,
        IncrementalAlterConfigsResourceResponse,
        IncrementalAlterConfigsResponse,
    )
    from aiokq.wire.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
    from aiokq.wire.join_group import (
        JoinGroupRequest,
        JoinGroupRequestProtocol,
        JoinGroupResponse,
        JoinGroupResponseMember,
    )
    from aiokq.wire.leave_group import (
        LeaveGroupRequest,
        LeaveGroupResponse,
        MemberIdentity,
        MemberResponse,
    )
    from aiokq.wire.list_config_resources import (
        ConfigResource,
        ListConfigResourcesRequest,
        ListConfigResourcesResponse,
    )
    from aiokq.wire.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
    from aiokq.wire.list_offsets import (
        ListOffsetsPartition,
        ListOffsetsPartitionResponse,
        ListOffsetsRequest,
        ListOffsetsResponse,
        ListOffsetsTopic,
        ListOffsetsTopicResponse,
    )
    from aiokq.wire.list_partition_reassignments import (
        ListPartitionReassignmentsRequest,
        ListPartitionReassignmentsResponse,
        ListPartitionReassignmentsTopics,
        OngoingPartitionReassignment,
        OngoingTopicReassignment,
    )
    from aiokq.wire.list_transactions import (
        ListTransactionsRequest,
        ListTransactionsResponse,
        ListTransactionsTransactionState,
    )
    from aiokq.wire.metadata import (
        MetadataRequest,
        MetadataRequestTopic,
        MetadataResponse,
        MetadataResponseBroker,
        MetadataResponsePartition,
        MetadataResponseTopic,
    )
    from aiokq.wire.offset_commit import (
        OffsetCommitRequest,
        OffsetCommitRequestPartition,
        OffsetCommitRequestTopic,
        OffsetCommitResponse,
        OffsetCommitResponsePartition,
        OffsetCommitResponseTopic,
    )
    from aiokq.wire.offset_delete import (
        OffsetDeleteRequest,
        OffsetDeleteRequestPartition,
        OffsetDeleteRequestTopic,
        OffsetDeleteResponse,
        OffsetDeleteResponsePartition,
        OffsetDeleteResponseTopic,
    )
    from aiokq.wire.offset_fetch import (
        OffsetFetchRequest,
        OffsetFetchRequestGroup,
        OffsetFetchRequestTopic,
        OffsetFetchRequestTopics,
        OffsetFetchResponse,
        OffsetFetchResponseGroup,
        OffsetFetchResponsePartition,
        OffsetFetchResponsePartitions,
        OffsetFetchResponseTopic,
        OffsetFetchResponseTopics,
    )
    from aiokq.wire.offset_for_leader_epoch import (
        OffsetForLeaderEpochEndOffset,
        OffsetForLeaderEpochRequest,
        OffsetForLeaderEpochResponse,
        OffsetForLeaderPartition,
        OffsetForLeaderTopic,
        OffsetForLeaderTopicResult,
    )
    from aiokq.wire.produce import (
        BatchIndexAndErrorMessage,
        PartitionProduceData,
        PartitionProduceResponse,
        ProduceLeaderIdAndEpoch,
        ProduceNodeEndpoint,
        ProduceRequest,
        ProduceResponse,
        TopicProduceData,
        TopicProduceResponse,
    )
    from aiokq.wire.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
    from aiokq.wire.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
    from aiokq.wire.sync_group import (
        SyncGroupRequest,
        SyncGroupRequestAssignment,
        SyncGroupResponse,
    )
    from aiokq.wire.transaction_records import (
        EndTxnMarker,
        PartitionsSchema,
        TransactionLogKey,
        TransactionLogValue,
    )
    from aiokq.wire.txn_offset_commit import (
        TxnOffsetCommitRequest,
        TxnOffsetCommitRequestPartition,
        TxnOffsetCommitRequestTopic,
        TxnOffsetCommitResponse,
        TxnOffsetCommitResponsePartition,
        TxnOffsetCommitResponseTopic,
    )
    from aiokq.wire.update_features import (
        FeatureUpdateKey,
        UpdatableFeatureResult,
        UpdateFeaturesRequest,
        UpdateFeaturesResponse,
    )
    from aiokq.wire.write_txn_markers import (
        WritableTxnMarker,
        WritableTxnMarkerPartitionResult,
        WritableTxnMarkerResult,
        WritableTxnMarkerTopic,
        WritableTxnMarkerTopicResult,
        WriteTxnMarkersRequest,
        WriteTxnMarkersResponse,
    )
    # end generated imports

__all__ = [
    # functions
    "api",
    "decode",
    "decode_prefixed",
    "decode_request",
    "decode_request_header",
    "decode_response",
    "encode",
    "encode_bytes",
    "encode_prefixed",
    "encode_request",
    "encode_response",
    "peek_correlation_id",
    # types and values that they share
    "API_NAMES",
    "NO_TAGS",
    "ZERO_UUID",
    "Buffer",
    "FieldNotSupported",
    "Fragment",
    "Message",
    "Records",
    "Request",
    "RequestHeader",
    "Response",
    "Struct",
    # messages and their structs
    # begin generated names
    "AbortTransactionRecord",
    "AbortedTransaction",
    "AclCreation",
    "AclCreationResult",
    "AclDescription",
    "AddOffsetsToTxnRequest",
    "AddOffsetsToTxnResponse",
    "AddPartitionsToTxnPartitionResult",
    "AddPartitionsToTxnRequest",
    "AddPartitionsToTxnResponse",
    "AddPartitionsToTxnResult",
    "AddPartitionsToTxnTopic",
    "AddPartitionsToTxnTopicResult",
    "AddPartitionsToTxnTransaction",
    "AlterClientQuotasEntityData",
    "AlterClientQuotasEntryData",
    "AlterClientQuotasOpData",
    "AlterClientQuotasRequest",
    "AlterClientQuotasResponse",
    "AlterClientQuotasResponseEntryData",
    "AlterConfigsAlterableConfig",
    "AlterConfigsRequest",
    "AlterConfigsResource",
    "AlterConfigsResourceResponse",
    "AlterConfigsResponse",
    "AlterPartitionReassignmentsRequest",
    "AlterPartitionReassignmentsResponse",
    "AlterUserScramCredentialsRequest",
    "AlterUserScramCredentialsResponse",
    "AlterUserScramCredentialsResult",
    "ApiVersion",
    "ApiVersionsRequest",
    "ApiVersionsResponse",
    "BatchIndexAndErrorMessage",
    "BeginTransactionRecord",
    "ClassicMemberMetadata",
    "ClassicProtocol",
    "ComponentData",
    "ConfigRecord",
    "ConfigResource",
    "ConsumerGroupCurrentMemberAssignmentKey",
    "ConsumerGroupCurrentMemberAssignmentTopicPartitions",
    "ConsumerGroupCurrentMemberAssignmentValue",
    "ConsumerGroupDescribeAssignment",
    "ConsumerGroupDescribeMember",
    "ConsumerGroupDescribeRequest",
    "ConsumerGroupDescribeResponse",
    "ConsumerGroupDescribeTopicPartitions",
    "ConsumerGroupDescribedGroup",
    "ConsumerGroupHeartbeatAssignment",
    "ConsumerGroupHeartbeatRequest",
    "ConsumerGroupHeartbeatResponse",
    "ConsumerGroupHeartbeatTopicPartitions",
    "ConsumerGroupMemberMetadataKey",
    "ConsumerGroupMemberMetadataValue",
    "ConsumerGroupMetadataKey",
    "ConsumerGroupMetadataValue",
    "ConsumerGroupPartitionMetadataKey",
    "ConsumerGroupPartitionMetadataTopicMetadata",
    "ConsumerGroupPartitionMetadataValue",
    "ConsumerGroupRegularExpressionKey",
    "ConsumerGroupRegularExpressionValue",
    "ConsumerGroupTargetAssignmentMemberKey",
    "ConsumerGroupTargetAssignmentMemberTopicPartition",
    "ConsumerGroupTargetAssignmentMemberValue",
    "ConsumerGroupTargetAssignmentMetadataKey",
    "ConsumerGroupTargetAssignmentMetadataValue",
    "ConsumerProtocolAssignment",
    "ConsumerProtocolAssignmentTopicPartition",
    "ConsumerProtocolSubscription",
    "ConsumerProtocolSubscriptionTopicPartition",
    "Coordinator",
    "CreatableReplicaAssignment",
    "CreatableTopic",
    "CreatableTopicConfig",
    "CreatableTopicConfigs",
    "CreatableTopicResult",
    "CreateAclsRequest",
    "CreateAclsResponse",
    "CreatePartitionsAssignment",
    "CreatePartitionsRequest",
    "CreatePartitionsResponse",
    "CreatePartitionsTopic",
    "CreatePartitionsTopicResult",
    "CreateTopicsRequest",
    "CreateTopicsResponse",
    "CredentialInfo",
    "Cursor",
    "DeletableGroupResult",
    "DeletableTopicResult",
    "DeleteAclsFilter",
    "DeleteAclsFilterResult",
    "DeleteAclsMatchingAcl",
    "DeleteAclsRequest",
    "DeleteAclsResponse",
    "DeleteGroupsRequest",
    "DeleteGroupsResponse",
    "DeleteRecordsPartition",
    "DeleteRecordsPartitionResult",
    "DeleteRecordsRequest",
    "DeleteRecordsResponse",
    "DeleteRecordsTopic",
    "DeleteRecordsTopicResult",
    "DeleteTopicState",
    "DeleteTopicsRequest",
    "DeleteTopicsResponse",
    "DescribableLogDirTopic",
    "DescribeAclsRequest",
    "DescribeAclsResource",
    "DescribeAclsResponse",
    "DescribeClientQuotasEntityData",
    "DescribeClientQuotasEntryData",
    "DescribeClientQuotasRequest",
    "DescribeClientQuotasResponse",
    "DescribeClientQuotasValueData",
    "DescribeClusterBroker",
    "DescribeClusterRequest",
    "DescribeClusterResponse",
    "DescribeConfigsRequest",
    "DescribeConfigsResource",
    "DescribeConfigsResourceResult",
    "DescribeConfigsResponse",
    "DescribeConfigsResult",
    "DescribeConfigsSynonym",
    "DescribeGroupsRequest",
    "DescribeGroupsResponse",
    "DescribeLogDirsPartition",
    "DescribeLogDirsRequest",
    "DescribeLogDirsResponse",
    "DescribeLogDirsResult",
    "DescribeLogDirsTopic",
    "DescribeProducersPartitionResponse",
    "DescribeProducersRequest",
    "DescribeProducersResponse",
    "DescribeProducersTopicRequest",
    "DescribeProducersTopicResponse",
    "DescribeQuorumListener",
    "DescribeQuorumNode",
    "DescribeQuorumPartitionData",
    "DescribeQuorumReplicaState",
    "DescribeQuorumRequest",
    "DescribeQuorumResponse",
    "DescribeQuorumResponsePartitionData",
    "DescribeQuorumResponseTopicData",
    "DescribeQuorumTopicData",
    "DescribeTopicPartitionsRequest",
    "DescribeTopicPartitionsResponse",
    "DescribeTopicPartitionsResponsePartition",
    "DescribeTopicPartitionsResponseTopic",
    "DescribeTopicPartitionsTopicRequest",
    "DescribeTransactionsRequest",
    "DescribeTransactionsResponse",
    "DescribeTransactionsTopicData",
    "DescribeTransactionsTransactionState",
    "DescribeUserScramCredentialsRequest",
    "DescribeUserScramCredentialsResponse",
    "DescribeUserScramCredentialsResult",
    "DescribedGroup",
    "DescribedGroupMember",
    "ElectLeadersPartitionResult",
    "ElectLeadersRequest",
    "ElectLeadersResponse",
    "ElectLeadersTopicPartitions",
    "EndTransactionRecord",
    "EndTxnMarker",
    "EndTxnRequest",
    "EndTxnResponse",
    "FeatureLevelRecord",
    "FeatureUpdateKey",
    "FetchEpochEndOffset",
    "FetchLeaderIdAndEpoch",
    "FetchNodeEndpoint",
    "FetchPartition",
    "FetchPartitionData",
    "FetchReplicaState",
    "FetchRequest",
    "FetchResponse",
    "FetchTopic",
    "FetchableTopicResponse",
    "FinalizedFeatureKey",
    "FindCoordinatorRequest",
    "FindCoordinatorResponse",
    "ForgottenTopic",
    "GroupMetadataKey",
    "GroupMetadataValue",
    "HeartbeatRequest",
    "HeartbeatResponse",
    "IncrementalAlterConfigsAlterableConfig",
    "IncrementalAlterConfigsRequest",
    "IncrementalAlterConfigsResource",
    "IncrementalAlterConfigsResourceResponse",
    "IncrementalAlterConfigsResponse",
    "InitProducerIdRequest",
    "InitProducerIdResponse",
    "JoinGroupRequest",
    "JoinGroupRequestProtocol",
    "JoinGroupResponse",
    "JoinGroupResponseMember",
    "LeaveGroupRequest",
    "LeaveGroupResponse",
    "LegacyOffsetCommitKey",
    "LegacyOffsetCommitValue",
    "ListConfigResourcesRequest",
    "ListConfigResourcesResponse",
    "ListGroupsRequest",
    "ListGroupsResponse",
    "ListOffsetsPartition",
    "ListOffsetsPartitionResponse",
    "ListOffsetsRequest",
    "ListOffsetsResponse",
    "ListOffsetsTopic",
    "ListOffsetsTopicResponse",
    "ListPartitionReassignmentsRequest",
    "ListPartitionReassignmentsResponse",
    "ListPartitionReassignmentsTopics",
    "ListTransactionsRequest",
    "ListTransactionsResponse",
    "ListTransactionsTransactionState",
    "ListedGroup",
    "MemberIdentity",
    "MemberMetadata",
    "MemberResponse",
    "MetadataRequest",
    "MetadataRequestTopic",
    "MetadataResponse",
    "MetadataResponseBroker",
    "MetadataResponsePartition",
    "MetadataResponseTopic",
    "OffsetCommitKey",
    "OffsetCommitRequest",
    "OffsetCommitRequestPartition",
    "OffsetCommitRequestTopic",
    "OffsetCommitResponse",
    "OffsetCommitResponsePartition",
    "OffsetCommitResponseTopic",
    "OffsetCommitValue",
    "OffsetDeleteRequest",
    "OffsetDeleteRequestPartition",
    "OffsetDeleteRequestTopic",
    "OffsetDeleteResponse",
    "OffsetDeleteResponsePartition",
    "OffsetDeleteResponseTopic",
    "OffsetFetchRequest",
    "OffsetFetchRequestGroup",
    "OffsetFetchRequestTopic",
    "OffsetFetchRequestTopics",
    "OffsetFetchResponse",
    "OffsetFetchResponseGroup",
    "OffsetFetchResponsePartition",
    "OffsetFetchResponsePartitions",
    "OffsetFetchResponseTopic",
    "OffsetFetchResponseTopics",
    "OffsetForLeaderEpochEndOffset",
    "OffsetForLeaderEpochRequest",
    "OffsetForLeaderEpochResponse",
    "OffsetForLeaderPartition",
    "OffsetForLeaderTopic",
    "OffsetForLeaderTopicResult",
    "OngoingPartitionReassignment",
    "OngoingTopicReassignment",
    "PartitionChangeRecord",
    "PartitionMetadata",
    "PartitionProduceData",
    "PartitionProduceResponse",
    "PartitionRecord",
    "PartitionsSchema",
    "ProduceLeaderIdAndEpoch",
    "ProduceNodeEndpoint",
    "ProduceRequest",
    "ProduceResponse",
    "ProducerIdsRecord",
    "ProducerState",
    "ReassignablePartition",
    "ReassignablePartitionResponse",
    "ReassignableTopic",
    "ReassignableTopicResponse",
    "RemoveTopicRecord",
    "ReplicaElectionResult",
    "SaslAuthenticateRequest",
    "SaslAuthenticateResponse",
    "SaslHandshakeRequest",
    "SaslHandshakeResponse",
    "ScramCredentialDeletion",
    "ScramCredentialUpsertion",
    "SnapshotId",
    "SupportedFeatureKey",
    "SyncGroupRequest",
    "SyncGroupRequestAssignment",
    "SyncGroupResponse",
    "TopicProduceData",
    "TopicProduceResponse",
    "TopicRecord",
    "TransactionLogKey",
    "TransactionLogValue",
    "TxnOffsetCommitRequest",
    "TxnOffsetCommitRequestPartition",
    "TxnOffsetCommitRequestTopic",
    "TxnOffsetCommitResponse",
    "TxnOffsetCommitResponsePartition",
    "TxnOffsetCommitResponseTopic",
    "UpdatableFeatureResult",
    "UpdateFeaturesRequest",
    "UpdateFeaturesResponse",
    "UserName",
    "WritableTxnMarker",
    "WritableTxnMarkerPartitionResult",
    "WritableTxnMarkerResult",
    "WritableTxnMarkerTopic",
    "WritableTxnMarkerTopicResult",
    "WriteTxnMarkersRequest",
    "WriteTxnMarkersResponse",
    # end generated names
]

_MODULE_OF = {name: module for module, names in MODULES.items() for name in names.split()}


def __getattr__(name: str) -> object:
    """Import the file of a message class on first use (PEP 562)."""
    module = _MODULE_OF.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(importlib.import_module(f"aiokq.wire.{module}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """List what can be imported."""
    return sorted(__all__)
