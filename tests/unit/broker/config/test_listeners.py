"""aiokq.broker.config.listeners: Kafka's rules for listeners, as Apache Kafka 4.2 applies them.

Accepted and rejected settings were compared with `kafka.server.KafkaConfig`; the test in
tests/interop/kafka repeats the comparison.
"""

from __future__ import annotations

import pytest

from aiokq.broker.config.listeners import (
    Advertise,
    Endpoint,
    Listeners,
    configured_listeners,
    is_loopback,
    limits_of_hosts,
    named_hosts,
)
from aiokq.broker.config.settings import broker_settings
from aiokq.core.errors import ConfigError

TWO = {
    "listeners": "PLAINTEXT://127.0.0.1:9092,INNER://127.0.0.1:9094",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INNER:PLAINTEXT",
}


def listeners(**flags: object) -> Listeners:
    settings = {name: value for name, value in flags.items() if "." in name or name == "listeners"}
    rest = {name: value for name, value in flags.items() if name not in settings}
    return configured_listeners(broker_settings(settings), **rest)


def refused(**flags: object) -> str:
    with pytest.raises(ConfigError) as caught:
        listeners(**flags)
    return caught.value.message


def test_without_settings_there_is_one_listener_on_this_machine():
    """Kafka's default is all interfaces, which is too open for a broker that anyone may use."""
    found = listeners()
    assert found.opened == (Endpoint("PLAINTEXT", "127.0.0.1", 9092),)
    assert found.advertised == {"PLAINTEXT": Endpoint("PLAINTEXT", "127.0.0.1", 9092)}
    assert (found.inter_broker, found.controllers) == ("PLAINTEXT", ())


def test_names_are_in_capitals_and_blanks_do_not_count():
    """Kafka normalizes them as well, and the protocol map and options refer to the names."""
    found = listeners(
        **{
            "listeners": " plaintext://localhost:9092 , Inner://[::1]:9094 ",
            "listener.security.protocol.map": "plaintext:PLAINTEXT, INNER:plaintext",
        }
    )
    assert found.opened == (
        Endpoint("PLAINTEXT", "localhost", 9092),
        Endpoint("INNER", "::1", 9094),
    )
    assert [str(one) for one in found.opened] == [
        "PLAINTEXT://localhost:9092",
        "INNER://[::1]:9094",
    ]


@pytest.mark.parametrize(
    "entry",
    ["PLAINTEXT", "PLAINTEXT:9092", "PLAINTEXT://h", "PLAINTEXT://a b:1", "", "PLAINTEXT://h:x"],
)
def test_what_is_no_listener_is_refused_with_its_form(entry):
    """An entry that is parsed in part would open something else."""
    assert "NAME://host:port" in refused(listeners=f"PLAINTEXT://:9092,{entry}")
    given = {"listeners": "PLAINTEXT://:1", "advertised.listeners": f"PLAINTEXT://h:1,{entry}"}
    assert "NAME://host:port" in refused(**given)


def test_a_port_beyond_65535_is_refused():
    """Kafka accepts it and fails to bind."""
    assert "65535" in refused(listeners="PLAINTEXT://:65536")
    assert "65535" in refused(listeners="PLAINTEXT://:-1")
    assert "65535" in refused(listeners="PLAINTEXT://:" + "9" * 5000)


@pytest.mark.parametrize(
    "host", ["a..b", ".a", "a" * 64, "a" * 64 + ".org", ".".join(["a" * 60] * 5)]
)
def test_a_host_that_dns_cannot_have_is_refused(host):
    """The resolver raises a UnicodeError for it, and a longer one fits in no response."""
    assert "is not a host name" in refused(listeners=f"PLAINTEXT://{host}:9092")
    given = {"listeners": "PLAINTEXT://:9092"}
    advertised = {"advertised.listeners": f"PLAINTEXT://{host}:9092"}
    assert "advertised.listeners: " in refused(**given, **advertised)
    assert "--host: " in refused(**given, host=host)
    assert "--advertise: " in refused(**given, advertise=Advertise(host, None))


@pytest.mark.parametrize("host", ["\udce9", "a\0b"])
def test_a_host_that_is_not_printable_is_refused(host):
    """An argument that is not UTF-8 has surrogates, which no encoder takes."""
    assert "--host: " in refused(listeners="PLAINTEXT://:9092", host=host)


