"""Turns a configuration of Bruce or Dory into a configuration file of this gateway.

Each option of theirs becomes an option of ours, or a comment that says what stands instead.
Defaults of theirs that are not ours are written out. Tests: tests/unit/gateway/test_import_xml.py.
"""

from __future__ import annotations

import json
import re
import textwrap
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias, TypeVar

from aiokq.errors import ConfigError
from aiokq.gateway.bruce_flags import SWITCHES, parse_flags
from aiokq.gateway.settings import GatewaySettings
from aiokq.gateway.sizes import largest_log_line
from aiokq.gateway.xml_document import read_document

if TYPE_CHECKING:
    from aiokq.gateway.xml_document import Element

__all__ = ["import_xml"]

INT32_MAX: Final = 2**31 - 1
KIB: Final = 1024
MIB: Final = 1024 * 1024
OVERHEAD: Final = 26
"""Bytes that Bruce and Dory add to key and value before they compare with messageMaxBytes."""

MOST_MESSAGE: Final = 2**30
LEAST_POOL: Final = 64 * KIB
MOST_DATAGRAM: Final = 16 * MIB
AUTOCREATE_MS: Final = 21_000
"""Bruce and Dory look a created topic up after 3, 6 and 12 seconds, then give up."""

FILE_SECTIONS: Final = {"batching", "compression", "topicRateLimiting", "initialBrokers"}
"""The sections that files of Bruce and Dory have in common."""

OPTIONS: Final[Mapping[str, Mapping[str, str]]] = {
    "inputConfig": {
        "maxBuffer": "value",
        "maxDatagramMsgSize": "value",
        "allowLargeUnixDatagrams": "value",
        "maxStreamMsgSize": "value",
    },
    "msgDelivery": {
        "topicAutocreate": "enable",
        "maxFailedDeliveryAttempts": "value",
        "shutdownMaxDelay": "value",
        "dispatcherRestartMaxDelay": "value",
        "metadataRefreshInterval": "value",
        "compareMetadataOnRefresh": "value",
        "kafkaSocketTimeout": "value",
        "pauseRateLimitInitial": "value",
        "pauseRateLimitMaxDouble": "value",
        "minPauseDelay": "value",
    },
    "httpInterface": {
        "port": "value",
        "loopbackOnly": "value",
        "discardReportInterval": "value",
        "badMsgPrefixSize": "value",
    },
    "kafkaConfig": {"clientId": "value", "replicationTimeout": "value"},
    "discardLogging": {
        "path": "value",
        "maxFileSize": "value",
        "maxArchiveSize": "value",
        "maxMsgPrefixSize": "value",
        "badMsgPrefixSize": "value",
    },
    "msgDebug": {"path": "value", "timeLimit": "value", "byteLimit": "value"},
    "logging": {
        "level": "value",
        "stdoutStderr": "enable",
        "syslog": "enable",
        "logDiscards": "enable",
    },
}
"""The elements in the sections of Dory's file that have one value each, and the attribute of it."""

SWITCHED: Final = frozenset({"discardLogging", "msgDebug"})
"""The sections with an attribute `enable`."""

FLAGS: Final[Mapping[str, tuple[str, int]]] = {
    "msg_buffer_max": ("inputConfig/maxBuffer", KIB),
    "max_input_msg_size": ("inputConfig/maxDatagramMsgSize", 1),
    "allow_large_unix_datagrams": ("inputConfig/allowLargeUnixDatagrams", 1),
    "topic_autocreate": ("msgDelivery/topicAutocreate", 1),
    "max_failed_delivery_attempts": ("msgDelivery/maxFailedDeliveryAttempts", 1),
    "shutdown_max_delay": ("msgDelivery/shutdownMaxDelay", 1),
    "dispatcher_restart_max_delay": ("msgDelivery/dispatcherRestartMaxDelay", 1),
    "metadata_refresh_interval": ("msgDelivery/metadataRefreshInterval", 1),
    "skip_compare_metadata_on_refresh": ("msgDelivery/compareMetadataOnRefresh", 1),
    "kafka_socket_timeout": ("msgDelivery/kafkaSocketTimeout", 1),
    "pause_rate_limit_initial": ("msgDelivery/pauseRateLimitInitial", 1),
    "pause_rate_limit_max_double": ("msgDelivery/pauseRateLimitMaxDouble", 1),
    "min_pause_delay": ("msgDelivery/minPauseDelay", 1),
    "status_port": ("httpInterface/port", 1),
    "status_loopback_only": ("httpInterface/loopbackOnly", 1),
    "discard_report_interval": ("httpInterface/discardReportInterval", 1),
    "discard_report_bad_msg_prefix_size": ("httpInterface/badMsgPrefixSize", 1),
    "client_id": ("kafkaConfig/clientId", 1),
    "replication_timeout": ("kafkaConfig/replicationTimeout", 1),
    "discard_log_path": ("discardLogging/path", 1),
    "discard_log_max_file_size": ("discardLogging/maxFileSize", KIB),
    "discard_log_max_archive_size": ("discardLogging/maxArchiveSize", KIB),
    "discard_log_bad_msg_prefix_size": ("discardLogging/maxMsgPrefixSize", 1),
    "debug_dir": ("msgDebug/path", 1),
    "msg_debug_time_limit": ("msgDebug/timeLimit", 1),
    "msg_debug_byte_limit": ("msgDebug/byteLimit", 1),
    "log_level": ("logging/level", 1),
    "log_echo": ("logging/stdoutStderr", 1),
    "no_log_discard": ("logging/logDiscards", 1),
}
"""The flags of Bruce that have a counterpart in Dory's file, and the unit of their values."""

