"""aiokq: Kafka for asyncio.

    async with aiokq.Cluster("localhost:9092") as cluster:
        async with cluster.producer() as producer:
            metadata = await producer.send("orders", b"value", key=b"key")

Names are imported when they are first used, so that `import aiokq` is fast and the broker does not
load the client. The public API is `__all__` of this module and of the public modules
`aiokq.errors`, `aiokq.wire`, `aiokq.metrics`, `aiokq.gateway`, `aiokq.spark` and `aiokq.testing`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from aiokq._version import __version__

if TYPE_CHECKING:
    from aiokq import errors, metrics, wire
    from aiokq.admin.acls import AclCreated, AclFilter, AclsDeleted
    from aiokq.admin.client import Admin
    from aiokq.admin.clusters import BrokerDescription, ClusterDescription
    from aiokq.admin.config_types import (
        AlterOperation,
        ConfigChange,
        ConfigDescription,
        ConfigEntry,
        ConfigResource,
        ConfigResourceType,
        ConfigsAltered,
        ConfigSource,
        ConfigSynonym,
    )
    from aiokq.admin.features import (
        FeatureMetadata,
        FeatureUpdate,
        FeatureUpdated,
        FinalizedVersionRange,
        SupportedVersionRange,
    )
    from aiokq.admin.group_import import GroupOffsetImported
    from aiokq.admin.group_listing import GroupListings
    from aiokq.admin.group_reset import ResetTo
    from aiokq.admin.group_types import (
        GroupDeleted,
        GroupDescription,
        GroupLag,
        GroupListing,
        GroupOffsetAltered,
        GroupOffsetDeleted,
        GroupOffsetReset,
        GroupOffsets,
        GroupState,
        GroupType,
        MemberDescription,
        MemberRemoved,
        PartitionLag,
    )
    from aiokq.admin.log_dirs import BrokerLogDirs, LogDirDescription, ReplicaInfo
    from aiokq.admin.offsets import OffsetListing
    from aiokq.admin.partitions import NewPartitions, PartitionsCreated
    from aiokq.admin.placement import LeaderElected, PartitionReassigned, Reassignment
    from aiokq.admin.quorum import QuorumInfo, QuorumNode, QuorumReplicaState, RaftVoterEndpoint
    from aiokq.admin.quotas import ClientQuotaAltered, ClientQuotaEntity, QuotaName
    from aiokq.admin.records import RecordsDeleted
    from aiokq.admin.results import ItemResult, Results
    from aiokq.admin.settings import AdminSettings
    from aiokq.admin.topics import (
        NewTopic,
        PartitionDescription,
        TopicCreated,
        TopicDeleted,
        TopicDescription,
        TopicListing,
    )
    from aiokq.admin.transaction_listing import TransactionListings
    from aiokq.admin.transaction_types import (
        AbortTransactionSpec,
        FencedProducer,
        PartitionProducers,
        ProducerState,
        TransactionDescription,
        TransactionListing,
        TransactionState,
    )
    from aiokq.admin.users import (
        ScramCredential,
        ScramDeletion,
        ScramUpsertion,
        UserScramAltered,
        UserScramCredentials,
    )
    from aiokq.assign.assignor import Assignor
    from aiokq.assign.model import Assignment, RebalanceProtocol, Subscription, Topology
    from aiokq.broker.embedded import EmbeddedCluster
    from aiokq.broker.security.authentication.expiring_login import ExpiringLogin
    from aiokq.broker.security.quotas.shared_quota import SharedQuota
    from aiokq.client.blocking import run_blocking
    from aiokq.client.cluster import Cluster
    from aiokq.client.health import ClusterHealth
    from aiokq.client.process.options import ProcessReport
    from aiokq.client.registry import Registry, RegistryChange, RegistryChangeKind, RegistryWatch
    from aiokq.client.registry_tree import RegistryNode
    from aiokq.client.standalone import process
    from aiokq.cluster.event_stream import EventStream
    from aiokq.cluster.events import (
        Assigned,
        BrokerDown,
        BrokerUp,
        DeadLettered,
        DeliveriesFailed,
        Event,
        LeaderChanged,
        LoopStalled,
        Lost,
        PartitionFailed,
        PartitionRecovered,
        PartitionsAdded,
        ProcessAborted,
        Revoked,
        Throttled,
        TopicAdded,
        TopicRecreated,
        TopicRemoved,
    )
    from aiokq.cluster.metadata import BrokerInfo, ClusterMetadata, PartitionInfo, TopicInfo
    from aiokq.cluster.partition_records import PartitionRecords
    from aiokq.cluster.settings import ClusterSettings
    from aiokq.connection.principal import Principal
    from aiokq.connection.sasl.oauth_token import OAuthToken
    from aiokq.consumer.batch import RecordBatch
    from aiokq.consumer.consumer import Consumer
    from aiokq.consumer.deserializers import DeserializedRecord, Deserializer
    from aiokq.consumer.health import BrokerHealth, ConsumerHealth, GroupHealth, PartitionHealth
    from aiokq.consumer.rebalance_handlers import RebalanceHandler
    from aiokq.consumer.settings import ConsumerSettings
    from aiokq.consumer.streams import Stream
    from aiokq.core.acl_types import Operation, PatternType, PermissionType, ResourceType
    from aiokq.core.acls import Acl
    from aiokq.core.errors import (
        BootstrapFailed,
        BrokerError,
        BufferFull,
        Closed,
        CommitOutcomeUnknown,
        ConfigError,
        ConnectionLost,
        DeliveryFailed,
        KafkaError,
        ProducerFenced,
        ProtocolError,
        RequestTimeout,
        TransactionAborted,
        WrongLoop,
    )
    from aiokq.core.types import (
        GroupMetadata,
        OffsetAndMetadata,
        OffsetAndTimestamp,
        TopicFilter,
        TopicPartition,
    )
    from aiokq.fastpath.consume import Record
    from aiokq.fastpath.produce import Delivery, Outgoing, RecordColumns, RecordMetadata
    from aiokq.producer.batch_builder import BatchBuilder
    from aiokq.producer.close_report import CloseReport
    from aiokq.producer.deliveries import Deliveries
    from aiokq.producer.health import ProducerHealth
    from aiokq.producer.interceptors import BatchInfo, Interceptor, ProducerRecord
    from aiokq.producer.partitioner import Partitioner
    from aiokq.producer.produce_once import ProduceResult
    from aiokq.producer.producer import Producer
    from aiokq.producer.serializers import Serializer
    from aiokq.producer.settings import ProducerSettings
    from aiokq.producer.transactions.transaction import Transaction, TransactionOutcome

__all__ = [
    "__version__",
    # clients
    "Admin",
    "Cluster",
    "Consumer",
    "EmbeddedCluster",
    "Producer",
    # settings
    "AdminSettings",
    "ClusterSettings",
    "ConsumerSettings",
    "OAuthToken",
    "ProducerSettings",
    # records
    "Deliveries",
    "Delivery",
    "PartitionRecords",
    "Record",
    "RecordColumns",
    "RecordMetadata",
    # arguments and results of the producer
    "BatchBuilder",
    "BatchInfo",
    "CloseReport",
    "Interceptor",
    "Partitioner",
    "ProduceResult",
    "ProducerHealth",
    "ProducerRecord",
    "Serializer",
    "Transaction",
    "TransactionOutcome",
    # arguments and results of process()
    "Outgoing",
    "ProcessReport",
    "process",
    # arguments and results of the consumer
    "BrokerHealth",
    "ConsumerHealth",
    "DeserializedRecord",
    "Deserializer",
    "GroupHealth",
    "PartitionHealth",
    "RebalanceHandler",
    "RecordBatch",
    "Stream",
    # blocking handlers
    "run_blocking",
    # custom assignors
    "Assignment",
    "Assignor",
    "RebalanceProtocol",
    "Subscription",
    "Topology",
    # partitions, offsets, metadata
    "BrokerInfo",
    "ClusterHealth",
    "ClusterMetadata",
    "GroupMetadata",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "PartitionInfo",
    "TopicFilter",
    "TopicInfo",
    "TopicPartition",
    # arguments and results of the admin client
    "AbortTransactionSpec",
    "Acl",
    "AclCreated",
    "AclFilter",
    "AclsDeleted",
    "AlterOperation",
    "BrokerDescription",
    "BrokerLogDirs",
    "ClientQuotaAltered",
    "ClientQuotaEntity",
    "ClusterDescription",
    "ConfigChange",
    "ConfigDescription",
    "ConfigEntry",
    "ConfigResource",
    "ConfigResourceType",
    "ConfigSource",
    "ConfigSynonym",
    "ConfigsAltered",
    "FeatureMetadata",
    "FeatureUpdate",
    "FeatureUpdated",
    "FencedProducer",
    "FinalizedVersionRange",
    "GroupDeleted",
    "GroupDescription",
    "GroupLag",
    "GroupListing",
    "GroupListings",
    "GroupOffsetAltered",
    "GroupOffsetDeleted",
    "GroupOffsetImported",
    "GroupOffsetReset",
    "GroupOffsets",
    "GroupState",
    "GroupType",
    "ItemResult",
    "LeaderElected",
    "LogDirDescription",
    "MemberDescription",
    "MemberRemoved",
    "NewPartitions",
    "NewTopic",
    "OffsetListing",
    "Operation",
    "PartitionDescription",
    "PartitionLag",
    "PartitionProducers",
    "PartitionReassigned",
    "PartitionsCreated",
    "PatternType",
    "PermissionType",
    "ProducerState",
    "QuorumInfo",
    "QuorumNode",
    "QuorumReplicaState",
    "QuotaName",
    "RaftVoterEndpoint",
    "Reassignment",
    "RecordsDeleted",
    "ReplicaInfo",
    "ResetTo",
    "ResourceType",
    "Results",
    "ScramCredential",
    "ScramDeletion",
    "ScramUpsertion",
    "SupportedVersionRange",
    "TopicCreated",
    "TopicDeleted",
    "TopicDescription",
    "TopicListing",
    "TransactionDescription",
    "TransactionListing",
    "TransactionListings",
    "TransactionState",
    "UserScramAltered",
    "UserScramCredentials",
    # security
    "ExpiringLogin",
    "Principal",
    "SharedQuota",
    # registry
    "Registry",
    "RegistryChange",
    "RegistryChangeKind",
    "RegistryNode",
    "RegistryWatch",
    # events
    "Assigned",
    "BrokerDown",
    "BrokerUp",
    "DeadLettered",
    "DeliveriesFailed",
    "Event",
    "EventStream",
    "LeaderChanged",
    "LoopStalled",
    "Lost",
    "PartitionFailed",
    "PartitionRecovered",
    "PartitionsAdded",
    "ProcessAborted",
    "Revoked",
    "Throttled",
    "TopicAdded",
    "TopicRecreated",
    "TopicRemoved",
    # errors; aiokq.errors has all errors
    "BootstrapFailed",
    "BrokerError",
    "BufferFull",
    "Closed",
    "CommitOutcomeUnknown",
    "ConfigError",
    "ConnectionLost",
    "DeliveryFailed",
    "KafkaError",
    "ProducerFenced",
    "ProtocolError",
    "RequestTimeout",
    "TransactionAborted",
    "WrongLoop",
    # modules
    "errors",
    "metrics",
    "wire",
]

# The public names by the module that defines them. A test compares this table with the imports
# above, which only type checkers read.
_HOMES = {
    "aiokq.admin.acls": ["AclCreated", "AclFilter", "AclsDeleted"],
    "aiokq.admin.client": ["Admin"],
    "aiokq.admin.clusters": ["BrokerDescription", "ClusterDescription"],
    "aiokq.admin.config_types": [
        "AlterOperation",
        "ConfigChange",
        "ConfigDescription",
        "ConfigEntry",
        "ConfigResource",
        "ConfigResourceType",
        "ConfigSource",
        "ConfigSynonym",
        "ConfigsAltered",
    ],
    "aiokq.admin.features": [
        "FeatureMetadata",
        "FeatureUpdate",
        "FeatureUpdated",
        "FinalizedVersionRange",
        "SupportedVersionRange",
    ],
    "aiokq.admin.group_import": ["GroupOffsetImported"],
    "aiokq.admin.group_listing": ["GroupListings"],
    "aiokq.admin.group_reset": ["ResetTo"],
    "aiokq.admin.group_types": [
        "GroupDeleted",
        "GroupDescription",
        "GroupLag",
        "GroupListing",
        "GroupOffsetAltered",
        "GroupOffsetDeleted",
        "GroupOffsetReset",
        "GroupOffsets",
        "GroupState",
        "GroupType",
        "MemberDescription",
        "MemberRemoved",
        "PartitionLag",
    ],
    "aiokq.admin.offsets": ["OffsetListing"],
    "aiokq.admin.partitions": ["NewPartitions", "PartitionsCreated"],
    "aiokq.admin.log_dirs": ["BrokerLogDirs", "LogDirDescription", "ReplicaInfo"],
    "aiokq.admin.placement": ["LeaderElected", "PartitionReassigned", "Reassignment"],
    "aiokq.admin.quorum": ["QuorumInfo", "QuorumNode", "QuorumReplicaState", "RaftVoterEndpoint"],
    "aiokq.admin.quotas": ["ClientQuotaAltered", "ClientQuotaEntity", "QuotaName"],
    "aiokq.admin.records": ["RecordsDeleted"],
    "aiokq.admin.results": ["ItemResult", "Results"],
    "aiokq.admin.settings": ["AdminSettings"],
    "aiokq.admin.topics": [
        "NewTopic",
        "PartitionDescription",
        "TopicCreated",
        "TopicDeleted",
        "TopicDescription",
        "TopicListing",
    ],
    "aiokq.admin.transaction_listing": ["TransactionListings"],
    "aiokq.admin.transaction_types": [
        "AbortTransactionSpec",
        "FencedProducer",
        "PartitionProducers",
        "ProducerState",
        "TransactionDescription",
        "TransactionListing",
        "TransactionState",
    ],
    "aiokq.admin.users": [
        "ScramCredential",
        "ScramDeletion",
        "ScramUpsertion",
        "UserScramAltered",
        "UserScramCredentials",
    ],
    "aiokq.assign.assignor": ["Assignor"],
    "aiokq.assign.model": ["Assignment", "RebalanceProtocol", "Subscription", "Topology"],
    "aiokq.broker.embedded": ["EmbeddedCluster"],
    "aiokq.broker.security.authentication.expiring_login": ["ExpiringLogin"],
    "aiokq.broker.security.quotas.shared_quota": ["SharedQuota"],
    "aiokq.client.blocking": ["run_blocking"],
    "aiokq.client.cluster": ["Cluster"],
    "aiokq.client.health": ["ClusterHealth"],
    "aiokq.client.process.options": ["ProcessReport"],
    "aiokq.client.standalone": ["process"],
    "aiokq.client.registry": ["Registry", "RegistryChange", "RegistryChangeKind", "RegistryWatch"],
    "aiokq.client.registry_tree": ["RegistryNode"],
    "aiokq.cluster.event_stream": ["EventStream"],
    "aiokq.cluster.events": [
        "Assigned",
        "BrokerDown",
        "BrokerUp",
        "DeadLettered",
        "DeliveriesFailed",
        "Event",
        "LeaderChanged",
        "LoopStalled",
        "Lost",
        "PartitionFailed",
        "PartitionRecovered",
        "PartitionsAdded",
        "ProcessAborted",
        "Revoked",
        "Throttled",
        "TopicAdded",
        "TopicRecreated",
        "TopicRemoved",
    ],
    "aiokq.cluster.metadata": ["BrokerInfo", "ClusterMetadata", "PartitionInfo", "TopicInfo"],
    "aiokq.cluster.partition_records": ["PartitionRecords"],
    "aiokq.cluster.settings": ["ClusterSettings"],
    "aiokq.connection.principal": ["Principal"],
    "aiokq.connection.sasl.oauth_token": ["OAuthToken"],
    "aiokq.consumer.batch": ["RecordBatch"],
    "aiokq.consumer.consumer": ["Consumer"],
    "aiokq.consumer.deserializers": ["DeserializedRecord", "Deserializer"],
    "aiokq.consumer.rebalance_handlers": ["RebalanceHandler"],
    "aiokq.consumer.health": ["BrokerHealth", "ConsumerHealth", "GroupHealth", "PartitionHealth"],
    "aiokq.consumer.settings": ["ConsumerSettings"],
    "aiokq.consumer.streams": ["Stream"],
    "aiokq.core.acl_types": ["Operation", "PatternType", "PermissionType", "ResourceType"],
    "aiokq.core.acls": ["Acl"],
    "aiokq.core.errors": [
        "BootstrapFailed",
        "BrokerError",
        "BufferFull",
        "Closed",
        "CommitOutcomeUnknown",
        "ConfigError",
        "ConnectionLost",
        "DeliveryFailed",
        "KafkaError",
        "ProducerFenced",
        "ProtocolError",
        "RequestTimeout",
        "TransactionAborted",
        "WrongLoop",
    ],
    "aiokq.core.types": [
        "GroupMetadata",
        "OffsetAndMetadata",
        "OffsetAndTimestamp",
        "TopicFilter",
        "TopicPartition",
    ],
    "aiokq.fastpath.consume": ["Record"],
    "aiokq.fastpath.produce": ["Delivery", "Outgoing", "RecordColumns", "RecordMetadata"],
    "aiokq.producer.batch_builder": ["BatchBuilder"],
    "aiokq.producer.deliveries": ["Deliveries"],
    "aiokq.producer.health": ["ProducerHealth"],
    "aiokq.producer.interceptors": ["BatchInfo", "Interceptor", "ProducerRecord"],
    "aiokq.producer.partitioner": ["Partitioner"],
    "aiokq.producer.produce_once": ["ProduceResult"],
    "aiokq.producer.producer": ["Producer"],
    "aiokq.producer.transactions.transaction": ["Transaction", "TransactionOutcome"],
    "aiokq.producer.close_report": ["CloseReport"],
    "aiokq.producer.serializers": ["Serializer"],
    "aiokq.producer.settings": ["ProducerSettings"],
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}
_MODULES = ("errors", "metrics", "wire")


def __getattr__(name: str) -> object:
    if name in _MODULES:
        return importlib.import_module(f"aiokq.{name}")
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'aiokq' has no attribute {name!r}")
    value: object = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
