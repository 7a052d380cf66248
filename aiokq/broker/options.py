"""The options of `aiokq broker`: their table, and the values of one command line.

Most command lines are read with the table alone. All other command lines are read by
`option_parser`, which imports `argparse`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from aiokq.broker.config.setting import INT_MAX, shortened
from aiokq.broker.config.settings import PROFILES
from aiokq.core.named_tuple import NamedTuple
from aiokq.core.numbers import PORT_MAX, parse_number

__all__ = ["OPTIONS", "Option", "Options", "read_options"]


class Option(NamedTuple):
    """One option, a field of `Options`."""

    flag: str
    field: str
    help: str
    metavar: str | None = None
    convert: Callable[[str], object] = str
    """Converts the text of a value; raises ValueError for an invalid text."""
    choices: tuple[str, ...] = ()
    """The permitted values; empty if ``convert`` alone decides."""
    has_value: bool = True
    repeated: bool = False
    """Whether the option may be repeated; if it may, the field is a tuple."""


class Options(NamedTuple):
    """The values of the options on one command line of `aiokq broker`.

    None, () or False means that the option was not given.
    """

    host: str | None = None
    port: int | None = None
    advertise: str | None = None
    data_dirs: tuple[str, ...] = ()
    node_id: int | None = None
    profile: str | None = None
    assignments: tuple[str, ...] = ()
    config: str | None = None
    metrics_port: int | None = None
    json: bool = False
    secure: str | None = None
    renew: bool = False


def _port(text: str) -> int:
    try:
        return parse_number(text, PORT_MAX)
    except ValueError:
        raise ValueError(f"the port must be 0 to {PORT_MAX}, not {shortened(repr(text))}") from None


def _node_id(text: str) -> int:
    try:
        return parse_number(text, INT_MAX)
    except ValueError:
        raise ValueError(
            f"the node id must be 0 to {INT_MAX}, not {shortened(repr(text))}"
        ) from None


OPTIONS: Final = (
    Option(
        "--host",
        "host",
        "address of the first listener (default: that in the setting listeners, else 127.0.0.1)",
    ),
    Option(
        "--port",
        "port",
        "port of the first listener, 0 for a free one (default: that in the setting listeners, "
        "else 9092)",
        convert=_port,
    ),
    Option(
        "--advertise",
        "advertise",
        "address that clients of the first listener connect to (default: that in the setting "
        "advertised.listeners, else the listener's own address)",
        metavar="HOST[:PORT]",
    ),
    Option(
        "--data-dir",
        "data_dirs",
        "log directory in Kafka's format; may be repeated; without it, nothing is kept",
        metavar="DIR",
        repeated=True,
    ),
    Option(
        "--node-id",
        "node_id",
        "id of this node (default: node.id of the settings, else the id stored in the log "
        "directory, else 0)",
        metavar="N",
        convert=_node_id,
    ),
    Option(
        "--profile",
        "profile",
        "defaults of the settings: `kafka` has Kafka's defaults, `dev` has short waits "
        "(default: `kafka` with --config; else `dev` if nothing is kept, or if the broker "
        "runs at a terminal with a new data directory; else `kafka`)",
        choices=tuple(PROFILES),
    ),
    Option(
        "--set",
        "assignments",
        "set a broker setting by Kafka's name, for example num.partitions=4; may be repeated",
        metavar="NAME=VALUE",
        repeated=True,
    ),
    Option(
        "--config",
        "config",
        "properties file with broker settings; --set takes precedence",
        metavar="FILE",
    ),
    Option(
        "--metrics-port",
        "metrics_port",
        "port on which Prometheus metrics are served",
        metavar="PORT",
        convert=_port,
    ),
    Option(
        "--secure",
        "secure",
        "directory of a broker with TLS, passwords and ACLs, made at the first start with a "
        "certificate authority, an administrator and a file for clients",
        metavar="DIR",
    ),
    Option(
        "--renew",
        "renew",
        "with --secure: issue a new certificate and end; a running broker takes it up",
        has_value=False,
    ),
    Option("--json", "json", "print the address line as JSON", has_value=False),
)


def read_options(arguments: Sequence[str]) -> Options | None:
    """Return the values of a command line; None if only `option_parser` can read it.

    The result is None if the command line has `--help`, `--name=VALUE`, an abbreviated option, a
    value that begins with a hyphen, or an error.
    """
    values: dict[str, Any] = {}
    flags = {option.flag: option for option in OPTIONS}
    rest = iter(arguments)
    for flag in rest:
        option = flags.get(flag)
        if option is None:
            return None
        if not option.has_value:
            values[option.field] = True
            continue
        text = next(rest, None)
        if text is None or text.startswith("-") or (option.choices and text not in option.choices):
            return None
        try:
            value = option.convert(text)
        except ValueError:
            return None
        if option.repeated:
            value = (*values.get(option.field, ()), value)
        values[option.field] = value
    return Options(**values)
