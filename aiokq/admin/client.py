"""Admin, the public class of the admin client. The other modules of the package send requests."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Literal, Never, NoReturn, Self, TypeVar, Unpack
from uuid import UUID

from aiokq.admin import clusters as cluster_calls
from aiokq.admin import config_changes, configs
from aiokq.admin import log_dirs as log_dir_calls
from aiokq.admin import offsets as offset_calls
from aiokq.admin import partitions as partition_calls
from aiokq.admin import records as record_calls
from aiokq.admin import topics as topic_calls
from aiokq.admin.acl_calls import AclCalls
from aiokq.admin.clusters import ClusterDescription
from aiokq.admin.config_types import (
    ChangeLike,
    ConfigDescription,
    ConfigResource,
    ConfigResourceType,
    ConfigsAltered,
    ResourceLike,
)
from aiokq.admin.controller_calls import ControllerCalls
from aiokq.admin.group_calls import GroupCalls
from aiokq.admin.log_dirs import BrokerLogDirs
from aiokq.admin.offsets import OffsetListing
from aiokq.admin.partitions import NewPartitions, PartitionsCreated
from aiokq.admin.placement_calls import PlacementCalls
from aiokq.admin.records import RecordsDeleted
from aiokq.admin.results import Results
from aiokq.admin.topics import NewTopic, TopicCreated, TopicDeleted, TopicDescription, TopicListing
from aiokq.admin.transaction_calls import TransactionCalls
from aiokq.admin.user_calls import UserCalls
from aiokq.admin.values import AdminValues
from aiokq.cluster.constructor_settings import standalone_settings
from aiokq.cluster.engine import ClusterEngine
from aiokq.cluster.loop_binding import refuse_pickling
from aiokq.cluster.offsets import IsolationLevel, OffsetSpec
from aiokq.core import arguments, limits
from aiokq.core.errors import Closed
from aiokq.core.supervisor import warn_unclosed
from aiokq.core.types import TopicPartition

if TYPE_CHECKING:
    from aiokq.admin.overrides import AdminOverrides
    from aiokq.admin.settings import AdminSettings
    from aiokq.core.environment import Environment

__all__ = ["Admin"]

# A Mapping is invariant in its key type: if the key type were a union, a type checker would reject
# a dict whose keys all have one type, such as the result of `end_offsets()`.
P = TypeVar("P", bound=tuple[str, int])
R = TypeVar("R", bound=ResourceLike)


class Admin(GroupCalls, PlacementCalls, TransactionCalls, ControllerCalls, UserCalls, AclCalls):
    """Manage topics, configs, offsets, records, groups, transactions, users and ACLs of a cluster.

    `async with Admin("host:9092") as admin:` opens its own connections; an Admin from
    `cluster.admin()` uses the connections of the `Cluster`. Most calls about several items
    return `Results`: a result per item, whose ``error`` is None on success. The error of an item is
    raised by ``raise_errors=True`` or `Results.raise_for_errors`; any other exception concerns the
    whole call.

    All calls take ``timeout``: seconds for the call with all its retries. The default is
    ``default_api_timeout_ms``. Calls retry after errors that may be temporary (another controller,
    leader changes, lost connections), and raise:

    - RequestTimeout: no request succeeded in time; ``__cause__`` is the last error;
    - UnsupportedVersion: the broker is too old for the request;
    - ConfigError: the arguments contradict each other;
    - ValueError, TypeError: an argument is out of range (seconds must be finite), or not of the
      expected type;
    - Closed, WrongLoop: the object is not started or is closed, or is used from another loop,
      thread or process.

    Args:
        bootstrap_servers: "host:port", several comma separated or in a list.
        settings: settings to start from; the defaults if not given.
        **overrides: single settings, by Kafka's names in snake_case.

    Raises:
        ConfigError: a setting is unknown, out of range, or contradicts another.
    """

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str] | None = None,
        /,
        *beside: Never,
        settings: AdminSettings | None = None,
        _values: AdminValues | None = None,
        _engine: ClusterEngine | None = None,
        _environment: Environment | None = None,
        **overrides: Unpack[AdminOverrides],
    ) -> None:
        self._settings = _values or standalone_settings(
            AdminValues, settings, overrides, bootstrap_servers, beside
        )
        self._owns_engine = _engine is None
        self._engine = _engine or ClusterEngine(self._settings, _environment)
        self._started = False
        self._closed = False

    @property
    def settings(self) -> AdminSettings:
        """The settings in effect."""
        return self._settings.settings

    async def start(self) -> None:
        """Connect to the cluster. Idempotent.

        An Admin from `cluster.admin()` uses the connections of the `Cluster`.

        Raises:
            BootstrapFailed: no address returned metadata; the message lists each address with its
                cause.
            Closed: this object was closed.
        """
        if self._closed:
            raise Closed("this Admin is closed: create a new one")
        if self._owns_engine:
            await self._engine.start()
        else:
            self._engine.bind()
        self._started = True

    async def close(self) -> None:
        """Close the connections if this object owns them. Idempotent; may be called concurrently.

        In a forked child, the call does nothing.

        Raises:
            WrongLoop: the object was started on another loop.
        """
        if self._engine.forked:
            return
        if self._started:
            self._engine.check_loop()
        self._closed = True
        if self._owns_engine:
            await self._engine.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    def __del__(self) -> None:
        if (
            getattr(self, "_started", False)
            and not self._closed
            and self._owns_engine
            and not self._engine.forked
        ):
            warn_unclosed(self)

    def __reduce__(self) -> NoReturn:
        refuse_pickling(self)

    def __repr__(self) -> str:
        return f"<Admin of {self._engine.settings.client_id}>"

    def _check(self, timeout: float | None) -> ClusterEngine:
        limits.optional_seconds(timeout)
        if self._closed:
            raise Closed("this Admin is closed: create a new one")
        if not self._started:
            raise Closed("this Admin is not started: use `async with`, or await start()")
        self._engine.bind()
        return self._engine

    async def create_topics(
        self,
        new_topics: NewTopic | str | Iterable[NewTopic | str],
        *,
        num_partitions: int = -1,
        replication_factor: int = -1,
        configs: Mapping[str, str | int | float | bool | None] | None = None,
        validate_only: bool = False,
        timeout: float | None = None,
        raise_errors: bool = False,
    ) -> Results[str, TopicCreated]:
        """Create topics.

        Args:
            new_topics: topics to create; a topic given by name gets `num_partitions`,
                `replication_factor` and `configs`.
            num_partitions: number of partitions of topics given by name; -1 for the broker's
                default.
            replication_factor: replication factor of topics given by name; -1 for the broker's
                default.
            configs: configs of topics given by name; the keys are Kafka's names.
            validate_only: validate without creating.
            raise_errors: raise the error of the first topic that failed (TopicExists, InvalidTopic,
                InvalidReplicationFactor, PolicyViolation ...).

        Returns:
            Results by topic name.
        """
        engine = self._check(timeout)
        items = (
            [new_topics]
            if isinstance(new_topics, NewTopic | str)
            else arguments.list_argument(
                new_topics, "new_topics", "['orders', NewTopic('clicks', 3)]"
            )
        )
        wanted = [
            NewTopic(item, num_partitions, replication_factor, configs=configs)
            if isinstance(item, str)
            else item
            for item in items
        ]
        results = await topic_calls.create_topics(
            engine, wanted, validate_only=validate_only, timeout=timeout
        )
        return results.raise_for_errors() if raise_errors else results

    async def delete_topics(
        self,
        topics: str | UUID | Iterable[str | UUID],
        *,
        timeout: float | None = None,
        raise_errors: bool = False,
    ) -> Results[str | UUID, TopicDeleted]:
        """Delete topics, by name or by topic id.

        Returns:
            Results by the given name or id; errors are UnknownTopicOrPartition, UnknownTopicId,
            TopicDeletionDisabled ...
        """
        engine = self._check(timeout)
        items = (
            [topics]
            if isinstance(topics, str | UUID)
            else arguments.list_argument(topics, "topics", "['orders', 'clicks']")
        )
        results = await topic_calls.delete_topics(engine, items, timeout=timeout)
        return results.raise_for_errors() if raise_errors else results

    async def list_topics(
        self, *, internal: bool = False, timeout: float | None = None
    ) -> dict[str, TopicListing]:
        """Return the topics of the cluster, by name.

        Args:
            internal: include Kafka's internal topics (``__consumer_offsets``).
        """
        return await topic_calls.list_topics(
            self._check(timeout), internal=internal, timeout=timeout
        )

    async def describe_topics(
        self,
        topics: str | Iterable[str] | None = None,
        *,
        timeout: float | None = None,
        raise_errors: bool = False,
    ) -> Results[str, TopicDescription]:
        """Describe topics with their partitions.

        The call uses paged DescribeTopicPartitions requests if the broker supports them (Kafka
        3.8), so the number of partitions is not limited by the size of a response.

        Args:
            topics: names; None for all topics.
        """
        engine = self._check(timeout)
        names = None
        if topics is not None:
            names = arguments.str_list_argument(topics, "topics", "['orders', 'clicks']")
        results = await topic_calls.describe_topics(engine, names, timeout=timeout)
        return results.raise_for_errors() if raise_errors else results

    async def create_partitions(
        self,
        topic_partitions: Mapping[str, int | NewPartitions],
        *,
        validate_only: bool = False,
        timeout: float | None = None,
        raise_errors: bool = False,
    ) -> Results[str, PartitionsCreated]:
        """Add partitions to topics.

        Afterwards a key may belong to another partition; existing records are not moved.

        Args:
            topic_partitions: for each topic, its new total number of partitions.
            validate_only: validate without adding.
        """
        engine = self._check(timeout)
        results = await partition_calls.create_partitions(
            engine,
            arguments.mapping_argument(topic_partitions, "topic_partitions", "{'orders': 12}"),
            validate_only=validate_only,
            timeout=timeout,
        )
        return results.raise_for_errors() if raise_errors else results

    async def describe_configs(
        self,
        config_resources: ResourceLike | Iterable[ResourceLike],
        *,
        names: Iterable[str] | None = None,
        include_synonyms: bool = False,
        include_documentation: bool = False,
        timeout: float | None = None,
        raise_errors: bool = False,
    ) -> Results[ConfigResource, ConfigDescription]:
        """Describe configs of topics, brokers and other resources.

        Args:
            config_resources: resources; a plain string is the topic of that name.
            names: configs to return; None for all.
            include_synonyms: include, for each config, the values set at all levels (topic, broker,
                cluster) and the default, the most specific first; brokers before 1.1 return none.
            include_documentation: include Kafka's description of each config; brokers before 2.6
                return none.
        """
        engine = self._check(timeout)
        results = await configs.describe_configs(
            engine,
            [config_resources]
            if isinstance(config_resources, ConfigResource | str)
            else arguments.list_argument(
                config_resources,
                "config_resources",
                "['orders', ConfigResource(ConfigResourceType.BROKER, '1')]",
            ),
            names=None
            if names is None
            else arguments.str_list_argument(names, "names", "['retention.ms', 'cleanup.policy']"),
            include_synonyms=include_synonyms,
            include_documentation=include_documentation,
            timeout=timeout,
        )
        return results.raise_for_errors() if raise_errors else results

    async def alter_configs(
        self,
        changes: Mapping[R, Mapping[str, ChangeLike]],
        *,
        validate_only: bool = False,
        timeout: float | None = None,
        raise_errors: bool = False,
    ) -> Results[ConfigResource, ConfigsAltered]:
        """Change single configs; the other configs of a resource are not changed.

        Brokers before 2.3 can only replace all configs of a resource. With these brokers, the call
        reads the current configs and sends them with the changes. A change that another client
        makes between the two requests is lost.

        Args:
            changes: for each resource (a plain string is a topic), a map of config name to change.
                A change is a value to set, None to delete the config, or a ConfigChange.
            validate_only: validate without changing.
        """
        engine = self._check(timeout)
        results = await config_changes.alter_configs(
            engine, changes, validate_only=validate_only, timeout=timeout
        )
        return results.raise_for_errors() if raise_errors else results

    async def list_config_resources(
        self, types: Iterable[ConfigResourceType] = (), *, timeout: float | None = None
    ) -> list[ConfigResource]:
        """Return the resources that have configs (Kafka 4.1; older brokers: client metrics only).

        Topics and brokers are listed even if no config is set on them. Groups are listed only if
        they have own configs.

        Args:
            types: resource types to list; empty for all.
        """
        return await configs.list_config_resources(
            self._check(timeout),
            arguments.list_argument(types, "types", "[ConfigResourceType.TOPIC]"),
            timeout=timeout,
        )

    async def describe_cluster(
        self, *, include_fenced_brokers: bool = False, timeout: float | None = None
    ) -> ClusterDescription:
        """Return the current cluster id, controller and brokers, as reported by a broker.

        Args:
            include_fenced_brokers: include registered brokers that are out of service (Kafka 4.0).
        """
        return await cluster_calls.describe_cluster(
            self._check(timeout), include_fenced_brokers=include_fenced_brokers, timeout=timeout
        )

    async def describe_log_dirs(
        self,
        node_ids: Iterable[int] | None = None,
        *,
        timeout: float | None = None,
        raise_errors: bool = False,
    ) -> Results[int, BrokerLogDirs]:
        """Describe the log directories of brokers: replicas, free space, failures.

        Args:
            node_ids: brokers to describe; None for all live brokers.
        """
        engine = self._check(timeout)
        if node_ids is not None:
            given = arguments.list_argument(node_ids, "node_ids", "[0, 1]")
            node_ids = [limits.count(node, "node_ids", 0) for node in given]
        else:
            found = await cluster_calls.describe_cluster(
                engine, include_fenced_brokers=False, timeout=timeout
            )
            node_ids = [broker.node_id for broker in found.brokers]
        results = await log_dir_calls.describe_log_dirs(engine, node_ids, timeout=timeout)
        return results.raise_for_errors() if raise_errors else results

    async def list_offsets(
        self,
        partitions: Mapping[P, OffsetSpec],
        *,
        isolation_level: IsolationLevel = "read_uncommitted",
        timeout: float | None = None,
        raise_errors: bool = False,
    ) -> Results[TopicPartition, OffsetListing]:
        """Return offsets of partitions; the requests to their leaders are sent concurrently.

        Args:
            partitions: for each partition, the offset to return: "earliest", "latest",
                "max_timestamp", "earliest_local", "latest_tiered", or a timestamp in ms since 1970,
                which selects the first record at or after this time.
            isolation_level: with "read_committed", "latest" is the last stable offset.
        """
        engine = self._check(timeout)
        given = arguments.mapping_argument(partitions, "partitions", "{('orders', 0): 'latest'}")
        results = await offset_calls.list_offsets(
            engine,
            {TopicPartition.of(tp): spec for tp, spec in given.items()},
            isolation_level=isolation_level,
            timeout=timeout,
        )
        return results.raise_for_errors() if raise_errors else results

    async def delete_records(
        self,
        before: Mapping[P, int | Literal["latest"]],
        *,
        timeout: float | None = None,
        raise_errors: bool = False,
    ) -> Results[TopicPartition, RecordsDeleted]:
        """Delete the records before an offset in each partition, permanently.

        Args:
            before: for each partition, the first offset to keep; "latest" deletes all records
                below the high watermark.
        """
        engine = self._check(timeout)
        given = arguments.mapping_argument(before, "before", "{('orders', 0): 1000}")
        results = await record_calls.delete_records(
            engine,
            {TopicPartition.of(tp): offset for tp, offset in given.items()},
            timeout=timeout,
        )
        return results.raise_for_errors() if raise_errors else results
