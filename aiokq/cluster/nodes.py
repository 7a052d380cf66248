"""`Nodes`, the `Node` objects of a cluster's brokers and bootstrap addresses."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterable, Iterator

from aiokq.cluster.addresses import BootstrapAddress
from aiokq.cluster.metadata import BrokerInfo
from aiokq.connection.node import Node

__all__ = ["Nodes"]


class Nodes:
    """The nodes of a cluster, which are made on first use.

    A node that the cluster no longer lists is kept, because its requests in flight may still be
    answered.

    Args:
        make: makes a node from an id, a host and a port.
    """

    def __init__(self, make: Callable[[int, str, int], Node], *, random: random.Random) -> None:
        self._make = make
        self._random = random
        self._nodes: dict[int, Node] = {}
        self._seeds: dict[BootstrapAddress, Node] = {}

    def get(self, broker: BrokerInfo) -> Node:
        """Return the node of a broker, and make that node on first use."""
        node = self._nodes.get(broker.node_id)
        if node is None:
            node = self._make(broker.node_id, broker.host, broker.port)
            self._nodes[broker.node_id] = node
        return node

    def __iter__(self) -> Iterator[Node]:
        """Yield all nodes, bootstrap addresses included."""
        yield from self._nodes.values()
        yield from self._seeds.values()

    def known(self, node_id: int) -> Node | None:
        """Return the node with this id; None if it was never used."""
        return self._nodes.get(node_id)

    def update(self, brokers: Iterable[BrokerInfo]) -> None:
        """Update the addresses of known nodes."""
        for broker in brokers:
            node = self._nodes.get(broker.node_id)
            if node is not None:
                node.update(broker.host, broker.port)

    def by_preference(self, brokers: Iterable[BrokerInfo], down: frozenset[int]) -> list[Node]:
        """Return the nodes of brokers, the most suitable node first.

        The criteria are, in this order: the node is not in `down`, it has the shortest backoff, it
        has the fewest requests in flight, it is connected. Equal nodes are in random order.
        """
        shuffled = sorted(brokers, key=lambda broker: broker.node_id)
        self._random.shuffle(shuffled)
        nodes = [self.get(broker) for broker in shuffled]
        # Among equally loaded nodes a connected node comes first. Otherwise each request would open
        # a connection to another broker.
        return sorted(
            nodes,
            key=lambda node: (
                node.node_id in down,
                node.backing_off,
                node.in_flight,
                not node.up,
            ),
        )

    def seeds(self, addresses: Iterable[BootstrapAddress]) -> list[Node]:
        """Return nodes for bootstrap addresses, in random order; their ids are negative."""
        seeds = []
        for number, address in enumerate(addresses, start=1):
            if address not in self._seeds:
                self._seeds[address] = self._make(-number, address.host, address.port)
            seeds.append(self._seeds[address])
        self._random.shuffle(seeds)
        return seeds

    async def close_seeds(self) -> None:
        """Close the nodes of bootstrap addresses."""
        seeds, self._seeds = self._seeds, {}
        await _close(seeds.values())

    async def close(self) -> None:
        """Close the connections of all nodes."""
        nodes = [*self._seeds.values(), *self._nodes.values()]
        self._seeds, self._nodes = {}, {}
        await _close(nodes)


async def _close(nodes: Collection[Node]) -> None:
    """Close nodes. If the call is cancelled, all nodes have at least begun to close."""
    for node in nodes:
        node.shut()
    for node in nodes:
        await node.close()
