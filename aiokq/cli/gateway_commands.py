"""The commands of `aiokq gateway` for a configuration file or a running gateway."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from aiokq.cli.gateway_options import HttpPort, TcpPort, TomlFile, UnixDatagram, UnixStream
from aiokq.cli.options import AsJson, at_most
from aiokq.cli.output import Output
from aiokq.core import limits
from aiokq.core.errors import ConfigError, KafkaError

if TYPE_CHECKING:
    from aiokq.cli.session import Session
    from aiokq.gateway.client import GatewayClient
    from aiokq.gateway.settings import GatewaySettings
    from aiokq.gateway.settings_tables import HttpSettings

__all__ = ["check", "import_file", "reload", "send", "status"]

HTTP_SECONDS: Final = 10.0
ALIVE_SECONDS: Final = 5.0
"""Seconds between two checks whether a gateway that reloads its file still answers."""

SEND_SECONDS: Final = 5.0


def check(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="The file to check.", show_default=False)
    ],
    as_json: AsJson = False,
) -> None:
    """Check a configuration file without starting a gateway.

    Exit code 1 if the file is wrong, or names users, groups or files that do not exist on this
    system: stderr has the line and the reason. Whether the ports are free is not checked.
    """
    from aiokq.gateway.system_check import check_file

    settings, notes = check_file(file)
    output = Output(as_json=as_json)
    for text in notes:
        output.note(text)
    if as_json:
        inputs = [one.where for one in settings.inputs]
        output.document({"ok": True, "inputs": inputs, "notes": notes})
        return
    engine = settings.delivery.engine
    output.line(f"{file}: correct; {_count(len(settings.inputs), 'input')}, engine {engine}")
    if not settings.inputs:
        output.note("the file has no [[inputs]]: give them by --unix-datagram, for example")
    if not settings.kafka.get("bootstrap_servers"):
        output.note("the file has no `bootstrap_servers`: give them by --bootstrap-servers")


def import_file(
    file: Annotated[
        Path,
        typer.Argument(metavar="FILE", help="An XML file of Bruce or Dory.", show_default=False),
    ],
    flags: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[FLAG]...",
            help="The flags of Bruce's command line, with their values.",
            show_default=False,
        ),
    ] = None,
    token_file: Annotated[
        str | None,
        typer.Option(
            "--token-file",
            metavar="PATH",
            help="File with the token of the HTTP interface, for `token_file`.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Turn a configuration of Bruce or Dory into a configuration of this gateway.

    The new file is printed on stdout. Comments in the file describe how it differs from the old
    configuration; differences in behaviour are also printed on stderr. Options that Bruce had on
    its command line are given as Bruce's flags, such as --receive_socket_name PATH.
    """
    from aiokq.gateway.import_xml import import_xml

    text, warnings = import_xml(file, flags or (), token_file=token_file)
    output = Output()
    output.line(text.rstrip("\n"))
    for warning in warnings:
        output.note(warning)


def status(config: TomlFile = None, http: HttpPort = None, as_json: AsJson = False) -> None:
    """Show what became of the messages that a running gateway received.

    The gateway is found by its HTTP interface.
    """
    output = Output(as_json=as_json)
    document = _ask(config, http, "GET", "/accounting/json")
    _check_answer(document, "topics")
    if as_json:
        output.document(document)
        return
    columns = ("topic", "received", "acked", "discarded", "dead-lettered", "in flight")
    rows = [_row(name, numbers) for name, numbers in document["topics"].items()]
    output.table(columns, [*rows, _row("(all)", document)])
    for reason, count in document["discarded"].items():
        output.line(f"discarded, {reason}: {count}")
    if document["possible_duplicates"]:
        output.line(f"possible duplicates: {document['possible_duplicates']}")


def reload(config: TomlFile = None, http: HttpPort = None, as_json: AsJson = False) -> None:
    """Let a running gateway read its configuration file again.

    The gateway is found by its HTTP interface. If it has none, send SIGHUP to its process. The
    command waits until the reload ends, or until the gateway does not answer any more. A change of
    the brokers or of the engine may take up to shutdown_max_delay_ms.
    """
    output = Output(as_json=as_json)
    document = _reloaded(config, http)
    _check_answer(document, "changed")
    if as_json:
        output.document(document)
        return
    changed = document["changed"]
    output.line(f"reloaded; changed: {', '.join(changed)}" if changed else "nothing has changed")


