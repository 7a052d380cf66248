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
    """Makes the nodes of one cluster with its options, frame memory and callbacks.

    Args:
        supervisor: parent of the tasks that connect.
        store: receives changes of the brokers' state, and how long brokers throttle this client.
        outages: logs brokers that do not answer.
        lost: called with the id of a broker that became unreachable, after the store was updated.
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
        self._options = connection_options(settings, environment, supervisor)
        tls = self._options.security.tls
        if tls is not None:
            counters.certificate_expiry_timestamp_seconds.add_source(lambda: tls.expires_at or 0)
        self._pool = FramePool()
        self._spoken: set[Address] = set()
        self._states: ObservableMap[int, NodeState] = ObservableMap()
        self._states.subscribe(self._state_changed)

    def make(self, node_id: int, host: str, port: int) -> Node:
        """Return a new node. The node of a bootstrap address has a negative id."""
        # Once brokers are known, their outages are logged, so the node of a bootstrap address logs
        # none.
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
            return  # a bootstrap address, whose broker id is not known
        if isinstance(state, NodeUp):
            self._store.apply(NodeReached(node_id))
        else:
            self._store.apply(ConnectionLostTo(node_id, str(state.reason)))
            self._lost(node_id)

    def _throttled(self, node: Node, seconds: float) -> None:
        timestamp_ms = self._environment.clock.timestamp_ms()
        self._store.announce(Throttled(node.node_id, round(seconds * 1000), timestamp_ms))
