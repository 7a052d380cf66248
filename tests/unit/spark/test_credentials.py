"""PEM stores: which are read, and what messages say about the others."""

from __future__ import annotations

import ssl
import subprocess
from pathlib import Path

import pytest

from aiokq.errors import ConfigError
from aiokq.spark.credentials import tls_settings

BROKEN = "-----BEGIN CERTIFICATE-----AA-----END CERTIFICATE-----"


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """Return a key and its certificate, as text."""
    home = tmp_path_factory.mktemp("pem")
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"),
            *("-nodes", "-keyout", "key.pem", "-out", "cert.pem", "-subj", "/CN=test"),
        ],
        cwd=home,
        check=True,
        capture_output=True,
    )
    return (home / "key.pem").read_text(), (home / "cert.pem").read_text()


def test_pem_files_stay_files() -> None:
    """They are read where the client runs: the driver may not have them."""
    assert tls_settings(
        {
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": "/ca.pem",
            "ssl.keystore.type": "pem",
            "ssl.keystore.location": "/client.pem",
            "ssl.key.password": "p",
            "ssl.endpoint.identification.algorithm": "",
        }
    ) == {
        "ssl_cafile": "/ca.pem",
        "ssl_certfile": "/client.pem",
        "ssl_password": "p",
        "ssl_check_hostname": False,
    }


@pytest.mark.parametrize("kind", [None, "JKS", "PKCS12"])
@pytest.mark.parametrize(("store", "tool"), [("truststore", "-rfc"), ("keystore", "openssl")])
def test_javas_stores_are_refused_with_the_command_that_helps(
    store: str, tool: str, kind: str | None
) -> None:
    """Without a type the store is JKS, as in Kafka."""
    kafka = {f"ssl.{store}.location": "x.jks", f"ssl.{store}.password": "p"}
    if kind is not None:
        kafka[f"ssl.{store}.type"] = kind

    with pytest.raises(ConfigError, match=tool) as caught:
        tls_settings(kafka)
    assert f"kafka.ssl.{store}." in str(caught.value)


def test_a_password_of_a_pem_store_is_refused_in_kafkas_words() -> None:
    """PEM files have no password, except for the key."""
    with pytest.raises(ConfigError, match="password cannot be specified with PEM format"):
        tls_settings({"ssl.keystore.type": "PEM", "ssl.keystore.password": "p"})


def test_certificates_and_a_key_as_text_make_a_context(
    pair: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In options PEM is often one line; no file with the key remains."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    key, certificate = (text.replace("\n", " ") for text in pair)

    settings = tls_settings(
        {
            "ssl.truststore.type": "PEM",
            "ssl.truststore.certificates": certificate,
            "ssl.keystore.type": "PEM",
            "ssl.keystore.certificate.chain": certificate,
            "ssl.keystore.key": key,
        }
    )

    context = settings["ssl_context"]
    assert isinstance(context, ssl.SSLContext)
    assert context.check_hostname
    assert len(context.get_ca_certs()) == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("kafka", "text"),
    [
        ({"ssl.truststore.certificates": "hello"}, "truststore.certificates: it is not PEM"),
        ({"ssl.keystore.key": "x"}, "must be set together"),
        (
            {"ssl.truststore.certificates": BROKEN},
            "truststore.certificates",
        ),
    ],
)
def test_text_that_is_no_certificate_is_refused_by_name(kafka: dict[str, str], text: str) -> None:
    """OpenSSL's messages name no option."""
    kinds = {"ssl.truststore.type": "PEM", "ssl.keystore.type": "PEM"}

    with pytest.raises(ConfigError, match=text):
        tls_settings(kinds | kafka)


def test_only_https_and_nothing_identify_an_endpoint() -> None:
    """As in Java; a misspelt value must not switch off the check."""
    with pytest.raises(ConfigError, match=r"endpoint\.identification\.algorithm"):
        tls_settings({"ssl.endpoint.identification.algorithm": "none"})
