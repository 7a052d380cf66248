"""The directory of `aiokq broker --secure`: its files, their permissions, and later starts."""

from __future__ import annotations

import os
import re
import ssl
import stat
from pathlib import Path

import pytest

pytest.importorskip("cryptography")

from aiokq.broker import certificates, secure_directory
from aiokq.broker.config.listeners import configured_listeners
from aiokq.broker.config.settings import broker_settings
from aiokq.broker.log.meta_properties import decode_meta_properties
from aiokq.broker.options import Options
from aiokq.broker.secure_directory import SecureDirectory, format_secured, prepare
from aiokq.core.errors import ConfigError
from aiokq.core.jaas import CLIENT_MODULES, login_module
from aiokq.core.properties import format_properties, parse_properties

DAY_MS = 24 * 60 * 60 * 1000
FILES = {"ca-key.pem", "ca.pem", "broker.pem", "broker.properties", "client.properties"}


class FixedClock:
    def __init__(self, days: float = 0) -> None:
        self.now = 1_800_000_000_000 + int(days * DAY_MS)

    def monotonic(self) -> float:
        return 0.0

    def timestamp_ms(self) -> int:
        return self.now

    def thread_time(self) -> float:
        return 0.0


@pytest.fixture(autouse=True)
def wide_umask():
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.fixture
def path(tmp_path) -> Path:
    return tmp_path / "secure"


def made(path: Path, days: float = 0, **options: object) -> SecureDirectory:
    return prepare(Options(secure=str(path), **options), FixedClock(days))


def contents(path: Path) -> dict[str, bytes]:
    return {name: (path / name).read_bytes() for name in FILES}


def names_in(path: Path) -> frozenset[str]:
    text, authority = (path / "broker.pem").read_bytes(), (path / "ca.pem").read_bytes()
    return certificates.issued_certificate(text, authority).names


def test_the_first_start_makes_all_files_for_the_owner_alone(path):
    directory = made(path)
    assert {one.name for one in path.iterdir()} == FILES
    assert stat.S_IMODE(path.stat().st_mode) == 0o700
    assert {stat.S_IMODE(one.stat().st_mode) for one in path.iterdir()} == {0o600}
    assert directory.renewed


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="files have no owner")
@pytest.mark.parametrize("name", [None, "client.properties", "ca-key.pem"])
def test_what_belongs_to_another_user_is_refused(path, name, monkeypatch):
    """Its owner could read the secrets, or replace them."""
    made(path)
    foreign = str(path if name is None else path / name)
    real = os.stat

    def stat_of(file, *args, **kwargs):
        found = real(file, *args, **kwargs)
        if str(file) != foreign:
            return found
        return os.stat_result([*found[:4], found.st_uid + 1, *found[5:]])

    monkeypatch.setattr(os, "stat", stat_of)
    with pytest.raises(ConfigError, match="belongs to the user with the id") as refused:
        made(path)
    assert f"{foreign} belongs" in str(refused.value)


def test_a_later_start_changes_nothing(path):
    made(path)
    before = contents(path)
    assert not made(path).renewed
    assert contents(path) == before


@pytest.mark.parametrize("missing", ["broker.pem", "broker.properties", "client.properties"])
def test_what_is_missing_is_made_again(path, missing):
    """A start that was killed leaves no file, or a temporary one."""
    made(path)
    before = contents(path)
    os.rename(path / missing, path / f"{missing}.tmp")
    made(path)
    after = contents(path)
    assert {name for name in FILES if before[name] == after[name]} >= FILES - {missing}
    assert not (path / f"{missing}.tmp").exists()


def test_a_key_without_a_certificate_is_not_an_authority_yet(path):
    path.mkdir(0o700)
    (path / "ca-key.pem").write_text("half")
    made(path)
    assert "BEGIN PRIVATE KEY" in (path / "ca-key.pem").read_text()


def test_the_settings_are_those_of_a_broker_with_tls_and_logins(path):
    directory = made(path)
    values = parse_properties((path / "broker.properties").read_text())
    settings = broker_settings(dict(values))
    assert settings.without_effect == ()
    assert settings.super_users == "User:admin"
    listeners = configured_listeners(settings)
    assert listeners.protocol("SASL_SSL") == "SASL_SSL"
    security = listeners.security["SASL_SSL"]
    assert security.mechanisms == ("SCRAM-SHA-512",)
    assert security.value("ssl.keystore.location") == f"{path}/broker.pem"
    assert directory.broker_file == f"{path}/broker.properties"


