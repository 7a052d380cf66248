"""The directory of `aiokq broker --secure DIR`: files for a broker with TLS, SASL and ACLs.

The first start makes a certificate authority, a certificate, an administrator with a random
password, the settings of the broker and a file for clients. Later starts make only missing files,
write the broker's address to the file for clients, and replace the certificate before it expires or
if it lacks a name of this machine. Each file is written completely or not at all, so the next start
completes a start that was killed.

The directory has the permissions 0700 and its files 0600. Only `client.properties` contains the
password, which is never printed.

Tests: ``tests/unit/broker/test_secure_directory.py``, ``tests/fault/test_secure_broker.py``.
"""

from __future__ import annotations

import ipaddress
import os
import re
import socket
import stat
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from aiokq.broker.config.listeners import endpoints_of, is_wildcard
from aiokq.core import jaas
from aiokq.core.errors import ConfigError
from aiokq.core.named_tuple import NamedTuple
from aiokq.core.properties import format_properties, parse_properties
from aiokq.core.regular_files import open_regular

if TYPE_CHECKING:
    from types import ModuleType

    from aiokq.broker.config.listeners import Endpoint
    from aiokq.broker.config.settings import BrokerSettings
    from aiokq.broker.options import Options
    from aiokq.core.clock import Clock

__all__ = ["SecureDirectory", "format_secured", "prepare"]

ADMIN: Final = "admin"
MECHANISM: Final = "SCRAM-SHA-512"
LISTENER: Final = "SASL_SSL"

RENEWED_DAYS: Final = 30
"""A start replaces a certificate that expires in fewer than this number of days."""

TEMPORARY: Final = ".tmp"

DAY_MS: Final = 24 * 60 * 60 * 1000

HOST_NAME: Final = r"[0-9a-zA-Z_.\-]{1,253}"
"""Pattern of the host names that a certificate may have."""

OWN_FILES: Final = frozenset(
    ("ca-key.pem", "ca.pem", "broker.pem", "broker.properties", "client.properties", "data")
)

BROKER_COMMENT: Final = """\
The settings of the broker, written by `aiokq broker --secure`; they may be changed.
Names and values are Kafka's. Apache Kafka also needs process.roles, node.id and a controller.
"""
CLIENT_COMMENT: Final = """\
The administrator's settings, for clients of aiokq (--config, from_properties) and of Java.
The file has a password. `aiokq broker --secure` changes bootstrap.servers only.
"""


class SecureDirectory(NamedTuple):
    """The files of the directory.

    Attributes:
        path: absolute path of the directory.
        renewed: whether this start issued a certificate.
    """

    path: str
    renewed: bool

    @property
    def broker_file(self) -> str:
        """Path of the file with the settings of the broker."""
        return f"{self.path}/broker.properties"

    @property
    def client_file(self) -> str:
        """Path of the file with the settings of the administrator's clients and the password."""
        return f"{self.path}/client.properties"

    @property
    def authority_file(self) -> str:
        """Path of the file with the authority's certificate, which clients trust."""
        return f"{self.path}/ca.pem"

    def advertise(self, address: str) -> None:
        """Write the broker's address to the file for clients.

        Raises:
            ConfigError: the file is not UTF-8.
            OSError: the file cannot be read or written.
        """
        values = _properties(self.client_file)
        if values.get("bootstrap.servers") != address:
            values["bootstrap.servers"] = address
            text = format_properties(values, comment=CLIENT_COMMENT)
            _write(self.client_file, text.encode())

    def summary(self, address: str) -> str:
        """Return three lines for the user: address, login, and the authority's file."""
        return (
            f"  servers    {address} ({LISTENER})\n"
            f"  login      {MECHANISM}, user {ADMIN}, password in {self.client_file}\n"
            f"  authority  {self.authority_file}"
        )


def prepare(options: Options, clock: Clock) -> SecureDirectory:
    """Make the missing files of the directory, except the log directory.

    A certificate that is due is replaced; see `_make_certificates`.

    Args:
        options: the options of `aiokq broker`; `secure` is the directory.

    Raises:
        ConfigError: an option contradicts `--secure`; the directory has other files, another owner,
            or permissions for others; one of its files is damaged or cannot be written; or the
            package cryptography is missing.
    """
    assert options.secure is not None
    if options.config is not None or options.data_dirs:
        other = "--data-dir" if options.config is None else "--config"
        raise ConfigError(
            f"--secure and {other} exclude each other: the directory of --secure has its own "
            "broker.properties, which may be changed"
        )
    path = os.path.abspath(options.secure)
    try:
        _make_directory(path)
        directory = SecureDirectory(path, renewed=False)
        names = _names(directory, options)
        renewed = _make_certificates(path, names, clock.timestamp_ms(), renew=options.renew)
        _make_settings(directory)
    except OSError as error:
        raise ConfigError(f"--secure {path}: {error.filename}: {error.strerror}") from error
    return directory._replace(renewed=renewed)


