"""The Node objects of a cluster: one per broker id, and those of the bootstrap addresses."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterable

from aiokq.cluster.addresses import BootstrapAddress
from aiokq.cluster.metadata import BrokerInfo
from aiokq.connection.node import Node

__all__ = ["Nodes"]


class Nodes:
    """Makes nodes when first asked for, and keeps their addresses current.

    A node that the cluster no longer lists is kept: its requests in flight may still be answered,
    and it closes its idle connections by itself.

    Args:
        make: makes a node of an id and an address.
    """

    def __init__(self, make: Callable[[int, str, int], Node], *, random: random.Random) -> None:
        self._make = make
        self._random = random
        self._nodes: dict[int, Node] = {}
        self._seeds: dict[BootstrapAddress, Node] = {}

    def get(self, broker: BrokerInfo) -> Node:
        """The node of a broker, at the address it has now."""
        node = self._nodes.get(broker.node_id)
        if node is None:
            node = self._make(broker.node_id, broker.host, broker.port)
            self._nodes[broker.node_id] = node
        return node

    def known(self, node_id: int) -> Node | None:
        """The node with that id, if it was ever used."""
        return self._nodes.get(node_id)

    def update(self, brokers: Iterable[BrokerInfo]) -> None:
        """Brokers may have moved."""
        for broker in brokers:
            node = self._nodes.get(broker.node_id)
            if node is not None:
                node.update(broker.host, broker.port)

    def by_preference(self, brokers: Iterable[BrokerInfo], down: frozenset[int]) -> list[Node]:
        """Nodes in the order to ask them: believed up, free to connect, least loaded, any."""
        shuffled = sorted(brokers, key=lambda broker: broker.node_id)
        self._random.shuffle(shuffled)
        nodes = [self.get(broker) for broker in shuffled]
        # Among equals one that is connected already: least loaded alone would open a connection
        # to every broker in turn.
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
        """Nodes for bootstrap addresses, in random order; negative ids, as they are not known."""
        seeds = []
        for number, address in enumerate(addresses, start=1):
            if address not in self._seeds:
                self._seeds[address] = self._make(-number, address.host, address.port)
            seeds.append(self._seeds[address])
        self._random.shuffle(seeds)
        return seeds

    async def close_seeds(self) -> None:
        """The brokers are known now: their advertised addresses are used from here on."""
        seeds, self._seeds = self._seeds, {}
        await _close(seeds.values())

    async def close(self) -> None:
        """Close all connections to all of them."""
        nodes = [*self._seeds.values(), *self._nodes.values()]
        self._seeds, self._nodes = {}, {}
        await _close(nodes)


async def _close(nodes: Collection[Node]) -> None:
    """All at once: cancelled, it has begun with each; and many silent ones take no longer."""
    for node in nodes:
        node.shut()
    for node in nodes:
        await node.close()
