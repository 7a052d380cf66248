"""The static settings of a broker (names, types, ranges, defaults, meanings), and two profiles.

Topic settings are in `metadata.configs.topic_configs`, and TLS and SASL settings in
`security_settings.py`. The broker's start path must not import pydantic, so this module does not
use it.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final, NoReturn

from aiokq.broker.config.authorizer_settings import check_authorizer
from aiokq.broker.config.security_settings import SecuritySettings, prefixed_setting
from aiokq.broker.config.setting import (
    INT_MAX,
    LONG_MAX,
    Declared,
    Setting,
    SettingValue,
    shortened,
)
from aiokq.broker.config.setting import declared as _setting
from aiokq.core.errors import ConfigError


class BrokerSettings(SecuritySettings):
    """The settings of one node: Kafka's names with `_` instead of `.`. Immutable.

    The defaults are Kafka's, unless the description of a setting says otherwise.

    Attributes:
        profile: the name of the profile.
        explicit: the names of settings that the profile or the user gave.
        without_effect: the names of settings that the user gave and that have no effect on this
            broker.
        listener_max_connections: pairs of a listener's name, in capitals, and its
            `listener.name.NAME.max.connections`.
        listener_settings: for each listener's name, in capitals, its settings of TLS and SASL by
            their names without `listener.name.NAME.`, for example `ssl.client.auth` or
            `plain.sasl.jaas.config`. `listener_security.py` reads them.
        listener_max_connection_creation_rates: pairs of a listener's name, in capitals, and its
            `listener.name.NAME.max.connection.creation.rate`.
    """

    def __init__(self, **values: object) -> None:
        """Set the fields in `values`; all other fields have their defaults.

        Raises:
            TypeError: there is no field of this name.
        """
        known = {*BrokerSettings.__annotations__, *SecuritySettings.__annotations__}
        if unknown := values.keys() - known:
            raise TypeError(f"unknown setting: {', '.join(sorted(unknown))}")
        self.__dict__.update(values)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")

    auto_create_topics_enable: bool = _setting(
        True, "Create missing topics on Metadata requests that allow topic creation."
    )
    delete_topic_enable: bool = _setting(
        True, "Allow DeleteTopics; if false, the broker answers TOPIC_DELETION_DISABLED (73)."
    )
    num_partitions: int = _setting(1, "Default number of partitions of a new topic.", at_least=1)
    default_replication_factor: int = _setting(
        1, "Default replication factor of a new topic.", at_least=1, at_most=32767
    )
    min_insync_replicas: int = _setting(
        1,
        "Number of replicas that must be in sync for an append with acks=all. A value above the "
        "replication factor of a partition counts as the replication factor.",
        at_least=1,
    )
    unclean_leader_election_enable: bool = _setting(
        False,
        "Elect a replica that is not in sync if no in-sync replica is left.",
        has_effect=False,
    )

    process_roles: str = _setting(
        "broker,controller",
        "Roles of this node; a node is always both broker and controller.",
        kind="list",
    )
    node_id: int | None = _setting(
        None,
        "Id of this node; --node-id takes precedence. Default: the id stored in the log "
        "directories, or 0 for new directories.",
        kind="int",
        at_least=0,
        nullable=True,
    )
    broker_id: int = _setting(-1, "Older name of node.id.", at_least=-1)
    listeners: str | None = _setting(
        None,
        "Addresses that this node listens on: NAME://host:port, separated by commas; an empty "
        "host means all interfaces, port 0 a free port. --host and --port set the first "
        "listener. Default: PLAINTEXT://127.0.0.1:9092; in an EmbeddedCluster, PLAINTEXT with "
        "its port.",
        kind="list",
        nullable=True,
    )
    advertised_listeners: str | None = _setting(
        None,
        "Addresses that clients of each listener connect to. Default: the addresses in "
        "listeners. An empty host means this machine's name, port 0 the port that is listened "
        "on. --advertise replaces the first address. Without --advertise, --host replaces the host "
        "of the first address if listeners has the same host, and --port replaces its port if "
        "listeners has the same port. A loopback host is also replaced by a --host that is neither "
        "a loopback nor a wildcard address.",
        kind="list",
        nullable=True,
    )
    listener_security_protocol_map: str | None = _setting(
        None,
        "Security protocol of each listener, for example INTERNAL:PLAINTEXT,EXTERNAL:SSL.",
        nullable=True,
    )
    inter_broker_listener_name: str | None = _setting(
        None,
        "Listener for connections from other brokers, PLAINTEXT by default; max.connections "
        "does not apply to it if there are other listeners; see also admin.listener.name.",
        nullable=True,
    )
    security_inter_broker_protocol: str = _setting(
        "PLAINTEXT",
        "Security protocol that selects the listener for other brokers if "
        "inter.broker.listener.name is not set.",
    )
    controller_listener_names: str | None = _setting(
        None,
        "Listeners for controllers; they are not opened, because this node is the only voter.",
        kind="list",
        nullable=True,
    )
    admin_listener_name: str | None = _setting(
        None,
        "Listener for administrators; as for the listener for other brokers, max.connections and "
        "max.connection.creation.rate of the node do not apply to it if there are other listeners. "
        "Not Kafka's.",
        nullable=True,
    )
    early_start_listeners: str | None = _setting(
        None,
        "Listeners that open before the others; this broker opens all listeners together.",
        kind="list",
        nullable=True,
        has_effect=False,
    )
    controller_quorum_voters: str = _setting(
        "",
        "Voters of the quorum as id@host:port; only this node is allowed. If it is set, a new "
        "metadata log has no voters of its own (kraft.version 0).",
        kind="list",
    )
    controller_quorum_bootstrap_servers: str = _setting(
        "",
        "Controllers of the quorum as host:port; only this node is allowed. If it is set and "
        "controller.quorum.voters is not, a new metadata log has its voters in the log "
        "(kraft.version 1).",
        kind="list",
    )
    log_dirs: str | None = _setting(
        None,
        "Log directories, separated by commas; --data-dir, which may be repeated, takes "
        "precedence. Default: log.dir.",
        kind="list",
        nullable=True,
        is_path=True,
    )
    log_dir: str | None = _setting(
        None,
        "Log directories if log.dirs is not set.",
        kind="list",
        nullable=True,
        is_path=True,
    )
    metadata_log_dir: str | None = _setting(
        None,
        "Directory of the metadata log. Default: the first log directory.",
        nullable=True,
        is_path=True,
    )
    metadata_log_segment_bytes: int = _setting(
        1073741824,
        "Size of a segment at which the metadata log rolls to a new one.",
        at_least=8388608,
    )
    metadata_log_max_record_bytes_between_snapshots: int = _setting(
        20971520,
        "Bytes appended to the metadata log after which a snapshot of the metadata is written.",
        kind="long",
        at_least=1,
    )

    message_max_bytes: int = _setting(
        1048588, "Maximum size of a record batch, in bytes after compression.", at_least=0
    )
    compression_type: str = _setting(
        "producer",
        "Compression codec of stored batches; `producer` keeps the producer's codec.",
        choices=("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
    )
    compression_gzip_level: int = _setting(
        -1,
        "gzip level of batches that the broker compresses: from 1 (fastest) to 9 (smallest), or "
        "-1 for zlib's default.",
        at_least=-1,
        at_most=9,
    )
    compression_lz4_level: int = _setting(
        9,
        "lz4 level of batches that the broker compresses; 9 is the fast algorithm, all others "
        "are the high-compression algorithm.",
        at_least=1,
        at_most=17,
    )
    compression_zstd_level: int = _setting(
        3,
        "zstd level of batches that the broker compresses: from -131072 (fastest) to 22 "
        "(smallest).",
        at_least=-131072,
        at_most=22,
    )
    log_message_timestamp_type: str = _setting(
        "CreateTime",
        "Timestamp of a record: the one given by the producer (CreateTime), or the time of the "
        "append (LogAppendTime).",
        choices=("CreateTime", "LogAppendTime"),
    )
    log_message_timestamp_before_max_ms: int = _setting(
        LONG_MAX,
        "Maximum time by which the timestamp of a record with CreateTime may be before the "
        "broker's clock.",
        kind="long",
        at_least=0,
    )
    log_message_timestamp_after_max_ms: int = _setting(
        3600000,
        "Maximum time by which the timestamp of a record with CreateTime may be after the "
        "broker's clock.",
        kind="long",
        at_least=0,
    )
    log_segment_bytes: int = _setting(
        1073741824, "Size of a segment at which the log rolls to a new one.", at_least=1048576
    )
    log_roll_ms: int | None = _setting(
        None,
        "Age of a segment at which the log rolls to a new one; overrides log.roll.hours.",
        kind="long",
        at_least=1,
        nullable=True,
    )
    log_roll_hours: int = _setting(
        168, "Age of a segment, in hours, at which the log rolls to a new one.", at_least=1
    )
    log_roll_jitter_ms: int | None = _setting(
        None,
        "Maximum time subtracted from the roll age, so that logs do not roll together; "
        "overrides log.roll.jitter.hours.",
        kind="long",
        at_least=0,
        nullable=True,
    )
    log_roll_jitter_hours: int = _setting(
        0,
        "Maximum number of hours subtracted from the roll age, so that logs do not roll together.",
        at_least=0,
    )
    log_segment_delete_delay_ms: int = _setting(
        60000,
        "Time after which the files of a deleted segment are removed.",
        kind="long",
        at_least=0,
    )
    log_index_interval_bytes: int = _setting(
        4096, "Bytes appended between two entries of the offset index.", at_least=0
    )
    log_index_size_max_bytes: int = _setting(10485760, "Maximum size of an index file.", at_least=4)
    log_preallocate: bool = _setting(False, "Allocate a segment's file in full when it is created.")
    log_cleanup_policy: str = _setting(
        "delete",
        "What happens to old segments: delete, compact, or both, separated by a comma; if it is "
        "empty, they are kept.",
        kind="list",
        choices=("compact", "delete"),
    )
    log_retention_ms: int | None = _setting(
        None,
        "Age of the newest record of a segment at which the segment is deleted, -1 for never; "
        "overrides log.retention.minutes and log.retention.hours.",
        kind="long",
        at_least=-1,
        nullable=True,
    )
    log_retention_minutes: int | None = _setting(
        None,
        "Age of the newest record of a segment, in minutes, at which the segment is deleted, -1 "
        "for never; overrides log.retention.hours.",
        kind="int",
        at_least=-1,
        nullable=True,
    )
    log_retention_hours: int = _setting(
        168,
        "Age of the newest record of a segment, in hours, at which the segment is deleted, -1 for "
        "never.",
        at_least=-1,
    )
    log_retention_bytes: int = _setting(
        -1,
        "Size of a partition's log above which its oldest segments are deleted, -1 for no limit.",
        kind="long",
        at_least=-1,
    )
    log_retention_check_interval_ms: int = _setting(
        300000, "Interval of the retention checks.", kind="long", at_least=1
    )
    log_flush_interval_messages: int = _setting(
        LONG_MAX,
        "Number of unflushed records at which a log is flushed to the disk.",
        kind="long",
        at_least=1,
    )
    log_flush_interval_ms: int | None = _setting(
        None,
        "Maximum time until an appended record is flushed to the disk. Default: no limit; the "
        "operating system writes it.",
        kind="long",
        at_least=0,
        nullable=True,
    )
    num_recovery_threads_per_data_dir: int = _setting(
        2,
        "Largest number of logs in a log directory that are recovered at the same time after an "
        "unclean shutdown; at most 4 over all directories. Small logs are recovered one at a time "
        "unless their recovery mostly waits for the disk.",
        at_least=1,
    )
    log_flush_offset_checkpoint_interval_ms: int = _setting(
        60000, "Interval at which the recovery points are written.", at_least=0
    )
    log_flush_start_offset_checkpoint_interval_ms: int = _setting(
        60000, "Interval at which the log start offsets are written.", at_least=0
    )
    log_cleaner_enable: bool = _setting(True, "Compact logs whose cleanup.policy includes compact.")
    log_cleaner_delete_retention_ms: int = _setting(
        86400000,
        "Time for which tombstones and transaction markers are kept after they were first "
        "compacted.",
        kind="long",
        at_least=0,
    )
    log_cleaner_min_cleanable_ratio: float = _setting(
        0.5,
        "Uncompacted part of a log, from 0 to 1, above which the log is compacted.",
        at_least=0,
        at_most=1,
    )
    log_cleaner_min_compaction_lag_ms: int = _setting(
        0, "Age below which a record is not compacted.", kind="long", at_least=0
    )
    log_cleaner_max_compaction_lag_ms: int = _setting(
        LONG_MAX,
        "Age at which a record in the uncompacted part of a log makes the log due for compaction.",
        kind="long",
        at_least=1,
    )
    log_cleaner_threads: int = _setting(
        1, "Number of logs that are compacted at the same time.", at_least=0
    )
    log_cleaner_backoff_ms: int = _setting(
        15000, "Interval at which the cleaner looks for logs to compact.", kind="long", at_least=0
    )
    log_cleaner_dedupe_buffer_size: int = _setting(
        134217728,
        "Memory of the offset maps of all cleaner threads, in bytes; a key takes 24 bytes. "
        "Allocated during compaction, as far as the records need it.",
        kind="long",
        at_least=1024,
    )
    log_cleaner_io_buffer_size: int = _setting(
        524288,
        "Memory of the read and write buffers of all cleaner threads, in bytes; the buffers "
        "grow for a larger batch.",
        at_least=0,
    )
    log_cleaner_io_buffer_load_factor: float = _setting(
        0.9, "Maximum fill level of the offset map, from 0 to 1.", at_least=0, at_most=1
    )
    log_cleaner_io_max_bytes_per_second: float = _setting(
        1.7976931348623157e308,
        "Maximum number of bytes per second that all cleaner threads together read and write.",
        at_least=1,
    )
    producer_id_expiration_ms: int = _setting(
        86400000, "Time after which the state of an inactive producer is removed.", at_least=1
    )
    producer_id_expiration_check_interval_ms: int = _setting(
        600000, "Interval of the check for inactive producers.", at_least=1
    )
    replica_high_watermark_checkpoint_interval_ms: int = _setting(
        5000, "Interval at which the high watermarks are written.", kind="long", at_least=1
    )

    fetch_max_bytes: int = _setting(
        57671680, "Maximum number of record bytes in one Fetch response.", at_least=1024
    )
    max_incremental_fetch_session_cache_slots: int = _setting(
        1000, "Maximum number of fetch sessions in the cache (KIP-227).", at_least=0
    )
    max_request_partition_size_limit: int = _setting(
        2000, "Maximum number of partitions in one DescribeTopicPartitions response.", at_least=1
    )

    socket_request_max_bytes: int = _setting(
        104857600, "Maximum size of a request frame.", at_least=1
    )
    connections_max_idle_ms: int = _setting(
        600000, "Idle time after which a connection is closed, -1 for never.", kind="long"
    )
    socket_listen_backlog_size: int = _setting(
        1024,
        "Maximum number of connections that wait in the system's queue to be accepted; Kafka's "
        "default is 50.",
        at_least=1,
    )
    socket_send_buffer_bytes: int = _setting(
        -1,
        "SO_SNDBUF of connections, -1 for the system's choice; Kafka's default is 102400.",
        at_least=-1,
    )
    socket_receive_buffer_bytes: int = _setting(
        -1,
        "SO_RCVBUF of connections, -1 for the system's choice; Kafka's default is 102400.",
        at_least=-1,
    )
    queued_max_request_bytes: int = _setting(
        536870912,
        "Maximum bytes of requests that are received but not answered yet, -1 for no limit; "
        "Kafka's default is -1.",
        kind="long",
        at_least=-1,
    )
    max_connections: int = _setting(
        INT_MAX,
        "Maximum number of open connections over all listeners; "
        "listener.name.NAME.max.connections limits those of one listener.",
        at_least=0,
    )
    max_connections_per_ip: int = _setting(
        INT_MAX, "Maximum number of open connections from one address.", at_least=0
    )
    max_connections_per_ip_overrides: str = _setting(
        "",
        "Values of max.connections.per.ip for single addresses or host names, for example "
        "10.0.0.1:100, separated by commas. Names are looked up at the start and at a change.",
    )
    max_connection_creation_rate: int = _setting(
        INT_MAX,
        "Maximum number of new connections per second over all listeners; a connection above it is "
        "closed, where Kafka delays all later ones. "
        "listener.name.NAME.max.connection.creation.rate limits those of one listener.",
        at_least=1,
    )
    quota_window_num: int = _setting(
        11,
        "Number of samples over which the rates of quotas and of new connections are measured; the "
        "last one is not complete.",
        at_least=1,
    )
    quota_window_size_seconds: int = _setting(
        1,
        "Duration of a sample, in seconds. It is also the longest time for which a client is "
        "throttled because of its request_percentage.",
        at_least=1,
    )
    controller_quota_window_num: int = _setting(
        11,
        "Number of samples that count for controller_mutation_rate: a client may create or delete "
        "at once as many partitions as its rate allows in this number of samples.",
        at_least=1,
    )
    controller_quota_window_size_seconds: int = _setting(
        1, "Duration of a sample of controller_mutation_rate, in seconds.", at_least=1
    )
    broker_rack: str | None = _setting(None, "Rack of this node.", kind="string", nullable=True)

    offsets_topic_num_partitions: int = _setting(
        50, "Number of partitions with which __consumer_offsets is created.", at_least=1
    )
    offsets_topic_replication_factor: int = _setting(
        3,
        "Replication factor with which __consumer_offsets is created; capped at the number of "
        "nodes.",
        kind="short",
        at_least=1,
    )
    offsets_topic_segment_bytes: int = _setting(
        104857600,
        "Segment size with which __consumer_offsets is created. With less than 1048576, the least "
        "segment.bytes of a topic, it is not created, and no group has a coordinator, as in Kafka.",
        at_least=1,
    )
    offsets_commit_timeout_ms: int = _setting(
        5000,
        "Time for which a write of the group coordinator waits until the in-sync replicas of "
        "__consumer_offsets have it.",
        at_least=1,
    )
    offsets_retention_minutes: int = _setting(
        10080,
        "Time in minutes for which the committed offsets of an empty group are kept.",
        at_least=1,
    )
    offsets_retention_check_interval_ms: int = _setting(
        600000, "Interval of the check for expired offsets and groups.", kind="long", at_least=1
    )
    offset_metadata_max_bytes: int = _setting(
        4096, "Maximum length, in characters, of the metadata of a committed offset."
    )
    group_initial_rebalance_delay_ms: int = _setting(
        3000,
        "Time for which the first rebalance of an empty classic group waits for more members.",
        at_least=0,
    )
    group_min_session_timeout_ms: int = _setting(
        6000, "Minimum session timeout of a member of a classic group.", at_least=1
    )
    group_max_session_timeout_ms: int = _setting(
        1800000, "Maximum session timeout of a member of a classic group.", at_least=1
    )
    group_max_size: int = _setting(
        INT_MAX, "Maximum number of members of a classic group.", at_least=1
    )
    group_consumer_heartbeat_interval_ms: int = _setting(
        5000, "Default heartbeat interval of the consumer protocol (KIP-848).", at_least=1
    )
    group_consumer_min_heartbeat_interval_ms: int = _setting(
        5000, "Minimum heartbeat interval that a group may set.", at_least=1
    )
    group_consumer_max_heartbeat_interval_ms: int = _setting(
        15000, "Maximum heartbeat interval that a group may set.", at_least=1
    )
    group_consumer_session_timeout_ms: int = _setting(
        45000, "Default session timeout of the consumer protocol (KIP-848).", at_least=1
    )
    group_consumer_min_session_timeout_ms: int = _setting(
        45000, "Minimum session timeout that a group may set.", at_least=1
    )
    group_consumer_max_session_timeout_ms: int = _setting(
        60000, "Maximum session timeout that a group may set.", at_least=1
    )
    group_consumer_assignors: str = _setting(
        "uniform,range",
        "Assignors of the consumer protocol; the first is used if no member requests an assignor.",
        kind="list",
        choices=("uniform", "range"),
    )
    group_consumer_migration_policy: str = _setting(
        "bidirectional",
        "Which groups with members change their protocol: a classic group when a member joins "
        "by the consumer protocol (`upgrade`), a consumer-protocol group when only classic "
        "members are left (`downgrade`), both (`bidirectional`), or none (`disabled`). Empty "
        "groups are always converted.",
        choices=("bidirectional", "upgrade", "downgrade", "disabled"),
        any_case=True,
    )
    group_consumer_max_size: int = _setting(
        INT_MAX, "Maximum number of members of a consumer-protocol group.", at_least=1
    )
    transaction_state_log_num_partitions: int = _setting(
        50, "Number of partitions with which __transaction_state is created.", at_least=1
    )
    transaction_state_log_replication_factor: int = _setting(
        3,
        "Replication factor with which __transaction_state is created; capped at the number of "
        "nodes.",
        kind="short",
        at_least=1,
    )
    transaction_state_log_min_isr: int = _setting(
        2,
        "min.insync.replicas with which __transaction_state is created; capped at the number of "
        "its replicas.",
        at_least=1,
    )
    transaction_state_log_segment_bytes: int = _setting(
        104857600,
        "Segment size with which __transaction_state is created. With less than 1048576, the least "
        "segment.bytes of a topic, it is not created, and no transaction begins, as in Kafka.",
        at_least=1,
    )
    transaction_max_timeout_ms: int = _setting(
        900000, "Maximum transaction timeout that a producer may request.", at_least=1
    )
    transactional_id_expiration_ms: int = _setting(
        604800000,
        "Time after which a transactional id without requests is forgotten; never while it has "
        "an open transaction.",
        at_least=1,
    )
    transaction_remove_expired_transaction_cleanup_interval_ms: int = _setting(
        3600000, "Interval of the check for expired transactional ids.", at_least=1
    )
    transaction_partition_verification_enable: bool = _setting(
        True,
        "Check with the transaction coordinator that a partition is in the transaction before "
        "the first batch of the transaction is appended to it. A request that adds the partition "
        "itself (transaction.version 2) is always checked.",
    )
    add_partitions_to_txn_retry_backoff_max_ms: int = _setting(
        100,
        "Time for which a Produce or TxnOffsetCommit request of a new transaction waits until the "
        "markers of the previous transaction are written.",
        at_least=0,
    )
    max_transactional_ids: int = _setting(
        1000000,
        "Number of transactional ids at which this broker takes no new one. Not Kafka's.",
        at_least=1,
    )

    authorizer_class_name: str = _setting(
        "",
        "Access control by ACLs: org.apache.kafka.metadata.authorizer.StandardAuthorizer. If it is "
        "empty, every client may do everything, and ACLs have no effect.",
    )
    super_users: str = _setting(
        "",
        "Principals that may do everything, such as User:admin;User:CN=ops, separated by "
        "semicolons.",
    )
    allow_everyone_if_no_acl_found: bool = _setting(
        False,
        "Allow every client every operation on a resource that no ACL covers. As soon as an ACL "
        "for any client covers the resource, only ACLs decide about it.",
    )

    legacy: bool = _setting(
        False,
        "Serve the API versions that Kafka 4 dropped (Produce 0-2, Fetch 0-3, ListOffsets 0). "
        "Records in message formats v0 and v1 are converted to v2 when they are produced; these "
        "versions of Fetch return records converted to v0 or v1.",
    )

    profile: str = "kafka"
    explicit: frozenset[str] = frozenset()
    without_effect: tuple[str, ...] = ()
    listener_max_connections: tuple[tuple[str, int], ...] = ()
    listener_settings: Mapping[str, Mapping[str, SettingValue]] = MappingProxyType({})
    listener_max_connection_creation_rates: tuple[tuple[str, int], ...] = ()

    def rows(self) -> Iterator[tuple[Setting, SettingValue]]:
        """Yield each setting with its value, in the order of the table."""
        for row in SETTINGS.values():
            yield row, getattr(self, row.field)

    def value_of(self, name: str) -> SettingValue:
        """Return the value of a setting by Kafka's name. Raises KeyError for an unknown name."""
        value: SettingValue = getattr(self, SETTINGS[name].field)
        return value


