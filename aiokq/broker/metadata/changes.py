"""Metadata changes requested from this node: decided, recorded and published in order.

The controller decides one change at a time, based on the image after the previous changes. The
records of a change are in the metadata log before this node's publisher applies them, and the
caller gets its result after the publisher has applied them. A change that has begun is completed
even if its caller was cancelled.

Tests: ``tests/unit/broker/metadata/test_changes.py``.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import uuid
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from aiokq.broker.metadata.controller.topic_layout import CreatedTopic, TopicSpec
from aiokq.broker.metadata.image.metadata_delta import MetadataDelta
from aiokq.broker.metadata.image.topic_names import INTERNAL_TOPICS, check_topic_name
from aiokq.connection.turn import at_once
from aiokq.core.errors import BrokerError, Closed, TopicExists
from aiokq.core.supervisor import shielded

if TYPE_CHECKING:
    from aiokq.broker.metadata.controller.acl_changes import AclFilter
    from aiokq.broker.metadata.controller.controller import Controller
    from aiokq.broker.metadata.controller.decision import Charge, ConfigChange, Decision
    from aiokq.broker.metadata.controller.feature_updates import FeatureUpdate
    from aiokq.broker.metadata.controller.quota_changes import QuotaChange
    from aiokq.broker.metadata.image.image import MetadataImage
    from aiokq.broker.metadata.image.principals_image import AclValue
    from aiokq.broker.metadata.log.cluster_metadata_log import ClusterMetadataLog
    from aiokq.broker.metadata.publisher.publisher import MetadataPublisher
    from aiokq.broker.metadata.publisher.topics import Topic
    from aiokq.connection.turn import Pace, Steps
    from aiokq.core.offload import Offload
    from aiokq.wire.alter_user_scram_credentials import (
        ScramCredentialDeletion,
        ScramCredentialUpsertion,
    )
    from aiokq.wire.principal_records import AccessControlEntryRecord
    from aiokq.wire.quorum_records import VotersRecord
    from aiokq.wire.registration_records import ControllerEndpoint
    from aiokq.wire.struct import Message

__all__ = ["MetadataChanges"]

logger = logging.getLogger("aiokq.broker")

R = TypeVar("R")

_Decide: TypeAlias = "Callable[[MetadataImage], Decision[R] | Coroutine[None, None, Decision[R]]]"
"""A function that decides about a change; a coroutine function if the decision may take long."""


class MetadataChanges:
    """Makes changes of the cluster's metadata. Used from the node's loop only.

    Each change raises Closed when the node is stopping.

    Args:
        recorded: called after each append to the metadata log.
        records_on_loop: changes with fewer records are appended on the loop, all other changes in
            an executor. Must be 0 if appends wait for a sync.
    """

    def __init__(
        self,
        controller: Controller,
        metadata: ClusterMetadataLog,
        publisher: MetadataPublisher,
        offload: Offload,
        *,
        recorded: Callable[[], None] = lambda: None,
        records_on_loop: int = 0,
    ) -> None:
        self._records_on_loop = records_on_loop
        self._recorded = recorded
        self._controller = controller
        self._metadata = metadata
        self._publisher = publisher
        self._offload = offload
        self._deciding = asyncio.Lock()
        self._published: asyncio.Future[None] | None = None
        """Done when all recorded changes are published; None before the first change."""
        self._closed = False

    async def create_topic(
        self, spec: TopicSpec, *, validate_only: bool = False, charge: Charge | None = None
    ) -> CreatedTopic:
        """Create a topic.

        Args:
            charge: counts the partitions against a client's quota.

        Raises:
            BrokerError: see `Controller.create_topic`.
            KafkaStorage: the topic could not be recorded and does not exist, or it exists and some
                of its partitions are offline.
        """
        created = await self._change(
            lambda image: self._controller.create_topic(
                image, spec, validate_only=validate_only, charge=charge
            ),
            f"create {spec.name}",
        )
        if not validate_only:
            logger.info("topic created: topic=%s partitions=%d", spec.name, created.partition_count)
        return created

    async def create_topic_if_allowed(
        self, name: str, *, allowed: bool, charge: Charge | None = None
    ) -> None:
        """Create a topic whose metadata was requested, if auto-creation is allowed.

        An internal topic is not created.

        Args:
            charge: counts the partitions against a client's quota.

        Raises:
            BrokerError: the name is invalid, or the creation failed.
        """
        check_topic_name(name)
        if name not in INTERNAL_TOPICS and allowed:
            with contextlib.suppress(TopicExists):  # another request has created it
                await self.create_topic(TopicSpec(name=name), charge=charge)

    async def delete_topic(self, topic: Topic, *, charge: Charge | None = None) -> None:
        """Delete a topic and its records.

        Args:
            charge: counts the partitions against a client's quota.

        Raises:
            BrokerError: see `Controller.delete_topic`.
            KafkaStorage: the deletion could not be recorded and the topic still exists, or the
                topic is deleted, but a file operation of the deletion failed and is retried.
        """
        await self._change(
            lambda image: self._controller.delete_topic(
                image, topic.name, topic.topic_id, charge=charge
            ),
            f"delete {topic.name}",
        )
        logger.info("topic deleted: topic=%s", topic.name)

    async def delete_all_topics(self) -> None:
        """Delete all topics, including internal topics.

        All topics are deleted in one change, unless several topics have the same id.

        Raises:
            KafkaStorage: a deletion could not be recorded, or a file operation of a deletion failed
                and is retried.
        """
        while count := await self._change(self._controller.delete_all_topics, "delete all topics"):
            logger.info("all topics deleted: topics=%d", count)

    async def create_partitions(
        self,
        topic: Topic,
        count: int,
        assignments: Sequence[Sequence[int]] | None = None,
        *,
        validate_only: bool = False,
        charge: Charge | None = None,
    ) -> None:
        """Add partitions to a topic; ``count`` is the new total.

        Args:
            charge: counts the new partitions against a client's quota.

        Raises:
            BrokerError: see `Controller.create_partitions`.
            KafkaStorage: the partitions could not be recorded and do not exist, or they exist and
                some of them are offline.
        """
        await self._change(
            lambda image: self._controller.create_partitions(
                image,
                topic.name,
                topic.topic_id,
                count,
                assignments,
                validate_only=validate_only,
                charge=charge,
            ),
            f"grow {topic.name}",
        )
        if not validate_only:
            logger.info("partitions added: topic=%s partitions=%d", topic.name, count)

    async def alter_topic_configs(
        self, topic: Topic, change: ConfigChange, *, validate_only: bool = False
    ) -> None:
        """Change a topic's settings; they are in effect on return.

        Args:
            change: computes the new settings from the current ones. The function is called after
                all earlier changes were recorded, so that concurrent changes of different settings
                are kept.

        Raises:
            BrokerError: see `Controller.alter_topic_configs`.
            KafkaStorage: the change could not be recorded; nothing has changed.
        """
        configs = await self._change(
            lambda image: self._controller.alter_topic_configs(
                image, topic.name, topic.topic_id, change, validate_only=validate_only
            ),
            f"alter {topic.name}",
        )
        if not validate_only:
            logger.info("topic settings changed: topic=%s configs=%s", topic.name, configs)

    async def alter_group_configs(
        self, group_id: str, change: ConfigChange, *, validate_only: bool = False
    ) -> None:
        """Change a group's settings; they take effect for a member at its next heartbeat.

        Args:
            change: see `alter_topic_configs`.

        Raises:
            BrokerError: see `Controller.alter_group_configs`.
            KafkaStorage: the change could not be recorded; nothing has changed.
        """
        configs = await self._change(
            lambda image: self._controller.alter_group_configs(
                image, group_id, change, validate_only=validate_only
            ),
            f"alter {group_id}",
        )
        if not validate_only:
            logger.info("group settings changed: group=%s configs=%s", group_id, configs)

    async def alter_broker_configs(
        self,
        name: str,
        change: ConfigChange,
        *,
        named: Collection[str],
        validate_only: bool = False,
    ) -> None:
        """Change dynamic settings of this node or of all nodes; they are in effect on return.

        Args:
            name: the id of the node, or "" for the settings of all nodes.
            change: see `alter_topic_configs`.
            named: the settings that the request names.

        Raises:
            BrokerError: see `Controller.alter_broker_configs`.
            KafkaStorage: the change could not be recorded; nothing has changed.
        """
        await self._change(
            lambda image: self._controller.alter_broker_configs(
                image, name, change, named=named, validate_only=validate_only
            ),
            f"alter the settings of broker {name or '*'}",
        )

    async def update_features(
        self,
        updates: Sequence[FeatureUpdate],
        *,
        voters: VotersRecord,
        controller_endpoints: Sequence[ControllerEndpoint],
        log_directories: Collection[uuid.UUID],
        validate_only: bool = False,
    ) -> None:
        """Change levels of features, and register the node again if a new level requires it.

        Args:
            voters: the voters to record in the log if ``kraft.version`` becomes 1.
            controller_endpoints, log_directories: see `Controller.register_again`.

        Raises:
            InvalidUpdateVersion: see `Controller.update_features`.
            KafkaStorage: the levels could not be recorded and have not changed, or they have
                changed and the registration could not be recorded; the next start records it.
        """

        async def update() -> None:
            await self._make(
                lambda image: self._controller.update_features(
                    image,
                    updates,
                    kraft_version=self._metadata.kraft_version,
                    voters=voters,
                    validate_only=validate_only,
                )
            )
            if validate_only:
                return
            # A separate append: the versions of the records in an append depend on the level of
            # metadata.version before the append.
            with contextlib.suppress(Closed):  # the next start registers the node anyway
                await self._make(
                    lambda image: self._controller.register_again(
                        image, controller_endpoints, log_directories
                    )
                )

        await self._complete(update(), "update features")
        if not validate_only:
            levels = ",".join(f"{update.name}={update.level}" for update in updates)
            logger.info("features changed: levels=%s", levels)

    async def unregister_broker(self, broker_id: int) -> None:
        """Remove the registration of a broker.

        Raises:
            BrokerError: see `Controller.unregister_broker`.
            KafkaStorage: the change could not be recorded; nothing has changed.
        """
        await self._change(
            lambda image: self._controller.unregister_broker(image, broker_id),
            f"unregister broker {broker_id}",
        )
        logger.info("broker unregistered: node=%d", broker_id)

    async def create_acls(
        self, acls: Sequence[AclValue], pace: Pace | None = None
    ) -> list[BrokerError | None]:
        """Create ACLs; they are in force on return. An ACL that exists already is no error.

        Args:
            pace: lets other tasks run; None if there are few ACLs.

        Returns:
            An error or None for each ACL.

        Raises:
            InvalidRequest: there are too many ACLs.
            KafkaStorage: the ACLs could not be recorded; none was created.
        """
        return await self._change(
            lambda image: self._paced(self._controller.create_acls(image, acls), pace),
            "create ACLs",
        )

    async def delete_acls(
        self, filters: Sequence[AclFilter], pace: Pace | None = None
    ) -> list[Sequence[AccessControlEntryRecord] | BrokerError]:
        """Delete the ACLs that match a filter; they are no longer in force on return.

        Args:
            pace: lets other tasks run; None if there are few filters.

        Returns:
            For each filter, the ACLs that matched it, or the error of the filter.

        Raises:
            InvalidRequest: too many ACLs match.
            KafkaStorage: the deletion could not be recorded; no ACL was deleted.
        """
        return await self._change(
            lambda image: self._paced(self._controller.delete_acls(image, filters), pace),
            "delete ACLs",
        )

    async def alter_client_quotas(
        self,
        changes: Sequence[QuotaChange],
        pace: Pace | None = None,
        *,
        unknown_hosts: Collection[str],
        validate_only: bool = False,
    ) -> list[BrokerError | None]:
        """Change quotas of clients and addresses; they are in effect on return.

        Args:
            pace: lets other tasks run; None if there are few changes.
            unknown_hosts: see `quota_changes.alter_client_quotas`.
            validate_only: only check the changes.

        Returns:
            The error of each change; None for a valid change.

        Raises:
            KafkaStorage: the changes could not be recorded; nothing has changed.
        """
        return await self._change(
            lambda image: self._paced(
                self._controller.alter_client_quotas(
                    image, changes, unknown_hosts=unknown_hosts, validate_only=validate_only
                ),
                pace,
            ),
            "alter quotas",
        )

    async def alter_scram_credentials(
        self,
        deletions: Sequence[ScramCredentialDeletion],
        upsertions: Sequence[ScramCredentialUpsertion],
        pace: Pace | None = None,
    ) -> Mapping[str, BrokerError | None]:
        """Set and delete SCRAM credentials; return an error or None for each user.

        Args:
            pace: lets other tasks run; None if there are few changes.

        Raises:
            KafkaStorage: the changes could not be recorded; nothing has changed.
        """
        from aiokq.broker.metadata.controller.scram_changes import alter_scram_credentials

        outcomes = await self._change(
            lambda image: self._paced(alter_scram_credentials(image, deletions, upsertions), pace),
            "alter SCRAM credentials",
        )
        changed = [name for name, error in outcomes.items() if error is None]
        if changed:
            logger.info("SCRAM credentials changed: users=%s", changed)
        return outcomes

    async def allocate_producer_ids(self) -> range:
        """Reserve a block of producer ids, which are never reserved again.

        Raises:
            KafkaStorage: the reservation could not be recorded.
        """
        return await self._change(self._controller.allocate_producer_ids, "reserve producer ids")

    async def assign_directories(self, places: Mapping[tuple[uuid.UUID, int], uuid.UUID]) -> None:
        """Record the log directories that this node has chosen for its replicas.

        Args:
            places: directory.id by topic id and partition number.

        Raises:
            KafkaStorage: the directories could not be recorded.
        """
        await self._change(
            lambda image: self._controller.assign_directories(image, places), "assign directories"
        )

    @contextlib.asynccontextmanager
    async def unchanged(self) -> AsyncIterator[None]:
        """Complete the changes in progress; delay new changes until the `async with` block ends.

        Raises:
            Closed: the node is stopping.
        """
        async with self._deciding:
            self._check_open()
            await self._all_published()
            yield

    @property
    def is_closed(self) -> bool:
        """Whether new changes are refused."""
        return self._closed

    async def close(self) -> None:
        """Wait until the recorded changes are published; all other changes raise Closed."""
        self._closed = True
        async with self._deciding:
            await self._all_published()

    def _check_open(self) -> None:
        if self._closed:
            raise Closed("this broker is stopping and does not accept changes of its metadata")

    async def _all_published(self) -> None:
        if self._published is not None:
            await asyncio.shield(self._published)

    def _paced(self, steps: Steps[R], pace: Pace | None) -> R | Coroutine[None, None, R]:
        return at_once(steps) if pace is None else pace.run(self._while_open(steps))

    def _while_open(self, steps: Steps[R]) -> Steps[R]:
        """Do work in steps; raise Closed when the node stops, so that the stop need not wait."""
        while True:
            try:
                next(steps)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]
            self._check_open()
            yield

    async def _change(self, decide: _Decide[R], name: str) -> R:
        return await self._complete(self._make(decide), name)

    @staticmethod
    async def _complete(change: Coroutine[None, None, R], name: str) -> R:
        """Make a change, which is completed even if the caller is cancelled.

        If the caller was cancelled, `shielded` logs an error of the change, but neither Closed nor
        a BrokerError: a refusal concerns only the caller, and an I/O error (KafkaStorage) was
        logged where it occurred.
        """
        return await shielded(change, name=name, expected=(BrokerError, Closed))

    async def _make(self, decide: _Decide[R]) -> R:
        self._check_open()
        async with self._deciding:
            self._check_open()
            before = self._published
            records: Sequence[Message] = ()
            refusal: BrokerError | None = None
            try:
                # The image stays as it is while a long decision lets other tasks run.
                decided = decide(self._metadata.image)
                answer, records = await decided if isinstance(decided, Coroutine) else decided
            except BrokerError as error:
                refusal = error
            if records:
                end_offset = await self._offload.run_sized(
                    len(records), self._records_on_loop, self._metadata.append, *records
                )
                self._recorded()
                delta = MetadataDelta.of(records, self._metadata.image, end_offset=end_offset)
                if delta.is_empty:
                    return answer
                self._published = published = asyncio.get_running_loop().create_future()
        if not records:  # nothing to append: wait for the changes on which the decision is based
            if before is not None:
                await asyncio.shield(before)
            if refusal is not None:
                raise refusal
            return answer
        try:
            if before is not None:
                await asyncio.shield(before)
            failure = await self._publisher.publish(delta)
        finally:
            published.set_result(None)
        if failure is not None:
            raise failure
        return answer