INVERTED: Final = frozenset({"no_log_discard", "skip_compare_metadata_on_refresh"})

T = TypeVar("T")
Value: TypeAlias = str | int | float | bool
Table: TypeAlias = dict[str, Value | dict[str, Value]]


class Given(NamedTuple):
    """The text of an option in the file or on the command line.

    Attributes:
        error: makes the error that names the place of the option.
        unit: bytes per unit of the value.
        suffixes: whether k and m may follow a number.
    """

    text: str
    error: Callable[[str], ConfigError]
    unit: int = 1
    suffixes: bool = False


class Limits(NamedTuple):
    """A named configuration of batching; None for a limit that is disabled."""

    time_ms: int | None
    messages: int | None
    bytes: int | None

    def table(self, *, complete: bool) -> Table:
        """Return the options; with `complete`, disabled limits get the largest values."""
        values = self._asdict()
        return {
            name: INT32_MAX if value is None else value
            for name, value in values.items()
            if complete or value is not None
        }


def import_xml(
    file: Path, flags: Sequence[str] = (), *, token_file: str | None = None
) -> tuple[str, list[str]]:
    """Return a configuration file with the meaning of a file of Bruce or Dory.

    Args:
        file: an XML file with the root `bruceConfig` or `doryConfig`.
        flags: the command line of Bruce.
        token_file: for `token_file` in [http]; with it, HTTP listens on all addresses if the
            original does.

    Returns:
        The text of the file, and warnings about what the new file does otherwise.

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


class _Toml:
    """Text of a TOML file."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def comment(self, text: str) -> None:
        self.lines += textwrap.wrap(
            text, 98, initial_indent="# ", subsequent_indent="# ", break_on_hyphens=False
        )

    def table(self, header: str) -> None:
        self.lines += ["", header]

    def set(self, name: str, value: Value | Mapping[str, Value], note: str = "") -> None:
        line = f"{name} = {_toml(value)}"
        self.lines.append(f"{line:<38} # {note}" if note else line)

    def text(self) -> str:
        return "\n".join(self.lines).strip("\n") + "\n"


