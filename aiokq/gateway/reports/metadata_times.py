"""`MetadataTimes`: the times at which metadata was last received and last changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aiokq import Cluster, ClusterMetadata

__all__ = ["MetadataTimes"]


class MetadataTimes:
    """Times in milliseconds since 1970; 0 for never.

    Args:
        now_ms: returns the current time in milliseconds since 1970.
    """

    def __init__(self, cluster: Cluster, now_ms: Callable[[], int]) -> None:
        self._cluster = cluster
        self._now_ms = now_ms
        self._polled: ClusterMetadata | None = None
        self._seen: tuple[object, object] | None = None
        self.last_updated = 0
        self.last_modified = 0
        self.changes = 0

    def use(self, cluster: Cluster) -> None:
        """Take the times from another Cluster."""
        self._cluster = cluster

    def poll(self) -> None:
        """Update the times from the Cluster. Context: loop.

        If the metadata has changed, `last_modified` becomes the time of the newest metadata.
        """
        age = self._cluster.health().metadata_age_ms
        if age is None:
            return
        updated = self._now_ms() - age
        if updated > self.last_updated + 1:  # more than the rounding of `age`
            self.last_updated = updated
        metadata = self._cluster.metadata
        if metadata is self._polled:
            return
        self._polled = metadata
        seen = (metadata.brokers, metadata.topics)
        if seen != self._seen:
            self.changes += self._seen is not None
            self._seen = seen
            self.last_modified = self.last_updated
