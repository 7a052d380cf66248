"""The listeners of a node, as Kafka's settings describe them. This module opens no sockets.

Source: Kafka ``SocketServerConfigs.listenerListToEndPoints``, ``AbstractKafkaConfig`` and
``KafkaConfig.validateValues``. Differences from Kafka: this module also refuses ports above 65535,
wildcards other than `0.0.0.0` as an advertised host, broadcast and multicast addresses, and hosts
that are too long for DNS (RFC 1035, section 2.3.4). This module does not compare
`controller.listener.names` with the default of `listeners`.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from aiokq.broker.config.setting import INT_MAX, shortened
from aiokq.core.errors import ConfigError
from aiokq.core.host_addresses import numeric_address
from aiokq.core.named_tuple import NamedTuple
from aiokq.core.numbers import PORT_MAX, parse_number

if TYPE_CHECKING:
    from ssl import SSLContext

    from aiokq.broker.config.listener_security import ListenerSettings
    from aiokq.broker.config.settings import BrokerSettings

__all__ = [
    "HOST",
    "LOCALHOST",
    "PLAINTEXT",
    "PROTOCOLS",
    "Advertise",
    "Endpoint",
    "ListenerFailed",
    "Listeners",
    "configured_listeners",
    "endpoints_of",
    "is_loopback",
    "is_wildcard",
    "limits_of_hosts",
    "named_hosts",
    "sasl_listeners",
]

PLAINTEXT: Final = "PLAINTEXT"
PROTOCOLS: Final = (PLAINTEXT, "SSL", "SASL_PLAINTEXT", "SASL_SSL")
"""The security protocols; the index of each is its number in registrations."""

LOCALHOST: Final = "localhost"

_BROADCAST: Final = b"\xff\xff\xff\xff"
_MULTICAST: Final = {4: range(224, 240), 16: range(255, 256)}
"""For each length of an address in bytes, the first bytes of multicast addresses."""

_LOOPBACK_6: Final = b"\0" * 15 + b"\1"
_MAPPED: Final = b"\0" * 10 + b"\xff\xff"
"""The prefix of an IPv4-mapped IPv6 address (RFC 4291, section 2.5.5.2)."""

_NAME: Final = r"[0-9a-zA-Z._\-]{1,253}"
"""A host name."""

HOST: Final = r"[0-9a-zA-Z\-%._:]*"
"""A host name, a numeric address without brackets, or the empty string."""

_ENDPOINT: Final = rf"(.*)://\[?({HOST})\]?:(-?[0-9]+)"


class Endpoint(NamedTuple):
    """A listener's name with a host and a port.

    An empty host means all interfaces; in an advertised address, it means this machine's name.
    """

    name: str
    host: str
    port: int

    @property
    def address(self) -> str:
        """`host:port`, with an IPv6 address in brackets."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def __str__(self) -> str:
        return f"{self.name}://{self.address}"


class ListenerFailed(OSError):
    """A listener could not be opened; `endpoint` is the listener, and `errno` is the reason."""

    endpoint: Endpoint

    @classmethod
    def of(cls, endpoint: Endpoint, error: OSError) -> ListenerFailed:
        """Return a ListenerFailed with the error number and text of `error`."""
        failed = cls(error.errno, f"listener {endpoint}: {error.strerror or error}")
        failed.endpoint = endpoint
        return failed


class Advertise(NamedTuple):
    """The value of `--advertise`.

    Attributes:
        host: the advertised host; None if the option is not given.
        port: the advertised port; None for the listener's own port.
    """

    host: str | None = None
    port: int | None = None


class Listeners(NamedTuple):
    """The listeners of one node.

    Attributes:
        opened: the addresses that the node listens on, in the order of the setting `listeners`.
        advertised: the address that clients get, by listener name. Port 0 stands for the listener's
            own port. A listener without an entry is not advertised.
        inter_broker: the name of the listener for other brokers.
        controllers: listeners of `controller.listener.names`. They are not opened, because a node
            that is the only voter has no other controllers.
        protocols: the security protocol of each listener whose protocol is not PLAINTEXT.
        security: the TLS and SASL settings of each opened listener whose protocol is not PLAINTEXT.
        admin: the name of the listener for administrators; None if `admin.listener.name` is not
            set.
    """

    opened: tuple[Endpoint, ...]
    advertised: Mapping[str, Endpoint]
    inter_broker: str
    controllers: tuple[Endpoint, ...]
    protocols: Mapping[str, str] = MappingProxyType({})
    security: Mapping[str, ListenerSettings] = MappingProxyType({})
    admin: str | None = None

    @classmethod
    def plaintext(cls, host: str = "127.0.0.1", port: int = 0) -> Listeners:
        """Return one listener, named PLAINTEXT, that advertises its own address."""
        endpoint = Endpoint(PLAINTEXT, host, port)
        return cls((endpoint,), {PLAINTEXT: endpoint}, PLAINTEXT, ())

    def protocol(self, name: str) -> str:
        """Return the security protocol of a listener."""
        return self.protocols.get(name, PLAINTEXT)

    @property
    def protected(self) -> frozenset[str]:
        """The listeners for other brokers and administrators.

        The connection limits of the whole node do not apply to these listeners. As in Kafka, the
        only listener of a node is not protected. If a node has only the listener for other brokers
        and the listener for administrators, only the listener for administrators is protected.
        """
        names = frozenset(one.name for one in self.opened)
        reserved = names & {self.inter_broker, self.admin}
        if self.admin is not None and reserved == names:
            reserved = frozenset({self.admin})
        return reserved if reserved != names else frozenset()