def _table() -> dict[str, Setting]:
    """Return a `Setting` for each declaration, and replace the declarations by the defaults."""
    table = {}
    for owner in (BrokerSettings, SecuritySettings):
        for field, declaration in list(vars(owner).items()):
            if isinstance(declaration, Declared):
                kind, doc, *bounds = declaration.row
                name = field.replace("_", ".")
                table[name] = Setting(name, field, kind, declaration.default, doc, *bounds)
                setattr(owner, field, declaration.default)
    return table


SETTINGS: Final[Mapping[str, Setting]] = _table()
"""All settings by Kafka's names."""

PROFILES: Final[Mapping[str, Mapping[str, SettingValue]]] = {
    "kafka": {},
    # These values shorten waits and save space in tests and demos. Records are as durable as with
    # "kafka", except that __consumer_offsets has one replica, also with several nodes.
    "dev": {
        "group.initial.rebalance.delay.ms": 0,  # a group of one member starts immediately
        "group.min.session.timeout.ms": 100,  # tests may let members expire quickly
        "group.consumer.heartbeat.interval.ms": 100,
        "group.consumer.min.heartbeat.interval.ms": 100,
        "group.consumer.min.session.timeout.ms": 1000,
        "offsets.topic.num.partitions": 1,  # one log to open instead of fifty
        "offsets.topic.replication.factor": 1,
        "log.segment.delete.delay.ms": 1000,  # test disks are small
        "log.retention.check.interval.ms": 1000,  # a test of retention waits one second at most
    },
}

