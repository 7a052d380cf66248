"""Assignors by name: Kafka's own, Java's class names, and user-defined ones."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import pytest

from aiokq.assign.assignor import ASSIGNORS, Assignor, common_protocol, resolve
from aiokq.assign.model import Assignment, RebalanceProtocol, Subscription, Topology
from aiokq.core.errors import ConfigError


class EverythingToTheFirst:
    name = "first"
    rebalance_protocols = (RebalanceProtocol.EAGER,)

    def user_data(self, topics: Collection[str]) -> bytes | None:
        return None

    def assign(
        self, topology: Topology, members: Mapping[str, Subscription]
    ) -> dict[str, Assignment]:
        return {member: Assignment(()) for member in members}

    def assigned(self, assignment: Assignment, generation: int) -> None:
        pass


def test_names_are_those_on_the_wire() -> None:
    """Members find a common assignor by these names, across clients."""
    for name, make in ASSIGNORS.items():
        assignor = make()
        assert isinstance(assignor, Assignor)
        assert assignor.name == name


def test_java_names_and_own_assignors_are_taken() -> None:
    """A properties file that was written for Java still works."""
    found = resolve(
        ["org.apache.kafka.clients.consumer.CooperativeStickyAssignor", EverythingToTheFirst()]
    )
    assert [assignor.name for assignor in found] == ["cooperative-sticky", "first"]


def test_each_consumer_has_assignors_of_its_own() -> None:
    """Sticky assignors keep state, which two consumers must not share."""
    assert resolve(["sticky"])[0] is not resolve(["sticky"])[0]


@pytest.mark.parametrize(
    ("strategy", "text"),
    [
        (["stikcy"], "did you mean sticky"),
        ([], "is empty: name at least one assignor"),
        (["range", "range"], "'range' twice"),
    ],
)
def test_a_strategy_that_cannot_be_is_refused_with_the_reason(
    strategy: list[str], text: str
) -> None:
    """The error is raised at construction, not in the first rebalance."""
    with pytest.raises(ConfigError, match=text):
        resolve(strategy)


def test_the_rebalance_protocol_is_one_that_all_support() -> None:
    """[range, cooperative-sticky] upgrades a group: it stays eager until range is dropped."""
    assert common_protocol(resolve(["cooperative-sticky"])) is RebalanceProtocol.COOPERATIVE
    assert common_protocol(resolve(["range", "cooperative-sticky"])) is RebalanceProtocol.EAGER

    class CooperativeOnly(EverythingToTheFirst):
        name = "cooperative-only"
        rebalance_protocols = (RebalanceProtocol.COOPERATIVE,)

    with pytest.raises(ConfigError, match="no rebalance protocol in common"):
        resolve(["range", CooperativeOnly()])