def send(
    ctx: typer.Context,
    topic: Annotated[
        str, typer.Argument(metavar="TOPIC", help="Name of the topic.", show_default=False)
    ],
    values: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[VALUE]...",
            help="Values, one per message; by default, the lines of standard input.",
            show_default=False,
        ),
    ] = None,
    key: Annotated[str, typer.Option("--key", help="Key of all messages.")] = "",
    partition_key: Annotated[
        int | None,
        typer.Option(
            "--partition-key",
            metavar="N",
            callback=at_most(limits.INT32_MAX * 2 + 1),
            help="Number that chooses the partition; by default, the gateway chooses.",
            show_default=False,
        ),
    ] = None,
    config: TomlFile = None,
    unix_datagram: UnixDatagram = None,
    unix_stream: UnixStream = None,
    tcp: TcpPort = None,
) -> None:
    """Send messages to a running gateway.

    The command ends when the gateway's socket has the messages. A gateway sends no answers:
    `aiokq gateway status` shows how many messages Kafka has acknowledged. If no gateway listens, or
    the gateway does not read from its socket, the command waits for 5 seconds, and then fails.
    """
    from aiokq.gateway.client import GatewayUnavailable, InvalidMessage

    session: Session = ctx.obj
    count = 0
    with _client(config, unix_datagram, unix_stream, tcp) as client:
        for value in _values(values):
            try:
                client.send(
                    topic.encode("utf-8", "surrogateescape"),
                    value,
                    key=key.encode("utf-8", "surrogateescape"),
                    partition_key=partition_key,
                    timestamp_ms=session.now_ms(),
                )
            except InvalidMessage as error:
                raise typer.BadParameter(str(error)) from None
            except GatewayUnavailable as error:
                sent = "1 message was" if count == 1 else f"{count} messages were"
                raise KafkaError(f"{error}; {sent} sent") from error
            count += 1
    Output().note(f"{_count(count, 'message')} sent")


def _count(number: int, name: str) -> str:
    return f"{number} {name}" if number == 1 else f"{number} {name}s"


def _row(name: str, numbers: dict[str, Any]) -> tuple[object, ...]:
    return (
        name,
        numbers["received"],
        numbers["acked"],
        sum(numbers["discarded"].values()),
        numbers["dead_lettered"],
        numbers["in_flight"],
    )


def _values(values: Iterable[str] | None) -> Iterator[bytes]:
    if values:
        for value in values:
            yield value.encode("utf-8", "surrogateescape")
        return
    for line in sys.stdin.buffer:
        yield line.removesuffix(b"\n")


def _settings(config: Path | None) -> GatewaySettings | None:
    if config is None:
        return None
    from aiokq.gateway.settings import GatewaySettings

    return GatewaySettings.load(config)


def _http_table(config: Path) -> HttpSettings | None:
    """Return the table [http] of a file; None if there is none.

    Other tables may be invalid, because the gateway itself reports them.
    """
    import tomllib

    from aiokq.gateway.settings_tables import HttpSettings

    try:
        table = tomllib.loads(config.read_text("utf-8")).get("http")
        return None if table is None else HttpSettings(**table)
    except (OSError, ValueError, TypeError):
        settings = _settings(config)
        return None if settings is None else settings.http


def _http(config: Path | None, port: int | None) -> HttpSettings:
    """Return the address of the HTTP interface."""
    from aiokq.gateway.settings_tables import HttpSettings

    found = None if config is None else _http_table(config)
    if port is not None:
        found = (
            HttpSettings(port=port) if found is None else found.model_copy(update={"port": port})
        )
    if found is None:
        raise typer.BadParameter(
            "give --http PORT, or --config FILE with a table [http]; a gateway without HTTP "
            "reloads its file on SIGHUP"
        )
    return found


