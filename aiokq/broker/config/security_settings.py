"""The TLS and SASL settings of a broker, and which prefixes each of them may have.

`listener_security.py` determines the values in effect on a listener.

Source: Kafka ``BrokerSecurityConfigs``, ``SslConfigs``, ``SaslConfigs``, ``ListenerName``.
"""

from __future__ import annotations

from typing import Final

from aiokq.broker.config.setting import PASSWORD, declared

__all__ = ["MECHANISMS", "OAUTHBEARER", "PLAIN", "SecuritySettings", "prefixed_setting"]

PLAIN: Final = "PLAIN"
OAUTHBEARER: Final = "OAUTHBEARER"
MECHANISMS: Final = (PLAIN, "SCRAM-SHA-256", "SCRAM-SHA-512", OAUTHBEARER)
"""The SASL mechanisms of the broker."""

_OF_MECHANISM: Final = (
    "allow.unsecured.tokens",
    "connections.max.reauth.ms",
    "sasl.jaas.config",
    "sasl.server.callback.handler.class",
)
_OF_MECHANISM_PREFIX: Final = "sasl.oauthbearer."


def _secret(doc: str) -> str | None:
    return declared(None, doc, kind=PASSWORD, nullable=True)


class SecuritySettings:
    """The TLS and SASL settings in `BrokerSettings`.

    Most may have the prefix `listener.name.NAME.`, and some the prefix
    `listener.name.NAME.MECHANISM.`; see `prefixed_setting`.
    """

    ssl_keystore_type: str = declared(
        "JKS",
        "Format of the key store: PEM, PKCS12, or JKS for a store that keytool of Java 9 or later "
        "has written, which is PKCS12.",
    )
    ssl_keystore_location: str | None = declared(
        None,
        "File with the private key and the certificates of a listener that uses TLS.",
        kind="string",
        nullable=True,
        is_path=True,
    )
    ssl_keystore_password: str | None = _secret("Password of the key store; PEM has none.")
    ssl_key_password: str | None = _secret("Password of the private key.")
    ssl_keystore_key: str | None = _secret(
        "Private key as PEM text (PKCS#8), in place of ssl.keystore.location."
    )
    ssl_keystore_certificate_chain: str | None = _secret(
        "Certificates as PEM text, in place of ssl.keystore.location."
    )
    ssl_truststore_type: str = declared("JKS", "Format of the trust store; see ssl.keystore.type.")
    ssl_truststore_location: str | None = declared(
        None,
        "File with the authorities of clients' certificates.",
        kind="string",
        nullable=True,
        is_path=True,
    )
    ssl_truststore_password: str | None = _secret("Password of the trust store; PEM has none.")
    ssl_truststore_certificates: str | None = _secret(
        "Authorities of clients' certificates as PEM text, in place of ssl.truststore.location."
    )
    ssl_client_auth: str = declared(
        "none",
        "Whether clients must (`required`) or may (`requested`) have a certificate. On a listener "
        "of SASL_SSL, only listener.name.NAME.ssl.client.auth counts.",
        choices=("none", "requested", "required"),
    )
    ssl_protocol: str = declared(
        "TLSv1.3", "Newest version of TLS if ssl.enabled.protocols is not set."
    )
    ssl_enabled_protocols: str = declared(
        "TLSv1.2,TLSv1.3", "Versions of TLS that clients may use.", kind="list"
    )
    ssl_cipher_suites: str = declared(
        "", "Cipher suites that clients may use; if it is empty, those of OpenSSL.", kind="list"
    )
    ssl_principal_mapping_rules: str = declared(
        "DEFAULT",
        "Rules that turn the distinguished name of a client's certificate into the name of its "
        "principal, separated by commas: RULE:pattern/replacement/[LU], or DEFAULT for the whole "
        "distinguished name.",
    )

    ssl_allow_dn_changes: bool = declared(
        False,
        "Whether a renewed certificate of a listener may have another distinguished name than the "
        "former one.",
    )
    ssl_allow_san_changes: bool = declared(
        False,
        "Whether a renewed certificate of a listener may have other alternative names than the "
        "former one.",
    )

    sasl_enabled_mechanisms: str = declared(
        "GSSAPI",
        "SASL mechanisms of listeners with SASL, separated by commas: PLAIN, SCRAM-SHA-256, "
        "SCRAM-SHA-512, OAUTHBEARER. Kafka's default, GSSAPI, is not supported: a listener with "
        "SASL needs this setting.",
        kind="list",
    )
    sasl_jaas_config: str | None = _secret(
        "Login module of a mechanism. Only "
        "listener.name.NAME.MECHANISM.sasl.jaas.config has an effect, for example "
        "listener.name.sasl_ssl.plain.sasl.jaas.config; PLAIN takes its users from the options "
        "user_NAME."
    )
    sasl_server_max_receive_size: int = declared(
        524288, "Maximum size of a request before a client has logged in.", at_least=1
    )
    sasl_server_callback_handler_class: str | None = declared(
        None,
        "Java class that checks credentials; only classes of Kafka that this broker replaces are "
        "accepted.",
        kind="string",
        nullable=True,
    )
    sasl_mechanism_inter_broker_protocol: str = declared(
        "GSSAPI",
        "Mechanism between brokers. If it is set and the listener for other brokers uses SASL, the "
        "listener must have this mechanism.",
    )
    connections_max_reauth_ms: int = declared(
        0,
        "Time after a login at which a client must have logged in again, 0 for no limit. The "
        "session of a token ends with the token at the latest.",
        kind="long",
    )
    connection_failed_authentication_delay_ms: int = declared(
        100,
        "Delay of the answer to a failed login, and of the closing of its connection.",
        at_least=0,
    )
    sasl_oauthbearer_jwks_endpoint_url: str | None = declared(
        None,
        "URL (https, http or file) of the keys (JWKS) with which tokens of OAUTHBEARER are signed.",
        kind="string",
        nullable=True,
    )
    sasl_oauthbearer_allowed_urls: str = declared(
        "",
        "URLs from which keys may be fetched, also after a redirect; if it is empty, only the URL "
        "in sasl.oauthbearer.jwks.endpoint.url. In Kafka, this is the property "
        "org.apache.kafka.sasl.oauthbearer.allowed.urls of the JVM.",
        kind="list",
    )
    sasl_oauthbearer_jwks_endpoint_refresh_ms: int = declared(
        3600000, "Interval at which the keys of tokens are fetched.", kind="long", at_least=1
    )
    sasl_oauthbearer_jwks_endpoint_retry_backoff_ms: int = declared(
        100, "Time until the first new attempt to fetch the keys.", kind="long", at_least=0
    )
    sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms: int = declared(
        10000, "Longest time until a new attempt to fetch the keys.", kind="long", at_least=0
    )
    sasl_oauthbearer_clock_skew_seconds: int = declared(
        30,
        "Difference of clocks that is allowed when the times in a token are checked.",
        at_least=0,
    )
    sasl_oauthbearer_expected_audience: str = declared(
        "",
        "Audiences of which a token must have one. If it is empty, a token with an audience is "
        "refused.",
        kind="list",
    )
    sasl_oauthbearer_expected_issuer: str | None = declared(
        None, "Issuer that a token must have.", kind="string", nullable=True
    )
    sasl_oauthbearer_scope_claim_name: str = declared(
        "scope", "Name of the claim with the scopes of a token."
    )
    sasl_oauthbearer_sub_claim_name: str = declared(
        "sub", "Name of the claim with the name of a token's principal."
    )

    handshake_timeout_ms: int = declared(
        30000,
        "Time in which a client must complete the TLS handshake and the login. Not Kafka's.",
        at_least=1,
    )
    allow_unsecured_tokens: bool = declared(
        False,
        "Accept tokens of OAUTHBEARER that are not signed: whoever can reach the listener can log "
        "in with any name. For development only; not Kafka's.",
    )
    allow_credentials_without_tls: bool = declared(
        False,
        "Allow PLAIN and OAUTHBEARER without TLS on a listener that other machines can reach, "
        "although passwords and tokens can then be read on the network. Not Kafka's.",
    )


def prefixed_setting(name: str) -> str | None:
    """Return the name of a TLS or SASL setting without the prefix of a mechanism.

    Args:
        name: a name without `listener.name.NAME.`.

    Returns:
        The name; None if there is no such TLS or SASL setting, or if the setting cannot be set for
        one listener or for this mechanism.
    """
    if _is_declared(name):
        return None if name in _OF_BROKER else name
    mechanism, _, base = name.partition(".")
    if mechanism.upper() not in MECHANISMS or mechanism != mechanism.lower():
        return None
    if base in _OF_MECHANISM or (base.startswith(_OF_MECHANISM_PREFIX) and _is_declared(base)):
        return base
    return None


_OF_BROKER: Final = (
    "connection.failed.authentication.delay.ms",
    "sasl.mechanism.inter.broker.protocol",
)
"""Settings that no prefix can set for one listener, because they apply to the whole broker."""


def _is_declared(name: str) -> bool:
    return name.replace(".", "_") in SecuritySettings.__annotations__
