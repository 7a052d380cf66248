"""`aiokq gateway`: the command group; without a command it runs a gateway until SIGTERM."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import signal
import socket
from typing import TYPE_CHECKING, Annotated

import typer

from aiokq.cli.gateway_commands import check, import_file, reload, send, status
from aiokq.cli.gateway_logs import gateway_logs
from aiokq.cli.gateway_options import (
    HttpPort,
    SpoolDirectory,
    TcpPort,
    TomlFile,
    UnixDatagram,
    UnixStream,
)
from aiokq.cli.help_text import examples
from aiokq.cli.options import BootstrapServers
from aiokq.cli.output import Output
from aiokq.cli.session import Session, loop_factory

if TYPE_CHECKING:
    from aiokq.gateway.gateway import Gateway

__all__ = ["gateway"]

gateway = typer.Typer(
    invoke_without_command=True,
    help="Run a gateway: local programs write messages to its sockets, and it delivers them to "
    "Kafka.",
    epilog=examples(
        "aiokq gateway --unix-datagram /run/aiokq/gateway.sock -b 127.0.0.1:9092",
        "aiokq gateway --config /etc/aiokq/gateway.toml",
        "aiokq gateway check /etc/aiokq/gateway.toml",
        "echo hello | aiokq gateway send greetings --unix-datagram /run/aiokq/gateway.sock",
    ),
)
gateway.command(epilog=examples("aiokq gateway check gateway.toml"))(check)
gateway.command(
    "import-xml",
    context_settings={"ignore_unknown_options": True},  # the flags of Bruce
    epilog=examples(
        "aiokq gateway import-xml dory_conf.xml > gateway.toml",
        "aiokq gateway import-xml bruce_conf.xml --receive_socket_name /run/bruce.sock "
        "--msg_buffer_max 65536 > gateway.toml",
    ),
)(import_file)
gateway.command(
    epilog=examples(
        "aiokq gateway status --http 9690", "aiokq gateway status --config gateway.toml --json"
    )
)(status)
gateway.command(
    epilog=examples(
        "aiokq gateway reload --config gateway.toml",
        "kill -HUP PID  # without an HTTP interface",
    )
)(reload)
gateway.command(
    epilog=examples(
        "seq 5 | aiokq gateway send numbers --config gateway.toml",
        "aiokq gateway send orders '{\"n\": 1}' --key u7 --unix-datagram /run/aiokq/gateway.sock",
    )
)(send)


@gateway.callback()
def run(
    ctx: typer.Context,
    config: TomlFile = None,
    bootstrap_servers: BootstrapServers = None,
    unix_datagram: UnixDatagram = None,
    unix_stream: UnixStream = None,
    tcp: TcpPort = None,
    http: HttpPort = None,
    spool: SpoolDirectory = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the ready line as JSON, for programs.")
    ] = False,
) -> None:
    """Run a gateway until SIGTERM or SIGINT.

    The inputs are open when the ready line is printed; Kafka need not be reachable. At SIGTERM or
    SIGINT the gateway closes the inputs, and delivers received messages for at most
    shutdown_max_delay_ms. Then the remaining messages are discarded and counted, or stay in the
    spool. At SIGHUP the gateway reads the file of --config again.
    """
    if ctx.invoked_subcommand is not None:
        return
    # Until the handler is set, SIGHUP would end the process, so ignore it. No change of the
    # configuration file is missed, because the file is read later.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    from aiokq.gateway.gateway import Gateway

    servers = bootstrap_servers
    if servers is None and config is None:
        servers = os.environ.get("KAFKA_BOOTSTRAP_SERVERS")
    made = Gateway(
        config,
        bootstrap_servers=servers,
        unix_datagram=unix_datagram,
        unix_stream=unix_stream,
        tcp=tcp,
        http=http,
        spool=spool,
    )
    session: Session = ctx.obj
    with gateway_logs():
        _run(made, session, Output(as_json=as_json))


def _run(made: Gateway, session: Session, output: Output) -> None:
    import asyncio

    from aiokq.core.descriptors import raise_limit

    raise_limit()  # each connection of an input needs a descriptor
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(_serve(made, output))


async def _serve(made: Gateway, output: Output) -> None:
    import asyncio

    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    loop.add_signal_handler(signal.SIGHUP, made.reload_soon)
    async with made:
        # Objects that exist after the start live as long as the process: exclude them from garbage
        # collection.
        gc.freeze()
        output.line(_ready_line(made, as_json=output.as_json))
        output.flush()
        _notify("READY=1")
        await made.run_until(stop)
        _notify("STOPPING=1")
    total = made.snapshot().total
    output.note(
        f"gateway stopped: received={total.received} acked={total.acked} "
        f"discarded={sum(total.discarded)} dead_lettered={total.dead_lettered}"
    )


def _notify(state: str) -> None:
    """Tell systemd the state of the service, if it runs this process (`Type=notify`)."""
    path = os.environ.get("NOTIFY_SOCKET")
    if not path:
        return
    address = "\0" + path[1:] if path.startswith("@") else path
    with (
        contextlib.suppress(OSError),  # systemd then fails the start after its timeout
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notified,
    ):
        notified.connect(address)
        notified.send(state.encode())


def _ready_line(made: Gateway, *, as_json: bool) -> str:
    url = None if made.http is None else made.http.where
    servers = ",".join(made.cluster.settings.bootstrap_servers)
    if as_json:
        inputs = [{"type": one.type, "address": one.where} for one in made.inputs]
        return json.dumps(
            {
                "inputs": inputs,
                "http": url,
                "bootstrap_servers": servers,
                "engine": made.settings.delivery.engine,
                "pid": os.getpid(),
            }
        )
    inputs_text = ", ".join(f"{one.type} {one.where}" for one in made.inputs)
    http = "" if url is None else f", {url}"
    return f"aiokq gateway ready: {inputs_text}{http}; delivers to {servers}"
