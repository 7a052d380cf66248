"""`NodeFactory`, which makes the nodes of a cluster and reports their state changes to the store.

nodes.py keeps the nodes; the reducer decides what a state change means.
"""

from __future__ import annotations

from collections.abc import Callable

from aiokq.cluster.connection_settings import connection_options
from aiokq.cluster.events import Throttled
from aiokq.cluster.reducer_inputs import ConnectionLostTo, NodeReached
from aiokq.cluster.state_store import ClusterStateStore
from aiokq.cluster.values import ClusterValues
from aiokq.connection.frame_pool import FramePool
from aiokq.connection.node import Node, NodeState, NodeUp
from aiokq.core.counters import ClientCounters
from aiokq.core.environment import Address, Environment
from aiokq.core.observable_map import ObservableMap
from aiokq.core.outages import Outages
from aiokq.core.supervisor import Supervisor

__all__ = ["NodeFactory"]


class NodeFactory:
    """What all nodes of one cluster share: options, memory for frames, addresses, who is told.

    Args:
        supervisor: attempts to connect are its children.
        view: takes in which brokers answer, and announces throttling.
        outages: logs which do not.
        lost: called with the id of a broker that answers no more, once the view knows.
    """

    def __init__(
        self,
        settings: ClusterValues,
        environment: Environment,
        supervisor: Supervisor,
        counters: ClientCounters,
        store: ClusterStateStore,
        *,
        outages: Outages,
        lost: Callable[[int], None],
    ) -> None:
        self._environment = environment
        self._supervisor = supervisor
        self._counters = counters
        self._store = store
        self._outages = outages
        self._lost = lost
        self._options = connection_options(settings)
        self._pool = FramePool()
        self._spoken: set[Address] = set()
        self._states: ObservableMap[int, NodeState] = ObservableMap()
        self._states.subscribe(self._state_changed)

    def make(self, node_id: int, host: str, port: int) -> Node:
        """A node at an address; a negative id for one of the bootstrap addresses."""
        # Where brokers are known, bootstrap addresses are asked because no broker answers.
        follows = node_id < 0 and bool(self._store.state.metadata.brokers)
        return Node(
            node_id,
            host,
            port,
            options=self._options,
            environment=self._environment,
            supervisor=self._supervisor,
            counters=self._counters,
            pool=self._pool,
            state=self._states,
            on_throttle=self._throttled,
            outages=None if follows else self._outages,
            spoken=self._spoken,
        )

    def _state_changed(self, node_id: int, state: NodeState) -> None:
        if node_id < 0:
            return  # a bootstrap address; which broker that is was not known
        if isinstance(state, NodeUp):
            self._store.apply(NodeReached(node_id))
        else:
            self._store.apply(ConnectionLostTo(node_id, str(state.reason)))
            self._lost(node_id)

    def _throttled(self, node: Node, seconds: float) -> None:
        timestamp_ms = self._environment.clock.timestamp_ms()
        self._store.announce(Throttled(node.node_id, round(seconds * 1000), timestamp_ms))
