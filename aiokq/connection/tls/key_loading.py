"""`load_key`: gives a private key in memory to OpenSSL, without a plain copy on a file system.

Python's `ssl` loads keys from files only. On Linux, the key is written to an anonymous file in
memory (`memfd_create`), which OpenSSL opens by its name under /proc/self/fd. On other systems, and
where this fails, the key is written to a temporary file, encrypted under a random 256-bit password
that never leaves this process. A copy of the file, such as a backup, cannot be decrypted.

Tests: tests/unit/connection/tls/test_key_loading.py.
"""

from __future__ import annotations

import os
import ssl
import tempfile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aiokq.connection.tls.stores import KeyMaterial

__all__ = ["load_key"]


def load_key(context: ssl.SSLContext, material: KeyMaterial) -> None:
    """Load a key and its certificates into a context.

    Raises:
        ssl.SSLError: the key does not belong to the certificate, or the password is wrong.
        OSError: no file can be created, or a file must be encrypted and the package cryptography is
            missing.
    """
    try:
        descriptor = os.memfd_create("aiokq", os.MFD_CLOEXEC)
    except (AttributeError, OSError):  # memfd_create is missing or forbidden
        _load_encrypted(context, material)
        return
    try:
        _write(descriptor, (material.key + material.chain).encode())
        path = f"/proc/self/fd/{descriptor}"
        if not os.access(path, os.R_OK):  # /proc is not mounted
            _load_encrypted(context, material)
            return
        _load(context, path, material.password)
    finally:
        os.close(descriptor)


def _load(context: ssl.SSLContext, path: str, password: str | None) -> None:
    # Without the callback, OpenSSL would ask for a missing password on the terminal.
    context.load_cert_chain(path, password=lambda: password or "")


def _load_encrypted(context: ssl.SSLContext, material: KeyMaterial) -> None:
    try:
        from cryptography.hazmat.primitives import serialization
    except ImportError:
        raise OSError(
            "a private key in memory needs the package cryptography on this system "
            "(pip install 'aiokq[tls]')"
        ) from None
    given = None if material.password is None else material.password.encode()
    try:
        key = serialization.load_pem_private_key(material.key.encode(), given)
    except (ValueError, TypeError) as error:
        raise ssl.SSLError(f"the private key cannot be read: {error}") from None
    password = os.urandom(32).hex()
    text = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(password.encode()),
    )
    descriptor, path = tempfile.mkstemp(prefix="aiokq-", suffix=".pem")
    try:
        try:
            _write(descriptor, text + material.chain.encode())
        finally:
            os.close(descriptor)
        _load(context, path, password)
    finally:
        os.unlink(path)


def _write(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
