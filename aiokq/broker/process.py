"""`aiokq broker`: a node as a process of its own, without Typer, which would delay the start.

Exit codes: 0 stopped by a signal, 1 the node could not start or failed, 2 bad arguments.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import io
import json
import logging
import os
import re
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from aiokq.broker.config.listeners import (
    HOST,
    LOCALHOST,
    Advertise,
    Endpoint,
    ListenerFailed,
    Listeners,
    configured_listeners,
    is_loopback,
    is_wildcard,
)
from aiokq.broker.config.roles import check_quorum, check_roles, configured_node_id
from aiokq.broker.config.setting import shortened
from aiokq.broker.config.settings import (
    BrokerSettings,
    broker_settings,
    log_directories,
    setting_name,
)
from aiokq.broker.options import Options, read_options
from aiokq.core.errors import ConfigError, KafkaError
from aiokq.core.named_tuple import NamedTuple
from aiokq.core.numbers import PORT_MAX, parse_number

if TYPE_CHECKING:
    from aiokq.broker.node import BrokerNode
    from aiokq.metrics import MetricsServer

__all__ = ["main"]

FAILED: Final = 1
BAD_ARGUMENTS: Final = 2

FEWEST_DESCRIPTORS: Final = 12
"""Descriptors that a start needs: for the loop, a listener, a log directory and a module file.