@pytest.mark.parametrize("host", ["a.", "a" * 63, "my_host", "fe80::1%eth0.5", "é.example"])
def test_an_unusual_host_is_accepted(host):
    """The resolver decides about it."""
    assert listeners(listeners="PLAINTEXT://a:9092", host=host).opened[0].host == host


@pytest.mark.parametrize("count", ["", "-1", "1_0", "2147483648", "9" * 5000])
def test_a_count_of_connections_that_is_no_int_is_refused(count):
    """Kafka's type is int."""
    message = refused(**{"max.connections.per.ip.overrides": f"127.0.0.1:{count}"})
    assert "address:count" in message
    assert "is not a number from 0 to 2147483647" in message
    assert len(message) < 250


@pytest.mark.parametrize("host", ["", "a b", "a\0b", "9" * 5000])
def test_a_count_of_connections_of_no_host_is_refused(host):
    message = refused(**{"max.connections.per.ip.overrides": f"{host}:1"})
    assert "is no address and no host name" in message
    assert len(message) < 250


def test_names_are_unique():
    """Names are compared without regard to case."""
    assert "different name" in refused(listeners="PLAINTEXT://:9092,plaintext://:9093")


@pytest.mark.parametrize(
    ("hosts", "accepted"),
    [
        (("127.0.0.1", "[::1]"), True),
        (("[::1]", "127.0.0.1"), True),
        (("127.0.0.1", "127.0.0.2"), False),
        (("[::1]", "[::2]"), False),
        (("localhost", "[::1]"), False),
        (("", "[::1]"), False),
        (("", ""), False),
    ],
)
def test_a_port_is_shared_by_an_ipv4_and_an_ipv6_address_only(hosts, accepted):
    """KIP-797. A host name may resolve to both families, so it counts as neither."""
    given = {
        **TWO,
        "listeners": f"PLAINTEXT://{hosts[0]}:9092,INNER://{hosts[1]}:9092",
        "advertised.listeners": "PLAINTEXT://h:1,INNER://h:1",
    }
    if accepted:
        assert len(listeners(**given).opened) == 2
    else:
        assert "different port" in refused(**given)


def test_three_listeners_do_not_share_a_port():
    """KIP-797 allows one address of each family only."""
    given = {
        "listeners": "A://127.0.0.1:1,B://[::1]:1,C://127.0.0.2:1",
        "listener.security.protocol.map": "A:PLAINTEXT,B:PLAINTEXT,C:PLAINTEXT",
        "inter.broker.listener.name": "A",
    }
    assert "different port" in refused(**given)


def test_free_ports_may_repeat():
    """Each listener gets its own free port."""
    given = {**TWO, "listeners": "PLAINTEXT://127.0.0.1:0,INNER://127.0.0.1:0"}
    assert [one.port for one in listeners(**given).opened] == [0, 0]


@pytest.mark.parametrize(
    "host",
    [
        *("0.0.0.0", "0", "0.0", "000.0.0.0", "0x0", "00"),
        *("[::]", "[::0]", "[0:0:0:0:0:0:0:0]", "[::%eth0]", "[::0.0.0.0]", "[::ffff:0.0.0.0]"),
    ],
)
def test_a_wildcard_is_not_advertised(host):
    """No client can connect to it. Regression: only `0.0.0.0` and `::` were recognised."""
    assert "advertised.listeners=PLAINTEXT://HOST:PORT" in refused(
        listeners=f"PLAINTEXT://{host}:1"
    )
    given = {"listeners": "PLAINTEXT://:1", "advertised.listeners": f"PLAINTEXT://{host}:1"}
    assert "wildcard" in refused(**given)
    with_advertised = {
        "listeners": f"PLAINTEXT://{host}:1",
        "advertised.listeners": "PLAINTEXT://h:2",
    }
    assert listeners(**with_advertised).advertised == {"PLAINTEXT": Endpoint("PLAINTEXT", "h", 2)}


def test_only_listeners_are_advertised():
    """An advertised name without a listener is a mistake."""
    given = {**TWO, "advertised.listeners": "PLAINTEXT://h:1,OUTER://h:2"}
    assert "OUTER" in refused(**given)


def test_a_listener_may_be_left_unadvertised():
    """As in Kafka, clients that connect to it learn of no broker."""
    found = listeners(**TWO, **{"advertised.listeners": "PLAINTEXT://h:1"})
    assert list(found.advertised) == ["PLAINTEXT"]
    assert len(found.opened) == 2


