"""Node id, roles and quorum voters of a node that is broker, controller and only voter."""

from __future__ import annotations

import re
import socket
from typing import TYPE_CHECKING, Final

from aiokq.broker.config.listeners import (
    LOCALHOST,
    Endpoint,
    endpoints_of,
    is_loopback,
    is_wildcard,
)
from aiokq.broker.config.setting import INT_MAX, shortened
from aiokq.core.errors import ConfigError
from aiokq.core.numbers import PORT_MAX, parse_number

if TYPE_CHECKING:
    from collections.abc import Sequence
    from collections.abc import Set as AbstractSet

    from aiokq.broker.config.listeners import Listeners
    from aiokq.broker.config.settings import BrokerSettings

__all__ = [
    "DEFAULT_CONTROLLER",
    "check_quorum",
    "check_roles",
    "configured_node_id",
    "controller_addresses",
    "has_dynamic_voters",
    "voter_address",
]

DEFAULT_CONTROLLER: Final = Endpoint("CONTROLLER", "localhost", 9093)
"""The address of this node as a voter if its settings and its metadata log have no address.

When Kafka starts on the metadata log, Kafka replaces this address with its listener's address.
"""

_VOTER: Final = r"([0-9]+)@\[?([0-9a-zA-Z\-%._:]*)\]?:([0-9]+)"
_SERVER: Final = r"\[?([0-9a-zA-Z\-%._:]+)\]?:([0-9]+)"

_ONLY_VOTER: Final = (
    "a node of aiokq is the only voter of its cluster: name this node's own listener, or remove "
    "the setting"
)


def configured_node_id(settings: BrokerSettings) -> int | None:
    """Return `node.id`, or `broker.id` if only that is set; None if neither is set.

    Raises:
        ConfigError: both are set to different ids.
    """
    node_id = settings.node_id
    broker_id = None if settings.broker_id == -1 else settings.broker_id
    if node_id is not None and broker_id is not None and node_id != broker_id:
        raise ConfigError(
            f"node.id is {node_id} and broker.id is {broker_id}: set only node.id, or both to "
            "the same number"
        )
    return broker_id if node_id is None else node_id


def check_roles(settings: BrokerSettings) -> None:
    """Check that the settings describe a node that is both broker and controller.

    Call this before the listeners are read. The rules for listeners assume both roles: if the node
    had only one role, the errors of these rules would not name the cause.

    Raises:
        ConfigError: `process.roles` has other roles.
    """
    roles = [role.strip() for role in settings.process_roles.split(",") if role.strip()]
    if sorted(roles) != ["broker", "controller"]:
        raise ConfigError(
            f"process.roles={shortened(settings.process_roles)}: a node of aiokq is both broker "
            "and controller; set process.roles=broker,controller. listeners then needs a listener "
            "for clients and, if controller.listener.names is set, one that it names, as in "
            "listeners=PLAINTEXT://:9092,CONTROLLER://:9093"
        )


def check_quorum(settings: BrokerSettings, listeners: Listeners, node_id: int | None) -> None:
    """Check that this node is the only voter that the settings name.

    A voter is this node if its id and host belong to this node. As in Kafka, its port may differ
    from the ports of the listeners. A bootstrap server is this node if its host belongs to this
    node, and its port is the port of a listener in `controller.listener.names`. If such a listener
    has port 0, every port is accepted.

    The hosts of this node are localhost, the loopback and wildcard addresses, the hosts in
    `listeners` and `advertised.listeners`, and the name of the machine. No name is resolved.

    Args:
        node_id: id of the node; None if neither the settings nor the command line set it.

    Raises:
        ConfigError: a setting is malformed, names another voter, or names this node twice; or the
            node has no id or no listener for controllers, and a setting needs it.

    Source: Kafka ``KafkaConfig.validateValues``, for a combined node.
    """
    advertised = (
        []
        if settings.advertised_listeners is None
        else endpoints_of("advertised.listeners", settings.advertised_listeners)
    )
    own = [*listeners.opened, *listeners.controllers, *listeners.advertised.values(), *advertised]
    hosts = {one.host.lower().removesuffix(".") for one in own}
    names = {one.name for one in listeners.controllers}
    controllers = [*listeners.controllers, *(one for one in advertised if one.name in names)]
    _check_voters(settings.controller_quorum_voters, node_id, controllers, hosts)
    _check_bootstrap_servers(settings.controller_quorum_bootstrap_servers, controllers, hosts)


def has_dynamic_voters(settings: BrokerSettings) -> bool:
    """Whether a new metadata log of the node names its voters (`kraft.version` 1).

    As in Kafka, the log names its voters if `controller.quorum.bootstrap.servers` is set and
    `controller.quorum.voters` is not.
    """
    return _has_parts(settings.controller_quorum_bootstrap_servers) and not _has_parts(
        settings.controller_quorum_voters
    )