def configured_listeners(
    settings: BrokerSettings,
    *,
    host: str | None = None,
    port: int | None = None,
    advertise: Advertise = Advertise(),  # noqa: B008  immutable
    default_port: int = 9092,
    own_check: bool = False,
    ssl_context: SSLContext | None = None,
) -> Listeners:
    """Return the listeners that the settings describe.

    The first listener is the first entry of `listeners` that is not in `controller.listener.names`.
    If `host` or `port` is given and `advertise` is not, the advertised address of the first
    listener may change, too; see `_moved`.

    Args:
        settings: `listeners`, `advertised.listeners` and the other settings of listeners.
        host: replaces the host of the first listener.
        port: replaces the port of the first listener.
        advertise: replaces the advertised address of the first listener.
        default_port: port of the listener if `listeners` is not set.
        own_check: see `ListenerSettings`.
        ssl_context: see `ListenerSettings`.

    Raises:
        ConfigError: a setting or an argument is malformed or contradictory, would advertise a
            wildcard address, or requires TLS or SASL of a kind that this broker does not have.
    """
    protocols = _protocol_map(settings)
    controller_names = _names(settings.controller_listener_names)
    if settings.listeners is None:
        every = [Endpoint(PLAINTEXT, "127.0.0.1", default_port)]
    else:
        every = endpoints_of("listeners", settings.listeners)
        if controller_names and not any(one.name in controller_names for one in every):
            raise ConfigError(
                f"controller.listener.names={settings.controller_listener_names}: none of these "
                f"listeners is in listeners={settings.listeners}"
            )
    opened = [one for one in every if one.name not in controller_names]
    controllers = tuple(one for one in every if one.name in controller_names)
    if not opened:
        raise ConfigError(
            f"listeners={settings.listeners} has only listeners of controller.listener.names: "
            "add a listener for clients, for example PLAINTEXT://:9092"
        )
    for option, text in (("--host", host), ("--advertise", advertise.host)):
        _check_host(option, text or "")
    first = opened[0]
    opened[0] = Endpoint(
        first.name, first.host if host is None else host, first.port if port is None else port
    )
    _check_unique([*opened, *controllers])
    for one in (*opened, *controllers):
        _check_protocol(one, protocols)
    advertised = _advertised(settings, opened, controllers, controller_names)
    if advertise.host is not None:
        advertised[first.name] = Endpoint(first.name, advertise.host, advertise.port or 0)
    elif settings.advertised_listeners is not None and first.name in advertised:
        advertised[first.name] = _moved(advertised[first.name], first, opened[0])
    _check_connectable(settings, advertised)
    for one in advertised.values():
        _check_protocol(one, protocols)
    inter_broker = _inter_broker(settings, advertised, protocols)
    admin = _admin(settings, opened)
    _check_early_start(settings, every)
    _check_prefixes(settings, every)
    limits_of_hosts(settings)
    secured = {
        one.name: protocols[one.name]
        for one in (*opened, *controllers)
        if protocols[one.name] != PLAINTEXT
    }
    names = [one.name for one in opened]
    security = _security(settings, names, secured, own_check=own_check, ssl_context=ssl_context)
    _check_mechanism(settings, inter_broker, security)
    return Listeners(tuple(opened), advertised, inter_broker, controllers, secured, security, admin)


def sasl_listeners(settings: BrokerSettings) -> list[str]:
    """Return the names of the listeners in `listeners` whose clients log in by SASL.

    Raises:
        ConfigError: `listeners` or `listener.security.protocol.map` is malformed.
    """
    return [name for name, protocol in _protocols(settings) if protocol.startswith("SASL_")]


