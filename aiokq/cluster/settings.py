"""`ClusterSettings`: the settings of connections, metadata, backoff and security."""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr

from aiokq.cluster.rules import (
    ClusterRules,
    no_other_type,
    readable_addresses,
    supported_mechanism,
    token_source,
    upper_case,
)
from aiokq.core.errors import ConfigError
from aiokq.core.limits import INT32_MAX, INT64_MAX
from aiokq.core.settings import Settings

__all__ = ["ClusterSettings", "SecurityProtocol", "StoreType"]

SecurityProtocol = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
StoreType = Literal["JKS", "PKCS12", "PEM"]


class ClusterSettings(ClusterRules, Settings):
    """The settings that all clients of a cluster share.

    Settings that exist in Kafka have Kafka's names, units and defaults, except for the defaults of
    client_id and sasl_mechanism.

    Raises:
        ConfigError: a setting is unknown, out of range, or contradicts another setting.
    """

    FILES: ClassVar[frozenset[str]] = frozenset(
        (
            "sasl_kerberos_keytab",
            "sasl_oauthbearer_assertion_file",
            "sasl_oauthbearer_assertion_private_key_file",
            "sasl_oauthbearer_assertion_template_file",
            "ssl_cafile",
            "ssl_certfile",
            "ssl_keyfile",
            "ssl_keystore_location",
            "ssl_truststore_location",
        )
    )

    bootstrap_servers: Annotated[
        str | Sequence[str], BeforeValidator(no_other_type), AfterValidator(readable_addresses)
    ] = Field(
        default=(),
        description="Addresses of brokers through which the client finds the cluster, as "
        "'host:port'. Several addresses are separated by commas or given in a list. An IPv6 "
        "address is in brackets.",
    )
    client_id: str = Field(
        default="aiokq",
        description="Name by which brokers identify this client in logs and quotas.",
    )
    client_rack: str = Field(
        default="",
        description="Rack in which this client runs. Consumers read from a replica in the same "
        "rack if the brokers allow it (KIP-392), and most assignors consider the rack (KIP-881).",
    )

    request_timeout_ms: int = Field(
        default=30_000,
        ge=1,
        le=INT32_MAX,
        description="Maximum time in milliseconds between a request and its response.",
    )
    default_api_timeout_ms: int = Field(
        default=60_000,
        ge=1,
        le=INT32_MAX,
        description="Maximum duration in milliseconds, with all retries, of a call for which no "
        "timeout is given.",
    )
    bootstrap_timeout_ms: int = Field(
        default=10_000,
        ge=0,
        le=INT64_MAX,
        description="Maximum time in milliseconds for which start() and `async with` wait for the "
        "first metadata; with 0, they do not wait.",
    )
    metadata_max_age_ms: int = Field(
        default=300_000,
        ge=1,
        le=INT64_MAX,
        description="Age in milliseconds at which the metadata is requested again, even if nothing "
        "indicates a change.",
    )
    allow_auto_create_topics: bool = Field(
        default=True,
        description="Whether a request for the metadata of a missing topic may create the topic, "
        "if the brokers also allow the creation of topics.",
    )
    metadata_recovery_strategy: Literal["none", "rebootstrap"] = Field(
        default="rebootstrap",
        description="What to do when no known broker answers (KIP-899): ask only the known "
        "brokers again ('none'), or also ask bootstrap_servers ('rebootstrap').",
    )
    metadata_recovery_rebootstrap_trigger_ms: int = Field(
        default=300_000,
        ge=0,
        le=INT64_MAX,
        description="Number of milliseconds by which metadata may be older than "
        "metadata_max_age_ms before the client asks bootstrap_servers instead of the known brokers "
        "(KIP-1102).",
    )

    retry_backoff_ms: int = Field(
        default=100,
        ge=0,
        le=INT64_MAX,
        description="Pause in milliseconds before the first retry of a request.",
    )
    retry_backoff_max_ms: int = Field(
        default=1_000,
        ge=0,
        le=INT64_MAX,
        description="Longest pause in milliseconds before a retry of a request; the pause "
        "doubles with each retry (KIP-580).",
    )
    reconnect_backoff_ms: int = Field(
        default=50,
        ge=0,
        le=INT64_MAX,
        description="Pause in milliseconds before the first attempt to reconnect to a broker.",
    )
    reconnect_backoff_max_ms: int = Field(
        default=1_000,
        ge=0,
        le=INT64_MAX,
        description="Longest pause in milliseconds before an attempt to reconnect; the pause "
        "doubles with each failed attempt.",
    )
    socket_connection_setup_timeout_ms: int = Field(
        default=10_000,
        ge=1,
        le=INT64_MAX,
        description="Maximum time in milliseconds for opening a connection. The time doubles with "
        "each failure, up to socket_connection_setup_timeout_max_ms.",
    )
    socket_connection_setup_timeout_max_ms: int = Field(
        default=30_000,
        ge=1,
        le=INT64_MAX,
        description="Upper limit, in milliseconds, to which the time for opening a connection "
        "grows (KIP-601).",
    )
    connections_max_idle_ms: int = Field(
        default=540_000,
        ge=0,
        le=INT64_MAX,
        description="Time in milliseconds after which an unused connection is closed; with 0, the "
        "connection stays open.",
    )

    security_protocol: Annotated[SecurityProtocol, BeforeValidator(upper_case)] = Field(
        default="PLAINTEXT",
        description="Whether connections use TLS ('SSL'), SASL ('SASL_PLAINTEXT'), both "
        "('SASL_SSL') or neither ('PLAINTEXT').",
    )
    sasl_mechanism: Annotated[str, AfterValidator(supported_mechanism)] = Field(
        default="PLAIN",
        description="SASL mechanism to authenticate with: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, "
        "OAUTHBEARER or GSSAPI. No other mechanism is tried if it is refused.",
    )
    sasl_plain_username: str | None = Field(
        default=None, description="User name for PLAIN and SCRAM."
    )
    sasl_plain_password: SecretStr | None = Field(
        default=None, repr=False, description="Password for PLAIN and SCRAM."
    )
    sasl_jaas_config: SecretStr | None = Field(
        default=None,
        repr=False,
        description="Credentials in the form of Java's clients: one login module with its options, "
        "such as 'org.apache.kafka.common.security.scram.ScramLoginModule required "
        'username="..." password="...";\'. No class is loaded.',
    )
    sasl_kerberos_service_name: str | None = Field(
        default=None,
        description="Name of the service in the principals of the brokers, for GSSAPI; mostly "
        "'kafka'.",
    )
    sasl_kerberos_domain_name: str | None = Field(
        default=None,
        description="Host name in the principals of all brokers. Default: the name by which each "
        "broker is addressed.",
    )
    sasl_kerberos_principal: str | None = Field(
        default=None,
        description="Principal of this client. Default: the principal of the tickets or of the "
        "keytab.",
    )
    sasl_kerberos_keytab: str | None = Field(
        default=None,
        description="File with the keys of this client. Default: the tickets that kinit obtained.",
    )
    sasl_oauth_token_provider: Annotated[object | None, AfterValidator(token_source)] = Field(
        default=None,
        repr=False,
        description="Source of tokens for OAUTHBEARER: a coroutine function or function that "
        "returns a token as str or OAuthToken, an object with a method token(), or the name of a "
        "cloud: 'aws_msk_iam', 'azure_event_hubs' or 'google_managed_kafka'.",
    )
    sasl_oauthbearer_token_endpoint_url: str | None = Field(
        default=None,
        repr=False,  # the query may have a secret
        description="URL of the authorization server from which tokens for OAUTHBEARER are "
        "requested, or file:///PATH of a file with a token.",
    )
    sasl_oauthbearer_allowed_urls: tuple[str, ...] = Field(
        default=(),
        repr=False,
        description="URLs that sasl_oauthbearer_token_endpoint_url may have besides those with "
        "https, and with http on this machine. Each is compared as a whole.",
    )
    sasl_oauthbearer_client_credentials_client_id: str | None = Field(
        default=None, description="The client's id for the authorization server."
    )
    sasl_oauthbearer_client_credentials_client_secret: SecretStr | None = Field(
        default=None, repr=False, description="The client's secret for the authorization server."
    )
    sasl_oauthbearer_scope: str | None = Field(
        default=None, description="Scope that the client requests from the authorization server."
    )
    sasl_oauthbearer_extensions: str | None = Field(
        default=None,
        description="SASL extensions that are sent with the token, as NAME=VALUE, separated by "
        "commas (KIP-342).",
    )
    sasl_oauthbearer_header_urlencode: bool = Field(
        default=False,
        description="Whether the client's id and secret are URL-encoded, as RFC 6749 demands. Not "
        "all authorization servers decode them.",
    )
    sasl_oauthbearer_jwt_retriever_class: str = Field(
        default="DefaultJwtRetriever",
        description="How tokens are requested: by client credentials or from a file, depending on "
        "the URL ('DefaultJwtRetriever'), or by a signed assertion ('JwtBearerJwtRetriever'). The "
        "name may have Kafka's package in front.",
    )
    sasl_oauthbearer_assertion_algorithm: Literal["RS256", "ES256"] = Field(
        default="RS256", description="Algorithm with which an assertion is signed."
    )
    sasl_oauthbearer_assertion_private_key_file: str | None = Field(
        default=None, description="PEM file with the private key that signs assertions."
    )
    sasl_oauthbearer_assertion_private_key_passphrase: SecretStr | None = Field(
        default=None, repr=False, description="Passphrase of the private key that signs assertions."
    )
    sasl_oauthbearer_assertion_claim_aud: str | None = Field(
        default=None, description="Claim 'aud' of assertions."
    )
    sasl_oauthbearer_assertion_claim_iss: str | None = Field(
        default=None, description="Claim 'iss' of assertions."
    )
    sasl_oauthbearer_assertion_claim_sub: str | None = Field(
        default=None, description="Claim 'sub' of assertions."
    )
    sasl_oauthbearer_assertion_claim_exp_seconds: int = Field(
        default=300, ge=1, le=86_400, description="Life of an assertion in seconds."
    )
    sasl_oauthbearer_assertion_claim_nbf_seconds: int = Field(
        default=60,
        ge=0,
        le=3600,
        description="Number of seconds by which an assertion is valid before it is made.",
    )
    sasl_oauthbearer_assertion_claim_jti_include: bool = Field(
        default=False, description="Whether each assertion has an id, in the claim 'jti'."
    )
    sasl_oauthbearer_assertion_file: str | None = Field(
        default=None,
        description="File with an assertion that another program makes; no key is needed then.",
    )
    sasl_oauthbearer_assertion_template_file: str | None = Field(
        default=None,
        description="JSON file with further parts of assertions, in the objects 'header' and "
        "'payload'.",
    )
    sasl_login_connect_timeout_ms: int | None = Field(
        default=None,
        ge=1,
        le=INT32_MAX,
        description="Maximum time in milliseconds for connecting to the authorization server. "
        "Default: 10 seconds.",
    )
    sasl_login_read_timeout_ms: int | None = Field(
        default=None,
        ge=1,
        le=INT32_MAX,
        description="Maximum time in milliseconds for which the authorization server sends "
        "nothing. Default: 10 seconds. A whole answer may take 30 seconds, or this time if it is "
        "longer.",
    )
    sasl_login_retry_backoff_ms: int = Field(
        default=100,
        ge=0,
        le=INT64_MAX,
        description="Pause in milliseconds before a request to the authorization server is "
        "repeated; the pause doubles with each retry.",
    )
    sasl_login_retry_backoff_max_ms: int = Field(
        default=10_000,
        ge=0,
        le=INT64_MAX,
        description="Maximum time in milliseconds within which a request to the authorization "
        "server is repeated.",
    )
    sasl_login_refresh_window_factor: float = Field(
        default=0.8,
        ge=0.5,
        le=1.0,
        description="Part of a token's life after which a new token is obtained.",
    )
    sasl_login_refresh_window_jitter: float = Field(
        default=0.05,
        ge=0.0,
        le=0.25,
        description="Largest random part of a token's life that is added to "
        "sasl_login_refresh_window_factor.",
    )
    sasl_login_refresh_buffer_seconds: int = Field(
        default=300,
        ge=0,
        le=3600,
        description="Number of seconds before a token's end by which a new token is obtained, "
        "unless the token lives less than this time and "
        "sasl_login_refresh_min_period_seconds together.",
    )
    sasl_login_refresh_min_period_seconds: int = Field(
        default=60,
        ge=0,
        le=900,
        description="Least number of seconds before a new token is obtained.",
    )
    ssl_context: ssl.SSLContext | None = Field(
        default=None,
        description="TLS context to use as it is. No other ssl_ setting can be given with it.",
    )
    ssl_cafile: str | None = Field(
        default=None,
        description="PEM file with the certificate authorities to trust. Default: the certificate "
        "authorities of the system.",
    )
    ssl_certfile: str | None = Field(
        default=None, description="PEM file with this client's certificate chain."
    )
    ssl_keyfile: str | None = Field(
        default=None,
        description="PEM file with the private key of the client's certificate, if the key is not "
        "in ssl_certfile.",
    )
    ssl_password: SecretStr | None = Field(
        default=None, repr=False, description="Password of the client's private key."
    )
    ssl_check_hostname: bool = Field(
        default=True,
        description="Whether a broker's certificate must contain the name of the broker's host.",
    )
    ssl_truststore_type: Annotated[StoreType, BeforeValidator(upper_case)] = Field(
        default="JKS",
        description="Format of the trust store: 'PEM', 'PKCS12', or 'JKS' for a store that keytool "
        "of Java 9 or later has written, which is PKCS12. PKCS12 needs the package cryptography.",
    )
    ssl_truststore_location: str | None = Field(
        default=None,
        description="File with the certificate authorities to trust. Default: the certificate "
        "authorities of the system.",
    )
    ssl_truststore_password: SecretStr | None = Field(
        default=None, repr=False, description="Password of the trust store; PEM has none."
    )
    ssl_truststore_certificates: SecretStr | None = Field(
        default=None,
        repr=False,
        description="Certificate authorities to trust as PEM text, in place of "
        "ssl_truststore_location, with ssl_truststore_type PEM.",
    )
    ssl_keystore_type: Annotated[StoreType, BeforeValidator(upper_case)] = Field(
        default="JKS", description="Format of the key store; see ssl_truststore_type."
    )
    ssl_keystore_location: str | None = Field(
        default=None, description="File with this client's private key and certificate chain."
    )
    ssl_keystore_password: SecretStr | None = Field(
        default=None, repr=False, description="Password of the key store; PEM has none."
    )
    ssl_keystore_key: SecretStr | None = Field(
        default=None,
        repr=False,
        description="This client's private key as PEM text, in place of ssl_keystore_location, "
        "with ssl_keystore_type PEM. The key is not written to a file.",
    )
    ssl_keystore_certificate_chain: SecretStr | None = Field(
        default=None,
        repr=False,
        description="This client's certificate chain as PEM text, its own certificate first; with "
        "ssl_keystore_key.",
    )
    ssl_key_password: SecretStr | None = Field(
        default=None, repr=False, description="Password of the private key in a PEM key store."
    )
    ssl_protocol: Literal["TLSv1.3", "TLSv1.2", "TLS"] = Field(
        default="TLSv1.3",
        description="Newest version of TLS if ssl_enabled_protocols is empty.",
    )
    ssl_enabled_protocols: tuple[str, ...] = Field(
        default=("TLSv1.2", "TLSv1.3"), description="Versions of TLS that may be used."
    )
    ssl_cipher_suites: tuple[str, ...] = Field(
        default=(),
        description="Cipher suites that may be used, by Java's or OpenSSL's names. Default: those "
        "of OpenSSL. A version of TLS of which no suite is named is not used.",
    )
    ssl_endpoint_identification_algorithm: str = Field(
        default="https",
        description="'https' to check that a broker's certificate contains the name of the "
        "broker's host; an empty string for no check, like ssl_check_hostname=False.",
    )

    loop_stall_ms: int = Field(
        default=1000,
        ge=0,
        le=INT32_MAX,
        description="Time in milliseconds after which a blocked event loop is reported by the "
        "event LoopStalled; 0 turns the report off. A thread watches the event loop of consumers "
        "in a group, and the event loop of other clients only if this setting is given.",
    )

    @classmethod
    def checked(cls, settings: Self) -> Self:
        """Return ``settings`` if it has the fields of this class and sets no other fields.

        Raises:
            ConfigError: ``settings`` does not meet these conditions.
        """
        known = type(settings).model_fields if isinstance(settings, Settings) else {}
        if not cls.model_fields.keys() <= known.keys():
            raise ConfigError(
                f"settings must be {cls.__name__}, not {type(settings).__name__}; pass individual "
                "settings as keywords"
            )
        if beside := sorted(settings.explicit - cls.model_fields.keys()):
            raise ConfigError(
                f"{cls.__name__} has no {beside[0]}: give {type(settings).__name__} to its client"
            )
        return settings