def test_advertised_ports_may_repeat():
    """A proxy may tell them apart by their host names."""
    found = listeners(**TWO, **{"advertised.listeners": "PLAINTEXT://h:1,INNER://i:1"})
    assert [one.port for one in found.advertised.values()] == [1, 1]


def test_the_map_knows_every_name():
    """To assume plaintext would open a listener that was meant to be encrypted."""
    assert "INNER:PLAINTEXT" in refused(listeners=TWO["listeners"])
    without = {**TWO, "listener.security.protocol.map": "INNER:PLAINTEXT"}
    assert "PLAINTEXT:PLAINTEXT" in refused(**without)
    assert "NAME:PROTOCOL" in refused(**{"listener.security.protocol.map": "PLAINTEXT"})
    assert "SASL_SSL" in refused(**{"listener.security.protocol.map": "PLAINTEXT:TLS"})


@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "SASL_SSL"])
def test_a_listener_with_sasl_needs_mechanisms(protocol):
    """Kafka's default, GSSAPI, is refused by name."""
    given = {"listeners": f"PLAINTEXT://127.0.0.1:1,{protocol}://127.0.0.1:2"}
    assert f"listener.name.{protocol.lower()}.sasl.enabled.mechanisms=GSSAPI" in refused(**given)
    mapped = {**TWO, "listener.security.protocol.map": f"PLAINTEXT:PLAINTEXT,INNER:{protocol}"}
    assert "listener.name.inner.sasl.enabled.mechanisms=GSSAPI" in refused(**mapped)
    found = configured_listeners(
        broker_settings({**mapped, "sasl.enabled.mechanisms": "SCRAM-SHA-256"})
    )
    assert found.security["INNER"].protocol == protocol


def test_the_inter_broker_listener_is_advertised():
    """It defaults to PLAINTEXT; other brokers could not learn of an unadvertised one."""
    renamed = {
        "listeners": "OUTER://127.0.0.1:1",
        "listener.security.protocol.map": "OUTER:PLAINTEXT",
    }
    assert "inter.broker.listener.name" in refused(**renamed)
    assert listeners(**renamed, **{"inter.broker.listener.name": "outer"}).inter_broker == "OUTER"
    assert listeners(**TWO, **{"inter.broker.listener.name": "INNER"}).inter_broker == "INNER"
    unknown = {**TWO, "inter.broker.listener.name": "NOPE"}
    assert "listener.security.protocol.map" in refused(**unknown)
    both = {**TWO, "inter.broker.listener.name": "INNER", "security.inter.broker.protocol": "SSL"}
    assert "only one of" in refused(**both)


THREE = {
    "listeners": "PLAINTEXT://:1,ADMIN://:2,INNER://:3",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,ADMIN:PLAINTEXT,INNER:PLAINTEXT",
}


@pytest.mark.parametrize(
    ("given", "protected"),
    [
        ({}, set()),
        (TWO, {"PLAINTEXT"}),
        (THREE | {"inter.broker.listener.name": "INNER"}, {"INNER"}),
        (
            THREE | {"inter.broker.listener.name": "INNER", "admin.listener.name": "admin"},
            {"INNER", "ADMIN"},
        ),
        (TWO | {"admin.listener.name": "INNER"}, {"INNER"}),
        ({"admin.listener.name": "PLAINTEXT"}, set()),
    ],
)
def test_the_listeners_of_brokers_and_administrators_are_protected(given, protected):
    """Unless that would leave no listener to which the limits of the node apply."""
    assert listeners(**given).protected == protected


def test_the_listener_of_administrators_is_opened():
    assert "is NOPE, which is not in listeners" in refused(**{"admin.listener.name": "nope"})
    controllers = {
        "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
        "controller.listener.names": "CONTROLLER",
    }
    assert "CONTROLLER" in refused(**controllers, **{"admin.listener.name": "CONTROLLER"})


def test_listeners_of_controllers_are_not_opened():
    """This node is the only voter, so no other controller connects."""
    found = listeners(
        **{
            "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
            "controller.listener.names": "CONTROLLER",
            "advertised.listeners": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
        }
    )
    assert found.opened == (Endpoint("PLAINTEXT", "", 9092),)
    assert found.controllers == (Endpoint("CONTROLLER", "", 9093),)
    assert list(found.advertised) == ["PLAINTEXT"]


