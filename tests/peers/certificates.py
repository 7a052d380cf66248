"""Certificates, made on demand with the `openssl` program."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple


class Identity(NamedTuple):
    """A key with its certificate.

    Attributes:
        certificate: PEM file: the certificate, then its authority's.
        key: PEM file: the private key, PKCS #8, without a password.
        together: PEM file: both, the key first, as Java takes them.
    """

    certificate: Path
    key: Path
    together: Path


def why_absent() -> str | None:
    """Return the reason why no certificates can be made here, None if they can."""
    return None if shutil.which("openssl") else "no openssl: apt-get install openssl"


class Authority:
    """A certificate authority whose certificates are valid for a day.

    Attributes:
        certificate: PEM file for peers that trust the authority.
    """

    def __init__(self, directory: Path, name: str = "aiokq tests") -> None:
        self._directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self.certificate = directory / "authority.pem"
        self._key = directory / "authority.key"
        _openssl(
            *("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"),
            *("-subj", f"/CN={name}", "-keyout", self._key, "-out", self.certificate),
            *("-addext", "basicConstraints=critical,CA:TRUE"),
        )

    def issue(self, name: str, alternatives: Sequence[str]) -> Identity:
        """Issue a key with a certificate.

        Args:
            name: common name, and prefix of the file names.
            alternatives: subject alternative names, as "DNS:localhost" or "IP:127.0.0.1".
        """
        base = self._directory / name
        key, request, certificate = (base.with_suffix(s) for s in (".key", ".csr", ".pem"))
        extensions = base.with_suffix(".ext")
        extensions.write_text(f"subjectAltName={','.join(alternatives)}\n")
        _openssl(
            *("req", "-new", "-newkey", "rsa:2048", "-nodes", "-subj", f"/CN={name}"),
            *("-keyout", key, "-out", request),
        )
        _openssl(
            *("x509", "-req", "-in", request, "-days", "1", "-extfile", extensions),
            *("-CA", self.certificate, "-CAkey", self._key, "-CAcreateserial"),
            *("-out", certificate),
        )
        certificate.write_text(certificate.read_text() + self.certificate.read_text())
        together = base.with_suffix(".both.pem")
        together.write_text(key.read_text() + certificate.read_text())
        return Identity(certificate, key, together)


def _openssl(*arguments: str | Path) -> None:
    done = subprocess.run(
        ["openssl", *map(str, arguments)], capture_output=True, text=True, timeout=60
    )
    if done.returncode:
        raise RuntimeError(f"openssl {arguments[0]}: {done.stderr}")