def controller_addresses(listeners: Listeners) -> list[Endpoint]:
    """Return the addresses under which a node registers its listeners for controllers.

    A wildcard host is replaced by localhost.
    """
    return [
        one._replace(host=LOCALHOST) if is_wildcard(one.host) else one
        for one in listeners.controllers
    ]


def voter_address(settings: BrokerSettings, listeners: Listeners) -> Endpoint | None:
    """Return the address of the only voter in a new metadata log of the node.

    The result is None if such a log names no voters (`kraft.version` 0).

    Raises:
        ConfigError: the log names its voters, and the node has no listener for controllers.
    """
    if not has_dynamic_voters(settings):
        return None
    addresses = controller_addresses(listeners)
    if not addresses:
        raise ConfigError(
            "controller.quorum.bootstrap.servers="
            f"{shortened(settings.controller_quorum_bootstrap_servers)}: this node has no "
            "listener for controllers; add one to listeners and name it in "
            "controller.listener.names, or remove the setting"
        )
    return addresses[0]


def _has_parts(text: str) -> bool:
    return any(part.strip() for part in text.split(","))


def _check_voters(
    text: str, node_id: int | None, controllers: Sequence[Endpoint], hosts: AbstractSet[str]
) -> None:
    setting = "controller.quorum.voters"
    given = f"{setting}={shortened(text)}"
    ids: set[int] = set()
    for part in filter(None, map(str.strip, text.split(","))):
        voter = re.fullmatch(_VOTER, part)
        if voter is None:
            raise ConfigError(f"{setting}: {shortened(repr(part))} is not of the form id@host:port")
        voter_id = _number(setting, "id", voter[1], INT_MAX)
        _number(setting, "port", voter[3], PORT_MAX)
        if node_id is None:
            raise ConfigError(f"{given} needs node.id: set it to the id of this node")
        if voter_id != node_id:
            raise ConfigError(
                f"{given}: {shortened(part)} is not this node, whose id is {node_id}; a node of "
                "aiokq is the only voter of its cluster: remove the other voters"
            )
        if voter_id in ids:
            raise ConfigError(f"{given} names node {voter_id} twice: name this node once")
        ids.add(voter_id)
        if not controllers:
            raise ConfigError(
                f"{given}: this node has no listener for controllers; add one to listeners and "
                "name it in controller.listener.names, or remove the setting"
            )
        _check_host(f"{given}: {shortened(part)}", voter[2], hosts)


def _check_bootstrap_servers(
    text: str, controllers: Sequence[Endpoint], hosts: AbstractSet[str]
) -> None:
    setting = "controller.quorum.bootstrap.servers"
    given = f"{setting}={shortened(text)}"
    ports = [one.port for one in controllers]
    for part in filter(None, map(str.strip, text.split(","))):
        server = re.fullmatch(_SERVER, part)
        if server is None:
            raise ConfigError(f"{setting}: {shortened(repr(part))} is not of the form host:port")
        port = _number(setting, "port", server[2], PORT_MAX)
        _check_host(f"{given}: {shortened(part)}", server[1], hosts)
        if port not in ports and 0 not in ports:
            own = ", ".join(map(str, controllers))
            raise ConfigError(
                f"{given}: {shortened(part)} is not a listener of this node in "
                f"controller.listener.names (which has {own or 'none'}); {_ONLY_VOTER}"
            )


def _check_host(named: str, host: str, hosts: AbstractSet[str]) -> None:
    """Check that a host is in `hosts`, or is localhost, a wildcard or this machine's name.

    Raises:
        ConfigError: the host is none of these; the message begins with `named`.
    """
    host = host.lower().removesuffix(".")
    if host in hosts or is_wildcard(host) or is_loopback(host) or _is_this_machine(host):
        return
    raise ConfigError(
        f"{named} is not this node: {shortened(host)} is neither localhost, nor the name of this "
        f"machine ({socket.gethostname()}), nor a host in listeners or advertised.listeners; a "
        "node of aiokq is the only voter of its cluster: remove the setting or, if this node is "
        "meant, write localhost, or use that host in advertised.listeners"
    )


def _is_this_machine(host: str) -> bool:
    """Return whether `host` is this machine's name; either name may lack the domain.

    `socket.getfqdn` would return the domain, but may query a name server and block for seconds.
    """
    own = socket.gethostname().lower()
    if "." in host and "." in own:
        return host == own
    return host.partition(".")[0] == own.partition(".")[0]


def _number(setting: str, part: str, text: str, most: int) -> int:
    """Parse the id of a voter, or the port of a voter or bootstrap server.

    Raises:
        ConfigError: `text` is not a number, or above `most`.
    """
    try:
        return parse_number(text, most)
    except ValueError as error:
        raise ConfigError(f"{setting}: the {part} {error}") from None
