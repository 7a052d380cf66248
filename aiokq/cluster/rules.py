"""`ClusterRules`: checks of the settings that all clients share, and values derived from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from aiokq.cluster.addresses import BootstrapAddress, parse_bootstrap_servers
from aiokq.core.setting_rules import Rules

if TYPE_CHECKING:
    import ssl

    from aiokq.cluster.settings import SecurityProtocol

__all__ = [
    "SASL_MECHANISMS",
    "ClusterRules",
    "no_other_type",
    "readable_addresses",
    "supported_mechanism",
    "token_source",
    "upper_case",
]

SASL_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI")
"""The supported SASL mechanisms."""

_CREDENTIALS = (
    "sasl_jaas_config",
    "sasl_oauth_token_provider",
    "sasl_oauthbearer_token_endpoint_url",
    "sasl_plain_password",
    "sasl_plain_username",
)
"""Settings that are refused without SASL."""


_HARMLESS = (
    "ssl_cipher_suites",
    "ssl_enabled_protocols",
    "ssl_endpoint_identification_algorithm",
    "ssl_keystore_type",
    "ssl_protocol",
    "ssl_truststore_type",
)
"""TLS settings that are also allowed without TLS, because files for Java often have them."""

_SAME = (
    ("ssl_cafile", "ssl_truststore_"),
    ("ssl_certfile", "ssl_keystore_"),
    ("ssl_password", "ssl_key_password"),
    ("ssl_check_hostname", "ssl_endpoint_identification_algorithm"),
)
"""Short names of settings, each with the beginning of Kafka's names for the same settings."""


def no_other_type(value: object) -> object:
    """Return the value of ``bootstrap_servers`` if it consists of strings.

    If the value is a client or a dict of settings (as confluent-kafka takes), the error says what
    to write instead.

    Raises:
        ValueError: the value is neither a string nor a sequence of strings.
    """
    texts: Sequence[object] = [value]
    if isinstance(value, Sequence) and not isinstance(value, str | bytes | bytearray):
        texts = value
    if any(isinstance(each, Mapping) for each in texts):  # not shown: it may have a password
        raise ValueError(
            "an address is 'host:port'; settings are keywords, with '_' in place of '.': "
            "bootstrap_servers='host:port', client_id='me'"
        )
    if hasattr(type(value), "bootstrap_servers"):
        raise ValueError(
            f"an address is 'host:port': pass the .bootstrap_servers of the {type(value).__name__}"
        )
    if not all(isinstance(each, str) for each in texts):
        raise ValueError(f"must be 'host:port' or a list of such addresses, not {value!r}")
    return value


def readable_addresses(value: str | Sequence[str]) -> tuple[str, ...]:
    return tuple(str(address) for address in parse_bootstrap_servers(value))


def upper_case(value: object) -> object:
    return value.upper() if isinstance(value, str) else value


def supported_mechanism(value: str) -> str:
    if value.upper() not in SASL_MECHANISMS:
        supported = ", ".join(SASL_MECHANISMS)
        raise ValueError(f"{value!r} is not supported; supported: {supported}")
    return value.upper()


def token_source(value: object) -> object:
    """Return the value of ``sasl_oauth_token_provider`` if it may be a source of tokens.

    Raises:
        ValueError: the value is neither a text nor callable, and has no method ``token``.
    """
    if (
        value is None
        or isinstance(value, str)
        or callable(value)
        or callable(getattr(value, "token", None))
    ):
        return value
    raise ValueError(
        "must be a function, an object with a method token(), or the name of a cloud, not "
        f"{type(value).__name__}"
    )


