"""Sockets of inputs: binding, permissions, sockets passed in by systemd, removal of socket files.

Reading from the sockets is the work of `aiokq.fastpath.gateway`. Tests:
tests/unit/gateway/test_inputs.py, tests/fault/test_gateway_process.py.
"""

from __future__ import annotations

import array
import asyncio
import contextlib
import errno
import fcntl
import grp
import ipaddress
import os
import pwd
import socket
import stat
import struct
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from aiokq.core import forks
from aiokq.errors import ConfigError
from aiokq.gateway.settings_tables import LARGEST_ID, InputSettings

if TYPE_CHECKING:
    from aiokq.fastpath.gateway import Intake, IntakeCounts

__all__ = [
    "InputSocket",
    "InputTotals",
    "OpenInput",
    "adopt_passed",
    "check_datagram_limit",
    "group_id",
    "open_input",
    "open_input_soon",
    "user_id",
    "user_ids",
]

LISTEN_FDS_START: Final = 3
"""The first descriptor that systemd passes."""

BACKLOG: Final = 512
SUMS: Final = (
    "received",
    "received_bytes",
    "unclean_disconnects",
    "refused",
    "idle_closed",
    "partial_closed",
    "displaced",
    "blocked_ms",
)
"""The fields of `IntakeCounts` that `/metrics` has as counters."""

ATTACH_FILTER: Final = 26
"""Linux's SO_ATTACH_FILTER, which the module `socket` does not have."""

REFUSES_SYN: Final = struct.pack(
    "=" + 4 * "HBBI",
    *(0x30, 0, 0, 13),  # load the byte of a TCP segment that has its flags
    *(0x45, 0, 1, 2),  # if SYN is not among them, skip one instruction
    *(0x06, 0, 0, 0),  # drop the segment
    *(0x06, 0, 0, 2**32 - 1),  # pass the segment
)
"""A program of the kernel's classic packet filter (BPF) that drops requests for connections."""
LONGEST_ID: Final = 10
LOCK_SECONDS: Final = 1.0
"""Longest time for which the opening of a UNIX socket waits while another gateway opens one."""
LOCK_PAUSE: Final = 0.01
"""Seconds between two attempts to lock the directory of a socket file."""
KINDS: Final[Mapping[str, tuple[socket.AddressFamily, socket.SocketKind]]] = {
    "unix_datagram": (socket.AF_UNIX, socket.SOCK_DGRAM),
    "unix_stream": (socket.AF_UNIX, socket.SOCK_STREAM),
    "tcp": (socket.AF_INET, socket.SOCK_STREAM),
}