The three standard streams are not counted.
"""


def main(arguments: Sequence[str]) -> int:
    """Run a broker until SIGTERM or SIGINT; return the exit code."""
    # Collections would find no garbage during the start, and would take a tenth of its time.
    gc.disable()
    try:
        return _run(arguments)
    finally:
        gc.enable()


def _run(arguments: Sequence[str]) -> int:
    logging.basicConfig(
        level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="surrogateescape")  # a path may have bytes that are not UTF-8
    options = _options(arguments)
    try:
        choice = _settings(options)
        settings = choice.settings
        check_roles(settings)
        listeners = _listeners(settings, options)
        node_id = configured_node_id(settings) if options.node_id is None else options.node_id
        check_quorum(settings, listeners, node_id)
        directories = list(options.data_dirs) or log_directories(settings)
        if "" in directories:
            raise ConfigError(
                "--data-dir: the path is empty; name a directory, or omit it to keep nothing"
            )
    except ConfigError as error:
        return _complain(error.message, BAD_ARGUMENTS)
    except OSError as error:
        return _complain(f"cannot read {error.filename}: {error.strerror}", BAD_ARGUMENTS)
    _raise_descriptor_limit()
    if not _has_descriptors():
        return _complain(
            f"too few file descriptors: a broker needs at least {FEWEST_DESCRIPTORS}, and many "
            "more to serve clients; raise the limit of open files (ulimit -n)",
            FAILED,
        )
    with contextlib.ExitStack() as stack:
        ephemeral = not directories
        if ephemeral:
            import tempfile

            temporary = tempfile.TemporaryDirectory(prefix="aiokq-", ignore_cleanup_errors=True)
            directories = [stack.enter_context(temporary)]
        runner = stack.enter_context(asyncio.Runner(loop_factory=_loop_factory()))
        try:
            place = Place(directories, ephemeral)
            runner.run(_serve(options, choice, place, listeners, node_id))
        except (ConfigError, OSError) as error:
            return _complain(_explain(error, directories), FAILED)
        except ImportError as error:
            return _complain(str(error), FAILED)
        except KafkaError as error:
            return _complain(error.message, FAILED)
    return 0


class Place(NamedTuple):
    """The log directories, and whether the process removes them when it ends."""

    directories: list[str]
    ephemeral: bool


class Choice(NamedTuple):
    """The settings, and why their profile was chosen; the reason is None if --profile is given."""

    settings: BrokerSettings
    reason: str | None


def _options(arguments: Sequence[str]) -> Options:
    """Return the options of a command line; end the process if they have an error."""
    options = read_options(arguments)
    if options is None:
        from aiokq.broker.option_parser import parse_options

        options = parse_options(arguments, lambda message: _complain(message, BAD_ARGUMENTS))
    return options


def _settings(options: Options) -> Choice:
    given: dict[str, object] = {}
    if options.config is not None:
        given.update(_properties(options.config))
    for assignment in options.assignments:
        name, equals, value = assignment.partition("=")
        if not equals:
            raise ConfigError(f"--set takes NAME=VALUE, not {assignment!r}")
        # --set takes precedence over --config, whichever way the name is spelled there.
        plain = setting_name(name)
        given = {other: text for other, text in given.items() if setting_name(other) != plain}
        given[name] = value
    if options.profile is not None:
        return Choice(broker_settings(given, profile=options.profile), None)
    settings = broker_settings(given, profile="kafka")
    profile, reason = _default_profile(options, options.data_dirs or log_directories(settings))
    if profile != settings.profile:
        settings = broker_settings(given, profile=profile)
    return Choice(settings, reason)


def _properties(path: str) -> dict[str, str]:
    """Return the names and values in a properties file.

    Raises:
        ConfigError: the file is not UTF-8.
        OSError: the file cannot be read.
    """
    from aiokq.core.properties import parse_properties

    with open(path, "rb") as file:
        data = file.read()
    try:
        return parse_properties(data.decode())
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError(
            f"{path} is not UTF-8: byte 0x{data[error.start]:02x} in line {line}; save the file as "
            "UTF-8, or write the character as \\uXXXX"
        ) from None


def _default_profile(options: Options, directories: Sequence[str]) -> tuple[str, str]:
    """Return the profile to use if --profile is not given, and the reason for it."""
    if options.config is not None:
        return "kafka", "--config is given"
    if not directories:
        return "dev", "nothing is kept"
    if any(os.path.exists(os.path.join(path, "meta.properties")) for path in directories):
        return "kafka", "the data directory is not new"
    if sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty():
        return "dev", "the broker runs at a terminal with a new data directory"
    return "kafka", "the broker does not run at a terminal"


def _listeners(settings: BrokerSettings, options: Options) -> Listeners:
    """Return the listeners that settings and flags describe.

    Raises:
        ConfigError: a setting or flag is malformed, contradicts another one, asks for TLS or SASL,
            or would advertise a wildcard address.
    """
    host = None if options.host is None else _without_brackets(options.host)
    if host is not None and host.lower() == LOCALHOST:
        host = "127.0.0.1"  # localhost may also mean ::1, where port 0 would give another port
    advertises = options.advertise is not None or settings.advertised_listeners is not None
    if host is not None and is_wildcard(host) and not advertises:
        raise ConfigError(
            f"--host {host or 'of all addresses'} needs --advertise HOST[:PORT], an address that "
            "clients can connect to"
        )
    return configured_listeners(
        settings, host=host, port=options.port, advertise=_advertise(options.advertise)
    )


def _advertise(text: str | None) -> Advertise:
    """Parse `--advertise HOST[:PORT]`.

    Raises:
        ConfigError: `text` is malformed, or has a wildcard address.
    """
    if text is None:
        return Advertise()
    name, colon, port = text.rpartition(":")
    if not colon or text.endswith("]"):
        name, port = text, ""
    if ":" in name and not name.startswith("["):
        raise ConfigError(
            f"--advertise {shortened(text)}: an IPv6 address must be in brackets, for example "
            "[::1]:9092"
        )
    name = _without_brackets(name)
    if name and is_wildcard(name):
        raise ConfigError(f"--advertise {name}: clients cannot connect to a wildcard address")
    try:
        number = parse_number(port, PORT_MAX) if port else None
    except ValueError:
        number = 0
    if not name or not re.fullmatch(HOST, name) or number == 0:
        raise ConfigError(f"--advertise takes HOST[:PORT], not {shortened(repr(text))}")
    return Advertise(name, number)


def _without_brackets(host: str) -> str:
    return host[1:-1] if host.startswith("[") and host.endswith("]") else host


def _raise_descriptor_limit() -> None:
    """Raise the soft limit of descriptors to the hard limit.

    Each client and each written partition needs a descriptor. The soft limit is usually 1024
    because of programs that use `select`. asyncio does not use `select` on systems that have epoll
    or kqueue.
    """
    try:
        import resource
    except ImportError:  # Windows
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        # macOS may report an unlimited hard limit, which it does not accept as the soft limit.
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _has_descriptors() -> bool:
    """Return whether the process can open `FEWEST_DESCRIPTORS` more files.

    An event loop that runs out of descriptors while it starts cannot be closed, neither uvloop's
    nor asyncio's.
    """
    opened: list[int] = []
    try:
        while len(opened) < FEWEST_DESCRIPTORS:
            opened.append(os.open(os.devnull, os.O_RDONLY))
    except OSError as error:
        if error.errno in (errno.EMFILE, errno.ENFILE):
            return False
        raise
    finally:
        for descriptor in opened:
            os.close(descriptor)
    return True


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return uvloop's loop factory, or None if uvloop is not installed.

    An installed uvloop is always used, because nothing but the broker runs in this process.
    """
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


