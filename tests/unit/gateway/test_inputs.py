"""Sockets passed in by systemd, users, and limits of datagrams."""

from __future__ import annotations

import fcntl
import os
import pwd
import socket
import stat
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from aiokq.errors import ConfigError
from aiokq.fastpath.gateway import Intake, Pool
from aiokq.gateway import inputs
from aiokq.gateway.client import encode
from aiokq.gateway.inputs import adopt_passed, check_datagram_limit, open_input, user_ids
from aiokq.gateway.settings_tables import InputSettings

START = 700
"""The first descriptor that the tests pass."""


@pytest.fixture
def passed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """A datagram and a stream socket at successive descriptors, as systemd passes them."""
    monkeypatch.setattr(inputs, "LISTEN_FDS_START", START)
    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as datagram,
        socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as stream,
    ):
        datagram.bind(str(tmp_path / "d"))
        stream.bind(str(tmp_path / "s"))
        stream.listen()
        os.dup2(datagram.fileno(), START)
        os.dup2(stream.fileno(), START + 1)
        yield {
            "LISTEN_PID": str(os.getpid()),
            "LISTEN_FDS": "2",
            "LISTEN_FDNAMES": "logs:unknown",
            "OTHER": "kept",
        }
    for descriptor in (START, START + 1):
        try:
            os.close(descriptor)
        except OSError:
            pass  # closed with the input


def test_passed_sockets_are_found_by_name_or_by_type_and_address(
    tmp_path: Path, passed: dict[str, str]
):
    """The file of a passed socket stays: it is systemd's."""
    wanted = [
        InputSettings(type="tcp", port=1),
        InputSettings(type="unix_stream", path=str(tmp_path / "s")),
        InputSettings(type="unix_datagram", path="/elsewhere", name="logs"),
    ]
    adopted = adopt_passed(wanted, passed)
    assert sorted(adopted) == [1, 2]
    assert adopted[2].socket.getsockname() == str(tmp_path / "d")
    for one in adopted.values():
        assert not os.get_inheritable(one.socket.fileno())
        one.close()
    assert (tmp_path / "d").exists()
    assert passed == {"OTHER": "kept"}


def test_a_passed_socket_without_an_input_is_an_error(tmp_path: Path, passed: dict[str, str]):
    """Nobody would read the datagrams that the kernel queues in it."""
    wanted = [InputSettings(type="unix_stream", path=str(tmp_path / "s"))]
    with pytest.raises(ConfigError, match="no input has this name, or this type and address"):
        adopt_passed(wanted, passed)


def test_a_passed_socket_of_another_type_is_an_error(passed: dict[str, str]):
    """The name is that of an input, the type is not."""
    wanted = [InputSettings(type="unix_stream", path="/x", name="logs")]
    with pytest.raises(ConfigError, match="is of type unix_datagram, and its input of type"):
        adopt_passed(wanted, passed)


