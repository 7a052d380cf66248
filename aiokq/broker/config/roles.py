"""Node id, roles and quorum voters of a node that is broker, controller and only voter."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from aiokq.broker.config.setting import INT_MAX, shortened
from aiokq.core.errors import ConfigError
from aiokq.core.numbers import PORT_MAX, parse_number

if TYPE_CHECKING:
    from aiokq.broker.config.listeners import Listeners
    from aiokq.broker.config.settings import BrokerSettings

__all__ = ["check_roles", "configured_node_id"]

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


def check_roles(settings: BrokerSettings, listeners: Listeners, node_id: int | None) -> None:
    """Check that the settings describe a node that is broker, controller and only voter.

    Args:
        node_id: id of the node; None if neither the settings nor the command line set it.

    Raises:
        ConfigError: other roles are set, another voter is named, or a setting is malformed.
    """
    roles = [role.strip() for role in settings.process_roles.split(",") if role.strip()]
    if sorted(roles) != ["broker", "controller"]:
        raise ConfigError(
            f"process.roles={settings.process_roles}: a node of aiokq is both broker and "
            "controller; set process.roles=broker,controller"
        )
    _check_voters(settings.controller_quorum_voters, node_id)
    _check_bootstrap_servers(settings.controller_quorum_bootstrap_servers, listeners)


def _check_voters(text: str, node_id: int | None) -> None:
    for part in filter(None, map(str.strip, text.split(","))):
        voter = re.fullmatch(_VOTER, part)
        if voter is None:
            raise ConfigError(
                f"controller.quorum.voters: {shortened(repr(part))} is not of the form id@host:port"
            )
        voter_id = _number("controller.quorum.voters", "id", voter[1], INT_MAX)
        _number("controller.quorum.voters", "port", voter[3], PORT_MAX)
        if node_id is None:
            raise ConfigError(
                f"controller.quorum.voters={text} needs node.id: set it to the id of this node"
            )
        if voter_id != node_id:
            raise ConfigError(
                f"controller.quorum.voters={text}: {part} is not this node, whose id is "
                f"{node_id}; a node of aiokq is the only voter of its cluster: remove the other "
                "voters"
            )


def _check_bootstrap_servers(text: str, listeners: Listeners) -> None:
    """Check that the servers of a quorum are this node's listeners for controllers."""
    ports = [one.port for one in listeners.controllers]
    hosts = set()
    for part in filter(None, map(str.strip, text.split(","))):
        server = re.fullmatch(_SERVER, part)
        if server is None:
            raise ConfigError(
                f"controller.quorum.bootstrap.servers: {shortened(repr(part))} is not of the form "
                "host:port"
            )
        port = _number("controller.quorum.bootstrap.servers", "port", server[2], PORT_MAX)
        hosts.add("localhost" if server[1] in ("127.0.0.1", "::1") else server[1])
        if port not in ports and 0 not in ports:
            own = ", ".join(map(str, listeners.controllers))
            raise ConfigError(
                f"controller.quorum.bootstrap.servers={text}: {part} is not a listener of this "
                f"node in controller.listener.names (which has {own or 'none'}); {_ONLY_VOTER}"
            )
    if len(hosts) > 1:
        raise ConfigError(
            f"controller.quorum.bootstrap.servers={text} names {len(hosts)} nodes; {_ONLY_VOTER}"
        )


def _number(setting: str, part: str, text: str, most: int) -> int:
    """Parse the id of a voter, or the port of a voter or bootstrap server.

    Raises:
        ConfigError: `text` is not a number, or above `most`.
    """
    try:
        return parse_number(text, most)
    except ValueError as error:
        raise ConfigError(f"{setting}: the {part} {error}") from None