def tls_listeners(settings: BrokerSettings) -> list[str]:
    """Return the names of the listeners in `listeners` that have TLS.

    Raises:
        ConfigError: `listeners` or `listener.security.protocol.map` is malformed.
    """
    return [name for name, protocol in _protocols(settings) if protocol.endswith("SSL")]


def _protocols(settings: BrokerSettings) -> list[tuple[str, str]]:
    protocols = _protocol_map(settings)
    endpoints = endpoints_of("listeners", settings.listeners or "")
    return [(one.name, protocols.get(one.name, PLAINTEXT)) for one in endpoints]


def _security(
    settings: BrokerSettings,
    names: Sequence[str],
    protocols: Mapping[str, str],
    *,
    own_check: bool,
    ssl_context: SSLContext | None,
) -> Mapping[str, ListenerSettings]:
    if not protocols:
        return {}
    from aiokq.broker.config.listener_security import ListenerSettings  # few starts need it

    return {
        name: ListenerSettings(
            name, protocols[name], settings, own_check=own_check, ssl_context=ssl_context
        )
        for name in names
        if name in protocols
    }


def _check_mechanism(
    settings: BrokerSettings, inter_broker: str, security: Mapping[str, ListenerSettings]
) -> None:
    """Check the mechanism for other brokers, if it is set.

    Kafka requires the setting, because its brokers log in to each other. It is optional here.
    """
    setting, listener = "sasl.mechanism.inter.broker.protocol", security.get(inter_broker)
    if setting not in settings.explicit or listener is None or not listener.uses_sasl:
        return
    mechanism = settings.sasl_mechanism_inter_broker_protocol
    if mechanism not in listener.mechanisms:
        raise ConfigError(
            f"{setting}={mechanism} is not a mechanism of the listener for other brokers, "
            f"{inter_broker}, which has {', '.join(listener.mechanisms)}"
        )


def endpoints_of(setting: str, text: str) -> list[Endpoint]:
    """Parse a list of `NAME://host:port`.

    Raises:
        ConfigError: an entry is malformed, or a name occurs twice.
    """
    found: dict[str, Endpoint] = {}
    for part in text.split(","):
        entry = part.strip()
        parsed = re.fullmatch(_ENDPOINT, entry)
        if parsed is None:
            raise ConfigError(
                f"{setting}: {shortened(repr(entry))} is not of the form NAME://host:port"
            )
        name, host = parsed[1].strip().upper(), parsed[2]
        if not name:
            raise ConfigError(f"{setting}: {entry!r} has no name before ://")
        try:
            port = parse_number(parsed[3], PORT_MAX)
        except ValueError:
            raise ConfigError(
                f"{setting}: the port of {shortened(entry)} must be between 0 and {PORT_MAX}"
            ) from None
        _check_host(setting, host)
        if name in found:
            raise ConfigError(
                f"{setting}: {name} occurs twice; each listener must have a different name"
            )
        found[name] = Endpoint(name, host, port)
    return list(found.values())


def _check_host(setting: str, host: str) -> None:
    """Check the syntax of a host, and that it is no broadcast or multicast address.

    Raises:
        ConfigError: the host is too long, has a label that is empty or too long, has a character
            that is not printable, or is a broadcast or multicast address.
    """
    labels = [] if ":" in host else host.removesuffix(".").split(".")
    valid = len(host) <= 253 and all(0 < len(label) <= 63 for label in labels)
    if host and not (valid and host.isprintable()):
        raise ConfigError(
            f"{setting}: {shortened(repr(host))} is not a host name: it may have 253 printable "
            "characters, with 1 to 63 between two dots"
        )
    packed = _packed(host)
    if packed is not None and (packed == _BROADCAST or packed[0] in _MULTICAST[len(packed)]):
        raise ConfigError(
            f"{setting}: {host} is a broadcast or multicast address, to which no client can connect"
        )


def _names(text: str | None) -> list[str]:
    return [name.strip().upper() for name in (text or "").split(",") if name.strip()]


def _check_unique(endpoints: Sequence[Endpoint]) -> None:
    """Check that ports except 0 differ; an IPv4 and an IPv6 address may share a port (KIP-797).

    Raises:
        ConfigError: two listeners share a port in any other case.
    """
    by_port: dict[int, list[Endpoint]] = {}
    for one in endpoints:
        if one.port:
            by_port.setdefault(one.port, []).append(one)
    for port, sharing in by_port.items():
        families = sorted(_family(one.host) for one in sharing)
        if len(sharing) > 1 and families != ["IPv4", "IPv6"]:
            raise ConfigError(
                f"listeners {' and '.join(map(str, sharing))} have port {port}: each listener must"
                " have a different port, unless one has an IPv4 address and the other an IPv6"
                " address"
            )