async def _serve(
    options: Options,
    choice: Choice,
    place: Place,
    listeners: Listeners,
    node_id: int | None,
) -> None:
    from aiokq.broker.node import BrokerNode
    from aiokq.connection.network import system_environment

    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    node = BrokerNode(
        choice.settings,
        system_environment(),
        data_dir=place.directories,
        listeners=listeners,
        node_id=node_id,
    )
    await node.start()
    try:
        _warn_if_open_to_others(node)
        with contextlib.ExitStack() as stack:
            metrics_port = None
            if options.metrics_port is not None:
                metrics_port = stack.enter_context(_serve_metrics(options.metrics_port)).port
            # Objects that exist after the start live as long as the process: exclude them from
            # garbage collection.
            gc.freeze()
            gc.enable()
            print(_address_line(node, options, choice, place, listeners, metrics_port), flush=True)
            if choice.reason is not None and not options.json:
                print(_profile_line(choice.settings.profile, choice.reason), file=sys.stderr)
            if (unused := _unused_line(choice.settings, listeners)) and not options.json:
                print(unused, file=sys.stderr)
            await node.run_until(stop)
    finally:
        await node.close()


def _warn_if_open_to_others(node: BrokerNode) -> None:
    """Warn if other machines can connect, and if the node advertises a loopback address to them.

    The check uses the open sockets, because a host name in `listeners` may resolve to a loopback
    address.
    """
    logger = logging.getLogger("aiokq.broker")
    opened = node.servers.open_to_others()
    if opened:
        hosts = dict.fromkeys(one.host or "all addresses" for one in opened)
        logger.warning(
            "listening on %s: ANYONE who can reach this machine may read, write and delete "
            "every topic; there is no authentication",
            ", ".join(hosts),
        )
    for one in opened:
        advertised = node.servers.advertised(one.name)
        if advertised is not None and is_loopback(advertised.host):
            logger.warning(
                "listener %s accepts clients of other machines, but advertises %s, which is their "
                "own machine: set advertised.listeners, or --advertise HOST[:PORT] for the first "
                "listener",
                one.name,
                advertised.address,
            )


def _serve_metrics(port: int) -> MetricsServer:
    from aiokq import metrics

    try:
        return metrics.serve(port)
    except OSError as error:
        reason = "is in use" if error.errno == errno.EADDRINUSE else f"is refused: {error.strerror}"
        raise ConfigError(
            f"--metrics-port {port} {reason}; choose another port, or 0 for a free one"
        ) from error


def _profile_line(profile: str, reason: str) -> str:
    other = {
        "dev": "--profile kafka has Kafka's defaults",
        "kafka": "--profile dev has short waits in groups, for development",
    }
    return f"aiokq broker: profile {profile}, because {reason}; {other[profile]}"


def _unused_line(settings: BrokerSettings, listeners: Listeners) -> str:
    """Return the line that lists settings and listeners without effect; "" if there are none."""
    parts = []
    if settings.without_effect:
        parts.append(
            f"accepted, without effect on this broker: {', '.join(settings.without_effect)}"
        )
    if listeners.controllers:
        closed = ", ".join(map(str, listeners.controllers))
        parts.append(f"not opened, because this node is the only voter: {closed}")
    return f"aiokq broker: {'; '.join(parts)}" if parts else ""


