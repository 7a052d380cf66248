"""`aiokq broker`: a node as a process of its own, without Typer, which would delay the start.

Exit codes: 0 stopped by a signal (or `--help`, or a certificate issued for `--renew`), 1 the node
could not start or failed, 2 bad arguments or settings.
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
import signal
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from aiokq.broker.config.listeners import (
    Endpoint,
    Listeners,
    is_loopback,
    is_wildcard,
)
from aiokq.broker.config.roles import check_quorum, check_roles, configured_node_id
from aiokq.broker.config.settings import (
    BrokerSettings,
    log_directories,
)
from aiokq.broker.options import Options, read_options
from aiokq.broker.process_errors import explain_failure
from aiokq.broker.process_settings import Choice, choose_settings, listeners_of
from aiokq.core.clock import SystemClock
from aiokq.core.descriptors import raise_limit
from aiokq.core.errors import ConfigError, KafkaError
from aiokq.core.log_lines import stderr_handler
from aiokq.core.named_tuple import NamedTuple
from aiokq.core.offload import NoThread

if TYPE_CHECKING:
    from aiokq.broker.node import BrokerNode
    from aiokq.broker.secure_directory import SecureDirectory
    from aiokq.metrics import MetricsServer

__all__ = ["main"]

FAILED: Final = 1
BAD_ARGUMENTS: Final = 2

FEWEST_DESCRIPTORS: Final = 12
"""Descriptors that a start needs: for the loop, a listener, a log directory and a module file.

The three standard streams are not counted.
"""


def main(arguments: Sequence[str]) -> int:
    """Run a broker until SIGTERM, SIGINT or a failure; return the exit code."""
    # During the start, garbage collection would find nothing, and would take a tenth of the time.
    gc.disable()
    try:
        return _run(arguments)
    finally:
        gc.enable()


def _run(arguments: Sequence[str]) -> int:
    logging.basicConfig(level=logging.WARNING, handlers=[stderr_handler()])
    logging.getLogger("aiokq.audit").setLevel(logging.INFO)  # the level of denials and changes
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="surrogateescape")  # a path may have bytes that are not UTF-8
    options = _options(arguments)
    secured = None
    clock = SystemClock()
    try:
        if options.secure is not None:
            from aiokq.broker.secure_directory import format_secured, prepare

            secured = prepare(options, clock)
            if options.renew:
                print(f"aiokq broker: new certificate in {secured.path}/broker.pem")
                return 0
            options = options._replace(config=secured.broker_file)
        elif options.renew:
            raise ConfigError("--renew needs --secure DIR, the directory of the certificates")
        choice = choose_settings(options)
        settings = choice.settings
        check_roles(settings)
        listeners = listeners_of(settings, options)
        node_id = configured_node_id(settings) if options.node_id is None else options.node_id
        check_quorum(settings, listeners, node_id)
        directories = list(options.data_dirs) or log_directories(settings)
        if "" in directories:
            raise ConfigError(
                "--data-dir: the path is empty; name a directory, or omit it to keep nothing"
            )
        if secured is not None:
            format_secured(secured, settings, node_id, clock)
    except ConfigError as error:
        return _complain(error.message, BAD_ARGUMENTS)
    except OSError as error:
        return _complain(f"cannot read {error.filename}: {error.strerror}", BAD_ARGUMENTS)
    except KafkaError as error:
        return _complain(error.message, FAILED)
    raise_limit()
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
            runner.run(_serve(options, choice, place, listeners, node_id, secured))
        except (ConfigError, OSError) as error:
            return _complain(explain_failure(error, directories), FAILED)
        except (ImportError, NoThread) as error:
            return _complain(str(error), FAILED)
        except KafkaError as error:
            return _complain(error.message, FAILED)
    return 0


class Place(NamedTuple):
    """The log directories, and whether the process removes them when it ends."""

    directories: list[str]
    ephemeral: bool


def _options(arguments: Sequence[str]) -> Options:
    """Return the options of a command line; end the process for an error or `--help`."""
    options = read_options(arguments)
    if options is None:
        from aiokq.broker.option_parser import parse_options

        options = parse_options(arguments, lambda message: _complain(message, BAD_ARGUMENTS))
    return options


def _has_descriptors() -> bool:
    """Return whether the process can open `FEWEST_DESCRIPTORS` more files.

    Called before the event loop is created, because a loop of uvloop or asyncio that runs out of
    descriptors while it starts cannot be closed.
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
    secured: SecureDirectory | None,
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
        with contextlib.ExitStack() as stack:
            metrics_port = None
            if options.metrics_port is not None:
                metrics_port = stack.enter_context(_serve_metrics(options.metrics_port)).port
            # Objects that exist after the start live as long as the process: exclude them from
            # garbage collection.
            gc.freeze()
            gc.enable()
            address = node.servers.all_advertised()[0].address
            if secured is not None:
                secured.advertise(address)
            line = _address_line(node, options, choice, place, listeners, metrics_port, secured)
            print(line, flush=True)
            if secured is not None and not options.json:
                print(f"A client needs:\n{secured.summary(address)}", file=sys.stderr)
            if choice.reason is not None and not options.json:
                print(_profile_line(choice.settings.profile, choice.reason), file=sys.stderr)
            if (unused := _unused_line(choice.settings, listeners)) and not options.json:
                print(unused, file=sys.stderr)
            await node.run_until(stop)
    finally:
        await node.close()


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
    secured: SecureDirectory | None,
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
                "client_config": None if secured is None else secured.client_file,
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
    """Return whether a listener is opened on an address that is not advertised for it.

    All loopback addresses count as one address. A wildcard address counts as the advertised host.
    """
    for one in advertised:
        if one.name == opened.name:
            same_host = (
                opened.host == one.host
                or is_wildcard(opened.host)
                or (is_loopback(opened.host) and is_loopback(one.host))
            )
            return one.port != opened.port or not same_host
    return True


def _complain(message: str, code: int) -> int:
    print(f"aiokq broker: {' '.join(message.split())}", file=sys.stderr)
    return code
