"""Turns a configuration of Bruce or Dory into a configuration file of this gateway.

Each option of Bruce and Dory becomes an option of this gateway, or a comment that names the
replacement. Defaults that differ from the gateway's defaults are written out. Tests:
tests/unit/gateway/test_import_xml.py.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from aiokq.errors import ConfigError
from aiokq.gateway.bruce_flags import parse_flags
from aiokq.gateway.settings import GatewaySettings
from aiokq.gateway.sizes import largest_log_line
from aiokq.gateway.toml_text import TomlText, printable, size_text, write_table
from aiokq.gateway.xml_document import read_document
from aiokq.gateway.xml_options import GivenOptions, boolean_of, file_of
from aiokq.gateway.xml_sections import Batching, Compression, Rates
from aiokq.gateway.xml_values import (
    INT32_MAX,
    KIB,
    MIB,
    OPTIONS,
    Given,
    c_mode,
    flag_error,
    number_of,
)

if TYPE_CHECKING:
    from aiokq.gateway.xml_document import Element

__all__ = ["import_xml"]

OVERHEAD: Final = 26
"""Bytes that Bruce and Dory add to the size of key and value before they check messageMaxBytes."""

MOST_MESSAGE: Final = 2**30
LEAST_POOL: Final = 64 * KIB
MOST_DATAGRAM: Final = 16 * MIB
AUTOCREATE_MS: Final = 21_000
"""Bruce and Dory look up a created topic after 3, 6 and 12 seconds, and then give up."""


def import_xml(
    file: Path, flags: Sequence[str] = (), *, token_file: str | None = None
) -> tuple[str, list[str]]:
    """Return a configuration file with the meaning of a file of Bruce or Dory.

    Args:
        file: an XML file with the root `bruceConfig` or `doryConfig`.
        flags: the command line of Bruce.
        token_file: value of `token_file` in [http]. If it is None, HTTP listens on loopback only,
            even if the original listens on all addresses.

    Returns:
        The text of the file, and warnings about the most important differences in behaviour.

    Raises:
        ConfigError: the file or a flag is wrong. The message names the file, the line and the
            element.
    """
    root = read_document(file)
    if root.name not in ("bruceConfig", "doryConfig"):
        raise root.error("the root of the file must be <bruceConfig> or <doryConfig>")
    # Dory reads files with the root of Bruce.
    dory = root.name == "doryConfig" or any(
        child.name in OPTIONS or child.name == "inputSources" for child in root.children
    )
    given_flags = parse_flags(flags)
    if dory and given_flags:
        raise ConfigError(f"--{next(iter(given_flags))}: a file of Dory has no flags of Bruce")
    text, warnings = _Import(root, dory, given_flags, token_file).run()
    try:
        GatewaySettings.checked(tomllib.loads(text))
    except ConfigError as error:
        raise ConfigError(f"{file}: an option has no counterpart: {error.message}") from error
    return text, warnings


class _Import:
    """One import: the given options, and the text of the new file so far."""

    def __init__(
        self, root: Element, dory: bool, flags: Mapping[str, str], token_file: str | None
    ) -> None:
        self._root = root
        self._dory = dory
        self._options = GivenOptions(root, dory, flags)
        self._name = self._options.name
        self._token_file = token_file
        self._toml = TomlText()
        self._warnings: list[str] = []

    def run(self) -> tuple[str, list[str]]:
        toml = self._toml
        source = Path(self._root.file).name
        toml.comment(
            f"Made from {printable(source)}, a configuration of {self._name}, by import-xml."
        )
        toml.comment(
            "The options in force that are not in the original are marked as its defaults."
        )
        # As in Bruce and Dory, empty keys and values are written as null.
        toml.lines.append("")
        toml.set("empty_key", "null", f"as {self._name}")
        toml.set("empty_value", "null", "deletes the key in a compacted topic")
        self._kafka()
        self._inputs()
        self._http()
        self._pool()
        self._delivery()
        self._topics()
        self._discards()
        self._debug()
        self._logging()
        return toml.text(), self._warnings

    def _warn(self, text: str) -> None:
        """Report a difference in behaviour, as a warning and as a comment in the new file."""
        self._toml.comment(text)
        self._warnings.append(text)

    # ------------------------------------------------------------ tables

    def _kafka(self) -> None:
        toml = self._toml
        toml.table("[kafka]")
        brokers = self._options.sections.get("initialBrokers")
        if brokers is None or not brokers.items("broker"):
            where = self._root if brokers is None else brokers
            raise where.error("<initialBrokers> with one <broker> or more is missing")
        servers, defaulted = [], False
        for broker in brokers.items("broker"):
            host = broker.text("host")
            if not re.fullmatch(r"[^\s,\"\[\]]+", host):
                raise broker.error(f"{host!r} is no host")
            port = 9002 if self._dory else 9092
            if "port" in broker.attributes:
                given = Given(broker.text("port"), broker.error)
                port = number_of(given, least=1, most=65535)
            else:
                defaulted = True
            servers.append(f"[{host}]:{port}" if ":" in host else f"{host}:{port}")
        if defaulted and self._dory:
            self._warn(
                "A broker without `port`: the code of Dory takes 9002 there, which is an error in "
                "its code for Kafka's 9092. 9002 is kept here: correct it if your brokers listen "
                "on 9092."
            )
        toml.set("bootstrap_servers", ",".join(servers))
        given_id = self._options.given.get("kafkaConfig/clientId")
        default_id = "dory" if self._dory else "bruce"
        client_id = "" if given_id is None else given_id.text
        note = "" if client_id else f"default of {self._name}"
        toml.set("client_id", client_id or default_id, note)
        minutes, note = self._options.number("msgDelivery/metadataRefreshInterval", 15, least=1)
        toml.set("metadata_max_age_ms", minutes * 60_000, note or "metadataRefreshInterval")
        seconds, note = self._options.number(
            "msgDelivery/kafkaSocketTimeout", 60, most=INT32_MAX // 1000
        )
        timeout = seconds * 1000 if seconds else INT32_MAX
        toml.set("request_timeout_ms", timeout, note or "kafkaSocketTimeout")
        acks = self._options.flags.get("required_acks")
        if acks is not None:
            if acks not in ("-1", "0", "1"):
                raise flag_error("required_acks")("the brokers know the values -1, 0 and 1")
            toml.set("acks", int(acks), "required_acks")
        if not self._options.boolean("msgDelivery/compareMetadataOnRefresh", True):
            toml.comment(
                "compareMetadataOnRefresh = false has no counterpart: metadata that has not "
                "changed never interrupts delivery."
            )

    def _inputs(self) -> None:
        toml = self._toml
        datagram, stream, port = self._sources()
        size, size_note = self._options.number(
            "inputConfig/maxDatagramMsgSize", 64 * KIB, least=1, most=MOST_DATAGRAM
        )
        large = self._options.boolean("inputConfig/allowLargeUnixDatagrams", False)
        stream_size, stream_note = self._options.number(
            "inputConfig/maxStreamMsgSize", 2 * MIB, least=1, most=MOST_MESSAGE - 4
        )
        if datagram is not None:
            self._input("unix_datagram", *datagram)
            toml.set("max_message_bytes", size, size_note or "maxDatagramMsgSize")
            toml.set("allow_large_datagrams", large)
        for kind, address in (("unix_stream", stream), ("tcp", port)):
            if address is None:
                continue
            if isinstance(address, int):
                toml.table("[[inputs]]")
                toml.set("type", kind)
                toml.set("port", address)
            else:
                self._input(kind, *address)
            note = stream_note or "maxStreamMsgSize"
            toml.set("max_message_bytes", stream_size + 4, f"{note}, and the 4 bytes of the size")
            toml.set("idle_ms", 0, f"as {self._name}, connections have no time limit")
            toml.set("max_connections", 1024, f"{self._name} has no limit")
            toml.set("idle_when_full_ms", 10_000, "then an idle connection makes room")
            # Connections are limited, so messages that never end could use up all of them.
            toml.set(
                "partial_message_ms",
                30_000,
                f"{self._name} waits for the rest of a message without a limit; so does 0",
            )
        if datagram is None and stream is None and port is None:
            self._warn(
                "No input is given: add [[inputs]], or give import-xml the flags of Bruce, such as "
                "--receive_socket_name PATH."
                if not self._dory
                else "No input is enabled in <inputSources>: add [[inputs]]."
            )

    def _input(self, kind: str, path: str, mode: str | None) -> None:
        toml = self._toml
        toml.table("[[inputs]]")
        toml.set("type", kind)
        toml.set("path", path)
        if mode is not None:
            toml.set("mode", mode)
        else:
            toml.comment("mode: not given, so that the umask decides")

    def _sources(
        self,
    ) -> tuple[tuple[str, str | None] | None, tuple[str, str | None] | None, int | None]:
        """Return path and mode of the UNIX datagram and stream inputs, and the TCP port."""
        if not self._dory:
            path = self._options.flags.get("receive_socket_name")
            if path is None:
                return None, None, None
            if not path.startswith("/"):
                raise flag_error("receive_socket_name")(f"the path {path!r} is not absolute")
            mode = self._options.flags.get("receive_socket_mode")
            error = flag_error("receive_socket_mode")
            return (path, None if mode is None else c_mode(Given(mode, error))), None, None
        element = self._options.sections.get("inputSources")
        inside = {} if element is None else element.sections(("unixDatagram", "unixStream", "tcp"))
        files: list[tuple[str, str | None] | None] = []
        for name in ("unixDatagram", "unixStream"):
            path, mode = file_of(inside[name]) if name in inside else (None, None)
            files.append(None if path is None else (path, mode))
        port = None
        if "tcp" in inside:
            tcp = inside["tcp"]
            ports = tcp.sections(("port",))
            if "port" not in ports:
                raise tcp.error("the element <port> is missing")
            given = Given(ports["port"].leaf().text("value"), ports["port"].error)
            number = number_of(given, least=1, most=65535)
            if boolean_of(Given(tcp.text("enable"), tcp.error)):
                port = number
        return files[0], files[1], port

    def _http(self) -> None:
        toml = self._toml
        toml.table("[http]")
        port, note = self._options.number("httpInterface/port", 9090, least=1, most=65535)
        toml.set("port", port, note)
        if self._options.boolean("httpInterface/loopbackOnly", False):
            toml.set("host", "127.0.0.1", "loopbackOnly")
        elif self._token_file is not None:
            toml.set("host", "0.0.0.0", f"as {self._name} without loopbackOnly")
        else:
            toml.set("host", "127.0.0.1")
            self._warn(
                f"HTTP: {self._name} listens on all addresses without loopbackOnly. Beyond "
                "loopback, this gateway needs a token: set `token_file` and `host`, or import "
                "with --token-file."
            )
        if self._token_file is not None:
            toml.set("token_file", self._token_file)

    def _pool(self) -> None:
        toml = self._toml
        toml.table("[pool]")
        size, note = self._options.number("inputConfig/maxBuffer", 128 * MIB, most=2**40)
        if not self._dory and note:
            note = "msg_buffer_max was not given; default of Dory"
        if size < LEAST_POOL:
            toml.comment(f"maxBuffer is {size} bytes, and the smallest pool has {LEAST_POOL}.")
            size = LEAST_POOL
        toml.set("max_bytes", size_text(size), note or "maxBuffer")
        toml.comment(
            f"{self._name} cuts keys and values into blocks of 128 bytes with 120 usable; here, "
            "each message is charged its bytes and a fixed overhead."
        )

    def _delivery(self) -> None:
        toml = self._toml
        toml.table("[delivery]")
        toml.set("engine", "bruce")
        toml.set("error_table", "dory" if self._dory else "seed")
        for name, key, default, most in (
            ("max_failed_delivery_attempts", "maxFailedDeliveryAttempts", 5, INT32_MAX),
            ("shutdown_max_delay_ms", "shutdownMaxDelay", 30_000, INT32_MAX),
            ("dispatcher_restart_max_delay_ms", "dispatcherRestartMaxDelay", 5_000, INT32_MAX),
            ("pause_initial_ms", "pauseRateLimitInitial", 5_000, INT32_MAX),
            ("pause_max_doublings", "pauseRateLimitMaxDouble", 4, 16),
            ("min_pause_ms", "minPauseDelay", 5_000, INT32_MAX),
        ):
            value, note = self._options.number(f"msgDelivery/{key}", default)
            if value > most:
                note = f"{key} was {value}"
            toml.set(name, min(value, most), note or key)
        timeout, note = self._options.number("kafkaConfig/replicationTimeout", 10_000)
        toml.set("replication_timeout_ms", timeout, note or "replicationTimeout")
        toml.set("autocreate", self._options.boolean("msgDelivery/topicAutocreate", False))
        toml.set("autocreate_with", "metadata", f"as {self._name}")
        toml.set("autocreate_timeout_ms", AUTOCREATE_MS, f"{self._name} waits 3, 6 and 12 s")

    # ------------------------------------------------------------ topics

    def _topics(self) -> None:
        toml = self._toml
        limits = Batching(self._options.sections.get("batching"))
        if limits.data_limit is not None:
            toml.set(
                "produce_request_data_limit",
                size_text(limits.data_limit),
                "produceRequestDataLimit",
            )
        else:
            toml.set("produce_request_data_limit", 0, "not given: one message per request")
        if limits.message_max_bytes:
            most = limits.message_max_bytes
            note = f"messageMaxBytes without {OVERHEAD} bytes of overhead"
        else:
            most = 1_000_000
            note = "Kafka's value"
        toml.set("message_max_bytes", most, "messageMaxBytes" if limits.message_max_bytes else note)
        toml.table("[limits]")
        if not limits.message_max_bytes:
            self._warn(
                f"messageMaxBytes is not given, or 0: {self._name} then discards every message as "
                "too long. This file has Kafka's value, so that messages are delivered."
            )
        largest = max(1, min(most - OVERHEAD, MOST_MESSAGE))
        toml.set("max_message_bytes", largest, note)
        toml.table("[batching]")
        default = limits.default
        for name, value in default.items():
            if not isinstance(value, dict):
                toml.set(name, value)
        if limits.combined is not None:
            toml.table("[combined]")
            for name, value in limits.combined.table(complete=False).items():
                assert not isinstance(value, dict)
                toml.set(name, value)
        compression = Compression(self._options.sections.get("compression"))
        toml.table("[compression]")
        for text in compression.notes:
            toml.comment(text)
        write_table(toml, compression.default)
        # For `min_bytes`, the engine counts as many bytes of overhead as Bruce and Dory.
        rates = Rates(self._options.sections.get("topicRateLimiting"))
        if rates.default is not None:
            toml.table("[rate_limit]")
            write_table(toml, rates.default)
        self._own_topics(limits, compression, rates)

    def _own_topics(self, limits: Batching, compression: Compression, rates: Rates) -> None:
        toml = self._toml
        for topic in sorted({*limits.topics, *compression.topics, *rates.topics}):
            name = topic if re.fullmatch("[A-Za-z0-9_-]+", topic) else json.dumps(topic)
            if topic in rates.topics:
                toml.table(f"[topics.{name}]")
                rate = rates.topics[topic]
                if rate is None:
                    toml.set("rate_limit", "unlimited")
                else:
                    toml.set("rate_limit", rate)
            if topic in limits.topics:
                toml.table(f"[topics.{name}.batching]")
                write_table(toml, limits.topics[topic])
            if topic in compression.topics:
                toml.table(f"[topics.{name}.compression]")
                write_table(toml, compression.topics[topic])

    # ------------------------------------------------------------ reports

    def _discards(self) -> None:
        toml = self._toml
        toml.table("[discards]")
        seconds, note = self._options.number(
            "httpInterface/discardReportInterval", 600, least=1, most=7 * 24 * 3600
        )
        toml.set("report_interval_s", seconds, note or "discardReportInterval")
        prefix, note = self._options.number("httpInterface/badMsgPrefixSize", 256)
        toml.set("sample_bytes", min(prefix, MIB), note or "badMsgPrefixSize")
        toml.set("log_lines", self._options.boolean("logging/logDiscards", True), "logDiscards")
        if not self._options.enabled.get("discardLogging"):
            toml.comment("no discard log, as in the original")
            return
        path = self._options.given["discardLogging/path"]
        if not path.text.startswith("/"):
            raise path.error(f"the path {path.text!r} is not absolute")
        size, size_note = self._options.number(
            "discardLogging/maxFileSize", MIB, least=1, most=2**40
        )
        archive, archive_note = self._options.number(
            "discardLogging/maxArchiveSize", 32 * MIB if self._dory else 8 * MIB, most=2**40
        )
        key = "discardLogging/maxMsgPrefixSize"
        if (
            key not in self._options.given
            and "discardLogging/badMsgPrefixSize" in self._options.given
        ):
            key = "discardLogging/badMsgPrefixSize"
        prefix, prefix_note = self._options.number(key, INT32_MAX if self._dory else 256)
        toml.set("log_path", path.text)
        least = 2 * largest_log_line(0)
        if size < least:
            toml.comment(f"maxFileSize was {size}: two lines may need {least} bytes.")
            size = -(-least // KIB) * KIB
        toml.set("log_max_file_bytes", size_text(size), size_note or "maxFileSize")
        if archive < size:
            toml.comment(f"maxArchiveSize was {archive}: it is at least the size of the file.")
        toml.set("log_max_archive_bytes", size_text(max(archive, size)), archive_note)
        # A file must have room for two lines.
        most = max(0, 3 * ((size - least) // 16 - 1))
        if prefix > most:
            toml.comment("The limit is the longest key or value of which two lines fit a file.")
        toml.set("log_max_prefix_bytes", min(prefix, most, 2**30), prefix_note)

    def _debug(self) -> None:
        toml = self._toml
        if not self._options.enabled.get("msgDebug"):
            where = "" if self._dory else " Bruce has them in /home/bruce/debug by default."
            toml.lines.append("")
            toml.comment(f"msgDebug: no files for debugging; add [debug] for them.{where}")
            return
        toml.table("[debug]")
        path = self._options.given["msgDebug/path"]
        if not path.text.startswith("/"):
            raise path.error(f"the path {path.text!r} is not absolute")
        toml.set("directory", path.text)
        seconds, note = self._options.number("msgDebug/timeLimit", 3600, least=1)
        toml.set("time_limit_s", seconds, note or "timeLimit")
        size, note = self._options.number(
            "msgDebug/byteLimit", 2 * MIB if self._dory else 2048 * MIB, most=2**40
        )
        toml.set("max_bytes", size_text(size), note or "byteLimit")

    def _logging(self) -> None:
        toml = self._toml
        toml.lines.append("")
        toml.comment(
            "logging (level, stdoutStderr, syslog, file): the gateway logs to standard error, "
            "which systemd's journal keeps; `aiokq --verbose gateway` logs more."
        )
        level = self._options.given.get("logging/level")
        if level is not None:
            toml.comment(f"level was {printable(level.text)}")
        if self._options.log_file is not None:
            toml.comment(f"file was {printable(self._options.log_file)}")
        for flag, text in (
            ("daemon", "--daemon: run the gateway under systemd, or with nohup and &."),
            ("protocol_version", "--protocol_version: versions are negotiated with each broker."),
            ("omit_timestamp", "--omit_timestamp concerns the old input format only."),
            ("use_old_output_format", "--use_old_output_format: record batches v2 are written."),
            ("config_path", "--config_path is the file that was imported."),
        ):
            if flag in self._options.flags:
                toml.comment(text)
