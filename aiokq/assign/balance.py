"""Balanced assignment with as few moves as possible, for the sticky assignors.

The algorithm has four steps: determine the valid claims; keep partitions with their owners; assign
free partitions; and, if members subscribe to different topics, move partitions along paths from
member to member (`_Work.level`) until no difference in load can be reduced. The last step finds the
optimum, which Kafka's greedy passes only approach.

Source: KIP-54; Harvey et al., "Semi-matchings for bipartite graphs and load balancing" (2006), for
the paths.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Set
from heapq import heapify, heappop, heappush, heapreplace, nsmallest
from typing import Final, TypeAlias

from aiokq.assign.members import all_topics, in_order, racks_matter
from aiokq.assign.model import Subscription, Topology
from aiokq.core.named_tuple import NamedTuple
from aiokq.core.types import TopicPartition

__all__ = ["Claim", "balance"]


class Claim(NamedTuple):
    """The partitions that a member reports as its own, and the generation that it reports."""

    partitions: tuple[TopicPartition, ...]
    generation: int


PORTION: Final = 16
"""One step moves up to 1/`PORTION` of the difference in load between the ends of a path.

If this part of the difference is less than one partition, one partition moves. Moving one partition
at a time would need a search for each partition. Moving half of the difference would give members
partitions that they have to pass on.
"""

_Heap: TypeAlias = list[tuple[int, int, str]]
"""Entries (load, order, member). The load of an entry may be outdated: see `_lightest`."""


def balance(
    topology: Topology, members: Mapping[str, Subscription], claims: Mapping[str, Claim]
) -> dict[str, list[TopicPartition]]:
    """Assign every partition of the subscribed topics.

    A member has at most one partition more than any member that could take one of its partitions,
    directly or by a chain of moves. With equal subscriptions, the numbers of partitions differ by
    at most one, and as few partitions as possible change their owner. If racks matter, members
    first get partitions with a replica in their own rack, as far as this balance allows (KIP-881);
    more partitions may then change their owner.
    """
    work = _Work(topology, members)
    owners = _owners(claims, work)
    work.keep(owners)
    work.fill(owners)
    work.level(owners)
    return {member: list(work.taken(member)) for member in members}


def _owners(claims: Mapping[str, Claim], work: _Work) -> dict[TopicPartition, str]:
    """Return the owner of each claimed partition: the claiming member with the latest generation.

    If several members claim a partition in the same generation, the partition has no owner. Claims
    of partitions that a member cannot take any more are ignored.
    """
    newest: dict[TopicPartition, tuple[int, str | None]] = {}
    for member, claim in claims.items():
        for partition in claim.partitions:
            if not work.can_take(member, partition):
                continue
            generation, owner = newest.get(partition, (None, None))
            if generation is None or claim.generation > generation:
                newest[partition] = (claim.generation, member)
            elif claim.generation == generation and owner != member:
                newest[partition] = (generation, None)
    return {partition: owner for partition, (_, owner) in newest.items() if owner is not None}


class _Work:
    """An assignment in progress."""

    def __init__(self, topology: Topology, members: Mapping[str, Subscription]) -> None:
        self._order = {member: rank for rank, member in enumerate(in_order(members))}
        self._topics = {member: frozenset(s.topics) for member, s in members.items()}
        self._racks = {member: s.rack for member, s in members.items()}
        self._replica_racks = topology.racks
        self._subscribers: dict[str, list[str]] = defaultdict(list)
        for member in self._order:
            for topic in sorted(self._topics[member]):
                self._subscribers[topic].append(member)
        counts = topology.partitions
        self._free = dict.fromkeys(
            TopicPartition(topic, number)
            for topic in all_topics(members)
            for number in range(counts.get(topic, 0))
        )
        self._by_rack = racks_matter(topology, self._free, self._racks.values())
        self._held: dict[str, dict[str, dict[TopicPartition, None]]] = {m: {} for m in members}
        self._load = dict.fromkeys(members, 0)
        self._share, self._larger_shares = 0, 0
        self._equal = len(set(self._topics.values())) == 1
        if self._equal:
            self._share, self._larger_shares = divmod(len(self._free), len(members))

    def taken(self, member: str) -> Iterator[TopicPartition]:
        for partitions in self._held[member].values():
            yield from partitions

    def can_take(self, member: str, partition: TopicPartition) -> bool:
        return partition in self._free and partition.topic in self._topics[member]

    def keep(self, owners: Mapping[TopicPartition, str]) -> None:
        """Give claimed partitions to their owners.

        If all members have the same subscription, an owner gets at most its share. If racks matter,
        a partition without a replica in its owner's rack is left free.
        """
        for partition, owner in sorted(owners.items()):
            if self._has_room(owner) and self._in_rack(owner, partition):
                self._give(owner, partition)

    def fill(self, owners: Mapping[TopicPartition, str]) -> None:
        """Give each free partition to the least loaded subscriber that may take more partitions.

        If racks matter, there are two earlier rounds. In the first round, a member with a rack
        takes only partitions with a replica in that rack. In the second round, the previous owners
        take partitions.
        """
        free = list(self._free)
        if not self._equal:  # partitions that few members can take come first
            free.sort(key=lambda partition: len(self._subscribers[partition.topic]))
        if self._by_rack:
            free = self._deal(free, in_rack=True)
            for partition in free:
                owner = owners.get(partition)
                if owner is not None and self._has_room(owner):
                    self._give(owner, partition)
        self._deal([partition for partition in free if partition in self._free], in_rack=False)

    def level(self, owners: Mapping[TopicPartition, str]) -> None:
        """Move partitions along paths until no path reduces a difference in load.

        A path leads from a member, over a topic of one of its partitions, to another subscriber of
        that topic, and so on. If every member that the most loaded member reaches has at most one
        partition less, all these members are settled: their numbers of partitions are final.
        """
        if self._equal:
            return  # with equal subscriptions, `_has_room` has limited each member to its share
        load, order = self._load, self._order
        unsettled = set(load)
        most = [(-load[member], order[member], member) for member in unsettled]
        least = [(load[member], order[member], member) for member in unsettled]
        heapify(most)
        heapify(least)
        while unsettled:
            heavy = self._current(most, unsettled, -1)
            lowest = load[self._current(least, unsettled, 1)]
            if load[heavy] - lowest < 2:
                return
            came_from, light = self._reachable(heavy, lowest)
            if load[heavy] - load[light] < 2:
                unsettled.difference_update(came_from)
                continue
            self._shift(came_from, heavy, light, owners)
            for member in (heavy, light):  # other members give as many partitions as they get
                heappush(most, (-load[member], order[member], member))
                heappush(least, (load[member], order[member], member))

    def _deal(self, free: Iterable[TopicPartition], *, in_rack: bool) -> list[TopicPartition]:
        """Give each partition to the least loaded member that can take it.

        Args:
            in_rack: if True, a member with a rack takes only partitions with a replica in that
                rack.

        Returns:
            The partitions that no member can take.
        """
        left: list[TopicPartition] = []
        heaps: dict[tuple[str, frozenset[str]], _Heap] = {}
        for partition in free:
            racks = self._replica_racks.get(partition, frozenset()) if in_rack else frozenset()
            # If all subscriptions are equal, one heap serves all topics.
            topic = "" if self._equal else partition.topic
            heap = heaps.get((topic, racks))
            if heap is None:
                heap = heaps[topic, racks] = [
                    (self._load[member], self._order[member], member)
                    for member in self._subscribers[partition.topic]
                    if not in_rack or self._in_rack(member, partition)
                ]
                heapify(heap)
            member = self._lightest(heap)
            if member is None:
                left.append(partition)
            else:
                self._give(member, partition)
        return left

    def _lightest(self, heap: _Heap) -> str | None:
        """Return the least loaded member that may take more partitions; None if there is none.

        Loads only grow while partitions are assigned. An entry with an old load is therefore not
        corrected until this entry is the first of the heap.
        """
        while heap:
            load, order, member = heap[0]
            if not self._has_room(member):
                heappop(heap)
            elif load != self._load[member]:
                heapreplace(heap, (self._load[member], order, member))
            else:
                return member
        return None

    def _current(self, heap: _Heap, members: Set[str], sign: int) -> str:
        """Return the first of `members` in the heap.

        The entries before this entry are outdated or belong to other members. They are dropped.

        Args:
            sign: -1 if the heap's entries have negated loads, otherwise 1.
        """
        while True:
            load, _, member = heap[0]
            if member in members and load == sign * self._load[member]:
                return member
            heappop(heap)

    def _reachable(self, start: str, lowest: int) -> tuple[dict[str, tuple[str, str]], str]:
        """Return the members that paths from `start` reach, and the least loaded of them.

        Each member is mapped to the member and the topic before it on its path. Among equally
        loaded members the nearest is returned. The search ends at the first member with the load
        `lowest`, because no member has a lower load.
        """
        came_from = {start: (start, "")}
        crossed: set[str] = set()
        queue = deque([start])
        light = start
        while queue:
            member = queue.popleft()
            for topic in self._held[member]:
                if topic in crossed:
                    continue
                crossed.add(topic)
                for subscriber in self._subscribers[topic]:
                    if subscriber in came_from:
                        continue
                    came_from[subscriber] = (member, topic)
                    queue.append(subscriber)
                    if self._load[subscriber] < self._load[light]:
                        light = subscriber
                        if self._load[light] <= lowest:
                            return came_from, light
        return came_from, light

    def _shift(
        self,
        came_from: Mapping[str, tuple[str, str]],
        heavy: str,
        light: str,
        owners: Mapping[TopicPartition, str],
    ) -> None:
        """Move partitions along the path of members from `heavy` to `light`.

        Every member on the path, except the last, gives partitions of one topic to the next member,
        which is subscribed to that topic, too. The topics of the members may differ, but all
        members give the same number of partitions. This number is a `PORTION`th of the difference
        between the loads of `heavy` and `light`, but at least 1. It is smaller if a member on the
        path has fewer partitions of the topic that it gives.
        """
        steps: list[tuple[str, str, str]] = []
        target = light
        while target != heavy:
            source, topic = came_from[target]
            steps.append((source, target, topic))
            target = source
        count = max(1, (self._load[heavy] - self._load[light]) // PORTION)
        count = min(count, *(len(self._held[source][topic]) for source, _, topic in steps))
        for source, target, topic in steps:
            self._move(count, source, target, topic, owners)

    def _move(
        self, count: int, source: str, target: str, topic: str, owners: Mapping[TopicPartition, str]
    ) -> None:
        """Move `count` partitions of one topic from the member `source` to the member `target`.

        Partitions that `target` owned come first, and those that `source` owned come last.
        """

        def reluctance(partition: TopicPartition) -> int:
            owner = owners.get(partition)
            return 0 if owner == target else 2 if owner == source else 1

        held = self._held[source][topic]
        for partition in nsmallest(count, held, key=reluctance):
            del held[partition]
            self._hold(target, partition)
        if not held:
            del self._held[source][topic]
        self._load[source] -= count

    def _has_room(self, member: str) -> bool:
        if not self._equal:
            return True
        load = self._load[member]
        return load < self._share or (load == self._share and self._larger_shares > 0)

    def _in_rack(self, member: str, partition: TopicPartition) -> bool:
        rack = self._racks[member]
        return not self._by_rack or rack is None or rack in self._replica_racks.get(partition, ())

    def _give(self, member: str, partition: TopicPartition) -> None:
        del self._free[partition]
        if self._load[member] == self._share:
            self._larger_shares -= 1
        self._hold(member, partition)

    def _hold(self, member: str, partition: TopicPartition) -> None:
        self._held[member].setdefault(partition.topic, {})[partition] = None
        self._load[member] += 1
