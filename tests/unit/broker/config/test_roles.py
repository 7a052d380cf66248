"""aiokq.broker.config.roles: the roles of Kafka that a node can have."""

from __future__ import annotations

import pytest

from aiokq.broker.config.listeners import configured_listeners
from aiokq.broker.config.roles import check_roles, configured_node_id
from aiokq.broker.config.settings import broker_settings
from aiokq.core.errors import ConfigError

COMBINED = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "listeners": "PLAINTEXT://localhost:9092,CONTROLLER://:9093",
    "controller.listener.names": "CONTROLLER",
}


def check(**given: str) -> None:
    settings = broker_settings({**COMBINED, **given})
    check_roles(settings, configured_listeners(settings), configured_node_id(settings))


def refused(**given: str) -> str:
    with pytest.raises(ConfigError) as caught:
        check(**given)
    return caught.value.message


@pytest.mark.parametrize("roles", ["broker,controller", "controller, broker"])
def test_a_node_is_broker_and_controller(roles):
    """In any order, as in Kafka."""
    check(**{"process.roles": roles})


@pytest.mark.parametrize("roles", ["broker", "controller", "", "broker,broker", "zookeeper"])
def test_other_roles_are_refused_by_name(roles):
    """A broker alone would wait for controllers that it cannot reach."""
    assert "process.roles=broker,controller" in refused(**{"process.roles": roles})


def test_this_node_may_be_the_voter():
    """Kafka's configuration files name it."""
    check(**{"controller.quorum.voters": "1@localhost:9093"})
    check(**{"controller.quorum.voters": "1@[::1]:9093"})


@pytest.mark.parametrize("voters", ["2@localhost:9093", "1@a:9093,2@b:9093"])
def test_voters_other_than_this_node_are_refused_by_name(voters):
    """Otherwise two clusters would have the same id."""
    message = refused(**{"controller.quorum.voters": voters})
    assert "controller.quorum.voters" in message
    assert "2@" in message


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("controller.quorum.voters", "9" * 5000 + "@h:9093", "the id '999"),
        ("controller.quorum.voters", "1@h:65536", "the port '65536'"),
        ("controller.quorum.voters", "1@h:" + "9" * 5000, "the port '999"),
        ("controller.quorum.bootstrap.servers", "h:" + "9" * 5000, "the port '999"),
        ("controller.quorum.bootstrap.servers", "h:65536", "the port '65536'"),
    ],
    ids=lambda value: value[:40],
)
def test_a_number_of_a_voter_that_is_too_large_is_refused_by_name(name, value, words):
    """Python converts no text of more than 4300 digits."""
    message = refused(**{name: value})
    assert f"{name}: {words}" in message
    assert len(message) < 200


def test_a_voter_is_written_as_kafka_writes_it():
    """id@host:port."""
    assert "id@host:port" in refused(**{"controller.quorum.voters": "localhost:9093"})
    settings = broker_settings({"controller.quorum.voters": "1@localhost:9093"})
    with pytest.raises(ConfigError, match=r"needs node\.id"):
        check_roles(settings, configured_listeners(settings), None)


@pytest.mark.parametrize("servers", ["localhost:9093", "127.0.0.1:9093,localhost:9093", "k1:9093"])
def test_the_quorum_is_found_at_this_node(servers):
    """The host may be a name of this machine; the port is the controller listener's."""
    check(**{"controller.quorum.bootstrap.servers": servers})


@pytest.mark.parametrize(
    ("servers", "words"),
    [
        ("localhost:9095", "not a listener of this node"),
        ("k1:9093,k2:9093,k3:9093", "names 3 nodes"),
        ("localhost", "host:port"),
    ],
)
def test_a_quorum_of_others_is_refused_by_name(servers, words):
    """This node cannot join that quorum."""
    message = refused(**{"controller.quorum.bootstrap.servers": servers})
    assert "controller.quorum.bootstrap.servers" in message
    assert words in message


@pytest.mark.parametrize(
    ("given", "node_id"),
    [
        ({}, None),
        ({"node.id": "3"}, 3),
        ({"broker.id": "3"}, 3),
        ({"node.id": "3", "broker.id": "3"}, 3),
        ({"node.id": "3", "broker.id": "-1"}, 3),
    ],
)
def test_the_id_is_node_id_or_broker_id(given, node_id):
    """broker.id is its older name."""
    assert configured_node_id(broker_settings(given)) == node_id


def test_two_ids_are_refused():
    """As in Kafka."""
    with pytest.raises(ConfigError, match=r"node\.id is 3 and broker\.id is 4"):
        configured_node_id(broker_settings({"node.id": "3", "broker.id": "4"}))