_LISTENER_PREFIX: Final = "listener.name."

PER_LISTENER: Final[Mapping[str, str]] = {
    "max.connections": "listener_max_connections",
    "max.connection.creation.rate": "listener_max_connection_creation_rates",
}
"""The limits that may have a value for a single listener, and the fields with these values."""


def broker_settings(
    given: Mapping[str, object] | None = None, *, profile: str = "kafka"
) -> BrokerSettings:
    """Return the settings of a profile, overridden by `given` (Kafka's names, with `.` or `_`).

    Settings of Kafka that have no effect on this broker are accepted and listed in
    `without_effect`. If `given` names config providers, values may have variables such as
    `${env:NAME}`.

    Raises:
        ConfigError: the profile is unknown; or a setting is unknown (the message suggests the
            nearest name), is given twice in different spellings, has the wrong type, is out of
            range, or asks for something that this broker cannot do.
    """
    if not isinstance(profile, str) or profile not in PROFILES:
        raise ConfigError(f"unknown profile {profile!r}: must be one of {', '.join(PROFILES)}")
    if given is not None and not isinstance(given, Mapping):
        raise ConfigError(
            "broker settings must be a mapping of Kafka's setting names to values, for example "
            f"{{'num.partitions': 4}}, not {given!r}"
        )
    if given and "config.providers" in given:
        from aiokq.core.config_providers import resolve_variables  # few starts need it

        given = resolve_variables(given)
    values: dict[str, SettingValue] = dict(PROFILES[profile])
    without_effect: list[str] = []
    of_listeners: dict[str, dict[str, SettingValue]] = {}
    limits: dict[str, dict[str, int]] = {name: {} for name in PER_LISTENER}
    spellings: dict[str, str] = {}
    for spelled, value in (given or {}).items():
        if not isinstance(spelled, str):
            raise ConfigError(f"the name of a broker setting must be a str, not {spelled!r}")
        other = spellings.setdefault(setting_name(spelled), spelled)
        if other != spelled:
            raise ConfigError(
                f"{other!r} and {spelled!r} are two spellings of one broker setting: set it once"
            )
        text = spelled.strip()
        if text.startswith(_LISTENER_PREFIX):  # a listener's name may have `_`, so keep `_`
            listener, _, name = text[len(_LISTENER_PREFIX) :].partition(".")
            if name in limits:
                parsed = SETTINGS[name].renamed(text).parse(value)
                assert isinstance(parsed, int)
                limits[name][listener.upper()] = parsed
            elif (base := prefixed_setting(name)) is not None:
                value_of_listener = SETTINGS[base].renamed(text).parse(value)
                of_listeners.setdefault(listener.upper(), {})[name] = value_of_listener
            else:
                _accept(spelled, name, value, of_listener=True)
                without_effect.append(text)
            continue
        name = text.replace("_", ".")
        row = SETTINGS.get(name)
        if row is None:
            _accept(spelled, name, value)
            without_effect.append(name)
            continue
        values[name] = row.parse(value)
        check_gzip_level(name, values[name])
        if not row.has_effect:
            without_effect.append(name)
    without_effect += check_authorizer(values)
    fields = {SETTINGS[name].field: value for name, value in values.items()}
    return BrokerSettings(
        **fields,
        profile=profile,
        explicit=frozenset(values),
        without_effect=tuple(without_effect),
        listener_settings=MappingProxyType(of_listeners),
        **{PER_LISTENER[name]: tuple(pairs.items()) for name, pairs in limits.items()},
    )