class InputSocket:
    """The socket of an input.

    Args:
        passed: whether systemd owns the socket, and with it the file.

    Attributes:
        settings: the options of the input.
        socket: a bound socket; a stream socket also listens.
        earlier: the counts of the readers of this socket that a reload has replaced.
    """

    def __init__(self, settings: InputSettings, opened: socket.socket, *, passed: bool) -> None:
        self.settings = settings
        self.socket = opened
        # A forked child must not hold the socket: programs could connect to it after its end here.
        self._inherited = forks.Descriptor(opened.fileno())
        self.earlier: dict[str, int] = {}
        self._passed = passed
        self._address = opened.getsockname() if settings.type == "tcp" else ("", 0)
        self._file: tuple[int, int] | None = None
        if not passed and settings.path is not None:
            found = os.stat(settings.path)
            self._file = (found.st_dev, found.st_ino)

    @property
    def where(self) -> str:
        """The path, or HOST:PORT with the actual port."""
        if self.settings.type != "tcp":
            return self.settings.where
        host, port = self._address[:2]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    @property
    def port(self) -> int | None:
        """The actual port of a TCP input; None for UNIX sockets."""
        if self.settings.type != "tcp":
            return None
        port: int = self._address[1]
        return port

    def change(self, settings: InputSettings) -> None:
        """Replace the options except the address, and set the new permissions of the socket file.

        A file that systemd owns is not changed.

        Raises:
            ConfigError: there is no such user or group, or the system refuses the permissions.
        """
        path = settings.path
        if path is not None and self._file is not None:
            try:
                _remove_permissions(path, self.settings, settings)
                _set_permissions(path, settings)
            except OSError as error:
                raise _refused(settings, error) from error
        self.settings = settings

    def remove_file(self) -> None:
        """Remove the socket file, unless systemd owns it or another process has replaced it."""
        path, self._file, mine = self.settings.path, None, self._file
        if path is None or mine is None:
            return
        with contextlib.suppress(OSError):
            found = os.stat(path)
            if (found.st_dev, found.st_ino) == mine:
                os.unlink(path)

    def refuse_more(self) -> None:
        """Let further datagrams and connections fail; those in the queue can still be read.

        A socket that systemd owns is not changed, because the next gateway reads its queue.

        Raises:
            OSError: the system does not allow it, so what comes late may be lost.
        """
        if self._passed:
            return
        if self.settings.type == "unix_datagram":
            self.socket.shutdown(socket.SHUT_RD)
        elif self.settings.type == "tcp":
            _refuse_connections(self.socket)

    def release(self) -> None:
        """Close the socket after its last read, unless systemd owns it. Any thread."""
        if not self._passed:
            self.socket.close()

    def close(self) -> None:
        """Close the socket and remove its file. May be called twice."""
        self.remove_file()
        self.socket.close()


class OpenInput(NamedTuple):
    """An input that is being read."""

    socket: InputSocket
    intake: Intake

    @property
    def type(self) -> str:
        return self.socket.settings.type

    @property
    def where(self) -> str:
        """The path of the input, or HOST:PORT."""
        return self.socket.where

    def counts(self) -> IntakeCounts:
        return self.intake.counts()

    def sums(self) -> IntakeCounts:
        """Return the counts, with those of readers that a reload has replaced."""
        counts, earlier = self.counts(), self.socket.earlier
        return counts._replace(
            **{name: getattr(counts, name) + count for name, count in earlier.items()}
        )

    def replaced(self, counts: IntakeCounts) -> None:
        """Keep the counts of a reader that another one replaces."""
        earlier = self.socket.earlier
        for name in SUMS:
            earlier[name] = earlier.get(name, 0) + getattr(counts, name)


class InputTotals(NamedTuple):
    """Counts of all inputs of one transport since the gateway started."""

    unclean_disconnects: int = 0
    refused: int = 0

    def plus(self, counts: IntakeCounts, less: IntakeCounts | None = None) -> InputTotals:
        """Return these totals plus `counts`, minus `less` if it is given."""
        unclean, refused = counts.unclean_disconnects, counts.refused
        if less is not None:
            unclean, refused = unclean - less.unclean_disconnects, refused - less.refused
        return InputTotals(self.unclean_disconnects + unclean, self.refused + refused)


def open_input(settings: InputSettings) -> InputSocket:
    """Open the socket of an input.

    The file of a UNIX socket on which nobody listens is replaced.

    Raises:
        ConfigError: another process listens at the address, the path is not a socket, there is no
            such user or group, or the system refuses the address or the permissions.
    """
    with _lock_of(settings.path) as locked:
        end = time.monotonic() + LOCK_SECONDS
        while not locked() and time.monotonic() < end:
            time.sleep(LOCK_PAUSE)
        return _opened(settings)


async def open_input_soon(settings: InputSettings) -> InputSocket:
    """Open the socket of an input as `open_input` does, without blocking the loop."""
    with _lock_of(settings.path) as locked:
        end = time.monotonic() + LOCK_SECONDS
        while not locked() and time.monotonic() < end:  # noqa: ASYNC110  no event tells of unlocks
            await asyncio.sleep(LOCK_PAUSE)
        return _opened(settings)