def _family(host: str) -> str:
    for family, name in ((socket.AF_INET, "IPv4"), (socket.AF_INET6, "IPv6")):
        try:
            socket.inet_pton(family, host)
        except OSError:
            continue
        return name
    return ""


def _protocol_map(settings: BrokerSettings) -> Mapping[str, str]:
    """Return the security protocol of each listener name.

    If `listener.security.protocol.map` is not set, each of the four protocols is also the name of
    a listener, and the listeners for controllers have PLAINTEXT.

    Raises:
        ConfigError: the map is malformed or names an unknown protocol.
    """
    text = settings.listener_security_protocol_map
    if text is None:
        names = _names(settings.controller_listener_names)
        return dict.fromkeys(names, PLAINTEXT) | {name: name for name in PROTOCOLS}
    protocols = {}
    for part in text.split(","):
        if not part.strip():
            continue
        name, colon, protocol = (word.strip().upper() for word in part.rpartition(":"))
        if not colon or not name:
            raise ConfigError(
                f"listener.security.protocol.map: {part.strip()!r} is not of the form NAME:PROTOCOL"
            )
        if protocol not in PROTOCOLS:
            raise ConfigError(
                f"listener.security.protocol.map: {part.strip()} does not name a security "
                f"protocol: use one of {', '.join(PROTOCOLS)}"
            )
        protocols[name] = protocol
    return protocols


def _check_protocol(endpoint: Endpoint, protocols: Mapping[str, str]) -> None:
    protocol = protocols.get(endpoint.name)
    if protocol is None:
        raise ConfigError(
            f"listener {endpoint.name} has no security protocol: add {endpoint.name}:PLAINTEXT to"
            " listener.security.protocol.map"
        )


def _advertised(
    settings: BrokerSettings,
    opened: Sequence[Endpoint],
    controllers: Sequence[Endpoint],
    controller_names: Sequence[str],
) -> dict[str, Endpoint]:
    if settings.advertised_listeners is None:
        given = list(opened)
    else:
        given = [
            one
            for one in endpoints_of("advertised.listeners", settings.advertised_listeners)
            if one.name not in controller_names
        ]
    names = [one.name for one in opened]
    for one in given:
        if one.name not in names:
            raise ConfigError(
                f"advertised.listeners names {one.name}, which is not in listeners; listeners "
                f"has {', '.join(str(known) for known in (*opened, *controllers))}"
            )
    found = {one.name: one for one in given}
    if not found:
        raise ConfigError(
            "advertised.listeners has no listener for clients: add one, for example "
            f"{opened[0].name}://localhost:9092"
        )
    return found


def _moved(advertised: Endpoint, configured: Endpoint, opened: Endpoint) -> Endpoint:
    """Return the advertised address of a listener that `--host` or `--port` moved.

    The advertised port is replaced if it was the port in `listeners`. The advertised host is
    replaced if it was the host in `listeners`, or if it is a loopback address and the new host is
    not. A wildcard address never replaces the advertised host.

    Args:
        advertised: the listener's address in `advertised.listeners`.
        configured: the listener's address in `listeners`.
        opened: the listener's address after `--host` and `--port` are applied.
    """
    host, port = advertised.host, advertised.port
    if port == configured.port:
        port = opened.port
    if opened.host != configured.host and not is_wildcard(opened.host):
        unreachable = is_loopback(host) and not is_loopback(opened.host)
        if host == configured.host or unreachable:
            host = opened.host
    return Endpoint(advertised.name, host, port)


def is_loopback(host: str) -> bool:
    """Return whether a host is `localhost` or a loopback address; names are not resolved."""
    if host.lower() == LOCALHOST:
        return True
    packed = _packed(host)
    return packed is not None and (packed == _LOOPBACK_6 or (packed[0] == 127 and len(packed) == 4))


def is_wildcard(host: str) -> bool:
    """Return whether a host means all addresses of this machine, in any spelling (`0`, `::0`)."""
    packed = _packed(host)
    return host in ("", "*") or (packed is not None and not any(packed))


def _packed(host: str) -> bytes | None:
    """Return the 4 or 16 bytes of a numeric address as a resolver reads it; None for a name.

    An IPv4 address may have the short, octal and hexadecimal forms of `inet_aton`. An IPv6 address
    may have a zone. For an IPv4-mapped IPv6 address, the 4 bytes of the IPv4 address are returned.
    """
    try:
        if ":" not in host:
            return socket.inet_aton(host)
        packed = socket.inet_pton(socket.AF_INET6, host.partition("%")[0])
    except (OSError, ValueError):  # ValueError: a NUL or a surrogate
        return None
    return packed[12:] if packed.startswith(_MAPPED) else packed


