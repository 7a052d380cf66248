"""Settings of a node for commands on log directories; the options are those of `aiokq broker`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from aiokq.cli.options import named_values
from aiokq.core import limits
from aiokq.core.errors import ConfigError
from aiokq.core.options import option

if TYPE_CHECKING:
    from aiokq.broker.config.listeners import Listeners
    from aiokq.broker.config.settings import BrokerSettings

__all__ = ["Node", "NodeOptions", "checked_listeners", "node_of"]

PANEL = "Node"

STORAGE: Final = frozenset(
    (
        "broker.id",
        "controller.quorum.bootstrap.servers",
        "controller.quorum.voters",
        "log.dir",
        "log.dirs",
        "metadata.log.dir",
        "node.id",
    )
)
"""The settings of a node's id, directories and quorum."""


@dataclass(frozen=True)
class NodeOptions:
    """Options that describe the node whose log directories a command reads or writes."""

    config: Path | None = field(
        default=None,
        metadata=option(
            "--config",
            "-c",
            metavar="FILE",
            help="The node's properties file, such as Kafka's server.properties.",
            panel=PANEL,
        ),
    )
    data_dirs: tuple[str, ...] = field(
        default=(),
        metadata=option(
            "--data-dir",
            metavar="DIR",
            help="A log directory; repeatable. Default: log.dirs of the settings.",
            panel=PANEL,
            show_default=False,
        ),
    )
    node_id: int | None = field(
        default=None,
        metadata=option(
            "--node-id",
            metavar="N",
            help="Id of the node. Default: node.id of the settings, else 0.",
            panel=PANEL,
            minimum=0,
            maximum=limits.INT32_MAX,
        ),
    )
    assignments: tuple[str, ...] = field(
        default=(),
        metadata=option(
            "--set",
            metavar="NAME=VALUE",
            help="A setting of the node, which takes precedence over the file; repeatable.",
            panel=PANEL,
            show_default=False,
        ),
    )


@dataclass(frozen=True)
class Node:
    """A node: its settings, id and log directories.

    Attributes:
        node_id: id of the node; None if neither an option nor a setting gives an id.
        directories: paths of the log directories.
        metadata_directory: `metadata.log.dir`; None if it is not set.
    """

    settings: BrokerSettings
    node_id: int | None
    directories: tuple[str, ...]
    metadata_directory: str | None


def node_of(given: NodeOptions, *, of_kafka: bool = False) -> Node:
    """Return the node that options and the file of --config describe.

    Args:
        of_kafka: whether the node may be a node of Apache Kafka that aiokq cannot run. If so, only
            the settings in ``STORAGE`` are read.

    Raises:
        ConfigError: the file cannot be read, or a setting is invalid.
        typer.BadParameter: a value of --set is malformed.
    """
    from aiokq.broker.config.roles import configured_node_id
    from aiokq.broker.config.settings import broker_settings, log_directories, setting_name

    values: dict[str, object] = {}
    if given.config is not None:
        values.update(_from_file(given.config))
    for name, value in named_values(list(given.assignments), "--set"):
        plain = setting_name(name)
        values = {other: text for other, text in values.items() if setting_name(other) != plain}
        values[name] = value
    if of_kafka:
        values = {name: text for name, text in values.items() if setting_name(name) in STORAGE}
    settings = broker_settings(values)
    return Node(
        settings,
        configured_node_id(settings) if given.node_id is None else given.node_id,
        tuple(given.data_dirs or log_directories(settings)),
        settings.metadata_log_dir,
    )


def checked_listeners(node: Node) -> Listeners:
    """Check that aiokq can run a node, and return the node's listeners.

    Raises:
        ConfigError: a setting of the listeners is invalid, or the node is not both broker and
            controller, or is not the only voter.
    """
    from aiokq.broker.config.listeners import configured_listeners
    from aiokq.broker.config.roles import check_quorum, check_roles

    check_roles(node.settings)
    listeners = configured_listeners(node.settings)
    check_quorum(node.settings, listeners, node.node_id)
    return listeners


def _from_file(path: Path) -> dict[str, str]:
    from aiokq.core.properties import parse_properties

    try:
        return parse_properties(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise ConfigError(f"cannot read --config {path}: {reason}") from None