def test_the_client_file_has_a_password_that_is_not_printed(path):
    directory = made(path)
    values = parse_properties(Path(directory.client_file).read_text())
    login = login_module("sasl.jaas.config", values["sasl.jaas.config"], CLIENT_MODULES)
    password = login.options["password"]
    assert re.fullmatch(r"[\w-]{32}", password)
    assert values["ssl.truststore.location"] == directory.authority_file
    assert password not in (path / "broker.properties").read_text()
    summary = directory.summary("localhost:9092")
    assert len(summary.splitlines()) == 3
    assert password not in summary + repr(directory)


def test_passwords_and_keys_differ_between_directories(path, tmp_path):
    made(path)
    made(tmp_path / "other")
    one, other = contents(path), contents(tmp_path / "other")
    assert not any(one[name] == other[name] for name in FILES - {"broker.properties"})


def test_the_address_is_written_for_clients_and_nothing_else_changes(path):
    directory = made(path)
    before = parse_properties(Path(directory.client_file).read_text())
    directory.advertise("kafka.example.com:9093")
    after = parse_properties(Path(directory.client_file).read_text())
    assert after == {**before, "bootstrap.servers": "kafka.example.com:9093"}
    assert stat.S_IMODE(os.stat(directory.client_file).st_mode) == 0o600


def test_the_certificate_is_trusted_by_the_name_of_the_host(path):
    made(path, host="0.0.0.0", advertise="kafka.example.com:9092")
    assert {"localhost", "127.0.0.1", "::1", "kafka.example.com"} <= names_in(path)
    assert "0.0.0.0" not in names_in(path)
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(path / "broker.pem")
    ssl.create_default_context(cafile=path / "ca.pem")


@pytest.mark.parametrize(
    ("advertise", "name"),
    [
        ("kafka-1.example.com", "kafka-1.example.com"),
        ("[2001:DB8::1]:9092", "2001:db8::1"),
        ("[2001:db8::2]", "2001:db8::2"),
        ("192.0.2.7:1", "192.0.2.7"),
    ],
)
def test_an_advertised_name_is_in_the_certificate(path, advertise, name):
    made(path, advertise=advertise)
    assert name in names_in(path)


def test_a_new_name_gets_a_new_certificate_that_keeps_the_others(path):
    made(path, advertise="one.example.com")
    assert made(path, advertise="two.example.com").renewed
    assert {"one.example.com", "two.example.com"} <= names_in(path)
    assert not made(path).renewed


def test_names_in_the_settings_are_in_the_certificate(path):
    made(path)
    file = path / "broker.properties"
    values = parse_properties(file.read_text())
    values["advertised.listeners"] = "SASL_SSL://three.example.com:9092"
    file.write_text(format_properties(values))
    assert made(path).renewed
    assert "three.example.com" in names_in(path)


@pytest.mark.parametrize(("days", "renewed"), [(59, False), (61, True), (200, True)])
def test_the_certificate_is_renewed_thirty_days_before_its_end(path, days, renewed):
    made(path)
    authority = (path / "ca.pem").read_bytes()
    assert made(path, days).renewed == renewed
    assert (path / "ca.pem").read_bytes() == authority


def test_renewal_on_demand(path):
    made(path)
    before = contents(path)
    assert made(path, renew=True).renewed
    after = contents(path)
    assert {name for name in FILES if before[name] != after[name]} == {"broker.pem"}


def test_a_certificate_of_another_authority_is_replaced(path, tmp_path):
    made(path)
    made(tmp_path / "other")
    (path / "broker.pem").write_bytes((tmp_path / "other" / "broker.pem").read_bytes())
    assert made(path).renewed


def test_the_key_of_the_authority_is_needed_only_to_issue(path):
    """It may be kept elsewhere."""
    made(path)
    (path / "ca-key.pem").unlink()
    assert not made(path).renewed
    with pytest.raises(ConfigError, match=r"ca-key\.pem is missing"):
        made(path, renew=True)


def test_the_key_of_another_authority_is_refused(path, tmp_path):
    made(path)
    made(tmp_path / "other")
    (path / "ca-key.pem").write_bytes((tmp_path / "other" / "ca-key.pem").read_bytes())
    with pytest.raises(ConfigError, match="does not belong to its certificate"):
        made(path, renew=True)


