"""A private key in memory never reaches a file system in plain text."""

from __future__ import annotations

import ctypes
import os
import ssl
import struct
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from aiokq.connection.tls.contexts import Made, client_context, server_context
from aiokq.connection.tls.key_loading import load_key
from aiokq.connection.tls.stores import KeyMaterial
from aiokq.connection.tls.tls_settings import TlsSettings
from tests.peers.pki import Pki

IDENTITY = Pki().issue()
_CREATED_OR_WRITTEN = 0x100 | 0x2 | 0x80  # IN_CREATE, IN_MODIFY, IN_MOVED_TO


@contextmanager
def watched(*directories: str | Path) -> Iterator[list[str]]:
    """Yield a list, which has the names of all files created or written meanwhile."""
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = libc.inotify_init1(os.O_NONBLOCK)
    for directory in directories:
        watch = libc.inotify_add_watch(descriptor, os.fsencode(directory), _CREATED_OR_WRITTEN)
        assert watch >= 0, directory
    names: list[str] = []
    try:
        yield names
        try:
            events = os.read(descriptor, 1 << 16)
        except BlockingIOError:
            events = b""
        while events:
            size = struct.unpack_from("IIII", events)[3] if len(events) >= 16 else 0
            names.append(events[16 : 16 + size].rstrip(b"\0").decode())
            events = events[16 + size :]
    finally:
        os.close(descriptor)


@pytest.mark.skipif(sys.platform != "linux", reason="inotify")
@pytest.mark.parametrize("form", ["text", "encrypted text", "pkcs12"])
@pytest.mark.parametrize("make", [client_context, server_context])
def test_no_file_is_created_for_a_key(
    form: str,
    make: Callable[[TlsSettings], Made],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Every directory that a temporary file could be in is watched."""
    settings = TlsSettings(
        keystore_type="PEM",
        keystore_key=IDENTITY.encrypted_key("p") if "encrypted" in form else IDENTITY.key,
        keystore_certificate_chain=IDENTITY.chain,
        key_password="p" if "encrypted" in form else None,
    )
    if form == "pkcs12":
        store = tmp_path / "store.p12"
        store.write_bytes(IDENTITY.pkcs12("p"))
        settings = TlsSettings(keystore_location=str(store), keystore_password="p")
    own = tmp_path / "temporary"
    own.mkdir()
    monkeypatch.chdir(own)
    monkeypatch.setattr(tempfile, "tempdir", str(own))
    # Other programs write to the shared directories at the same time.
    shared = [place for place in ("/tmp", "/var/tmp", "/dev/shm") if os.path.isdir(place)]
    with watched(own) as written, watched(*shared) as elsewhere:
        assert make(settings).material is not None
    assert written == []
    assert [name for name in elsewhere if name.endswith(".pem") and "aiokq-" in name] == []


def test_the_watch_notices_files(tmp_path: Path) -> None:
    """Otherwise the test above would pass without a reason."""
    with watched(tmp_path) as written:
        (tmp_path / "aiokq.pem").write_text("x")
    assert "aiokq.pem" in written


@pytest.mark.parametrize("password", [None, "secret"])
def test_without_memfd_the_file_has_an_encrypted_key_and_is_removed(
    password: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On other systems than Linux, Python needs a file; its password stays in memory."""
    seen: list[str] = []
    unlink = os.unlink

    def look(path: str) -> None:
        seen.append(Path(path).read_text())
        assert os.stat(path).st_mode & 0o777 == 0o600
        unlink(path)

    def refuse(*_: object) -> int:
        raise OSError("forbidden")

    monkeypatch.setattr(os, "memfd_create", refuse)
    monkeypatch.setattr(os, "unlink", look)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    key = IDENTITY.key if password is None else IDENTITY.encrypted_key(password)
    load_key(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), KeyMaterial((IDENTITY.der,), key, password))
    assert "BEGIN ENCRYPTED PRIVATE KEY" in seen[0]
    assert "BEGIN PRIVATE KEY" not in seen[0]
    assert list(tmp_path.iterdir()) == []


def test_descriptors_are_closed(tmp_path: Path) -> None:
    """Also if the key does not fit."""
    before = len(os.listdir("/proc/self/fd"))
    load_key(
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), KeyMaterial((IDENTITY.der,), IDENTITY.key, None)
    )
    with pytest.raises(ssl.SSLError, match="KEY_VALUES_MISMATCH"):
        load_key(
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER),
            KeyMaterial((IDENTITY.der,), Pki().issue().key, None),
        )
    assert len(os.listdir("/proc/self/fd")) == before
