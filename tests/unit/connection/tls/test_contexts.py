"""Contexts from stores and rules, by Kafka's names; errors say which setting to change."""

from __future__ import annotations

import logging
import ssl
from pathlib import Path
from typing import Any

import pytest

from aiokq.connection.tls import stores
from aiokq.connection.tls.contexts import Made, client_context, server_context
from aiokq.connection.tls.tls_settings import TlsSettings
from aiokq.core.errors import ConfigError
from tests.peers.pki import Identity, Pki

PKI = Pki(intermediate=True)
NODE = PKI.issue()
ALICE = PKI.issue("alice", "alice.example")


def server(**changes: object) -> Made:
    settings: dict[str, object] = {
        "keystore_type": "PEM",
        "keystore_key": NODE.key,
        "keystore_certificate_chain": NODE.chain,
        **changes,
    }
    return server_context(TlsSettings(**settings))  # type: ignore[arg-type]


def client(**changes: object) -> Made:
    settings: dict[str, object] = {
        "truststore_type": "PEM",
        "truststore_certificates": PKI.trusted,
        **changes,
    }
    return client_context(TlsSettings(**settings))  # type: ignore[arg-type]


def handshake(
    ours: ssl.SSLContext, theirs: ssl.SSLContext, hostname: str = "localhost"
) -> tuple[ssl.SSLObject, ssl.SSLObject]:
    """Connect a client context and a server context; return both ends."""
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    near = ours.wrap_bio(back, there, server_hostname=hostname)
    far = theirs.wrap_bio(there, back, server_side=True)
    for _ in range(3):
        for end in (near, far):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                pass
    try:
        near.read(1)  # TLS 1.3: the server's opinion of our certificate
    except ssl.SSLWantReadError:
        pass
    return near, far


# -- stores


@pytest.mark.parametrize("form", ["text", "file", "encrypted file", "two files", "pkcs12", "jks"])
def test_each_form_of_a_key_store_gives_the_same_chain(form: str, tmp_path: Path) -> None:
    """A client that trusts only the root needs the authority between them."""
    password = "s t\"o're"
    files = {
        "file": NODE.chain + NODE.key,
        "encrypted file": NODE.encrypted_key(password) + NODE.chain,
        "two files": NODE.chain,
    }
    path = tmp_path / "store"
    settings: dict[str, object] = {"keystore_key": None, "keystore_certificate_chain": None}
    if form in files:
        path.write_text(files[form])
        settings |= {"keystore_location": str(path)}
    if form == "two files":
        (tmp_path / "key").write_text(NODE.key)
        settings |= {"key_location": str(tmp_path / "key")}
    if form == "encrypted file":
        settings |= {"key_password": password}
    if form in ("pkcs12", "jks"):  # keytool of Java 9 and later writes PKCS12 for both
        path.write_bytes(NODE.pkcs12(password))
        settings |= {
            "keystore_type": form.upper(),
            "keystore_location": str(path),
            "keystore_password": password,
        }
    made = server(**({} if form == "text" else settings))
    assert made.material is not None
    assert made.material.certificates[0] == NODE.der
    assert len(made.material.certificates) == 2
    near, _ = handshake(client().context, made.context)
    assert near.version() == "TLSv1.3"


def test_a_trust_store_may_be_pkcs12(tmp_path: Path) -> None:
    """As keytool writes it: certificates without keys."""
    path = tmp_path / "trust.p12"
    path.write_bytes(PKI.trust_store("changeit"))
    made = client_context(
        TlsSettings(truststore_location=str(path), truststore_password="changeit")
    )
    handshake(made.context, server().context)