def _make_directory(path: str) -> None:
    try:
        os.mkdir(path, 0o700)
        return
    except FileExistsError:
        status = os.stat(path)
    if not stat.S_ISDIR(status.st_mode):
        raise ConfigError(f"--secure {path}: it is not a directory")
    _check_owner(path, path, status)
    names = os.listdir(path)
    foreign = {name.removesuffix(TEMPORARY) for name in names} - OWN_FILES
    if foreign and not os.path.exists(f"{path}/ca.pem"):
        raise ConfigError(
            f"--secure {path}: the directory has other files; name a new or an empty directory"
        )
    if stat.S_IMODE(status.st_mode) & 0o077:
        if names:
            raise ConfigError(
                f"--secure {path}: others may read the directory, which has secrets: run `chmod "
                f"700 {path}`, or begin with a new directory if they may have read them"
            )
        os.chmod(path, 0o700)
    for name in (OWN_FILES - {"data"}).intersection(names):
        file = f"{path}/{name}"
        _check_owner(path, file, os.stat(file))


def _check_owner(path: str, file: str, status: os.stat_result) -> None:
    """Check that the user of this process owns the directory or one of its files.

    Raises:
        ConfigError: another user owns it, and could read and replace secrets.
    """
    if hasattr(os, "geteuid") and status.st_uid != os.geteuid():
        raise ConfigError(
            f"--secure {path}: {file} belongs to the user with the id {status.st_uid}, not to the "
            f"user of this process, {os.geteuid()}: start the broker as its owner, or name a new "
            "directory"
        )


def _names(directory: SecureDirectory, options: Options) -> list[str]:
    """Return the names and addresses of this machine, and the advertised ones."""
    own = socket.gethostname()
    found = ["localhost", own, socket.getfqdn(), "127.0.0.1", "::1"]
    with suppress(OSError):
        found += [str(info[4][0]) for info in socket.getaddrinfo(own, None)]
    found += _outer_addresses()
    found += [options.host or "", _host(options.advertise or "")]
    if os.path.exists(directory.broker_file):
        values = _properties(directory.broker_file)
        for setting in ("listeners", "advertised.listeners"):
            found += [one.host for one in _endpoints(setting, values)]
    usable = [_usable(name.strip("[]").partition("%")[0].rstrip(".")) for name in found]
    return list(dict.fromkeys(filter(None, usable)))


def _host(address: str) -> str:
    """Return the host of `HOST[:PORT]`."""
    if address.startswith("["):
        return address[1:].partition("]")[0]
    return address.partition(":")[0]


def _usable(name: str) -> str:
    """Return a name as a certificate spells it; "" if a certificate cannot contain it."""
    if is_wildcard(name):
        return ""
    try:
        return str(ipaddress.ip_address(name))
    except ValueError:
        return name if re.fullmatch(HOST_NAME, name) else ""


def _endpoints(setting: str, values: Mapping[str, str]) -> list[Endpoint]:
    try:
        return endpoints_of(setting, values[setting]) if values.get(setting) else []
    except ConfigError:
        return []  # the start will refuse the setting


def _outer_addresses() -> list[str]:
    """Return the addresses from which this machine reaches other networks; nothing is sent."""
    found = []
    for family, target in ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1")):
        with suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((target, 9))
            found.append(str(probe.getsockname()[0]))
    return found


def _make_certificates(path: str, names: list[str], now_ms: int, *, renew: bool) -> bool:
    """Make the authority if it is missing, and a certificate if one is due.

    A certificate is due if it is missing, expires soon, lacks one of `names`, or was not signed by
    the authority. The new certificate also has the names of the old one.

    Args:
        renew: whether to issue a certificate even if none is due.

    Returns:
        Whether a certificate was issued.

    Raises:
        ConfigError: the old certificate or the authority's key cannot be used, or the package
            cryptography is missing.
        OSError: a file cannot be read or written.
    """
    made = _certificates()
    key_file, authority_file = f"{path}/ca-key.pem", f"{path}/ca.pem"
    if not os.path.exists(authority_file):
        new = made.new_authority(now_ms)
        _write(key_file, new.key)
        _write(authority_file, new.certificate)
    authority = _read(authority_file)
    file = f"{path}/broker.pem"
    wanted = set(names)
    if os.path.exists(file):
        try:
            known = made.issued_certificate(_read(file), authority)
        except ValueError as error:
            raise ConfigError(f"{file} cannot be read: {error}; move it away") from None
        is_due = known.expires_ms - now_ms < RENEWED_DAYS * DAY_MS
        if known.issuer_matches and not is_due and not renew and wanted <= known.names:
            return False
        wanted |= known.names
    ordered = [*names, *sorted(wanted.difference(names))]
    try:
        text = made.issue(made.Authority(_read(key_file), authority), ordered, now_ms)
    except FileNotFoundError:
        raise ConfigError(
            f"{key_file} is missing, so no certificate can be issued: put it back for this start"
        ) from None
    except ValueError as error:
        raise ConfigError(f"{key_file}: {error}") from None
    _write(file, text)
    return True