def _opened(settings: InputSettings) -> InputSocket:
    try:
        opened = _bound_tcp(settings) if settings.type == "tcp" else _bound_unix(settings)
    except OSError as error:
        raise _refused(settings, error) from error
    try:
        result = InputSocket(settings, opened, passed=False)
        if opened.type == socket.SOCK_STREAM:
            opened.listen(BACKLOG)
    except OSError as error:
        opened.close()
        raise _refused(settings, error) from error
    return result


def adopt_passed(
    inputs: Sequence[InputSettings], environment: MutableMapping[str, str] | None = None
) -> dict[int, InputSocket]:
    """Return the sockets that systemd passed in (`LISTEN_FDS`), by the index of their input.

    A socket belongs to the input with its name (`FileDescriptorName`), or else to the input with
    its type and address. The environment variables are removed, so that child processes do not use
    them.

    Raises:
        ConfigError: no input belongs to a socket, a socket has another type than its input, other
            machines can reach it, a descriptor is not a socket, or `LISTEN_FDS` is not a number.
    """
    variables = os.environ if environment is None else environment
    mine = variables.get("LISTEN_PID") == str(os.getpid())
    count = _passed_count(variables) if mine else 0
    names = variables.get("LISTEN_FDNAMES", "").split(":")
    if mine:
        for name in ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"):
            variables.pop(name, None)
    adopted: dict[int, InputSocket] = {}
    passed: list[socket.socket] = []
    try:
        for n in range(count):
            passed.append(_passed_socket(LISTEN_FDS_START + n))
        for n, opened in enumerate(passed):
            opened.setblocking(False)
            os.set_inheritable(opened.fileno(), False)
            name = names[n] if n < len(names) else ""
            index = _index_of(inputs, opened, name, adopted)
            adopted[index] = InputSocket(inputs[index], opened, passed=True)
    except BaseException:
        for opened in passed:
            opened.close()
        raise
    return adopted


def _passed_socket(descriptor: int) -> socket.socket:
    try:
        return socket.socket(fileno=descriptor)
    except OSError as error:
        raise ConfigError(
            f"descriptor {descriptor}, which LISTEN_FDS says was passed in, is not a socket: "
            f"{error.strerror}"
        ) from error


def _passed_count(variables: Mapping[str, str]) -> int:
    text = variables.get("LISTEN_FDS") or "0"
    if not (text.isascii() and text.isdecimal()):
        raise ConfigError(f"LISTEN_FDS is {text!r}, and must be the number of passed sockets")
    return int(text)


def check_datagram_limit(settings: InputSettings) -> None:
    """Raise ConfigError if programs cannot send datagrams of the input's largest size.

    Also if they would have to raise their SO_SNDBUF and `allow_large_datagrams` is not set.
    """
    try:
        _check_carried(settings)
    except OSError as error:  # such as too many open files
        raise _refused(settings, error) from error


def user_ids(users: Iterable[str | int] | None) -> list[int] | None:
    """Return the user ids of users; None means all users.

    Raises:
        ConfigError: there is no such user.
    """
    return None if users is None else [user_id(user) for user in users]


def user_id(user: str | int) -> int:
    """Return the uid of a user; raise ConfigError if there is no user of this name."""
    if isinstance(user, int) or user.isdecimal():
        return _number(user, "user")
    try:
        return pwd.getpwnam(user).pw_uid
    except KeyError:
        raise ConfigError(f"there is no user {user!r}") from None


def group_id(group: str | int) -> int:
    """Return the gid of a Unix group; raise ConfigError if there is no group of this name."""
    if isinstance(group, int) or group.isdecimal():
        return _number(group, "group")
    try:
        return grp.getgrnam(group).gr_gid
    except KeyError:
        raise ConfigError(f"there is no group {group!r}") from None


