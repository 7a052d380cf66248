"""The options of Bruce and Dory, and the syntax of their values.

Tests: tests/unit/gateway/test_import_xml.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from aiokq.errors import ConfigError

if TYPE_CHECKING:
    from aiokq.gateway.xml_document import Element

__all__ = [
    "FLAGS",
    "Given",
    "INT32_MAX",
    "INVERTED",
    "KIB",
    "MIB",
    "OPTIONS",
    "SWITCHED",
    "c_mode",
    "flag_error",
    "mode_of",
    "name_once",
    "number_of",
    "of_name",
]

INT32_MAX: Final = 2**31 - 1


KIB: Final = 1024


MIB: Final = 1024 * 1024


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
"""For each section of Dory's file: the elements with one value, and the attribute that has it."""


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


class Given(NamedTuple):
    """The text of an option in the file or on the command line.

    Attributes:
        error: returns an error with the place of the option.
        unit: bytes per unit of the value.
        suffixes: whether k and m may follow a number.
    """

    text: str
    error: Callable[[str], ConfigError]
    unit: int = 1
    suffixes: bool = False


def of_name(element: Element, named: Mapping[str, T]) -> T:
    name = element.text("config", "")
    if not name:
        raise element.error("the attribute `config` is missing")
    if name not in named:
        raise element.error(f"there is no <config> with the name {name!r}")
    return named[name]


def name_once(element: Element, known: Mapping[str, object]) -> None:
    name = element.text("name")
    if not name:
        raise element.error("the attribute `name` is empty")
    if name in known:
        raise element.error(f"the name {name!r} occurs twice")


def number_of(given: Given, *, least: int = 0, most: int = INT32_MAX) -> int:
    found = re.fullmatch("([0-9]{1,18})([kKmM]?)", given.text.strip())
    if found is None or (found[2] and not given.suffixes):
        units = " with k or m for 1024 or 1048576" if given.suffixes else ""
        raise given.error(f"{given.text!r} is no whole number{units}")
    factor = {"": 1, "k": KIB, "m": MIB}[found[2].lower()]
    value = int(found[1]) * factor * given.unit
    if not least <= value <= most:
        raise given.error(f"{given.text!r} is not between {least} and {most}")
    return value


def mode_of(given: Given) -> str:
    """Return the mode of a socket file in Dory's file: octal with a leading 0, or binary (0b)."""
    text = given.text
    if re.fullmatch("0[0-7]{1,3}", text):
        return f"{int(text, 8):04o}"
    if re.fullmatch("0[bB][01]{1,9}", text):
        return f"{int(text[2:], 2):04o}"
    raise given.error(f"{text!r} is no mode: octal digits with a leading 0, such as 0222")


def c_mode(given: Given) -> str:
    """Return the file mode that a flag of Bruce gives, as octal digits.

    The flag has the mode in octal with a leading 0, in hexadecimal with 0x, or in decimal.
    """
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


def flag_error(flag: str) -> Callable[[str], ConfigError]:
    return lambda text: ConfigError(f"--{flag}: {text}")