def test_a_directory_of_others_is_left_alone(path):
    path.mkdir()
    (path / "thesis.tex").write_text("x")
    with pytest.raises(ConfigError, match="other files"):
        made(path)
    assert [one.name for one in path.iterdir()] == ["thesis.tex"]


def test_a_file_is_not_a_directory(path):
    path.write_text("x")
    with pytest.raises(ConfigError, match="not a directory"):
        made(path)


def test_an_empty_directory_becomes_private_and_an_open_one_is_refused(path):
    path.mkdir(0o755)
    made(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o700
    path.chmod(0o750)
    with pytest.raises(ConfigError, match="chmod 700"):
        made(path)


def test_a_missing_parent_is_named(tmp_path):
    with pytest.raises(ConfigError, match="No such file"):
        made(tmp_path / "missing" / "secure")


def test_files_that_cannot_be_read_are_named(path):
    made(path)
    (path / "broker.pem").write_text("no certificate")
    with pytest.raises(ConfigError, match=r"broker\.pem cannot be read"):
        made(path)


@pytest.mark.parametrize("options", [{"config": "x"}, {"data_dirs": ("x",)}])
def test_other_sources_of_settings_are_refused(path, options):
    with pytest.raises(ConfigError, match="exclude each other"):
        made(path, **options)
    assert not path.exists()


def test_without_cryptography_the_error_says_what_to_install(path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "aiokq.broker.certificates", None)
    monkeypatch.delattr("aiokq.broker.certificates", raising=False)
    with pytest.raises(ConfigError, match="pip install"):
        made(path)


def test_the_log_directory_is_formatted_once_with_the_administrator(path):
    directory = made(path)
    settings = broker_settings(dict(parse_properties((path / "broker.properties").read_text())))
    format_secured(directory, settings, None, FixedClock())
    meta = path / "data" / "meta.properties"
    before = meta.read_bytes()
    assert b"admin" in (path / "data" / "bootstrap.checkpoint").read_bytes()
    format_secured(directory, settings, None, FixedClock())
    assert meta.read_bytes() == before


def test_log_directories_that_a_killed_start_has_not_formatted_are_formatted(path):
    """Regression: their new cluster id was another one, so that no later start succeeded."""
    directory = made(path)
    values = dict(parse_properties((path / "broker.properties").read_text()))
    first, second = path / "data", path / "second"
    format_secured(directory, broker_settings(values), None, FixedClock())
    both = broker_settings({**values, "log.dirs": f"{first},{second}"})
    format_secured(directory, both, None, FixedClock())
    ids = [
        decode_meta_properties((each / "meta.properties").read_bytes(), str(each))
        for each in (first, second)
    ]
    assert ids[0].cluster_id == ids[1].cluster_id
    assert ids[0].directory_id != ids[1].directory_id

    (first / "meta.properties").unlink()
    with pytest.raises(ConfigError, match="metadata log"):
        format_secured(directory, both, None, FixedClock())


@pytest.mark.parametrize(
    "login",
    [
        None,
        "nonsense",
        'org.apache.kafka.common.security.scram.ScramLoginModule required username="x" '
        'password="s3cr3t";',
        'org.apache.kafka.common.security.scram.ScramLoginModule required username="admin" '
        'password="s3cr3t,";',
    ],
)
def test_a_client_file_without_the_login_is_named_without_its_password(path, login):
    directory = made(path)
    values = parse_properties(Path(directory.client_file).read_text())
    values.pop("sasl.jaas.config")
    if login is not None:
        values["sasl.jaas.config"] = login
    Path(directory.client_file).write_text(format_properties(values))
    with pytest.raises(ConfigError, match=r"client\.properties") as caught:
        format_secured(
            directory,
            broker_settings(dict(parse_properties((path / "broker.properties").read_text()))),
            None,
            FixedClock(),
        )
    assert "s3cr3t" not in str(caught.value)


def test_nothing_is_written_outside_of_the_directory(path, tmp_path, monkeypatch):
    """A key in /tmp could be read by others."""
    written: list[str] = []
    real = secure_directory.open_regular

    def noted(name: str, flags: int, mode: int = 0o644) -> tuple[int, os.stat_result]:
        if flags & os.O_CREAT:
            written.append(os.fspath(name))
            assert mode == 0o600
            assert flags & os.O_EXCL
        return real(name, flags, mode)

    monkeypatch.setattr(secure_directory, "open_regular", noted)
    made(path)
    assert len(written) == len(FILES)
    assert all(Path(name).parent == path for name in written)
