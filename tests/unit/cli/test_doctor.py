"""`aiokq doctor`: checks of an installation and of a cluster."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path

import pytest

from aiokq import fastpath
from aiokq.admin.clusters import BrokerDescription, ClusterDescription
from aiokq.cli.cluster_checks import ClusterChecks
from aiokq.cli.installation_checks import Check, Status, installation
from aiokq.fastpath import loading
from aiokq.wire import FetchRequest
from tests.unit.cli.harness import CommandLine


@pytest.fixture(autouse=True)
def built(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the core of this checkout appear up to date."""
    monkeypatch.setattr(fastpath, "stale", lambda: False)


def found(name: str) -> Check:
    (check,) = [check for check in installation() if check.name == name]
    return check


def test_a_sound_installation_has_no_failure(alone: CommandLine):
    """Every check is a line; JSON has the same."""
    done = alone("doctor", servers=None)
    assert all(line.split()[0] in ("ok", "warn") for line in done.lines)
    names = [check["check"] for check in alone("doctor", "--json", servers=None).json]
    assert {"python", "event loop", "core", "gzip", "snappy", "lz4", "zstd"} <= set(names)
    assert len(names) == len(done.lines)
    assert done.code == 0


def test_a_stale_core_fails(monkeypatch: pytest.MonkeyPatch, alone: CommandLine):
    """After an edit without a build, the old code runs."""
    monkeypatch.setattr(fastpath, "stale", lambda: True)
    assert found("core").status is Status.FAIL
    done = alone("doctor", servers=None)
    assert done.code == 1
    assert any(line.startswith("fail  core: ") for line in done.lines)


def test_a_core_of_which_one_unit_cannot_be_loaded_fails(
    monkeypatch: pytest.MonkeyPatch, alone: CommandLine
):
    """Regression: only the shared part was loaded, and a mixture of builds was `ok`."""
    load = loading.load

    def mixed(unit: str, compiled: bool) -> dict[str, object]:
        if unit == "broker":
            raise ImportError("aiokq's compiled core is not of one build: _compaction.so")
        return load(unit, compiled)

    monkeypatch.setattr(loading, "load", mixed)
    assert found("core").status is Status.FAIL
    assert "_compaction.so" in found("core").detail
    assert alone("doctor", servers=None).code == 1


def test_a_pure_core_warns_and_says_why(monkeypatch: pytest.MonkeyPatch):
    """The pure core is several times slower."""
    monkeypatch.setattr(fastpath, "COMPILED", False)
    monkeypatch.setattr(fastpath, "MISSING", ("it was not built", "Install gcc"))
    monkeypatch.delenv("AIOKQ_PURE", raising=False)
    assert found("core").status is Status.WARN
    assert "it was not built" in found("core").detail
    assert "gcc" in found("core").fix
    monkeypatch.setenv("AIOKQ_PURE", "1")
    assert "AIOKQ_PURE" in found("core").fix


def test_a_broken_codec_fails(monkeypatch: pytest.MonkeyPatch):
    """A codec is tried, not only imported."""

    def broken(*arguments: object) -> bytes:
        raise OSError("liblz4.so: cannot open")

    monkeypatch.setattr("aiokq.records.compression.compress", broken)
    assert found("lz4").status is Status.FAIL
    assert "liblz4" in found("lz4").detail
    monkeypatch.setattr("aiokq.records.compression.compress", lambda *arguments: b"")
    monkeypatch.setattr("aiokq.records.compression.decompress", lambda *arguments: b"")
    assert found("zstd").status is Status.FAIL


def test_what_is_missing_is_named_with_what_to_install(monkeypatch: pytest.MonkeyPatch):
    """A missing uvloop is a warning; a missing extra is not."""

    def missing(package: str) -> str:
        raise importlib.metadata.PackageNotFoundError(package)

    monkeypatch.setattr(importlib.metadata, "version", missing)
    assert found("event loop").status is Status.WARN
    assert found("pyarrow").status is Status.OK
    assert "aiokq[arrow]" in found("pyarrow").fix


def test_few_open_files_warn(monkeypatch: pytest.MonkeyPatch):
    """A broker with many partitions needs many open files."""
    monkeypatch.setattr("resource.getrlimit", lambda which: (256, 4096))
    assert found("open files").status is Status.WARN


def cluster_checks(cli: CommandLine, servers: str) -> tuple[int, list[dict[str, str]]]:
    done = cli("doctor", "--json", servers=servers)
    names = {check.name for check in installation()}
    return done.code, [check for check in done.json if check["check"] not in names]


def test_a_cluster_that_answers(cli: CommandLine):
    """The checks show address, latency, versions and metadata."""
    code, (bootstrap, metadata) = cluster_checks(cli, "127.0.0.1:9092")
    assert code == 0
    assert bootstrap["status"] == metadata["status"] == "ok"
    for part in ("127.0.0.1:9092", "connected in", "Produce ", "Fetch "):
        assert part in bootstrap["detail"]
    assert "brokers 0" in metadata["detail"]


def test_the_environment_names_the_cluster_too(cli: CommandLine, monkeypatch: pytest.MonkeyPatch):
    """KAFKA_BOOTSTRAP_SERVERS counts here as in every command."""
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", "127.0.0.1:9092")
    assert any("bootstrap" in line for line in cli("doctor", servers=None).lines)


def test_an_address_that_does_not_answer_fails_and_the_others_are_tried(cli: CommandLine):
    """Each address has a line of its own."""
    code, (refused, unknown, good, _) = cluster_checks(
        cli, "127.0.0.1:1,nowhere.example:9092,127.0.0.1:9092"
    )
    assert code == 1
    assert [c["status"] for c in (refused, unknown, good)] == ["fail", "fail", "ok"]
    assert "127.0.0.1:1: Connect" in refused["detail"]
    assert "nowhere.example" in unknown["detail"]
    assert all(c["fix"] for c in (refused, unknown))