class ClusterRules(Rules):
    """Checks and derived values of the settings of a cluster."""

    if TYPE_CHECKING:
        bootstrap_servers: str | Sequence[str]
        request_timeout_ms: int
        default_api_timeout_ms: int
        security_protocol: SecurityProtocol
        sasl_mechanism: str
        sasl_plain_username: str | None
        sasl_plain_password: object
        sasl_jaas_config: object
        sasl_kerberos_service_name: str | None
        sasl_kerberos_principal: str | None
        sasl_kerberos_keytab: str | None
        sasl_oauth_token_provider: object
        sasl_oauthbearer_token_endpoint_url: str | None
        sasl_oauthbearer_client_credentials_client_id: str | None
        sasl_oauthbearer_client_credentials_client_secret: object
        sasl_oauthbearer_scope: str | None
        sasl_oauthbearer_extensions: str | None
        sasl_oauthbearer_allowed_urls: tuple[str, ...]
        sasl_oauthbearer_jwt_retriever_class: str
        sasl_oauthbearer_assertion_file: str | None
        sasl_oauthbearer_assertion_private_key_file: str | None
        ssl_context: ssl.SSLContext | None
        ssl_certfile: str | None
        ssl_keyfile: str | None

    def _check_together(self) -> None:
        super()._check_together()
        self._check_backoffs()
        self._check_security()

    def _check_backoffs(self) -> None:
        for name in ("retry_backoff", "reconnect_backoff", "socket_connection_setup_timeout"):
            first = getattr(self, f"{name}_ms")
            longest = getattr(self, f"{name}_max_ms")
            if longest >= first:
                continue
            if {f"{name}_ms", f"{name}_max_ms"} <= self.explicit:
                raise ValueError(
                    f"{name}_max_ms={longest} is below {name}_ms={first}: raise it to {first}"
                )

    def _check_security(self) -> None:
        tls, sasl = self.uses_tls, self.uses_sasl
        given = sorted(name for name in self.explicit if getattr(self, name) is not None)
        tls_given = [name for name in given if name.startswith("ssl_")]
        materials = [name for name in tls_given if name not in _HARMLESS]
        sasl_given = [name for name in given if name in _CREDENTIALS]
        if materials and not tls:
            fix = "SASL_SSL" if sasl else "SSL"
            raise ValueError(
                f"{materials[0]} has no effect with security_protocol={self.security_protocol}: "
                f"set security_protocol={fix!r}"
            )
        if sasl_given and not sasl:
            fix = "SASL_SSL" if tls else "SASL_PLAINTEXT"
            raise ValueError(
                f"{sasl_given[0]} has no effect with security_protocol={self.security_protocol}: "
                f"set security_protocol={fix!r}"
            )
        if sasl:
            # Imported here, because most clients use no SASL, and each module delays their start.
            from aiokq.cluster.sasl_login import sasl_login

            sasl_login(self)
        if self.ssl_context is not None and (files := [n for n in tls_given if n != "ssl_context"]):
            raise ValueError(f"ssl_context and {files[0]} exclude each other: set one of them")
        if self.ssl_keyfile is not None and self.ssl_certfile is None:
            raise ValueError("ssl_keyfile needs ssl_certfile")
        for short, kafkas in _SAME:
            if short in given and (others := [n for n in given if n.startswith(kafkas)]):
                raise ValueError(f"{short} and {others[0]} exclude each other: set one of them")

    @property
    def bootstrap_addresses(self) -> tuple[BootstrapAddress, ...]:
        """The parsed ``bootstrap_servers``."""
        return parse_bootstrap_servers(self.bootstrap_servers)

    @property
    def uses_tls(self) -> bool:
        """Whether connections are encrypted."""
        return self.security_protocol in ("SSL", "SASL_SSL")

    @property
    def uses_sasl(self) -> bool:
        """Whether connections are authenticated by SASL."""
        return self.security_protocol in ("SASL_PLAINTEXT", "SASL_SSL")

    @property
    def principal(self) -> str | None:
        """The client's principal, such as "User:alice"; None if the settings do not tell it.

        With TLS, OAUTHBEARER and GSSAPI, the broker may take the principal from a certificate, a
        token or a Kerberos ticket.
        """
        if self.uses_sasl:
            name = self.sasl_plain_username
            if name is None and self.sasl_jaas_config is not None:
                from aiokq.cluster.sasl_login import sasl_login

                name = sasl_login(self).username or None
            return None if name is None else f"User:{name}"
        return None if self.uses_tls else "User:ANONYMOUS"

    @property
    def request_timeout(self) -> float:
        """``request_timeout_ms`` in seconds."""
        return self.request_timeout_ms / 1000

    @property
    def default_api_timeout(self) -> float:
        """``default_api_timeout_ms`` in seconds."""
        return self.default_api_timeout_ms / 1000