@pytest.mark.parametrize("magic", ["feedfeed", "cececece"])
@pytest.mark.parametrize("store", ["keystore", "truststore"])
def test_a_true_jks_store_is_refused_with_the_command_that_converts_it(
    magic: str, store: str, tmp_path: Path
) -> None:
    """Java 8 wrote it; no library that is kept up reads it."""
    path = tmp_path / "my store.jks"
    path.write_bytes(bytes.fromhex(magic) + b"\0\0\0\x02")
    settings = TlsSettings(
        **{f"{store}_location": str(path), f"{store}_password": "p"},  # type: ignore[arg-type]
        spelled=lambda name: f"kafka.{name}",
    )
    with pytest.raises(ConfigError) as caught:
        client_context(settings)
    message = caught.value.message
    assert f"keytool -importkeystore -srckeystore '{path}'" in message
    assert f"kafka.ssl.{store}.type=PKCS12" in message
    assert "p.p" not in message


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"keystore_location": "a"}, "ssl.keystore.location: it needs ssl.keystore.password"),
        ({"keystore_password": "a"}, "ssl.keystore.password: it needs ssl.keystore.location"),
        ({"truststore_password": "a"}, "ssl.truststore.password: it needs ssl.truststore.location"),
        ({"keystore_key": "a"}, "ssl.keystore.key: it needs ssl.keystore.type=PEM"),
        ({"truststore_certificates": "a"}, "it needs ssl.truststore.type=PEM"),
        (
            {"keystore_type": "PEM", "keystore_key": "a"},
            "ssl.keystore.key: it needs ssl.keystore.certificate.chain, which is not set",
        ),
        (
            {"keystore_type": "PEM", "keystore_certificate_chain": "a"},
            "ssl.keystore.certificate.chain: it needs ssl.keystore.key, which is not set",
        ),
        (
            {
                "keystore_type": "PEM",
                "keystore_certificate_chain": "a",
                "keystore_key": "b",
                "keystore_location": "c",
            },
            "exclude each other",
        ),
        (
            {"keystore_type": "PEM", "keystore_location": "a", "keystore_password": "b"},
            "PEM has no store password; a key has ssl.key.password",
        ),
        (
            {"truststore_type": "PEM", "truststore_location": "a", "truststore_password": "b"},
            "PEM has no store password",
        ),
        ({"keystore_type": "BKS"}, "'BKS' is not one of JKS, PKCS12, PEM"),
        ({"client_auth": "want"}, "'want' is not one of none, requested, required"),
        ({"endpoint_identification_algorithm": "none"}, "neither 'https' nor empty"),
        ({"protocol": "SSLv3"}, "'SSLv3' is not one of TLS, TLSv1.2, TLSv1.3"),
        ({"enabled_protocols": ["TLSv1.4"]}, "'TLSv1.4' is not one of"),
        ({"enabled_protocols": ["TLSv1.1"]}, "enable one of TLSv1.2, TLSv1.3"),
        ({"cipher_suites": ["TLS_NULL"]}, "not a cipher suite that OpenSSL has"),
        ({"cipher_suites": ["ECDHE-RSA-AES128-NULL"]}, "none of the suites"),
        (
            {"cipher_suites": ["TLS_AES_128_GCM_SHA256"], "enabled_protocols": ["TLSv1.2"]},
            "ssl.cipher.suites",
        ),
        (
            {"truststore_type": "PEM", "truststore_location": "/nowhere/ca"},
            "ssl.truststore.location: '/nowhere/ca': No such file",
        ),
        (
            {"keystore_type": "PEM", "keystore_location": "/nowhere/k"},
            "ssl.keystore.location: '/nowhere/k': No such file",
        ),
    ],
)
def test_settings_that_cannot_be_used_are_named(settings: dict[str, Any], reason: str) -> None:
    """The rules are those of Kafka's DefaultSslEngineFactory."""
    with pytest.raises(ConfigError) as caught:
        client_context(TlsSettings(**settings))
    assert reason in caught.value.message


def test_a_file_without_end_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores, "_MAX_BYTES", 1000)
    with pytest.raises(ConfigError, match="has more than 1,000 bytes"):
        client_context(TlsSettings(truststore_type="PEM", truststore_location="/dev/zero"))