def check_gzip_level(name: str, value: SettingValue) -> None:
    """Refuse the gzip level 0, as Kafka does; a value of any other setting is accepted.

    Raises:
        ConfigError: `name` is compression.gzip.level, and `value` is 0.
    """
    if name == "compression.gzip.level" and value == 0:
        raise ConfigError(f"{name} must be 1 to 9, or -1, not 0")


def setting_name(spelled: str) -> str:
    """Return the name of a setting with `.` between words; a listener's name is in lower case."""
    name = spelled.strip()
    if name.startswith(_LISTENER_PREFIX):  # a listener's name may have `_`, so keep `_`
        listener, dot, rest = name[len(_LISTENER_PREFIX) :].partition(".")
        return f"{_LISTENER_PREFIX}{listener.lower()}{dot}{rest}"
    return name.replace("_", ".")


def _accept(spelled: str, name: str, value: object, *, of_listener: bool = False) -> None:
    from aiokq.broker.config import kafka_settings  # imports a large table, seldom needed

    kafka_settings.accept(spelled, name, value, of_listener=of_listener, known=SETTINGS)


def log_directories(settings: BrokerSettings) -> list[str]:
    """Return the paths in log.dirs or, if that is not set, in log.dir; [] if neither is set.

    Raises:
        ConfigError: a path has a character that no file system path can have.
    """
    name = "log.dir" if settings.log_dirs is None else "log.dirs"
    text = settings.log_dir if settings.log_dirs is None else settings.log_dirs
    paths = [path.strip() for path in (text or "").split(",") if path.strip()]
    for path in paths:
        try:
            valid = b"\0" not in os.fsencode(path)
        except UnicodeEncodeError:
            valid = False
        if not valid:
            raise ConfigError(f"{name}: {shortened(repr(path))} cannot be the path of a directory")
    return paths
