"""aiokq_gateway.h: it compiles without warnings, and writes what the Python client writes."""

from __future__ import annotations

import ctypes
import errno
import itertools
import os
import re
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from aiokq.gateway.client import encode, get_include
from tests.gateway_messages import EXAMPLES, NOW, vectors
from tests.peers.gateway_programs import compiled, gateway_sender
from tests.peers.gateway_reader import Reader, decode

pytestmark = [
    pytest.mark.build_independent,
    pytest.mark.skipif(shutil.which("gcc") is None, reason="THE C HEADER IS NOT TESTED: no gcc"),
]

ROOT = Path(__file__).resolve().parents[2]
TRANSPORTS = ("unix_datagram", "unix_stream", "tcp")
COMPILERS = [
    ("gcc", ("-std=c99", "-Wpedantic", "-Wconversion")),
    ("gcc", ("-std=gnu17", "-O2", "-Wpedantic", "-Wshadow")),
    ("g++", ("-x", "c++", "-std=c++11", "-Wpedantic")),
    ("g++", ("-x", "c++", "-std=c++20", "-O2")),
    ("clang", ("-std=c99", "-Wpedantic")),
]


class Gateway(ctypes.Structure):
    _fields_ = (("fd", ctypes.c_int),)


class Header:
    """The functions of the header."""

    def __init__(self, library: Path) -> None:
        self.library = ctypes.CDLL(str(library))
        self.library.header_now_ms.restype = ctypes.c_int64

    def size(self, topic: int, key: int, value: int, keyed: bool) -> tuple[int, int]:
        size = ctypes.c_size_t(0)
        sizes = [ctypes.c_size_t(one) for one in (topic, key, value)]
        code = self.library.header_size(ctypes.byref(size), *sizes, int(keyed))
        return code, size.value

    def encode(
        self,
        topic: bytes,
        value: bytes,
        *,
        key: bytes,
        partition_key: int | None,
        timestamp_ms: int,
        room: int,
    ) -> tuple[int, bytes]:
        """Encode into a buffer with a guard behind it."""
        buffer = ctypes.create_string_buffer(b"\xa5" * (room + 8), room + 8)
        size = ctypes.c_size_t(0)
        code = self.library.header_encode(
            buffer,
            ctypes.c_size_t(room),
            ctypes.byref(size),
            int(partition_key is not None),
            ctypes.c_uint32((partition_key or 0) & 0xFFFFFFFF),
            topic,
            ctypes.c_size_t(len(topic)),
            ctypes.c_int64(timestamp_ms),
            key or None,
            ctypes.c_size_t(len(key)),
            value or None,
            ctypes.c_size_t(len(value)),
        )
        raw = buffer.raw
        written = size.value if code == 0 else 0
        assert set(raw[written:]) == {0xA5}, "written beyond the message"
        return code, raw[:written]


@pytest.fixture(scope="module")
def header(tmp_path_factory: pytest.TempPathFactory) -> Header:
    library = tmp_path_factory.mktemp("header") / "header.so"
    options = ("-std=c99", "-O1", "-shared", "-fPIC")
    return Header(compiled("gateway_header.c", library, *options))


