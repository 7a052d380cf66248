"""Checks a configuration file against this system, without opening a socket at an address.

`aiokq gateway check` makes these checks in addition to those of `GatewaySettings`: users, groups,
files and directories. Tests: tests/unit/gateway/test_system_check.py.
"""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from aiokq.errors import ConfigError
from aiokq.gateway.delivery import new_cluster
from aiokq.gateway.inputs import check_datagram_limit, group_id, user_id, user_ids
from aiokq.gateway.settings import GatewaySettings
from aiokq.gateway.settings_errors import table_name
from aiokq.gateway.sizes import Path as OptionPath

if TYPE_CHECKING:
    from aiokq.gateway.settings_tables import HttpSettings, InputSettings

__all__ = ["check_file"]

FILES: Final = ("file", "_location")
"""The ends of the names of client settings that are paths of files."""


class _Problem(NamedTuple):
    """A problem with an option.

    Attributes:
        option: its path; only a table if the problem is that of several options.
        certain: whether no gateway can start. It may start if it is another user's, or if systemd
            creates a directory first.
    """

    option: OptionPath
    text: str
    certain: bool


def check_file(path: str | Path) -> tuple[GatewaySettings, list[str]]:
    """Return the settings of a file, and notes on what may keep a gateway from starting.

    Raises:
        ConfigError: the file is wrong, or no gateway can start with it on this system. The message
            has a line for each problem, with file, line and option.
    """
    settings, place = GatewaySettings.read(path)
    errors: list[str] = []
    notes: list[str] = []
    for option, problem, certain in _problems(settings):
        named = table_name(option[:-1]) + f" `{option[-1]}`:" if option[1:] else table_name(option)
        (errors if certain else notes).append(f"{place.of(option)}{named} {problem}")
    if errors:
        raise ConfigError("\n".join(errors))
    return settings, notes


def _problems(settings: GatewaySettings) -> Iterator[_Problem]:
    for index, one in enumerate(settings.inputs):
        yield from _of_input(("inputs", index), one)
    for table, option, path in settings.created_paths():
        yield from _of_created((*table, option), path)
    yield from _of_client(settings)
    if settings.http is not None:
        yield from _of_http(settings.http)


def _of_input(table: OptionPath, one: InputSettings) -> Iterator[_Problem]:
    checks: dict[str, Callable[[], object]] = {
        "allowed_users": lambda: user_ids(one.allowed_users),
        "owner": lambda: None if one.owner is None else user_id(one.owner),
        "group": lambda: None if one.group is None else group_id(one.group),
    }
    if one.type == "unix_datagram":
        checks["max_message_bytes"] = lambda: check_datagram_limit(one)
    for option, check in checks.items():
        try:
            check()
        except ConfigError as error:
            yield _Problem((*table, option), error.message, True)


def _of_created(option: OptionPath, path: str) -> Iterator[_Problem]:
    """Yield the problem with a path at which the gateway creates a socket, file or directory."""
    table = option[0]
    try:
        mode = (os.lstat if table == "inputs" else os.stat)(path).st_mode
    except FileNotFoundError:
        # The directories of [discards] and [debug] are created.
        if table in ("inputs", "spool"):
            yield from _of_directory(option, os.path.dirname(path))
    except OSError as error:
        yield _refused(option, path, error)
    else:
        if table == "inputs":
            if not stat.S_ISSOCK(mode):
                yield _Problem(option, f"{path} is not a socket; remove it", True)
        elif stat.S_ISDIR(mode) is (table == "discards"):
            what = "a directory" if table == "discards" else "not a directory"
            yield _Problem(option, f"{path} is {what}", True)


def _of_directory(option: OptionPath, path: str) -> Iterator[_Problem]:
    """Yield the problem with a directory that the gateway does not create."""
    if not os.path.isdir(path):
        yield _Problem(option, f"there is no directory {path} yet", False)
    elif not os.access(path, os.W_OK):
        yield _Problem(option, f"this user may not create files in {path}", False)


def _of_file(option: OptionPath, path: str) -> Iterator[_Problem]:
    """Yield the problem with a file that the gateway reads."""
    try:
        # Without O_NONBLOCK, the open of a FIFO would wait for a writer.
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        with open(fd, "rb", buffering=0) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                yield _Problem(option, f"{path} is no regular file", True)
            return
    except FileNotFoundError:
        parent = os.path.dirname(path) or "."
        # systemd creates the directory of credentials when it starts a service.
        yield _Problem(option, f"there is no file {path}", os.path.isdir(parent))
    except OSError as error:
        yield _refused(option, path, error)


def _of_client(settings: GatewaySettings) -> Iterator[_Problem]:
    files = {
        name: value
        for name, value in settings.kafka.items()
        if name.endswith(FILES) and isinstance(value, str)
    }
    problems = [one for name in files for one in _of_file(("kafka", name), files[name])]
    yield from problems
    if not problems:
        try:
            new_cluster(GatewaySettings.of(settings, bootstrap_servers="127.0.0.1:9092"))
        except ConfigError as error:  # such as a file without a certificate
            name, _, reason = error.message.partition(": ")
            if name in files:
                yield _Problem(("kafka", name), reason, True)
            else:
                yield _Problem(("kafka",), error.message, True)


def _of_http(http: HttpSettings) -> Iterator[_Problem]:
    if http.token_file is not None:
        option = ("http", "token_file")
        problems = list(_of_file(option, http.token_file))
        yield from problems
        if not problems:
            from aiokq.gateway.http import read_token

            try:
                read_token(http)
            except ConfigError as error:
                yield _Problem(option, error.message, True)
    try:
        socket.getaddrinfo(http.host or None, http.port, flags=socket.AI_PASSIVE)
    except OSError as error:
        yield _Problem(("http", "host"), f"{http.host}: {error.strerror}", True)


def _refused(option: OptionPath, path: str, error: OSError) -> _Problem:
    """Return a problem for an error of the system; another user may have permission."""
    return _Problem(option, f"{path}: {error.strerror}", not isinstance(error, PermissionError))
