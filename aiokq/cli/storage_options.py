"""Options of `aiokq storage format`, and the quorum that they describe.

Names and short forms are those of Kafka's `kafka-storage`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import typer

from aiokq.cli.node_settings import checked_listeners
from aiokq.cli.options import named_values
from aiokq.core import limits
from aiokq.core.errors import ConfigError
from aiokq.core.named_tuple import NamedTuple
from aiokq.core.numbers import PORT_MAX, parse_number
from aiokq.core.options import option

if TYPE_CHECKING:
    import uuid

    from aiokq.broker.config.listeners import Endpoint, Listeners
    from aiokq.cli.node_settings import Node
    from aiokq.wire.quorum_records import VotersRecordEndpoint

__all__ = ["FormatChoices", "Quorum", "feature_levels", "quorum_of"]

_CONTROLLER: Final = re.compile(r"([0-9]+)@\[?([0-9a-zA-Z\-%._:]*?)\]?:([0-9]+):([0-9a-zA-Z_\-]+)")

_FLAGS: Final = "--standalone, --initial-controllers or --no-initial-controllers"


@dataclass(frozen=True)
class FormatChoices:
    """Options of `aiokq storage format`, except those that describe the node."""

    cluster_id: str = field(
        metadata=option(
            "--cluster-id",
            "-t",
            metavar="ID",
            help="Id of the cluster, such as aiokq storage random-uuid prints.",
        )
    )
    standalone: bool = field(
        default=False,
        metadata=option(
            "--standalone",
            "-s",
            help="A dynamic quorum (kraft.version 1) whose only voter is this node. The default if "
            "the settings have controller.quorum.bootstrap.servers and no "
            "controller.quorum.voters.",
        ),
    )
    no_initial_controllers: bool = field(
        default=False,
        metadata=option(
            "--no-initial-controllers",
            "-N",
            help="No voters: for a node of Apache Kafka that joins an existing quorum.",
        ),
    )
    initial_controllers: str | None = field(
        default=None,
        metadata=option(
            "--initial-controllers",
            "-I",
            metavar="ID@HOST:PORT:DIRECTORY_ID",
            help="The only voter, which must be this node, with the id of its metadata directory.",
        ),
    )
    ignore_formatted: bool = field(
        default=False,
        metadata=option(
            "--ignore-formatted",
            "-g",
            help="Skip directories that are formatted already, instead of failing.",
        ),
    )
    release_version: str | None = field(
        default=None,
        metadata=option(
            "--release-version",
            "-r",
            metavar="VERSION",
            help="Level of metadata.version as a release of Kafka (4.0) or a level (4.0-IV3). "
            "Default: 4.0-IV3, which any Kafka 4 opens.",
        ),
    )
    features: tuple[str, ...] = field(
        default=(),
        metadata=option(
            "--feature",
            "-f",
            metavar="NAME=LEVEL",
            help="Level of a feature; repeatable. Features that have no effect here are off by "
            "default.",
            show_default=False,
        ),
    )
    add_scram: tuple[str, ...] = field(
        default=(),
        metadata=option(
            "--add-scram",
            "-S",
            metavar="CREDENTIAL",
            help="A SCRAM credential for the metadata log, in the form of Kafka's tool; "
            "repeatable. The user can log in with it at listeners that offer SCRAM.",
            show_default=False,
        ),
    )


class Quorum(NamedTuple):
    """The quorum of the formatted directories.

    Attributes:
        standalone: endpoint of this node as the only voter of a dynamic quorum; None if the quorum
            is static, or its voters are other nodes.
        directory_id: id that the metadata directory gets; None for a random id.
        without_voters: whether the quorum is dynamic and its voters are other nodes.
    """

    standalone: VotersRecordEndpoint | None = None
    directory_id: uuid.UUID | None = None
    without_voters: bool = False


def feature_levels(texts: tuple[str, ...]) -> dict[str, int]:
    """Return the levels of --feature by name.

    Raises:
        typer.BadParameter: a text is not NAME=LEVEL, or the level is out of range.
    """
    found: dict[str, int] = {}
    for name, text in named_values(list(texts), "--feature", "NAME=LEVEL"):
        try:
            found[name] = parse_number(text, limits.INT16_MAX)
        except ValueError:
            raise typer.BadParameter(
                f"--feature {name}: the level must be a whole number from 0 to "
                f"{limits.INT16_MAX}, not {text[:40]!r}"
            ) from None
    return found


def quorum_of(choices: FormatChoices, node: Node, node_id: int) -> Quorum:
    """Return the quorum that options and settings describe.

    Raises:
        ConfigError: options and settings contradict each other, or describe a node that aiokq
            cannot run or a voter that is not this node.
        typer.BadParameter: two options exclude each other.
    """
    from aiokq.broker.config.roles import voter_address
    from aiokq.wire.quorum_records import VotersRecordEndpoint

    given = (
        choices.standalone,
        choices.no_initial_controllers,
        choices.initial_controllers is not None,
    )
    if sum(given) > 1:
        raise typer.BadParameter(f"{_FLAGS}: only one of them can be given")
    settings = node.settings
    if any(given) and settings.controller_quorum_voters:
        raise ConfigError(
            "controller.quorum.voters is set, so the voters are not in the log: remove the setting "
            f"(and set controller.quorum.bootstrap.servers), or leave {_FLAGS} out"
        )
    if choices.no_initial_controllers:
        # The settings are not checked. The voters are other nodes, which may run Apache Kafka.
        return Quorum(without_voters=True)
    listeners = checked_listeners(node)
    if choices.initial_controllers is not None:
        return _initial_controller(choices.initial_controllers, listeners, node_id)
    voter = _own_address(listeners) if choices.standalone else voter_address(settings, listeners)
    return Quorum(standalone=None if voter is None else VotersRecordEndpoint(**voter._asdict()))


def _own_address(listeners: Listeners) -> Endpoint:
    """Return the address of this node's controller, for the metadata log.

    If the address changes later, Kafka updates it in the log.
    """
    from aiokq.broker.config.roles import DEFAULT_CONTROLLER, controller_addresses

    return next(iter(controller_addresses(listeners)), DEFAULT_CONTROLLER)


def _initial_controller(text: str, listeners: Listeners, node_id: int) -> Quorum:
    from aiokq.broker.log.meta_properties import RESERVED_DIRECTORY_IDS
    from aiokq.broker.log.uuid_text import parse_uuid
    from aiokq.wire.quorum_records import VotersRecordEndpoint

    parts = [part.strip() for part in text.split(",") if part.strip()]
    matches = [_CONTROLLER.fullmatch(part) for part in parts]
    if not matches or not all(matches):
        raise ConfigError(
            f"--initial-controllers {text[:80]}: write ID@HOST:PORT:DIRECTORY_ID, as in "
            f"{node_id}@localhost:9093:JEXY6aqzQY-32P5TStzaFg"
        )
    others = [part for part, match in zip(parts, matches, strict=True) if not _is(match, node_id)]
    if others or len(parts) > 1:
        named = ", ".join(part[:80] for part in others or parts[1:])
        raise ConfigError(
            f"--initial-controllers {named}: a node of aiokq is the only "
            f"voter of its quorum, and this node has the id {node_id}: name this node alone, or "
            "format the directories with Apache Kafka"
        )
    (match,) = matches
    assert match is not None
    try:
        directory_id = parse_uuid(match[4])
    except ValueError:
        directory_id = None
    if directory_id is None or directory_id.int < RESERVED_DIRECTORY_IDS:
        raise ConfigError(
            f"--initial-controllers: {match[4]} is not the id of a directory: use one that aiokq "
            "storage random-uuid prints"
        )
    try:
        port = parse_number(match[3], PORT_MAX)
    except ValueError:
        raise ConfigError(
            f"--initial-controllers: port {match[3][:40]} is above {PORT_MAX}"
        ) from None
    endpoint = VotersRecordEndpoint(name=_own_address(listeners).name, host=match[2], port=port)
    return Quorum(standalone=endpoint, directory_id=directory_id)


def _is(match: re.Match[str] | None, node_id: int) -> bool:
    try:
        return match is not None and parse_number(match[1], limits.INT32_MAX) == node_id
    except ValueError:
        return False