@pytest.mark.parametrize("text", ["two", "-1", "1.5", "²"])
def test_a_number_of_passed_sockets_that_is_none_is_named(text: str):
    """The variable is set by hand, or by another program than systemd."""
    with pytest.raises(ConfigError, match=f"LISTEN_FDS is '{text}', and must be the number"):
        adopt_passed([], {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": text})


def test_a_passed_descriptor_that_is_not_a_socket_is_named(tmp_path: Path, passed: dict[str, str]):
    """The sockets that were passed with it are closed."""
    (tmp_path / "file").touch()
    with open(tmp_path / "file") as file:
        os.dup2(file.fileno(), START + 1)
    with pytest.raises(ConfigError, match=f"descriptor {START + 1}, .* is not a socket"):
        adopt_passed([], passed)
    with pytest.raises(OSError):
        os.fstat(START)


def passed_alone(
    monkeypatch: pytest.MonkeyPatch, sock: socket.socket, wanted: InputSettings
) -> None:
    """Pass one socket with the name `logs`."""
    monkeypatch.setattr(inputs, "LISTEN_FDS_START", START)
    os.dup2(sock.fileno(), START)
    variables = {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": "1", "LISTEN_FDNAMES": "logs"}
    for one in adopt_passed([wanted], variables).values():
        one.close()


def test_a_passed_socket_that_others_can_reach_is_refused(monkeypatch: pytest.MonkeyPatch):
    """An input has no token and no TLS, and so it is for this machine alone."""
    wanted = InputSettings(type="tcp", port=1, name="logs")
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        sock.listen()
        passed_alone(monkeypatch, sock, wanted)
    with socket.socket() as sock:
        sock.bind(("0.0.0.0", 0))
        sock.listen()
        with pytest.raises(ConfigError, match=r"'logs' of systemd is at 0\.0\.0\.0:[0-9]+, which"):
            passed_alone(monkeypatch, sock, wanted)


def test_a_passed_socket_of_packets_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """ListenSequentialPacket keeps the limits of messages, which a stream does not have."""
    wanted = InputSettings(type="unix_stream", path="/x", name="logs")
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
        sock.bind(str(tmp_path / "p"))
        sock.listen()
        with pytest.raises(ConfigError, match="is of type unix_seqpacket, and its input of type"):
            passed_alone(monkeypatch, sock, wanted)


def test_sockets_for_another_process_are_ignored():
    """A child process inherits the variables, not the sockets."""
    environment = {"LISTEN_PID": "1", "LISTEN_FDS": "2"}
    assert adopt_passed([], environment) == {}
    assert environment["LISTEN_FDS"] == "2"


def test_of_two_gateways_that_start_at_once_one_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Regression: the second one removed the file of the first, which did not listen yet."""
    settings = InputSettings(type="unix_stream", path=f"{tmp_path}/s")
    bound = threading.Event()

    def set_permissions(path: str, settings: InputSettings) -> None:
        bound.set()
        time.sleep(0.2)

    monkeypatch.setattr(inputs, "_set_permissions", set_permissions)
    opened = []
    first = threading.Thread(target=lambda: opened.append(open_input(settings)))
    first.start()
    assert bound.wait(20)
    with pytest.raises(ConfigError, match="another process, perhaps a gateway, listens there"):
        open_input(settings)
    first.join()
    opened[0].close()


def test_a_program_that_locks_the_directory_prevents_no_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(inputs, "LOCK_SECONDS", 0.1)
    directory = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(directory, fcntl.LOCK_EX)
    open_input(InputSettings(type="unix_datagram", path=f"{tmp_path}/d")).close()
    os.close(directory)


def test_users_are_numbers_or_names():
    """In `allowed_users` and `owner`."""
    assert user_ids(["root", 7, "12"]) == [0, 7, 12]
    assert user_ids(None) is None
    for name in ("nobody-of-this-name", "4294967295", "9" * 5000):
        with pytest.raises(ConfigError, match=f"there is no user '{name}'"):
            user_ids([name])


def permissions(path: str) -> tuple[int, int, int]:
    """Return mode, owner and group of a file."""
    found = os.stat(path)
    return stat.S_IMODE(found.st_mode), found.st_uid, found.st_gid


@pytest.mark.skipif(os.getuid() != 0, reason="only root gives files away")
@pytest.mark.skipif(sys.platform != "linux", reason="reads the umask from /proc")
def test_a_socket_file_has_mode_owner_and_group_of_its_options_and_of_later_ones(tmp_path: Path):
    """An option that a reload removed stayed in force."""
    path = str(tmp_path / "d")
    bare = InputSettings(type="unix_datagram", path=path)
    opened = open_input(bare)
    own = permissions(path)
    opened.close()
    daemon = pwd.getpwnam("daemon")
    given = InputSettings(
        type="unix_datagram", path=path, mode="0220", owner="daemon", group=str(daemon.pw_gid)
    )
    opened = open_input(given)
    assert permissions(path) == (0o220, daemon.pw_uid, daemon.pw_gid)
    opened.change(bare)
    assert permissions(path) == own
    opened.change(given)
    assert permissions(path) == (0o220, daemon.pw_uid, daemon.pw_gid)
    opened.change(given.model_copy(update={"owner": None}))
    assert permissions(path) == (0o220, os.geteuid(), daemon.pw_gid)
    opened.close()


def test_the_default_limit_of_datagrams_can_be_carried():
    """64 KiB, with the default buffer of a sender."""
    check_datagram_limit(InputSettings(type="unix_datagram", path="/x"))


def test_a_limit_that_needs_a_larger_buffer_of_the_sender_must_be_allowed():
    """Programs that do not raise their SO_SNDBUF could not send such messages."""
    one, two = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with one, two:
        size = one.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) + 1000
    limit = InputSettings(type="unix_datagram", path="/x", max_message_bytes=size)
    with pytest.raises(ConfigError, match=r"SO_SNDBUF|net\.core\.wmem_max"):
        check_datagram_limit(limit)
    if inputs._carries(size, raised=True):
        check_datagram_limit(limit.model_copy(update={"allow_large_datagrams": True}))


def test_a_datagram_that_is_sent_before_the_input_is_read_has_its_user(tmp_path: Path):
    """The kernel notes the user only if the receiver wants it at that time."""
    path = str(tmp_path / "d")
    own = os.getuid()
    opened = open_input(InputSettings(type="unix_datagram", path=path, allowed_users=[own]))
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.sendto(encode("orders", b"v", timestamp_ms=1), path)
    intake = Intake(Pool(1_000_000), opened.socket.fileno(), "unix_datagram", allowed_uids=[own])
    intake.start()
    end = time.monotonic() + 20
    while not intake.counts().received and time.monotonic() < end:
        time.sleep(0.01)
    intake.stop(drain_ms=2000)
    opened.close()
    assert (intake.counts().received, intake.counts().not_allowed) == (1, 0)