def test_listeners_of_controllers_are_not_all_there_is():
    """Their names must be names of listeners."""
    names = {"controller.listener.names": "CONTROLLER"}
    assert "add a listener for clients" in refused(listeners="CONTROLLER://:9093", **names)
    assert "none of these listeners" in refused(listeners="PLAINTEXT://:9092", **names)
    given = {"listeners": "PLAINTEXT://:9092,CONTROLLER://:9092", **names}
    assert "different port" in refused(**given)


def test_flags_set_the_first_listener():
    """The first one for clients, because CONTROLLER may come before it."""
    given = {
        "listeners": "CONTROLLER://:9093,PLAINTEXT://0.0.0.0:9092,INNER://127.0.0.1:9094",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": TWO["listener.security.protocol.map"]
        + ",CONTROLLER:PLAINTEXT",
    }
    found = listeners(**given, host="10.0.0.1", port=1, advertise=Advertise("outside", 2))
    assert found.opened[0] == Endpoint("PLAINTEXT", "10.0.0.1", 1)
    assert found.opened[1] == Endpoint("INNER", "127.0.0.1", 9094)
    assert found.advertised["PLAINTEXT"] == Endpoint("PLAINTEXT", "outside", 2)
    assert found.advertised["INNER"] == Endpoint("INNER", "127.0.0.1", 9094)
    found = listeners(**given, advertise=Advertise("outside", None))
    assert found.advertised["PLAINTEXT"].port == 0  # the port that is actually bound
    assert "different port" in refused(**given, port=9094, advertise=Advertise("outside", None))


@pytest.mark.parametrize(
    ("listening", "advertised", "flags", "expected"),
    [
        # Kafka's server.properties: clients must not be sent to the port of another broker.
        (":9092", "localhost:9092", {"port": 19777}, "localhost:19777"),
        (":9092", "localhost:9092", {"port": 0}, "localhost:0"),
        (":9092", "localhost:9092", {}, "localhost:9092"),
        ("0.0.0.0:9092", "kafka.example:9092", {"port": 19777}, "kafka.example:19777"),
        # A port of a proxy or of address translation stays.
        (":9092", "kafka.example:443", {"port": 19777}, "kafka.example:443"),
        ("127.0.0.1:0", "kafka.example:9092", {"port": 19777}, "kafka.example:9092"),
        ("127.0.0.1:9092", "kafka.example:0", {"port": 19777}, "kafka.example:0"),
        # The host of the listener moves along; the name of a proxy stays.
        ("10.0.0.1:9092", "10.0.0.1:9092", {"host": "10.0.0.2"}, "10.0.0.2:9092"),
        ("10.0.0.1:9092", "kafka.example:9092", {"host": "10.0.0.2"}, "kafka.example:9092"),
        ("10.0.0.1:9092", "10.0.0.1:443", {"host": "10.0.0.2"}, "10.0.0.2:443"),
        ("10.0.0.1:9092", "10.0.0.1:9092", {"host": "::1", "port": 1}, "[::1]:1"),
        # A broker that listens on another address only cannot be reached at localhost.
        (":9092", "localhost:9092", {"host": "10.0.0.2"}, "10.0.0.2:9092"),
        (":9092", "localhost:9092", {"host": "127.0.0.1"}, "localhost:9092"),
        # A wildcard includes the advertised address.
        ("127.0.0.1:9092", "127.0.0.1:9092", {"host": "0.0.0.0"}, "127.0.0.1:9092"),
        ("127.0.0.1:9092", "localhost:9092", {"host": ""}, "localhost:9092"),
    ],
)
def test_the_advertised_address_follows_a_listener_that_a_flag_moves(
    listening, advertised, flags, expected
):
    """Clients connect to the advertised address, so it must be an address of this broker."""
    given = {
        "listeners": f"PLAINTEXT://{listening}",
        "advertised.listeners": f"PLAINTEXT://{advertised}",
    }
    assert listeners(**given, **flags).advertised["PLAINTEXT"].address == expected