def _check_connectable(settings: BrokerSettings, advertised: Mapping[str, Endpoint]) -> None:
    setting = "listeners" if settings.advertised_listeners is None else "advertised.listeners"
    for one in advertised.values():
        if one.host and is_wildcard(one.host):
            raise ConfigError(
                f"{setting}: clients cannot connect to the wildcard address {one.host} of {one}:"
                f" set advertised.listeners={one.name}://HOST:PORT, or --advertise HOST[:PORT] for"
                " the first listener"
            )


def _inter_broker(
    settings: BrokerSettings, advertised: Mapping[str, Endpoint], protocols: Mapping[str, str]
) -> str:
    given = settings.inter_broker_listener_name
    if given is not None and "security.inter.broker.protocol" in settings.explicit:
        raise ConfigError(
            "set only one of inter.broker.listener.name and security.inter.broker.protocol"
        )
    name = (given or settings.security_inter_broker_protocol).strip().upper()
    if given is not None and name not in protocols:
        raise ConfigError(
            f"inter.broker.listener.name={name} is not in listener.security.protocol.map"
        )
    if name not in advertised:
        raise ConfigError(
            f"inter.broker.listener.name is {name}, which is not advertised: set it to one of"
            f" {', '.join(advertised)}"
        )
    return name


def _admin(settings: BrokerSettings, opened: Sequence[Endpoint]) -> str | None:
    name = (settings.admin_listener_name or "").strip().upper()
    known = [one.name for one in opened]
    if name and name not in known:
        raise ConfigError(
            f"admin.listener.name is {name}, which is not in listeners: set it to one of "
            f"{', '.join(known)}"
        )
    return name or None


def _check_early_start(settings: BrokerSettings, endpoints: Sequence[Endpoint]) -> None:
    known = [one.name for one in endpoints]
    for name in _names(settings.early_start_listeners):
        if name not in known:
            raise ConfigError(f"early.start.listeners names {name}, which is not in listeners")


def _check_prefixes(settings: BrokerSettings, endpoints: Sequence[Endpoint]) -> None:
    known = [one.name for one in endpoints]
    given = [name for name, _ in settings.listener_max_connections]
    given += settings.listener_settings
    given += [name for name, _ in settings.listener_max_connection_creation_rates]
    for setting in settings.without_effect:
        if setting.startswith("listener.name."):
            given.append(setting.split(".")[2].upper())
    for name in given:
        if name not in known:
            raise ConfigError(
                f"listener.name.{name.lower()} does not name a listener: listeners has "
                f"{', '.join(known)}"
            )


def limits_of_hosts(
    settings: BrokerSettings, addresses: Mapping[str, Sequence[str]] = MappingProxyType({})
) -> dict[str, int]:
    """Return the limits in `max.connections.per.ip.overrides` by numeric address.

    An IPv6 address is in brackets. The limit of a numeric address takes precedence over the limit
    of a host name that has this address.

    Args:
        addresses: the addresses of host names. The limit of a name that has no entry here is left
            out.

    Raises:
        ConfigError: the setting is malformed.
    """
    given = _limits_as_given(settings)
    found = {address: limit for host, limit in given.items() for address in addresses.get(host, ())}
    numeric = {host: numeric_address(host) for host in given}
    found.update({address: given[host] for host, address in numeric.items() if address is not None})
    return found


def named_hosts(settings: BrokerSettings) -> set[str]:
    """Return the hosts in `max.connections.per.ip.overrides` that are not numeric addresses."""
    return {host for host in _limits_as_given(settings) if numeric_address(host) is None}


def _limits_as_given(settings: BrokerSettings) -> dict[str, int]:
    """Return the limits in `max.connections.per.ip.overrides` by address or name.

    Raises:
        ConfigError: the setting is malformed.
    """
    found = {}
    for part in filter(None, map(str.strip, settings.max_connections_per_ip_overrides.split(","))):
        host, _, count = part.rpartition(":")
        host = host.strip()
        try:
            if numeric_address(host) is None and not re.fullmatch(_NAME, host):
                raise ValueError(f"{shortened(repr(host))} is no address and no host name")
            found[host] = parse_number(count, INT_MAX)
        except ValueError as error:
            raise ConfigError(
                f"max.connections.per.ip.overrides: {shortened(repr(part))} is not of the form "
                f"address:count: {error}"
            ) from None
    return found
