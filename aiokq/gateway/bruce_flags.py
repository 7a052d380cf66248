"""The command-line flags of Bruce, which had most of its options outside of its XML file.

Tests: tests/unit/gateway/test_import_xml.py.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Final

from aiokq.errors import ConfigError

__all__ = ["SWITCHES", "VALUES", "parse_flags"]

SWITCHES: Final = frozenset(
    {
        "allow_large_unix_datagrams",
        "daemon",
        "log_echo",
        "no_log_discard",
        "omit_timestamp",
        "skip_compare_metadata_on_refresh",
        "status_loopback_only",
        "topic_autocreate",
        "use_old_input_format",
        "use_old_output_format",
    }
)
"""Flags without a value."""

VALUES: Final = frozenset(
    {
        "client_id",
        "config_path",
        "debug_dir",
        "discard_log_bad_msg_prefix_size",
        "discard_log_max_archive_size",
        "discard_log_max_file_size",
        "discard_log_path",
        "discard_report_bad_msg_prefix_size",
        "discard_report_interval",
        "dispatcher_restart_max_delay",
        "kafka_socket_timeout",
        "log_level",
        "max_failed_delivery_attempts",
        "max_input_msg_size",
        "metadata_refresh_interval",
        "min_pause_delay",
        "msg_buffer_max",
        "msg_debug_byte_limit",
        "msg_debug_time_limit",
        "pause_rate_limit_initial",
        "pause_rate_limit_max_double",
        "protocol_version",
        "receive_socket_mode",
        "receive_socket_name",
        "replication_timeout",
        "required_acks",
        "shutdown_max_delay",
        "status_port",
    }
)
"""Flags with a value."""


def parse_flags(arguments: Sequence[str]) -> Mapping[str, str]:
    """Return the flags of a command line of Bruce and their values; "" for flags without a value.

    A value follows its flag as the next argument or after `=`.

    Raises:
        ConfigError: a flag is unknown, is given twice, or lacks its value.
    """
    found: dict[str, str] = {}
    rest = list(arguments)
    while rest:
        argument = rest.pop(0)
        flag, equals, value = argument.partition("=")
        name = flag.removeprefix("--").replace("-", "_")
        if not flag.startswith("--") or name not in SWITCHES | VALUES:
            near = difflib.get_close_matches(name, SWITCHES | VALUES, 1)
            hint = f": did you mean --{near[0]}?" if near else ""
            raise ConfigError(f"{argument!r} is no flag of Bruce{hint}")
        if name in found:
            raise ConfigError(f"the flag --{name} is given twice")
        if name in SWITCHES:
            if equals:
                raise ConfigError(f"the flag --{name} has no value")
            value = ""
        elif not equals:
            if not rest:
                raise ConfigError(f"the flag --{name} needs a value")
            value = rest.pop(0)
        found[name] = value
    return found