class _Import:
    """One import: the options that were given, and the text that grows from them."""

    def __init__(
        self, root: Element, dory: bool, flags: Mapping[str, str], token_file: str | None
    ) -> None:
        self._root = root
        self._dory = dory
        self._name = "Dory" if dory else "Bruce"
        self._flags = flags
        self._token_file = token_file
        self._toml = _Toml()
        self._warnings: list[str] = []
        known = FILE_SECTIONS | (OPTIONS.keys() | {"inputSources"} if dory else set())
        self._sections = root.sections(known)
        self._given: dict[str, Given] = {}
        self._enabled: dict[str, bool] = {}
        self._log_file: str | None = None

    def run(self) -> tuple[str, list[str]]:
        self._collect_flags()
        self._collect_options()
        toml = self._toml
        source = Path(self._root.file).name
        toml.comment(
            f"Made from {_printable(source)}, a configuration of {self._name}, by import-xml."
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

    # ------------------------------------------------------------ what was given

    def _collect_flags(self) -> None:
        for flag, text in self._flags.items():
            error = _flag_error(flag)
            if flag in FLAGS:
                key, unit = FLAGS[flag]
                value = str(flag not in INVERTED).lower() if flag in SWITCHES else text
                self._given[key] = Given(value, error, unit)
                section = key.split("/")[0]
                if section in SWITCHED:
                    self._enabled[section] = self._enabled.get(section, False) or flag.endswith(
                        ("path", "dir")
                    )
            elif flag == "use_old_input_format":
                raise error("programs must write the format of Bruce 1.0, not the older one")

    def _collect_options(self) -> None:
        for section, element in self._sections.items():
            if section not in OPTIONS:
                continue
            known = set(OPTIONS[section]) | ({"file"} if section == "logging" else set())
            for name, child in element.sections(known).items():
                if name == "file":
                    self._log_file = self._file_of(child)[0]
                    continue
                text = child.leaf().text(OPTIONS[section][name])
                self._given[f"{section}/{name}"] = Given(text, child.error, suffixes=True)
            if section in SWITCHED:
                enabled = self._boolean_of(Given(element.text("enable"), element.error))
                self._enabled[section] = enabled
                if "path" not in element.sections(known):
                    raise element.error("the element <path> is missing")

    def _file_of(self, element: Element) -> tuple[str | None, str | None]:
        """Return path and mode of an element with `enable`; no path if it is not enabled."""
        inside = element.sections(("path", "mode"))
        enabled = self._boolean_of(Given(element.text("enable"), element.error))
        if "path" not in inside:
            raise element.error("the element <path> is missing")
        path = inside["path"].leaf().text("value")
        mode = None
        if "mode" in inside:
            mode = _mode(Given(inside["mode"].leaf().text("value"), inside["mode"].error))
        if not enabled or not path:
            return None, mode
        if not path.startswith("/"):
            raise inside["path"].error(f"the path {path!r} is not absolute")
        return path, mode

    def _number(
        self, key: str, default: int, *, least: int = 0, most: int = INT32_MAX
    ) -> tuple[int, str]:
        """Return the value of an option, and a note if it is a default of the original."""
        given = self._given.get(key)
        if given is None:
            return default, f"default of {self._name}"
        return _number_of(given, least=least, most=most), ""

    def _boolean(self, key: str, default: bool) -> bool:
        given = self._given.get(key)
        return default if given is None else self._boolean_of(given)

    def _boolean_of(self, given: Given) -> bool:
        value = given.text.lower()
        if value not in ("true", "false"):
            raise given.error(f"{given.text!r} is neither true nor false")
        return value == "true"

    def _warn(self, text: str) -> None:
        """Note that the new file does something otherwise."""
        self._toml.comment(text)
        self._warnings.append(text)

    # ------------------------------------------------------------ tables

    def _kafka(self) -> None:
        toml = self._toml
        toml.table("[kafka]")
        brokers = self._sections.get("initialBrokers")
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
                port = _number_of(given, least=1, most=65535)
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
        given_id = self._given.get("kafkaConfig/clientId")
        default_id = "dory" if self._dory else "bruce"
        client_id = "" if given_id is None else given_id.text
        note = "" if client_id else f"default of {self._name}"
        toml.set("client_id", client_id or default_id, note)
        minutes, note = self._number("msgDelivery/metadataRefreshInterval", 15, least=1)
        toml.set("metadata_max_age_ms", minutes * 60_000, note or "metadataRefreshInterval")
        seconds, note = self._number("msgDelivery/kafkaSocketTimeout", 60, most=INT32_MAX // 1000)
        timeout = seconds * 1000 if seconds else INT32_MAX
        toml.set("request_timeout_ms", timeout, note or "kafkaSocketTimeout")
        acks = self._flags.get("required_acks")
        if acks is not None:
            if acks not in ("-1", "0", "1"):
                raise _flag_error("required_acks")("the brokers know the values -1, 0 and 1")
            toml.set("acks", int(acks), "required_acks")
        if not self._boolean("msgDelivery/compareMetadataOnRefresh", True):
            toml.comment(
                "compareMetadataOnRefresh = false has no counterpart: metadata that has not "
                "changed never interrupts delivery."
            )

    def _inputs(self) -> None:
        toml = self._toml
        datagram, stream, port = self._sources()
        size, size_note = self._number(
            "inputConfig/maxDatagramMsgSize", 64 * KIB, least=1, most=MOST_DATAGRAM
        )
        large = self._boolean("inputConfig/allowLargeUnixDatagrams", False)
        stream_size, stream_note = self._number(
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
            toml.set("partial_message_ms", 0)
            toml.set("max_connections", 1024, f"{self._name} has no limit")
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
            path = self._flags.get("receive_socket_name")
            if path is None:
                return None, None, None
            if not path.startswith("/"):
                raise _flag_error("receive_socket_name")(f"the path {path!r} is not absolute")
            mode = self._flags.get("receive_socket_mode")
            error = _flag_error("receive_socket_mode")
            return (path, None if mode is None else _c_mode(Given(mode, error))), None, None
        element = self._sections.get("inputSources")
        inside = {} if element is None else element.sections(("unixDatagram", "unixStream", "tcp"))
        files: list[tuple[str, str | None] | None] = []
        for name in ("unixDatagram", "unixStream"):
            path, mode = self._file_of(inside[name]) if name in inside else (None, None)
            files.append(None if path is None else (path, mode))
        port = None
        if "tcp" in inside:
            tcp = inside["tcp"]
            ports = tcp.sections(("port",))
            if "port" not in ports:
                raise tcp.error("the element <port> is missing")
            given = Given(ports["port"].leaf().text("value"), ports["port"].error)
            number = _number_of(given, least=1, most=65535)
            if self._boolean_of(Given(tcp.text("enable"), tcp.error)):
                port = number
        return files[0], files[1], port

    def _http(self) -> None:
        toml = self._toml
        toml.table("[http]")
        port, note = self._number("httpInterface/port", 9090, least=1, most=65535)
        toml.set("port", port, note)
        if self._boolean("httpInterface/loopbackOnly", False):
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
        size, note = self._number("inputConfig/maxBuffer", 128 * MIB, most=2**40)
        if not self._dory and note:
            note = "msg_buffer_max was not given; default of Dory"
        if size < LEAST_POOL:
            toml.comment(f"maxBuffer is {size} bytes, and the smallest pool has {LEAST_POOL}.")
            size = LEAST_POOL
        toml.set("max_bytes", _size(size), note or "maxBuffer")
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
            value, note = self._number(f"msgDelivery/{key}", default)
            if value > most:
                note = f"{key} was {value}"
            toml.set(name, min(value, most), note or key)
        timeout, note = self._number("kafkaConfig/replicationTimeout", 10_000)
        toml.set("replication_timeout_ms", timeout, note or "replicationTimeout")
        toml.set("autocreate", self._boolean("msgDelivery/topicAutocreate", False))
        toml.set("autocreate_with", "metadata", f"as {self._name}")
        toml.set("autocreate_timeout_ms", AUTOCREATE_MS, f"{self._name} waits 3, 6 and 12 s")

    # ------------------------------------------------------------ topics

    def _topics(self) -> None:
        toml = self._toml
        limits = _Batching(self._sections.get("batching"))
        if limits.data_limit is not None:
            toml.set(
                "produce_request_data_limit", _size(limits.data_limit), "produceRequestDataLimit"
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
        compression = _Compression(self._sections.get("compression"))
        toml.table("[compression]")
        for text in compression.notes:
            toml.comment(text)
        _write(toml, compression.default)
        toml.comment(
            f"min_bytes: {self._name} counts {OVERHEAD} bytes of overhead for each message; here, "
            "the size of the batch is compared."
        )
        rates = _Rates(self._sections.get("topicRateLimiting"))
        if rates.default is not None:
            toml.table("[rate_limit]")
            _write(toml, rates.default)
        self._own_topics(limits, compression, rates)

    def _own_topics(self, limits: _Batching, compression: _Compression, rates: _Rates) -> None:
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
                _write(toml, limits.topics[topic])
            if topic in compression.topics:
                toml.table(f"[topics.{name}.compression]")
                _write(toml, compression.topics[topic])

    # ------------------------------------------------------------ reports

    def _discards(self) -> None:
        toml = self._toml
        toml.table("[discards]")
        seconds, note = self._number(
            "httpInterface/discardReportInterval", 600, least=1, most=7 * 24 * 3600
        )
        toml.set("report_interval_s", seconds, note or "discardReportInterval")
        prefix, note = self._number("httpInterface/badMsgPrefixSize", 256)
        toml.set("sample_bytes", min(prefix, MIB), note or "badMsgPrefixSize")
        toml.set("log_lines", self._boolean("logging/logDiscards", True), "logDiscards")
        if not self._enabled.get("discardLogging"):
            toml.comment("no discard log, as in the original")
            return
        path = self._given["discardLogging/path"]
        if not path.text.startswith("/"):
            raise path.error(f"the path {path.text!r} is not absolute")
        size, size_note = self._number("discardLogging/maxFileSize", MIB, least=1, most=2**40)
        archive, archive_note = self._number(
            "discardLogging/maxArchiveSize", 32 * MIB if self._dory else 8 * MIB, most=2**40
        )
        key = "discardLogging/maxMsgPrefixSize"
        if key not in self._given and "discardLogging/badMsgPrefixSize" in self._given:
            key = "discardLogging/badMsgPrefixSize"
        prefix, prefix_note = self._number(key, INT32_MAX if self._dory else 256)
        toml.set("log_path", path.text)
        least = 2 * largest_log_line(0)
        if size < least:
            toml.comment(f"maxFileSize was {size}: two lines may need {least} bytes.")
            size = -(-least // KIB) * KIB
        toml.set("log_max_file_bytes", _size(size), size_note or "maxFileSize")
        if archive < size:
            toml.comment(f"maxArchiveSize was {archive}: it is at least the size of the file.")
        toml.set("log_max_archive_bytes", _size(max(archive, size)), archive_note)
        # Two lines must fit into a file.
        most = max(0, 3 * ((size - least) // 16 - 1))
        if prefix > most:
            toml.comment("The limit is the longest key or value of which two lines fit a file.")
        toml.set("log_max_prefix_bytes", min(prefix, most, 2**30), prefix_note)

    def _debug(self) -> None:
        toml = self._toml
        if not self._enabled.get("msgDebug"):
            where = "" if self._dory else " Bruce has them in /home/bruce/debug by default."
            toml.lines.append("")
            toml.comment(f"msgDebug: no files for debugging; add [debug] for them.{where}")
            return
        toml.table("[debug]")
        path = self._given["msgDebug/path"]
        if not path.text.startswith("/"):
            raise path.error(f"the path {path.text!r} is not absolute")
        toml.set("directory", path.text)
        seconds, note = self._number("msgDebug/timeLimit", 3600, least=1)
        toml.set("time_limit_s", seconds, note or "timeLimit")
        size, note = self._number(
            "msgDebug/byteLimit", 2 * MIB if self._dory else 2048 * MIB, most=2**40
        )
        toml.set("max_bytes", _size(size), note or "byteLimit")

    def _logging(self) -> None:
        toml = self._toml
        toml.lines.append("")
        toml.comment(
            "logging (level, stdoutStderr, syslog, file): the gateway logs to standard error, "
            "which systemd's journal keeps; `aiokq --verbose gateway` logs more."
        )
        level = self._given.get("logging/level")
        if level is not None:
            toml.comment(f"level was {_printable(level.text)}")
        if self._log_file is not None:
            toml.comment(f"file was {_printable(self._log_file)}")
        for flag, text in (
            ("daemon", "--daemon: run the gateway under systemd, or with nohup and &."),
            ("protocol_version", "--protocol_version: versions are negotiated with each broker."),
            ("omit_timestamp", "--omit_timestamp concerns the old input format only."),
            ("use_old_output_format", "--use_old_output_format: record batches v2 are written."),
            ("config_path", "--config_path is the file that was imported."),
        ):
            if flag in self._flags:
                toml.comment(text)


class _Batching:
    """What `<batching>` says.

    Attributes:
        default: options of [batching].
        topics: options of [topics.NAME.batching].
    """

    def __init__(self, section: Element | None) -> None:
        self.data_limit: int | None = None
        self.message_max_bytes: int | None = None
        self.combined: Limits | None = None
        self.default: Table = {"mode": "off"}
        self.topics: dict[str, Table] = {}
        self._named: dict[str, Limits] = {}
        if section is None:
            return
        inside = section.sections(
            (
                "namedConfigs",
                "produceRequestDataLimit",
                "messageMaxBytes",
                "combinedTopics",
                "defaultTopic",
                "topicConfigs",
            )
        )
        for config in inside["namedConfigs"].children if "namedConfigs" in inside else ():
            if config.name != "config":
                raise config.error("<namedConfigs> contains <config> only")
            _name_once(config, self._named)
            self._named[config.text("name")] = _limits(config)
        for name in ("produceRequestDataLimit", "messageMaxBytes"):
            if name in inside:
                element = inside[name].leaf()
                given = Given(element.text("value"), element.error, suffixes=True)
                value = _number_of(given, most=INT32_MAX)
                if name == "messageMaxBytes":
                    self.message_max_bytes = value
                else:
                    self.data_limit = value
        if "combinedTopics" in inside:
            element = inside["combinedTopics"].leaf()
            enabled = element.text("enable").lower()
            if enabled not in ("true", "false"):
                raise element.error(f"{enabled!r} is neither true nor false")
            if enabled == "true":
                self.combined = _of_name(element, self._named)
        if "defaultTopic" in inside:
            self.default = self._action(inside["defaultTopic"].leaf())
        # A topic inherits the limits of [batching] that it does not set itself.
        complete = self.default["mode"] == "per_topic"
        for topic in inside["topicConfigs"].items("topic") if "topicConfigs" in inside else ():
            _name_once(topic, self.topics)
            self.topics[topic.text("name")] = self._action(topic, complete=complete)

    def _action(self, element: Element, *, complete: bool = False) -> Table:
        action = element.text("action")
        if action == "disable":
            return {"mode": "off"}
        if action == "combinedTopics":
            if element.text("config", ""):
                raise element.error("combinedTopics has no `config` here")
            if self.combined is None:
                raise element.error("<combinedTopics> is not enabled")
            return {"mode": "combined"}
        if action != "perTopic":
            raise element.error(f"{action!r} is no action: perTopic, combinedTopics, disable")
        return {"mode": "per_topic", **_of_name(element, self._named).table(complete=complete)}


class _Compression:
    """What `<compression>` says: options of [compression], and of [topics.NAME.compression]."""

    def __init__(self, section: Element | None) -> None:
        self.default: Table = {"type": "none"}
        self.topics: dict[str, Table] = {}
        self.notes: list[str] = []
        if section is None:
            return
        inside = section.sections(
            ("namedConfigs", "sizeThresholdPercent", "defaultTopic", "topicConfigs")
        )
        percent = 100
        if "sizeThresholdPercent" in inside:
            element = inside["sizeThresholdPercent"].leaf()
            percent = _number_of(Given(element.text("value"), element.error), most=100)
        named: dict[str, Table] = {}
        for config in inside["namedConfigs"].items("config") if "namedConfigs" in inside else ():
            _name_once(config, named)
            named[config.text("name")] = self._named_config(config, percent)
        if "defaultTopic" in inside:
            self.default = _of_name(inside["defaultTopic"].leaf(), named)
        for topic in inside["topicConfigs"].items("topic") if "topicConfigs" in inside else ():
            _name_once(topic, self.topics)
            self.topics[topic.text("name")] = _of_name(topic, named)

    def _named_config(self, config: Element, percent: int) -> Table:
        kind = config.text("type")
        if kind not in ("none", "snappy", "gzip", "lz4"):
            raise config.error(f"{kind!r} is no type: none, snappy, gzip, lz4")
        if kind == "none":
            return {"type": "none"}
        given = Given(config.text("minSize"), config.error, suffixes=True)
        table: Table = {
            "type": kind,
            "min_bytes": _number_of(given),
            "max_ratio": percent / 100,
        }
        level = config.text("level", "")
        if not level:
            return table
        if kind != "gzip":
            self.notes.append(f"`level` of a {kind} configuration is ignored, as before.")
            return table
        if not re.fullmatch("-1|[0-9]", level):
            raise config.error(f"{level!r} is no level of gzip: -1 to 9")
        if level == "0":
            self.notes.append("gzip of level 0 does not compress: the type is none here.")
            return {"type": "none"}
        if level != "-1":  # the default of zlib, and ours
            table["level"] = int(level)
        return table


class _Rates:
    """What `<topicRateLimiting>` says: a limit in all, and by topic; None for no limit."""

    def __init__(self, section: Element | None) -> None:
        self.default: dict[str, Value] | None = None
        self.topics: dict[str, dict[str, Value] | None] = {}
        if section is None:
            return
        inside = section.sections(("namedConfigs", "defaultTopic", "topicConfigs"))
        named: dict[str, dict[str, Value] | None] = {}
        for config in inside["namedConfigs"].items("config") if "namedConfigs" in inside else ():
            _name_once(config, named)
            count = config.text("maxCount")
            if count == "unlimited":
                named[config.text("name")] = None
                continue
            named[config.text("name")] = {
                "interval_ms": _number_of(Given(config.text("interval"), config.error), least=1),
                "max_messages": _number_of(Given(count, config.error, suffixes=True)),
            }
        if "defaultTopic" not in inside:
            raise section.error("the element <defaultTopic> is missing")
        self.default = _of_name(inside["defaultTopic"].leaf(), named)
        for topic in inside["topicConfigs"].items("topic") if "topicConfigs" in inside else ():
            _name_once(topic, self.topics)
            self.topics[topic.text("name")] = _of_name(topic, named)


def _limits(config: Element) -> Limits:
    inside = config.sections(("time", "messages", "bytes"))
    values: list[int | None] = []
    for name, suffixes in (("time", False), ("messages", True), ("bytes", True)):
        if name not in inside:
            values.append(None)
            continue
        element = inside[name].leaf()
        text = element.text("value")
        given = Given(text, element.error, suffixes=suffixes)
        least = 0 if name == "time" else 1
        values.append(None if text == "disable" else _number_of(given, least=least))
    if values == [None, None, None]:
        raise config.error("one of <time>, <messages> and <bytes> must have a limit")
    return Limits(*values)


def _of_name(element: Element, named: Mapping[str, T]) -> T:
    name = element.text("config", "")
    if not name:
        raise element.error("the attribute `config` is missing")
    if name not in named:
        raise element.error(f"there is no <config> with the name {name!r}")
    return named[name]


def _name_once(element: Element, known: Mapping[str, object]) -> None:
    name = element.text("name")
    if not name:
        raise element.error("the attribute `name` is empty")
    if name in known:
        raise element.error(f"the name {name!r} occurs twice")


def _number_of(given: Given, *, least: int = 0, most: int = INT32_MAX) -> int:
    found = re.fullmatch("([0-9]{1,18})([kKmM]?)", given.text.strip())
    if found is None or (found[2] and not given.suffixes):
        units = " with k or m for 1024 or 1048576" if given.suffixes else ""
        raise given.error(f"{given.text!r} is no whole number{units}")
    factor = {"": 1, "k": KIB, "m": MIB}[found[2].lower()]
    value = int(found[1]) * factor * given.unit
    if not least <= value <= most:
        raise given.error(f"{given.text!r} is not between {least} and {most}")
    return value


def _mode(given: Given) -> str:
    """Return the mode of a socket file in Dory's file: octal with a leading 0, or binary (0b)."""
    text = given.text
    if re.fullmatch("0[0-7]{1,3}", text):
        return f"{int(text, 8):04o}"
    if re.fullmatch("0[bB][01]{1,9}", text):
        return f"{int(text[2:], 2):04o}"
    raise given.error(f"{text!r} is no mode: octal digits with a leading 0, such as 0222")


def _c_mode(given: Given) -> str:
    """Return a mode as Bruce's flag has it: octal with a leading 0, hexadecimal, or decimal."""
    text = given.text.strip()
    if re.fullmatch("0[0-7]*", text):
        value = int(text, 8)
    elif re.fullmatch("0[xX][0-9a-fA-F]{1,8}", text):
        value = int(text, 16)
    elif re.fullmatch("[0-9]{1,9}", text):
        value = int(text)
    else:
        raise given.error(f"{text!r} is no mode, such as 0222")
    if value > 0o777:
        raise given.error(f"{text!r} is the octal mode {value:o}: give octal digits after a 0")
    return f"{value:04o}"


def _flag_error(flag: str) -> Callable[[str], ConfigError]:
    return lambda text: ConfigError(f"--{flag}: {text}")


def _size(value: int) -> Value:
    """Return a number of bytes as in a file: with a unit if it is whole."""
    if value and value % MIB == 0:
        return f"{value // MIB} MiB"
    if value and value % KIB == 0:
        return f"{value // KIB} KiB"
    return value


def _write(toml: _Toml, table: Mapping[str, Value | Mapping[str, Value]]) -> None:
    for name, value in table.items():
        toml.set(name, value)


def _toml(value: Value | Mapping[str, Value]) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        # A JSON text is a TOML text, but for DEL, which TOML wants escaped.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{name} = {_toml(one)}" for name, one in value.items()) + " }"
    return repr(value)


def _printable(text: str) -> str:
    return json.dumps(text)
