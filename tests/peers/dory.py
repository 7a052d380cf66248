"""Dory's own programs, built from its sources, or the programs of ours that stand for them.

`make interop DORY=DIR` names the sources; nothing of them is part of this project.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Protocol

from tests.peers.gateway_programs import compiled, gateway_sender

DIRECTORY = os.environ.get("DORY", "")
ABSENT = (
    "DORY'S OWN PROGRAMS ARE NOT TESTED, programs of ours stand for them: give its sources by "
    "`make interop DORY=DIR`"
)


class ToDory:
    """The program `to_dory`, or ours with the same options."""

    def __init__(self, program: Path) -> None:
        self._program = program
        done = subprocess.run([program, "--help"], capture_output=True, text=True, timeout=30)
        # Releases differ in how they spell the options.
        self._underscores = "--socket_path" in done.stdout + done.stderr

    def run(self, *arguments: str) -> None:
        """Run the program; fails if it does not end with exit code 0."""
        spelled = [self._spelled(one) for one in arguments]
        done = subprocess.run([self._program, *spelled], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stdout + done.stderr

    def _spelled(self, argument: str) -> str:
        if argument.startswith("--") and self._underscores:
            return "--" + argument.removeprefix("--").replace("-", "_")
        return argument


class Library(Protocol):
    """A client library in C."""

    def encode(
        self, topic: bytes, key: bytes, value: bytes, timestamp_ms: int, partition_key: int | None
    ) -> bytes:
        """Encode a message."""

    def send(self, path: str, message: bytes) -> None:
        """Open a socket to `path`, send a message, and close the socket."""


class DoryLibrary:
    """Dory's `libdory_client`."""

    def __init__(self, library: Path) -> None:
        self._library = ctypes.CDLL(str(library))

    def encode(
        self, topic: bytes, key: bytes, value: bytes, timestamp_ms: int, partition_key: int | None
    ) -> bytes:
        kind = "any_partition" if partition_key is None else "partition_key"
        size = ctypes.c_size_t(0)
        sizes = [ctypes.c_size_t(len(one)) for one in (topic, key, value)]
        found = getattr(self._library, f"dory_find_{kind}_msg_size")
        assert found(*sizes, ctypes.byref(size)) == 0
        buffer = ctypes.create_string_buffer(size.value)
        chosen = [] if partition_key is None else [ctypes.c_int32(partition_key)]
        code = getattr(self._library, f"dory_write_{kind}_msg")(
            *(buffer, size, *chosen, topic, ctypes.c_int64(timestamp_ms)),
            *(key, sizes[1], value, sizes[2]),
        )
        assert code == 0
        return buffer.raw

    def send(self, path: str, message: bytes) -> None:
        opened = ctypes.create_string_buffer(256)  # larger than a dory_client_socket_t
        self._library.dory_client_socket_init(opened)
        assert self._library.dory_client_socket_bind(opened, path.encode()) == 0
        size = ctypes.c_size_t(len(message))
        assert self._library.dory_client_socket_send(opened, message, size) == 0
        self._library.dory_client_socket_close(opened)


class OurLibrary:
    """aiokq_gateway.h."""

    def __init__(self, library: Path) -> None:
        self._library = ctypes.CDLL(str(library))

    def encode(
        self, topic: bytes, key: bytes, value: bytes, timestamp_ms: int, partition_key: int | None
    ) -> bytes:
        size = ctypes.c_size_t(0)
        buffer = ctypes.create_string_buffer(len(topic) + len(key) + len(value) + 32)
        code = self._library.header_encode(
            *(buffer, ctypes.c_size_t(len(buffer)), ctypes.byref(size)),
            *(int(partition_key is not None), ctypes.c_uint32((partition_key or 0) & 0xFFFFFFFF)),
            *(topic, ctypes.c_size_t(len(topic)), ctypes.c_int64(timestamp_ms)),
            *(key, ctypes.c_size_t(len(key)), value, ctypes.c_size_t(len(value))),
        )
        assert code == 0
        return buffer.raw[: size.value]

    def send(self, path: str, message: bytes) -> None:
        opened = ctypes.c_int(-1)  # an aiokq_gateway
        one = ctypes.byref(opened)
        assert self._library.header_open(one, b"unix_datagram", path.encode(), 0) == 0
        size = ctypes.c_size_t(len(message))
        assert self._library.header_send(one, message, size, 1) == 0
        assert self._library.header_close(one) == 0


