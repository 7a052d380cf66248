"""A key distribution center of MIT Kerberos, from Debian's packages krb5-kdc and krb5-admin-server.

`apt-get install krb5-kdc krb5-admin-server krb5-user libkrb5-dev`, `pip install gssapi`.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import socket
import subprocess
import time
from pathlib import Path

from tests.peers.ports import free_ports

REALM = "EXAMPLE.TEST"
_PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"


def why_absent() -> str | None:
    """Return the reason why Kerberos cannot be tested here, None if it can."""
    for program in ("krb5kdc", "kdb5_util", "kadmin.local"):
        if shutil.which(program, path=_PATH) is None:
            return f"{program} is not installed: apt-get install krb5-kdc krb5-admin-server"
    if importlib.util.find_spec("gssapi") is None:
        return "the package gssapi is not installed"
    return None


class Kdc:
    """Runs while the block runs; `configuration` is the file for `KRB5_CONFIG`."""

    def __init__(self, directory: Path) -> None:
        (port,) = free_ports(1)
        self._port = port
        self._directory = directory
        self.configuration = directory / "krb5.conf"
        self.configuration.write_text(
            f"[libdefaults]\n default_realm = {REALM}\n dns_lookup_kdc = false\n"
            " dns_lookup_realm = false\n dns_canonicalize_hostname = false\n rdns = false\n"
            f"[realms]\n {REALM} = {{\n  kdc = 127.0.0.1:{port}\n }}\n"
        )
        profile = directory / "kdc.conf"
        profile.write_text(
            f"[kdcdefaults]\n kdc_listen = 127.0.0.1:{port}\n kdc_tcp_listen = 127.0.0.1:{port}\n"
            f"[realms]\n {REALM} = {{\n  database_name = {directory}/principal\n"
            f"  key_stash_file = {directory}/stash\n  acl_file = {directory}/acl\n }}\n"
        )
        self._environ = {
            **os.environ,
            "PATH": _PATH,
            "KRB5_CONFIG": str(self.configuration),
            "KRB5_KDC_PROFILE": str(profile),
        }
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Kdc:
        self._run("kdb5_util", "create", "-s", "-r", REALM, "-P", "master")
        self._process = subprocess.Popen(
            ["krb5kdc", "-n", "-r", REALM],
            env=self._environ,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        deadline = time.monotonic() + 20
        while True:
            try:
                socket.create_connection(("127.0.0.1", self._port), 1).close()
            except OSError:
                assert time.monotonic() < deadline, "the key distribution center does not start"
                time.sleep(0.05)
            else:
                return self

    def __exit__(self, *_: object) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def keytab(self, principal: str) -> Path:
        """Create a principal, and return a file with its keys."""
        path = self._directory / f"{principal.replace('/', '-')}.keytab"
        self._run("kadmin.local", "-r", REALM, "addprinc", "-randkey", principal)
        self._run("kadmin.local", "-r", REALM, "ktadd", "-k", str(path), principal)
        return path

    def _run(self, *command: str) -> None:
        subprocess.run(command, check=True, capture_output=True, env=self._environ)