def _certificates() -> ModuleType:
    try:
        from aiokq.broker import certificates
    except ImportError as error:
        raise ConfigError(
            "--secure makes certificates, which needs the package cryptography: "
            "pip install 'aiokq[tls]'"
        ) from error
    return certificates


def _make_settings(directory: SecureDirectory) -> None:
    if not os.path.exists(directory.client_file):
        from aiokq.core.secure_random import new_password

        login = {"username": ADMIN, "password": new_password()}
        values = {
            "bootstrap.servers": "localhost:9092",
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": MECHANISM,
            "sasl.jaas.config": jaas.jaas_text(jaas.SCRAM, login),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": directory.authority_file,
        }
        text = format_properties(values, comment=CLIENT_COMMENT)
        _write(directory.client_file, text.encode())
    if not os.path.exists(directory.broker_file):
        prefix = f"listener.name.{LISTENER.lower()}."
        values = {
            "listeners": f"{LISTENER}://127.0.0.1:9092",
            "inter.broker.listener.name": LISTENER,
            "sasl.enabled.mechanisms": MECHANISM,
            "sasl.mechanism.inter.broker.protocol": MECHANISM,
            f"{prefix}{MECHANISM.lower()}.sasl.jaas.config": jaas.jaas_text(jaas.SCRAM, {}),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": f"{directory.path}/broker.pem",
            "ssl.allow.san.changes": "true",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": f"User:{ADMIN}",
            "log.dirs": f"{directory.path}/data",
        }
        text = format_properties(values, comment=BROKER_COMMENT)
        _write(directory.broker_file, text.encode())


def format_secured(
    directory: SecureDirectory, settings: BrokerSettings, node_id: int | None, clock: Clock
) -> None:
    """Format the log directories that are not formatted, with the administrator's credential.

    Args:
        settings: the settings of `broker.properties` and of `--set`.
        node_id: the id of the node; None for the stored id, or 0.

    Raises:
        ConfigError: there is no log directory, the password of the administrator is missing, the
            directory of the metadata log is not formatted although another one is, or a directory
            belongs to another node or cluster.
        KafkaStorage, OSError: a log directory cannot be written.
    """
    from aiokq.broker.config.settings import log_directories
    from aiokq.broker.log.file_names import META_PROPERTIES

    paths = log_directories(settings)
    if not paths:
        raise ConfigError(f"{directory.broker_file} has no log.dirs")
    formatted = [path for path in paths if os.path.exists(f"{path}/{META_PROPERTIES}")]
    if len(formatted) == len(paths):
        return
    metadata = settings.metadata_log_dir or paths[0]
    if formatted and metadata not in formatted:
        raise ConfigError(
            f"log directory {formatted[0]} is formatted, and {metadata}, which has the metadata "
            "log, is not: restore it, or use an empty directory for --secure"
        )
    from aiokq.broker.log.meta_properties import find_meta_properties
    from aiokq.broker.metadata.stopped_broker.formatting import (
        FormatOptions,
        format_directories,
    )
    from aiokq.core.files import OsFiles
    from aiokq.core.secure_random import SYSTEM_RANDOM
    from aiokq.fastpath import crc32c

    password = _password(directory.client_file)
    files = OsFiles()
    ids, _ = find_meta_properties(files, metadata, node_id, None, SYSTEM_RANDOM)
    format_directories(
        files,
        FormatOptions(
            node_id=ids.node_id,
            cluster_id=ids.cluster_id,
            directories=tuple(paths),
            metadata_directory=settings.metadata_log_dir,
            scram=(f"{MECHANISM}=[name={ADMIN},password={password}]",),
            ignore_formatted=bool(formatted),
        ),
        random=SYSTEM_RANDOM,
        timestamp_ms=clock.timestamp_ms(),
        crc32c=crc32c,
    )


def _password(path: str) -> str:
    text = _properties(path).get("sasl.jaas.config")
    if text is None:
        raise ConfigError(f"{path} has no sasl.jaas.config with the password of the administrator")
    options = jaas.login_module(f"{path}: sasl.jaas.config", text, (jaas.SCRAM,)).options
    password = options.get("password", "")
    if options.get("username") != ADMIN or not password or "," in password:
        raise ConfigError(
            f"{path}: sasl.jaas.config must have the user {ADMIN} and a password without a comma"
        )
    return password


def _properties(path: str) -> dict[str, str]:
    try:
        return parse_properties(_read(path).decode())
    except UnicodeDecodeError:
        raise ConfigError(f"{path} is not UTF-8") from None


def _read(path: str) -> bytes:
    descriptor, _ = open_regular(path, os.O_RDONLY)
    with open(descriptor, "rb") as file:
        return file.read()


def _write(path: str, data: bytes) -> None:
    """Replace a file atomically. From its first byte on, only the owner may read it."""
    temporary = path + TEMPORARY
    with suppress(FileNotFoundError):
        os.remove(temporary)
    descriptor, _ = open_regular(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(descriptor)
    os.replace(temporary, path)
    parent = os.open(os.path.dirname(path), os.O_RDONLY)
    try:
        os.fsync(parent)
    finally:
        os.close(parent)