def test_a_key_that_cannot_be_used_says_why(tmp_path: Path) -> None:
    """OpenSSL's own messages name neither file nor setting, and it would ask on the terminal."""
    other = Pki().issue()
    for changes, reason in (
        ({"keystore_key": other.key}, "not the key of the first certificate"),
        ({"keystore_key": NODE.encrypted_key("p")}, "is encrypted: set ssl.key.password"),
        (
            {"keystore_key": NODE.encrypted_key("p"), "key_password": "q"},
            "cannot be decrypted with ssl.key.password",
        ),
        ({"keystore_certificate_chain": NODE.chain[:200]}, "cut off"),
        ({"keystore_key": "hello"}, "has no '-----BEGIN PRIVATE KEY-----'"),
    ):
        with pytest.raises(ConfigError) as caught:
            server(**changes)
        assert reason in caught.value.message
        assert "ssl.keystore" in caught.value.message
    path = tmp_path / "store"
    path.write_bytes(NODE.pkcs12("right"))
    with pytest.raises(ConfigError, match=r"PKCS12 with ssl\.keystore\.password"):
        server_context(TlsSettings(keystore_location=str(path), keystore_password="wrong"))
    path.write_text(NODE.key + NODE.chain)
    with pytest.raises(ConfigError, match=r"is PEM: set ssl\.keystore\.type=PEM"):
        server_context(TlsSettings(keystore_location=str(path), keystore_password="wrong"))


def test_no_secret_is_in_a_repr() -> None:
    """Settings are logged."""
    settings = TlsSettings(
        keystore_key=NODE.key,
        keystore_password="hunter2",
        key_password="hunter2",
        truststore_password="hunter2",
    )
    assert "hunter2" not in repr(settings)
    assert "PRIVATE KEY" not in repr(settings) + repr(server())


def test_values_by_kafkas_names_may_be_text() -> None:
    """From a properties file all values are."""
    settings = TlsSettings.from_kafka(
        {
            "ssl.keystore.type": "PEM",
            "ssl.enabled.protocols": "TLSv1.2, TLSv1.3",
            "ssl.cipher.suites": "",
            "ssl.allow.dn.changes": "true",
            "ssl.key.password": None,
            "ssl.provider": "SunJSSE",
        }
    )
    assert settings.enabled_protocols == ("TLSv1.2", "TLSv1.3")
    assert settings.cipher_suites == ()
    assert settings.allow_dn_changes is True
    assert settings.key_password is None


# -- versions and suites


@pytest.mark.parametrize(
    ("suites", "version", "cipher"),
    [
        ([], "TLSv1.3", None),
        (["TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"], "TLSv1.2", "ECDHE-ECDSA-AES128-GCM-SHA256"),
        (
            ["TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256"],
            "TLSv1.2",
            "ECDHE-ECDSA-CHACHA20-POLY1305",
        ),
        (
            ["TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA384"],
            "TLSv1.2",
            "ECDHE-ECDSA-AES256-SHA384",
        ),
        (["ECDHE-ECDSA-AES256-GCM-SHA384"], "TLSv1.2", "ECDHE-ECDSA-AES256-GCM-SHA384"),
        (
            [
                "TLS_AES_256_GCM_SHA384",
                "TLS_CHACHA20_POLY1305_SHA256",
                "TLS_AES_128_GCM_SHA256",
            ],
            "TLSv1.3",
            None,
        ),
    ],
)
def test_the_named_suites_are_used_and_no_others(
    suites: list[str], version: str, cipher: str | None
) -> None:
    """A version without a suite is off, as in Java."""
    near, _ = handshake(client().context, server(cipher_suites=suites).context)
    assert near.version() == version
    used = near.cipher()
    assert used is not None
    assert cipher in (None, used[0])


@pytest.mark.skipif(hasattr(ssl.SSLContext, "set_ciphersuites"), reason="can choose")
def test_a_choice_of_tls_13_suites_that_cannot_be_made_is_refused() -> None:
    """A setting has its effect or is refused."""
    with pytest.raises(ConfigError, match="name all of"):
        server(cipher_suites=["TLS_AES_128_GCM_SHA256"])


def test_only_enabled_versions_connect(caplog: pytest.LogCaptureFixture) -> None:
    """Old names are common in old files; Java 17 keeps such versions off, too."""
    with caplog.at_level(logging.WARNING):
        old = client(enabled_protocols=["TLSv1", "TLSv1.1", "TLSv1.2"])
    assert "TLSv1, TLSv1.1 is insecure" in caplog.text
    near, _ = handshake(old.context, server().context)
    assert near.version() == "TLSv1.2"
    with pytest.raises(ssl.SSLError, match=r"(?i)version|protocol"):
        handshake(old.context, server(enabled_protocols=["TLSv1.3"]).context)


