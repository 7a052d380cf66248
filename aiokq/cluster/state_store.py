"""ClusterStateStore: the one place where the state changes, and where what changed is told."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable
from typing import Protocol

from aiokq.cluster.event_stream import EventStream
from aiokq.cluster.events import (
    BrokerDown,
    BrokerUp,
    Event,
    EventKey,
    PartitionFailed,
    PartitionRecovered,
    TopicRecreated,
    TopicRemoved,
)
from aiokq.cluster.loop_binding import LoopBinding
from aiokq.cluster.metadata import ClusterMetadata
from aiokq.cluster.reducer import ClusterState, reduce
from aiokq.cluster.reducer_inputs import Input, MetadataReceived
from aiokq.core.observable_map import ObservableMap
from aiokq.core.types import TopicPartition

__all__ = ["ClusterStateStore", "MetadataObserver"]

logger = logging.getLogger("aiokq.cluster")


class MetadataObserver(Protocol):
    """Who compares snapshots, for what no event tells (in-sync replicas, for one)."""

    def metadata_changed(self, metadata: ClusterMetadata) -> None:
        """There is a newer snapshot. Context: loop, sync; must not raise."""
        ...

    def close(self) -> None:
        """There will be no newer one."""
        ...


class ClusterStateStore:
    """The state of a cluster, and its events in the order they happened.

    Args:
        changed: called with the state before and after, once it is in force and before any event
            of it is told: who acts on an event finds everything else up to date.
        dropped: called when a slow reader of `events` loses one.
        binding: of the cluster, to its loop.

    Attributes:
        state: as of now.
        changes: the events; the latest one of each key is kept.
        observers: told of each newer snapshot, after its events.
    """

    def __init__(
        self,
        *,
        changed: Callable[[ClusterState, ClusterState], None],
        dropped: Callable[[], None],
        binding: LoopBinding | None = None,
    ) -> None:
        self.state = ClusterState()
        self.changes: ObservableMap[EventKey, Event] = ObservableMap()
        self.observers: weakref.WeakSet[MetadataObserver] = weakref.WeakSet()
        self._changed = changed
        self._dropped = dropped
        self._binding = binding
        self._streams: weakref.WeakSet[EventStream] = weakref.WeakSet()

    def apply(self, change: Input) -> None:
        """Take an input in. Context: loop, sync; subscribers run before it returns."""
        before = self.state
        self.state, events = reduce(before, change)
        if self.state is before:
            return
        self._changed(before, self.state)
        for event in events:
            logger.log(
                logging.DEBUG if _belongs_to_outage(event, change) else logging.INFO, "%s", event
            )
            if isinstance(event, TopicRemoved | TopicRecreated):
                self.forget({event.topic})
            self.announce(event)
        if self.state.metadata is not before.metadata:
            for observer in list(self.observers):
                observer.metadata_changed(self.state.metadata)

    def announce(self, event: Event) -> None:
        """Tell an event that does not come from the state."""
        self.changes.emit(event.key, event)

    def forget(self, topics: set[str] | frozenset[str]) -> None:
        """Late subscribers hear nothing of what these topics' partitions were in."""
        for key in self.changes.snapshot():
            subject = key.subject
            if isinstance(subject, TopicPartition) and subject.topic in topics:
                self.changes.forget(key)

    def events(self, limit: int) -> EventStream:
        """A stream for user code, subscribed now."""
        stream = EventStream(
            self.changes, limit=limit, on_drop=self._dropped, binding=self._binding
        )
        self._streams.add(stream)
        return stream

    def end(self, error: BaseException) -> None:
        """Nothing will change any more: waits end with ``error``, streams after what they hold."""
        self.changes.close(error)
        for stream in list(self._streams):
            stream.close()
        for observer in list(self.observers):
            observer.close()


def _belongs_to_outage(event: Event, change: Input) -> bool:
    """Whether it belongs to an outage, of which `Outages` writes one line and not one a partition.

    Brokers that the metadata lists anew, or no longer, are news.
    """
    outage = isinstance(event, BrokerDown | BrokerUp | PartitionFailed | PartitionRecovered)
    return outage and not isinstance(change, MetadataReceived)
