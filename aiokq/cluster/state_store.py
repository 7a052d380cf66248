"""`ClusterStateStore`, which holds the state of a cluster and emits the events of its changes."""

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
    """An observer of metadata snapshots, for changes without events (such as in-sync replicas)."""

    def metadata_changed(self, metadata: ClusterMetadata) -> None:
        """Receive a newer snapshot. Called on the event loop; must not raise."""
        ...

    def close(self) -> None:
        """Handle the end of the cluster."""
        ...


class ClusterStateStore:
    """The state of a cluster, and its events in the order of the changes.

    Args:
        changed: called with the old and the new state before any event is emitted.
        dropped: called when an `EventStream` drops an event, because its queue is full.
        binding: binding of the cluster to its loop.

    Attributes:
        state: the current state.
        changes: the events; the latest event of each key is kept.
        observers: notified of each newer snapshot, after its events.
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
        """Apply an input and call subscribers. Must be called on the event loop."""
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
        """Emit an event, and keep it as the latest event of its key."""
        self.changes.emit(event.key, event)

    def forget(self, topics: set[str] | frozenset[str]) -> None:
        """Drop the latest events about partitions of these topics."""
        for key in self.changes.snapshot():
            subject = key.subject
            if isinstance(subject, TopicPartition) and subject.topic in topics:
                self.changes.forget(key)

    def events(self, limit: int) -> EventStream:
        """Return a new stream of events for user code."""
        stream = EventStream(
            self.changes, limit=limit, on_drop=self._dropped, binding=self._binding
        )
        self._streams.add(stream)
        return stream

    def end(self, error: BaseException) -> None:
        """Fail all waits with ``error``, end streams after their queued events, close observers."""
        self.changes.close(error)
        for stream in list(self._streams):
            stream.close()
        for observer in list(self.observers):
            observer.close()


def _belongs_to_outage(event: Event, change: Input) -> bool:
    """Return whether the event is part of an outage, for which `Outages` writes the log lines.

    Brokers that a metadata response adds or removes are not an outage.
    """
    outage = isinstance(event, BrokerDown | BrokerUp | PartitionFailed | PartitionRecovered)
    return outage and not isinstance(change, MetadataReceived)