@pytest.fixture(scope="module")
def sender(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return gateway_sender(tmp_path_factory.mktemp("sender"))


def run(*command: object, **options: Any) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([str(one) for one in command], capture_output=True, timeout=30, **options)


@pytest.mark.parametrize(("compiler", "options"), COMPILERS)
def test_the_header_compiles_without_warnings(
    compiler: str, options: tuple[str, ...], tmp_path: Path
) -> None:
    """Programs that treat warnings as errors include it, in C99 and in C++."""
    if shutil.which(compiler) is None:
        pytest.skip(f"no {compiler}")
    language = "c++" if compiler == "g++" else "c"
    library = compiled(
        "gateway_header.c", tmp_path / language, *options, "-shared", "-fPIC", compiler=compiler
    )
    message = Header(library).encode(
        b"t", b"hi", key=b"", partition_key=None, timestamp_ms=NOW, room=31
    )
    assert message == (0, encode("t", b"hi", timestamp_ms=NOW))


def test_the_c_code_of_the_guide_and_of_the_header_compiles(tmp_path: Path) -> None:
    """Whoever copies it has no warnings."""
    guide = (ROOT / "docs" / "guides" / "gateway-clients.md").read_text()
    (shown,) = re.findall(r"^```c\n(.*?)^```$", guide, re.MULTILINE | re.DOTALL)
    head = Path(get_include(), "aiokq_gateway.h").read_text().partition(" */")[0]
    lines = [line.removeprefix(" *     ") for line in head.splitlines() if line[:7] == " *     "]
    for code in (shown, "\n".join(lines)):
        program = f"#include <aiokq_gateway.h>\nint main(void) {{\n{code}\nreturn code;\n}}\n"
        (tmp_path / "program.c").write_text(program)
        compiled(str(tmp_path / "program.c"), tmp_path / "program", "-std=c99")


def test_the_golden_vectors_are_encoded_to_the_byte(header: Header) -> None:
    """In a buffer of exactly the size."""
    for expected, topic, key, value, timestamp_ms, partition_key in vectors():
        fields: dict[str, Any] = {"timestamp_ms": timestamp_ms, "partition_key": partition_key}
        made = header.encode(topic, value, key=key, **fields, room=len(expected))
        assert made == (0, expected)


def test_every_field_is_the_python_client_s_to_the_byte(header: Header) -> None:
    """At the limits of all fields, in a buffer of exactly the size."""
    for partition_key, topic, timestamp_ms, key, value in itertools.product(
        (None, -(2**31), -1, 0, 1, 2**31 - 1, 2**31, 2**32 - 1),
        (b"t", b"\xff" * 249, b"x" * 32767),
        (-(2**63), -1, 0, NOW, 2**63 - 1),
        (b"", b"k", b"\x00" * 70000),
        (b"", b"v", b"\xff" * 70000),
    ):
        fields: dict[str, Any] = {
            "key": key,
            "partition_key": partition_key,
            "timestamp_ms": timestamp_ms,
        }
        expected = encode(topic, value, **fields)
        assert header.encode(topic, value, **fields, room=len(expected)) == (0, expected)


@pytest.mark.parametrize("keyed", [False, True])
def test_limits_have_the_codes_of_dory_s_library(header: Header, keyed: bool) -> None:
    """0 ok, -1 buffer small, -2 topic too large, -3 message too large."""
    fixed = 32 if keyed else 28
    largest = 2**31 - 1
    assert header.size(1, 0, 0, keyed) == (0, fixed + 1)
    assert header.size(32767, 0, 0, keyed) == (0, fixed + 32767)
    assert header.size(32768, 0, 0, keyed)[0] == -2
    assert header.size(2**63, 0, 0, keyed)[0] == -2
    assert header.size(0, 0, 0, keyed)[0] == errno.EINVAL
    room = largest - fixed - 1
    for key, value in ((0, room), (room, 0), (1, room - 1)):
        assert header.size(1, key, value, keyed) == (0, largest)
    for key, value in ((0, room + 1), (room, 1), (2**64 - 1, 2), (2, 2**64 - 1), (2**63, 2**63)):
        assert header.size(1, key, value, keyed)[0] == -3
    partition_key = 7 if keyed else None
    fields: dict[str, Any] = {"key": b"k", "partition_key": partition_key, "timestamp_ms": 0}
    for missing in (1, fixed + 2, fixed + 3):
        code, message = header.encode(b"t", b"v", **fields, room=fixed + 3 - missing)
        assert (code, message) == (-1, b"")


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_socket_is_opened_used_and_closed(transport: str, header: Header, tmp_path: Path) -> None:
    """Also the codes -4 and -6, and what comes when the gateway is away."""
    library = header.library
    gateway = Gateway(-1)
    one = ctypes.byref(gateway)
    kind, path = transport.encode(), str(tmp_path / "gateway.sock").encode()
    message = encode("t", b"v")
    assert library.header_send(one, message, ctypes.c_size_t(len(message)), 1) == errno.EBADF
    if transport != "tcp":
        assert library.header_open(one, kind, b"/" + b"x" * 107, 0) == -6
        assert library.header_open(one, kind, b"/" + b"x" * 106, 0) == errno.ENOENT
        assert library.header_open(one, kind, path, 0) == errno.ENOENT
    with Reader(transport, tmp_path) as reader:
        reader.read()
        port = ctypes.c_uint16(reader.port)
        assert library.header_open(one, kind, path, port) == 0
        assert not os.get_inheritable(gateway.fd)
        assert library.header_open(one, kind, path, port) == -4
        for wait in (0, 1):
            assert library.header_send(one, message, ctypes.c_size_t(len(message)), wait) == 0
        assert [received.value for received in reader.messages(2)] == [b"v", b"v"]
    if transport != "tcp":  # TCP notices it one message later
        assert library.header_send(one, message, ctypes.c_size_t(len(message)), 1) in (
            errno.EPIPE,
            errno.ECONNREFUSED,
        )
        assert gateway.fd == -1
    assert library.header_close(one) == 0
    assert library.header_close(one) == 0
    assert library.header_open(one, kind, path, port) == errno.ECONNREFUSED


def test_a_full_queue_keeps_the_socket_open(header: Header, tmp_path: Path) -> None:
    """EAGAIN and EMSGSIZE sent nothing: the same socket sends the next message."""
    gateway = Gateway(-1)
    one = ctypes.byref(gateway)
    message = encode("t", b"v")
    with Reader("unix_datagram", tmp_path) as reader:
        assert header.library.header_open(one, b"", str(tmp_path / "gateway.sock").encode(), 0) == 0
        codes = [
            header.library.header_send(one, message, ctypes.c_size_t(len(message)), 0)
            for _ in range(2000)
        ]
        sent = codes.count(0)
        assert set(codes) == {0, errno.EAGAIN}
        large = bytes(16 << 20)
        code = header.library.header_send(one, large, ctypes.c_size_t(len(large)), 1)
        assert code == errno.EMSGSIZE
        reader.read()
        assert header.library.header_send(one, message, ctypes.c_size_t(len(message)), 1) == 0
        reader.messages(sent + 1)
        assert header.library.header_close(one) == 0


def test_the_clock_is_the_system_s(header: Header) -> None:
    """In milliseconds."""
    assert abs(header.library.header_now_ms() - time.time() * 1000) < 5000


@pytest.mark.parametrize(("expected", "topic", "key", "value", "partition_key"), EXAMPLES)
def test_the_c_program_writes_the_examples_of_the_format(
    sender: Path, expected: str, topic: str, key: str, value: str, partition_key: int | None
) -> None:
    """The bytes that the C libraries of Bruce and Dory write."""
    options = ["--topic", topic, "--key", key, "--value", value]
    if partition_key is not None:
        options += ["--partition-key", str(partition_key)]
    done = run(sender, *options, "--timestamp", NOW, "--encode")
    assert done.stdout == bytes.fromhex(expected)


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_the_c_program_has_the_options_of_to_dory(
    transport: str, sender: Path, tmp_path: Path
) -> None:
    """It stands for `to_dory` where Dory's sources are missing."""
    with Reader(transport, tmp_path) as reader:
        reader.read()
        option = {"unix_datagram": "--socket-path", "unix_stream": "--stream-socket-path"}
        where = (option.get(transport, "--port"), next(iter(reader.address.values())))
        common = (sender, *where, "--topic", "t")
        done = run(*common, "--value", "v", "--count", 3, "--seq", "--pad", 4, "--print", 2)
        assert (done.returncode, done.stdout) == (0, b"2 messages written\n"), done.stderr
        done = run(*common, "--stdin", "--key", "k", "--partition-key", 9, input=b"in\0put" * 2000)
        assert done.returncode == 0, done.stderr
        found = reader.messages(4)
        assert [one.value for one in found[:3]] == [b"0001 v", b"0002 v", b"0003 v"]
        assert found[3].value == b"in\0put" * 2000
        assert (found[3].key, found[3].partition_key) == (b"k", 9)
        begun = time.monotonic()
        assert run(*common, "--count", 3, "--interval", 50_000).returncode == 0
        assert time.monotonic() - begun >= 0.1
        reader.messages(7)
        assert run(*common, "--value", "bad", "--bad").returncode == 0
        reader.wait_for(lambda: b"".join(reader.connections).endswith(b"bad"))
        message = b"".join(reader.connections)[-(28 + 1 + 3) :]
        assert message[:4] == (len(message) - 1).to_bytes(4, "big")
        assert decode(len(message).to_bytes(4, "big") + message[4:]).value == b"bad"


def test_the_c_program_refuses_wrong_options(sender: Path, tmp_path: Path) -> None:
    """As to_dory does, with exit code 1."""
    nobody = tmp_path / "nobody"
    for options in (
        ("--topic", "t"),
        ("--socket-path", nobody),
        ("--socket-path", nobody, "--port", 1, "--topic", "t"),
        ("--socket-path", nobody, "--topic", "t", "--value", "v", "--stdin"),
        ("--socket-path", nobody, "--topic", "t", "--unknown"),
        ("--socket-path", nobody, "--topic", "t"),
    ):
        done = run(sender, *options, stdin=subprocess.DEVNULL)
        assert done.returncode == 1
        assert done.stderr