def test_only_the_first_listener_is_moved_and_advertise_is_taken_as_it_is():
    """The flags set the first listener."""
    given = {**TWO, "advertised.listeners": "PLAINTEXT://a:9092,INNER://a:9094"}
    found = listeners(**given, port=1).advertised
    assert [one.address for one in found.values()] == ["a:1", "a:9094"]
    found = listeners(**given, port=1, advertise=Advertise("b", 9092)).advertised
    assert [one.address for one in found.values()] == ["b:9092", "a:9094"]
    unadvertised = {**given, "advertised.listeners": "INNER://a:9094"}
    found = listeners(**unadvertised, **{"inter.broker.listener.name": "INNER"}, port=1).advertised
    assert [one.address for one in found.values()] == ["a:9094"]


def test_without_listeners_the_default_port_is_the_port_of_the_listener():
    """An embedded cluster has a free port, which is not one that a flag moved."""
    given = {"advertised.listeners": "PLAINTEXT://proxy:9092"}
    found = listeners(**given, default_port=0)
    assert found.opened[0].port == 0
    assert found.advertised["PLAINTEXT"] == Endpoint("PLAINTEXT", "proxy", 9092)
    assert listeners(**given, port=1).advertised["PLAINTEXT"].address == "proxy:1"


@pytest.mark.parametrize(
    "host", ["255.255.255.255", "224.0.0.1", "239.1.2.3", "0xe0.1", "[ff02::1]", "[FF05::2]"]
)
def test_a_broadcast_or_multicast_address_is_refused(host):
    """Linux binds a listener to them, and no client can connect."""
    for given in (
        {"listeners": f"PLAINTEXT://{host}:1"},
        {"listeners": "PLAINTEXT://:1", "advertised.listeners": f"PLAINTEXT://{host}:1"},
    ):
        assert "broadcast or multicast" in refused(**given)
    with pytest.raises(ConfigError, match=r"--host: .* broadcast or multicast"):
        configured_listeners(broker_settings(), host=host.strip("[]"))


@pytest.mark.parametrize("host", ["223.255.255.255", "240.0.0.1", "[fe80::1%lo]", "[e0::1]", "ff"])
def test_other_addresses_are_accepted(host):
    """A name may look like the beginning of an address."""
    assert listeners(listeners=f"PLAINTEXT://{host}:1").opened[0].host == host.strip("[]")


def test_loopback_is_recognised_without_a_resolver():
    """A name server may be slow, and a name that begins like a loopback address is not one."""
    for host in ("127.0.0.1", "127.3.2.1", "127.1", "::1", "localhost", "LocalHost"):
        assert is_loopback(host)
    for host in ("", "0.0.0.0", "::", "10.0.0.1", "127.example.org", "fe80::1%lo"):
        assert not is_loopback(host)


def test_settings_of_a_listener_that_is_none_are_refused():
    """With a mistyped listener name the limit would not apply."""
    limit = {"listener.name.inner.max.connections": "5"}
    settings = broker_settings({**TWO, **limit})
    assert settings.listener_max_connections == (("INNER", 5),)
    assert configured_listeners(settings).opened
    for name in ("listener.name.iner.max.connections", "listener.name.iner.ssl.client.auth"):
        assert "listener.name.iner" in refused(**TWO, **{name: "5"})


def test_listeners_that_start_early_exist():
    """All listeners open together here, but the names are validated."""
    assert listeners(**TWO, **{"early.start.listeners": "INNER"}).opened
    assert "OUTER" in refused(**TWO, **{"early.start.listeners": "OUTER"})


def test_limits_of_addresses_are_read_as_kafka_writes_them():
    text = "127.0.0.1:5, [::1]:6,fd00:0::1:7"
    settings = broker_settings({"max.connections.per.ip.overrides": text})
    assert limits_of_hosts(settings) == {"127.0.0.1": 5, "[::1]": 6, "[fd00::1]": 7}
    assert not named_hosts(settings)
    for part in ("127.0.0.1", "127.0.0.1:x", ":5"):
        assert "address:count" in refused(**{"max.connections.per.ip.overrides": part})


def test_limits_of_hosts_are_those_of_their_addresses():
    """As in Kafka's example, hostName:100,127.0.0.1:200."""
    text = "hostName:100, 127.0.0.1:200,other:3"
    settings = broker_settings({"max.connections.per.ip.overrides": text})
    assert named_hosts(settings) == {"hostName", "other"}
    known = {"hostName": ["127.0.0.1", "[::1]"]}
    assert limits_of_hosts(settings, known) == {"127.0.0.1": 200, "[::1]": 100}