def _ask(
    config: Path | None,
    port: int | None,
    method: str,
    path: str,
    *,
    seconds: float | None = HTTP_SECONDS,
    at: HttpSettings | None = None,
) -> dict[str, Any]:
    """Send a request to the gateway and return its answer.

    Args:
        seconds: timeout for the response; None for no timeout.
        at: the address of the HTTP interface; None for the address that `config` and `port` give.

    Raises:
        KafkaError: no gateway answers, or it does not answer in time.
        ConfigError: the gateway refuses the request, or the token file cannot be read.
        typer.BadParameter: `config` and `port` give no address.
    """
    import urllib.error
    import urllib.request
    from http.client import HTTPException

    http = _http(config, port) if at is None else at
    host = f"[{http.host}]" if ":" in http.host else http.host
    url = f"http://{host}:{http.port}{path}"
    headers = {}
    if http.token_file is not None:
        try:
            token = Path(http.token_file).read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"cannot read `token_file`: {error}") from None
        headers["Authorization"] = f"Bearer {token}"
    request = urllib.request.Request(url, method=method, headers=headers)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=seconds) as answer:
            found: dict[str, Any] | None = json.load(answer)
    except urllib.error.HTTPError as error:
        raise ConfigError(_refusal(error.read(), error.code)) from None
    except TimeoutError as error:
        raise KafkaError(
            f"{url} has not answered within {seconds:g} s; the request may still be under way: "
            "see /readyz, and the log of the gateway"
        ) from error
    except OSError as error:
        reason = getattr(error, "reason", error)
        raise KafkaError(f"no gateway answers at {url}: {reason}") from error
    except (HTTPException, ValueError) as error:
        raise KafkaError(f"{url} is no HTTP interface of a gateway: {error!r}") from error
    if not isinstance(found, dict):
        raise KafkaError(f"{url} is no HTTP interface of a gateway")
    return found


def _check_answer(document: dict[str, Any], name: str) -> None:
    if name not in document:
        raise KafkaError(f"the answer is not that of a gateway: it has no {name!r}")


def _reloaded(config: Path | None, port: int | None) -> dict[str, Any]:
    """Tell a gateway to reload its file; return its response, without a timeout.

    Raises:
        KafkaError: no gateway answers, or the gateway ends before it responds.
        ConfigError: the gateway refuses the reload.
    """
    import queue
    import threading

    answers: queue.SimpleQueue[dict[str, Any] | Exception] = queue.SimpleQueue()

    def ask() -> None:
        try:
            answers.put(_ask(None, None, "POST", "/reload", seconds=None, at=http))
        except Exception as error:  # noqa: BLE001  raised again by the command's thread
            answers.put(error)

    http = _http(config, port)
    threading.Thread(target=ask, daemon=True).start()
    while True:
        try:
            answer = answers.get(timeout=ALIVE_SECONDS)
        except queue.Empty:
            # A gateway closes the connection when it ends, but not when it hangs.
            _ask(None, None, "GET", "/healthz", seconds=HTTP_SECONDS, at=http)
            continue
        if isinstance(answer, Exception):
            raise answer
        return answer


def _refusal(body: bytes, code: int) -> str:
    try:
        return str(json.loads(body)["error"])
    except (ValueError, KeyError, TypeError):
        return f"the gateway answers with status {code}: {body.decode(errors='replace')}"


def _client(
    config: Path | None, datagram: str | None, stream: str | None, tcp: int | None
) -> GatewayClient:
    """Return a client of the input that was named, or else of the first input in the file.

    Raises:
        typer.BadParameter: no input was named and the file gives none, or an address is wrong.
    """
    from aiokq.gateway.client import GatewayClient

    host = "127.0.0.1"
    if (datagram, stream, tcp) == (None, None, None):
        settings = _settings(config)
        inputs = () if settings is None else settings.inputs
        if not inputs:
            raise typer.BadParameter(
                "give --unix-datagram, --unix-stream or --tcp, or --config FILE with [[inputs]]"
            )
        first = inputs[0]
        datagram = first.path if first.type == "unix_datagram" else None
        stream = first.path if first.type == "unix_stream" else None
        tcp, host = first.port, first.host
    elif datagram is not None:
        stream = tcp = None
    elif stream is not None:
        tcp = None
    try:
        return GatewayClient(
            unix_datagram=datagram,
            unix_stream=stream,
            tcp=tcp,
            host=host,
            when_unavailable="wait",
            timeout=SEND_SECONDS,
        )
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
