"""What `aiokq gateway check` finds on the system: users, groups, files and directories."""

from __future__ import annotations

import os
import shutil
import socket
from pathlib import Path

import pytest

from aiokq.cli.app import execute
from aiokq.errors import ConfigError
from aiokq.gateway import inputs
from aiokq.gateway.system_check import check_file

AUTHORITY = Path(__file__).parents[2] / "fault" / "tls" / "authority.pem"
FILE = """\
[kafka]
security_protocol = "SSL"
ssl_cafile = "DIR/ca"
[[inputs]]
type = "unix_datagram"
path = "DIR/input"
allowed_users = [0]
[[inputs]]
type = "tcp"
port = 9000
[http]
host = "127.0.0.1"
token_file = "DIR/token"
[spool]
path = "DIR/spool"
[discards]
log_path = "DIR/log/discards"
[debug]
directory = "DIR/debug"
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A directory in which a gateway with the file can start."""
    shutil.copy(AUTHORITY, tmp_path / "ca")
    (tmp_path / "token").write_text("0123456789abcdef")
    (tmp_path / "file").write_text("")
    (tmp_path / "folder").mkdir()
    return tmp_path


def checked(folder: Path, old: str = "", new: str = "") -> list[str]:
    """Return the notes on the file, in which `new` replaces the text `old`."""
    assert old in FILE
    file = folder / "gateway.toml"
    file.write_text(FILE.replace(old, new, 1).replace("DIR", str(folder)))
    _, notes = check_file(file)
    return [note.replace(str(folder), "DIR") for note in notes]


def test_a_file_with_which_a_gateway_can_start_has_no_notes(folder: Path):
    assert checked(folder) == []
    assert sorted(os.listdir(folder)) == ["ca", "file", "folder", "gateway.toml", "token"]


REFUSED = [
    ("[0]", '["root", "nobody-here"]', "7: [[inputs]] #1 `allowed_users`: there is no user 'nobo"),
    ("allowed_users = [0]", 'owner = "nobody-here"', "7: [[inputs]] #1 `owner`: there is no user"),
    ("allowed_users = [0]", 'group = "nobody-here"', "7: [[inputs]] #1 `group`: there is no group"),
    ("DIR/input", "DIR/file", "6: [[inputs]] #1 `path`: DIR/file is not a socket; remove it"),
    ("DIR/input", "DIR/folder", "6: [[inputs]] #1 `path`: DIR/folder is not a socket; remove it"),
    ("DIR/input", "DIR/file/x", "6: [[inputs]] #1 `path`: DIR/file/x: Not a directory"),
    ("DIR/spool", "DIR/file", "15: [spool] `path`: DIR/file is not a directory"),
    ("DIR/spool", "DIR/file/spool", "15: [spool] `path`: DIR/file/spool: Not a directory"),
    ("DIR/log/discards", "DIR/folder", "17: [discards] `log_path`: DIR/folder is a directory"),
    ("DIR/debug", "DIR/file", "19: [debug] `directory`: DIR/file is not a directory"),
    ("DIR/ca", "DIR/nothing", "3: [kafka] `ssl_cafile`: there is no file DIR/nothing"),
    ("DIR/ca", "DIR/token", "3: [kafka] `ssl_cafile`: 'DIR/token': it has no '-----BEGIN CERT"),
    (
        'ssl_cafile = "DIR/ca"',
        'ssl_keystore_type = "PKCS12"\nssl_keystore_location = "DIR/token"',
        "4: [kafka] `ssl_keystore_location`: ",
    ),
    ("DIR/ca", "DIR/folder", "3: [kafka] `ssl_cafile`: DIR/folder: Is a directory"),
    ("DIR/token", "DIR/nothing", "13: [http] `token_file`: there is no file DIR/nothing"),
    ("DIR/token", "DIR/file", "13: [http] `token_file`: `token_file` DIR/file: the token has few"),
    ('"127.0.0.1"\n', '"no.such.host.invalid"\n', "12: [http] `host`: no.such.host.invalid: "),
    ("port = 9000", "port = 9690", "11: [http] `port`: 127.0.0.1:9690 is given twice"),
]


@pytest.mark.parametrize(("old", "new", "text"), REFUSED, ids=[one[1] for one in REFUSED])
def test_an_option_that_no_gateway_can_use_is_named_with_its_line(
    folder: Path, old: str, new: str, text: str
):
    with pytest.raises(ConfigError) as caught:
        checked(folder, old, new)
    assert caught.value.message.replace(str(folder), "DIR").startswith(f"DIR/gateway.toml:{text}")


@pytest.mark.parametrize(
    ("old", "option"),
    [("DIR/ca", "3: [kafka] `ssl_cafile`"), ("DIR/token", "13: [http] `token_file`")],
)
def test_a_file_that_is_read_must_be_a_regular_one(folder: Path, old: str, option: str):
    """Regression: the check waited for a writer of the FIFO, and read a device without an end."""
    os.mkfifo(folder / "fifo")
    for path in ("DIR/fifo", "/dev/zero"):
        with pytest.raises(ConfigError) as caught:
            checked(folder, old, path)
        text = f"DIR/gateway.toml:{option}: {path} is no regular file"
        assert caught.value.message.replace(str(folder), "DIR").startswith(text)


def test_all_problems_are_named_at_once(folder: Path):
    with pytest.raises(ConfigError) as caught:
        checked(folder, FILE, FILE.replace("[0]", '["nobody-here"]').replace("/spool", "/file"))
    assert len(caught.value.message.splitlines()) == 2


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        ("DIR/input", "DIR/run/input", "6: [[inputs]] #1 `path`: there is no directory DIR/run"),
        ("DIR/spool", "DIR/lib/spool", "15: [spool] `path`: there is no directory DIR/lib yet"),
        ("DIR/ca", "DIR/keys/ca", "3: [kafka] `ssl_cafile`: there is no file DIR/keys/ca"),
    ],
)
def test_a_directory_that_systemd_may_create_is_noted(folder: Path, old: str, new: str, text: str):
    """RuntimeDirectory, StateDirectory and LoadCredential do so at the start of a service."""
    (note,) = checked(folder, old, new)
    assert note.startswith(f"DIR/gateway.toml:{text}")


def test_the_socket_of_another_gateway_is_no_problem(folder: Path):
    """It may be this gateway, which is to read the file again."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as used:
        used.bind(str(folder / "input"))
        assert checked(folder) == []


def test_a_datagram_that_the_system_cannot_send_is_named(
    folder: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(inputs, "_carries", lambda size, raised: False)
    with pytest.raises(ConfigError, match=r":4: \[\[inputs\]\] #1 `max_message_bytes`: "):
        checked(folder)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may do everything")
def test_what_this_user_may_not_do_is_noted(folder: Path):
    (folder / "folder").chmod(0o500)
    (note,) = checked(folder, "DIR/spool", "DIR/folder/spool")
    assert "this user may not create files in DIR/folder" in note


def test_the_command_fails_for_a_file_that_cannot_start(
    folder: Path, capfd: pytest.CaptureFixture[str]
):
    """Regression: it said `correct`."""
    assert checked(folder, "DIR/input", "DIR/run/input")
    assert execute(["gateway", "check", str(folder / "gateway.toml")]) == 0
    printed = capfd.readouterr()
    assert "correct; 2 inputs" in printed.out
    assert "there is no directory" in printed.err
    with pytest.raises(ConfigError):
        checked(folder, "DIR/spool", "DIR/file")
    assert execute(["gateway", "check", str(folder / "gateway.toml")]) == 1
    assert "gateway.toml:15: [spool] `path`" in capfd.readouterr().err
