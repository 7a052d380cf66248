"""Conversion of the PEM stores of Java clients to settings of this client.

If a certificate or key is given as text, an SSL context is created here. A key given as text is
briefly written to a temporary file, because Python loads keys from files only. Stores in other
formats than PEM are refused; the error says how to convert them.
"""

from __future__ import annotations

import os
import re
import ssl
import tempfile
from collections.abc import Mapping
from typing import Final

from aiokq.errors import ConfigError

__all__ = ["tls_settings"]

_PEM: Final = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----(.*?)-----END \1-----", re.S)

NO_PASSWORD: Final = "SSL {} store password cannot be specified with PEM format"
"""Message of Kafka's `DefaultSslEngineFactory`; the placeholder is "trust" or "key"."""
TRUST_REMEDY: Final = (
    "export its certificates, `keytool -exportcert -rfc -alias NAME -keystore STORE > ca.pem`, and "
    "set kafka.ssl.truststore.type=PEM and kafka.ssl.truststore.location=ca.pem"
)
KEY_REMEDY: Final = (
    "convert it, `keytool -importkeystore -srckeystore STORE -destkeystore client.p12 "
    "-deststoretype PKCS12` and `openssl pkcs12 -in client.p12 -out client.pem`, and set "
    "kafka.ssl.keystore.type=PEM and kafka.ssl.keystore.location=client.pem"
)


def tls_settings(kafka: Mapping[str, str]) -> dict[str, object]:
    """Return the settings for ``ssl.truststore.*``, ``ssl.keystore.*`` and ``ssl.endpoint.*``.

    PEM files are passed on as paths. But if a certificate or key is given as text, all certificates
    and keys are loaded into an SSL context.

    Raises:
        ConfigError: a store or a text is not PEM; a certificate or key cannot be loaded; a store
            password is given; only one of key and certificate chain is given as text; or
            ``ssl.endpoint.identification.algorithm`` is neither ``https`` nor empty.
    """
    check_hostname = _checks_hostname(kafka)
    _check_store(kafka, "truststore", "trust", TRUST_REMEDY)
    _check_store(kafka, "keystore", "key", KEY_REMEDY)
    chain, key = (kafka.get(f"ssl.keystore.{part}") for part in ("certificate.chain", "key"))
    if (chain is None) != (key is None):
        raise ConfigError(
            "options kafka.ssl.keystore.certificate.chain and kafka.ssl.keystore.key must be set "
            "together"
        )
    trusted = kafka.get("ssl.truststore.certificates")
    if trusted is not None or chain is not None:
        return {"ssl_context": _context(kafka, check_hostname)}
    settings: dict[str, object] = {
        setting: kafka[name]
        for name, setting in (
            ("ssl.truststore.location", "ssl_cafile"),
            ("ssl.keystore.location", "ssl_certfile"),
            ("ssl.key.password", "ssl_password"),
        )
        if name in kafka
    }
    if not check_hostname:
        settings["ssl_check_hostname"] = False
    return settings


def _checks_hostname(kafka: Mapping[str, str]) -> bool:
    algorithm = kafka.get("ssl.endpoint.identification.algorithm", "https").strip().lower()
    if algorithm not in {"", "https"}:
        raise ConfigError(
            f"option kafka.ssl.endpoint.identification.algorithm: {algorithm!r} is neither 'https' "
            "nor empty (no check of the host name)"
        )
    return algorithm == "https"


def _check_store(kafka: Mapping[str, str], store: str, word: str, remedy: str) -> None:
    given = sorted(name for name in kafka if name.startswith(f"ssl.{store}."))
    if not given:
        return
    kind = kafka.get(f"ssl.{store}.type", "JKS").upper()
    if kind != "PEM":
        raise ConfigError(
            f"option kafka.{given[0]}: Java's key stores ({kind}) cannot be read: {remedy}"
        )
    if f"ssl.{store}.password" in kafka:
        also = ", only key password may be specified" if store == "keystore" else ""
        raise ConfigError(f"option kafka.ssl.{store}.password: {NO_PASSWORD.format(word)}{also}.")


def _context(kafka: Mapping[str, str], check_hostname: bool) -> ssl.SSLContext:
    trusted = kafka.get("ssl.truststore.certificates")
    location = kafka.get("ssl.truststore.location")
    option = "kafka.ssl.truststore." + ("location" if trusted is None else "certificates")
    try:
        context = ssl.create_default_context(
            cafile=location, cadata=None if trusted is None else _pem(trusted, option)
        )
        context.check_hostname = check_hostname
        option = "kafka.ssl.keystore.location"
        certificates = kafka.get(option.removeprefix("kafka."))
        chain, key = kafka.get("ssl.keystore.certificate.chain"), kafka.get("ssl.keystore.key")
        password = kafka.get("ssl.key.password", "")
        if chain is not None and key is not None:
            option = "kafka.ssl.keystore.key"
            text = _pem(key, option) + _pem(chain, "kafka.ssl.keystore.certificate.chain")
            _load_chain(context, text, password)
        elif certificates is not None:
            context.load_cert_chain(certificates, password=password)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"option {option}: {error}") from error
    return context


def _load_chain(context: ssl.SSLContext, text: str, password: str) -> None:
    """Load a key and its certificates from a temporary file that only this user can read."""
    handle, path = tempfile.mkstemp(suffix=".pem")
    try:
        with open(handle, "w", encoding="ascii") as file:
            file.write(text)
        context.load_cert_chain(path, password=password)
    finally:
        os.unlink(path)


def _pem(text: str, option: str) -> str:
    """Return PEM text with line breaks; options often have spaces or ``\\n`` in their place."""
    blocks = _PEM.findall(text.replace("\\n", "\n"))
    if not blocks:
        raise ConfigError(f"option {option}: it is not PEM: no '-----BEGIN ...-----'")
    lines = []
    for kind, body in blocks:
        packed = "".join(body.split())
        lines.append(f"-----BEGIN {kind}-----")
        lines += [packed[at : at + 64] for at in range(0, len(packed), 64)]
        lines.append(f"-----END {kind}-----")
    return "\n".join(lines) + "\n"
