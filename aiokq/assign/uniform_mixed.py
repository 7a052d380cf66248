"""The broker's default assignor, for groups whose members subscribe to different topics.

The assignor balances the members' numbers of partitions, as far as their subscriptions permit.

Source: Kafka ``UniformHeterogeneousAssignmentBuilder.java`` (4.2), with the same order of topics
and members and the same limit of rounds. Two heaps give the most and the least loaded member; Kafka
keeps two ranges of members. Tests: ``tests/unit/assign/test_server.py``.
"""

from __future__ import annotations

import heapq
import uuid
from collections import defaultdict
from typing import Final

from aiokq.assign.server_model import GroupSpec

__all__ = ["MixedAssignment"]

ROUNDS: Final = 16
"""The maximum number of passes over the topics.

One pass balances topics whose subscribers have the same subscriptions. If subscriptions overlap,
each pass about halves the imbalance.
"""

NOBODY: Final = -1


class MixedAssignment:
    """The assignment of one group; members are numbered in the order of their ids."""

    def __init__(self, group: GroupSpec) -> None:
        self._group = group
        self._members = sorted(group.members)
        self._sizes = [0] * len(self._members)
        subscribers: defaultdict[uuid.UUID, list[int]] = defaultdict(list)
        for index, member_id in enumerate(self._members):
            for topic_id in group.members[member_id].topics:
                if topic_id in group.topics:
                    subscribers[topic_id].append(index)
        self._subscribers: dict[uuid.UUID, list[int]] = {
            topic_id: subscribers[topic_id]
            for topic_id in sorted(
                subscribers,
                # Topics with the most partitions per subscriber come first; later topics can then
                # even out the numbers of partitions.
                key=lambda topic_id: (
                    -group.topics[topic_id].partitions / len(subscribers[topic_id]),
                    len(subscribers[topic_id]),
                    topic_id,
                ),
            )
        }
        self._owners = {
            topic_id: [NOBODY] * group.topics[topic_id].partitions for topic_id in self._subscribers
        }
        self._before: dict[uuid.UUID, list[int]] = {}

    def build(self) -> dict[str, dict[uuid.UUID, frozenset[int]]]:
        self._keep()
        for topic_id in self._subscribers:
            self._assign_rest(topic_id)
        self._balance()
        return self._result()

    def _keep(self) -> None:
        """Leave each member its previous partitions of topics to which it still subscribes."""
        for index, member_id in enumerate(self._members):
            member = self._group.members[member_id]
            for topic_id, partitions in member.assigned.items():
                owners = self._owners.get(topic_id)
                if owners is None or topic_id not in member.topics:
                    continue
                for number in partitions:
                    # A member keeps a partition only if the partition exists and is free. After
                    # damage to the log, two members may have the same partition, or a member may
                    # have a partition that does not exist.
                    if number < len(owners) and owners[number] == NOBODY:
                        owners[number] = index
                        self._sizes[index] += 1
        self._before = {topic_id: list(owners) for topic_id, owners in self._owners.items()}

    def _assign_rest(self, topic_id: uuid.UUID) -> None:
        """Give each free partition to the subscriber with the fewest partitions."""
        owners, sizes = self._owners[topic_id], self._sizes
        if NOBODY not in owners:
            return
        least = [(sizes[index], index) for index in self._subscribers[topic_id]]
        heapq.heapify(least)
        for number, owner in enumerate(owners):
            if owner == NOBODY:
                size, index = least[0]
                owners[number] = index
                sizes[index] = size + 1
                heapq.heapreplace(least, (size + 1, index))

    def _balance(self) -> None:
        topics = [topic_id for topic_id, takers in self._subscribers.items() if len(takers) > 1]
        quiet = 0
        for _ in range(ROUNDS):
            for topic_id in topics:
                quiet = 0 if self._balance_topic(topic_id) else quiet + 1
                if quiet >= len(topics):
                    return  # the last visit of each topic changed nothing

    def _balance_topic(self, topic_id: uuid.UUID) -> bool:
        """Move the topic's partitions from the most to the least loaded of its subscribers.

        Returns:
            Whether a partition was moved.
        """
        sizes, takers = self._sizes, self._subscribers[topic_id]
        counts = [sizes[index] for index in takers]
        if max(counts) - min(counts) <= 1:
            return False
        held = self._held(topic_id)
        most = [(-sizes[index], -index) for index in held]
        least = [(sizes[index], index) for index in takers]
        heapq.heapify(most)
        heapq.heapify(least)
        owners, moved = self._owners[topic_id], False
        while most:
            size, giver = -most[0][0], -most[0][1]
            if size != sizes[giver]:
                heapq.heapreplace(most, (-sizes[giver], -giver))  # the giver's size has changed
                continue
            while least[0][0] != sizes[least[0][1]]:
                taker = least[0][1]
                heapq.heapreplace(least, (sizes[taker], taker))
            taker = least[0][1]
            if size - sizes[taker] <= 1:
                break
            number = held[giver].pop()
            if not held[giver]:
                heapq.heappop(most)
            owners[number] = taker
            sizes[giver] -= 1
            sizes[taker] += 1
            moved = True
        return moved

    def _held(self, topic_id: uuid.UUID) -> dict[int, list[int]]:
        """Return each member's partitions of the topic; those that are new to the member come last.

        `_balance_topic` takes partitions from the end, because moving a partition that this
        assignment has given to the member costs nothing.
        """
        before = self._before[topic_id]
        held: defaultdict[int, list[int]] = defaultdict(list)
        for number, owner in enumerate(self._owners[topic_id]):
            held[owner].append(number)
        for owner, partitions in held.items():
            partitions.sort(key=lambda number: (before[number] != owner, number))
        return held

    def _result(self) -> dict[str, dict[uuid.UUID, frozenset[int]]]:
        gathered: list[dict[uuid.UUID, list[int]]] = [{} for _ in self._members]
        for topic_id, owners in self._owners.items():
            for number, owner in enumerate(owners):
                gathered[owner].setdefault(topic_id, []).append(number)
        result: dict[str, dict[uuid.UUID, frozenset[int]]] = {}
        for member_id, partitions in zip(self._members, gathered, strict=True):
            result[member_id] = {
                topic_id: frozenset(numbers) for topic_id, numbers in partitions.items()
            }
        return result