def test_without_enabled_versions_the_protocol_is_the_newest() -> None:
    """As Java's default for an SSLContext."""
    near, _ = handshake(client(enabled_protocols=(), protocol="TLSv1.2").context, server().context)
    assert near.version() == "TLSv1.2"


def test_no_common_suite_fails_the_handshake() -> None:
    """SslTransportLayerTest.testUnsupportedCiphers."""
    near = client(cipher_suites=["TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"])
    far = server(cipher_suites=["TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"])
    with pytest.raises(ssl.SSLError, match=r"(?i)no shared cipher|handshake failure"):
        handshake(near.context, far.context)


# -- names and client certificates: the scenarios of SslTransportLayerTest


@pytest.mark.parametrize(
    ("names", "hostname", "algorithm", "accepted"),
    [
        (("localhost",), "localhost", "https", True),
        (("*.example.com",), "a.example.com", "https", True),
        (("127.0.0.1",), "127.0.0.1", "https", True),
        (("::1",), "::1", "https", True),
        (("localhost",), "127.0.0.1", "https", False),
        (("other",), "localhost", "https", False),
        (("other",), "localhost", "HTTPS", False),
        (("other",), "localhost", "", True),
        (("other",), "localhost", "  ", True),
    ],
)
def test_the_host_name_is_checked_unless_turned_off(
    names: tuple[str, ...], hostname: str, algorithm: str, accepted: bool
) -> None:
    """The common name alone does not count, as RFC 2818 has it since 2000."""
    node = PKI.issue("localhost", *names)
    far = server(keystore_key=node.key, keystore_certificate_chain=node.chain).context
    near = client(endpoint_identification_algorithm=algorithm).context
    if accepted:
        handshake(near, far, hostname)
    else:
        with pytest.raises(ssl.SSLCertVerificationError, match="mismatch"):
            handshake(near, far, hostname)


@pytest.mark.parametrize("auth", ["none", "requested", "required"])
@pytest.mark.parametrize("certificate", ["none", "good", "untrusted", "expired"])
def test_client_certificates_count_as_the_listener_says(auth: str, certificate: str) -> None:
    """With `requested`, none is as good as a good one, and an untrusted one is an error."""
    identity: Identity | None = {
        "none": None,
        "good": ALICE,
        "untrusted": Pki("stranger").issue("alice"),
        "expired": PKI.issue("alice", days=-1),
    }[certificate]
    store = {}
    if identity is not None:
        store = {
            "keystore_type": "PEM",
            "keystore_key": identity.key,
            "keystore_certificate_chain": identity.chain,
        }
    trust = {"truststore_type": "PEM", "truststore_certificates": PKI.trusted}
    far = server(client_auth=auth, **trust).context
    near = client(**store).context
    good = {"none": True, "requested": certificate in ("none", "good")}
    if good.get(auth, certificate == "good"):
        _, peer = handshake(near, far)
        expected = ALICE.der if certificate == "good" and auth != "none" else None
        assert peer.getpeercert(binary_form=True) == expected
    else:
        with pytest.raises(ssl.SSLError):
            handshake(near, far)


def test_a_listener_that_asks_for_certificates_needs_a_trust_store() -> None:
    """Kafka trusts all public authorities then: everybody with a web server could log in."""
    with pytest.raises(ConfigError, match=r"ssl\.client\.auth: 'required' needs"):
        server(client_auth="required")


def test_a_listener_needs_a_key_store() -> None:
    """Otherwise every handshake would fail."""
    with pytest.raises(ConfigError, match=r"ssl\.keystore\.location: a listener with TLS"):
        server_context(TlsSettings())


def test_a_trusted_authority_need_not_be_a_root() -> None:
    """Java takes each certificate of a trust store for an anchor."""
    between = NODE.certificates[1]
    from cryptography.hazmat.primitives.serialization import Encoding

    trusted = between.public_bytes(Encoding.PEM).decode()
    handshake(client(truststore_certificates=trusted).context, server().context)


def test_renegotiation_is_off() -> None:
    """A client could make the server compute without end."""
    assert server().context.options & ssl.OP_NO_RENEGOTIATION