def to_dory(output: Path) -> ToDory:
    """Build `to_dory`, or take the one that was built in the sources' directory."""
    if not DIRECTORY:
        return ToDory(gateway_sender(output))
    built = [one for one in Path(DIRECTORY).rglob("to_dory") if os.access(one, os.X_OK)]
    built = [one for one in built if one.is_file()]
    return ToDory(built[0] if built else _built_to_dory(output))


def library(output: Path) -> Library:
    """Build a client library."""
    made = output / "client.so"
    if not DIRECTORY:
        options = ("-std=c99", "-O1", "-shared", "-fPIC")
        return OurLibrary(compiled("gateway_header.c", made, *options))
    source = _source()
    stub = output / "client_build_id.c"
    stub.write_text(
        '#include <dory/client/build_id.h>\nconst char dory_client_lib_build_id[] = "of a test";\n'
    )
    writers = sorted(source.glob("dory/input_dg/*/v0/v0_write_msg.c"))
    _run(
        *("gcc", "-shared", "-fPIC", "-O1", f"-I{source}", "-o", made),
        *(source / "dory/client/libdory_client.c", *writers, stub),
    )
    return DoryLibrary(made)


def _built_to_dory(output: Path) -> Path:
    source = _source()
    stub = output / "build_id.cc"
    stub.write_text(
        "#include <dory/build_id.h>\n"
        "#include <dory/client/build_id.h>\n"
        'const char dory_build_id[] = "of a test";\n'
        'const char dory_client_lib_build_id[] = "of a test";\n'
    )
    bundled = next(iter(source.parent.rglob("tclap/CmdLine.h")), None)
    includes = [f"-I{source}", *([f"-I{bundled.parent.parent}"] if bundled is not None else [])]
    objects, archive = output / "objects", output / "dory.a"
    objects.mkdir()
    parts = [
        *_sources(source, ("base/**/*.cc", "log/**/*.cc", "socket/*.cc", "dory/client/*.cc")),
        source / "dory/util/arg_parse_error.cc",
    ]
    writers = [
        source / "dory/client/libdory_client.c",
        *sorted(source.glob("dory/input_dg/*/v0/v0_write_msg.c")),
    ]

    def compile_part(part: Path) -> None:
        made = objects / (part.relative_to(source).as_posix().replace("/", "_") + ".o")
        language = ["gcc"] if part.suffix == ".c" else ["g++", "-std=c++2a"]
        # Parts that need libraries which are missing here are not needed by `to_dory`; if one is,
        # the linker says so.
        subprocess.run(
            [*language, "-c", *includes, "-o", str(made), str(part)], capture_output=True
        )

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(compile_part, (one for one in [*parts, *writers] if one.exists())))
    _run("ar", "rcs", archive, *sorted(objects.iterdir()))
    program = output / "to_dory"
    main = source / "dory/client/to_dory.cc"
    _run(
        *("g++", "-std=c++2a", *includes, "-o", program, main, stub, archive),
        *("-lpthread", "-ldl"),
    )
    return program


def _source() -> Path:
    for one in (Path(DIRECTORY), Path(DIRECTORY) / "src"):
        if (one / "dory" / "client" / "libdory_client.c").is_file():
            return one.resolve()
    raise AssertionError(f"{DIRECTORY} has no Dory: src/dory/client/libdory_client.c is missing")


def _sources(source: Path, patterns: Iterable[str]) -> list[Path]:
    found = [path for pattern in patterns for path in sorted(source.glob(pattern))]
    return [path for path in found if ".test." not in path.name and path.name != "to_dory.cc"]


def _run(*command: object) -> None:
    done = subprocess.run([str(one) for one in command], capture_output=True, text=True)
    assert done.returncode == 0, f"{command[0]}: {done.stderr[-4000:]}"