def test_one_bad_address_of_a_name_is_a_warning(cli: CommandLine):
    """localhost is ::1 and 127.0.0.1; a broker on one of them is found."""
    cli.session.world.network.name("kafka", "10.0.0.9", "127.0.0.1")
    code, (bad, good, metadata, advertised) = cluster_checks(cli, "kafka:9092")
    assert code == 0
    assert [c["status"] for c in (bad, good, metadata, advertised)] == ["warn", "ok", "ok", "ok"]
    # The addresses that brokers advertise are tried as well.
    assert advertised["check"] == "broker 0"
    assert "127.0.0.1:9092" in advertised["detail"]


def test_nothing_that_answers_does_not_wait_for_metadata(cli: CommandLine):
    """Waiting for bootstrap_timeout_ms would find out nothing more."""
    before = cli.session.world.loop.time()
    code, (bootstrap,) = cluster_checks(cli, "127.0.0.1:1")
    assert (code, bootstrap["status"]) == (1, "fail")
    assert cli.session.world.loop.time() - before < 1


def test_a_broker_that_is_too_old_is_not_looked_for_elsewhere(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch
):
    """Regression: the host was found, but the advice was to check bootstrap_servers."""
    monkeypatch.setattr(FetchRequest, "MIN_VERSION", FetchRequest.MAX_VERSION + 1)
    monkeypatch.setattr(FetchRequest, "MAX_VERSION", FetchRequest.MAX_VERSION + 2)
    code, (bootstrap,) = cluster_checks(cli, "127.0.0.1:9092")
    assert (code, bootstrap["status"]) == (1, "fail")
    assert "of Fetch" in bootstrap["detail"]
    assert bootstrap["fix"] == "upgrade the broker or aiokq, whichever is older"


def test_the_token_is_obtained_before_the_addresses_are_tried(tmp_path: Path, cli: CommandLine):
    """If there is no token, the brokers are not the reason."""
    token = tmp_path / "token"
    config = tmp_path / "client.properties"
    config.write_text(
        "bootstrap.servers=127.0.0.1:1\nsecurity.protocol=SASL_PLAINTEXT\n"
        "sasl.mechanism=OAUTHBEARER\n"
        f"sasl.oauthbearer.token.endpoint.url={token.as_uri()}\n"
        f"sasl.oauthbearer.allowed.urls={token.as_uri()}\n"
    )
    done = cli("doctor", "--config", str(config), servers=None)
    assert done.code == 1
    (line,) = [line for line in done.lines if line.startswith("fail")]
    assert line.startswith("fail  token: ")
    assert "No such file" in line
    token.write_text("a.b.c")
    done = cli("doctor", "--config", str(config), servers=None)
    assert "ok    token: the source of SASL tokens gave a token" in done.lines
    assert any(line.startswith("fail  bootstrap: ") for line in done.lines)


@pytest.mark.parametrize(
    ("protocol", "mechanism", "host", "warns"),
    [
        ("SASL_PLAINTEXT", "PLAIN", "10.0.0.9", True),
        ("SASL_PLAINTEXT", "PLAIN", "kafka", True),
        ("SASL_PLAINTEXT", "PLAIN", "127.0.0.1", False),
        ("SASL_PLAINTEXT", "SCRAM-SHA-256", "10.0.0.9", False),
    ],
)
def test_a_password_in_clear_text_is_warned_of(
    tmp_path: Path, cli: CommandLine, protocol: str, mechanism: str, host: str, warns: bool
):
    """Kafka's clients say nothing. On this machine nobody reads it."""
    cli.session.world.network.name("kafka", "127.0.0.1", "10.0.0.9")
    config = tmp_path / "client.properties"
    config.write_text(
        f"bootstrap.servers={host}:1\nsecurity.protocol={protocol}\nsasl.mechanism={mechanism}\n"
        "sasl.plain.username=me\nsasl.plain.password=s3cret\n"
    )
    lines = cli("doctor", "--config", str(config), servers=None).lines
    found = [line for line in lines if line.startswith("warn  login: ")]
    assert len(found) == warns
    assert all("PLAIN without TLS sends the password or token to 10.0.0.9:1" in x for x in found)
    assert "s3cret" not in "".join(lines)


def test_a_password_in_clear_text_to_an_advertised_broker_is_warned_of(
    tmp_path: Path, cli: CommandLine, monkeypatch: pytest.MonkeyPatch
):
    """Regression: only bootstrap_servers counted, whose addresses are local behind a tunnel."""

    async def handshake(*given: object) -> str:
        return "connected"

    async def describe(checks: ClusterChecks) -> ClusterDescription:
        here = BrokerDescription(1, "127.0.0.1", 1, None)
        return ClusterDescription("id", 1, (here, BrokerDescription(2, "10.0.0.9", 1, None)))

    monkeypatch.setattr(ClusterChecks, "_handshake", handshake)
    monkeypatch.setattr(ClusterChecks, "_describe", describe)
    config = tmp_path / "client.properties"
    config.write_text(
        "bootstrap.servers=127.0.0.1:1\nsecurity.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        "sasl.plain.username=me\nsasl.plain.password=s3cret\n"
    )
    lines = cli("doctor", "--config", str(config), servers=None).lines
    (found,) = [line for line in lines if line.startswith("warn  login: ")]
    assert "to 10.0.0.9:1 in clear text" in found