def _address_line(
    node: BrokerNode,
    options: Options,
    choice: Choice,
    place: Place,
    listeners: Listeners,
    metrics_port: int | None,
) -> str:
    endpoints = node.servers.all_advertised()
    address = endpoints[0].address
    ephemeral = place.ephemeral
    if options.json:
        paths = [] if ephemeral else [os.path.abspath(path) for path in place.directories]
        return json.dumps(
            {
                "bootstrap_servers": address,
                "listeners": {endpoint.name: endpoint.address for endpoint in endpoints},
                "node_id": node.node_id,
                "cluster_id": node.cluster_id,
                "data_dir": paths[0] if paths else None,
                "log_dirs": paths,
                "ephemeral": ephemeral,
                "profile": choice.settings.profile,
                "profile_reason": choice.reason,
                "without_effect": list(choice.settings.without_effect),
                "not_opened": [endpoint.name for endpoint in listeners.controllers],
                "not_opened_endpoints": list(map(str, listeners.controllers)),
                "metrics_port": metrics_port,
                "pid": os.getpid(),
            }
        )
    kept = (
        "ephemeral: nothing is kept after the broker stops"
        if ephemeral
        else f"data in {', '.join(place.directories)}"
    )
    metrics = "" if metrics_port is None else f", metrics on port {metrics_port}"
    others = "".join(f", {endpoint}" for endpoint in endpoints[1:])
    elsewhere = [one for one in node.servers.opened() if _is_elsewhere(one, endpoints)]
    bound = f"bound to {', '.join(map(str, elsewhere))}; " if elsewhere else ""
    return f"aiokq broker {node.node_id} listens on {address}{others} ({bound}{kept}{metrics})"


def _is_elsewhere(opened: Endpoint, advertised: Sequence[Endpoint]) -> bool:
    """Return whether a listener is opened on another address than its advertised address."""
    for one in advertised:
        if one.name == opened.name:
            same_host = (
                opened.host == one.host
                or is_wildcard(opened.host)
                or (is_loopback(opened.host) and is_loopback(one.host))
            )
            return one.port != opened.port or not same_host
    return True


def _explain(error: ConfigError | OSError, directories: list[str]) -> str:
    """Return a line that says why the start failed and what to do."""
    directory = " or ".join(directories)
    if isinstance(error, ConfigError):
        return error.message
    if isinstance(error, ListenerFailed) and (refused := _explain_listener(error)):
        return refused
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return (
            f"no permission: {error.filename or directory}: {error.strerror}; the data directory "
            "must be writable, and a port below 1024 needs privileges"
        )
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"the disk of {directory} is full: free space and start the broker again"
    if isinstance(error, BlockingIOError):
        return (
            f"{directory} is in use by another broker: stop that broker, or choose another "
            "--data-dir"
        )
    if isinstance(error, NotADirectoryError | FileExistsError):
        return f"{error.filename or directory} is not a directory: choose another --data-dir"
    if isinstance(error, ListenerFailed):
        return str(error.strerror)
    return str(error)


def _explain_listener(error: ListenerFailed) -> str | None:
    """Return why a listener could not be opened and what to do.

    Returns None if there is no such text for the error number.
    """
    name, host, port = error.endpoint
    if isinstance(error.__cause__, socket.gaierror):
        return (
            f"host {host} is not known here ({error.__cause__.strerror}): choose another --host, "
            f"or change the listener {name}"
        )
    if error.errno == errno.EADDRINUSE:
        return (
            f"port {port} is in use on {host or 'some address'}: stop the process that listens "
            f"on it, use a free port with --port 0, or change the listener {name}"
        )
    if error.errno == errno.EADDRNOTAVAIL:
        return (
            f"{host} is not an address of this machine: choose another --host, or change the "
            f"listener {name}"
        )
    return None


def _complain(message: str, code: int) -> int:
    print(f"aiokq broker: {' '.join(message.split())}", file=sys.stderr)
    return code
