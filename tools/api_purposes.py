"""What the requests of each API do, for the headlines of the modules in aiokq/wire.

Kafka's message definitions have no such text. `generate_messages.py` uses this table, and its check
compares the headlines with it.
"""

from __future__ import annotations

from typing import Final

__all__ = ["PURPOSES", "headline_of"]

PURPOSES: Final = {
    "AddOffsetsToTxn": "add the offset commits of a group to a transaction",
    "AddPartitionsToTxn": "add partitions to a transaction, before their first record",
    "AlterClientQuotas": "change the quotas of users, client ids and addresses",
    "AlterConfigs": "replace all configs of topics, brokers or groups",
    "AlterPartitionReassignments": "move replicas of partitions to other brokers",
    "AlterUserScramCredentials": "set or delete the SCRAM credentials of users",
    "ApiVersions": "return the APIs and versions that a broker supports",
    "ConsumerGroupDescribe": "describe groups of the consumer protocol (KIP-848)",
    "ConsumerGroupHeartbeat": "join, stay in or leave a group of the consumer protocol",
    "CreateAcls": "create access control lists (ACLs)",
    "CreatePartitions": "add partitions to topics",
    "CreateTopics": "create topics",
    "DeleteAcls": "delete the access control lists (ACLs) that match filters",
    "DeleteGroups": "delete groups and their committed offsets",
    "DeleteRecords": "delete the records of partitions before given offsets",
    "DeleteTopics": "delete topics",
    "DescribeAcls": "list the access control lists (ACLs) that match a filter",
    "DescribeClientQuotas": "list the quotas of users, client ids and addresses",
    "DescribeCluster": "describe the brokers, the controller and the id of the cluster",
    "DescribeConfigs": "describe the configs of topics, brokers or groups",
    "DescribeGroups": "describe groups of the classic protocol and their members",
    "DescribeLogDirs": "describe the log directories and replicas of a broker",
    "DescribeProducers": "describe the active producers of partitions",
    "DescribeQuorum": "describe the KRaft quorum of the metadata log",
    "DescribeTopicPartitions": "describe the partitions of topics, page by page",
    "DescribeTransactions": "describe transactions by transactional id",
    "DescribeUserScramCredentials": "list the SCRAM mechanisms of users",
    "ElectLeaders": "elect the leaders of partitions",
    "EndTxn": "commit or abort a transaction",
    "Fetch": "read batches of records from partitions",
    "FindCoordinator": "find the broker that coordinates a group or transactional id",
    "Heartbeat": "keep a member in a classic group, and notify it of rebalances",
    "IncrementalAlterConfigs": "change single configs of topics, brokers or groups",
    "InitProducerId": "obtain a producer id and epoch, and fence older producers",
    "JoinGroup": "join a classic group, and take part in its next generation",
    "LeaveGroup": "remove members from a classic group",
    "ListConfigResources": "list the resources that have configs",
    "ListGroups": "list the groups that a broker coordinates",
    "ListOffsets": "find the first or last offset of partitions, or one by timestamp",
    "ListPartitionReassignments": "list the reassignments of partitions in progress",
    "ListTransactions": "list the transactions that a broker coordinates",
    "Metadata": "describe brokers, topics, and the leaders of partitions",
    "OffsetCommit": "commit offsets of a group",
    "OffsetDelete": "delete committed offsets of a group",
    "OffsetFetch": "return the committed offsets of groups",
    "OffsetForLeaderEpoch": "return the end offsets of leader epochs in partitions",
    "Produce": "append batches of records to partitions",
    "SaslAuthenticate": "send one message of a SASL exchange",
    "SaslHandshake": "choose the SASL mechanism of a connection",
    "SyncGroup": "distribute the leader's assignments to the members of a classic group",
    "TxnOffsetCommit": "commit offsets of a group as part of a transaction",
    "UnregisterBroker": "remove the registration of a broker",
    "UpdateFeatures": "change the levels of the cluster's features",
    "WriteTxnMarkers": "write transaction markers to partitions (sent by coordinators)",
}
"""The purposes by the name of the API."""


def headline_of(api: str, key: int) -> str:
    """Return the first line of the module with the messages of an API."""
    purpose = PURPOSES.get(api)
    if purpose is None:
        return f"{api} (API key {key}): its request and its response."
    return f"{api} (API key {key}): {purpose}."
