"""What Spark shows of options that are secrets: plans, pages, event logs, checkpoints, logs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

pytest.importorskip("cryptography")

from aiokq import EmbeddedCluster
from tests.peers.pki import Pki
from tests.spark.conftest import ROOT, why_absent

PASSWORD = "MARK-of-the-password"
WRONG = "MARK-of-a-wrong-password"
SECRETS = {
    "kafka.sasl.oauthbearer.client.credentials.client.secret": "MARK-of-a-client",
    "kafka.sasl.oauthbearer.assertion.private.key.passphrase": "MARK-of-a-passphrase",
    "kafka.ssl.keystore.password": "MARK-of-a-store",
    "kafka.ssl.truststore.password": "MARK-of-a-trust-store",
    "kafka.ssl.key.password": "MARK-of-a-key",
    "kafka.sasl_plain_password": "MARK-of-a-plain-password",
}
"""Further options that are secrets; they do not work together, so the frame is not read."""


class Secured(NamedTuple):
    """A broker that demands a certificate and a password, and the options of a client."""

    options: dict[str, str]
    key: str


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    reason = why_absent()
    if reason is not None:
        pytest.skip(f"SPARK IS NOT TESTED: {reason}")
    directory = tmp_path_factory.mktemp("broker")
    pki = Pki()
    (directory / "authority.pem").write_text(pki.trusted)
    store = pki.issue("node", "localhost", "127.0.0.1").write(directory, "node")
    client = pki.issue("client", uses_rsa=True)
    settings = {
        "listeners": "SASL_SSL://127.0.0.1:0",
        "inter.broker.listener.name": "SASL_SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(store),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(directory / "authority.pem"),
        "ssl.client.auth": "required",
        "connection.failed.authentication.delay.ms": "10",
    }
    with EmbeddedCluster(settings=settings, users={"anna": PASSWORD}) as kafka:
        yield Secured(
            {
                "kafka.bootstrap.servers": kafka.bootstrap_servers,
                "kafka.security.protocol": "SASL_SSL",
                "kafka.sasl.mechanism": "SCRAM-SHA-256",
                "kafka.sasl.jaas.config": jaas(PASSWORD),
                "kafka.ssl.truststore.type": "PEM",
                "kafka.ssl.truststore.certificates": pki.trusted,
                "kafka.ssl.keystore.type": "PEM",
                "kafka.ssl.keystore.key": client.key,
                "kafka.ssl.keystore.certificate.chain": client.chain,
                "kafka.bootstrap.timeout.ms": "10000",
            },
            client.key,
        )


def jaas(password: str) -> str:
    return (
        "org.apache.kafka.common.security.scram.ScramLoginModule required "
        f'username="anna" password="{password}";'
    )


def shown(secured: Secured, home: Path, *, register: bool) -> dict[str, str]:
    """Run the driver; return the text of each file and of each output, by its name."""
    order = {
        "options": secured.options,
        "wrong": {"kafka.sasl.jaas.config": jaas(WRONG)},
        "hidden": SECRETS,
        "register": register,
    }
    for attempt in range(5):
        place = home / str(attempt)
        place.mkdir()
        order |= {"home": str(place), "topic": f"secrets-{register}-{attempt}"}
        done = subprocess.run(
            [sys.executable, "-m", "tests.spark.secrets_shown", json.dumps(order)],
            env={
                **os.environ,
                "PYTHONPATH": str(ROOT),
                "PYSPARK_PYTHON": sys.executable,
                "SPARK_LOCAL_IP": "127.0.0.1",
            },
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=500,
        )
        # Spark gives a Python process of a stream ten seconds to start, on a busy machine too.
        if "Python worker failed to connect back" not in done.stderr or not done.returncode:
            break
    assert done.returncode == 0, done.stderr[-4000:]
    found = {"stdout": done.stdout, "stderr": done.stderr}
    for kind in ("plans", "pages", "events", "checkpoint", "failed"):
        files = [path for path in (place / kind).rglob("*") if path.is_file()]
        assert files, kind
        for path in files:
            found[str(path.relative_to(place))] = path.read_bytes().decode(errors="replace")
    return found


def leaks(found: dict[str, str], secured: Secured) -> dict[str, set[str]]:
    """Return the marks that are shown, with the places where they are."""
    marks = {PASSWORD, WRONG, *SECRETS.values()}
    lines = [line for line in secured.key.splitlines() if not line.startswith("-----")]
    seen: dict[str, set[str]] = {}
    for place, text in found.items():
        for mark in marks:
            if mark in text:
                seen.setdefault(mark, set()).add(place)
        if any(line in text for line in lines):
            seen.setdefault("private key", set()).add(place)
    return seen


def test_a_registered_source_shows_no_secret(secured: Secured, tmp_path: Path) -> None:
    """Nor do failed logins, in the driver, in a task and in a stream."""
    found = shown(secured, tmp_path, register=True)
    plans = "".join(text for place, text in found.items() if place.startswith("plans"))
    assert "credentials" in plans  # the failures are in the plans' directory
    assert leaks(found, secured) == {}


@pytest.mark.full
def test_without_registration_spark_may_show_a_key_and_it_is_warned_of(
    secured: Secured, tmp_path: Path
) -> None:
    """Spark's own patterns hide passwords, and know neither keys nor passphrases."""
    found = shown(secured, tmp_path, register=False)
    assert leaks(found, secured).keys() <= {
        "private key",
        SECRETS["kafka.sasl.oauthbearer.assertion.private.key.passphrase"],
    }
    assert "may show the value of kafka.ssl.keystore.key" in found["stderr"]
