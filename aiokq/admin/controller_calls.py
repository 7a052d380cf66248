"""`ControllerCalls`: methods of `Admin` on the quorum, features, brokers and quotas."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

from aiokq.admin import features, quorum, quotas, registrations
from aiokq.admin.features import FeatureMetadata, FeatureUpdate, FeatureUpdated
from aiokq.admin.quorum import QuorumInfo
from aiokq.admin.quotas import ClientQuotaAltered, ClientQuotaEntity
from aiokq.admin.results import Results
from aiokq.cluster.engine import ClusterEngine
from aiokq.core.arguments import mapping_argument

__all__ = ["ControllerCalls"]


class ControllerCalls(ABC):
    """Methods of `Admin` on the quorum, the features, the brokers and the quotas of a cluster.

    Results, ``timeout`` and errors are as described in `Admin`.
    """

    @abstractmethod
    def _check(self, timeout: float | None) -> ClusterEngine:
        """Return the engine; raise Closed or WrongLoop if the object cannot be used."""

    async def describe_metadata_quorum(self, *, timeout: float | None = None) -> QuorumInfo:
        """Describe the quorum of controllers and the replicas of the metadata log (Kafka 3.3).

        Raises:
            UnsupportedVersion: the cluster has no quorum, as with ZooKeeper.
        """
        return await quorum.describe_metadata_quorum(self._check(timeout), timeout=timeout)

    async def describe_features(
        self, *, node_id: int | None = None, timeout: float | None = None
    ) -> FeatureMetadata:
        """Return the finalized feature levels, and the levels that a broker supports (Kafka 2.7).

        Args:
            node_id: the broker to ask; None for any.
        """
        return await features.describe_features(self._check(timeout), node_id, timeout=timeout)

    async def update_features(
        self,
        updates: Mapping[str, int | FeatureUpdate],
        *,
        validate_only: bool = False,
        timeout: float | None = None,
        raise_errors: bool = False,
    ) -> Results[str, FeatureUpdated]:
        """Change the levels of features (Kafka 2.7). Kafka 4 changes all given features or none.

        Args:
            updates: for each feature name (such as ``metadata.version``), the new level. A plain
                number can only upgrade; a `FeatureUpdate` can also downgrade.
            validate_only: validate without changing (Kafka 3.3).

        Returns:
            Results by feature; errors are InvalidUpdateVersion, FeatureUpdateFailed. If Kafka 4
            refuses one feature, all features have the same error, whose message names the refused
            feature.
        """
        engine = self._check(timeout)
        results = await features.update_features(
            engine,
            mapping_argument(updates, "updates", "{'metadata.version': 25}"),
            validate_only=validate_only,
            timeout=timeout,
        )
        return results.raise_for_errors() if raise_errors else results

    async def unregister_broker(self, broker_id: int, *, timeout: float | None = None) -> None:
        """Remove the registration of a broker that was stopped for good (KRaft, Kafka 2.8).

        Partitions keep the broker among their replicas. Move these partitions to other brokers
        first.

        Raises:
            BrokerIdNotRegistered: no broker with this id is registered.
        """
        await registrations.unregister_broker(self._check(timeout), broker_id, timeout=timeout)

    async def describe_client_quotas(
        self,
        entity: ClientQuotaEntity | None = None,
        *,
        strict: bool = False,
        timeout: float | None = None,
    ) -> Mapping[ClientQuotaEntity, Mapping[str, float]]:
        """Return the quotas in the cluster by entity and key (Kafka 2.6).

        Args:
            entity: names that the entities must have; `QuotaName.DEFAULT` stands for the default,
                and `QuotaName.ANY` for every name. None for all quotas.
            strict: whether to leave out entities that have more parts than `entity`. If `entity` is
                a user, these entities are the client ids of the user.
        """
        return await quotas.describe_client_quotas(
            self._check(timeout), entity, strict=strict, timeout=timeout
        )

    async def alter_client_quotas(
        self,
        changes: Mapping[ClientQuotaEntity, Mapping[str, float | None]],
        *,
        validate_only: bool = False,
        timeout: float | None = None,
        raise_errors: bool = False,
    ) -> Results[ClientQuotaEntity, ClientQuotaAltered]:
        """Set and remove quotas (Kafka 2.6). All changes of an entity are made, or none.

        Args:
            changes: for each entity, the new rate by key; None removes a quota. The keys are
                ``producer_byte_rate`` and ``consumer_byte_rate`` (bytes per second and broker),
                ``request_percentage`` (percent of a thread's time), ``controller_mutation_rate``
                (partitions per second) and, for addresses, ``connection_creation_rate``.
            validate_only: validate without changing.

        Returns:
            Results by entity; the error InvalidRequest describes an invalid change.
        """
        engine = self._check(timeout)
        results = await quotas.alter_client_quotas(
            engine,
            mapping_argument(
                changes, "changes", "{ClientQuotaEntity(user='a'): {'producer_byte_rate': 1e6}}"
            ),
            validate_only=validate_only,
            timeout=timeout,
        )
        return results.raise_for_errors() if raise_errors else results
