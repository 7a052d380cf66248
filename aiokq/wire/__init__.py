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
    from aiokq.wire.add_offsets_to_txn import AddOffsetsToTxnRequest as AddOffsetsToTxnRequest
    from aiokq.wire.add_offsets_to_txn import AddOffsetsToTxnResponse as AddOffsetsToTxnResponse
    from aiokq.wire.add_partitions_to_txn import (
        AddPartitionsToTxnPartitionResult as AddPartitionsToTxnPartitionResult,
    )
    from aiokq.wire.add_partitions_to_txn import (
        AddPartitionsToTxnRequest as AddPartitionsToTxnRequest,
    )
    from aiokq.wire.add_partitions_to_txn import (
        AddPartitionsToTxnResponse as AddPartitionsToTxnResponse,
    )
    from aiokq.wire.add_partitions_to_txn import (
        AddPartitionsToTxnResult as AddPartitionsToTxnResult,
    )
    from aiokq.wire.add_partitions_to_txn import AddPartitionsToTxnTopic as AddPartitionsToTxnTopic
    from aiokq.wire.add_partitions_to_txn import (
        AddPartitionsToTxnTopicResult as AddPartitionsToTxnTopicResult,
    )
    from aiokq.wire.add_partitions_to_txn import (
        AddPartitionsToTxnTransaction as AddPartitionsToTxnTransaction,
    )
    from aiokq.wire.alter_client_quotas import (
        AlterClientQuotasEntityData as AlterClientQuotasEntityData,
    )
    from aiokq.wire.alter_client_quotas import (
        AlterClientQuotasEntryData as AlterClientQuotasEntryData,
    )
    from aiokq.wire.alter_client_quotas import AlterClientQuotasOpData as AlterClientQuotasOpData
    from aiokq.wire.alter_client_quotas import AlterClientQuotasRequest as AlterClientQuotasRequest
    from aiokq.wire.alter_client_quotas import (
        AlterClientQuotasResponse as AlterClientQuotasResponse,
    )
    from aiokq.wire.alter_client_quotas import (
        AlterClientQuotasResponseEntryData as AlterClientQuotasResponseEntryData,
    )
    from aiokq.wire.alter_configs import AlterConfigsAlterableConfig as AlterConfigsAlterableConfig
    from aiokq.wire.alter_configs import AlterConfigsRequest as AlterConfigsRequest
    from aiokq.wire.alter_configs import AlterConfigsResource as AlterConfigsResource
    from aiokq.wire.alter_configs import (
        AlterConfigsResourceResponse as AlterConfigsResourceResponse,
    )
    from aiokq.wire.alter_configs import AlterConfigsResponse as AlterConfigsResponse
    from aiokq.wire.alter_partition_reassignments import (
        AlterPartitionReassignmentsRequest as AlterPartitionReassignmentsRequest,
    )
    from aiokq.wire.alter_partition_reassignments import (
        AlterPartitionReassignmentsResponse as AlterPartitionReassignmentsResponse,
    )
    from aiokq.wire.alter_partition_reassignments import (
        ReassignablePartition as ReassignablePartition,
    )
    from aiokq.wire.alter_partition_reassignments import (
        ReassignablePartitionResponse as ReassignablePartitionResponse,
    )
    from aiokq.wire.alter_partition_reassignments import ReassignableTopic as ReassignableTopic
    from aiokq.wire.alter_partition_reassignments import (
        ReassignableTopicResponse as ReassignableTopicResponse,
    )
    from aiokq.wire.alter_user_scram_credentials import (
        AlterUserScramCredentialsRequest as AlterUserScramCredentialsRequest,
    )
    from aiokq.wire.alter_user_scram_credentials import (
        AlterUserScramCredentialsResponse as AlterUserScramCredentialsResponse,
    )
    from aiokq.wire.alter_user_scram_credentials import (
        AlterUserScramCredentialsResult as AlterUserScramCredentialsResult,
    )
    from aiokq.wire.alter_user_scram_credentials import (
        ScramCredentialDeletion as ScramCredentialDeletion,
    )
    from aiokq.wire.alter_user_scram_credentials import (
        ScramCredentialUpsertion as ScramCredentialUpsertion,
    )
    from aiokq.wire.api_versions import ApiVersion as ApiVersion
    from aiokq.wire.api_versions import ApiVersionsRequest as ApiVersionsRequest
    from aiokq.wire.api_versions import ApiVersionsResponse as ApiVersionsResponse
    from aiokq.wire.api_versions import FinalizedFeatureKey as FinalizedFeatureKey
    from aiokq.wire.api_versions import SupportedFeatureKey as SupportedFeatureKey
    from aiokq.wire.consumer_group_describe import (
        ConsumerGroupDescribeAssignment as ConsumerGroupDescribeAssignment,
    )
    from aiokq.wire.consumer_group_describe import (
        ConsumerGroupDescribedGroup as ConsumerGroupDescribedGroup,
    )
    from aiokq.wire.consumer_group_describe import (
        ConsumerGroupDescribeMember as ConsumerGroupDescribeMember,
    )
    from aiokq.wire.consumer_group_describe import (
        ConsumerGroupDescribeRequest as ConsumerGroupDescribeRequest,
    )
    from aiokq.wire.consumer_group_describe import (
        ConsumerGroupDescribeResponse as ConsumerGroupDescribeResponse,
    )
    from aiokq.wire.consumer_group_describe import (
        ConsumerGroupDescribeTopicPartitions as ConsumerGroupDescribeTopicPartitions,
    )
    from aiokq.wire.consumer_group_heartbeat import (
        ConsumerGroupHeartbeatAssignment as ConsumerGroupHeartbeatAssignment,
    )
    from aiokq.wire.consumer_group_heartbeat import (
        ConsumerGroupHeartbeatRequest as ConsumerGroupHeartbeatRequest,
    )
    from aiokq.wire.consumer_group_heartbeat import (
        ConsumerGroupHeartbeatResponse as ConsumerGroupHeartbeatResponse,
    )
    from aiokq.wire.consumer_group_heartbeat import (
        ConsumerGroupHeartbeatTopicPartitions as ConsumerGroupHeartbeatTopicPartitions,
    )
    from aiokq.wire.consumer_group_records import ClassicMemberMetadata as ClassicMemberMetadata
    from aiokq.wire.consumer_group_records import ClassicProtocol as ClassicProtocol
    from aiokq.wire.consumer_group_records import (
        ConsumerGroupCurrentMemberAssignmentKey as ConsumerGroupCurrentMemberAssignmentKey,
    )
    from aiokq.wire.consumer_group_records import (
        ConsumerGroupCurrentMemberAssignmentTopicPartitions as ConsumerGroupCurrentMemberAssignmentTopicPartitions,
    )
    from aiokq.wire.consumer_group_records import (
        ConsumerGroupCurrentMemberAssignmentValue as ConsumerGroupCurrentMemberAssignmentValue,
    )
    from aiokq.wire.consumer_group_records import (
        ConsumerGroupMemberMetadataKey as ConsumerGroupMemberMetadataKey,
    )
    from aiokq.wire.consumer_group_records import (
        ConsumerGroupMemberMetadataValue as ConsumerGroupMemberMetadataValue,
    )
    from aiokq.wire.consumer_group_records import (
        ConsumerGroupMetadataKey as ConsumerGroupMetadataKey,
    )
    from aiokq.wire.consumer_group_records import (
        ConsumerGroupMetadataValue as ConsumerGroupMetadataValue,
    )
    from aiokq.wire.consumer_group_records import (
        ConsumerGroupPartitionMetadataKey as ConsumerGroupPartitionMetadataKey,
    )
    from aiokq.wire.consumer_group_records import (
        ConsumerGroupPartitionMetadataTopicMetadata as ConsumerGroupPartitionMetadataTopicMetadata,
    )
    from aiokq.wire.consumer_group_records import (
        ConsumerGroupPartitionMetadataValue as ConsumerGroupPartitionMetadataValue,
    )
    from aiokq.wire.consumer_group_records import (
        ConsumerGroupRegularExpressionKey as ConsumerGroupRegularExpressionKey,
    )
    from aiokq.wire.consumer_group_records import (
        ConsumerGroupRegularExpressionValue as ConsumerGroupRegularExpressionValue,
    )
    from aiokq.wire.consumer_group_records import (
        ConsumerGroupTargetAssignmentMemberKey as ConsumerGroupTargetAssignmentMemberKey,
    )
    from aiokq.wire.consumer_group_records import (
        ConsumerGroupTargetAssignmentMemberTopicPartition as ConsumerGroupTargetAssignmentMemberTopicPartition,
    )
    from aiokq.wire.consumer_group_records import (
        ConsumerGroupTargetAssignmentMemberValue as ConsumerGroupTargetAssignmentMemberValue,
    )
    from aiokq.wire.consumer_group_records import (
        ConsumerGroupTargetAssignmentMetadataKey as ConsumerGroupTargetAssignmentMetadataKey,
    )
    from aiokq.wire.consumer_group_records import (
        ConsumerGroupTargetAssignmentMetadataValue as ConsumerGroupTargetAssignmentMetadataValue,
    )
    from aiokq.wire.consumer_group_records import PartitionMetadata as PartitionMetadata
    from aiokq.wire.consumer_protocol import (
        ConsumerProtocolAssignment as ConsumerProtocolAssignment,
    )
    from aiokq.wire.consumer_protocol import (
        ConsumerProtocolAssignmentTopicPartition as ConsumerProtocolAssignmentTopicPartition,
    )
    from aiokq.wire.consumer_protocol import (
        ConsumerProtocolSubscription as ConsumerProtocolSubscription,
    )
    from aiokq.wire.consumer_protocol import (
        ConsumerProtocolSubscriptionTopicPartition as ConsumerProtocolSubscriptionTopicPartition,
    )
    from aiokq.wire.create_acls import AclCreation as AclCreation
    from aiokq.wire.create_acls import AclCreationResult as AclCreationResult
    from aiokq.wire.create_acls import CreateAclsRequest as CreateAclsRequest
    from aiokq.wire.create_acls import CreateAclsResponse as CreateAclsResponse
    from aiokq.wire.create_partitions import (
        CreatePartitionsAssignment as CreatePartitionsAssignment,
    )
    from aiokq.wire.create_partitions import CreatePartitionsRequest as CreatePartitionsRequest
    from aiokq.wire.create_partitions import CreatePartitionsResponse as CreatePartitionsResponse
    from aiokq.wire.create_partitions import CreatePartitionsTopic as CreatePartitionsTopic
    from aiokq.wire.create_partitions import (
        CreatePartitionsTopicResult as CreatePartitionsTopicResult,
    )
    from aiokq.wire.create_topics import CreatableReplicaAssignment as CreatableReplicaAssignment
    from aiokq.wire.create_topics import CreatableTopic as CreatableTopic
    from aiokq.wire.create_topics import CreatableTopicConfig as CreatableTopicConfig
    from aiokq.wire.create_topics import CreatableTopicConfigs as CreatableTopicConfigs
    from aiokq.wire.create_topics import CreatableTopicResult as CreatableTopicResult
    from aiokq.wire.create_topics import CreateTopicsRequest as CreateTopicsRequest
    from aiokq.wire.create_topics import CreateTopicsResponse as CreateTopicsResponse
    from aiokq.wire.delete_acls import DeleteAclsFilter as DeleteAclsFilter
    from aiokq.wire.delete_acls import DeleteAclsFilterResult as DeleteAclsFilterResult
    from aiokq.wire.delete_acls import DeleteAclsMatchingAcl as DeleteAclsMatchingAcl
    from aiokq.wire.delete_acls import DeleteAclsRequest as DeleteAclsRequest
    from aiokq.wire.delete_acls import DeleteAclsResponse as DeleteAclsResponse
    from aiokq.wire.delete_groups import DeletableGroupResult as DeletableGroupResult
    from aiokq.wire.delete_groups import DeleteGroupsRequest as DeleteGroupsRequest
    from aiokq.wire.delete_groups import DeleteGroupsResponse as DeleteGroupsResponse
    from aiokq.wire.delete_records import DeleteRecordsPartition as DeleteRecordsPartition
    from aiokq.wire.delete_records import (
        DeleteRecordsPartitionResult as DeleteRecordsPartitionResult,
    )
    from aiokq.wire.delete_records import DeleteRecordsRequest as DeleteRecordsRequest
    from aiokq.wire.delete_records import DeleteRecordsResponse as DeleteRecordsResponse
    from aiokq.wire.delete_records import DeleteRecordsTopic as DeleteRecordsTopic
    from aiokq.wire.delete_records import DeleteRecordsTopicResult as DeleteRecordsTopicResult
    from aiokq.wire.delete_topics import DeletableTopicResult as DeletableTopicResult
    from aiokq.wire.delete_topics import DeleteTopicsRequest as DeleteTopicsRequest
    from aiokq.wire.delete_topics import DeleteTopicsResponse as DeleteTopicsResponse
    from aiokq.wire.delete_topics import DeleteTopicState as DeleteTopicState
    from aiokq.wire.describe_acls import AclDescription as AclDescription
    from aiokq.wire.describe_acls import DescribeAclsRequest as DescribeAclsRequest
    from aiokq.wire.describe_acls import DescribeAclsResource as DescribeAclsResource
    from aiokq.wire.describe_acls import DescribeAclsResponse as DescribeAclsResponse
    from aiokq.wire.describe_client_quotas import ComponentData as ComponentData
    from aiokq.wire.describe_client_quotas import (
        DescribeClientQuotasEntityData as DescribeClientQuotasEntityData,
    )
    from aiokq.wire.describe_client_quotas import (
        DescribeClientQuotasEntryData as DescribeClientQuotasEntryData,
    )
    from aiokq.wire.describe_client_quotas import (
        DescribeClientQuotasRequest as DescribeClientQuotasRequest,
    )
    from aiokq.wire.describe_client_quotas import (
        DescribeClientQuotasResponse as DescribeClientQuotasResponse,
    )
    from aiokq.wire.describe_client_quotas import (
        DescribeClientQuotasValueData as DescribeClientQuotasValueData,
    )
    from aiokq.wire.describe_cluster import DescribeClusterBroker as DescribeClusterBroker
    from aiokq.wire.describe_cluster import DescribeClusterRequest as DescribeClusterRequest
    from aiokq.wire.describe_cluster import DescribeClusterResponse as DescribeClusterResponse
    from aiokq.wire.describe_configs import DescribeConfigsRequest as DescribeConfigsRequest
    from aiokq.wire.describe_configs import DescribeConfigsResource as DescribeConfigsResource
    from aiokq.wire.describe_configs import (
        DescribeConfigsResourceResult as DescribeConfigsResourceResult,
    )
    from aiokq.wire.describe_configs import DescribeConfigsResponse as DescribeConfigsResponse
    from aiokq.wire.describe_configs import DescribeConfigsResult as DescribeConfigsResult
    from aiokq.wire.describe_configs import DescribeConfigsSynonym as DescribeConfigsSynonym
    from aiokq.wire.describe_groups import DescribedGroup as DescribedGroup
    from aiokq.wire.describe_groups import DescribedGroupMember as DescribedGroupMember
    from aiokq.wire.describe_groups import DescribeGroupsRequest as DescribeGroupsRequest
    from aiokq.wire.describe_groups import DescribeGroupsResponse as DescribeGroupsResponse
    from aiokq.wire.describe_log_dirs import DescribableLogDirTopic as DescribableLogDirTopic
    from aiokq.wire.describe_log_dirs import DescribeLogDirsPartition as DescribeLogDirsPartition
    from aiokq.wire.describe_log_dirs import DescribeLogDirsRequest as DescribeLogDirsRequest
    from aiokq.wire.describe_log_dirs import DescribeLogDirsResponse as DescribeLogDirsResponse
    from aiokq.wire.describe_log_dirs import DescribeLogDirsResult as DescribeLogDirsResult
    from aiokq.wire.describe_log_dirs import DescribeLogDirsTopic as DescribeLogDirsTopic
    from aiokq.wire.describe_producers import (
        DescribeProducersPartitionResponse as DescribeProducersPartitionResponse,
    )
    from aiokq.wire.describe_producers import DescribeProducersRequest as DescribeProducersRequest
    from aiokq.wire.describe_producers import DescribeProducersResponse as DescribeProducersResponse
    from aiokq.wire.describe_producers import (
        DescribeProducersTopicRequest as DescribeProducersTopicRequest,
    )
    from aiokq.wire.describe_producers import (
        DescribeProducersTopicResponse as DescribeProducersTopicResponse,
    )
    from aiokq.wire.describe_producers import ProducerState as ProducerState
    from aiokq.wire.describe_quorum import DescribeQuorumListener as DescribeQuorumListener
    from aiokq.wire.describe_quorum import DescribeQuorumNode as DescribeQuorumNode
    from aiokq.wire.describe_quorum import (
        DescribeQuorumPartitionData as DescribeQuorumPartitionData,
    )
    from aiokq.wire.describe_quorum import DescribeQuorumReplicaState as DescribeQuorumReplicaState
    from aiokq.wire.describe_quorum import DescribeQuorumRequest as DescribeQuorumRequest
    from aiokq.wire.describe_quorum import DescribeQuorumResponse as DescribeQuorumResponse
    from aiokq.wire.describe_quorum import (
        DescribeQuorumResponsePartitionData as DescribeQuorumResponsePartitionData,
    )
    from aiokq.wire.describe_quorum import (
        DescribeQuorumResponseTopicData as DescribeQuorumResponseTopicData,
    )
    from aiokq.wire.describe_quorum import DescribeQuorumTopicData as DescribeQuorumTopicData
    from aiokq.wire.describe_topic_partitions import Cursor as Cursor
    from aiokq.wire.describe_topic_partitions import (
        DescribeTopicPartitionsRequest as DescribeTopicPartitionsRequest,
    )
    from aiokq.wire.describe_topic_partitions import (
        DescribeTopicPartitionsResponse as DescribeTopicPartitionsResponse,
    )
    from aiokq.wire.describe_topic_partitions import (
        DescribeTopicPartitionsResponsePartition as DescribeTopicPartitionsResponsePartition,
    )
    from aiokq.wire.describe_topic_partitions import (
        DescribeTopicPartitionsResponseTopic as DescribeTopicPartitionsResponseTopic,
    )
    from aiokq.wire.describe_topic_partitions import (
        DescribeTopicPartitionsTopicRequest as DescribeTopicPartitionsTopicRequest,
    )
    from aiokq.wire.describe_transactions import (
        DescribeTransactionsRequest as DescribeTransactionsRequest,
    )
    from aiokq.wire.describe_transactions import (
        DescribeTransactionsResponse as DescribeTransactionsResponse,
    )
    from aiokq.wire.describe_transactions import (
        DescribeTransactionsTopicData as DescribeTransactionsTopicData,
    )
    from aiokq.wire.describe_transactions import (
        DescribeTransactionsTransactionState as DescribeTransactionsTransactionState,
    )
    from aiokq.wire.describe_user_scram_credentials import CredentialInfo as CredentialInfo
    from aiokq.wire.describe_user_scram_credentials import (
        DescribeUserScramCredentialsRequest as DescribeUserScramCredentialsRequest,
    )
    from aiokq.wire.describe_user_scram_credentials import (
        DescribeUserScramCredentialsResponse as DescribeUserScramCredentialsResponse,
    )
    from aiokq.wire.describe_user_scram_credentials import (
        DescribeUserScramCredentialsResult as DescribeUserScramCredentialsResult,
    )
    from aiokq.wire.describe_user_scram_credentials import UserName as UserName
    from aiokq.wire.elect_leaders import ElectLeadersPartitionResult as ElectLeadersPartitionResult
    from aiokq.wire.elect_leaders import ElectLeadersRequest as ElectLeadersRequest
    from aiokq.wire.elect_leaders import ElectLeadersResponse as ElectLeadersResponse
    from aiokq.wire.elect_leaders import ElectLeadersTopicPartitions as ElectLeadersTopicPartitions
    from aiokq.wire.elect_leaders import ReplicaElectionResult as ReplicaElectionResult
    from aiokq.wire.end_txn import EndTxnRequest as EndTxnRequest
    from aiokq.wire.end_txn import EndTxnResponse as EndTxnResponse
    from aiokq.wire.fetch import AbortedTransaction as AbortedTransaction
    from aiokq.wire.fetch import FetchableTopicResponse as FetchableTopicResponse
    from aiokq.wire.fetch import FetchEpochEndOffset as FetchEpochEndOffset
    from aiokq.wire.fetch import FetchLeaderIdAndEpoch as FetchLeaderIdAndEpoch
    from aiokq.wire.fetch import FetchNodeEndpoint as FetchNodeEndpoint
    from aiokq.wire.fetch import FetchPartition as FetchPartition
    from aiokq.wire.fetch import FetchPartitionData as FetchPartitionData
    from aiokq.wire.fetch import FetchReplicaState as FetchReplicaState
    from aiokq.wire.fetch import FetchRequest as FetchRequest
    from aiokq.wire.fetch import FetchResponse as FetchResponse
    from aiokq.wire.fetch import FetchTopic as FetchTopic
    from aiokq.wire.fetch import ForgottenTopic as ForgottenTopic
    from aiokq.wire.fetch import SnapshotId as SnapshotId
    from aiokq.wire.find_coordinator import Coordinator as Coordinator
    from aiokq.wire.find_coordinator import FindCoordinatorRequest as FindCoordinatorRequest
    from aiokq.wire.find_coordinator import FindCoordinatorResponse as FindCoordinatorResponse
    from aiokq.wire.group_records import GroupMetadataKey as GroupMetadataKey
    from aiokq.wire.group_records import GroupMetadataValue as GroupMetadataValue
    from aiokq.wire.group_records import LegacyOffsetCommitKey as LegacyOffsetCommitKey
    from aiokq.wire.group_records import LegacyOffsetCommitValue as LegacyOffsetCommitValue
    from aiokq.wire.group_records import MemberMetadata as MemberMetadata
    from aiokq.wire.group_records import OffsetCommitKey as OffsetCommitKey
    from aiokq.wire.group_records import OffsetCommitValue as OffsetCommitValue
    from aiokq.wire.heartbeat import HeartbeatRequest as HeartbeatRequest
    from aiokq.wire.heartbeat import HeartbeatResponse as HeartbeatResponse
    from aiokq.wire.incremental_alter_configs import (
        IncrementalAlterConfigsAlterableConfig as IncrementalAlterConfigsAlterableConfig,
    )
    from aiokq.wire.incremental_alter_configs import (
        IncrementalAlterConfigsRequest as IncrementalAlterConfigsRequest,
    )
    from aiokq.wire.incremental_alter_configs import (
        IncrementalAlterConfigsResource as IncrementalAlterConfigsResource,
    )
    from aiokq.wire.incremental_alter_configs import (
        IncrementalAlterConfigsResourceResponse as IncrementalAlterConfigsResourceResponse,
    )
    from aiokq.wire.incremental_alter_configs import (
        IncrementalAlterConfigsResponse as IncrementalAlterConfigsResponse,
    )
    from aiokq.wire.init_producer_id import InitProducerIdRequest as InitProducerIdRequest
    from aiokq.wire.init_producer_id import InitProducerIdResponse as InitProducerIdResponse
    from aiokq.wire.join_group import JoinGroupRequest as JoinGroupRequest
    from aiokq.wire.join_group import JoinGroupRequestProtocol as JoinGroupRequestProtocol
    from aiokq.wire.join_group import JoinGroupResponse as JoinGroupResponse
    from aiokq.wire.join_group import JoinGroupResponseMember as JoinGroupResponseMember
    from aiokq.wire.leave_group import LeaveGroupRequest as LeaveGroupRequest
    from aiokq.wire.leave_group import LeaveGroupResponse as LeaveGroupResponse
    from aiokq.wire.leave_group import MemberIdentity as MemberIdentity
    from aiokq.wire.leave_group import MemberResponse as MemberResponse
    from aiokq.wire.list_config_resources import ConfigResource as ConfigResource
    from aiokq.wire.list_config_resources import (
        ListConfigResourcesRequest as ListConfigResourcesRequest,
    )
    from aiokq.wire.list_config_resources import (
        ListConfigResourcesResponse as ListConfigResourcesResponse,
    )
    from aiokq.wire.list_groups import ListedGroup as ListedGroup
    from aiokq.wire.list_groups import ListGroupsRequest as ListGroupsRequest
    from aiokq.wire.list_groups import ListGroupsResponse as ListGroupsResponse
    from aiokq.wire.list_offsets import ListOffsetsPartition as ListOffsetsPartition
    from aiokq.wire.list_offsets import ListOffsetsPartitionResponse as ListOffsetsPartitionResponse
    from aiokq.wire.list_offsets import ListOffsetsRequest as ListOffsetsRequest
    from aiokq.wire.list_offsets import ListOffsetsResponse as ListOffsetsResponse
    from aiokq.wire.list_offsets import ListOffsetsTopic as ListOffsetsTopic
    from aiokq.wire.list_offsets import ListOffsetsTopicResponse as ListOffsetsTopicResponse
    from aiokq.wire.list_partition_reassignments import (
        ListPartitionReassignmentsRequest as ListPartitionReassignmentsRequest,
    )
    from aiokq.wire.list_partition_reassignments import (
        ListPartitionReassignmentsResponse as ListPartitionReassignmentsResponse,
    )
    from aiokq.wire.list_partition_reassignments import (
        ListPartitionReassignmentsTopics as ListPartitionReassignmentsTopics,
    )
    from aiokq.wire.list_partition_reassignments import (
        OngoingPartitionReassignment as OngoingPartitionReassignment,
    )
    from aiokq.wire.list_partition_reassignments import (
        OngoingTopicReassignment as OngoingTopicReassignment,
    )
    from aiokq.wire.list_transactions import ListTransactionsRequest as ListTransactionsRequest
    from aiokq.wire.list_transactions import ListTransactionsResponse as ListTransactionsResponse
    from aiokq.wire.list_transactions import (
        ListTransactionsTransactionState as ListTransactionsTransactionState,
    )
    from aiokq.wire.metadata import MetadataRequest as MetadataRequest
    from aiokq.wire.metadata import MetadataRequestTopic as MetadataRequestTopic
    from aiokq.wire.metadata import MetadataResponse as MetadataResponse
    from aiokq.wire.metadata import MetadataResponseBroker as MetadataResponseBroker
    from aiokq.wire.metadata import MetadataResponsePartition as MetadataResponsePartition
    from aiokq.wire.metadata import MetadataResponseTopic as MetadataResponseTopic
    from aiokq.wire.offset_commit import OffsetCommitRequest as OffsetCommitRequest
    from aiokq.wire.offset_commit import (
        OffsetCommitRequestPartition as OffsetCommitRequestPartition,
    )
    from aiokq.wire.offset_commit import OffsetCommitRequestTopic as OffsetCommitRequestTopic
    from aiokq.wire.offset_commit import OffsetCommitResponse as OffsetCommitResponse
    from aiokq.wire.offset_commit import (
        OffsetCommitResponsePartition as OffsetCommitResponsePartition,
    )
    from aiokq.wire.offset_commit import OffsetCommitResponseTopic as OffsetCommitResponseTopic
    from aiokq.wire.offset_delete import OffsetDeleteRequest as OffsetDeleteRequest
    from aiokq.wire.offset_delete import (
        OffsetDeleteRequestPartition as OffsetDeleteRequestPartition,
    )
    from aiokq.wire.offset_delete import OffsetDeleteRequestTopic as OffsetDeleteRequestTopic
    from aiokq.wire.offset_delete import OffsetDeleteResponse as OffsetDeleteResponse
    from aiokq.wire.offset_delete import (
        OffsetDeleteResponsePartition as OffsetDeleteResponsePartition,
    )
    from aiokq.wire.offset_delete import OffsetDeleteResponseTopic as OffsetDeleteResponseTopic
    from aiokq.wire.offset_fetch import OffsetFetchRequest as OffsetFetchRequest
    from aiokq.wire.offset_fetch import OffsetFetchRequestGroup as OffsetFetchRequestGroup
    from aiokq.wire.offset_fetch import OffsetFetchRequestTopic as OffsetFetchRequestTopic
    from aiokq.wire.offset_fetch import OffsetFetchRequestTopics as OffsetFetchRequestTopics
    from aiokq.wire.offset_fetch import OffsetFetchResponse as OffsetFetchResponse
    from aiokq.wire.offset_fetch import OffsetFetchResponseGroup as OffsetFetchResponseGroup
    from aiokq.wire.offset_fetch import OffsetFetchResponsePartition as OffsetFetchResponsePartition
    from aiokq.wire.offset_fetch import (
        OffsetFetchResponsePartitions as OffsetFetchResponsePartitions,
    )
    from aiokq.wire.offset_fetch import OffsetFetchResponseTopic as OffsetFetchResponseTopic
    from aiokq.wire.offset_fetch import OffsetFetchResponseTopics as OffsetFetchResponseTopics
    from aiokq.wire.offset_for_leader_epoch import (
        OffsetForLeaderEpochEndOffset as OffsetForLeaderEpochEndOffset,
    )
    from aiokq.wire.offset_for_leader_epoch import (
        OffsetForLeaderEpochRequest as OffsetForLeaderEpochRequest,
    )
    from aiokq.wire.offset_for_leader_epoch import (
        OffsetForLeaderEpochResponse as OffsetForLeaderEpochResponse,
    )
    from aiokq.wire.offset_for_leader_epoch import (
        OffsetForLeaderPartition as OffsetForLeaderPartition,
    )
    from aiokq.wire.offset_for_leader_epoch import OffsetForLeaderTopic as OffsetForLeaderTopic
    from aiokq.wire.offset_for_leader_epoch import (
        OffsetForLeaderTopicResult as OffsetForLeaderTopicResult,
    )
    from aiokq.wire.produce import BatchIndexAndErrorMessage as BatchIndexAndErrorMessage
    from aiokq.wire.produce import PartitionProduceData as PartitionProduceData
    from aiokq.wire.produce import PartitionProduceResponse as PartitionProduceResponse
    from aiokq.wire.produce import ProduceLeaderIdAndEpoch as ProduceLeaderIdAndEpoch
    from aiokq.wire.produce import ProduceNodeEndpoint as ProduceNodeEndpoint
    from aiokq.wire.produce import ProduceRequest as ProduceRequest
    from aiokq.wire.produce import ProduceResponse as ProduceResponse
    from aiokq.wire.produce import TopicProduceData as TopicProduceData
    from aiokq.wire.produce import TopicProduceResponse as TopicProduceResponse
    from aiokq.wire.sasl_authenticate import SaslAuthenticateRequest as SaslAuthenticateRequest
    from aiokq.wire.sasl_authenticate import SaslAuthenticateResponse as SaslAuthenticateResponse
    from aiokq.wire.sasl_handshake import SaslHandshakeRequest as SaslHandshakeRequest
    from aiokq.wire.sasl_handshake import SaslHandshakeResponse as SaslHandshakeResponse
    from aiokq.wire.sync_group import SyncGroupRequest as SyncGroupRequest
    from aiokq.wire.sync_group import SyncGroupRequestAssignment as SyncGroupRequestAssignment
    from aiokq.wire.sync_group import SyncGroupResponse as SyncGroupResponse
    from aiokq.wire.transaction_records import EndTxnMarker as EndTxnMarker
    from aiokq.wire.transaction_records import PartitionsSchema as PartitionsSchema
    from aiokq.wire.transaction_records import TransactionLogKey as TransactionLogKey
    from aiokq.wire.transaction_records import TransactionLogValue as TransactionLogValue
    from aiokq.wire.txn_offset_commit import TxnOffsetCommitRequest as TxnOffsetCommitRequest
    from aiokq.wire.txn_offset_commit import (
        TxnOffsetCommitRequestPartition as TxnOffsetCommitRequestPartition,
    )
    from aiokq.wire.txn_offset_commit import (
        TxnOffsetCommitRequestTopic as TxnOffsetCommitRequestTopic,
    )
    from aiokq.wire.txn_offset_commit import TxnOffsetCommitResponse as TxnOffsetCommitResponse
    from aiokq.wire.txn_offset_commit import (
        TxnOffsetCommitResponsePartition as TxnOffsetCommitResponsePartition,
    )
    from aiokq.wire.txn_offset_commit import (
        TxnOffsetCommitResponseTopic as TxnOffsetCommitResponseTopic,
    )
    from aiokq.wire.update_features import FeatureUpdateKey as FeatureUpdateKey
    from aiokq.wire.update_features import UpdatableFeatureResult as UpdatableFeatureResult
    from aiokq.wire.update_features import UpdateFeaturesRequest as UpdateFeaturesRequest
    from aiokq.wire.update_features import UpdateFeaturesResponse as UpdateFeaturesResponse
    from aiokq.wire.write_txn_markers import WritableTxnMarker as WritableTxnMarker
    from aiokq.wire.write_txn_markers import (
        WritableTxnMarkerPartitionResult as WritableTxnMarkerPartitionResult,
    )
    from aiokq.wire.write_txn_markers import WritableTxnMarkerResult as WritableTxnMarkerResult
    from aiokq.wire.write_txn_markers import WritableTxnMarkerTopic as WritableTxnMarkerTopic
    from aiokq.wire.write_txn_markers import (
        WritableTxnMarkerTopicResult as WritableTxnMarkerTopicResult,
    )
    from aiokq.wire.write_txn_markers import WriteTxnMarkersRequest as WriteTxnMarkersRequest
    from aiokq.wire.write_txn_markers import WriteTxnMarkersResponse as WriteTxnMarkersResponse
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
    "ClassicMemberMetadata",
    "ClassicProtocol",
    "ComponentData",
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
    "EndTxnMarker",
    "EndTxnRequest",
    "EndTxnResponse",
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
    "PartitionMetadata",
    "PartitionProduceData",
    "PartitionProduceResponse",
    "PartitionsSchema",
    "ProduceLeaderIdAndEpoch",
    "ProduceNodeEndpoint",
    "ProduceRequest",
    "ProduceResponse",
    "ProducerState",
    "ReassignablePartition",
    "ReassignablePartitionResponse",
    "ReassignableTopic",
    "ReassignableTopicResponse",
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
