"""Sample requests of every API in every version, for given topics and a group."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence

from aiokq import wire
from aiokq.wire.struct import Request, Response
from tests.unit.broker.harness import batch

TOPIC, BROKER, GROUP = 2, 4, 32
CONSUMER_PROTOCOL = b"\0\0\0\0\0\1\0\6secret\xff\xff\xff\xff"


def every_request(
    key: int, version: int, topics: Sequence[str], ids: Mapping[str, uuid.UUID], group: str
) -> list[Request[Response]]:
    """Return requests of one version, each for all of the topics, the last for everything.

    Args:
        ids: topic ids by name; other topics get an unknown id.
    """
    return BUILDERS[key](version, topics, lambda name: ids.get(name) or uuid.UUID(int=99), group)


def _named(by_id, name, topic_id, field="name"):
    return {"topic_id": topic_id(name)} if by_id else {field: name}


def _produce(version, topics, topic_id, group):
    def request(acks, transactional_id=None, **fields):
        return wire.ProduceRequest(
            acks=acks,
            timeout_ms=1000,
            transactional_id=transactional_id,
            topic_data=[
                wire.TopicProduceData(
                    partition_data=[wire.PartitionProduceData(index=0, records=batch(**fields))],
                    **_named(version >= 13, name, topic_id),
                )
                for name in topics
            ],
        )

    requests = [request(1), request(-1)]
    if version >= 3:
        transactional = {"producer_id": 1, "producer_epoch": 0, "base_sequence": 0}
        requests.append(request(-1, "t", attributes=0x10, **transactional))
    return requests


def _fetch(version, topics, topic_id, group):
    def request(replica_id):
        sender = {"replica_id": replica_id}
        if version >= 15:
            sender = {}
            if replica_id >= 0:
                sender = {"replica_state": wire.FetchReplicaState(replica_id=replica_id)}
        return wire.FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            topics=[
                wire.FetchTopic(
                    partitions=[
                        wire.FetchPartition(
                            partition=0, fetch_offset=0, partition_max_bytes=1_000_000
                        )
                    ],
                    **_named(version >= 13, name, topic_id, "topic"),
                )
                for name in topics
            ],
            **sender,
        )

    return [request(-1), request(0)]


def _list_offsets(version, topics, topic_id, group):
    return [
        wire.ListOffsetsRequest(
            replica_id=-1,
            topics=[
                wire.ListOffsetsTopic(
                    name=name,
                    partitions=[wire.ListOffsetsPartition(partition_index=0, timestamp=timestamp)],
                )
                for name in topics
            ],
        )
        for timestamp in (-1, -2, 0)
    ]


def _metadata(version, topics, topic_id, group):
    def request(asked):
        made = wire.MetadataRequest(topics=asked)
        if version >= 8:
            made.include_topic_authorized_operations = True
            made.include_cluster_authorized_operations = version <= 10
        return made

    requests = [
        request([wire.MetadataRequestTopic(name=name) for name in topics]),
        request([] if version == 0 else None),
    ]
    if version >= 12:
        requests.insert(
            0,
            request(
                [wire.MetadataRequestTopic(name=None, topic_id=topic_id(name)) for name in topics]
            ),
        )
    return requests


def _offset_commit(version, topics, topic_id, group):
    return [
        wire.OffsetCommitRequest(
            group_id=group,
            topics=[
                wire.OffsetCommitRequestTopic(
                    partitions=[
                        wire.OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
                    ],
                    **_named(version >= 10, name, topic_id),
                )
                for name in topics
            ],
        )
    ]


def _offset_fetch(version, topics, topic_id, group):
    if version < 8:
        asked = [wire.OffsetFetchRequestTopic(name=name, partition_indexes=[0]) for name in topics]
        requests = [wire.OffsetFetchRequest(group_id=group, topics=asked)]
        if version >= 2:
            requests.append(wire.OffsetFetchRequest(group_id=group, topics=None))
        return requests
    asked = [
        wire.OffsetFetchRequestTopics(
            partition_indexes=[0], **_named(version >= 10, name, topic_id)
        )
        for name in topics
    ]
    return [
        wire.OffsetFetchRequest(
            groups=[wire.OffsetFetchRequestGroup(group_id=group, topics=of_group)]
        )
        for of_group in (asked, None)
    ]


def _find_coordinator(version, topics, topic_id, group):
    if version == 0:
        return [wire.FindCoordinatorRequest(key=group)]
    if version < 4:
        return [wire.FindCoordinatorRequest(key=group, key_type=kind) for kind in (0, 1)]
    return [wire.FindCoordinatorRequest(coordinator_keys=[group], key_type=kind) for kind in (0, 1)]


def _join_group(version, topics, topic_id, group):
    return [
        wire.JoinGroupRequest(
            group_id=group,
            session_timeout_ms=10_000,
            member_id="",
            protocol_type="consumer",
            protocols=[wire.JoinGroupRequestProtocol(name="range", metadata=CONSUMER_PROTOCOL)],
        )
    ]


def _heartbeat(version, topics, topic_id, group):
    return [wire.HeartbeatRequest(group_id=group, generation_id=1, member_id="m")]


def _leave_group(version, topics, topic_id, group):
    if version < 3:
        return [wire.LeaveGroupRequest(group_id=group, member_id="m")]
    return [wire.LeaveGroupRequest(group_id=group, members=[wire.MemberIdentity(member_id="m")])]


def _sync_group(version, topics, topic_id, group):
    protocol = {"protocol_type": "consumer", "protocol_name": "range"} if version >= 5 else {}
    return [
        wire.SyncGroupRequest(
            group_id=group, generation_id=1, member_id="m", assignments=[], **protocol
        )
    ]


def _describe_groups(version, topics, topic_id, group):
    asked = {"include_authorized_operations": True} if version >= 3 else {}
    return [wire.DescribeGroupsRequest(groups=[group], **asked)]


def _list_groups(version, topics, topic_id, group):
    return [wire.ListGroupsRequest()]


def _api_versions(version, topics, topic_id, group):
    return [wire.ApiVersionsRequest(client_software_name="t", client_software_version="1")]


def _create_topics(version, topics, topic_id, group):
    return [
        wire.CreateTopicsRequest(
            topics=[
                wire.CreatableTopic(name=name, num_partitions=1, replication_factor=1)
                for name in (*topics, *(f"{name}.new" for name in topics))
            ],
            validate_only=validate_only,
        )
        for validate_only in (True, False)
    ]


def _delete_topics(version, topics, topic_id, group):
    if version < 6:
        return [wire.DeleteTopicsRequest(topic_names=list(topics), timeout_ms=1000)]
    by_id = [wire.DeleteTopicState(name=None, topic_id=topic_id(name)) for name in topics]
    by_name = [wire.DeleteTopicState(name=name) for name in topics]
    return [wire.DeleteTopicsRequest(topics=each, timeout_ms=1000) for each in (by_id, by_name)]


def _delete_records(version, topics, topic_id, group):
    return [
        wire.DeleteRecordsRequest(
            timeout_ms=1000,
            topics=[
                wire.DeleteRecordsTopic(
                    name=name,
                    partitions=[wire.DeleteRecordsPartition(partition_index=0, offset=1)],
                )
                for name in topics
            ],
        )
    ]


def _init_producer_id(version, topics, topic_id, group):
    return [
        wire.InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=1000)
        for name in (None, "t")
    ]


def _add_partitions_to_txn(version, topics, topic_id, group):
    if version >= 4:
        return [
            wire.AddPartitionsToTxnRequest(
                transactions=[
                    wire.AddPartitionsToTxnTransaction(
                        transactional_id="t",
                        producer_id=1,
                        producer_epoch=0,
                        verify_only=verify_only,
                        topics=[
                            wire.AddPartitionsToTxnTopic(name=name, partitions=[0])
                            for name in topics
                        ],
                    )
                ]
            )
            for verify_only in (True, False)
        ]
    return [
        wire.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="t",
            v3_and_below_producer_id=1,
            v3_and_below_producer_epoch=0,
            v3_and_below_topics=[
                wire.AddPartitionsToTxnTopic(name=name, partitions=[0]) for name in topics
            ],
        )
    ]


def _add_offsets_to_txn(version, topics, topic_id, group):
    return [
        wire.AddOffsetsToTxnRequest(
            transactional_id="t", producer_id=1, producer_epoch=0, group_id=group
        )
    ]


def _end_txn(version, topics, topic_id, group):
    return [
        wire.EndTxnRequest(
            transactional_id="t", producer_id=1, producer_epoch=0, committed=committed
        )
        for committed in (True, False)
    ]


def _write_txn_markers(version, topics, topic_id, group):
    return [
        wire.WriteTxnMarkersRequest(
            markers=[
                wire.WritableTxnMarker(
                    producer_id=1,
                    producer_epoch=0,
                    transaction_result=True,
                    topics=[
                        wire.WritableTxnMarkerTopic(name=name, partition_indexes=[0])
                        for name in topics
                    ],
                    coordinator_epoch=0,
                )
            ]
        )
    ]


def _txn_offset_commit(version, topics, topic_id, group):
    return [
        wire.TxnOffsetCommitRequest(
            transactional_id="t",
            group_id=group,
            producer_id=1,
            producer_epoch=0,
            topics=[
                wire.TxnOffsetCommitRequestTopic(
                    name=name,
                    partitions=[
                        wire.TxnOffsetCommitRequestPartition(
                            partition_index=0, committed_offset=1, committed_metadata=""
                        )
                    ],
                )
                for name in topics
            ],
        )
    ]


def _offset_for_leader_epoch(version, topics, topic_id, group):
    return [
        wire.OffsetForLeaderEpochRequest(
            topics=[
                wire.OffsetForLeaderTopic(
                    topic=name,
                    partitions=[wire.OffsetForLeaderPartition(partition=0, leader_epoch=0)],
                )
                for name in topics
            ]
        )
    ]


def _resources(topics, group):
    return [(TOPIC, name) for name in topics] + [(BROKER, "0"), (GROUP, group)]


def _describe_configs(version, topics, topic_id, group):
    return [
        wire.DescribeConfigsRequest(
            resources=[
                wire.DescribeConfigsResource(
                    resource_type=kind, resource_name=name, configuration_keys=None
                )
                for kind, name in _resources(topics, group)
            ]
        )
    ]


def _alter_configs(version, topics, topic_id, group):
    return [
        wire.AlterConfigsRequest(
            validate_only=False,
            resources=[
                wire.AlterConfigsResource(
                    resource_type=kind,
                    resource_name=name,
                    configs=[
                        wire.AlterConfigsAlterableConfig(name=setting, value="50000")
                        for setting in [_SETTINGS[kind]]
                    ],
                )
                for kind, name in _resources(topics, group)
            ],
        )
    ]


_SETTINGS = {
    TOPIC: "retention.ms",
    BROKER: "log.retention.ms",
    GROUP: "consumer.session.timeout.ms",
}


def _incremental_alter_configs(version, topics, topic_id, group):
    return [
        wire.IncrementalAlterConfigsRequest(
            validate_only=False,
            resources=[
                wire.IncrementalAlterConfigsResource(
                    resource_type=kind,
                    resource_name=name,
                    configs=[
                        wire.IncrementalAlterConfigsAlterableConfig(
                            name=_SETTINGS[kind], config_operation=0, value="50000"
                        )
                    ],
                )
                for kind, name in _resources(topics, group)
            ],
        )
    ]


def _describe_log_dirs(version, topics, topic_id, group):
    return [wire.DescribeLogDirsRequest(topics=None)]


def _create_partitions(version, topics, topic_id, group):
    return [
        wire.CreatePartitionsRequest(
            topics=[
                wire.CreatePartitionsTopic(name=name, count=7, assignments=None) for name in topics
            ],
            timeout_ms=1000,
            validate_only=False,
        )
    ]


def _delete_groups(version, topics, topic_id, group):
    return [wire.DeleteGroupsRequest(groups_names=[group])]


def _elect_leaders(version, topics, topic_id, group):
    asked = [wire.ElectLeadersTopicPartitions(topic=name, partitions=[0]) for name in topics]
    return [
        wire.ElectLeadersRequest(topic_partitions=each, timeout_ms=1000) for each in (asked, None)
    ]


def _alter_partition_reassignments(version, topics, topic_id, group):
    return [
        wire.AlterPartitionReassignmentsRequest(
            topics=[
                wire.ReassignableTopic(
                    name=name,
                    partitions=[wire.ReassignablePartition(partition_index=0, replicas=[0])],
                )
                for name in topics
            ]
        )
    ]


def _list_partition_reassignments(version, topics, topic_id, group):
    return [wire.ListPartitionReassignmentsRequest(topics=None)]


def _offset_delete(version, topics, topic_id, group):
    return [
        wire.OffsetDeleteRequest(
            group_id=group,
            topics=[
                wire.OffsetDeleteRequestTopic(
                    name=name, partitions=[wire.OffsetDeleteRequestPartition(partition_index=0)]
                )
                for name in topics
            ],
        )
    ]


def _describe_quorum(version, topics, topic_id, group):
    return [
        wire.DescribeQuorumRequest(
            topics=[
                wire.DescribeQuorumTopicData(
                    topic_name=name,
                    partitions=[wire.DescribeQuorumPartitionData(partition_index=0)],
                )
            ]
        )
        for name in (*topics, "__cluster_metadata")
    ]


def _describe_client_quotas(version, topics, topic_id, group):
    return [wire.DescribeClientQuotasRequest()]


def _alter_client_quotas(version, topics, topic_id, group):
    entity = wire.AlterClientQuotasEntityData(entity_type="user", entity_name="u")
    op = wire.AlterClientQuotasOpData(key="producer_byte_rate", value=2.0**40)
    return [
        wire.AlterClientQuotasRequest(
            entries=[wire.AlterClientQuotasEntryData(entity=[entity], ops=[op])]
        )
    ]


def _update_features(version, topics, topic_id, group):
    update = wire.FeatureUpdateKey(feature="metadata.version", max_version_level=24)
    if version >= 1:
        update.upgrade_type = 2
    else:
        update.allow_downgrade = True
    return [wire.UpdateFeaturesRequest(feature_updates=[update])]


def _unregister_broker(version, topics, topic_id, group):
    return [wire.UnregisterBrokerRequest(broker_id=7)]


def _describe_cluster(version, topics, topic_id, group):
    return [wire.DescribeClusterRequest(include_cluster_authorized_operations=True)]


def _consumer_group_heartbeat(version, topics, topic_id, group):
    return [
        wire.ConsumerGroupHeartbeatRequest(
            group_id=f"{group}.new",
            member_id="m" if version else "",
            member_epoch=0,
            rebalance_timeout_ms=1000,
            subscribed_topic_names=list(topics),
            topic_partitions=[],
        )
    ]


def _consumer_group_describe(version, topics, topic_id, group):
    return [
        wire.ConsumerGroupDescribeRequest(
            group_ids=[group, f"{group}.new"], include_authorized_operations=True
        )
    ]


def _list_config_resources(version, topics, topic_id, group):
    return [wire.ListConfigResourcesRequest()]


def _describe_topic_partitions(version, topics, topic_id, group):
    asked = [wire.DescribeTopicPartitionsTopicRequest(name=name) for name in topics]
    return [wire.DescribeTopicPartitionsRequest(topics=each) for each in (asked, [])]


def _describe_producers(version, topics, topic_id, group):
    return [
        wire.DescribeProducersRequest(
            topics=[
                wire.DescribeProducersTopicRequest(name=name, partition_indexes=[0])
                for name in topics
            ]
        )
    ]


def _describe_transactions(version, topics, topic_id, group):
    return [wire.DescribeTransactionsRequest(transactional_ids=["t"])]


def _list_transactions(version, topics, topic_id, group):
    return [wire.ListTransactionsRequest()]


def _describe_acls(version, topics, topic_id, group):
    return [
        wire.DescribeAclsRequest(
            resource_type_filter=kind,
            resource_name_filter=name,
            pattern_type_filter=pattern,
            principal_filter=None,
            host_filter=None,
            operation=1,
            permission_type=1,
        )
        for kind, name, pattern in ((1, None, 1), *((2, topic, 2) for topic in topics))
    ]


def _create_acls(version, topics, topic_id, group):
    return [
        wire.CreateAclsRequest(
            creations=[
                wire.AclCreation(
                    resource_type=2,
                    resource_name=name,
                    resource_pattern_type=pattern,
                    principal="User:somebody",
                    host="*",
                    operation=4,
                    permission_type=3,
                )
                for name in topics
                for pattern in (3, 4)
            ]
        )
    ]


def _delete_acls(version, topics, topic_id, group):
    return [
        wire.DeleteAclsRequest(
            filters=[
                wire.DeleteAclsFilter(
                    resource_type_filter=2,
                    resource_name_filter=name,
                    pattern_type_filter=2,
                    principal_filter="User:somebody",
                    host_filter=None,
                    operation=1,
                    permission_type=1,
                )
                for name in topics
            ]
        )
    ]


def _sasl_handshake(version, topics, topic_id, group):
    return [wire.SaslHandshakeRequest(mechanism="PLAIN")]


def _sasl_authenticate(version, topics, topic_id, group):
    return [wire.SaslAuthenticateRequest(auth_bytes=b"\0alice\0secret")]


def _describe_user_scram_credentials(version, topics, topic_id, group):
    return [
        wire.DescribeUserScramCredentialsRequest(users=[wire.UserName(name="alice")]),
        wire.DescribeUserScramCredentialsRequest(users=None),
    ]


def _alter_user_scram_credentials(version, topics, topic_id, group):
    return [
        wire.AlterUserScramCredentialsRequest(
            deletions=[wire.ScramCredentialDeletion(name="bob", mechanism=1)],
            upsertions=[
                wire.ScramCredentialUpsertion(
                    name="alice",
                    mechanism=1,
                    iterations=4096,
                    salt=b"salt",
                    salted_password=b"salted",
                )
            ],
        )
    ]


BUILDERS = {
    0: _produce,
    1: _fetch,
    2: _list_offsets,
    3: _metadata,
    8: _offset_commit,
    9: _offset_fetch,
    10: _find_coordinator,
    11: _join_group,
    12: _heartbeat,
    13: _leave_group,
    14: _sync_group,
    15: _describe_groups,
    16: _list_groups,
    17: _sasl_handshake,
    18: _api_versions,
    19: _create_topics,
    20: _delete_topics,
    21: _delete_records,
    22: _init_producer_id,
    23: _offset_for_leader_epoch,
    24: _add_partitions_to_txn,
    25: _add_offsets_to_txn,
    26: _end_txn,
    27: _write_txn_markers,
    28: _txn_offset_commit,
    29: _describe_acls,
    30: _create_acls,
    31: _delete_acls,
    32: _describe_configs,
    33: _alter_configs,
    35: _describe_log_dirs,
    36: _sasl_authenticate,
    37: _create_partitions,
    42: _delete_groups,
    43: _elect_leaders,
    44: _incremental_alter_configs,
    45: _alter_partition_reassignments,
    46: _list_partition_reassignments,
    47: _offset_delete,
    48: _describe_client_quotas,
    49: _alter_client_quotas,
    50: _describe_user_scram_credentials,
    51: _alter_user_scram_credentials,
    55: _describe_quorum,
    57: _update_features,
    60: _describe_cluster,
    61: _describe_producers,
    64: _unregister_broker,
    65: _describe_transactions,
    66: _list_transactions,
    68: _consumer_group_heartbeat,
    69: _consumer_group_describe,
    74: _list_config_resources,
    75: _describe_topic_partitions,
}
