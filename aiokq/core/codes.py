"""Table of Kafka's error codes, one row per code.

Names, flags, texts, the exception classes (broker_errors.py) and docs/reference/errors.md come from
this table. tools/generate_error_codes.py generates it from the Errors enum of Kafka 4.2.0; do not
edit it.
"""

from __future__ import annotations

from typing import Final

from aiokq.core.named_tuple import NamedTuple


class ErrorCode(NamedTuple):
    """One error code of Kafka and the flags derived from it."""

    code: int
    name: str
    """Kafka's name of the code, such as `UNKNOWN_TOPIC_OR_PARTITION`."""
    class_name: str
    """Name of the exception class, usually that of Kafka's class without "Exception"."""
    retriable: bool
    """Whether the same request may succeed later (Kafka's RetriableException)."""
    refresh_metadata: bool
    """Whether the client's metadata is out of date (Kafka's InvalidMetadataException)."""
    fatal: bool
    """Whether the client object cannot continue, so that retrying does not help."""
    may_have_been_written: bool
    """Whether the records of a Produce request may be in the log despite the error."""
    message: str
    """Kafka's default message for the code."""


NONE: Final = 0
"""Kafka's code for success."""

# The table names the flags that are set; `_` stands for a flag that is not set.
_, RETRIABLE, METADATA, FATAL, WRITTEN = False, True, True, True, True

