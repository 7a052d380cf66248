"""`TlsSettings`: Kafka's `ssl.*` settings, for clients, Spark and the broker."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Final

from aiokq.core.errors import ConfigError
from aiokq.core.frozen import frozen

__all__ = ["CLIENT_AUTH", "STORE_TYPES", "TlsSettings"]

STORE_TYPES: Final = ("JKS", "PKCS12", "PEM")
CLIENT_AUTH: Final = ("none", "requested", "required")


def _as_it_is(name: str) -> str:
    return name


@frozen
class TlsSettings:
    """Kafka's `ssl.*` settings of a client or listener, without the prefix and with underscores.

    Attributes:
        key_location: PEM file with the private key, if it is not in the key store. Kafka has no
            such setting.
        keeps_identity: whether a renewed certificate must have the name and the alternative names
            of the former one, unless `allow_dn_changes` or `allow_san_changes` is set. True gives
            the rule of Kafka's listeners; Kafka has no such setting.
        spelled: returns a setting's name as the user wrote it, for errors; the argument is Kafka's
            name, such as "ssl.keystore.location".
    """

    keystore_type: str = "JKS"
    keystore_location: str | None = None
    keystore_password: str | None = field(default=None, repr=False)
    keystore_key: str | None = field(default=None, repr=False)
    keystore_certificate_chain: str | None = None
    key_location: str | None = None
    key_password: str | None = field(default=None, repr=False)
    truststore_type: str = "JKS"
    truststore_location: str | None = None
    truststore_password: str | None = field(default=None, repr=False)
    truststore_certificates: str | None = None
    protocol: str = "TLSv1.3"
    enabled_protocols: Sequence[str] = ("TLSv1.2", "TLSv1.3")
    cipher_suites: Sequence[str] = ()
    endpoint_identification_algorithm: str = "https"
    client_auth: str = "none"
    allow_dn_changes: bool = False
    allow_san_changes: bool = False
    keeps_identity: bool = False
    spelled: Callable[[str], str] = field(default=_as_it_is, repr=False)

    @classmethod
    def from_kafka(
        cls,
        values: Mapping[str, object],
        spelled: Callable[[str], str] = _as_it_is,
        *,
        keeps_identity: bool = False,
    ) -> TlsSettings:
        """Return the settings from Kafka's names, such as "ssl.keystore.location".

        Args:
            values: values by Kafka's names. Other names, and values that are None, are ignored. A
                list may be given as text with commas.
            spelled: see the attribute.
            keeps_identity: see the attribute; for listeners.
        """
        given: dict[str, object] = {}
        for name in cls.__annotations__:
            value = values.get("ssl." + name.replace("_", "."))
            if value is not None and name not in ("spelled", "keeps_identity"):
                given[name] = _converted(name, value)
        return cls(
            **given,  # type: ignore[arg-type]
            keeps_identity=keeps_identity,
            spelled=spelled,
        )

    @property
    def has_truststore(self) -> bool:
        """Whether the trusted authorities are given, as a file or as text."""
        return self.truststore_location is not None or self.truststore_certificates is not None

    @property
    def checks_host(self) -> bool:
        """Whether the certificate of a server must contain the name that a client connects to."""
        return bool(self.endpoint_identification_algorithm.strip())

    def check(self) -> None:
        """Check values and combinations; the rules are those of Kafka's DefaultSslEngineFactory.

        Raises:
            ConfigError: a value is not one of Kafka's, or settings contradict each other.
        """
        for name in ("keystore", "truststore"):
            kind = getattr(self, f"{name}_type").upper()
            if kind not in STORE_TYPES:
                raise self.error(
                    f"ssl.{name}.type", f"{kind!r} is not one of {', '.join(STORE_TYPES)}"
                )
        if self.client_auth.lower() not in CLIENT_AUTH:
            raise self.error(
                "ssl.client.auth", f"{self.client_auth!r} is not one of {', '.join(CLIENT_AUTH)}"
            )
        algorithm = self.endpoint_identification_algorithm.strip().lower()
        if algorithm not in ("", "https"):
            raise self.error(
                "ssl.endpoint.identification.algorithm",
                f"{algorithm!r} is neither 'https' nor empty (no check of the host name)",
            )
        self._check_keystore()
        self._check_truststore()

    def _check_keystore(self) -> None:
        pem = self.keystore_type.upper() == "PEM"
        key, chain = "ssl.keystore.key", "ssl.keystore.certificate.chain"
        if self.keystore_key is not None or self.keystore_certificate_chain is not None:
            self._check_text(key if self.keystore_key is not None else chain, "keystore", pem)
            for name, value, other in (
                (key, self.keystore_key, chain),
                (chain, self.keystore_certificate_chain, key),
            ):
                if value is None:
                    raise self.error(other, f"it needs {self.spelled(name)}, which is not set")
        self._check_password("keystore", pem)

    def _check_truststore(self) -> None:
        pem = self.truststore_type.upper() == "PEM"
        if self.truststore_certificates is not None:
            self._check_text("ssl.truststore.certificates", "truststore", pem)
        self._check_password("truststore", pem)

    def _check_text(self, name: str, store: str, pem: bool) -> None:
        if not pem:
            raise self.error(name, f"it needs {self.spelled(f'ssl.{store}.type')}=PEM")
        if getattr(self, f"{store}_location") is not None:
            location = self.spelled(f"ssl.{store}.location")
            raise self.error(name, f"it and {location} exclude each other")

    def _check_password(self, store: str, pem: bool) -> None:
        name = f"ssl.{store}.password"
        has_password = getattr(self, f"{store}_password") is not None
        has_location = getattr(self, f"{store}_location") is not None
        if has_password and pem:
            also = f"; a key has {self.spelled('ssl.key.password')}" if store == "keystore" else ""
            raise self.error(name, f"PEM has no store password{also}")
        if has_password and not has_location:
            raise self.error(name, f"it needs {self.spelled(f'ssl.{store}.location')}")
        if store == "keystore" and has_location and not has_password and not pem:
            raise self.error(f"ssl.{store}.location", f"it needs {self.spelled(name)}")

    def error(self, name: str, reason: object) -> ConfigError:
        """Return the error for a setting by Kafka's name."""
        return ConfigError(f"{self.spelled(name)}: {reason}")


def _converted(name: str, value: object) -> object:
    if name in ("enabled_protocols", "cipher_suites") and isinstance(value, str):
        return tuple(part.strip() for part in value.split(",") if part.strip())
    if name.startswith("allow_") and isinstance(value, str):
        return value.strip().lower() == "true"
    return value
