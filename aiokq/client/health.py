"""`ClusterHealth`, a snapshot of the state of brokers, partitions and metadata."""

from __future__ import annotations

from collections.abc import Mapping

from aiokq.cluster.engine import ClusterEngine
from aiokq.core.frozen import frozen
from aiokq.core.types import TopicPartition

__all__ = ["ClusterHealth", "cluster_health"]


@frozen
class ClusterHealth:
    """The state of a cluster's brokers, partitions and metadata at one moment.

    Attributes:
        brokers_up: ids of brokers in the metadata that are not known to be down.
        brokers_down: ids of brokers in the metadata that do not answer, with the reason.
        partitions_failed: partitions whose requests fail, with Kafka's name of the error.
        metadata_age_ms: milliseconds since the last metadata response; None before the first.
        metadata_error: reason why the latest metadata request failed; None if it succeeded.
    """

    brokers_up: frozenset[int]
    brokers_down: Mapping[int, str]
    partitions_failed: Mapping[TopicPartition, str]
    metadata_age_ms: int | None
    metadata_error: str | None

    @property
    def ok(self) -> bool:
        """Whether a broker is up, no broker is down, and no partition or metadata request fails."""
        return (
            bool(self.brokers_up)
            and not self.brokers_down
            and not self.partitions_failed
            and self.metadata_error is None
        )


def cluster_health(engine: ClusterEngine) -> ClusterHealth:
    """Return the health of a started engine."""
    state = engine.state
    down = {}
    for node_id in sorted(state.down & state.metadata.brokers.keys()):
        node = engine.nodes.known(node_id)
        error = None if node is None else node.last_error
        down[node_id] = "not reachable" if error is None else str(error)
    last = engine.refresher.last_success
    return ClusterHealth(
        brokers_up=state.up,
        brokers_down=down,
        partitions_failed=dict(state.failed),
        metadata_age_ms=None if last is None else round((engine.now() - last) * 1000),
        metadata_error=None if engine.last_error is None else str(engine.last_error),
    )
