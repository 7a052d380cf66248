"""aiokq.broker.config.roles: the roles of Kafka that a node can have."""

from __future__ import annotations

import socket

import pytest

from aiokq.broker.config.listeners import configured_listeners
from aiokq.broker.config.roles import (
    check_quorum,
    check_roles,
    configured_node_id,
    has_dynamic_voters,
    voter_address,
)
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
    check_roles(settings)
    check_quorum(settings, configured_listeners(settings), configured_node_id(settings))


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


def test_a_voter_is_named_once():
    """Regression: of two addresses of this node, one is another node's."""
    message = refused(**{"controller.quorum.voters": "1@localhost:1,1@127.0.0.1:2"})
    assert "names node 1 twice" in message


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
        check_quorum(settings, configured_listeners(settings), None)


@pytest.mark.parametrize(
    "servers", ["localhost:9093", "127.0.0.1:9093,localhost:9093", "0.0.0.0:9093"]
)
def test_the_quorum_is_found_at_this_node(servers):
    """The host is this machine; the port is the controller listener's."""
    check(**{"controller.quorum.bootstrap.servers": servers})


HOSTS = [
    ("K1.example.", {"listeners": "PLAINTEXT://:9092,CONTROLLER://k1.example:9093"}),
    ("k1.example", {"listeners": "PLAINTEXT://k1.example:9092,CONTROLLER://:9093"}),
    ("k1.example", {"advertised.listeners": "PLAINTEXT://k1.example:9092"}),
    (
        "k1.example",
        {"advertised.listeners": "PLAINTEXT://:9092,CONTROLLER://k1.example:9093"},
    ),
    ("10.0.0.7", {"advertised.listeners": "PLAINTEXT://10.0.0.7:9092"}),
    ("kafka-0", {}),
    ("KAFKA-0.headless.svc", {}),
]


@pytest.mark.parametrize(("host", "given"), HOSTS)
def test_a_voter_has_a_host_of_this_node(monkeypatch, host, given):
    """Containers name themselves by their host name or by an advertised name."""
    monkeypatch.setattr(socket, "gethostname", lambda: "kafka-0")
    check(**given, **{"controller.quorum.voters": f"1@{host}:9093"})
    check(**given, **{"controller.quorum.bootstrap.servers": f"{host}:9093"})


@pytest.mark.parametrize(
    ("own", "named", "is_own"),
    [
        ("kafka-0.example", "kafka-0", True),
        ("kafka-0.example", "kafka-0.example", True),
        ("kafka-0.example", "kafka-0.other", False),
        ("kafka-0", "kafka-1", False),
    ],
)
def test_the_name_of_the_machine_may_lack_its_domain(monkeypatch, own, named, is_own):
    """`gethostname` has the domain on some machines; to look it up could block the start."""
    monkeypatch.setattr(socket, "gethostname", lambda: own)
    monkeypatch.setattr(socket, "getfqdn", lambda: pytest.fail("may block"))
    given = {"controller.quorum.voters": f"1@{named}:9093"}
    if is_own:
        check(**given)
    else:
        assert f"{named} is neither localhost" in refused(**given)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("controller.quorum.voters", "1@elsewhere:9093"),
        ("controller.quorum.bootstrap.servers", "elsewhere:9093"),
        ("controller.quorum.bootstrap.servers", "localhost:9093,elsewhere:9093"),
    ],
)
def test_a_voter_on_another_host_is_refused_by_name(name, value):
    """With the id and port of this node it was taken for this node, and a second cluster began."""
    message = refused(**{name: value})
    assert message.startswith(f"{name}={value}: ")
    assert "elsewhere:9093 is not this node" in message
    assert "use that host in advertised.listeners" in message


@pytest.mark.parametrize(
    "given",
    [
        {"controller.quorum.voters": "1@localhost:9093"},
        {"controller.quorum.bootstrap.servers": "localhost:9093"},
    ],
)
def test_a_quorum_needs_a_listener_for_controllers(given):
    """As in Kafka on a node that is a controller."""
    settings = broker_settings({"node.id": "1", "listeners": "PLAINTEXT://:9092", **given})
    with pytest.raises(ConfigError, match=r"controller\.listener\.names"):
        check_quorum(settings, configured_listeners(settings), 1)


def test_the_port_of_a_voter_is_not_compared_as_in_kafka():
    """A port mapping may give controllers another port; the id says that this node is meant."""
    check(**{"controller.quorum.voters": "1@localhost:19093"})


def test_a_bootstrap_server_may_be_an_advertised_listener():
    """Behind a port mapping, other controllers would connect to that address."""
    advertised = "PLAINTEXT://k1:9092,CONTROLLER://k1:19093"
    check(**{"advertised.listeners": advertised, "controller.quorum.bootstrap.servers": "k1:19093"})


@pytest.mark.parametrize(
    ("servers", "words"),
    [
        ("localhost:9095", "not a listener of this node"),
        ("k1:9093,k2:9093,k3:9093", "k1:9093 is not this node"),
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


@pytest.mark.parametrize(
    ("given", "dynamic"),
    [
        ({}, False),
        ({"controller.quorum.bootstrap.servers": "localhost:9093"}, True),
        ({"controller.quorum.bootstrap.servers": " , "}, False),
        ({"controller.quorum.voters": "1@localhost:9093"}, False),
        (
            {
                "controller.quorum.bootstrap.servers": "localhost:9093",
                "controller.quorum.voters": "1@localhost:9093",
            },
            False,
        ),
    ],
)
def test_a_new_log_names_its_voter_with_bootstrap_servers_only(given, dynamic):
    """Its host is one that can be connected to, not the wildcard of the listener."""
    settings = broker_settings({**COMBINED, **given})
    assert has_dynamic_voters(settings) is dynamic
    address = voter_address(settings, configured_listeners(settings))
    assert address == (("CONTROLLER", "localhost", 9093) if dynamic else None)