# fmt: off
ERROR_CODES: Final[tuple[ErrorCode, ...]] = (
    ErrorCode(-1, "UNKNOWN_SERVER_ERROR", "UnknownServer", _, _, _, WRITTEN, "The server experienced an unexpected error when processing the request."),
    ErrorCode(1, "OFFSET_OUT_OF_RANGE", "OffsetOutOfRange", _, _, _, _, "The requested offset is not within the range of offsets maintained by the server."),
    ErrorCode(2, "CORRUPT_MESSAGE", "CorruptRecord", RETRIABLE, _, _, _, "This message has failed its CRC checksum, exceeds the valid size, has a null key for a compacted topic, or is otherwise corrupt."),
    ErrorCode(3, "UNKNOWN_TOPIC_OR_PARTITION", "UnknownTopicOrPartition", RETRIABLE, METADATA, _, _, "This server does not host this topic-partition."),
    ErrorCode(4, "INVALID_FETCH_SIZE", "InvalidFetchSize", _, _, _, _, "The requested fetch size is invalid."),
    ErrorCode(5, "LEADER_NOT_AVAILABLE", "LeaderNotAvailable", RETRIABLE, METADATA, _, _, "There is no leader for this topic-partition as we are in the middle of a leadership election."),
    ErrorCode(6, "NOT_LEADER_OR_FOLLOWER", "NotLeaderOrFollower", RETRIABLE, METADATA, _, _, "For requests intended only for the leader, this error indicates that the broker is not the current leader. For requests intended for any replica, this error indicates that the broker is not a replica of the topic partition."),
    ErrorCode(7, "REQUEST_TIMED_OUT", "RequestTimeout", RETRIABLE, _, _, WRITTEN, "The request timed out."),
    ErrorCode(8, "BROKER_NOT_AVAILABLE", "BrokerNotAvailable", _, _, _, _, "The broker is not available."),
    ErrorCode(9, "REPLICA_NOT_AVAILABLE", "ReplicaNotAvailable", RETRIABLE, METADATA, _, _, "The replica is not available for the requested topic-partition. Produce/Fetch requests and other requests intended only for the leader or follower return NOT_LEADER_OR_FOLLOWER if the broker is not a replica of the topic-partition."),
    ErrorCode(10, "MESSAGE_TOO_LARGE", "RecordTooLarge", _, _, _, _, "The request included a message larger than the max message size the server will accept."),
    ErrorCode(11, "STALE_CONTROLLER_EPOCH", "ControllerMoved", _, _, _, _, "The controller moved to another broker."),
    ErrorCode(12, "OFFSET_METADATA_TOO_LARGE", "OffsetMetadataTooLarge", _, _, _, _, "The metadata field of the offset request was too large."),
    ErrorCode(13, "NETWORK_EXCEPTION", "Network", RETRIABLE, METADATA, _, _, "The server disconnected before a response was received."),
    ErrorCode(14, "COORDINATOR_LOAD_IN_PROGRESS", "CoordinatorLoadInProgress", RETRIABLE, _, _, _, "The coordinator is loading and hence can't process requests."),
    ErrorCode(15, "COORDINATOR_NOT_AVAILABLE", "CoordinatorNotAvailable", RETRIABLE, _, _, _, "The coordinator is not available."),
    ErrorCode(16, "NOT_COORDINATOR", "NotCoordinator", RETRIABLE, _, _, _, "This is not the correct coordinator."),
    ErrorCode(17, "INVALID_TOPIC_EXCEPTION", "InvalidTopic", _, _, _, _, "The request attempted to perform an operation on an invalid topic."),
    ErrorCode(18, "RECORD_LIST_TOO_LARGE", "RecordBatchTooLarge", _, _, _, _, "The request included message batch larger than the configured segment size on the server."),
    ErrorCode(19, "NOT_ENOUGH_REPLICAS", "NotEnoughReplicas", RETRIABLE, _, _, _, "Messages are rejected since there are fewer in-sync replicas than required."),
    ErrorCode(20, "NOT_ENOUGH_REPLICAS_AFTER_APPEND", "NotEnoughReplicasAfterAppend", RETRIABLE, _, _, WRITTEN, "Messages are written to the log, but to fewer in-sync replicas than required."),
    ErrorCode(21, "INVALID_REQUIRED_ACKS", "InvalidRequiredAcks", _, _, _, _, "Produce request specified an invalid value for required acks."),
    ErrorCode(22, "ILLEGAL_GENERATION", "IllegalGeneration", _, _, _, _, "Specified group generation id is not valid."),
    ErrorCode(23, "INCONSISTENT_GROUP_PROTOCOL", "InconsistentGroupProtocol", _, _, FATAL, _, "The group member's supported protocols are incompatible with those of existing members or first group member tried to join with empty protocol type or empty protocol list."),
    ErrorCode(24, "INVALID_GROUP_ID", "InvalidGroupId", _, _, FATAL, _, "The group id is invalid."),
    ErrorCode(25, "UNKNOWN_MEMBER_ID", "UnknownMemberId", _, _, _, _, "The coordinator is not aware of this member."),
    ErrorCode(26, "INVALID_SESSION_TIMEOUT", "InvalidSessionTimeout", _, _, FATAL, _, "The session timeout is not within the range allowed by the broker (as configured by group.min.session.timeout.ms and group.max.session.timeout.ms)."),
    ErrorCode(27, "REBALANCE_IN_PROGRESS", "RebalanceInProgress", _, _, _, _, "The group is rebalancing, so a rejoin is needed."),
    ErrorCode(28, "INVALID_COMMIT_OFFSET_SIZE", "InvalidCommitOffsetSize", _, _, _, _, "The committing offset data size is not valid."),
    ErrorCode(29, "TOPIC_AUTHORIZATION_FAILED", "TopicAuthorization", _, _, FATAL, _, "Topic authorization failed."),
    ErrorCode(30, "GROUP_AUTHORIZATION_FAILED", "GroupAuthorization", _, _, FATAL, _, "Group authorization failed."),
    ErrorCode(31, "CLUSTER_AUTHORIZATION_FAILED", "ClusterAuthorization", _, _, FATAL, _, "Cluster authorization failed."),
    ErrorCode(32, "INVALID_TIMESTAMP", "InvalidTimestamp", _, _, _, _, "The timestamp of the message is out of acceptable range."),
    ErrorCode(33, "UNSUPPORTED_SASL_MECHANISM", "UnsupportedSaslMechanism", _, _, FATAL, _, "The broker does not support the requested SASL mechanism."),
    ErrorCode(34, "ILLEGAL_SASL_STATE", "IllegalSaslState", _, _, FATAL, _, "Request is not valid given the current SASL state."),
    ErrorCode(35, "UNSUPPORTED_VERSION", "UnsupportedVersion", _, _, FATAL, _, "The version of API is not supported."),
    ErrorCode(36, "TOPIC_ALREADY_EXISTS", "TopicExists", _, _, _, _, "Topic with this name already exists."),
    ErrorCode(37, "INVALID_PARTITIONS", "InvalidPartitions", _, _, _, _, "Number of partitions is below 1."),
    ErrorCode(38, "INVALID_REPLICATION_FACTOR", "InvalidReplicationFactor", _, _, _, _, "Replication factor is below 1 or larger than the number of available brokers."),
    ErrorCode(39, "INVALID_REPLICA_ASSIGNMENT", "InvalidReplicaAssignment", _, _, _, _, "Replica assignment is invalid."),
    ErrorCode(40, "INVALID_CONFIG", "InvalidConfiguration", _, _, _, _, "Configuration is invalid."),
    ErrorCode(41, "NOT_CONTROLLER", "NotController", RETRIABLE, _, _, _, "This is not the correct controller for this cluster."),
    ErrorCode(42, "INVALID_REQUEST", "InvalidRequest", _, _, _, _, "This most likely occurs because of a request being malformed by the client library or the message was sent to an incompatible broker. See the broker logs for more details."),
    ErrorCode(43, "UNSUPPORTED_FOR_MESSAGE_FORMAT", "UnsupportedForMessageFormat", _, _, FATAL, _, "The message format version on the broker does not support the request."),
    ErrorCode(44, "POLICY_VIOLATION", "PolicyViolation", _, _, _, _, "Request parameters do not satisfy the configured policy."),
    ErrorCode(45, "OUT_OF_ORDER_SEQUENCE_NUMBER", "OutOfOrderSequence", _, _, _, _, "The broker received an out of order sequence number."),
    ErrorCode(46, "DUPLICATE_SEQUENCE_NUMBER", "DuplicateSequence", _, _, _, _, "The broker received a duplicate sequence number."),
    ErrorCode(47, "INVALID_PRODUCER_EPOCH", "InvalidProducerEpoch", _, _, _, _, "Producer attempted to produce with an old epoch."),
    ErrorCode(48, "INVALID_TXN_STATE", "InvalidTxnState", _, _, FATAL, _, "The producer attempted a transactional operation in an invalid state."),
    ErrorCode(49, "INVALID_PRODUCER_ID_MAPPING", "InvalidPidMapping", _, _, FATAL, _, "The producer attempted to use a producer id which is not currently assigned to its transactional id."),
    ErrorCode(50, "INVALID_TRANSACTION_TIMEOUT", "InvalidTxnTimeout", _, _, FATAL, _, "The transaction timeout is larger than the maximum value allowed by the broker (as configured by transaction.max.timeout.ms)."),
    ErrorCode(51, "CONCURRENT_TRANSACTIONS", "ConcurrentTransactions", RETRIABLE, _, _, _, "The producer attempted to update a transaction while another concurrent operation on the same transaction was ongoing."),
    ErrorCode(52, "TRANSACTION_COORDINATOR_FENCED", "TransactionCoordinatorFenced", _, _, _, _, "Indicates that the transaction coordinator sending a WriteTxnMarker is no longer the current coordinator for a given producer."),
    ErrorCode(53, "TRANSACTIONAL_ID_AUTHORIZATION_FAILED", "TransactionalIdAuthorization", _, _, FATAL, _, "Transactional Id authorization failed."),
    ErrorCode(54, "SECURITY_DISABLED", "SecurityDisabled", _, _, _, _, "Security features are disabled."),
    ErrorCode(55, "OPERATION_NOT_ATTEMPTED", "OperationNotAttempted", _, _, _, _, "The broker did not attempt to execute this operation. This may happen for batched RPCs where some operations in the batch failed, causing the broker to respond without trying the rest."),
    ErrorCode(56, "KAFKA_STORAGE_ERROR", "KafkaStorage", RETRIABLE, METADATA, _, _, "Disk error when trying to access log file on the disk."),
    ErrorCode(57, "LOG_DIR_NOT_FOUND", "LogDirNotFound", _, _, _, _, "The user-specified log directory is not found in the broker config."),
    ErrorCode(58, "SASL_AUTHENTICATION_FAILED", "AuthenticationFailed", _, _, FATAL, _, "SASL Authentication failed."),
    ErrorCode(59, "UNKNOWN_PRODUCER_ID", "UnknownProducerId", _, _, _, _, "This exception is raised by the broker if it could not locate the producer metadata associated with the producerId in question. This could happen if, for instance, the producer's records were deleted because their retention time had elapsed. Once the last records of the producerId are removed, the producer's metadata is removed from the broker, and future appends by the producer will return this exception."),
    ErrorCode(60, "REASSIGNMENT_IN_PROGRESS", "ReassignmentInProgress", _, _, _, _, "A partition reassignment is in progress."),
    ErrorCode(61, "DELEGATION_TOKEN_AUTH_DISABLED", "DelegationTokenDisabled", _, _, _, _, "Delegation Token feature is not enabled."),
    ErrorCode(62, "DELEGATION_TOKEN_NOT_FOUND", "DelegationTokenNotFound", _, _, _, _, "Delegation Token is not found on server."),
    ErrorCode(63, "DELEGATION_TOKEN_OWNER_MISMATCH", "DelegationTokenOwnerMismatch", _, _, _, _, "Specified Principal is not valid Owner/Renewer."),
    ErrorCode(64, "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED", "UnsupportedByAuthentication", _, _, _, _, "Delegation Token requests are not allowed on PLAINTEXT/1-way SSL channels and on delegation token authenticated channels."),
    ErrorCode(65, "DELEGATION_TOKEN_AUTHORIZATION_FAILED", "DelegationTokenAuthorization", _, _, FATAL, _, "Delegation Token authorization failed."),
    ErrorCode(66, "DELEGATION_TOKEN_EXPIRED", "DelegationTokenExpired", _, _, _, _, "Delegation Token is expired."),
    ErrorCode(67, "INVALID_PRINCIPAL_TYPE", "InvalidPrincipalType", _, _, _, _, "Supplied principalType is not supported."),
    ErrorCode(68, "NON_EMPTY_GROUP", "GroupNotEmpty", _, _, _, _, "The group is not empty."),
    ErrorCode(69, "GROUP_ID_NOT_FOUND", "GroupIdNotFound", _, _, _, _, "The group id does not exist."),
    ErrorCode(70, "FETCH_SESSION_ID_NOT_FOUND", "FetchSessionIdNotFound", RETRIABLE, _, _, _, "The fetch session ID was not found."),
    ErrorCode(71, "INVALID_FETCH_SESSION_EPOCH", "InvalidFetchSessionEpoch", RETRIABLE, _, _, _, "The fetch session epoch is invalid."),
    ErrorCode(72, "LISTENER_NOT_FOUND", "ListenerNotFound", RETRIABLE, METADATA, _, _, "There is no listener on the leader broker that matches the listener on which metadata request was processed."),
    ErrorCode(73, "TOPIC_DELETION_DISABLED", "TopicDeletionDisabled", _, _, _, _, "Topic deletion is disabled."),
    ErrorCode(74, "FENCED_LEADER_EPOCH", "FencedLeaderEpoch", RETRIABLE, METADATA, _, _, "The leader epoch in the request is older than the epoch on the broker."),
    ErrorCode(75, "UNKNOWN_LEADER_EPOCH", "UnknownLeaderEpoch", RETRIABLE, _, _, _, "The leader epoch in the request is newer than the epoch on the broker."),
    ErrorCode(76, "UNSUPPORTED_COMPRESSION_TYPE", "UnsupportedCompressionType", _, _, _, _, "The requesting client does not support the compression type of given partition."),
    ErrorCode(77, "STALE_BROKER_EPOCH", "StaleBrokerEpoch", _, _, _, _, "Broker epoch has changed."),
    ErrorCode(78, "OFFSET_NOT_AVAILABLE", "OffsetNotAvailable", RETRIABLE, _, _, _, "The leader high watermark has not caught up from a recent leader election so the offsets cannot be guaranteed to be monotonically increasing."),
    ErrorCode(79, "MEMBER_ID_REQUIRED", "MemberIdRequired", _, _, _, _, "The group member needs to have a valid member id before actually entering a consumer group."),
    ErrorCode(80, "PREFERRED_LEADER_NOT_AVAILABLE", "PreferredLeaderNotAvailable", RETRIABLE, METADATA, _, _, "The preferred leader was not available."),
    ErrorCode(81, "GROUP_MAX_SIZE_REACHED", "GroupMaxSizeReached", _, _, FATAL, _, "The group has reached its maximum size."),
    ErrorCode(82, "FENCED_INSTANCE_ID", "FencedInstanceId", _, _, FATAL, _, "The broker rejected this static consumer since another consumer with the same group.instance.id has registered with a different member.id."),
    ErrorCode(83, "ELIGIBLE_LEADERS_NOT_AVAILABLE", "EligibleLeadersNotAvailable", RETRIABLE, METADATA, _, _, "Eligible topic partition leaders are not available."),
    ErrorCode(84, "ELECTION_NOT_NEEDED", "ElectionNotNeeded", RETRIABLE, METADATA, _, _, "Leader election not needed for topic partition."),
    ErrorCode(85, "NO_REASSIGNMENT_IN_PROGRESS", "NoReassignmentInProgress", _, _, _, _, "No partition reassignment is in progress."),
    ErrorCode(86, "GROUP_SUBSCRIBED_TO_TOPIC", "GroupSubscribedToTopic", _, _, _, _, "Deleting offsets of a topic is forbidden while the consumer group is actively subscribed to it."),
    ErrorCode(87, "INVALID_RECORD", "InvalidRecord", _, _, _, _, "This record has failed the validation on broker and hence will be rejected."),
    ErrorCode(88, "UNSTABLE_OFFSET_COMMIT", "UnstableOffsetCommit", RETRIABLE, _, _, _, "There are unstable offsets that need to be cleared."),
    ErrorCode(89, "THROTTLING_QUOTA_EXCEEDED", "ThrottlingQuotaExceeded", RETRIABLE, _, _, _, "The throttling quota has been exceeded."),
    ErrorCode(90, "PRODUCER_FENCED", "ProducerFenced", _, _, FATAL, _, "There is a newer producer with the same transactionalId which fences the current one."),
    ErrorCode(91, "RESOURCE_NOT_FOUND", "ResourceNotFound", _, _, _, _, "A request illegally referred to a resource that does not exist."),
    ErrorCode(92, "DUPLICATE_RESOURCE", "DuplicateResource", _, _, _, _, "A request illegally referred to the same resource twice."),
    ErrorCode(93, "UNACCEPTABLE_CREDENTIAL", "UnacceptableCredential", _, _, _, _, "Requested credential would not meet criteria for acceptability."),
    ErrorCode(94, "INCONSISTENT_VOTER_SET", "InconsistentVoterSet", _, _, _, _, "Indicates that the either the sender or recipient of a voter-only request is not one of the expected voters."),
    ErrorCode(95, "INVALID_UPDATE_VERSION", "InvalidUpdateVersion", _, _, _, _, "The given update version was invalid."),
    ErrorCode(96, "FEATURE_UPDATE_FAILED", "FeatureUpdateFailed", _, _, _, _, "Unable to update finalized features due to an unexpected server error."),
    ErrorCode(97, "PRINCIPAL_DESERIALIZATION_FAILURE", "PrincipalDeserialization", _, _, _, _, "Request principal deserialization failed during forwarding. This indicates an internal error on the broker cluster security setup."),
    ErrorCode(98, "SNAPSHOT_NOT_FOUND", "SnapshotNotFound", _, _, _, _, "Requested snapshot was not found."),
    ErrorCode(99, "POSITION_OUT_OF_RANGE", "PositionOutOfRange", _, _, _, _, "Requested position is not greater than or equal to zero, and less than the size of the snapshot."),
    ErrorCode(100, "UNKNOWN_TOPIC_ID", "UnknownTopicId", RETRIABLE, METADATA, _, _, "This server does not host this topic ID."),
    ErrorCode(101, "DUPLICATE_BROKER_REGISTRATION", "DuplicateBrokerRegistration", _, _, _, _, "This broker ID is already in use."),
    ErrorCode(102, "BROKER_ID_NOT_REGISTERED", "BrokerIdNotRegistered", _, _, _, _, "The given broker ID was not registered."),
    ErrorCode(103, "INCONSISTENT_TOPIC_ID", "InconsistentTopicId", RETRIABLE, METADATA, _, _, "The log's topic ID did not match the topic ID in the request."),
    ErrorCode(104, "INCONSISTENT_CLUSTER_ID", "InconsistentClusterId", _, _, _, _, "The clusterId in the request does not match that found on the server."),
    ErrorCode(105, "TRANSACTIONAL_ID_NOT_FOUND", "TransactionalIdNotFound", _, _, _, _, "The transactionalId could not be found."),
    ErrorCode(106, "FETCH_SESSION_TOPIC_ID_ERROR", "FetchSessionTopicId", RETRIABLE, _, _, _, "The fetch session encountered inconsistent topic ID usage."),
    ErrorCode(107, "INELIGIBLE_REPLICA", "IneligibleReplica", _, _, _, _, "The new ISR contains at least one ineligible replica."),
    ErrorCode(108, "NEW_LEADER_ELECTED", "NewLeaderElected", _, _, _, _, "The AlterPartition request successfully updated the partition state but the leader has changed."),
    ErrorCode(109, "OFFSET_MOVED_TO_TIERED_STORAGE", "OffsetMovedToTieredStorage", _, _, _, _, "The requested offset is moved to tiered storage."),
    ErrorCode(110, "FENCED_MEMBER_EPOCH", "FencedMemberEpoch", _, _, _, _, "The member epoch is fenced by the group coordinator. The member must abandon all its partitions and rejoin."),
    ErrorCode(111, "UNRELEASED_INSTANCE_ID", "UnreleasedInstanceId", _, _, FATAL, _, "The instance ID is still used by another member in the consumer group. That member must leave first."),
    ErrorCode(112, "UNSUPPORTED_ASSIGNOR", "UnsupportedAssignor", _, _, FATAL, _, "The assignor or its version range is not supported by the consumer group."),
    ErrorCode(113, "STALE_MEMBER_EPOCH", "StaleMemberEpoch", _, _, _, _, "The member epoch is stale. The member must retry after receiving its updated member epoch via the ConsumerGroupHeartbeat API."),
    ErrorCode(114, "MISMATCHED_ENDPOINT_TYPE", "MismatchedEndpointType", _, _, _, _, "The request was sent to an endpoint of the wrong type."),
    ErrorCode(115, "UNSUPPORTED_ENDPOINT_TYPE", "UnsupportedEndpointType", _, _, _, _, "This endpoint type is not supported yet."),
    ErrorCode(116, "UNKNOWN_CONTROLLER_ID", "UnknownControllerId", _, _, _, _, "This controller ID is not known."),
    ErrorCode(117, "UNKNOWN_SUBSCRIPTION_ID", "UnknownSubscriptionId", _, _, _, _, "Client sent a push telemetry request with an invalid or outdated subscription ID."),
    ErrorCode(118, "TELEMETRY_TOO_LARGE", "TelemetryTooLarge", _, _, _, _, "Client sent a push telemetry request larger than the maximum size the broker will accept."),
    ErrorCode(119, "INVALID_REGISTRATION", "InvalidRegistration", _, _, _, _, "The controller has considered the broker registration to be invalid."),
    ErrorCode(120, "TRANSACTION_ABORTABLE", "TransactionAbortable", _, _, _, _, "The server encountered an error with the transaction. The client can abort the transaction to continue using this transactional ID."),
    ErrorCode(121, "INVALID_RECORD_STATE", "InvalidRecordState", _, _, _, _, "The record state is invalid. The acknowledgement of delivery could not be completed."),
    ErrorCode(122, "SHARE_SESSION_NOT_FOUND", "ShareSessionNotFound", RETRIABLE, _, _, _, "The share session was not found."),
    ErrorCode(123, "INVALID_SHARE_SESSION_EPOCH", "InvalidShareSessionEpoch", RETRIABLE, _, _, _, "The share session epoch is invalid."),
    ErrorCode(124, "FENCED_STATE_EPOCH", "FencedStateEpoch", _, _, _, _, "The share coordinator rejected the request because the share-group state epoch did not match."),
    ErrorCode(125, "INVALID_VOTER_KEY", "InvalidVoterKey", _, _, _, _, "The voter key doesn't match the receiving replica's key."),
    ErrorCode(126, "DUPLICATE_VOTER", "DuplicateVoter", _, _, _, _, "The voter is already part of the set of voters."),
    ErrorCode(127, "VOTER_NOT_FOUND", "VoterNotFound", _, _, _, _, "The voter is not part of the set of voters."),
    ErrorCode(128, "INVALID_REGULAR_EXPRESSION", "InvalidRegularExpression", _, _, FATAL, _, "The regular expression is not valid."),
    ErrorCode(129, "REBOOTSTRAP_REQUIRED", "RebootstrapRequired", _, _, _, _, "Client metadata is stale. The client should rebootstrap to obtain new metadata."),
    ErrorCode(130, "STREAMS_INVALID_TOPOLOGY", "StreamsInvalidTopology", _, _, _, _, "The supplied topology is invalid."),
    ErrorCode(131, "STREAMS_INVALID_TOPOLOGY_EPOCH", "StreamsInvalidTopologyEpoch", _, _, _, _, "The supplied topology epoch is invalid."),
    ErrorCode(132, "STREAMS_TOPOLOGY_FENCED", "StreamsTopologyFenced", _, _, _, _, "The supplied topology epoch is outdated."),
    ErrorCode(133, "SHARE_SESSION_LIMIT_REACHED", "ShareSessionLimitReached", RETRIABLE, _, _, _, "The limit of share sessions has been reached."),
)
# fmt: on

BY_CODE: Final[dict[int, ErrorCode]] = {row.code: row for row in ERROR_CODES}