def _bound_tcp(settings: InputSettings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    opened = socket.socket(family, socket.SOCK_STREAM)
    try:
        opened.setblocking(False)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        opened.bind((settings.host, settings.port or 0))
    except BaseException:
        opened.close()
        raise
    return opened


def _refuse_connections(listening: socket.socket) -> None:
    """Let a TCP socket establish no more connections; those in its queue can still be accepted.

    Between the last `accept` and the close of the socket, the system would establish connections
    and take their data, which nobody reads. The system has no call that prevents only this, but the
    socket can have a packet filter. The filter drops the first segment of each new connection, and
    no other segment, so connections that had begun before are still established. The programs whose
    segments are dropped get ECONNREFUSED when the socket is closed.

    Raises:
        OSError: the system does not allow the filter.
    """
    code = array.array("B", REFUSES_SYN)
    address, size = code.buffer_info()
    listening.setsockopt(socket.SOL_SOCKET, ATTACH_FILTER, struct.pack("HP", size // 8, address))


def _bound_unix(settings: InputSettings) -> socket.socket:
    path = settings.path
    assert path is not None
    _remove_stale(path, settings)
    opened = socket.socket(*KINDS[settings.type])
    try:
        opened.setblocking(False)
        if settings.mode is not None:
            # On Linux, bind() creates the file with the mode of the socket, so the file never has
            # wider permissions than `settings.mode`.
            os.fchmod(opened.fileno(), settings.mode)
        if settings.type == "unix_datagram":
            # Set before bind, so that datagrams sent before the input is read have their sender's
            # credentials.
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        opened.bind(path)
        _set_permissions(path, settings)
    except BaseException:
        opened.close()
        raise
    return opened


@contextlib.contextmanager
def _lock_of(path: str | None) -> Iterator[Callable[[], bool]]:
    """Yield a function that tries to lock the directory of a socket file.

    The function returns False if another process has locked the directory.

    While a gateway opens a socket, no other may open one in the same directory. Otherwise, a
    gateway could mistake the file of another gateway, which does not listen yet, for a file on
    which nobody listens. The caller waits for the lock for LOCK_SECONDS at most, so that a program
    that holds the lock does not prevent the start.
    """
    directory = -1
    if path is not None:
        with contextlib.suppress(OSError):  # there is no such directory, or it must not be read
            directory = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield lambda: directory < 0 or _locked(directory)
    finally:
        if directory >= 0:
            os.close(directory)


def _locked(directory: int) -> bool:
    """Lock a directory; return False if another process has locked it."""
    try:
        fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # the file system has no locks
        pass
    return True


def _set_permissions(path: str, settings: InputSettings) -> None:
    if settings.owner is not None or settings.group is not None:
        owner = -1 if settings.owner is None else user_id(settings.owner)
        os.chown(path, owner, -1 if settings.group is None else group_id(settings.group))
    if settings.mode is not None:
        os.chmod(path, settings.mode)  # the umask has removed bits


def _remove_permissions(path: str, before: InputSettings, after: InputSettings) -> None:
    """Give the file the owner, group or mode of a new file if `after` no longer sets it."""
    owner = before.owner is not None and after.owner is None
    group = before.group is not None and after.group is None
    if owner or group:
        os.chown(path, os.geteuid() if owner else -1, os.getegid() if group else -1)
    if before.mode is not None and after.mode is None:
        os.chmod(path, 0o777 & ~_umask())


def _umask() -> int:
    """Return the umask of the process, without changing it for other threads."""
    with open("/proc/self/status", encoding="ascii", errors="replace") as status:
        for line in status:
            if line.startswith("Umask:"):
                return int(line.split()[1], 8)
    raise OSError(errno.ENOSYS, "the system does not tell the umask")


def _remove_stale(path: str, settings: InputSettings) -> None:
    """Remove a socket file on which nobody listens."""
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(found.st_mode):
        raise ConfigError(f"input {path}: there is a file that is not a socket; remove it")
    for kind in (KINDS[settings.type][1], socket.SOCK_DGRAM, socket.SOCK_STREAM):
        with socket.socket(socket.AF_UNIX, kind) as probe:
            probe.setblocking(False)
            try:
                probe.connect(path)
            except ConnectionRefusedError:
                continue
            except FileNotFoundError:
                return
            except OSError as error:
                if error.errno == errno.EPROTOTYPE:
                    continue
                if error.errno != errno.EAGAIN:  # EAGAIN: somebody listens and is busy
                    raise
        raise ConfigError(f"input {path}: another process, perhaps a gateway, listens there")
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def _refused(settings: InputSettings, error: OSError) -> ConfigError:
    if error.errno == errno.EADDRINUSE:
        return ConfigError(f"input {settings.where}: another process listens there")
    return ConfigError(f"input {settings.where}: {error.strerror}")


def _index_of(
    inputs: Sequence[InputSettings],
    opened: socket.socket,
    name: str,
    taken: Mapping[int, InputSocket],
) -> int:
    address = opened.getsockname()
    where = f"{address[0]}:{address[1]}" if isinstance(address, tuple) else os.fsdecode(address)
    kind = _kind(opened)
    free = [index for index in range(len(inputs)) if index not in taken]
    for index in free:
        if name and inputs[index].name == name:
            if inputs[index].type != kind:
                raise ConfigError(
                    f"the socket {name!r} of systemd is of type {kind}, and its input of type "
                    f"{inputs[index].type}"
                )
            if kind == "tcp" and not ipaddress.ip_address(address[0]).is_loopback:
                raise ConfigError(
                    f"the socket {name!r} of systemd is at {where}, which others can reach: its "
                    "ListenStream must name a loopback address"
                )
            return index
    for index in free:
        one = inputs[index]
        if one.name is None and (one.type, one.where) == (kind, where):
            return index
    raise ConfigError(
        f"systemd passes a socket {name!r} of type {kind} at {where}, and no input has this name, "
        "or this type and address"
    )


def _kind(opened: socket.socket) -> str:
    """Return the type of the input for a socket, or a name for a type that no input has."""
    family = {socket.AF_UNIX: "unix", socket.AF_INET: "ip", socket.AF_INET6: "ip"}.get(
        opened.family, "other"
    )
    kind = {socket.SOCK_DGRAM: "datagram", socket.SOCK_STREAM: "stream"}.get(opened.type)
    if kind is None:
        kind = "seqpacket" if opened.type == socket.SOCK_SEQPACKET else "other"
    return {"ip_stream": "tcp", "ip_datagram": "udp"}.get(f"{family}_{kind}", f"{family}_{kind}")


def _check_carried(settings: InputSettings) -> None:
    size = settings.limit
    if _carries(size, raised=False):
        return
    if not _carries(size, raised=True):
        raise ConfigError(
            f"input {settings.where}: this system cannot send datagrams of {size} bytes over UNIX "
            "sockets: lower `max_message_bytes`, or raise the sysctl net.core.wmem_max"
        )
    if not settings.allow_large_datagrams:
        raise ConfigError(
            f"input {settings.where}: a sender of datagrams of {size} bytes has to raise its "
            "SO_SNDBUF: lower `max_message_bytes`, or set `allow_large_datagrams`"
        )


def _carries(size: int, *, raised: bool) -> bool:
    sender, receiver = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with sender, receiver:
        sender.setblocking(False)
        if raised:
            sender.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, size + 4096)
        try:
            return sender.send(bytes(size)) == size
        except OSError as error:
            if error.errno in (errno.EMSGSIZE, errno.EAGAIN, errno.ENOBUFS):
                return False
            raise


def _number(given: str | int, what: str) -> int:
    if len(str(given)) > LONGEST_ID or int(given) > LARGEST_ID:
        raise ConfigError(f"there is no {what} {given!r}")
    return int(given)
